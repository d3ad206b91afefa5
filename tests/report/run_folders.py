"""Run folders for tests of pictures, made by the program itself."""

from pathlib import Path

from tiny import write_experiment

from pagesim.config import load
from pagesim.experiment import run_experiment

FOUR_ALLOCATORS = ("[{kind: contiguous, reserve: max_model_len, placement: buddy}, {kind: contiguous, reserve: exact}, "
                   "{kind: contiguous, reserve: grow}, {kind: paged, block_size: 8}]")
BUSY_ROWS = tuple((0.02 * k, 5 + 13 * k % 41, 1 + 7 * k % 20) for k in range(60))


def make_run(folder: Path, *, allocators: str = FOUR_ALLOCATORS, rows: tuple = BUSY_ROWS, keys: str = "",
             overrides: tuple = ()) -> Path:
    """Simulate a short, crowded trace; returns the run folder, ``folder / "run"``."""
    config = write_experiment(folder, allocators=allocators, rows=rows, keys=keys)
    run_experiment(load(config, overrides), folder=folder / "run")
    return folder / "run"
