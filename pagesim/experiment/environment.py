"""On what a run was made: enough to make it again, and to say why a time differs."""

import os
import platform
import sys
from importlib.metadata import version

from pagesim import __version__
from pagesim.case import Experiment



def environment(experiment: Experiment, document: dict, wall_s: float) -> dict:
    """Versions, machine, seeds, the trace's sha256, and the time taken, on which metrics.json must not depend."""
    cases = experiment.cases
    return {
        "command": sys.argv,
        "versions": {
            "python": platform.python_version(),
            "pagesim": __version__,
            **{name: version(name) for name in ("numpy", "numba")},
        },
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "simulated_gpus": sorted({case.gpu for case in cases if case.gpu}),
        "seeds": sorted({case.trace.seed for case in cases}),
        "traces": {
            str(case.trace.path): entry["trace"]["sha256"]
            for entry in document["cases"]
            for case in cases
            if case.name == entry["name"]
        },
        "wall_s": round(wall_s, 3),
    }


def _cpu() -> str:
    """The processor's name; Linux tells it in a file, other systems by the standard library."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor()
