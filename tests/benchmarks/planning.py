"""What planning a decode step costs on the host: ``python tests/benchmarks/planning.py``.

Both kernels' plans for an H200 of 132 SMs, uniform and ragged batches; once for a step, whatever the number of layers.
Microseconds, medians of 300 after warming up; beside them the time of a sort of as many rows by numpy.  Then batches
whose sequences share prefixes, or nothing: finding what, cutting it, and planning the rest for the Hopper kernel.
"""

import statistics
import time
from collections.abc import Callable

import numpy as np

from pagesim.kernels.general.split import item_tokens, split
from pagesim.kernels.harness.workloads import builtin, make_tables, ragged
from pagesim.kernels.hopper.decode_launch import make_shape
from pagesim.kernels.hopper.plan import make_plan
from pagesim.kernels.shared_plan import TILE_BYTES
from pagesim.kernels.sharing import cut, find_shared

NUM_SMS = 132


def median_us(call: Callable[..., object], *arguments, **options) -> float:
    times = []
    for _ in range(310):
        start = time.perf_counter()
        call(*arguments, **options)
        times.append(time.perf_counter() - start)
    return 1e6 * statistics.median(times[10:])


def main() -> None:
    print(f"{'sequences':>9} {'KV heads':>8} {'lengths':>8} {'hopper':>7} {'general':>7} {'sort':>6}   µs")
    for num_seqs in (64, 256, 1024):
        for num_kv_heads in (8, 32):
            for kind, lengths in (("uniform", np.full(num_seqs, 1024)), ("ragged", ragged(num_seqs, 1024, 1.0, 1))):
                shape = make_shape(1, num_kv_heads, num_kv_heads, 128, 16)
                groups = num_kv_heads // shape.HEADS.value
                most = item_tokens(int(lengths.sum()), num_kv_heads, NUM_SMS)
                costs = (
                    median_us(make_plan, lengths, NUM_SMS * shape.ctas_per_sm, head_groups=groups),
                    median_us(split, lengths, most, device="cpu"),
                    median_us(np.argsort, np.repeat(lengths, groups), kind="stable"),
                )
                print(f"{num_seqs:9} {num_kv_heads:8} {kind:>8} {costs[0]:7.0f} {costs[1]:7.0f} {costs[2]:6.0f}")


def shared() -> None:
    print(f"\n{'batch':>9} {'sequences':>9} {'find':>7} {'cut':>7} {'plan':>6}   µs")
    for name in ("S1", "S2", "S3", "T1", "W2", "R5"):
        batch = builtin()[name]
        table, lengths = make_tables(batch, 16, 10**6, "shuffled", 1)[0], batch.lengths
        sharing = find_shared(table, lengths, 16, token_bytes=4096)
        begin = parts = None
        own_tokens, cutting = 0.0, 0.0
        if sharing is not None:
            own_tokens = float((lengths - sharing.begin).sum()) * 4096 / TILE_BYTES
            options = sharing, 4, 128, NUM_SMS, 1, 8, 10**5, own_tokens
            begin, parts, cutting = sharing.begin, cut(*options).num_parts, median_us(cut, *options)
        costs = (median_us(find_shared, table, lengths, 16, token_bytes=4096), cutting,
                 median_us(make_plan, lengths, 2 * NUM_SMS, head_groups=2, begin=begin, shared_parts=parts))
        print(f"{name:>9} {len(lengths):9} {costs[0]:7.0f} {costs[1]:7.0f} {costs[2]:6.0f}")


if __name__ == "__main__":
    main()
    shared()
