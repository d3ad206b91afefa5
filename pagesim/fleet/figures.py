"""The figures of a fleet: those of a run over all requests, and how unlike its replicas are."""

import math

from pagesim.allocators import Spec
from pagesim.case import Replicas
from pagesim.engine.result import Result, Window
from pagesim.fleet.service import Service
from pagesim.fleet.together import figures, together
from pagesim.metrics import allocated, means, metrics, ratio, sharing
from pagesim.trace.trace import Trace

# Of what each replica has, the figures whose spread is told.
SPREAD = ("requests", "completed", "block_use", "running", "waiting")


def fleet_metrics(served: Service, trace: Trace, allocator: Spec, replicas: Replicas) -> dict:
    """What ``metrics`` says of one run, of all replicas together, and ``fleet``.

    A share is a ratio of sums over the replicas, each over its own windows; a mean number of sequences, the length of a
    window and a peak are a replica's (the mean one's; the largest); counts and rates are the fleet's.
    """
    lengths = [Trace(None, trace.prompt_tokens[own], trace.output_tokens[own]) for own in served.rows]
    each = [metrics(result, own, allocator) for result, own in zip(served.results, lengths)]
    return {**metrics(served.result, trace, allocator),
            "throughput": {key: _sum([one["throughput"][key] for one in each]) for key in each[0]["throughput"]},
            "fleet": fleet(served.results, each, replicas)}


def _sum(values: list[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return math.fsum(there) if there else None


def fleet(results: list[Result], each: list[dict], replicas: Replicas) -> dict:
    """``together`` is the fleet as one memory in parts.  ``imbalance`` compares the replicas over the whole run, in
    which those that end early stand idle.
    """
    of_replicas = [_replica(result, figures) for result, figures in zip(results, each)]
    return {
        "replicas": replicas.count,
        "routing": replicas.routing,
        "together": figures(together(results), replicas.count, results[0].capacity_slots),
        "imbalance": {name: spread([one[name] for one in of_replicas]) for name in SPREAD},
        "of_replicas": of_replicas,
    }


def _replica(result: Result, figures: dict) -> dict:
    run = result.integrals[Window.RUN]
    found = sharing(result)
    return {
        "requests": len(result.requests.status),
        "completed": figures["requests"]["completed"],
        "block_use": ratio(allocated(run), run[0] * result.capacity_slots),
        **means(run),
        "preemptions": figures["preemptions"],
        "ttft_p99": figures["latency"]["ttft"]["p99"],
        "e2e_p99": figures["latency"]["e2e"]["p99"],
        "hit_rate_by_tokens": None if found is None else found["hit_rate_by_tokens"],
    }


def spread(values: list[float | None]) -> dict[str, float | None]:
    """Least, mean and most over the replicas; the most over the mean (1 is even, their number is all on one); and the
    coefficient of variation, with the population deviation.
    """
    if any(value is None for value in values):
        return dict.fromkeys(("min", "mean", "max", "max_over_mean", "cv"))
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    return {"min": min(values), "mean": mean, "max": max(values), "max_over_mean": ratio(max(values), mean),
            "cv": ratio(deviation, mean)}
