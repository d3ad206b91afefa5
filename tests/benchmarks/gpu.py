"""The tables of README.md beside this: ``python tests/benchmarks/gpu.py [--part NAME]...``, on an H200 two minutes.

Everything is checked before it is timed; times are of CUDA-graph replay with a cold L2, ratios within this one run.
Kernels that are not installed are left out.  The peak of a simulated Azure conv day is that of
``configs/azure_conv_h200.yaml``; rows are also appended to ``--log``, one JSON object a line.
"""

import argparse
import datetime
from collections.abc import Callable, Iterable
from pathlib import Path

from pagesim.config import load
from pagesim.experiment.snapshots import moment, snapshot
from pagesim.kernels.harness.bench import Bench, make_cases, run_cases
from pagesim.kernels.harness.measurement import Row, over_contiguous, write_row
from pagesim.kernels.harness.workloads import Workload, builtin, from_snapshot

ROOT = Path(__file__).parents[2]
UNIFORM, RAGGED = ("W1", "W2", "W3", "W4", "W5"), ("R1", "R2", "R3", "R4", "R5")
SHARED = ("S1", "S2", "S3", "T1")
SMALL = ("b1x128", "b1x4k", "b8x512", "b16x1k", "W1q4")
PEERS = ("cudnn", "flash-attention", "flashinfer", "flashinfer-batch")
BLOCK_SIZES = (1, 8, 16, 32, 64, 128, 256)


class Runs:
    """Rows of workloads, measured once each and written down as they come."""

    def __init__(self, log: Path, repeats: int):
        self.log, self.repeats = log, repeats

    def rows(self, workloads: Iterable[Workload], kernels: Iterable[str] = ("ours",),
             tables: Iterable[str] = ("shuffled",), block_sizes: Iterable[int] = (), dtype: str = "bf16") -> list[Row]:
        workloads = list(workloads)
        bench = Bench(workloads, dtype)
        found = []
        for row in run_cases(bench, make_cases(workloads, kernels, tables, block_sizes, ["NHD"], dtype), self.repeats,
                             {}, print):
            write_row(self.log, row)
            found.append(row)
        return found


def show(title: str, rows: list[Row], line: Callable[[Row], str], column: Callable[[Row], str],
         cell: Callable[[Row], str]) -> None:
    """A Markdown table, lines and columns in the order in which they first come."""
    lines, columns = (list(dict.fromkeys(map(of, rows))) for of in (line, column))
    cells = {(line(row), column(row)): cell(row) if row.passed else "wrong" for row in rows}
    print(f"\n{title}\n\n| | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
    for name in lines:
        print(f"| {name} | {' | '.join(cells.get((name, c), '–') for c in columns)} |", flush=True)


def named(names: Iterable[str]) -> list[Workload]:
    return [builtin()[name] for name in names]


def peaks() -> list[Workload]:
    """The simulated peak under paging, for each block size."""
    cases = [case for case in load(ROOT / "configs" / "azure_conv_h200.yaml").cases if case.name.startswith("paged")]
    found = []
    for case in cases:
        tables = snapshot(case, moment("peak"))
        shape = {key: tables.origin["model"][key] for key in ("num_q_heads", "num_kv_heads", "head_dim")}
        found.append(from_snapshot(case.name, tables, **shape))
    return found


def decode(runs: Runs) -> None:
    rows = runs.rows(named(UNIFORM + RAGGED), ("ours", "general", *PEERS))
    print(f"{datetime.date.today()}: {rows[0].environment}")
    show("Decode, µs (% of a contiguous read of as many bytes)", rows, lambda r: r.workload, lambda r: r.kernel,
         lambda r: f"{r.graph_us:.1f} ({100 * r.ceiling_share:.1f})")
    ours = {r.workload: r.graph_us for r in rows if r.kernel == "ours" and r.passed}
    show("Time over ours", [r for r in rows if r.workload in ours], lambda r: r.workload, lambda r: r.kernel,
         lambda r: f"{r.graph_us / ours[r.workload]:.3f}")
    shares = [100 * r.ceiling_share for r in rows if r.kernel == "ours" and r.workload in RAGGED and r.passed]
    print(f"\nragged: at least {min(shares):.1f} %, on average {sum(shares) / len(shares):.1f} %")


def shared(runs: Runs) -> None:
    rows = runs.rows(named(SHARED), ("ours", "general", "flash-attention", "flashinfer"))
    show("Shared prefixes, µs (% of a read of every sequence's bytes, and with what is shared read once)", rows,
         lambda r: r.workload, lambda r: r.kernel,
         lambda r: f"{r.graph_us:.1f} ({100 * r.ceiling_share:.0f}, {100 * r.unique_ceiling_share:.1f})")


def small(runs: Runs) -> None:
    rows = runs.rows(named(SMALL), ("ours", "general", *PEERS))
    show("Small batches and four query tokens, µs in a graph (eager)", rows, lambda r: r.workload, lambda r: r.kernel,
         lambda r: f"{r.graph_us:.1f} ({r.eager_us:.0f})")


def prefill(runs: Runs) -> None:
    rows = runs.rows(named(("P1", "P4")), ("ours", "general", "flash-attention"))
    rows += runs.rows(named(("P1",)), ("ours", "sdpa"), ("contiguous",))
    show("Causal prefill, TFLOP/s", rows, lambda r: f"{r.workload}, {r.tables}", lambda r: r.kernel,
         lambda r: f"{r.tflop_per_s:.0f}")


def blocks(runs: Runs) -> None:
    rows = runs.rows(named(("W1",)), ("ours", "cudnn", "flash-attention"), block_sizes=BLOCK_SIZES)
    show("W1 over block sizes, µs", rows, lambda r: r.kernel, lambda r: str(r.block_size),
         lambda r: f"{r.graph_us:.1f}")
    times = [r.graph_us for r in rows if r.kernel == "ours" and r.passed]
    print(f"\nours: slowest over fastest {max(times) / min(times):.3f}")


def scatter(runs: Runs) -> None:
    rows = runs.rows(peaks(), tables=("contiguous", "simulated", "shuffled"))
    ratios = over_contiguous(rows)
    show("The simulated peak, µs (% more than over contiguous ids)", rows, lambda r: r.workload, lambda r: r.tables,
         lambda r: f"{r.graph_us:.1f} ({100 * (ratios[r.key] - 1):+.1f})")


def accuracy(runs: Runs) -> None:
    peak = [workload for workload in peaks() if workload.snapshot.block_size == 16]
    runs, rows = Runs(runs.log, 1), []  # their times do not matter
    for dtype in ("bf16", "fp16", "fp32", "fp8"):
        rows += runs.rows(named(UNIFORM), dtype=dtype) + runs.rows(peak, tables=("simulated",), dtype=dtype)
    show("Relative error of an output row: mean, worst", rows, lambda r: r.workload, lambda r: r.dtype,
         lambda r: f"{r.error_mean:.1e}, {r.error_worst:.1e}")


PARTS = {"decode": decode, "shared": shared, "small": small, "prefill": prefill, "blocks": blocks, "scatter": scatter,
         "accuracy": accuracy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS, help="only this; may be repeated")
    parser.add_argument("--repeats", type=int, default=9, help="graph replays whose median is taken")
    parser.add_argument("--log", type=Path, default=Path("gpu.jsonl"))
    options = parser.parse_args()
    runs = Runs(options.log, options.repeats)
    for part in options.part or PARTS:
        PARTS[part](runs)


if __name__ == "__main__":
    main()
