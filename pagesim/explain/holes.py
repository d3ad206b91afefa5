"""Lesson: 1.5 GiB do not fit although 3.5 GiB are free."""

from pagesim.allocators import Contiguous, Paged
from pagesim.engine.ownership import free_runs
from pagesim.engine.result import WINDOWS, Column
from pagesim.explain.lesson import Lesson, Question
from pagesim.explain.scene import bar, region, run_of

_LEAVING = (512, 256, 1024, 768, 1024)  # slots
_STAYING = 64
_WANTED = 1536
_SATURATED = WINDOWS.index("saturated")


def holes() -> Lesson:
    """Regions of 512, 256, 1024, 768 and 1024 slots leave, small ones between them stay, and 1,536 slots are wanted."""
    rows = [region(slots, steps) for large in _LEAVING for slots, steps in ((large, 1), (_STAYING, 2))]
    rows.append(region(_WANTED, 1, arrival_s=1.0))
    capacity = sum(_LEAVING) + _STAYING * len(_LEAVING)
    letters = "A#B#C#D#E#R"
    run = run_of(rows, Contiguous("exact", "first_fit"), capacity)
    run.advance(1)
    full = bar(run.owners(), letters)
    run.advance(1)
    owners = run.owners()
    found, now = free_runs(owners), bar(owners, letters)
    run.advance()
    result = run.result()
    paged = run_of(rows, Paged(16), capacity)
    paged.advance()
    sums = result.integrals[_SATURATED]
    waited_s, blocked_s = sums[Column.TIME], sums[Column.BLOCKED_TIME]
    index = sums[Column.EXTFRAG] / sums[Column.EXTFRAG_TIME]
    free, largest = sum(found), max(found)
    starts = result.requests.first_scheduled_s[-1], paged.result().requests.first_scheduled_s[-1]
    lines = (
        "A slot is 1 MiB here.  Regions A to E are full, small ones (#) lie between them:",
        "",
        f"  {full}",
        "",
        f"A to E leave.  R wants {_WANTED:,} MiB (1.5 GiB) in one piece:",
        "",
        f"  {now}",
        "",
        f"  holes      {' + '.join(map(str, found))} = {free:,} MiB = {free / 1024:.2f} GiB free",
        f"  largest    {largest:,} MiB, less than {_WANTED:,}: R waits, and all {free:,} MiB are stranded",
        "",
        "How fragmented is that?  Four answers, all of this instant:",
        "",
        f"  1 − largest hole / free = 1 − {largest:,} / {free:,} = {sums[Column.LARGEST_HOLE] / waited_s:.3f}",
        f"  share of the free memory that R's size cannot use = {sums[Column.UNUSABLE] / waited_s:.1f}",
        f"  Linux's extfrag_index (0: too little memory, 1000: too scattered) = {index:.0f}",
        f"  time in which fragmentation alone kept R out = {blocked_s:.0f} of {waited_s:.0f} s of waiting",
        "",
        f"R starts at {starts[0]:.0f} s, when the # are gone.  In blocks of 16 the same R starts at {starts[1]:.0f} s,",
        "as it comes: any free block serves.",
    )
    return Lesson("Why 1.5 GiB do not fit into 3.5 GiB", lines, Question(
        "How many MiB has the largest request that could have been placed at that instant?", largest,
        f"the largest hole decides: {largest:,} MiB"))
