"""The figures of a run's tables, in the order they are read: the name of each, and its text in a case's entry."""

from collections.abc import Callable
from typing import NamedTuple

from pagesim.core.ledger import grouped


class Figure(NamedTuple):
    """``rare`` ones are shown only where some case has more than 0."""

    name: str
    text: Callable[[dict], str]
    rare: bool = False


class Group(NamedTuple):
    title: str
    figures: tuple[Figure, ...]


def groups(cases: list[dict]) -> list[Group]:
    """The groups for these cases.

    Shares and means are over the time in which something runs, but for the two conventions, which name their window.
    """
    absent = set()
    if not any(case["histograms"]["hole_slots_s"] is not None for case in cases):
        absent.add(_EXTERNAL.title)
    if not any(case.get("sharing") for case in cases):
        absent.add(_SHARING.title)
    if not any("fleet" in case for case in cases):
        absent.add(_FLEET.title)
    return [_without_zeros(group, cases) for group in EVERY if group.title not in absent]


def _without_zeros(group: Group, cases: list[dict]) -> Group:
    kept = (each for each in group.figures if not each.rare or any(each.text(case) not in _NOTHING for case in cases))
    return Group(group.title, tuple(kept))


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f}"


def number(value: float | None) -> str:
    """Four significant digits: enough to compare, few enough to read."""
    if value is None:
        return "–"
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def shown_window(case: dict) -> str:
    """``saturated``, the paper's setting, where the run has it."""
    return "saturated" if case["ledger"]["saturated"] else "busy"


def paper_shares(case: dict) -> dict[str, float] | None:
    """As Figure 2 of the PagedAttention paper, over ``shown_window``."""
    return case["sosp23"][shown_window(case)]


def textbook_shares(case: dict) -> dict[str, float] | None:
    """Used, internal, external and free, over the same window."""
    parts = case["ledger"][shown_window(case)]
    if parts is None:
        return None
    return grouped(parts, "textbook")


def _part(part: str) -> Callable[[dict], str]:
    return lambda case: percent((case["ledger"]["busy"] or {}).get(part))


def _count(key: str) -> Callable[[dict], str]:
    return lambda case: f"{case[key]:,}"


def _waits_for(case: dict) -> str:
    """The cause of most of the waiting, and its share of it."""
    seconds = case["waiting_request_s"]
    total, cause = sum(seconds.values()), max(seconds, key=seconds.__getitem__)
    return f"{cause} {100 * seconds[cause] / total:.0f} %" if total else "–"


def _external(key: str) -> Callable[[dict], str]:
    return lambda case: percent(case["external_fragmentation"][key])


def _extfrag_index(case: dict) -> str:
    index = case["external_fragmentation"]["extfrag_index"]
    return "–" if index is None else f"{index:.0f}"


def _paper(key: str) -> Callable[[dict], str]:
    return lambda case: percent((paper_shares(case) or {}).get(key))


def _textbook(key: str) -> Callable[[dict], str]:
    return lambda case: percent((textbook_shares(case) or {}).get(key))


def _latency(name: str, key: str) -> Callable[[dict], str]:
    return lambda case: number(case["latency"][name][key])


def _evicted(case: dict) -> str:
    return f"{case['sharing']['evicted_blocks']:,}" if case.get("sharing") else "–"


def _sharing(key: str) -> Callable[[dict], str]:
    return lambda case: percent((case.get("sharing") or {}).get(key))


def _imbalance(name: str, key: str) -> Callable[[dict], str]:
    return lambda case: number(case["fleet"]["imbalance"][name][key]) if "fleet" in case else "–"


def _together(key: str) -> Callable[[dict], str]:
    return lambda case: percent(case["fleet"]["together"][key]) if "fleet" in case else "–"


_NOTHING = ("0", "0.00", "–")
_FLEET = Group("Replicas side by side", (
    Figure("replicas", lambda case: f"{case['fleet']['replicas']:,}" if "fleet" in case else "1"),
    Figure("completed, most / mean", _imbalance("completed", "max_over_mean")),
    Figure("block use, most / mean", _imbalance("block_use", "max_over_mean")),
    Figure("block use, CV", _imbalance("block_use", "cv")),
    Figure("waiting, most / mean", _imbalance("waiting", "max_over_mean")),
    Figure("free in all, % of capacity", _together("free")),
    Figure("… while one refuses its head", _together("stranded")),
    Figure("time in which one does, %", _together("blocked_by_fragmentation")),
))
_MEMORY = Group("Memory, % of capacity", (
    Figure("token use", lambda case: percent(case["utilization"])),
    Figure("block use", lambda case: percent(case["block_use"])),
    *(Figure(part, _part(part)) for part in ("reserved", "overreserved", "rounding", "stranded", "idle")),
    *(Figure(part, _part(part), rare=True) for part in ("cached", "remainder")),
    Figure("internal fragm.", lambda case: percent(case["internal_fragmentation"])),
))
_EXTERNAL = Group("External fragmentation, %", (
    Figure("time blocked by it", _external("blocked_by_fragmentation")),
    Figure("1 - largest hole / free", _external("largest_hole")),
    Figure("free but unusable", _external("unusable")),
    Figure("extfrag_index, of 1000", _extfrag_index),
))
_PAPER = Group("As SOSP'23 Figure 2, %", (
    Figure("window", shown_window),
    Figure("token states", _paper("token_states")),
    Figure("reservation", _paper("reserved")),
    Figure("internal", _paper("internal")),
    Figure("external & others", _paper("external_and_others")),
))
_TEXTBOOK = Group("As a textbook, %", (
    Figure("window", shown_window),
    *(Figure(part, _textbook(part)) for part in ("used", "internal", "external", "free")),
))
_RARE_COUNTERS = ("recomputed_tokens", "swapped_blocks", "swap_fallbacks", "copied_tokens", "failed_growths")
_LOAD = Group("Load", (
    Figure("completed", lambda case: f"{case['requests']['completed']:,}"),
    Figure("running, mean", lambda case: number(case["mean"]["running"])),
    Figure("running, peak", lambda case: f"{case['peak']['running']:,}"),
    Figure("waiting, mean", lambda case: number(case["mean"]["waiting"])),
    Figure("waiting, peak", lambda case: f"{case['peak']['waiting']:,}"),
    Figure("waits for", _waits_for),
    Figure("preemptions", _count("preemptions")),
    *(Figure(key.replace("_", " "), _count(key), rare=True) for key in _RARE_COUNTERS),
    Figure("requests/s", lambda case: number(case["throughput"]["requests_per_s"])),
    Figure("output tokens/s", lambda case: number(case["throughput"]["output_tokens_per_s"])),
))
_SHARING = Group("Prefix cache, %", (
    Figure("hits, of prompt tokens", _sharing("hit_rate_by_tokens")),
    Figure("hits, of full blocks", _sharing("hit_rate_by_blocks")),
    Figure("blocks saved", _sharing("saved")),
    Figure("evicted blocks", _evicted),
))
_LATENCY = Group("Latency, s",
                 tuple(Figure(f"{name} {key}", _latency(name, key)) for name in ("queue", "ttft", "tpot", "e2e")
                       for key in ("p50", "p99")))
EVERY = (_FLEET, _MEMORY, _EXTERNAL, _SHARING, _PAPER, _TEXTBOOK, _LOAD, _LATENCY)
