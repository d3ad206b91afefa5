"""Lesson: A and C leave, E comes.  Adjacent memory refuses, pages accept."""

from pagesim.allocators import Contiguous, Paged
from pagesim.core.ledger import PARTS
from pagesim.engine.run import Run
from pagesim.explain.lesson import Lesson, Question
from pagesim.explain.scene import bar, region, run_of

_BLOCK = 16
_ROWS = [region(16, 1), region(16, 9), region(16, 1), region(16, 9), region(32, 1, arrival_s=1.0)]
_LETTERS = "ABCDE"


def ae() -> Lesson:
    """Four sequences of 16 slots fill 64; two leave and one of 32 slots comes."""
    contiguous, paged = run_of(_ROWS, Contiguous("exact", "first_fit"), 64), run_of(_ROWS, Paged(_BLOCK), 64)
    before = [_instant(run) for run in (contiguous, paged)]
    after = [_instant(run) for run in (contiguous, paged)]
    stranded = int(contiguous.result().timeline.mean_parts[-1][PARTS.index("stranded")])
    tables = paged.tables()
    e = tables.seq_ids.tolist().index(_LETTERS.index("E"))
    table, slots = tables.table(e).tolist(), tables.select([e]).slots()
    for run in (contiguous, paged):
        run.advance()
    waited_s = contiguous.result().requests.first_scheduled_s[4]
    lines = (
        "A, B, C and D store 16 tokens each and fill 64 slots.  A and C end; E wants 32.",
        "",
        "  one region a sequence",
        f"    before   {before[0]}",
        f"    after    {after[0]}   {stranded} slots free, no 32 of them adjacent:",
        f"                          E waits, until B and D end at {waited_s:.0f} s",
        "",
        f"  blocks of {_BLOCK}",
        f"    before   {before[1]}",
        f"    after    {after[1]}   E runs in what A and C left",
        "",
        f"E's block table is {table}: its tokens 0–15 lie in slots {slots[0]}–{slots[15]}, its tokens 16–31",
        f"in slots {slots[16]}–{slots[31]}.",
    )
    asked = 20
    logical, offset = divmod(asked, _BLOCK)
    return Lesson("A and C leave, E comes", lines, Question(
        f"In which slot lies E's token {asked}?", int(slots[asked]),
        f"logical block {logical}, offset {offset}: table[{logical}] · {_BLOCK} + {offset} = "
        f"{table[logical]} · {_BLOCK} + {offset} = {slots[asked]}"))


def _instant(run: Run) -> str:
    """Memory after one more step, a letter for every four slots."""
    run.advance(1)
    unit_slots, _ = run.units()
    return bar(run.owners().repeat(unit_slots)[::4], _LETTERS)
