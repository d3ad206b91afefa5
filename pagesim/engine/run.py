"""A run of the engine: made from a trace and rules, advanced by any number of steps, read at any instant."""

from typing import NamedTuple

import numpy as np

from pagesim.allocators import arena, pool
from pagesim.allocators.spec import Contiguous, Paged
from pagesim.core.blocktables import BlockTables
from pagesim.core.units import ceil_div
from pagesim.engine import state as s
from pagesim.engine.compiled import advance
from pagesim.engine.result import PARTS, Column, Counters, Histograms, Peaks, Requests, Result, Timeline
from pagesim.engine.rules import Durations, Scheduling
from pagesim.errors import InputError
from pagesim.trace import Trace


class Progress(NamedTuple):
    """Where a run is: steps done, requests completed or rejected, simulated seconds."""

    steps: int
    requests_done: int
    time_s: float


class Instant(NamedTuple):
    """The ledger's instant of the step performed last; ``parts_slots`` int64 in the order of ``PARTS``."""

    step: int
    start_s: float
    end_s: float
    parts_slots: np.ndarray
    running: int
    waiting: int


class Holdings(NamedTuple):
    """What each row holds at an instant, arrays of shape (rows,); a row that does not run holds 0 units.

    ``serial`` is new with each admission, ``start`` is the address of a region (contiguous), ``table`` the live block
    tables, shape (rows, max blocks) (paged, else None).
    """

    serial: np.ndarray
    request: np.ndarray
    start: np.ndarray
    units: np.ndarray
    table: np.ndarray | None

    def nothing(self) -> "Holdings":
        """The same rows with nothing in them."""
        return self._replace(units=np.zeros_like(self.units))


