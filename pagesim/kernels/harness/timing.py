"""Times on a GPU: in a replayed graph and eager, with a cold cache; and the ceilings that they are held against."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

GRAPH_CALLS = 60  # launches in a captured graph: event resolution and the graph's own start disappear in them
FLUSH_BYTES = 512 * 2**20
# Words and loads of a program, warps.  The fastest of them is within 0.1 % of the fastest of 28 readers in CUDA C++
# (16-byte loads, 1 to 16 in flight a thread, cache hints, persistent grids) from 435 MiB to 2 GiB on an H200.
READ_SHAPES = ((1024, 1, 8), (512, 2, 4), (1024, 2, 8), (512, 4, 4), (2048, 4, 4), (4096, 4, 8), (2048, 8, 16))


@dataclass(frozen=True)
class Times:
    """Microseconds of one call: median, and the 20th and 80th percentile over repeats."""

    median_us: float
    p20_us: float
    p80_us: float


def summary(times_us: list[float]) -> Times:
    return Times(*(float(x) for x in np.percentile(times_us, [50, 20, 80])))


def time_graph(calls: list[Callable[[], None]], repeats: int = 15) -> Times:
    """Time per call in replays of a graph that makes all ``calls`` in turn, often enough for ``GRAPH_CALLS``.

    Calls that use different memory, larger together than the L2, find their data cold.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls[:2]:  # compile before the capture
            call()
    torch.cuda.current_stream().wait_stream(stream)
    rounds = max(1, GRAPH_CALLS // len(calls))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            for call in calls:
                call()
    return summary([t / (rounds * len(calls)) for t in _events([graph.replay] * repeats)])


def time_eager(calls: list[Callable[[], None]], repeats: int = 40) -> Times:
    """Time between events around single calls, Python and launch included, in turn over ``calls``."""
    return summary(_events([calls[i % len(calls)] for i in range(repeats)]))


def _events(calls: list[Callable[[], None]], before: Callable[[], None] | None = None) -> list[float]:
    """Microseconds of each call by events; ``before`` is queued ahead of each."""
    times = []
    for i, call in enumerate([calls[0], *calls]):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if before:
            before()
        start.record()
        call()
        end.record()
        end.synchronize()
        if i:  # the first compiles and warms up
            times.append(start.elapsed_time(end) * 1e3)
    return times


@triton.jit
def _read(source, sink, BLOCK: tl.constexpr, LOADS: tl.constexpr):
    """Read BLOCK · LOADS 32-bit words; the store keeps the loads alive and next to never happens."""
    offset = tl.program_id(0).to(tl.int64) * (BLOCK * LOADS) + tl.arange(0, BLOCK)
    seen = tl.zeros([BLOCK], tl.int32)
    for i in tl.static_range(LOADS):
        seen ^= tl.load(source + offset + i * BLOCK)
    tl.store(sink + tl.arange(0, BLOCK), seen, mask=seen == 0x12345678)


def read_ceiling(num_bytes: int, memory: torch.Tensor) -> Times:
    """Fastest time to read ``num_bytes`` of contiguous memory once, over a few shapes of kernel, by events.

    Args:
        memory: where to read, any dtype, contiguous; rotates over it, so that nothing is in the cache.
    """
    words = memory.view(-1).view(torch.int32)
    sink = torch.empty(max(block for block, _, _ in READ_SHAPES), dtype=torch.int32, device=memory.device)
    flush = words[-FLUSH_BYTES // 4:]
    best = None
    for block, loads, warps in READ_SHAPES:
        step = block * loads
        size = -(-num_bytes // 4 // step) * step
        parts = [words[at:at + size] for at in range(0, len(words) - size + 1, size)[:8]]
        calls = [lambda part=part: _read[(size // step,)](part, sink, BLOCK=block, LOADS=loads, num_warps=warps)  # noqa: B023
                 for part in parts]
        # Reading something else first leaves the cache cold, and keeps the GPU busy while Python launches.  (After
        # writing, the dirty lines would be written back during the measured read.)
        times = summary(_events([calls[i % len(calls)] for i in range(24)],
                                before=lambda: _read[(len(flush) // 16384,)](flush, sink, BLOCK=2048, LOADS=8,
                                                                             num_warps=4)))
        best = times if best is None or times.median_us < best.median_us else best
    return best


def copy_ceiling(memory: torch.Tensor) -> float:
    """GB/s (1e9), bytes read plus bytes written, of copying one half of ``memory`` over the other."""
    flat = memory.view(-1)
    half = len(flat) // 2
    times = time_eager([lambda: flat[:half].copy_(flat[half:2 * half])], 8)
    return 2 * half * flat.element_size() / times.median_us / 1e3


def environment() -> dict[str, str]:
    """What every figure depends on: GPU, driver, clocks, versions."""
    query = "driver_version,clocks.sm,clocks.mem,power.limit"
    try:
        answer = subprocess.run(
            ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader", "-i", str(torch.cuda.current_device())],
            capture_output=True, text=True, timeout=20, check=True).stdout
        driver, sm, memory, power = (part.strip() for part in answer.splitlines()[0].split(","))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        driver = sm = memory = power = "unknown"
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": driver,
        "sm_clock": sm,
        "memory_clock": memory,
        "power_limit": power,
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "",
        "triton": triton.__version__,
    }
