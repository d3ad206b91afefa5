"""Tasks over the workers of a Dask cluster, which share no disk with this machine and may be lost."""

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from pagesim.core.files import replacing
from pagesim.errors import InputError, PagesimError
from pagesim.experiment.attempt import Outcome, Progress, Task, attempt

_SECONDS_TO_CONNECT = 10
_TRIES = 3  # of a task whose worker is lost, or the last copy of its trace


def run_on_cluster(tasks: list[Task], address: str,
                   on_progress: Callable[[Progress], None]) -> Iterator[tuple[Task, Outcome]]:
    """Yield each task with its outcome as it ends.

    A trace goes to the workers once, as the bytes of its file.  A task whose worker is lost begins again elsewhere.

    Args:
        address: of the scheduler, such as ``tcp://10.0.0.1:8786``.

    Raises:
        InputError: there is no scheduler, or a trace cannot be read.
    """
    from distributed import Client, as_completed

    try:
        client = Client(address, timeout=_SECONDS_TO_CONNECT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(f"--cluster {address}: no Dask scheduler answers there: {error}") from None
    with client:
        ask = _Asker(client)
        waiting = as_completed([], loop=client.loop)
        asked = {}
        for task in tasks:
            future = ask(task)
            asked[future.key] = task, 1
            waiting.add(future)
        for future in waiting:
            task, tries = asked.pop(future.key)
            try:
                outcome = future.result()
            except Exception as error:  # of Dask: the outcome of the task itself is a value
                if tries < _TRIES:
                    again = ask(task)
                    asked[again.key] = task, tries + 1
                    waiting.add(again)
                    continue
                outcome = Outcome(error=PagesimError(f"the cluster lost it {tries} times: {error!r}"))
            on_progress(Progress(task.index, 0, 0, 0, ended=True))
            yield task, outcome


class _Asker:
    """Submits tasks, each with the bytes of its trace, which go to the workers once."""

    def __init__(self, client) -> None:
        self._client, self._files = client, {}

    def __call__(self, task: Task):
        path = task.case.trace.path
        held = self._files.get(path)
        if held is None or held.status in ("lost", "cancelled", "error"):
            try:
                content = Path(path).read_bytes()
            except OSError as error:
                raise InputError(f"{path}: {error.strerror}") from None
            held = self._files[path] = self._client.scatter(content, broadcast=True)
        return self._client.submit(_attempt_there, task, held, pure=False)


def _attempt_there(task: Task, content: bytes) -> Outcome:
    """On a worker: run the task on its own copy of the trace."""
    path = task.case.trace.path
    copy = str(_copy(content, Path(path).name))
    there = replace(task, case=replace(task.case, trace=replace(task.case.trace, path=copy)))
    outcome = attempt(there, lambda progress: None)
    if outcome.error is None:
        return outcome
    return replace(outcome, error=type(outcome.error)(str(outcome.error).replace(copy, path)))


def _copy(content: bytes, name: str) -> Path:
    """A file with this content; a worker keeps it for the other cases of the trace."""
    folder = Path(tempfile.gettempdir()) / f"pagesim-{hashlib.sha256(content).hexdigest()[:32]}"
    folder.mkdir(exist_ok=True)
    path = folder / name
    if not path.is_file():
        with replacing(path, "wb") as file:
            file.write(content)
    return path
