"""A run of the engine: advanced by any number of steps, read at any instant."""

from dataclasses import fields
from typing import NamedTuple

import numpy as np

from pagesim.allocators import contract, kind_of
from pagesim.core.blocktables import BlockTables
from pagesim.core.ledger import CACHED, NOBODY, PARTS
from pagesim.core.units import NS_PER_S
from pagesim.engine.compiled import advance
from pagesim.engine.instant import stay_idle
from pagesim.engine.loop import end_step
from pagesim.engine.durations import LAST_NS
from pagesim.engine.result import Column, Counters, Histograms, Peaks, Requests, Result, Sharing, Timeline
from pagesim.engine.setup import Setup
from pagesim.engine.state import NO_LIMIT, make_state
from pagesim.errors import InputError


class Position(NamedTuple):
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


class Run:
    """One simulation."""

    def __init__(self, setup: Setup) -> None:
        kind, demand = kind_of(setup.allocator), setup.demand()
        self.setup, self.trace = setup, setup.trace
        self._memory = kind.module.make(setup.allocator, setup.capacity_slots, demand, setup.trace)
        self._state = make_state(setup, demand.rows, kind.module.slots_of_a_unit(setup.allocator),
                                 contract.shares(self._memory))
        self._goes_on = True

    def advance(self, max_steps: int | None = None) -> bool:
        """Perform up to ``max_steps`` steps (all, if None); returns whether the run goes on.

        The state is then that of the last step after scheduling, before its finished sequences give back their memory.

        Raises:
            InputError: the run lasts longer than its clock can count.
        """
        if self._goes_on:
            last_step = NO_LIMIT if max_steps is None else int(self._state.run.step) + max_steps
            self._goes_on = bool(advance(self._state, self._memory, last_step))
            if not self._goes_on:
                self._refuse_an_end_of_the_clock()
        return self._goes_on

    def _refuse_an_end_of_the_clock(self) -> None:
        run, until_ns = self._state.run, self._state.rules.until_ns
        if run.end_ns >= LAST_NS or (until_ns == LAST_NS and run.done < self._num_requests()):
            raise InputError("the run lasts longer than 146 years, which is where its clock of nanoseconds ends: let "
                             "steps be shorter or requests arrive sooner, or set until_s")

    def _num_requests(self) -> int:
        return len(self.trace)

    def settle(self) -> None:
        """Let the step performed last give back what it ends, instead of in the next ``advance``."""
        end_step(self._state, self._memory)

    def stand_idle(self, until_ns: int) -> None:
        """Let the run, which is over, stand idle until others beside it end too: the window ``run`` goes on.

        One that was broken off, with something running or waiting, does not.
        """
        self.settle()
        run = self._state.run
        if run.running + run.waiting > 0:
            return
        since_ns = max(int(run.end_ns), int(self._state.rules.warmup_ns))
        if until_ns > since_ns:
            stay_idle(self._state, self._memory, (until_ns - since_ns) / NS_PER_S)

    def end_ns(self) -> int:
        """End of the step that was performed last."""
        return int(self._state.run.end_ns)

    def position(self) -> Position:
        run = self._state.run
        return Position(int(run.step) + 1, int(run.done), run.end_ns / NS_PER_S)

    def instant(self) -> Instant:
        """Ledger and queues of the step performed last; there must be one."""
        run = self._state.run
        parts = self._state.sums.values[Column.TOKEN_STATES:Column.TOKEN_STATES + len(PARTS)]
        return Instant(int(run.step), run.now_ns / NS_PER_S, run.end_ns / NS_PER_S, parts.astype(np.int64),
                       int(run.running), int(run.waiting))

    def step_start_s(self) -> float:
        """Start of the step that was performed last."""
        return self._state.run.now_ns / NS_PER_S

    def running(self) -> np.ndarray:
        """Rows of the running sequences, in running order."""
        rows, row = [], int(self._state.run.first)
        while row >= 0:
            rows.append(row)
            row = int(self._state.rows.next[row])
        return np.array(rows, np.int64)

    def request_of_rows(self) -> np.ndarray:
        """Number in the trace of each row's request, int64, shape (rows,); of a row that does not run, any."""
        return self._state.rows.request.copy()

    def stored_tokens(self, rows: np.ndarray) -> np.ndarray:
        """Tokens stored by these rows at this instant, int64."""
        state = self._state
        decoding = state.ending.link.due[rows] >= 0
        return np.where(decoding, state.run.step - state.rows.shift[rows], state.rows.stored[rows])

    def units(self) -> tuple[int, int]:
        """(slots of a unit, units): blocks of a pool, or slots of an arena."""
        return int(contract.unit_slots(self._memory)), int(contract.num_units(self._memory))

    def has_holes(self) -> bool:
        """Whether it matters where free units lie; else any of them serves."""
        return contract.has_holes(self._memory)

    def tables(self) -> BlockTables:
        """Block tables of the running sequences at this instant, in running order; a region without its empty end."""
        rows = self.running()
        lengths = self.stored_tokens(rows)
        block_size, num_blocks = self.units()
        ids = [contract.ids(self._memory, row) for row in rows]
        if self.has_holes():
            ids = [each[:length] for each, length in zip(ids, lengths)]
        counts = np.array([len(x) for x in ids], np.int64)
        return BlockTables(block_ids=np.concatenate([np.zeros(0, np.int32), *ids]).astype(np.int32),
                           offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
                           lengths=lengths.astype(np.int64), block_size=block_size, num_blocks=num_blocks,
                           seq_ids=self.request_of_rows()[rows],
                           origin={"step": int(self._state.run.step), "time_s": self.step_start_s()})

    def owners(self) -> np.ndarray:
        """Request that owns each unit at this instant, int64; unlike ``tables`` all that is held.

        Of several it is the one that comes first in the trace; ``CACHED`` and ``NOBODY`` are none.
        """
        owners, requests, running = np.full(self.units()[1], NOBODY, np.int64), self.request_of_rows(), self.running()
        for row in running[np.argsort(-requests[running], kind="stable")]:
            owners[contract.ids(self._memory, row)] = requests[row]
        if self.shares():
            owners[contract.cached_units(self._memory)] = CACHED
        return owners

    def num_owners(self) -> np.ndarray:
        """Sequences that own each unit at this instant, int64, shape (units,)."""
        held = [contract.ids(self._memory, row) for row in self.running()]
        return np.bincount(np.concatenate([np.zeros(0, np.int64), *held]), minlength=self.units()[1])

    def shares(self) -> bool:
        """Whether sequences can own the same units."""
        return contract.shares(self._memory)

    def moves(self, seen: object | None) -> tuple[np.ndarray, np.ndarray, object]:
        """What changed hands since ``seen``, which is None at first: then all was free.

        Returns:
            What was given back and what was taken or shared, each int64 of shape (n, 4): first unit, number of units,
            new owner as in ``owners``, sequences that own it; and what to pass as ``seen`` next time.
        """
        if not self.shares():
            gone, came, seen = contract.moves(self._memory, seen, self._state.rows.serial.copy(),
                                              self.request_of_rows())
            return np.insert(gone, 3, 0, axis=1), np.insert(came, 3, 1, axis=1), seen
        now = np.stack([self.owners(), self.num_owners()], axis=1)
        before = np.array([[NOBODY, 0]]) if seen is None else seen
        changed = np.flatnonzero((now != before).any(axis=1))
        rows = np.stack([changed, np.ones_like(changed), *now[changed].T], axis=1)
        free = rows[:, 2] == NOBODY
        return rows[free], rows[~free], now

    def have_arrived(self, time_s: float) -> np.ndarray:
        """Whether each request has arrived by then, bool; a turn with a think time has where it has joined."""
        run, requests = self._state.run, self._state.requests
        arrived = (requests.arrival_ns >= 0) & (requests.arrival_ns / NS_PER_S <= time_s)
        if len(requests.turns):  # until then its arrival is the earliest possible
            joined = requests.turns.order[:run.joined]
            arrived &= (requests.turns.think_ns < 0) | np.isin(np.arange(len(arrived)), joined)
        return arrived

    def result(self) -> Result:
        """Sums, peaks, counters, request rows and timeline of the run so far."""
        run, total, peaks, sums = self._state.run, self._state.total, self._state.peaks, self._state.sums
        requests, fates = self._state.requests, self._state.requests.fates
        block_size, num_blocks = (None, None) if self.has_holes() else self.units()
        counters = {each.name: int(total[each.name]) for each in fields(Counters) if each.name in total.dtype.names}
        return Result(
            capacity_slots=self.setup.capacity_slots, num_blocks=num_blocks, block_size=block_size,
            end_s=run.end_ns / NS_PER_S, warmup_s=self.setup.warmup_s, integrals=sums.integrals, wait_s=sums.wait_s,
            counters=Counters(**counters, swapped_blocks=int(total.swapped_units), **contract.counters(self._memory)),
            peaks=Peaks(**{name: peaks[name].item() for name in peaks.dtype.names}),
            histograms=Histograms(waste_slots=sums.waste, **contract.histograms(self._memory)),
            requests=Requests(requests.arrival_ns, fates.first_scheduled_ns, fates.first_token_ns, fates.finish_ns,
                              fates.status, fates.preemptions),
            timeline=self._timeline(), sharing=self._sharing() if contract.shares(self._memory) else None)

    def _sharing(self) -> Sharing:
        total = self._state.total
        return Sharing(int(total.hit_tokens), int(total.readmission_hit_tokens), int(total.admitted_prompt_tokens),
                       int(total.admitted_prompt_blocks), contract.evicted_blocks(self._memory),
                       self._state.requests.hits)

    def _timeline(self) -> Timeline:
        lines = self._state.lines[:self._state.run.lines]
        means = lines.means
        return Timeline(
            stride=int(self._state.run.stride), first_step=lines.first_step, start_s=lines.start_s,
            duration_s=lines.duration_s, mean_parts=means[:, :len(PARTS)], mean_running=means[:, len(PARTS)],
            mean_waiting=means[:, len(PARTS) + 1], max_token_states=lines.token_states, max_allocated=lines.allocated,
            max_running=lines.running, max_waiting=lines.waiting, prefill_tokens=lines.prefill_tokens,
            decode_tokens=lines.decode_tokens, preemptions=lines.preemptions, admissions=lines.admissions,
            completions=lines.completions, refused_need=lines.refused_need)


def simulate(setup: Setup) -> Result:
    """Run it to its end."""
    run = Run(setup)
    run.advance()
    return run.result()
