"""The JSON of a run: what was read, how much memory there was, and one entry of figures a case."""


import numpy as np

from pagesim.case import Case
from pagesim.engine.result import Result
from pagesim.errors import PagesimError
from pagesim.fleet.figures import fleet_metrics
from pagesim.fleet.service import Service
from pagesim.metrics import metrics
from pagesim.report.folder import SCHEMA_VERSION
from pagesim.trace.sessions import num_shorter_than_history
from pagesim.trace.trace import Trace


def document(entries: list[dict], failed: list[dict]) -> dict:
    """The whole JSON object.  ``trace`` and ``capacity`` hold what all cases share; each case has its own too."""
    return {
        "schema_version": SCHEMA_VERSION,
        "trace": common([entry["trace"] for entry in entries]),
        "capacity": common([entry["capacity"] for entry in entries]),
        "cases": entries,
        "failed": failed,
    }


def case_entry(case: Case, trace: Trace, result: Result) -> dict:
    return {
        "name": case.name,
        "trace": trace_facts(trace),
        "capacity": capacity_facts(case),
        **metrics(result, trace, case.allocator),
    }


def fleet_entry(case: Case, trace: Trace, served: Service) -> dict:
    return {
        "name": case.name,
        "trace": trace_facts(trace),
        "capacity": capacity_facts(case),
        **fleet_metrics(served, trace, case.allocator, case.replicas),
    }


def common(facts: list[dict]) -> dict:
    """Key by key the value that the cases agree on, leaving aside those that have none; None where they differ."""
    shared = {}
    for key in dict.fromkeys(key for each in facts for key in each):
        values = [each[key] for each in facts if each.get(key) is not None]
        shared[key] = values[0] if values and all(value == values[0] for value in values) else None
    return shared


def trace_facts(trace: Trace) -> dict:
    """What was read and kept.

    Raises:
        PagesimError: rows were lost: ``read != dropped + kept``.
    """
    source, kept = trace.source, len(trace)
    dropped = sum(source.dropped.values())
    read = source.read or kept  # a trace made in memory was never read
    if read != dropped + kept:
        raise PagesimError(f"{source.path}: rows were lost: {read:,} read, but {dropped:,} dropped + {kept:,} kept; "
                           "this is a bug in pagesim, please report it with the trace's first lines")
    tokens = np.add(trace.prompt_tokens, trace.output_tokens, dtype=np.int64)
    return {
        "format": source.format,
        "read": read,
        "dropped": dropped,
        "requests": kept,
        "sha256": source.sha256,
        "dropped_by_reason": dict(source.dropped),
        "sequences": kept if trace.num_samples is None else int(trace.num_samples.sum(dtype=np.int64)),
        "smallest_tokens": int(tokens.min()) if kept else None,
        "largest_tokens": int(tokens.max()) if kept else None,
        "prefix_ids": None if trace.prefix_ids is None else len(trace.prefix_ids),
        "hash_block_tokens": source.hash_block_tokens,
        "turns": None if trace.session_parent is None else int(np.count_nonzero(trace.session_parent >= 0)),
        "beams": None if trace.beam_width is None else int(trace.beam_width.sum(dtype=np.int64)),
        **({} if trace.session_parent is None else {"shorter_than_history": num_shorter_than_history(trace)}),
    }


def capacity_facts(case: Case) -> dict:
    """Memory in slots, bytes and blocks; ``max_concurrency`` = usable slots / max_model_len, as vLLM prints it."""
    capacity = case.capacity
    return {
        "slots": capacity.slots,
        "usable_slots": capacity.usable_slots,
        "bytes": capacity.bytes,
        "kv_bytes_per_token": capacity.kv_bytes_per_token,
        "blocks": capacity.blocks,
        "block_size": capacity.block_size,
        "max_model_len": case.max_model_len,
        "max_concurrency": capacity.usable_slots / case.max_model_len,
    }
