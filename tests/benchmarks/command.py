"""What a whole command costs beside its imports: ``python tests/benchmarks/command.py [TRACE]``.

The command replays TRACE (the real Azure conv trace if it is here, else the one in traces/) on paged memory; beside it
stand importing its libraries alone, ``pagesim --help``, and reading a plain CSV of a million rows.  Medians of five
runs.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
AZURE = ROOT.parent / "shared" / "traces" / "AzureLLMInferenceTrace_conv.csv"
# In a process of its own, because a child's peak memory counts what its parent had.
MILLION_ROWS = """
import sys, numpy as np
rng = np.random.default_rng(0)
with open(sys.argv[1], "w") as file:
    file.write("arrival_s,prompt_tokens,output_tokens\\n")
    columns = np.c_[np.cumsum(rng.exponential(0.1, 10**6)), rng.integers(1, 4000, (10**6, 2))]
    np.savetxt(file, columns, "%.6f,%d,%d")
"""
IMPORTS = "import typer, rich.table, numpy, yaml, pydantic, numba"


def cost(*command: str) -> tuple[float, float, float]:
    """Median (wall seconds, CPU seconds, peak MB) of a command, after one run that warms the caches."""
    rows = []
    for _ in range(6):
        before = os.times()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        assert status == 0, command
        rows.append((os.times().elapsed - before.elapsed, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024))
    return tuple(statistics.median(column) for column in zip(*rows[1:]))


def main() -> None:
    trace = (Path(sys.argv[1]) if len(sys.argv) > 1 else AZURE if AZURE.exists()
             else ROOT / "traces" / "azure_conv_like.csv")
    with tempfile.TemporaryDirectory() as folder:
        config, rows = Path(folder, "one.yaml"), Path(folder, "million.csv")
        config.write_text(
            f"trace: {{path: {trace}}}\nmodel: llama-3.1-8b\nmemory: {{gpu: h200}}\nmax_model_len: 16384\n"
            "allocators: [{kind: paged, block_size: 16}]\n")
        subprocess.run([sys.executable, "-c", MILLION_ROWS, str(rows)], check=True)
        pagesim = str(Path(sys.executable).parent / "pagesim")
        commands = {
            f"pagesim simulate, {trace.name}, paged 16": (pagesim, "simulate", str(config)),
            "its libraries' imports": (sys.executable, "-c", IMPORTS),
            "pagesim --help": (pagesim, "--help"),
            "read_trace of a million rows": (
                sys.executable,
                "-c",
                f"from pagesim.trace import read_trace; read_trace({str(rows)!r})",
            ),
            "its imports": (sys.executable, "-c", "import pagesim.trace"),
        }
        print("| command | wall s | CPU s | peak MB |\n|---|---:|---:|---:|")
        for name, command in commands.items():
            wall, cpu, memory = cost(*command)
            print(f"| {name} | {wall:.2f} | {cpu:.2f} | {memory:.0f} |", flush=True)


if __name__ == "__main__":
    main()
