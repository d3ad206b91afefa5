"""What measuring gave: rows, files of rows, and what follows from them."""

import csv
import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

SCHEMA = 1


@dataclass(frozen=True)
class Row:
    """One case; times are microseconds of one layer's step, None where the kernel was wrong.

    Attributes:
        kv_bytes: K and V of every visible token of every sequence.
        unique_kv_bytes: the same, what sequences share once for all of them.
        num_tables: disjoint tables measured in turn, so that the cache is cold.
        gb_per_s: ``kv_bytes / graph_us``, in 1e9.
        tflop_per_s: operations of both products over ``graph_us``, in 1e12, counting visible pairs only.
        ceiling_us: time of a contiguous read of ``kv_bytes`` in the same run.
        ceiling_share: ``ceiling_us / graph_us``.
        unique_ceiling_us, unique_ceiling_share: the same for ``unique_kv_bytes``.
        error_mean, error_worst: relative error of the output rows.
        environment: GPU, driver, clocks, versions.
    """

    key: str
    workload: str
    kernel: str
    tables: str
    block_size: int
    layout: str
    dtype: str
    num_seqs: int
    context_tokens: int
    q_len: int
    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    kv_bytes: int
    unique_kv_bytes: int
    num_tables: int
    graph_us: float | None
    graph_p20_us: float | None
    graph_p80_us: float | None
    eager_us: float | None
    gb_per_s: float | None
    ceiling_us: float
    ceiling_share: float | None
    unique_ceiling_us: float
    unique_ceiling_share: float | None
    tflop_per_s: float | None
    copy_gb_per_s: float
    error_mean: float
    error_worst: float
    passed: bool
    environment: dict


def over_contiguous(rows: list[Row]) -> dict[str, float]:
    """Time of each row over that of the same kernel, block size and layout on contiguous tables, by key."""
    times = {row.key: row.graph_us for row in rows if row.graph_us}
    ratios = {}
    for row in rows:
        base = times.get(row.key.replace(f"/{row.tables}/", "/contiguous/"))
        if row.graph_us and base:
            ratios[row.key] = row.graph_us / base
    return ratios


def advice(rows: list[Row]) -> list[str]:
    """For each workload a sentence on what scatter costs; over block sizes, the smallest within 1 % of the fastest."""
    ratios = over_contiguous(rows)
    mine = [row for row in rows if row.kernel == "ours" and row.graph_us]
    sentences = []
    for name in dict.fromkeys(row.workload for row in mine):
        for kind in ("simulated", "shuffled"):
            scattered = [row for row in mine if row.workload == name and row.tables == kind and row.key in ratios]
            if scattered:
                costs = ", ".join(f"{100 * (ratios[row.key] - 1):+.1f} % at block size {row.block_size}"
                                  for row in sorted(scattered, key=lambda row: row.block_size))
                sentences.append(f"{name}: {kind} tables cost {costs} against contiguous ones.")
    for kind in ("simulated", "shuffled"):
        speeds = {}  # simulated batches differ with the block size: microseconds of a million tokens compare them
        for row in mine:
            if row.tables == kind:
                speeds.setdefault(row.block_size, []).append(row.graph_us / row.context_tokens * 1e6)
        if len(speeds) > 1:
            fastest = min(map(np.mean, speeds.values()))
            best = min(size for size, times in speeds.items() if np.mean(times) <= 1.01 * fastest)
            sentences.append(f"On {mine[0].environment['gpu']}, {kind} tables: take block size {best}, the smallest "
                             f"within 1 % of the fastest of {', '.join(map(str, sorted(speeds)))}.")
    return sentences


def fit_linear(rows: list[Row]) -> dict[str, float] | None:
    """Seconds of one layer's decode attention as ``step_s + context_token_s · context``, over our rows of real tables.

    The sum of squared relative errors is least, so that small batches count too.  None below two different contexts.
    """
    points = [(row.context_tokens, row.graph_us * 1e-6) for row in rows
              if row.kernel == "ours" and row.graph_us and row.q_len == 1 and row.tables in ("simulated", "shuffled")]
    if len({context for context, _ in points}) < 2:
        return None
    context, seconds = (np.array(x, float) for x in zip(*points, strict=True))
    terms = np.stack([1 / seconds, context / seconds], 1)
    (step_s, context_token_s), *_ = np.linalg.lstsq(terms, np.ones(len(seconds)), rcond=None)
    return {"step_s": max(0.0, float(step_s)), "context_token_s": max(0.0, float(context_token_s))}


def fits_by_shape(rows: list[Row]) -> list[dict[str, int | str | float]]:
    """The fit of each shape that has one, with the shape: what durations of kind ``measured`` read.

    A token of 32 KV heads takes four times as long as one of 8, so shapes never share a line.
    """
    shapes: dict[tuple, list[Row]] = {}
    for row in rows:
        shapes.setdefault((row.num_q_heads, row.num_kv_heads, row.head_dim, row.dtype), []).append(row)
    lines = [(shape, fit_linear(of_shape)) for shape, of_shape in shapes.items()]
    names = ("num_q_heads", "num_kv_heads", "head_dim", "dtype")
    return [dict(zip(names, shape, strict=True)) | line for shape, line in lines if line is not None]


def as_json(rows: list[Row]) -> str:
    ratios = over_contiguous(rows)
    listed = [{**asdict(row), "over_contiguous": ratios.get(row.key)} for row in rows]
    document = {"schema": SCHEMA, "rows": listed, "advice": advice(rows), "linear_one_layer": fits_by_shape(rows)}
    return json.dumps(document, indent=1)


def as_csv(rows: list[Row]) -> str:
    ratios = over_contiguous(rows)
    text = io.StringIO()
    for i, row in enumerate(rows):
        flat = asdict(row)
        flat |= {"over_contiguous": ratios.get(row.key), **flat.pop("environment")}
        writer = csv.DictWriter(text, flat, lineterminator="\n")
        if i == 0:
            writer.writeheader()
        writer.writerow(flat)
    return text.getvalue()


def write_row(path: Path, row: Row) -> None:
    """Append a row to a file of JSON lines: what ``--resume`` reads."""
    with open(path, "a") as file:
        file.write(json.dumps(asdict(row)) + "\n")


def read_rows(path: Path) -> dict[str, Row]:
    """Rows by key; a line cut off by an interrupted run is dropped."""
    rows = {}
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                row = Row(**json.loads(line))
            except (json.JSONDecodeError, TypeError):
                continue
            rows[row.key] = row
    return rows
