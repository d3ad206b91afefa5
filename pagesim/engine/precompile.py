"""``python -m pagesim.engine.precompile paged``: one step of the smallest trace, so that the loop is in the cache.

Until that is done it prints, several times a second, which share of the work it has behind it.
"""

import sys
import threading
import time

import numpy as np

from pagesim.allocators import KINDS
from pagesim.engine.durations import Linear
from pagesim.engine.run import simulate
from pagesim.engine.scheduling import Scheduling
from pagesim.engine.setup import Setup
from pagesim.trace import Trace

# What compiling a loop takes of the processor's time, in starts of this process: so it is known on a slow machine too.
_STARTS = 45
_SECONDS_BETWEEN_REPORTS = 0.2


def main() -> None:
    compiled = threading.Event()
    reporter = threading.Thread(target=_report, args=(time.process_time(), compiled))
    reporter.start()
    try:
        one = np.ones(1, np.int32)
        for kind in KINDS:
            if kind.name in sys.argv[1:]:
                trace = Trace(np.zeros(1, np.int64), one, one)
                simulate(Setup(trace, kind.module.EXAMPLE, 64, 64, Scheduling(), Linear(1.0)))
    finally:
        compiled.set()
        reporter.join()


def _report(start_s: float, compiled: threading.Event) -> None:
    while not compiled.wait(_SECONDS_BETWEEN_REPORTS):
        share = (time.process_time() - start_s) / (_STARTS * start_s)
        try:
            print(f"{min(share, 0.99):.3f}", flush=True)
        except OSError:  # nobody listens any more
            return


if __name__ == "__main__":
    main()
