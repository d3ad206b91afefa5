"""A recording of vLLM's scheduler as arguments for a run, with block ids that start at 0."""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pagesim.allocators import Paged
from pagesim.engine.durations import Linear
from pagesim.engine.scheduling import Scheduling
from pagesim.engine.setup import Setup
from pagesim.trace.trace import Source, Trace

FOLDER = Path(__file__).parent / "vllm"
NAMES = ("a_tiny", "c_arrivals", "d_chunked", "e_block64", "h_exact_blocks")     # without prefix caching
PREFIX_NAMES = ("g_prefix",)


@dataclass(frozen=True)
class Recording:
    trace: Trace
    allocator: Paged
    capacity_slots: int
    max_model_len: int
    scheduling: Scheduling
    steps: list[dict]
    per_request: list[dict]

    @property
    def setup(self) -> Setup:
        """Each step lasts one second, so that step k starts at k seconds."""
        return Setup(self.trace, self.allocator, self.capacity_slots, self.max_model_len, self.scheduling, Linear(1.0))


def read(name: str) -> Recording:
    data = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    given = data["parameters"]
    rows = np.array([row[:3] for row in data["requests"]])
    order = np.argsort(rows[:, 0], kind="stable")
    assert (order == np.arange(len(rows))).all(), "requests are recorded in order of arrival"
    trace = Trace(rows[:, 0] * 10**9, rows[:, 1].astype(np.int32), rows[:, 2].astype(np.int32),
                  **prefixes([row[3] for row in data["requests"] if len(row) > 3], given["block_size"]))
    scheduling = Scheduling(
        max_num_seqs=given["max_num_seqs"], max_num_batched_tokens=given["max_num_batched_tokens"],
        chunked_prefill=given["enable_chunked_prefill"], reserve_full_isl=given["scheduler_reserve_full_isl"])
    allocator = Paged(given["block_size"], reuse="lifo", watermark=given["watermark"],
                      prefix_cache="vllm" if given["enable_prefix_caching"] else "none")
    return Recording(trace, allocator, given["num_usable_blocks"] * given["block_size"], given["max_model_len"],
                     scheduling, [from_zero(step) for step in data["steps"]], data["per_request"])


def prefixes(ids: list[list[int]], block_size: int) -> dict:
    """Columns of a trace; a file without prefix caching has none."""
    if not ids:
        return {}
    return {"prefix_ids": np.array([one for row in ids for one in row], np.int64),
            "prefix_offsets": np.cumsum([0, *map(len, ids)]),
            "source": Source("memory", "memory", hash_block_tokens=block_size)}


def from_zero(step: dict) -> dict:
    """The step without the null block: ids start at 0."""
    step = dict(step)
    if "tables" in step:
        step["tables"] = {int(request): [block - 1 for block in table] for request, table in step["tables"].items()}
        step["free_queue_end"] = [block - 1 for block in step["free_queue_end"]]
    return step
