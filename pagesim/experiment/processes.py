"""Tasks over worker processes; a worker that dies costs its own task only."""

import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType

from pagesim.errors import PagesimError
from pagesim.experiment.attempt import Outcome, Progress, Task, attempt

_ENDING = (signal.SIGINT, signal.SIGTERM)
_LONGEST_FAREWELL_S = 10  # steps and compiling are not broken off


def run_in_processes(tasks: list[Task], num_processes: int,
                     on_progress: Callable[[Progress], None]) -> Iterator[tuple[Task, Outcome]]:
    """Yield each task with its outcome as it ends.  Leaving early (Ctrl-C, ``close``) ends the workers."""
    waiting = deque(tasks)
    workers: dict[Connection, tuple[BaseProcess, Task]] = {}
    leaving: list[BaseProcess] = []
    try:
        for _ in range(min(num_processes, len(tasks))):
            _start(workers, waiting.popleft())
        while workers:
            for connection in wait(list(workers)):
                process, task = workers[connection]
                try:
                    message = connection.recv()
                except EOFError:  # the worker is gone: a crash, or the kernel took it for want of memory
                    del workers[connection]
                    process.join()
                    yield task, Outcome(error=PagesimError(_death(process.exitcode)))
                    if waiting:
                        _start(workers, waiting.popleft())
                    continue
                if isinstance(message, Progress):
                    on_progress(message)
                    continue
                yield task, message
                if waiting:
                    workers[connection] = process, waiting.popleft()
                    connection.send(workers[connection][1])
                else:
                    del workers[connection]
                    connection.send(None)
                    leaving.append(process)
    finally:
        for process, _ in workers.values():
            process.terminate()
            leaving.append(process)
        for process in leaving:
            process.join(_LONGEST_FAREWELL_S)
            process.kill()  # nothing, where it has ended
            process.join()


def _start(workers: dict[Connection, tuple[BaseProcess, Task]], task: Task) -> None:
    """A new process rather than a copy of this one: the compiled engine's threads and caches do not survive a fork."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs,), daemon=True)
    with _undisturbed():  # a process half begun would end in a traceback of its own
        process.start()
    theirs.close()  # else its end would stay open here and a dead worker would never show
    ours.send(task)
    workers[ours] = process, task


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Signals wait; a process that is started here has them wait too, until it lets them in."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        with _handlers_wait():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _handlers_wait() -> Iterator[None]:
    """A signal that another thread of this process takes is handled in the main one all the same: later."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    come = []
    handlers = {number: signal.signal(number, lambda number, frame: come.append(number)) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for number in come:
            signal.raise_signal(number)


def _work(connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and decides
    signal.signal(signal.SIGTERM, _leave)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    try:
        while (task := connection.recv()) is not None:
            connection.send(attempt(task, connection.send))
    except (EOFError, ConnectionError):  # the parent is gone, and with it whoever wanted the figures
        pass


def _leave(number: int, frame: FrameType | None) -> None:
    """End by way of every ``finally``, so that no half of a file stays."""
    sys.exit(128 + number)


def _death(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"its process ended with exit code {exit_code}; what it wrote above is the reason"
    name = signal.Signals(-exit_code).name
    hint = "; often for want of memory: use fewer --jobs" if name == "SIGKILL" else ""
    return f"its process was ended by {name}{hint}"
