"""Lesson: 2,048 slots are reserved and 200 used."""

from pagesim.allocators import Contiguous, Paged, Spec
from pagesim.core.units import ceil_div
from pagesim.explain.lesson import Lesson, Question
from pagesim.explain.scene import BAR_COLUMNS, region, run_of

_MAX_MODEL_LEN, _STORED, _BLOCK, _OTHER_BLOCK = 2048, 200, 16, 64
_CAPACITY, _WAITING = 8 * _MAX_MODEL_LEN, 100


def waste() -> Lesson:
    """A region of the longest possible request, and blocks, for many requests that store 200 tokens."""
    reserved, by_region, region_use = _filled(Contiguous("max_model_len"))
    taken, by_blocks, block_use = _filled(Paged(_BLOCK))
    used = round(BAR_COLUMNS * _STORED / reserved)
    lines = (
        f"A server accepts up to {_MAX_MODEL_LEN:,} tokens.  A request comes that will store {_STORED};",
        "nobody knows that beforehand, so one region for it must be as large as can be:",
        "",
        f"  {'#' * used}{'.' * (BAR_COLUMNS - used)}",
        "",
        f"  reserved {reserved:,}, used {_STORED}: {reserved - _STORED:,} slots empty, {_share(reserved)} % "
        "of the region",
        "",
        f"In blocks of {_BLOCK}, taken one by one as tokens come:",
        "",
        f"  {taken // _BLOCK} blocks, {taken} slots, used {_STORED}: {taken - _STORED} slots empty, {_share(taken)} %, "
        "all in the last block",
        "",
        "Empty slots inside of what is taken are internal fragmentation.  What it costs:",
        f"{_WAITING} such requests wait for a memory of {_CAPACITY:,} slots.",
        "",
        f"  regions   {by_region:3} run at once, {region_use:.1f} % of the memory holds tokens",
        f"  blocks    {by_blocks:3} run at once, {block_use:.1f} %",
    )
    empty = ceil_div(_STORED, _OTHER_BLOCK) * _OTHER_BLOCK - _STORED
    return Lesson("2,048 reserved, 200 used", lines, Question(
        f"In blocks of {_OTHER_BLOCK}: how many slots does this request leave empty?", empty,
        f"ceil({_STORED} / {_OTHER_BLOCK}) = {ceil_div(_STORED, _OTHER_BLOCK)} blocks have {_STORED + empty} slots"))


def _filled(allocator: Spec) -> tuple[int, int, float]:
    """Slots that a request gets; requests that run at once; the share of the memory that holds tokens, in per cent."""
    run = run_of([region(_STORED, 1)] * _WAITING, allocator, _CAPACITY, max_model_len=_MAX_MODEL_LEN)
    run.advance(1)
    held, running = int((run.owners() == 0).sum()) * run.units()[0], len(run.running())
    return held, running, 100 * running * _STORED / _CAPACITY


def _share(taken: int) -> str:
    return f"{100 * (taken - _STORED) / taken:.1f}"
