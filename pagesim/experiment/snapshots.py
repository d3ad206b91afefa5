"""Block tables of chosen moments of a case.

A moment is ``peak`` (the first step with the most token states), ``end`` (the last step), a step's number from 0, or a
time such as ``12.5s`` (the step under way then, or the next).  The tables are those at the ledger's instant: after
scheduling, before finished sequences give back their memory.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pagesim.case import Case
from pagesim.core.blocktables import BlockTables
from pagesim.engine.run import Run
from pagesim.errors import InputError
from pagesim.experiment.attempt import start
from pagesim.report.folder import case_folder


@dataclass(frozen=True)
class Moment:
    """``peak`` and ``end`` by name; else the number of a step, or a simulated time in seconds."""

    name: str
    step: int | None = None
    time_s: float | None = None


def moment(text: str) -> Moment:
    """The moment that a user names.

    Raises:
        InputError: it is none of peak, end, a step and a time.
    """
    if text in ("peak", "end"):
        return Moment(text)
    if re.fullmatch(r"[0-9]+", text):
        return Moment(text, step=int(text))
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?s", text):
        return Moment(text, time_s=float(text[:-1]))
    raise InputError(f"a moment is peak, end, a step's number such as 1200, or a time such as 12.5s; got {text!r}")


def snapshot(case: Case, when: Moment) -> BlockTables:
    """Tables of one moment; ``origin`` says of which run, step and model.

    Raises:
        InputError: the run ends before the moment.
    """
    return next(consecutive(case, when, 1))


def consecutive(case: Case, when: Moment, num_steps: int) -> Iterator[BlockTables]:
    """Tables of the moment and of the steps behind it, ``num_steps`` in all or fewer where the run ends."""
    run = _run_to(case, when)
    origin = {"case": case.name, "moment": when.name, "trace": case.trace.path, "model": kernel_shape(case)}
    for count in range(1, num_steps + 1):
        tables = run.tables()
        yield replace(tables, origin=origin | tables.origin)
        if count == num_steps or not run.advance(1):
            return


def write_snapshots(cases: tuple[Case, ...], moments: list[Moment], folder: Path) -> list[Path]:
    """Write ``snapshot-<moment>.npz`` of every case into its part of the run folder."""
    written = []
    for case in cases:
        own = case_folder(folder, case.name, len(cases))
        own.mkdir(parents=True, exist_ok=True)
        for when in moments:
            written.append(own / f"snapshot-{when.name}.npz")
            snapshot(case, when).save(written[-1])
    return written


def kernel_shape(case: Case) -> dict | None:
    """Heads, head_dim and layers of one shard of the case's model; None where no model is named.

    An MLA model has one KV head, the cached vector, and ``latent_dim``, its part before the rope part.
    """
    if case.model is None:
        return None
    from pagesim.catalog import find_model, kv_heads_per_shard

    shards = case.resolved["memory"]["tensor_parallel_size"]
    model = find_model(case.model)
    shape = {"name": model.name, "layers": model.layers, "num_q_heads": model.heads // shards}
    if model.is_mla:
        return shape | {"num_kv_heads": 1, "head_dim": model.kv_lora_rank + model.qk_rope_head_dim,
                        "latent_dim": model.kv_lora_rank}
    return shape | {"num_kv_heads": kv_heads_per_shard(model, shards), "head_dim": model.head_dim}


def _run_to(case: Case, when: Moment) -> Run:
    """A run whose last step is the moment's."""
    run = start(case)
    if when.time_s is not None:
        while run.position().time_s <= when.time_s and run.advance(1):
            pass
        if run.position().time_s <= when.time_s:
            raise InputError(f"{case.name} ends at {run.position().time_s:g} s, before {when.name}")
        return run
    step = when.step
    if step is None:  # known only when a first run is over, and then its memory has been given back
        run.advance()
        step = run.result().peaks.step if when.name == "peak" else run.position().steps - 1
        run = start(case)
    if step >= 0:
        run.advance(step + 1)
    if not 0 <= step < run.position().steps:
        raise InputError(f"{case.name} has {run.position().steps} steps, numbered from 0; there is no step {when.name}")
    return run
