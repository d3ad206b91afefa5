"""Which way a figure is better, where it has such a way."""

# By the beginning of its dotted key, the longest that fits: 1 where more is better, -1 where less is, 0 where neither.
_BETTER = {
    "throughput.": 1,
    "latency.": -1,
    "waiting_request_s.": -1,
    "mean.waiting": -1,
    "peak.waiting": -1,
    "requests.completed": 1,
    "requests.rejected": -1,
    "requests.unfinished": -1,
    "preemptions": -1,
    "recomputed_tokens": -1,
    "swapped_blocks": -1,
    "copied_tokens": -1,
    "failed_growths": -1,
    "utilization": 1,
    "internal_fragmentation": -1,
    "external_fragmentation.": -1,
    "external_fragmentation.extfrag_index": 0,
    "sharing.hit": 1,
    "sharing.saved": 1,
    "time.simulated_s": -1,
}
# What a change is usually made for, in the words of the tables.
HEADLINES = {
    "throughput.requests_per_s": "requests/s",
    "latency.ttft.p99_s": "ttft p99, s",
    "latency.tpot.p99_s": "tpot p99, s",
    "latency.e2e.p50_s": "e2e p50, s",
    "utilization_share": "token use, share",
    "sharing.hit_rate_by_tokens": "hits, of prompt tokens",
    "mean.running": "running, mean",
    "preemptions": "preemptions",
}


def is_better(figure: str, a: float | None, b: float | None) -> bool | None:
    """B is better than A; None where they are equal, one is missing, or the figure has no better side."""
    known = [start for start in _BETTER if figure.startswith(start)]
    way = _BETTER[max(known, key=len)] if known else 0
    return None if a is None or b is None or a == b or way == 0 else (b > a) == (way > 0)
