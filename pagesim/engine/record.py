"""What a step adds to the run's sums, peaks and timeline."""

from pagesim.allocators.contract import has_holes, shares
from pagesim.core.jit import COLD, HOT
from pagesim.core.units import NS_PER_S
from pagesim.engine.result import Column
from pagesim.engine.state import LINES_MAX, MEANS

NUM_MEANS = MEANS.stop - MEANS.start
FIRST_MEAN = int(MEANS.start)
FIRST_LOGICAL, FIRST_OF_HOLES, NUM_COLUMNS = int(Column.LOGICAL_BLOCKS), int(Column.LARGEST_HOLE), len(Column)


@HOT
def integrate(memory, sums, window, seconds):
    """Add this step's values over ``seconds`` to a window; ``values[0]`` is 1, so column 0 adds up time."""
    for k in range(_columns(memory)):
        sums.integrals[window, k] += sums.values[k] * seconds


@HOT
def _columns(memory):
    """Columns that this kind of memory fills; a constant."""
    if has_holes(memory):
        return NUM_COLUMNS
    return FIRST_OF_HOLES if shares(memory) else FIRST_LOGICAL


@HOT
def clear_work(work):
    work.prefill_tokens = work.decode_tokens = work.sequences = work.context_tokens = work.moved_slots = 0
    work.copied_tokens = work.preemptions = work.admissions = work.completions = work.output_tokens = 0
    work.recomputed_tokens = work.swapped_units = work.swap_fallbacks = work.steps = 0


@COLD
def clear_total(total):
    clear_work(total)
    total.hit_tokens = total.readmission_hit_tokens = 0
    total.admitted_prompt_tokens = total.admitted_prompt_blocks = 0


@HOT
def add_work(total, work):
    total.prefill_tokens += work.prefill_tokens
    total.decode_tokens += work.decode_tokens
    total.copied_tokens += work.copied_tokens
    total.preemptions += work.preemptions
    total.admissions += work.admissions
    total.completions += work.completions
    total.output_tokens += work.output_tokens
    total.recomputed_tokens += work.recomputed_tokens
    total.swapped_units += work.swapped_units
    total.swap_fallbacks += work.swap_fallbacks
    total.steps += work.steps


@HOT
def raise_peaks(state, token_states, allocated):
    """The peak is the first step with the most token states."""
    run, peaks = state.run, state.peaks
    if token_states > peaks.token_states or peaks.step < 0:
        peaks.step, peaks.time_s = run.step, run.now_ns / NS_PER_S
    peaks.token_states = max(peaks.token_states, token_states)
    peaks.allocated = max(peaks.allocated, allocated)
    peaks.running = max(peaks.running, run.running)
    peaks.waiting = max(peaks.waiting, run.waiting)


@COLD
def clear_peaks(peaks):
    peaks.token_states = peaks.allocated = peaks.running = peaks.waiting = 0
    peaks.step, peaks.time_s = -1, 0.0


@HOT
def add_line(state, seconds, token_states, allocated):
    """Add a step to the timeline: to the last line, or as a new one where that line has its ``stride`` steps."""
    run, work, lines = state.run, state.work, state.lines
    if run.lines == 0 or run.step - lines[run.lines - 1].first_step >= run.stride:
        if run.lines == LINES_MAX:
            _halve(run, lines)
        new = lines[run.lines]
        new.first_step, new.start_s, new.duration_s = run.step, run.now_ns / NS_PER_S, 0.0
        new.token_states = new.allocated = new.running = new.waiting = 0
        new.prefill_tokens = new.decode_tokens = new.preemptions = new.admissions = new.completions = 0
        new.refused_need = 0
        run.lines += 1
    line = lines[run.lines - 1]
    _merge_means(line, seconds, state.sums.values[FIRST_MEAN:])
    _merge_counts(line, token_states, allocated, run, work)
    _merge_need(line, state.head.need if state.head.refused > 0 else 0)


@HOT
def _merge_means(line, seconds, values):
    """Fold values that held for ``seconds`` into a line: duration, and means over it."""
    before = line.duration_s
    total = before + seconds
    for k in range(NUM_MEANS):
        if before == 0.0:
            line.means[k] = values[k]
        elif total > 0.0:
            line.means[k] = (line.means[k] * before + values[k] * seconds) / total
    line.duration_s = total


@HOT
def _merge_counts(line, token_states, allocated, queues, counts):
    line.token_states = max(line.token_states, token_states)
    line.allocated = max(line.allocated, allocated)
    line.running = max(line.running, queues.running)
    line.waiting = max(line.waiting, queues.waiting)
    line.prefill_tokens += counts.prefill_tokens
    line.decode_tokens += counts.decode_tokens
    line.preemptions += counts.preemptions
    line.admissions += counts.admissions
    line.completions += counts.completions


@HOT
def _merge_need(line, need):
    if need > 0 and (need < line.refused_need or line.refused_need == 0):
        line.refused_need = need


@COLD
def _halve(run, lines):
    """Merge neighbouring lines, so that the timeline never outgrows its rows; extremes survive."""
    for k in range(LINES_MAX // 2):
        line, b = lines[k], lines[2 * k + 1]
        lines[k] = lines[2 * k]
        _merge_means(line, b.duration_s, b.means)
        _merge_counts(line, b.token_states, b.allocated, b, b)
        _merge_need(line, b.refused_need)
    run.lines = LINES_MAX // 2
    run.stride *= 2
