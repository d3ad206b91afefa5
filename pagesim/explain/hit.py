"""Lesson: a prefix hit, from the lookup of a prompt to the block table of who found it."""

from pagesim.allocators import Paged
from pagesim.core.units import ceil_div
from pagesim.explain.lesson import Lesson, Question
from pagesim.explain.scene import run_of

_BLOCK, _SYSTEM = 4, 8  # slots of a block; tokens of the system prompt
_PROMPTS = (11, 13, _SYSTEM)


def hit() -> Lesson:
    """A, B and C begin with the same 8 tokens; C has no others."""
    rows = [(float(k), prompt, 4) for k, prompt in enumerate(_PROMPTS)]
    run = run_of(rows, Paged(_BLOCK, prefix_cache="vllm"), 12 * _BLOCK, ["SY", "SY", "SY"])
    run.advance(1)
    of_a = run.tables().table(0).tolist()
    run.advance(1)
    tables, owned = run.tables(), run.num_owners()
    of_b, logical, physical = tables.table(1).tolist(), int(owned.sum()), int((owned > 0).sum())
    run.advance(1)
    _, of_b_tokens, of_c_tokens = run.result().sharing.hit_tokens_by_request.tolist()
    found = of_b_tokens // _BLOCK
    new = ceil_div(_PROMPTS[1], _BLOCK) - found
    lines = (
        f"Blocks of {_BLOCK}.  The prompts of A and B begin with the same {_SYSTEM} tokens.",
        "",
        f"A comes first, {_PROMPTS[0]} tokens: table {of_a}.  Every full block gets a key, made",
        "from its tokens and the key before it: it stands for the whole text up to there.",
        "",
        f"  key 0 = hash(          tokens 0–3)   → block {of_a[0]}",
        f"  key 1 = hash(key 0,    tokens 4–7)   → block {of_a[1]}",
        f"  tokens 8–10 do not fill block {of_a[2]}: no key",
        "",
        f"B comes, {_PROMPTS[1]} tokens.  Its keys are looked up in order until one is missing:",
        "",
        f"  key 0 is there: block {of_b[0]}       key 1 is there: block {of_b[1]}       key 2 is not",
        "",
        f"So {of_b_tokens} of {_PROMPTS[1]} tokens need not be computed, and {new} blocks are taken for the others:",
        "",
        f"  table of A   {of_a}",
        f"  table of B   {of_b}     blocks {of_b[0]} and {of_b[1]} have two owners",
        "",
        f"The tables have {logical} entries, but {physical} blocks are taken: "
        f"{100 * (1 - physical / logical):.1f} % saved.",
    )
    return Lesson("A prefix hit, from lookup to table", lines, Question(
        f"C's whole prompt is these {_SYSTEM} tokens.  How many of them does it find?", of_c_tokens,
        "its last token has to be computed in any case, for what comes after it, and only full blocks are found: "
        f"at most {_SYSTEM - 1} tokens, so {(_SYSTEM - 1) // _BLOCK} block"))
