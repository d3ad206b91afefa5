"""What each row of a run's tables means, in a line: ``--explain``."""

from pagesim.report.figures import groups

_LATENCIES = {
    "queue": "from arrival until first admitted",
    "ttft": "time to first token: from arrival until the first token is sampled",
    "tpot": "time per output token: from first to last token, over the tokens after the first",
    "e2e": "from arrival until the last token",
}
_PERCENTILES = {"p50": "half of the completed requests took no longer", "p99": "99 of 100 took no longer"}
_WINDOW = "over which time the rows below are averaged: saturated while the next request is refused, else busy"
_MEANINGS = {
    "Replicas side by side": {
        "replicas": "servers, each with a KV cache of its own",
        "completed, most / mean": "requests of the replica that completed most, over the mean; 1 is even",
        "block use, most / mean": "the same of the memory that sequences own",
        "block use, CV": "its standard deviation over the mean; 0 is even",
        "waiting, most / mean": "the same of requests that wait",
        "free in all, % of capacity": "memory without an owner, of all replicas together",
        "… while one refuses its head": "the part of it while some replica had no room for its next request",
        "time in which one does, %": "how long that was so",
    },
    "Memory, % of capacity": {
        "token use": "slots that hold a token, while something runs",
        "block use": "slots that some sequence owns, filled or not",
        "reserved": "owned, empty now, filled before the sequence ends",
        "overreserved": "asked for and never filled",
        "rounding": "owned beyond what was asked for: a power of two of buddy",
        "stranded": "free, but the next request fits into no hole though there is enough in all",
        "idle": "free and not stranded",
        "cached": "kept by the prefix cache alone, free for the taking",
        "remainder": "slots that make no whole block",
        "internal fragm.": "of what sequences own, the share without a token",
    },
    "External fragmentation, %": {
        "time blocked by it": "share of the time with stranded memory",
        "1 - largest hole / free": "share of the free memory outside its largest hole; 0 is one hole",
        "free but unusable": "share of the free memory in which no piece of the next request's size fits",
        "extfrag_index, of 1000": "Linux's index (not %), while no hole fits: toward 1000 for want of a hole, 0 and "
                                  "below for want of memory",
    },
    "Prefix cache, %": {
        "hits, of prompt tokens": "prompt tokens that were found and not computed",
        "hits, of full blocks": "the same of blocks that a prompt fills",
        "blocks saved": "what sharing saves: 1 - blocks in memory / entries of all block tables",
        "evicted blocks": "cached blocks whose content was given up for others (a count, not %)",
    },
    "As SOSP'23 Figure 2, %": {
        "window": _WINDOW,
        "token states": "slots that hold a token",
        "reservation": "kept for tokens still to come",
        "internal": "asked for and never filled",
        "external & others": "everything else: free, stranded, rounding",
    },
    "As a textbook, %": {
        "window": _WINDOW,
        "used": "slots that hold a token",
        "internal": "owned and empty",
        "external": "free, and useless to the next request: stranded, and what makes no whole block",
        "free": "free and usable",
    },
    "Load": {
        "completed": "requests that ended",
        "running, mean": "sequences with memory, averaged over the time in which something runs",
        "running, peak": "the most at once",
        "waiting, mean": "requests without memory, over the same time",
        "waiting, peak": "the most at once",
        "waits for": "why the queue's head waits most of the time that requests wait, and the share of that",
        "preemptions": "running sequences that had to give their memory back",
        "recomputed tokens": "computed once more after a preemption",
        "swapped blocks": "moved to the host and back; slots, of an arena",
        "swap fallbacks": "preempted sequences that were computed again because the host had no room",
        "copied tokens": "moved because a region grew elsewhere",
        "failed growths": "regions that had to grow and found no hole",
        "requests/s": "completed, over the time of the run",
        "output tokens/s": "sampled, over the time of the run",
    },
    "Latency, s": {f"{name} {rank}": f"{what}; {which}" for name, what in _LATENCIES.items()
                   for rank, which in _PERCENTILES.items()},
}


def meaning(group: str, figure: str) -> str:
    """One line on a figure by its name and its group's."""
    return _MEANINGS[group][figure]


def explanation(document: dict) -> list[str]:
    """A line for each figure that the document's tables show, under the titles of their groups."""
    return [line for group in groups(document["cases"])
            for line in (group.title, *(f"  {each.name}: {meaning(group.title, each.name)}" for each in group.figures))]
