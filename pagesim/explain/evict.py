"""Lesson: which cached block goes first when memory is needed, and why in this order."""

from pagesim.allocators import Paged
from pagesim.explain.lesson import Lesson, Question
from pagesim.explain.scene import run_of

_BLOCK, _NUM_BLOCKS = 4, 6
# Two full blocks and a token each, ended after a step: C begins like A, and goes on in its own way.
_PROMPT = 2 * _BLOCK + 1
_BLOCKS = {"A": "PQ", "B": "RS", "C": "PT"}
_WANTED = 4  # blocks that D wants


def evict() -> Lesson:
    """A and B have gone, C finds A's beginning, D needs more blocks than are free."""
    a, b, c = (_table(name) for name in ("A", "AB", "ABC"))
    queues = ["  ".join(map(str, _table(name, probe=_NUM_BLOCKS))) for name in ("A", "AB", "ABC")]
    d, next_d = _table("ABC", probe=_WANTED), _table("ABC", probe=_WANTED + 1)
    lines = (
        f"A pool of {_NUM_BLOCKS} blocks of {_BLOCK}.  A, B and C come one after the other, {_PROMPT} tokens each:",
        "two full blocks, which are cached when their owner has gone, and one that is not",
        "full, which is simply free.  The queue is the order in which blocks are handed",
        "out: free ones in front, cached ones behind, each at the end when it is let go.",
        "",
        "             table         queue when it has gone",
        f"  A          {a!s:12}  {queues[0]}",
        f"  B          {b!s:12}  {queues[1]}",
        f"  C          {c!s:12}  {queues[2]}",
        "",
        f"A's block {a[1]} stands before its block {a[0]}: a sequence gives back its last block",
        "first.  A beginning without its end can still be found; an end without its",
        f"beginning never.  C began as A did and found block {c[0]}, which left the queue and",
        "goes to its end: used least recently means evicted first.",
        "",
        f"D wants {_WANTED} blocks of which nothing is cached: table {d}.",
        f"Block {d[0]} was free.  Blocks {d[1]}, {d[2]} and {d[3]} lost their keys: evicted.",
    )
    return Lesson("Who is evicted, and why", lines, Question(
        f"Had D wanted {_WANTED + 1} blocks, which would have been its last?", next_d[-1],
        f"the queue goes on with block {next_d[-1]}, the end of C's prompt; its beginning, block {c[0]}, stays longer"))


def _table(names: str, probe: int = 0) -> list[int]:
    """Block table of the last of these requests, or of one behind them that shares nothing and wants ``probe`` blocks.

    Asked for the whole pool it tells the order of the queue.
    """
    prefixes = [_BLOCKS[name] for name in names]
    rows = [(float(k), _PROMPT, 1) for k in range(len(names))]
    if probe:
        rows.append((float(len(names)), probe * _BLOCK - 1, 1))
        prefixes.append("")
    run = run_of(rows, Paged(_BLOCK, prefix_cache="vllm"), _NUM_BLOCKS * _BLOCK, prefixes)
    run.advance(len(rows))
    return run.tables().table(0).tolist()
