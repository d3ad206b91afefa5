"""Measuring decode and prefill: cases of workload × kernel × tables × block size, each checked before it is timed.

Bytes: a step reads K and V of every visible token once, ``kv_bytes = 2 · itemsize · num_kv_heads · head_dim ·
Σ length``, with MLA half of it, one vector a token, and ``unique_kv_bytes`` where what sequences share counts once;
queries, outputs and tables are not counted, in decoding under 1 % of that but with MLA more.  GB/s is
``kv_bytes / time`` in 1e9; the share of the ceiling is the time of a contiguous read of as many bytes, measured in the
same run, over the time of the step.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from pagesim.errors import InputError, MissingExtra
from pagesim.kernels.cache import Cache
from pagesim.kernels.harness import contents
from pagesim.kernels.harness.batch import Batch, NotHere
from pagesim.kernels.harness.check import compare
from pagesim.kernels.harness.measurement import Row
from pagesim.kernels.harness.peers import PREPARE
from pagesim.kernels.harness.timing import Times, copy_ceiling, environment, read_ceiling, time_eager, time_graph
from pagesim.kernels.harness.workloads import Workload, make_tables, num_blocks_for
from pagesim.kernels.reference import paged_attention

POOL_ELEMENTS = 2304 * 1024 * 1024  # of K, and of V: past 2³¹, so that offsets need 64 bits
MAX_COPIES = 256
COLD_FACTOR = 4  # the tables measured in turn cover this many times the L2
REFERENCE_QUERIES = 512  # at a time: scores in float64 are large
OWN = ("ours", "general")
PEER_FACTOR = 2  # a peer is timed if its worst row is within twice our bound: its choices of rounding are its own
DTYPES = contents.DTYPES | {"fp8": torch.float8_e4m3fn}
FP8_SCALES = (2.0**-5, 2.0**-4)  # of K and V: random values of size 1 become e4m3 of size 32 and 16


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

    def is_of(self, row: Row) -> bool:
        """Whether the row is this case's: one of the same key can be of another batch or model of that name."""
        w = self.workload
        return (row.key, row.context_tokens, row.num_q_heads, row.num_kv_heads, row.head_dim) == (
            self.key, int(w.lengths.sum()), w.num_q_heads, w.num_kv_heads, w.head_dim)