class Run:
    """One simulation.

    Args:
        trace: requests with arrival times (ignored where ``closed_users`` is given).
        allocator: ``Contiguous`` or ``Paged``.
        capacity_slots: KV memory in slots; what whole blocks leave over is the ledger's remainder.
        max_model_len: a request with more prompt and output tokens is rejected.
        scheduling, durations: the rules of ``engine.rules``.
        closed_users: so many users take rows in file order, each the next when its last is done.
        until_s: no step starts at or after this time.
        warmup_s: sums, counters and peaks start at the first step at or after this time.

    Raises:
        InputError: the rules contradict each other or the trace.
    """

    def __init__(self, trace: Trace, allocator: Contiguous | Paged, capacity_slots: int, max_model_len: int,
                 scheduling: Scheduling, durations: Durations, *, closed_users: int | None = None,
                 until_s: float | None = None, warmup_s: float = 0.0) -> None:
        _check(trace, allocator, capacity_slots, max_model_len, scheduling, closed_users, until_s, warmup_s)
        self.trace, self.spec, self.capacity_slots, self.warmup_s = trace, allocator, capacity_slots, warmup_s
        rules = s.make_rules(allocator, capacity_slots, max_model_len, scheduling, durations,
                             closed=closed_users is not None, until_s=until_s, warmup_s=warmup_s)
        most_samples = 1 if trace.num_samples is None else int(trace.num_samples.max(initial=1))
        sequences = len(trace) if trace.num_samples is None else int(trace.num_samples.sum())
        rows = max(1, min(scheduling.max_num_seqs, sequences, capacity_slots // rules.unit_slots + most_samples))
        self._state = s.make_state(trace, rules, rows, closed_users)
        self._paged = isinstance(allocator, Paged)
        if self._paged:
            self._allocator = pool.make_pool(allocator, capacity_slots, rows,
                                             *_demand(trace, allocator.block_size, max_model_len))
        else:
            self._allocator = arena.make_arena(allocator, capacity_slots, max_model_len, rows)
        self._goes_on = True

    def advance(self, max_steps: int | None = None) -> bool:
        """Perform up to ``max_steps`` steps (all, if None); returns whether the run goes on.

        The state is then that of the last step after scheduling, before its finished sequences give back their memory.
        """
        if self._goes_on:
            self._goes_on = bool(advance(self._state, self._allocator, 2**62 if max_steps is None else max_steps))
        return self._goes_on

    def progress(self) -> Progress:
        n, t = self._state.n, self._state.t
        return Progress(int(n[s.STEP]) + 1, int(n[s.DONE]), float(t[s.STEP_END]))

    def instant(self) -> Instant:
        """Ledger and queues of the step performed last; there must be one."""
        state, n, t = self._state, self._state.n, self._state.t
        parts = state.sums.values[Column.TOKEN_STATES:Column.TOKEN_STATES + len(PARTS)]
        return Instant(int(n[s.STEP]), float(t[s.NOW]), float(t[s.STEP_END]), parts.astype(np.int64), int(n[s.RUNNING]),
                       int(n[s.WAITING]))

    def running(self) -> np.ndarray:
        """Rows of the running sequences, in running order."""
        rows, row = [], int(self._state.n[s.FIRST])
        while row >= 0:
            rows.append(row)
            row = int(self._state.rows.next[row])
        return np.array(rows, np.int64)

    def stored_tokens(self, rows: np.ndarray) -> np.ndarray:
        """Tokens stored by these rows at this instant, int64."""
        state = self._state
        decoding = state.ending.link.due[rows] >= 0
        return np.where(decoding, state.n[s.STEP] - state.rows.shift[rows], state.rows.stored[rows])

    def tables(self) -> BlockTables:
        """Block tables of the running sequences at this instant, in running order; regions as blocks of one slot."""
        rows = self.running()
        lengths = self.stored_tokens(rows)
        block_size, num_blocks = self.units()
        if self._paged:
            ids = [self._allocator.table[row, :self._allocator.hold.blocks[row]] for row in rows]
        else:
            ids = [np.arange(start, start + length) for start, length in zip(self._allocator.start[rows], lengths)]
        counts = np.array([len(x) for x in ids], np.int64)
        return BlockTables(block_ids=np.concatenate([np.zeros(0, np.int32), *ids]).astype(np.int32),
                           offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
                           lengths=lengths.astype(np.int64), block_size=block_size, num_blocks=num_blocks,
                           seq_ids=self._state.rows.request[rows].copy(),
                           origin={"step": int(self._state.n[s.STEP]), "time_s": float(self._state.t[s.NOW])})

    def step_start_s(self) -> float:
        """Start of the step that was performed last."""
        return float(self._state.t[s.NOW])

    def units(self) -> tuple[int, int]:
        """(slots of a unit, units): blocks of the pool, or slots of the arena."""
        if self._paged:
            return self._allocator.block_size, self._allocator.num_blocks
        return 1, self.capacity_slots

    def holdings(self) -> Holdings:
        """What each row holds at this instant; copies, but for ``table``, which the run goes on changing."""
        rows, paged = self._state.rows, self._paged
        units = self._allocator.hold.blocks if paged else self._allocator.allocated
        return Holdings(rows.serial.copy(), rows.request.copy(),
                        np.zeros_like(units) if paged else self._allocator.start.copy(), units.copy(),
                        self._allocator.table if paged else None)

    def owners(self) -> np.ndarray:
        """Request that owns each unit at this instant, -1 for none, int64; unlike ``tables`` all that is reserved."""
        owners = np.full(self.units()[1], -1, np.int64)
        rows = self.running()
        for row, request in zip(rows, self._state.rows.request[rows]):
            if self._paged:
                owners[self._allocator.table[row, :self._allocator.hold.blocks[row]]] = request
            else:
                start = self._allocator.start[row]
                owners[start:start + self._allocator.allocated[row]] = request
        return owners

    def result(self) -> Result:
        """Sums, peaks, counters, request rows and timeline of the run so far."""
        state, n, t = self._state, self._state.n, self._state.t
        paged = self._paged
        outcome = state.requests.outcome
        return Result(capacity_slots=self.capacity_slots, num_blocks=self._allocator.num_blocks if paged else None,
                      block_size=self._allocator.block_size if paged else None, end_s=float(t[s.STEP_END]),
                      warmup_s=self.warmup_s, integrals=state.sums.integrals, wait_s=state.sums.wait_s,
                      counters=Counters(steps=int(n[s.STEPS]), admissions=int(n[s.ADMISSIONS]),
                                        preemptions=int(n[s.PREEMPTIONS]), recomputed_tokens=int(n[s.RECOMPUTED]),
                                        swapped_blocks=int(n[s.SWAPPED]), swap_fallbacks=int(n[s.SWAP_FALLBACKS]),
                                        copied_tokens=int(n[s.COPIED]),
                                        failed_growths=0 if paged else int(self._allocator.count[arena.FAILED_GROWTHS]),
                                        prefill_tokens=int(n[s.PREFILL]), decode_tokens=int(n[s.DECODE]),
                                        output_tokens=int(n[s.OUTPUT])),
                      peaks=Peaks(token_states=int(n[s.PEAK_TOKEN_STATES]), allocated=int(n[s.PEAK_ALLOCATED]),
                                  running=int(n[s.PEAK_RUNNING]), waiting=int(n[s.PEAK_WAITING]),
                                  step=int(n[s.PEAK_STEP]), time_s=float(t[s.PEAK_TIME])),
                      histograms=Histograms(hole_slots_s=None if paged else self._allocator.hole_seconds,
                                            waste_slots=state.sums.waste,
                                            block_lifetime_steps=self._allocator.lifetimes if paged else None,
                                            table_run_blocks=pool.in_bins(self._allocator.runs) if paged else None),
                      requests=Requests(state.requests.arrival, outcome.first_scheduled, outcome.first_token,
                                        outcome.finish, outcome.status, outcome.preemptions),
                      timeline=self._timeline())

    def _timeline(self) -> Timeline:
        lines = slice(0, int(self._state.n[s.LINES]))
        f, counts = self._state.sums.line_f[lines], self._state.sums.line_n[lines]
        # Columns lie in the order of Timeline's fields.
        return Timeline(int(self._state.n[s.STRIDE]), counts[:, 0], *f.T[:2], f[:, 2:2 + len(PARTS)],
                        *f.T[2 + len(PARTS):], *counts.T[1:])


def simulate(*args, **options) -> Result:
    """Make a ``Run`` with the same arguments and run it to its end."""
    run = Run(*args, **options)
    run.advance()
    return run.result()


def _check(trace: Trace, allocator: Contiguous | Paged, capacity_slots: int, max_model_len: int, scheduling: Scheduling,
           closed_users: int | None, until_s: float | None, warmup_s: float) -> None:
    if max_model_len < 1:
        raise InputError(f"max_model_len must be at least 1, got {max_model_len}")
    if capacity_slots < (allocator.block_size if isinstance(allocator, Paged) else 1):
        raise InputError(
            f"KV memory of {capacity_slots} slots holds not one block: give it more memory or smaller blocks")
    if not scheduling.chunked_prefill and scheduling.max_num_batched_tokens < max_model_len:
        raise InputError(f"without chunked prefill max_num_batched_tokens ({scheduling.max_num_batched_tokens}) must "
                         f"not be below max_model_len ({max_model_len}): raise it or turn chunked_prefill on")
    if closed_users is not None and closed_users < 1:
        raise InputError(f"a closed loop needs at least 1 user, got {closed_users}")
    if closed_users is None and trace.arrival_s is None:
        raise InputError("the trace has lengths only: choose an arrival process (poisson, gamma, closed or saturate)")
    if (until_s is not None and not until_s > 0) or not 0 <= warmup_s < float("inf"):
        raise InputError(f"until_s must be above 0 and warmup_s finite and not negative, got {until_s} and {warmup_s}")
    if isinstance(allocator, Contiguous) and allocator.reserve == "max_tokens" and trace.max_tokens is not None:
        bad = np.flatnonzero((trace.max_tokens > 0) & (trace.max_tokens < trace.output_tokens))
        if len(bad):
            raise InputError(f"request {bad[0]} of the trace has max_tokens {trace.max_tokens[bad[0]]}, less than the "
                             f"{trace.output_tokens[bad[0]]} output tokens that it is said to have made")


def _demand(trace: Trace, block_size: int, max_model_len: int) -> tuple[int, int]:
    """Most tokens that one sequence stores, and blocks that all sequences together take when none is preempted."""
    final = trace.prompt_tokens.astype(np.int64) + trace.output_tokens - 1
    final = final[final < max_model_len]
    blocks = ceil_div(final, block_size)
    if trace.num_samples is not None:
        blocks = blocks * int(trace.num_samples.max(initial=1))
    return int(final.max(initial=1)), int(blocks.sum())
