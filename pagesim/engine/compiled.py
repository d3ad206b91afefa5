"""The compiled step loop of each kind of allocator, cached on disk and never stale.

Numba's cache watches only the file of the cached function, so the cache lives in a directory named after a hash of all
sources that are compiled into the loop, and of the versions of numba and numpy.
"""

import hashlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numba
import numpy as np

from pagesim.allocators import KINDS, Kind, Spec, contract, kind_of
from pagesim.core import jit
from pagesim.engine import loop
from pagesim.engine.one_module import one_module


def _cache_directory() -> Path:
    """The directory for exactly these sources and versions, under the user's cache directory."""
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__} {sys.version_info[:2]}".encode())
    package = Path(__file__).parents[1]
    for floor in ("core", "allocators", "engine"):
        for source in sorted(package.glob(f"{floor}/*.py")):
            digest.update(source.read_bytes())
    root = os.environ.get("PAGESIM_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or _home() / ".cache"
    return Path(root) / "pagesim" / digest.hexdigest()[:16]


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # a user without one, as in containers: nothing can be written there
        return Path(os.devnull)


def _writable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)


def _jitted(function: Callable, directory: Path) -> Callable:
    """The function with its own cache; numba reads the directory's name only while a function is decorated.

    It lets other threads of Python run beside it: replicas do.
    Without a directory that can be written there is no cache: numba would take one beside the sources, and use it when
    they have changed.
    """
    if not _CACHES:
        return numba.njit(nogil=True, _nrt=False)(function)
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(directory)
    try:
        # Without reference counting (all arrays outlive the call) the loop is nine times faster, and allocates nothing.
        return numba.njit(cache=True, nogil=True, _nrt=False)(function)
    finally:
        numba.config.CACHE_DIR = before


_DIRECTORY = _cache_directory()
_CACHES = numba.config.DISABLE_JIT or _writable(_DIRECTORY)
jit.tell_numba()
contract.tell_numba()
_LOOPS = {kind.memory: _jitted(loop.advance, _DIRECTORY / kind.name) for kind in KINDS}
_LOOKUPS = {kind.memory: _jitted(kind.module.found, _DIRECTORY / kind.name) for kind in KINDS
            if hasattr(kind.module, "found")}


def advance(state: tuple, memory: tuple, last_step: int) -> bool:
    """``loop.advance``, compiled; with ``NUMBA_DISABLE_JIT=1`` it runs as plain Python, for debugging.

    Ctrl-C waits for the end of the call: while numba takes the state apart, an interrupt would become any other error.
    """
    run = _LOOPS[type(memory)]
    if numba.config.DISABLE_JIT:
        return run(state, memory, last_step)
    if not run.overloads:
        _compile(run, state, memory, last_step)
    return uninterrupted(run, state, memory, last_step)


def prepared_loop(state: tuple, memory: tuple) -> Callable:
    """``loop.advance`` for arguments of just these types, which a call need not find out; see ``uninterrupted``."""
    run = _LOOPS[type(memory)]
    if numba.config.DISABLE_JIT:
        return run
    types = _types(state, memory, 0)
    if types not in run.overloads:
        _compile(run, state, memory, 0)
    return run.overloads[types].entry_point


def prepared_lookup(memory: tuple, ask: tuple) -> Callable:
    """The same of ``contract.found``, of a memory that shares."""
    find = _LOOKUPS[type(memory)]
    if numba.config.DISABLE_JIT:
        return find
    find(memory, ask)
    return find.overloads[_types(memory, ask)].entry_point


def _types(*arguments: object) -> tuple:
    return tuple(map(numba.typeof, arguments))


def _compile(run: Callable, *arguments: object) -> None:
    """Take the loop from the cache or compile it; Ctrl-C ends that."""
    try:
        with one_module(loop.advance.__qualname__):
            run.compile(_types(*arguments))
    except OSError:  # the disk of the cache is full: the loop is compiled all the same
        pass


def uninterrupted(run: Callable, *arguments: object) -> bool:
    """Ctrl-C waits until ``run`` has returned; in a thread other than the main one it does not come at all."""
    if threading.current_thread() is not threading.main_thread():
        return run(*arguments)
    come = []
    before = signal.signal(signal.SIGINT, lambda *args: come.append(args))
    try:
        return run(*arguments)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
        if come:
            signal.raise_signal(signal.SIGINT)


def cache_directory() -> Path:
    """Where the compiled loops of these very sources lie, or would."""
    return _DIRECTORY


def unwritable_cache() -> Path | None:
    """The cache directory, if it cannot be written: then every process compiles the loop for itself."""
    return None if _CACHES else _DIRECTORY


def uncompiled(specs: Iterable[Spec]) -> list[Kind]:
    """The kinds of allocators among ``specs`` whose loop is not in the cache: the first step of each takes seconds."""
    if numba.config.DISABLE_JIT:
        return []
    return [kind for kind in dict.fromkeys(map(kind_of, specs)) if not _cached(kind)]


def _cached(kind: Kind) -> bool:
    return any((_DIRECTORY / kind.name).glob("*/*.nbc"))


def compile_loops(kinds: Iterable[Kind], on_progress: Callable[[float], None] = lambda share: None) -> None:
    """Fill the cache for these kinds of allocators, each in a process of its own at the same time.

    ``on_progress`` is called in this thread, several times a second, with the share that the slowest has done.
    """
    # This very package: numba's cache knows sources by their path, and the current directory may hold another copy.
    package = str(Path(__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-P", "-m", "pagesim.engine.precompile"]
    children = [subprocess.Popen([*command, kind.name], env=environment, start_new_session=True,
                                 stdout=subprocess.PIPE, text=True)
                for kind in kinds]  # of their own session: Ctrl-C reaches this process alone, which ends them
    try:
        for shares in _reports(children):
            on_progress(min(shares))
        for child in children:
            child.wait()
    finally:
        for child in children:
            child.kill()


def _reports(children: list[subprocess.Popen]) -> Iterator[list[float]]:
    """The share of its work that each child has done, again whenever one tells, until all have ended."""
    told: queue.SimpleQueue[tuple[int, float]] = queue.SimpleQueue()

    def listen(number: int) -> None:
        for line in children[number].stdout:
            told.put((number, float(line)))
        told.put((number, 1.0))

    shares = [0.0] * len(children)
    for number in range(len(children)):
        threading.Thread(target=listen, args=(number,), daemon=True).start()
    while any(share < 1 for share in shares):
        number, share = told.get()
        shares[number] = share
        yield shares
