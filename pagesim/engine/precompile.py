"""``python -m pagesim.engine.precompile paged``: one step of the smallest trace, so that the loop is in the cache."""

import sys

import numpy as np

from pagesim.allocators import KINDS
from pagesim.engine.durations import Linear
from pagesim.engine.run import simulate
from pagesim.engine.scheduling import Scheduling
from pagesim.engine.setup import Setup
from pagesim.trace import Trace


def main() -> None:
    one = np.ones(1, np.int32)
    for kind in KINDS:
        if kind.name in sys.argv[1:]:
            trace = Trace(np.zeros(1, np.int64), one, one)
            simulate(Setup(trace, kind.module.EXAMPLE, 64, 64, Scheduling(), Linear(1.0)))


if __name__ == "__main__":
    main()
