"""Measuring decode: cases of workload × kernel × tables × block size, each checked before it is timed.

Bytes: a step reads K and V of every visible token once, ``kv_bytes = 2 · 2 B · num_kv_heads · head_dim · Σ length``; queries,
outputs and tables are under 1 % of that and not counted.  GB/s is ``kv_bytes / time`` in 1e9; the share of the ceiling is
the time of a contiguous read of as many bytes, measured in the same run, over the time of the step.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from pagesim.errors import InputError, MissingExtra
from pagesim.kernels.check import compare
from pagesim.kernels.peers import PREPARE, Batch, NotHere
from pagesim.kernels.reference import paged_attention
from pagesim.kernels.timing import Times, copy_ceiling, environment, read_ceiling, time_eager, time_graph
from pagesim.kernels.workloads import Workload, make_tables, num_blocks_for

POOL_ELEMENTS = 2304 * 1024 * 1024  # of K, and of V: past 2³¹, so that offsets need 64 bits
MAX_COPIES = 256
COLD_FACTOR = 4  # the tables measured in turn cover this many times the L2
OWN = ("ours", "general")
PEER_FACTOR = 2  # a peer is timed if its worst row is within twice our bound: its choices of rounding are its own
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Case:
    """One figure to measure."""

    workload: Workload
    kernel: str
    tables: str
    block_size: int
    layout: str = "NHD"
    dtype: str = "bf16"

    @property
    def key(self) -> str:
        return f"{self.workload.name}/{self.kernel}/{self.tables}/b{self.block_size}/{self.layout}/{self.dtype}"


@dataclass(frozen=True)
class Row:
    """What one case gave; times are microseconds of one layer's decode step."""

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
    num_tables: int
    graph_us: float | None
    graph_p20_us: float | None
    graph_p80_us: float | None
    eager_us: float | None
    gb_per_s: float | None
    ceiling_us: float
    ceiling_share: float | None
    copy_gb_per_s: float
    error_mean: float
    error_worst: float
    passed: bool
    environment: dict


