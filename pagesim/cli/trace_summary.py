"""What ``pagesim trace inspect`` prints: a line for each thing that a trace has."""

from pagesim.trace.inspect import PrefixReuse, Sessions, Spread, Summary

_COPIES_SHOWN = 6


def reasons(dropped: dict[str, int]) -> str:
    """Rows left out, and why."""
    return ", ".join(f"{count:,} ({reason})" for reason, count in dropped.items()) or "0"


def lines(summary: Summary, accepted: dict[int, int]) -> list[tuple[str, str]]:
    """Names and what is said of them; ``accepted`` is by length the number of requests that fit it."""
    arrivals = "none: lengths only" if summary.span_s is None else f"over {summary.span_s:,.1f} s"
    if summary.rate_per_s is not None:
        arrivals += f", {summary.rate_per_s:.4g} requests/s, CV {summary.arrival_cv:.2f}"
    table = [("file", summary.path), ("format", summary.format), ("sha256", summary.sha256 or "none"),
             ("rows", f"read {summary.read:,} = kept {summary.kept:,} + dropped {reasons(summary.dropped)}"),
             ("arrivals", arrivals), ("prompt tokens", _spread(summary.prompt_tokens)),
             ("output tokens", _spread(summary.output_tokens)), ("prompt + output", _spread(summary.total_tokens))]
    if summary.with_max_tokens is not None:
        table.append(("max_tokens", f"stated by {summary.with_max_tokens:,} requests"))
    table += [(name, f"{_copies(counts)}; {summary.sequences:,} sequences of {summary.kept:,} requests")
              for name, counts in (("num_samples", summary.num_samples), ("beam_width", summary.beam_width)) if counts]
    if summary.sessions is not None:
        table += _session_lines(summary.sessions)
    table += [(f"blocks of {summary.block_size}",
               f"{summary.prompt_blocks:,} for the prompts, {summary.final_blocks:,} at the requests' ends, "
               f"{100 * summary.last_block_waste:.3f} % of their slots empty"),
              ("prefix reuse", _reuse(summary.prefix_reuse))]
    return table + [("accepted", f"{count:,} of {summary.kept:,} with prompt + output ≤ {length:,}")
                    for length, count in accepted.items()]


def _reuse(reuse: PrefixReuse | None) -> str:
    if reuse is None:
        return "n/a: no prefix ids"
    return (f"{100 * reuse.hit_share_of_prompt_tokens:.3f} % of the prompt tokens in a cache without limit: "
            f"{reuse.hits:,} hits of {reuse.requests_that_hit:,} requests among {reuse.ids:,} ids of "
            f"{reuse.block_tokens} tokens, {reuse.distinct_ids:,} distinct")


def _copies(counts: dict[int, int]) -> str:
    most = sorted(counts.items(), key=lambda pair: -pair[1])[:_COPIES_SHOWN]
    rest = len(counts) - len(most)
    return ", ".join(f"{copies:,} for {num:,}" for copies, num in most) + (f", {rest} more" if rest else "")


def _session_lines(sessions: Sessions) -> list[tuple[str, str]]:
    waits = ""
    if sessions.waiting_turns:
        waits = (f", {sessions.waiting_turns:,} of them {sessions.mean_think_s:,.2f} s after its end in the mean "
                 "(placed as early as they can come)")
    lines = [("sessions", f"{sessions.sessions:,} of {sessions.requests:,} requests; {sessions.next_turns:,} follow a "
                          f"turn{waits}"),
             ("history", f"{100 * sessions.history_share_of_prompt_tokens:.3f} % of the prompt tokens are of the turn "
                         "before and its output")]
    if sessions.shorter_than_history:
        says = (f"{sessions.shorter_than_history:,} prompts are shorter than that: they share what they have (where it "
                "is most of them, their lengths may count new tokens alone)")
        lines.append(("", says))
    return lines


def _spread(spread: Spread) -> str:
    return f"mean {spread.mean:,.1f}, min {spread.min:,}, p50 {spread.p50:,}, p99 {spread.p99:,}, max {spread.max:,}"
