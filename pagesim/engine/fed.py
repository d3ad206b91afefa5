"""A run that is given its requests one by one, by somebody who looks at its memory before each."""

from typing import Self

import numpy as np

from pagesim.allocators.ask import Ask
from pagesim.allocators.contract import doubled_slots
from pagesim.core.ledger import HELD
from pagesim.engine.compiled import prepared_lookup, prepared_loop
from pagesim.engine.durations import LAST_NS
from pagesim.engine.queue import verdict
from pagesim.engine.result import Column, Status
from pagesim.engine.run import Run
from pagesim.engine.setup import Setup
from pagesim.engine.state import NO_LIMIT, State

NEVER = LAST_NS
_HELD = slice(Column.TOKEN_STATES, Column.TOKEN_STATES + len(HELD))


class _Cells:
    """Numbers of a state as arrays of one: records give them twenty times more slowly, and they are read every step."""

    def __init__(self, state: State) -> None:
        for record, names in ((state.run, ("now_ns", "end_ns", "warm", "running", "waiting")),
                              (state.rules, ("until_ns",)), (state.total, ("steps",)), (state.levels, ("allocated",))):
            for name in names:
                setattr(self, name, record.base.view(np.ndarray)[name])
        self.held = state.sums.base.view(np.ndarray)["values"][:, _HELD]  # by the step performed last


class FedRun(Run):
    """One of several that share the requests of a trace, numbered as there; each request is given to one of them.

    Attributes:
        next_ns: when the next step starts; ``NEVER`` where none does unless a request comes.
        held_slots, held_until_ns: what the step performed last holds, and until when.
        held_then_slots: what is held from then on until the next step.
    """

    def __init__(self, setup: Setup, beside: "FedRun | None" = None) -> None:
        super().__init__(setup)
        requests = self._state.requests._replace(arrival_ns=setup.trace.arrival_ns.copy())
        if beside is not None:
            requests = beside._state.requests
        order = np.zeros(len(setup.trace), np.int64)
        self._state = self._state._replace(requests=requests._replace(order=order, turns=requests.turns[:0]))
        self._state.run.available = 0
        self._until_ns = int(self._state.rules.until_ns)
        self._loop, self._lookup, self._cells = prepared_loop(self._state, self._memory), None, _Cells(self._state)
        self._finish_ns, self._given_ns = requests.fates.view(np.ndarray)["finish_ns"], []
        self.next_ns, self.held_slots, self.held_until_ns, self.held_then_slots = NEVER, 0, 0, 0

    def give(self, request: int, time_ns: int, *, is_its_arrival: bool) -> None:
        """The request joins the queue from now on, and no earlier than all that happened in this run before."""
        if time_ns >= self._until_ns:
            return
        run, requests = self._state.run, self._state.requests
        if is_its_arrival:
            requests.arrival_ns[request] = time_ns
        requests.order[run.available] = request
        run.available += 1
        self._given_ns.append(time_ns)
        if self.next_ns == NEVER:
            self.next_ns = max(int(run.now_ns), time_ns)
            run.now_ns = self.next_ns

    def advance_to(self, time_ns: int) -> None:
        """Perform the steps that start before then; the one performed last ends then or later."""
        at = self._cells
        was_warm = at.warm[0]
        at.until_ns[0] = min(time_ns, self._until_ns)
        self._loop(self._state, self._memory, NO_LIMIT)
        at.until_ns[0] = self._until_ns
        if not was_warm and at.steps[0] == 0:
            at.warm[0] = 0  # the loop took this for the run's end
        now_ns = int(at.now_ns[0])
        self.held_slots = sum(at.held[0].tolist())
        self.held_until_ns = int(at.end_ns[0])
        self.held_then_slots = int(at.allocated[0]) - doubled_slots(self._memory)
        goes_on = at.running[0] + at.waiting[0] > 0 and now_ns < self._until_ns
        self.next_ns = now_ns if goes_on else NEVER

    def found_tokens(self, request: int) -> int:
        """Tokens of its prompt that the memory, which shares, has cached at this instant."""
        prompt, output = int(self.trace.prompt_tokens[request]), int(self.trace.output_tokens[request])
        ask = Ask(request, prompt, output, 0, prompt, 0, 0, 1, NO_LIMIT)
        if self._lookup is None:
            self._lookup = prepared_lookup(self._memory, ask)
        return self._lookup(self._memory, ask)

    def rejects(self, request: int) -> bool:
        """Whether it can never run, which shows when it joins the queue."""
        return verdict(self._state, self._memory, request) != Status.UNFINISHED

    def finish_ns(self, request: int) -> int:
        """When it ended, -1 where it has not."""
        return int(self._finish_ns[request])

    def again(self) -> Self:
        """A run that has been given the same requests at the same times, before its first step."""
        anew = type(self)(self.setup)
        run, requests = anew._state.run, anew._state.requests
        run.available = len(self._given_ns)
        requests.order[:run.available] = self._state.requests.order[:run.available]
        requests.arrival_ns[requests.order[:run.available]] = self._given_ns
        return anew

    def _num_requests(self) -> int:
        return int(self._state.run.available)
