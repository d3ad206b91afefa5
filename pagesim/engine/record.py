"""What a step adds to the run's sums and to its timeline."""

from pagesim.core.jit import COLD, HOT
from pagesim.engine.result import Column
from pagesim.engine.state import (
    LINES, LINES_MAX, NUM_COUNTS, NUM_MEANS, NUM_PEAKS, STEP, STEP_PREFILL, STRIDE, TOKEN_STATES)

COLUMNS = len(Column)
RUN, BUSY, QUEUED, SATURATED = range(4)  # result.WINDOWS


@HOT
def integrate(sums, window, duration):
    """Add this step's values over ``duration`` seconds to a window; ``values[0]`` is 1, so column 0 adds up time."""
    for k in range(COLUMNS):
        sums.integrals[window, k] += sums.values[k] * duration


@HOT
def add_line(n, sums, start, duration):
    """Add a step to the timeline: to the last line, or as a new one where that line has its ``STRIDE`` steps."""
    last = n[LINES] - 1
    if last < 0 or n[STEP] - sums.line_n[last, 0] >= n[STRIDE]:
        if n[LINES] == LINES_MAX:
            _halve(n, sums)
        last = n[LINES]
        n[LINES] += 1
        sums.line_f[last] = 0.0
        sums.line_n[last] = 0
        sums.line_f[last, 0] = start
        sums.line_n[last, 0] = n[STEP]
    means, counts = sums.line_f[last], sums.line_n[last]
    _merge(means, duration, sums.values[1:])
    for k in range(NUM_PEAKS):
        counts[1 + k] = max(counts[1 + k], n[TOKEN_STATES + k])
    for k in range(NUM_COUNTS):
        counts[1 + NUM_PEAKS + k] += n[STEP_PREFILL + k]


@HOT
def _merge(line, duration, values):
    """Fold values that held for ``duration`` into a line: start, duration, and means over it."""
    total = line[1] + duration
    for k in range(NUM_MEANS):
        if line[1] == 0.0:
            line[2 + k] = values[k]
        elif total > 0.0:
            line[2 + k] = (line[2 + k] * line[1] + values[k] * duration) / total
    line[1] = total


@COLD
def _halve(n, sums):
    """Merge neighbouring lines, so that the timeline never outgrows its rows; extremes survive."""
    for k in range(LINES_MAX // 2):
        a, b = 2 * k, 2 * k + 1
        for column in range(2 + NUM_MEANS):
            sums.line_f[k, column] = sums.line_f[a, column]
        _merge(sums.line_f[k], sums.line_f[b, 1], sums.line_f[b, 2:])
        sums.line_n[k, 0] = sums.line_n[a, 0]
        for column in range(1, 1 + NUM_PEAKS):
            sums.line_n[k, column] = max(sums.line_n[a, column], sums.line_n[b, column])
        for column in range(1 + NUM_PEAKS, 1 + NUM_PEAKS + NUM_COUNTS):
            sums.line_n[k, column] = sums.line_n[a, column] + sums.line_n[b, column]
    n[LINES] = LINES_MAX // 2
    n[STRIDE] *= 2
