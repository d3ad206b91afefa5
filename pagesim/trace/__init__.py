"""Floor 1: traces of request lengths — read, drawn, described and written."""

from pagesim.trace.read import read_trace
from pagesim.trace.trace import Source, Trace

__all__ = ["Source", "Trace", "read_trace"]
