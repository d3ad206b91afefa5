"""``python -m pagesim.engine.precompile Paged``: one step of the smallest trace, so that the loop is in the cache."""

import sys

import numpy as np

from pagesim.allocators.spec import Contiguous, Paged
from pagesim.engine.rules import Linear, Scheduling
from pagesim.engine.run import Run
from pagesim.trace import Trace


def main() -> None:
    one = np.ones(1, np.int32)
    kind = {"Contiguous": Contiguous, "Paged": Paged}[sys.argv[1]]
    Run(Trace(np.zeros(1, np.int64), one, one), kind(), 64, 64, Scheduling(), Linear(1.0)).advance()


if __name__ == "__main__":
    main()