class Bench:
    """The GPU memory and ceilings that cases share.

    Raises:
        MissingExtra: no CUDA GPU.
    """

    def __init__(self, workloads: Iterable[Workload], dtype: str = "bf16", pool_elements: int | None = None, seed: int = 0):
        if not torch.cuda.is_available():
            raise MissingExtra("bench-kernel measures on a CUDA GPU and found none; pagesim kernel checks the kernels without one")
        self.dtype = DTYPES[dtype]
        self.seed = seed
        free, _ = torch.cuda.mem_get_info()
        least = max(2 * w.kv_bytes // 4 if w.snapshot is None else 2 * w.snapshot.num_blocks * w.snapshot.block_size
                    * w.num_kv_heads * w.head_dim for w in workloads)
        most = int(free * 0.45) // 2 // self.dtype.itemsize
        elements = max(min(pool_elements or POOL_ELEMENTS, most), least)
        if elements > most:
            raise InputError(f"two tables of the largest workload need {4 * least * self.dtype.itemsize / 1e9:.1f} GB of GPU memory, {free / 1e9:.1f} are free")
        self.k, self.v = (torch.randn(elements, dtype=self.dtype, device="cuda", generator=self._generator(i)) for i in range(2))
        self.copy_gb_per_s = copy_ceiling(self.k)
        self.environment = environment()
        self._ceilings: dict[int, Times] = {}
        self._expected: dict[str, torch.Tensor] = {}

    def _generator(self, stream: int) -> torch.Generator:
        return torch.Generator("cuda").manual_seed(1000 * self.seed + stream)

    def ceiling(self, num_bytes: int) -> Times:
        if num_bytes not in self._ceilings:
            self._ceilings[num_bytes] = read_ceiling(num_bytes, self.k)
        return self._ceilings[num_bytes]

    def batch(self, case: Case) -> Batch:
        w, size = case.workload, case.block_size
        block_elements = size * w.num_kv_heads * w.head_dim
        num_blocks = len(self.k) // block_elements
        l2 = torch.cuda.get_device_properties(0).L2_cache_size
        one = num_blocks_for(w, size, case.tables, 1)
        copies = max(1, min(-(-COLD_FACTOR * l2 // w.kv_bytes) + 1, MAX_COPIES, num_blocks // max(one, 1)))
        inner = (size, w.num_kv_heads) if case.layout == "NHD" else (w.num_kv_heads, size)
        k_cache, v_cache = (flat[:num_blocks * block_elements].view(num_blocks, *inner, w.head_dim) for flat in (self.k, self.v))
        tables = [torch.from_numpy(t).cuda() for t in make_tables(w, size, num_blocks, case.tables, copies, self.seed)]
        q = torch.randn((len(w.lengths), w.q_len, w.num_q_heads, w.head_dim), dtype=self.dtype, device="cuda", generator=self._generator(2))
        return Batch(w, k_cache, v_cache, tables, case.tables, case.layout, size, torch.from_numpy(w.lengths.astype(np.int32)).cuda(), q,
                     torch.empty_like(q))

    def expected(self, case: Case, batch: Batch) -> torch.Tensor:
        key = case.key.replace(f"/{case.kernel}/", "/")
        if key not in self._expected:
            self._expected = {key: paged_attention(batch.q, batch.k_cache, batch.v_cache, batch.tables[0], batch.workload.lengths.tolist(),
                                                   layout=batch.layout)}
        return self._expected[key]

    def measure(self, case: Case, repeats: int = 15, *, eager: bool = True) -> Row:
        """Check one case against the definition, and time it if it is right.

        Raises:
            NotHere: the kernel does not take this case, or its package is missing.
        """
        batch = self.batch(case)
        calls = PREPARE[case.kernel](batch)
        batch.out.fill_(float("nan"))
        calls[0]()
        verdict = compare(batch.out, self.expected(case, batch))
        passed = verdict.passed if case.kernel in OWN else verdict.worst <= PEER_FACTOR * verdict.bounds.worst
        w = case.workload
        ceiling = self.ceiling(w.kv_bytes).median_us
        graph = time_graph(calls, repeats) if passed else None
        eager_us = time_eager(calls).median_us if passed and eager else None
        return Row(
            case.key, w.name, case.kernel, case.tables, case.block_size, case.layout, case.dtype, len(w.lengths), int(w.lengths.sum()), w.q_len,
            w.num_q_heads, w.num_kv_heads, w.head_dim, w.kv_bytes, len(calls), graph and graph.median_us, graph and graph.p20_us,
            graph and graph.p80_us, eager_us, graph and w.kv_bytes / graph.median_us / 1e3, ceiling, graph and ceiling / graph.median_us,
            self.copy_gb_per_s, verdict.mean, verdict.worst, passed, self.environment)


def make_cases(workloads: Iterable[Workload], kernels: Iterable[str], tables: Iterable[str], block_sizes: Iterable[int],
               layouts: Iterable[str], dtype: str) -> list[Case]:
    """Every combination that exists: simulated tables only at the block size that they were simulated with."""
    for kernel in kernels:
        if kernel not in PREPARE:
            raise InputError(f"kernel must be one of {', '.join(PREPARE)}, got {kernel!r}")
    cases = []
    for w in workloads:
        for size in block_sizes or ([w.snapshot.block_size] if w.snapshot else [16]):
            for kind in tables or (("contiguous", "simulated", "shuffled") if w.snapshot else ("contiguous", "shuffled")):
                if kind == "simulated" and (w.snapshot is None or w.snapshot.block_size != size):
                    continue
                cases += [Case(w, kernel, kind, size, layout, dtype) for layout in layouts for kernel in kernels]
    return cases


def run_cases(bench: Bench, cases: list[Case], repeats: int, done: dict[str, Row], note: Callable[[str], None]) -> Iterator[Row]:
    """Rows of cases in order, those in ``done`` as they are; ``note`` hears why a case has none."""
    for case in cases:
        if case.key in done:
            yield done[case.key]
            continue
        try:
            yield bench.measure(case, repeats)
        except NotHere as reason:
            note(f"{case.key}: not measured: {reason}")


def over_contiguous(rows: list[Row]) -> dict[str, float]:
    """Time of each row over that of the same kernel, block size and layout on contiguous tables, by key."""
    times = {row.key: row.graph_us for row in rows if row.graph_us}
    ratios = {}
    for row in rows:
        base = times.get(row.key.replace(f"/{row.tables}/", "/contiguous/"))
        if row.graph_us and base:
            ratios[row.key] = row.graph_us / base
    return ratios


def advice(rows: list[Row], within: float = 0.01) -> list[str]:
    """For each workload one sentence: what scatter costs, and the smallest block size within 1 % of the fastest."""
    sentences = []
    ratios = over_contiguous(rows)
    for name in dict.fromkeys(row.workload for row in rows):
        mine = [row for row in rows if row.workload == name and row.kernel == "ours" and row.graph_us]
        for kind in ("simulated", "shuffled"):
            scattered = sorted((row for row in mine if row.tables == kind and row.key in ratios), key=lambda row: row.block_size)
            if not scattered:
                continue
            costs = ", ".join(f"{100 * (ratios[row.key] - 1):+.1f} % at block size {row.block_size}" for row in scattered)
            fastest = min(row.graph_us for row in scattered)
            best = next(row for row in scattered if row.graph_us <= (1 + within) * fastest)
            choice = f"; take block size {best.block_size}, the smallest within {100 * within:.0f} % of the fastest" if len(scattered) > 1 else ""
            sentences.append(f"{name} on {mine[0].environment['gpu']}: {kind} tables cost {costs} against contiguous ones{choice}.")
    return sentences


def fit_linear(rows: list[Row]) -> dict[str, float] | None:
    """Seconds of one layer's decode attention as ``step_s + context_token_s · context``, over our rows of real tables.

    Relative errors are least, so that small batches count too.  None below two different contexts.
    """
    points = [(row.context_tokens, row.graph_us * 1e-6) for row in rows if row.kernel == "ours" and row.graph_us and row.q_len == 1]
    if len({context for context, _ in points}) < 2:
        return None
    context, seconds = (np.array(x, float) for x in zip(*points, strict=True))
    (step_s, context_token_s), *_ = np.linalg.lstsq(np.stack([1 / seconds, context / seconds], 1), np.ones(len(seconds)), rcond=None)
    return {"step_s": max(0.0, float(step_s)), "context_token_s": max(0.0, float(context_token_s))}


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
