"""The compiled loop: the same as plain Python, cached on disk, never stale."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from pagesim.allocators import Paged
from pagesim.engine.durations import Linear
from pagesim.engine.scheduling import Scheduling
from pagesim.engine.run import Run
from pagesim.engine.setup import Setup
from pagesim.trace import Trace

PACKAGE = Path(__file__).parents[2] / "pagesim"

# Whether the loop must be compiled, and blocks of two requests after one step, in a fresh process.
SCRIPT = """
import numpy as np
from pagesim.allocators import Paged
from pagesim.engine.compiled import uncompiled
from pagesim.engine.durations import Linear
from pagesim.engine.scheduling import Scheduling
from pagesim.engine.run import Run
from pagesim.engine.setup import Setup
from pagesim.trace import Trace
compiles = bool(uncompiled([Paged()]))
trace = Trace(np.zeros(2, np.int64), np.array([8, 4], np.int32), np.array([9, 9], np.int32))
run = Run(Setup(trace, Paged(4), 64, 64, Scheduling(), Linear(1.0)))
run.advance(1)
print("compiled" if compiles else "not compiled", run.tables().block_ids.tolist())
assert not uncompiled([Paged()])
"""


@pytest.fixture(autouse=True)
def interruptible():
    """A run in the background may have been started with Ctrl-C ignored, which children inherit."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def blocks_after_one_step(folder, script=SCRIPT, **environment):
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True,
        env=os.environ
        | {"PYTHONPATH": str(folder), "PAGESIM_CACHE_DIR": str(folder / "cache"), "NUMBA_DISABLE_JIT": "0"}
        | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(PACKAGE, folder / "pagesim", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_it_is_compiled_once_and_again_when_a_source_of_it_changes(copy):
    assert blocks_after_one_step(copy) == "compiled [0, 1, 2]"
    assert blocks_after_one_step(copy) == "not compiled [0, 1, 2]"
    source = copy / "pagesim" / "allocators" / "paged.py"
    text = source.read_text()
    changed = text.replace("ids[old + i] = count.fresh + i", "ids[old + i] = count.fresh + i + 5")
    assert changed != text
    source.write_text(changed)
    assert blocks_after_one_step(copy) == "compiled [5, 6, 7]"


def test_an_interrupt_at_any_moment_is_an_interrupt():
    ones = np.ones(100_000, np.int32)
    run = Run(Setup(Trace(np.arange(100_000) * 10**9, ones, 3 * ones), Paged(16), 64, 64, Scheduling(), Linear(0.1)))
    run.advance(1)
    for moment in range(20):
        with pytest.raises(KeyboardInterrupt):
            threading.Timer(0.001 + 1e-5 * moment, os.kill, (os.getpid(), signal.SIGINT)).start()
            while run.advance(1):
                pass


STILL_UNCOMPILED = SCRIPT.replace("assert not uncompiled", "assert uncompiled")


def test_without_a_cache_that_can_be_written_the_loop_is_compiled_and_not_cached_elsewhere(copy):
    nowhere = str(copy / "pagesim" / "errors.py")
    assert blocks_after_one_step(copy, STILL_UNCOMPILED, PAGESIM_CACHE_DIR=nowhere).startswith("compiled ")
    assert not list(copy.glob("pagesim/**/*.nbc"))


def test_a_full_disk_costs_the_cache_and_not_the_run(copy):
    full = """
from pagesim.engine import compiled

def save(*args):
    raise OSError(28, "No space left on device")

compiled._LOOPS[compiled.KINDS[1].memory]._cache.save_overload = save
"""
    cache = str(copy / "full")
    assert blocks_after_one_step(copy, full + STILL_UNCOMPILED, PAGESIM_CACHE_DIR=cache).startswith("compiled ")


def test_plain_python_gives_the_same_and_compiles_nothing(copy):
    assert blocks_after_one_step(copy, NUMBA_DISABLE_JIT="1", PAGESIM_CACHE_DIR=str(copy / "none")).startswith(
        "not compiled")
    assert not (copy / "none").exists()


def test_what_is_compiled_in_advance_tells_how_far_it_is_and_is_found_whatever_the_current_directory_holds(tmp_path):
    used, here = tmp_path / "used", tmp_path / "here"
    for folder in (used, here):
        shutil.copytree(PACKAGE, folder / "pagesim", ignore=shutil.ignore_patterns("__pycache__"))
    script = (
        "from pagesim.allocators import Paged\n"
        "from pagesim.engine import compiled\n"
        "shares = []\n"
        "compiled.compile_loops(compiled.uncompiled([Paged()]), shares.append)\n"
        "assert shares == sorted(shares) and 0 < shares[0] < shares[-1] == 1 and len(shares) > 5\n" + SCRIPT + "\n"
        "assert sum(compiled._LOOPS[compiled.KINDS[1].memory].stats.cache_hits.values()) == 1"
    )
    environment = {"PYTHONPATH": str(used), "PAGESIM_CACHE_DIR": str(tmp_path / "cache"), "NUMBA_DISABLE_JIT": "0"}
    done = subprocess.run([sys.executable, "-P", "-c", script], cwd=here, capture_output=True, text=True,
                          env=os.environ | environment)
    assert done.stdout.strip() == "not compiled [0, 1, 2]", done.stderr


def test_ctrl_c_while_the_engine_is_compiled_ends_in_one_line(tmp_path):
    environment = {"PYTHONPATH": str(PACKAGE.parent), "PAGESIM_CACHE_DIR": str(tmp_path), "NUMBA_DISABLE_JIT": "0"}
    config = PACKAGE.parent / "configs" / "quickstart.yaml"
    program = subprocess.Popen(
        [sys.executable, "-c", "from pagesim.cli.main import main; main()", "simulate", str(config), "-o", tmp_path / "run"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=os.environ | environment, start_new_session=True,
    )
    for line in program.stderr:  # notes on the memory come before
        if "compiling the engine" in line:
            break
    time.sleep(1.5)  # its children are at work
    os.killpg(program.pid, signal.SIGINT)  # as a terminal does, to every process of the command
    assert program.stderr.read() == "pagesim: interrupted\n"
    assert program.wait() == 130
