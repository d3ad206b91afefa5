"""The sentences around a run's tables: how much memory there is, what became of the rows, what to beware of."""

from pagesim.case import Case
from pagesim.core.units import format_bytes

_REASONS = {
    "exceeds_max_model_len": "prompt + output exceeds max_model_len",
    "exceeds_memory": "does not fit the empty KV memory",
    "exceeds_scheduling": "exceeds max_num_seqs or max_num_batched_tokens",
}


# traces/: 0.9 of an RTX 4090's total less Llama-3.1-8B's weights has room for 3,178 blocks of 16; vLLM 0.19 made 2,588.
NOT_COUNTED = ("activations, CUDA graphs and CUDA itself are not counted (1.2 GiB of vLLM 0.19 with Llama-3.1-8B on an "
               "RTX 4090); --set memory.other=SIZE takes them off")


def memory_notes(cases: tuple[Case, ...]) -> list[str]:
    """What is not counted where KV memory is what a GPU leaves."""
    memories = [case.resolved["memory"] for case in cases]
    bound = any({"gpu", "gpu_memory"} & memory.keys() and not memory["other"] for memory in memories)
    return [f"note: KV memory is an upper bound: {NOT_COUNTED}"] if bound else []


def capacity_lines(cases: tuple[Case, ...]) -> list[str]:
    """KV cache size in tokens, GiB and blocks, and the full-length requests it holds; a line for each size."""
    pools: dict[tuple[int, int], list[Case]] = {}
    for case in cases:
        pools.setdefault((case.capacity.slots, case.max_model_len), []).append(case)
    return [_capacity_line(of_one_size, max_model_len) for (_, max_model_len), of_one_size in pools.items()]


def _capacity_line(cases: list[Case], max_model_len: int) -> str:
    usable = max(case.capacity.usable_slots for case in cases)
    num_bytes = next((case.capacity.bytes for case in cases if case.capacity.bytes is not None), None)
    blocks = dict.fromkeys(f"{case.capacity.blocks:,} blocks of {case.capacity.block_size}" for case in cases
                           if case.capacity.blocks)
    hundredths = usable * 100 // max_model_len   # rounded down: 1.00x is a whole request
    size = [f"{usable:,} tokens", *([format_bytes(num_bytes)] if num_bytes else []), " or ".join(blocks)]
    return (f"KV cache: {', '.join(filter(None, size))}; maximum concurrency at {max_model_len:,} tokens per request: "
            f"{hundredths // 100}.{hundredths % 100:02}x")


def replica_lines(cases: tuple[Case, ...]) -> list[str]:
    """How many have that memory, each for itself."""
    counts = sorted({case.replicas.count for case in cases})
    return [] if counts == [1] else [f"replicas: {' or '.join(map(str, counts))}, each with a KV cache of its own"]


def size_warnings(cases: tuple[Case, ...]) -> list[str]:
    """A pool that cannot hold one request of full length: such requests are rejected, however empty it is."""
    return list(dict.fromkeys("warning: not even one full-length request fits: max_model_len is "
                              f"{case.max_model_len:,} tokens, the KV cache holds {case.capacity.usable_slots:,}; give "
                              "it more memory or lower max_model_len"
                              for case in cases if case.capacity.usable_slots < case.max_model_len))


def count_lines(document: dict) -> list[str]:
    """What became of the rows of the trace; one line for all cases with the same counts."""
    lines: dict[str, list[str]] = {}
    for case in document["cases"]:
        trace = case["trace"]
        dropped = _listed({reason: count for reason, count in trace["dropped_by_reason"].items() if count})
        rows = (f"trace: {trace['format']}, {trace['read']:,} rows read = {trace['dropped']:,} dropped{dropped} + "
                f"{trace['requests']:,} kept")
        counts = case["requests"]
        rejected = _listed({_REASONS[reason]: count for reason, count in counts["rejected_by_reason"].items() if count})
        outcome = (f"{counts['completed']:,} completed + {counts['rejected']:,} rejected{rejected} + "
                   f"{counts['unfinished']:,} unfinished")
        lines.setdefault(f"{rows} = {outcome}", []).append(case["name"])
    if len(lines) == 1:
        return list(lines)
    return [f"{', '.join(names)}: {line}" for line, names in lines.items()]


