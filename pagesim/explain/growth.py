"""Lesson: a region that grows has to be copied, and what it leaves behind is a hole."""

import math

from pagesim.allocators import Contiguous, Paged
from pagesim.explain.lesson import Lesson, Question
from pagesim.explain.scene import bar, run_of

_ROWS = [(0.0, 16, 33), (0.0, 16, 33)]
_CAPACITY, _BLOCK, _LETTERS = 144, 16, "AB"


def growth() -> Lesson:
    """A and B begin with 16 tokens each and grow, once in regions that grow by half, once in blocks."""
    spec = Contiguous("grow", "first_fit")
    run, pictures, copied = run_of(_ROWS, spec, _CAPACITY), [], 0
    while run.advance(1):
        picture, before = bar(run.owners(), _LETTERS), copied
        copied = run.result().counters.copied_tokens
        if not pictures or picture != pictures[-1][1]:
            pictures.append((run.position().steps, picture, copied - before))
    last = pictures[-1][1]
    region = last.count(_LETTERS[1]) * _CAPACITY // len(last)
    paged = run_of(_ROWS, Paged(_BLOCK), _CAPACITY)
    paged.advance()
    stored, asked = paged.result().peaks.token_states, math.ceil(region * spec.growth)
    lines = (
        "A and B store 16 tokens, and one more in each step.  A full region of s slots is",
        f"followed by one of {spec.growth:g} · s: in place where the slots behind it are free, else",
        f"elsewhere, and all that it holds is copied.  {_CAPACITY} slots:",
        "",
        *(line for step, picture, moved in pictures for line in (
            f"  step {step}: {moved} tokens copied" if moved else f"  step {step}", f"    {picture}")),
        "",
        f"In all {copied} tokens were copied to store {stored}, and while one is copied it takes",
        f"its old region and its new one.  In blocks of {_BLOCK}: {paged.result().counters.copied_tokens} copied;",
        "a full block is followed by any free one.",
    )
    return Lesson("Growing means copying", lines, Question(
        f"B's region of {region} slots is full.  How many slots does it ask for next?", asked,
        f"ceil({spec.growth:g} · {region}) = {asked}"))
