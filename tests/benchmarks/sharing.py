"""What prefix caches cost: ``python tests/benchmarks/sharing.py [TRACE]``.

Mooncake's conversations (TRACE; the real ones if they are here, else those in traces/) and a million requests of 1,200
tokens, of which 60 % are one of 1,000 shared prefixes, in a million slots, each with vLLM's cache, SGLang's and none: CPU
seconds of the simulation alone, the smallest of three, and how many blocks of prompts it looked up or handed out in
one; last the whole command on the conversations.  Each row is measured in a process of its own.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from command import ROOT, cost

from pagesim.allocators import Paged
from pagesim.engine.durations import Linear
from pagesim.engine.run import simulate
from pagesim.engine.scheduling import Scheduling
from pagesim.engine.setup import Setup
from pagesim.trace import Source, Trace, read_trace

REAL = ROOT.parent / "shared" / "traces" / "mooncake_conversation_trace.jsonl.gz"
SLOTS, LONGEST, STEP = 10**6, 131_072, Linear(0.01, 0.00002, 0.0, 0.00000001)
CACHES = ("none", "vllm", "radix")


def sixty_percent_shared() -> Trace:
    """720 tokens of one prefix of a thousand, then 480 of its own."""
    requests, prefixes, shared, own = 10**6, 1000, 45, 30
    rng = np.random.default_rng(0)
    ids = np.empty((requests, shared + own), np.int64)
    ids[:, :shared] = rng.integers(prefixes, size=(requests, 1)) * shared + np.arange(shared)
    ids[:, shared:] = prefixes * shared + np.arange(requests * own).reshape(requests, own)
    ones = np.ones(requests, np.int32)
    return Trace(np.zeros(requests, np.int64), 1200 * ones, rng.integers(1, 100, requests, dtype=np.int32),
                 prefix_ids=ids.ravel(), prefix_offsets=np.arange(requests + 1) * (shared + own),
                 source=Source("", "", hash_block_tokens=16))


def measure(path: str, cache: str) -> dict:
    trace = read_trace(path) if path else sixty_percent_shared()
    seconds = []
    for _ in range(4):  # the first may compile
        made = Setup(trace, Paged(16, prefix_cache=cache), SLOTS, LONGEST, Scheduling(256, 8192), STEP)
        before = time.process_time()
        result = simulate(made)
        seconds.append(time.process_time() - before)
    blocks = int(np.sum(-(-trace.prompt_tokens[result.requests.status == 1] // 16)))
    return {"requests": len(trace), "seconds": min(seconds[1:]), "blocks": blocks, "steps": result.counters.steps,
            "hit": result.sharing.hit_tokens / result.sharing.prompt_tokens if result.sharing else None,
            "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def measure_apart(path: str, cache: str) -> dict:
    command = [sys.executable, __file__, "--row", path, cache]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    if sys.argv[1:2] == ["--row"]:
        print(json.dumps(measure(*sys.argv[2:])))
        return
    trace = Path(sys.argv[1]) if len(sys.argv) > 1 else REAL if REAL.exists() else ROOT / "traces" / "mooncake_like.jsonl"
    print("| requests | cache | hits % | steps | CPU s | requests/s | prompt blocks/s | peak MB |\n"
          "|---|---|---:|---:|---:|---:|---:|---:|")
    for name, path in ((trace.name, str(trace)), ("1,200 tokens, 60 % shared", "")):
        for cache in CACHES:
            row = measure_apart(path, cache)
            hit = "" if row["hit"] is None else f"{100 * row['hit']:.1f}"
            print(f"| {row['requests']:,}: {name} | {cache} | {hit} | {row['steps']:,} | {row['seconds']:.2f} | "
                  f"{row['requests'] / row['seconds']:,.0f} | {row['blocks'] / row['seconds']:,.0f} | "
                  f"{row['megabytes']:.0f} |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "one.yaml")
        config.write_text(
            f"trace: {{path: {trace}}}\nmemory: {{kv_tokens: {SLOTS}}}\nmax_model_len: {LONGEST}\n"
            "durations: {kind: linear, step_s: 0.01, prefill_token_s: 0.00002, context_token_s: 0.00000001}\n"
            "allocators: [{kind: paged, block_size: 16, prefix_cache: vllm}]\n")
        wall, cpu, memory = cost(str(Path(sys.executable).parent / "pagesim"), "simulate", str(config))
    print(f"\npagesim simulate of {trace.name} with vLLM's cache: {wall:.2f} s, CPU {cpu:.2f} s, {memory:.0f} MB")


if __name__ == "__main__":
    main()
