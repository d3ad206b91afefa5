"""How fast a sweep is: ``python tests/benchmarks/sweep.py [--cases 1000] [--requests 20000]``.

A grid over seeds, block sizes and sizes of memory, on lognormal lengths, run once by ``pagesim sweep``; then resumed,
which has nothing to do but to look.  Cores busy is CPU seconds of all processes by wall seconds.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SIDES = 10  # block sizes, and sizes of memory
CONFIG = """\
trace: {{path: trace.csv, arrivals: {{kind: poisson, rate: 20}}}}
model: {{kv_bytes_per_token: 131072}}
memory: {{kv_tokens: 200000}}
max_model_len: 8192
durations: {{kind: linear, step_s: 0.03}}
allocators: [{{kind: paged, block_size: 16}}]
sweep:
  seed: {seeds}
  allocators.0.block_size: {block_sizes}
  memory.kv_tokens: {kv_tokens}
"""


def write_grid(folder: Path, num_cases: int, num_requests: int) -> Path:
    rng = np.random.default_rng(0)
    prompt = np.clip(rng.lognormal(np.log(1200) - 0.32, 0.8, num_requests), 1, 7000).astype(int)
    output = np.clip(rng.lognormal(np.log(210) - 0.32, 0.8, num_requests), 1, 1000).astype(int)
    lines = [f"{p},{o}\n" for p, o in zip(prompt.tolist(), output.tolist())]
    (folder / "trace.csv").write_text("prompt_tokens,output_tokens\n" + "".join(lines))
    config = folder / "grid.yaml"
    config.write_text(CONFIG.format(
        seeds=list(range(max(1, num_cases // SIDES**2))), block_sizes=[2**k for k in range(SIDES)],
        kv_tokens=[100_000 + 50_000 * k for k in range(SIDES)]))
    return config


def timed(*arguments: object) -> tuple[float, float]:
    """Wall and CPU seconds of a command."""
    wall, before = time.perf_counter(), os.times()
    subprocess.run([sys.executable, "-c", "from pagesim.cli.main import main; main()", *map(str, arguments)], check=True)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - wall, cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="a multiple of 100")
    parser.add_argument("--requests", type=int, default=20_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        small = write_grid(folder, 100, 10)
        timed("sweep", small, "-o", folder / "first", "-q", "--set", "sweep.seed=[0]")  # compiles
        config = write_grid(folder, options.cases, options.requests)
        wall, cpu = timed("sweep", config, "-o", folder / "out", "-q")
        again, _ = timed("sweep", config, "-o", folder / "out", "-q", "--resume")
        size = sum(path.stat().st_size for path in (folder / "out").rglob("*") if path.is_file())
    print(f"{options.cases:,} cases of {options.requests:,} requests: {wall:.1f} s, {options.cases / wall:.1f} cases/s, "
          f"{cpu:.0f} CPU s, {cpu / wall:.2f} cores busy; {size / 2**20:.1f} MiB of results; resumed in {again:.1f} s")


if __name__ == "__main__":
    main()