class Bench:
    """The GPU memory and ceilings that cases share.

    Raises:
        MissingExtra: no CUDA GPU.
    """

    def __init__(self, workloads: Iterable[Workload], dtype: str = "bf16", seed: int = 0):
        if not torch.cuda.is_available():
            raise MissingExtra(
                "bench-kernel measures on a CUDA GPU and found none; pagesim kernel checks the kernels without one")
        self.dtype = DTYPES[dtype]
        self.q_dtype = torch.bfloat16 if dtype == "fp8" else self.dtype
        self.scales = FP8_SCALES if dtype == "fp8" else (1.0, 1.0)
        self.seed = seed
        free, _ = torch.cuda.mem_get_info()
        least = max(w.unique_kv_elements if w.snapshot is None
                    else 2 * w.snapshot.num_blocks * w.snapshot.block_size * w.num_kv_heads * w.head_dim
                    for w in workloads)
        most = int(free * 0.45) // 2 // self.dtype.itemsize
        elements = max(min(POOL_ELEMENTS, most), least)
        if elements > most:
            raise InputError(f"two tables of the largest workload need {4 * least * self.dtype.itemsize / 1e9:.1f} GB "
                             f"of GPU memory, {free / 1e9:.1f} are free")
        self.k, self.v = (self._contents(elements, stream, scale) for stream, scale in enumerate(self.scales))
        self.copy_gb_per_s = copy_ceiling(self.k)
        self.environment = environment()
        self._ceilings: dict[int, Times] = {}
        self._expected: dict[str, torch.Tensor] = {}

    def _generator(self, stream: int) -> torch.Generator:
        return torch.Generator("cuda").manual_seed(1000 * self.seed + stream)

    def _contents(self, elements: int, stream: int, scale: float) -> torch.Tensor:
        """Random values of size 1, as a cache with this scale holds them."""
        drawn = torch.randn(elements, dtype=self.q_dtype, device="cuda", generator=self._generator(stream))
        return drawn.div_(scale).to(self.dtype)

    def kv_bytes(self, workload: Workload) -> int:
        return workload.kv_elements * self.dtype.itemsize

    def unique_kv_bytes(self, workload: Workload) -> int:
        return workload.unique_kv_elements * self.dtype.itemsize

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
        copies = max(1, min(-(-COLD_FACTOR * l2 // self.unique_kv_bytes(w)) + 1, MAX_COPIES, num_blocks // max(one, 1)))
        inner = (size, w.num_kv_heads) if case.layout == "NHD" else (w.num_kv_heads, size)
        k, v = (flat[:num_blocks * block_elements].view(num_blocks, *inner, w.head_dim)
                for flat in (self.k, self.v))
        tables = [torch.from_numpy(t).cuda() for t in make_tables(w, size, num_blocks, case.tables, copies, self.seed)]
        q = torch.randn((len(w.lengths), w.q_len, w.num_q_heads, w.head_dim), dtype=self.q_dtype, device="cuda",
                        generator=self._generator(2))
        cache = Cache(k, v, case.layout, self.scales)
        if w.latent_dim is not None:
            cache = Cache(k, k, case.layout, (self.scales[0], self.scales[0]))
        return Batch(w, cache, tables, case.tables, torch.from_numpy(w.lengths.astype(np.int32)).cuda(), q,
                     q.new_empty((*q.shape[:3], w.value_dim)))

    def expected(self, case: Case, batch: Batch) -> torch.Tensor:
        """The first table's outputs by the definition, in float64; kept for the next kernel."""
        key = case.key.replace(f"/{case.kernel}/", "/")
        if key not in self._expected:
            chunks = []
            for first in range(0, case.workload.q_len, REFERENCE_QUERIES):
                q = batch.q[:, first:first + REFERENCE_QUERIES]
                seen = case.workload.lengths - case.workload.q_len + first + q.shape[1]
                rows = paged_attention(q, batch.cache, batch.tables[0], seen.tolist())
                chunks.append(rows[..., :case.workload.value_dim])
            self._expected = {key: torch.cat(chunks, 1)}
        return self._expected[key]

    def measure(self, case: Case, repeats: int) -> Row:
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
        kv_bytes = self.kv_bytes(w)
        unique_kv_bytes = self.unique_kv_bytes(w)
        ceiling, unique_ceiling = (self.ceiling(size).median_us for size in (kv_bytes, unique_kv_bytes))
        graph = time_graph(calls, repeats) if passed else None
        eager_us = time_eager(calls).median_us if passed else None
        median = graph and graph.median_us
        return Row(key=case.key, workload=w.name, kernel=case.kernel, tables=case.tables, block_size=case.block_size,
                   layout=case.layout, dtype=case.dtype, num_seqs=len(w.lengths), context_tokens=int(w.lengths.sum()),
                   q_len=w.q_len, num_q_heads=w.num_q_heads, num_kv_heads=w.num_kv_heads, head_dim=w.head_dim,
                   kv_bytes=kv_bytes, unique_kv_bytes=unique_kv_bytes, num_tables=len(calls), graph_us=median,
                   graph_p20_us=graph and graph.p20_us, graph_p80_us=graph and graph.p80_us, eager_us=eager_us,
                   gb_per_s=median and kv_bytes / median / 1e3,
                   ceiling_us=ceiling, ceiling_share=median and ceiling / median, unique_ceiling_us=unique_ceiling,
                   unique_ceiling_share=median and unique_ceiling / median,
                   tflop_per_s=median and w.flops / median / 1e6, copy_gb_per_s=self.copy_gb_per_s,
                   error_mean=verdict.mean, error_worst=verdict.worst, passed=passed, environment=self.environment)


def make_cases(workloads: Iterable[Workload], kernels: Iterable[str], tables: Iterable[str], block_sizes: Iterable[int],
               layouts: Iterable[str], dtype: str) -> list[Case]:
    """Every combination that exists: simulated tables only at the block size that they were simulated with."""
    for kernel in kernels:
        if kernel not in PREPARE:
            raise InputError(f"kernel must be one of {', '.join(PREPARE)}, got {kernel!r}")
    cases = []
    for w in workloads:
        for size in block_sizes or ([w.snapshot.block_size] if w.snapshot else [16 if w.latent_dim is None else 64]):
            for kind in tables or (("contiguous", "simulated", "shuffled") if w.snapshot
                                   else ("contiguous", "shuffled")):
                if kind == "simulated" and (w.snapshot is None or w.snapshot.block_size != size):
                    continue
                cases += [Case(w, kernel, kind, size, layout, dtype) for layout in layouts for kernel in kernels]
    return cases


def run_cases(bench: Bench, cases: list[Case], repeats: int, done: dict[str, Row],
              note: Callable[[str], None]) -> Iterator[Row]:
    """Rows of cases in order, those that this GPU has done as they are; ``note`` hears why a case has none."""
    for case in cases:
        row = done.get(case.key)
        if row is not None and case.is_of(row) and row.environment["gpu"] == bench.environment["gpu"]:
            yield row
            continue
        try:
            yield bench.measure(case, repeats)
        except NotHere as reason:
            note(f"{case.key}: not measured: {reason}")
