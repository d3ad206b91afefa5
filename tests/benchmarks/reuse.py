"""What ``pagesim trace reuse`` costs on ten million block ids: ``python tests/benchmarks/reuse.py``.

Conversations whose turns begin with all turns before them, 200,000 requests, written as JSON lines.  The passes alone
(stack distances, next uses, eleven sizes of the optimum) are timed in a process of their own; beside them stands the
whole command, which reads the file first.  Medians of five runs after one that fills the caches.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from command import cost

REQUESTS, LONGEST, MOST_NEW = 200_000, 95, 35
PASSES = """
import sys, time, numpy as np
from pagesim.trace import Source, Trace
from pagesim.trace.reuse import reuse, sizes
with np.load(sys.argv[1]) as file:
    ids, offsets = file["ids"], file["offsets"]
tokens = (16 * np.diff(offsets) + 3).astype(np.int32)
trace = Trace(None, tokens, tokens, prefix_ids=ids, prefix_offsets=offsets, source=Source("", "", hash_block_tokens=16))
before = time.perf_counter()
found = reuse(trace)
between = time.perf_counter()
rates = [(found.lru(size), found.optimal(size)) for size in sizes(found)]
after = time.perf_counter()
print(f"{len(ids):,} ids, {found.num_distinct:,} distinct: stack distances and next uses {between - before:.2f} s, "
      f"{len(rates)} sizes {after - between:.2f} s", file=sys.stderr)
"""


def conversations() -> list[np.ndarray]:
    """The block ids of each request."""
    rng = np.random.default_rng(0)
    chats: dict[int, np.ndarray] = {}
    requests, fresh = [], 0
    for request in range(REQUESTS):
        chat = int(rng.integers(request // 6 + 1))
        before = chats.get(chat, np.empty(0, np.int64))
        before = before[:0] if len(before) > LONGEST else before
        new = int(rng.integers(1, MOST_NEW))
        chats[chat] = np.concatenate((before, np.arange(fresh, fresh + new)))
        fresh += new
        requests.append(chats[chat])
    return requests


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        requests = conversations()
        arrays, rows = Path(folder, "ids.npz"), Path(folder, "trace.jsonl")
        np.savez(arrays, ids=np.concatenate(requests), offsets=np.cumsum([0, *map(len, requests)]))
        with rows.open("w") as file:
            for own in requests:
                row = {"prompt_tokens": 16 * len(own), "output_tokens": 1, "prefix_ids": own.tolist()}
                file.write(json.dumps(row) + "\n")
        del requests
        pagesim = str(Path(sys.executable).parent / "pagesim")
        commands = {
            "the passes over ten million ids": (sys.executable, "-c", PASSES, str(arrays)),
            "pagesim trace reuse of them, as JSON lines": (pagesim, "trace", "reuse", str(rows)),
            "pagesim trace reuse --help": (pagesim, "trace", "reuse", "--help"),
        }
        print("| command | wall s | CPU s | peak MB |\n|---|---:|---:|---:|")
        for name, command in commands.items():
            wall, cpu, memory = cost(*command)
            print(f"| {name} | {wall:.2f} | {cpu:.2f} | {memory:.0f} |", flush=True)


if __name__ == "__main__":
    main()