def _listed(counts: dict[str, int]) -> str:
    if len(counts) == 1:
        return f" ({next(iter(counts))})"
    return f" ({'; '.join(f'{count:,} {reason}' for reason, count in counts.items())})" if counts else ""


def result_warnings(document: dict) -> list[str]:
    """Failed cases, cases in which nothing completed, and what of the trace was not simulated."""
    lines = failures(document)
    lines += [f"warning: {case['name']}: nothing was counted, no step starts after trace.warmup_s; lower it"
              for case in document["cases"] if case["requests"]["completed"] and case["ledger"]["run"] is None]
    traces = [case["trace"] for case in document["cases"]]
    if any(trace["sequences"] > trace["requests"] for trace in traces):
        lines.append("note: parallel samples (num_samples) are independent sequences here, admitted all or none: no "
                     "block is shared")
    without = [case["name"] for case in document["cases"] if case["trace"]["prefix_ids"] and case["sharing"] is None]
    if without:
        whose = "" if len(without) == len(traces) else f"{', '.join(without)}: "
        lines.append(f"note: {whose}the trace's prefix ids are not used: every prompt is computed and stored whole, no "
                     "block is shared; prefix_cache: vllm or radix of a paged allocator shares them")
    if shorter := max((trace.get("shorter_than_history", 0) for trace in traces), default=0):
        lines.append(f"note: turns of conversations shorter than the turn before and its output: {shorter:,}; they "
                     "begin with as much of it as they have tokens")
    lines += fleet_notes(document)
    if any(trace["beams"] for trace in traces):
        lines.append("note: beam_width is not simulated yet: one sequence stands for all beams of a request")
    return lines


def fleet_notes(document: dict) -> list[str]:
    """What a reader of a fleet's figures must know."""
    if not any("fleet" in case for case in document["cases"]):
        return []
    return ["note: of replicas, shares are over all of them, means, peaks and times of windows are of one; counts and "
            "rates are the fleet's. timeline.csv and events.json are the first replica's. A router is simulated that "
            "takes no time; nothing moves from one replica to another"]


def failures(document: dict) -> list[str]:
    """Failed cases, and cases in which nothing completed: why a run exits with 1."""
    return [*(f"error: {each['name']}: {each['error']}" for each in document["failed"]),
            *(_nothing_completed(case) for case in document["cases"] if case["requests"]["completed"] == 0)]


def _nothing_completed(case: dict) -> str:
    trace, counts = case["trace"], case["requests"]
    line = f"warning: {case['name']}: nothing completed"
    if trace["requests"] == 0:
        return f"{line}: the trace has no request left after {trace['dropped']:,} were dropped"
    if counts["rejected"] < trace["requests"]:
        return f"{line}: {counts['unfinished']:,} unfinished when the run ended; raise trace.until_s"
    whose = "its only request was" if trace["requests"] == 1 else f"all {trace['requests']:,} requests were"
    why = "; ".join(_ways_out(case)[reason] for reason, count in counts["rejected_by_reason"].items() if count)
    return f"{line}: {whose} rejected; {why}"


def _ways_out(case: dict) -> dict[str, str]:
    """For each reason of a rejection the numbers that stand against each other."""
    trace, capacity = case["trace"], case["capacity"]
    least, most = trace["smallest_tokens"], trace["largest_tokens"]
    lengths = f"prompt + output is {least:,} tokens" + (
        "" if least == most else f" in the smallest and {most:,} in the largest")
    samples = ("" if trace["sequences"] == trace["requests"] else
               f", and the {trace['sequences']:,} samples of {trace['requests']:,} requests count each")
    return {
        "exceeds_max_model_len": f"{lengths}, max_model_len is {capacity['max_model_len']:,}",
        "exceeds_memory": f"{lengths}{samples}, the KV cache holds {capacity['usable_slots']:,}",
        "exceeds_scheduling": "a request's samples must be at most scheduling.max_num_seqs, and its prompt at most "
                              "scheduling.max_num_batched_tokens; raise what is too small",
    }
