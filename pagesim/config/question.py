"""What a command line asks for: an experiment or a trace alone, and what flags say of model, memory and server."""

from dataclasses import dataclass
from pathlib import Path

from pagesim.case import Experiment
from pagesim.config.document import Document, Place
from pagesim.config.load import empty, experiment, read
from pagesim.config.overrides import Override, assignment, overridden
from pagesim.config.schema import SOURCES
from pagesim.config.vllm import Server, pool_overrides, vllm_server
from pagesim.errors import InputError, TraceError
from pagesim.trace.read import form_of

_CONFIGS, _TRACES = {".yaml", ".yml"}, {".csv", ".tsv", ".jsonl"}


@dataclass(frozen=True)
class Said:
    """The flags.  ``options`` are a config's keys and their values as they were written, None where they were not."""

    options: dict[str, str | None]
    overrides: tuple[str, ...] = ()
    from_vllm: str | None = None
    block_size: str | None = None

    @property
    def given(self) -> dict[str, str]:
        return {key: value for key, value in self.options.items() if value is not None}


def asked(path: Path, said: Said, *, need_trace: bool = True) -> tuple[Experiment, list[str]]:
    """The experiment at ``path``, a config or a trace, and what was passed over on the way.

    Raises:
        ConfigError: as ``load``.
        InputError: a trace, and it is not said how much memory there is.
    """
    alone = is_trace(path)
    document, remarks = _of_a_trace(path) if alone else read(path), []

    def changed(part: Document) -> Document:
        part, found = followed(part, said)
        remarks.extend(remark for remark in found if remark not in remarks)
        if alone and not gives_memory(part):
            raise InputError(f"{path}: a trace of requests; which model serves them, on which GPU? Give --model "
                             "llama-3.1-8b --gpu h200 (pagesim size --list has the names), or your server's command "
                             "line: --from-vllm \"vllm serve …\" --gpu h200")
        return part

    return experiment(document, path, changed, need_trace=need_trace), remarks


def is_trace(path: Path) -> bool:
    """The file holds requests, by its name's ending or, where that does not tell, by its first rows."""
    if path.suffix in _CONFIGS or not path.is_file():
        return path.suffix in _TRACES
    if path.suffix in _TRACES:
        return True
    try:
        form_of(path)
    except TraceError:
        return False
    return True


def _of_a_trace(path: Path) -> Document:
    """The trace under the default allocators: the textbook's contiguous rule and paging."""
    document, place = empty(str(path)), Place(1, 1, str(path))
    return document.replaced(("trace", "path"), place, Document(str(path.absolute()), values={(): place}))


def followed(document: Document, said: Said) -> tuple[Document, list[str]]:
    """The document with what the flags say, and what was passed over: the server first, then options, then --set."""
    server = vllm_server(said.from_vllm, document) if said.from_vllm is not None else Server([], False, [])
    given = said.given
    labels = {key: f"--{key.removeprefix('memory.').replace('_', '-')} {value}" for key, value in given.items()}
    unused = {"memory.gpu", "memory.gpu_memory"} & given.keys() if server.gives_kv_memory else set()
    changes = [*server.overrides, *(Override(key, value, labels[key]) for key, value in given.items()
                                    if key not in unused)]
    if said.block_size:
        changes += pool_overrides("block_size", said.block_size, f"--block-size {said.block_size}", document)
    remarks = [*server.notes, *(f"note: --from-vllm says itself how much KV memory there is; {labels[key]} is not used"
                                for key in unused)]
    return overridden(document, [*changes, *map(assignment, said.overrides)]), remarks


def gives_memory(document: Document) -> bool:
    """False where the document does not say at all how much memory there is."""
    memory = document.data.get("memory") or {}
    return not isinstance(memory, dict) or any(memory.get(key) is not None for key in SOURCES)
