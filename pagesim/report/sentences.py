"""What a case came to, in one plain sentence that stands above the tables."""

from pagesim.report.figures import number

# What became of memory that held no token, by the part of the ledger.
_PARTS = {
    "reserved": "was kept for tokens still to come",
    "overreserved": "was asked for and never filled",
    "rounding": "was lost to rounding up",
    "cached": "was kept by the prefix cache alone",
    "stranded": "lay in holes too small for the next request",
    "idle": "was free",
    "remainder": "was no whole block",
}
_CAUSES = {
    "memory": "for memory",
    "fragmentation": "for a hole large enough",
    "max_num_seqs": "for max_num_seqs",
    "budget": "for max_num_batched_tokens",
    "preemption": "for preemptions to be over",
}
_MOST_CASES = 10      # more are a sweep, whose tables say it better
_WORTH_A_WORD = 0.005
_SHOWN_PARTS = 2


def summary_lines(document: dict) -> list[str]:
    """A sentence for each case in which something ran: how many at once, where the memory went, what it cost."""
    cases = [case for case in document["cases"] if case["ledger"]["busy"] is not None]
    return [f"{case['name']}: {_running(case)}; {_memory(case)}; {_waiting(case)}{_preempted(case)}."
            for case in cases] if len(cases) <= _MOST_CASES else []


def _running(case: dict) -> str:
    where = " on each replica" if "fleet" in case else ""
    return f"{number(case['mean']['running'])} requests at once{where} ({case['peak']['running']:,} at most)"


def _memory(case: dict) -> str:
    parts = case["ledger"]["busy"]
    rest = sorted((part for part in _PARTS if parts[part] >= _WORTH_A_WORD), key=lambda part: -parts[part])
    told = " and ".join(f"{_percent(parts[part])} {_PARTS[part]}" for part in rest[:_SHOWN_PARTS])
    return f"tokens filled {_percent(case['utilization'])} of the memory" + (f", {told}" if told else "")


def _waiting(case: dict) -> str:
    mean_s, causes = case["latency"]["queue"]["mean"], case["waiting_request_s"]
    if mean_s is None:
        return "no request completed"
    if not any(causes.values()):
        return "none waited"
    return f"a request waited {number(mean_s)} s on average, mostly {_CAUSES[max(causes, key=causes.__getitem__)]}"


def _preempted(case: dict) -> str:
    if not case["preemptions"]:
        return ""
    again = f", {case['recomputed_tokens']:,} tokens computed again" if case["recomputed_tokens"] else ""
    return f"; {case['preemptions']:,} preempted{again}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
