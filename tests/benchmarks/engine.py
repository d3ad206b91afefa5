"""How fast the engine is, and what it needs: ``python tests/benchmarks/engine.py [--week]``.

Each row is measured in a process of its own: CPU seconds of the simulation alone (the loop compiled before, the trace
made before), and the process's peak memory.  The last column is the ratio to the same code as plain Python on fewer
requests, so that two machines can be compared.  Requests are like Azure conv: lognormal, prompt mean 1,200, output
mean 210.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time

import numpy as np

from pagesim.allocators import Contiguous, Paged
from pagesim.engine.durations import Linear
from pagesim.engine.scheduling import Scheduling
from pagesim.engine.run import simulate
from pagesim.engine.setup import Setup
from pagesim.trace import Trace

MILLION = 10**6
ROWS = [(spec, MILLION)
        for spec in (Paged(16), Paged(64), Paged(1), Paged(16, "fifo"), Contiguous("exact", "first_fit"),
                     Contiguous("max_model_len", "first_fit"), Contiguous("exact", "buddy"),
                     Contiguous("max_model_len", "buddy"), Contiguous("grow", "first_fit"))]
SCALE = [(Paged(16), 10**k) for k in (4, 5, 6, 7)]
WEEK = [(Paged(16), 44 * MILLION), (Contiguous("exact", "first_fit"), 44 * MILLION)]


def azure_conv_like(num_requests: int) -> Trace:
    """Lengths in pieces, so that making them needs no more memory than keeping them."""
    rng = np.random.default_rng(0)
    prompt, output = np.empty(num_requests, np.int32), np.empty(num_requests, np.int32)
    for start in range(0, num_requests, MILLION):
        piece = slice(start, min(start + MILLION, num_requests))
        count = piece.stop - start
        prompt[piece] = np.clip(rng.lognormal(np.log(1200) - 0.32, 0.8, count), 1, 7000)
        output[piece] = np.clip(rng.lognormal(np.log(210) - 0.32, 0.8, count), 1, 1000)
    return Trace(np.zeros(num_requests, np.int64), prompt, output)


def measure(spec: Contiguous | Paged, num_requests: int) -> dict:
    """CPU seconds and peak memory of a simulation on an A100-80GB's KV memory for Llama-3.1-8B, all arriving at once."""

    def run(trace: Trace):
        return simulate(Setup(trace, spec, 450_000, 8192, Scheduling(1024, 8192), Linear(0.03)))

    run(azure_conv_like(1))
    trace = azure_conv_like(num_requests)
    start = time.process_time()
    result = run(trace)
    seconds = time.process_time() - start
    assert (result.requests.status == 1).all()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": seconds,
        "megabytes": peak / 1024,
        "steps": result.counters.steps,
        "preemptions": result.counters.preemptions,
    }


def measure_apart(index: int, rows: list, **environment: str) -> dict:
    command = [sys.executable, __file__, "--row", json.dumps([vars(rows[index][0]), rows[index][1]])]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | environment)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--week", action="store_true", help="also 44 million requests, as many as the Azure 2024 week")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        fields, count = json.loads(options.row)
        print(json.dumps(measure((Paged if "block_size" in fields else Contiguous)(**fields), count)))
        return
    rows = ROWS + SCALE + (WEEK if options.week else [])
    plain = {}
    print("| allocator | requests | CPU s | requests/s | steps/s | peak MB | x plain Python |\n"
          "|---|---:|---:|---:|---:|---:|---:|")
    for index, (spec, count) in enumerate(rows):
        if spec not in plain:
            plain[spec] = 300 / measure_apart(0, [(spec, 300)], NUMBA_DISABLE_JIT="1")["seconds"]
        row = measure_apart(index, rows)
        rate = count / row["seconds"]
        name = " ".join(str(value) for value in vars(spec).values())
        print(f"| {type(spec).__name__.lower()} {name} | {count:,} | {row['seconds']:.2f} | {rate:,.0f} | "
              f"{row['steps'] / row['seconds']:,.0f} | {row['megabytes']:.0f} | {rate / plain[spec]:,.0f} |",
              flush=True)


if __name__ == "__main__":
    main()
