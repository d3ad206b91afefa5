"""Hit rate against the size of a prefix cache: a table, a document, and a figure (extra ``report``)."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pagesim.core.units import format_bytes
from pagesim.report.colours import SERIES
from pagesim.report.tables import Sheet
from pagesim.trace.reuse import LEFT_OUT, Reuse, sizes
from pagesim.trace.trace import Source

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIZES_DRAWN = 4  # to each doubling


@dataclass(frozen=True)
class Point:
    """A cache of one size; hit rates are Σ hit tokens / Σ prompt tokens, ``bytes`` is None without a model."""

    blocks: int
    tokens: int
    bytes: int | None
    lru: float
    optimal: float


def points(reuse: Reuse, sizes_blocks: list[int], kv_bytes_per_token: int | None) -> list[Point]:
    """The curve at these sizes."""
    tokens = [blocks * reuse.block_tokens for blocks in sizes_blocks]
    return [Point(blocks, slots, kv_bytes_per_token and slots * kv_bytes_per_token, reuse.lru(blocks),
                  reuse.optimal(blocks)) for blocks, slots in zip(sizes_blocks, tokens)]


def document(reuse: Reuse, source: Source, curve: list[Point]) -> dict:
    """Everything as one JSON object."""
    return {"schema_version": 1, "path": source.path, "sha256": source.sha256, "block_tokens": reuse.block_tokens,
            "prompt_tokens": reuse.prompt_tokens, "whole_blocks": reuse.num_blocks,
            "distinct_blocks": reuse.num_distinct, "unlimited": reuse.unlimited, "enough_blocks": reuse.enough_blocks,
            "left_out": LEFT_OUT, "curve": [asdict(point) for point in curve]}


def headline(reuse: Reuse) -> str:
    """What was looked at, and when a cache is large enough."""
    return (f"{reuse.prompt_tokens:,} prompt tokens, {reuse.num_blocks:,} whole blocks of {reuse.block_tokens}, "
            f"{reuse.num_distinct:,} distinct; an LRU cache of {reuse.enough_blocks:,} blocks hits as much as one "
            "without limit")


def sheet(reuse: Reuse, curve: list[Point]) -> Sheet:
    """A row a size, the last one without limit."""
    rows = [(f"{point.blocks:,}", f"{point.tokens:,}", *([] if point.bytes is None else [format_bytes(point.bytes)]),
             f"{100 * point.lru:.3f}", f"{100 * point.optimal:.3f}") for point in curve]
    with_bytes = curve[0].bytes is not None
    rows.append(("no limit", "", *([""] if with_bytes else []), f"{100 * reuse.unlimited:.3f}",
                 f"{100 * reuse.unlimited:.3f}"))
    columns = ("blocks", "tokens", *(["memory"] if with_bytes else []), "LRU", "optimum")
    return Sheet("Prompt tokens that hit, %", columns, tuple(rows))


def figure(reuse: Reuse, kv_bytes_per_token: int | None) -> "Figure":
    """LRU and the optimum along the size, with what a cache without limit hits above them."""
    from matplotlib.figure import Figure

    drawn = points(reuse, sizes(reuse, _SIZES_DRAWN), kv_bytes_per_token)
    unit, scale = ("GiB", 2**30) if kv_bytes_per_token else ("tokens", 1)
    at = [(point.bytes or point.tokens) / scale for point in drawn]
    picture = Figure((7.0, 3.4), layout="constrained")
    panel = picture.subplots()
    panel.axhline(100 * reuse.unlimited, color="black", linewidth=0.8, linestyle="--",
                  label=f"no limit: {100 * reuse.unlimited:.1f} %")
    panel.plot(at, [100 * point.optimal for point in drawn], color=SERIES[2], label="optimum (knows the future)")
    panel.plot(at, [100 * point.lru for point in drawn], color=SERIES[0], label="LRU")
    panel.set_xscale("log", base=2 if unit == "GiB" else 10)
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    panel.set(xlabel=f"size of the cache, {unit}", ylabel="prompt tokens that hit, %", ylim=(0, None))
    panel.legend(fontsize="small", loc="best")
    panel.set_title(LEFT_OUT, fontsize="x-small", loc="left")
    return picture
