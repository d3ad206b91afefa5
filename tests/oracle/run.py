"""A run from the first arrival to the last step, by the numbered phases of the specification."""

import math

import numpy as np

from pagesim.allocators import Contiguous
from pagesim.engine.durations import Linear
from pagesim.errors import InputError

from .arena import Arena
from .arrivals import Closed, Joining, Timed
from .beams import Sharing, parent_of
from .ledger import Instant, chunks_of
from .pool import Pool
from .radix_pool import RadixPool
from .record import Step, Sums
from .sequence import Sequence
from .tokens import output_name, prompt_names


def duration_s(durations, prefill: int, decode: int, num_sequences: int, context: int) -> float:
    if isinstance(durations, Linear):
        return (durations.step_s + durations.prefill_token_s * prefill + durations.sequence_s * num_sequences
                + durations.context_token_s * context)
    tokens = prefill + decode
    memory = ((durations.weight_bytes + durations.kv_bytes_per_token * (context + tokens))
              / (0.8 * durations.bandwidth_bytes_per_s))
    compute = ((durations.flops_per_token * tokens + durations.flops_per_context_token * context)
               / (0.6 * durations.peak_flops_per_s))
    return durations.overhead_s + max(memory, compute)


NO_FORKS = Sharing()


class OracleRun:
    """Of the same setup as the engine's ``Run``; the whole run is made here.

    Afterwards ``steps`` has a row for each step, ``sums`` what a result sums up, and the lists ``arrival_ns``,
    ``first_scheduled_ns``, ``first_token_ns``, ``finish_ns`` (-1 for none), ``status``, ``preemptions`` and
    ``hit_tokens`` (of the first admission) an entry for each request.
    """

    def __init__(self, setup, sharing: Sharing = NO_FORKS) -> None:
        self.sharing, self.trace = sharing, setup.trace
        parents, think_ns = (getattr(setup.trace, name, None) for name in ("session_parent", "think_ns"))
        trace, scheduling, closed_users = setup.trace, setup.scheduling, setup.closed_users
        self.scheduling, self.durations, self.max_model_len = scheduling, setup.durations, setup.max_model_len
        self.until_ns = math.inf if setup.until_s is None else round(setup.until_s * 1e9)
        self.warmup_ns = round(setup.warmup_s * 1e9)
        self.memory = make_memory(setup.allocator, setup.capacity_slots, setup.max_model_len)
        self.empty_memory = make_memory(setup.allocator, setup.capacity_slots, setup.max_model_len)
        self.requests = [self.make_sequences(trace, i) for i in range(len(trace))]
        if isinstance(self.memory, RadixPool) and any(len(one) > 1 for one in self.requests):
            raise InputError("prefix_cache radix does not share between samples")
        self.arrivals = Timed(trace.arrival_ns) if closed_users is None else Closed(len(trace), closed_users)
        self.joining = Joining(self.arrivals, [cell(parents, row, -1) for row in range(len(trace))],
                               [cell(think_ns, row, -1) for row in range(len(trace))])
        self.status = ["unfinished"] * len(trace)
        self.first_scheduled_ns, self.first_token_ns, self.finish_ns = ([-1] * len(trace) for _ in range(3))
        self.preemptions, self.hit_tokens = [0] * len(trace), [0] * len(trace)
        self.unfinished_samples = [len(sequences) for sequences in self.requests]
        host = scheduling.swap_slots
        self.host_free = math.inf if host is None else host // self.memory.block_size
        self.running, self.queue = [], []      # sequences in order of latest admission; lists of sequences admitted together
        self.now_ns, self.end_ns, self.warm = 0, 0, self.warmup_ns == 0
        self.steps, self.sums = [], Sums()
        while self.advance():
            pass
        if not self.warm:
            self.sums = Sums()     # no step after the warm-up: nothing is counted
        self.arrival_ns = [-1 if time_ns is None else time_ns for time_ns in self.arrivals.arrival_ns]

    # Between steps.

    def advance(self) -> bool:
        """One step, with what arrives before it.  False when the run is over."""
        num_rejected = self.arrive()
        while not self.running and not self.queue:      # no step follows those that were rejected: the clock jumps
            self.arrivals.request_left(num_rejected, self.now_ns)
            next_ns = self.joining.next_ns()
            if next_ns is None or next_ns >= self.until_ns:
                return False
            self.now_ns = max(self.now_ns, next_ns)
            num_rejected = self.arrive()
        if self.now_ns >= self.until_ns:
            return False
        if self.warm and self.now_ns > self.end_ns:
            gap = Instant.of(self.memory, [], [], self.scheduling, self.max_model_len)
            self.sums.time_passes(gap, (self.now_ns - self.end_ns) / 1e9, 0, 0)
        if not self.warm and self.now_ns >= self.warmup_ns:
            self.warm, self.sums = True, Sums()
        self.step(num_rejected)
        return True

    def arrive(self) -> int:
        num_rejected = 0
        while (row := self.joining.next_row(self.now_ns)) is not None:
            self.continue_session(row)
            reason = self.reason_to_reject(self.requests[row])
            if reason is None:
                self.queue.append(self.requests[row])
            else:
                self.status[row] = reason
                self.joining.ended_ns[row] = self.now_ns
                num_rejected += 1
        return num_rejected

    def continue_session(self, row: int) -> None:
        """A turn's prompt begins with the prompt and the output of the turn before, those of its first sample."""
        parent = self.joining.parent[row]
        if parent >= 0:
            before = self.requests[parent][0]
            unsampled = [output_name(parent, 0, i) for i in range(before.sampled, before.output_tokens)]
            for sequence in self.requests[row]:
                sequence.tokens = prompt_names(self.trace, row, before.tokens + unsampled)

    def reason_to_reject(self, samples: list[Sequence]) -> str | None:
        one, scheduling = samples[0], self.scheduling
        if one.prompt_tokens + one.output_tokens > self.max_model_len:
            return "exceeds_max_model_len"
        if not self.empty_memory.could_ever_hold(one, len(samples)):
            return "exceeds_memory"
        if len(samples) > scheduling.max_num_seqs:
            return "exceeds_scheduling"
        apart = 1 if self.memory.contiguous is False else len(samples)
        if not scheduling.chunked_prefill and apart * one.prompt_tokens > scheduling.max_num_batched_tokens:
            return "exceeds_scheduling"
        return None

    # The step.

    def step(self, num_rejected: int) -> None:
        step = Step(len(self.steps), self.now_ns)
        self.steps.append(step)
        self.budget = self.scheduling.max_num_batched_tokens
        self.units_swapped = 0
        for sequence in self.running:
            sequence.computed = 0
        self.schedule_running(step)
        self.admit(step)
        self.look(step)
        self.account(step)
        self.now_ns = self.end_ns = step.start_ns + step.duration_ns
        self.sample(step)
        self.finish(step)
        step.free_blocks_end = [] if self.memory.contiguous else list(self.memory.free)
        finished_requests = {request for request, _ in step.finished if self.status[request] == "completed"}
        self.arrivals.request_left(num_rejected + len(finished_requests), self.now_ns)

    def compute(self, step: Step, sequence: Sequence, tokens: int) -> None:
        self.budget -= tokens
        sequence.computed = tokens
        sequence.stored += tokens
        self.memory.written(sequence, tokens)
        if tokens == 0:
            return
        if sequence.prefilling:
            step.chunks.append((sequence.request, tokens))
            step.prefill_tokens += tokens
        else:
            assert tokens == 1
            step.decoded.append(sequence.key)
            step.decode_tokens += 1

    def schedule_running(self, step: Step) -> None:
        turn = 0
        while turn < len(self.running) and self.budget > 0:
            group = self.running[turn].group
            self.reroot(step, group)
            chunks = chunks_of(group, self.budget, self.memory)
            if not self.make_room(step, group, chunks):
                return
            for sequence, tokens in zip(group, chunks):
                self.compute(step, sequence, tokens)
            turn += len(group)

    def reroot(self, step: Step, group: list[Sequence]) -> None:
        """Beams that are all about to store the token sampled last may be continued by one another."""
        if not group[0].beams or any(s.prefilling or s.known - s.stored != 1 for s in group):
            return
        parents = [parent_of(self.sharing, s.request, s.sampled, s.sample, len(group)) for s in group]
        self.memory.reroot(group, parents, step.index)
        stored = [sequence.tokens[:-1] for sequence in group]
        for sequence, parent in zip(group, parents):
            sequence.tokens = stored[parent] + sequence.tokens[-1:]

    def make_room(self, step: Step, group: list[Sequence], chunks: list[int]) -> bool:
        """All samples get their slots, or the last groups of the running list go, in the end their own."""
        for sequence, tokens in zip(group, chunks):
            while not self.memory.extend(sequence, tokens, step.index):
                victims = self.running[-1].group
                self.preempt(step, victims)
                if victims is group:
                    return False
        return True

    def preempt(self, step: Step, group: list[Sequence]) -> None:
        assert all(victim.computed == 0 for victim in group)
        counters, units = self.sums.counters, self.memory.units(group)
        given_up = self.physical_tokens(group)
        self.running = self.running[:-len(group)]
        for victim in group:
            self.count_released_table(victim)
        if self.scheduling.preemption == "swap" and 0 < units <= self.host_free:
            self.memory.swap_out(group, step.index)
            self.host_free -= units
            self.units_swapped += units
            counters["swapped_blocks"] += units
            group[0].host_units = units
        else:
            if self.scheduling.preemption == "swap" and units > 0:
                counters["swap_fallbacks"] += 1
            counters["recomputed_tokens"] += given_up
            for victim in group:
                self.memory.release(victim, step.index)
                victim.stored = 0
                victim.prefilling = True
        counters["preemptions"] += len(group)
        self.preemptions[group[0].request] += 1
        step.preempted += [victim.key for victim in group]
        self.queue.insert(0, group)

    def physical_tokens(self, group: list[Sequence]) -> int:
        """Stored tokens, those of a shared block once."""
        if self.memory.contiguous:
            return sum(sequence.stored for sequence in group)
        size = self.memory.block_size
        return len({(block, offset) for s in group for at, block in enumerate(s.blocks) for offset in range(size)
                    if at * size + offset < s.stored})

    def admit(self, step: Step) -> None:
        while self.queue:
            head = self.queue[0]
            chunks = chunks_of(head, self.budget, self.memory)
            step.cause = self.cause_to_wait(step, head, chunks)
            if step.cause is not None:
                return
            self.queue.pop(0)
            self.memory.admit(head, chunks, step.index)
            self.count_admission(step, head)
            for sequence, tokens in zip(head, chunks):
                self.enter(step, sequence, tokens)

    def cause_to_wait(self, step: Step, head: list[Sequence], chunks: list[int]) -> str | None:
        scheduling = self.scheduling
        if step.preempted:
            return "preemption"
        if self.budget == 0:
            return "budget"
        if len(self.running) + len(head) > scheduling.max_num_seqs:
            return "max_num_seqs"
        whole = head if self.memory.contiguous else head[:1]     # what must be computed at once
        if not scheduling.chunked_prefill and sum(self.memory.todo(s) for s in whole) > self.budget:
            return "budget"
        if self.memory.refuses(head, chunks, scheduling, len(self.running)):
            need = self.memory.need_slots(head, chunks, scheduling, len(self.running))
            enough = self.memory.contiguous and self.memory.free_slots() >= need
            return "fragmentation" if enough else "memory"
        return None

    def count_admission(self, step: Step, head: list[Sequence]) -> None:
        one, counts = head[0], self.sums.sharing
        step.hits[one.key] = one.hit
        if self.first_scheduled_ns[one.request] < 0:
            self.first_scheduled_ns[one.request] = step.start_ns
            self.hit_tokens[one.request] = one.hit
            counts["hit_tokens"] += one.hit
            counts["hit_blocks"] += one.hit // self.memory.block_size
            counts["admitted_prompt_tokens"] += one.prompt_tokens
            counts["full_prompt_blocks"] += one.prompt_tokens // self.memory.block_size
        else:
            counts["readmission_hit_tokens"] += one.hit
        if one.host_units:
            self.host_free += one.host_units
            self.units_swapped += one.host_units
            self.sums.counters["swapped_blocks"] += one.host_units
            one.host_units = 0
            for sequence in one.group:
                sequence.prefilling = not (sequence.sampled > 0 and sequence.known - sequence.stored == 1)

    def enter(self, step: Step, sequence: Sequence, tokens: int) -> None:
        self.running.append(sequence)
        step.admitted.append(sequence.key)
        self.compute(step, sequence, tokens)

    def look(self, step: Step) -> None:
        """Take the ledger and how long the step lasts."""
        step.instant = Instant.of(self.memory, self.running, self.queue, self.scheduling, self.max_model_len)
        scheduled = [s for s in self.running if s.computed > 0]
        step.context_tokens = sum(s.stored for s in scheduled)
        step.running = len(self.running)
        step.waiting = sum(len(entry) for entry in self.queue)
        seconds = duration_s(self.durations, step.prefill_tokens, step.decode_tokens, len(scheduled), step.context_tokens)
        if self.units_swapped:
            seconds += self.units_swapped * self.memory.block_size * self.scheduling.swap_s_per_slot
        step.duration_ns = round(seconds * 1e9)
        step.stored = {s.key: s.stored for s in self.running}
        step.known = {s.key: s.known for s in self.running}
        step.owners = 0 if self.memory.contiguous else sum(map(len, self.memory.owners))
        step.logical_blocks = sum(len(s.blocks) for s in self.running)
        step.logical_tokens = sum(step.stored.values())
        for s in self.running:
            if self.memory.contiguous:
                step.regions[s.key] = (s.region.start, s.region.asked, s.region.allocated)
            else:
                step.tables[s.key] = list(s.blocks)

    def account(self, step: Step) -> None:
        counters = self.sums.counters
        counters["steps"] += 1
        counters["admissions"] += len(step.admitted)
        counters["prefill_tokens"] += step.prefill_tokens
        counters["decode_tokens"] += step.decode_tokens
        if self.memory.contiguous:
            counters["copied_tokens"] += self.memory.copied_tokens
            counters["failed_growths"] += self.memory.failed_growths
            self.memory.copied_tokens = self.memory.failed_growths = 0
        else:
            self.sums.collect(self.memory, step)
        self.sums.peak(step)
        self.sums.time_passes(step.instant, step.duration_s, step.running, step.waiting,
                              (step.logical_blocks, step.logical_tokens))
        if step.waiting:
            self.sums.wait_s[step.cause] += step.waiting * step.duration_s

    def sample(self, step: Step) -> None:
        """Groups all of whose known tokens are stored sample one token each; the first time they fork before."""
        for group in [sequence.group for sequence in self.running if sequence is sequence.group[0]]:
            if not any(sequence.computed for sequence in group):
                continue
            if len(group) > 1 and group[0].sampled == 0 and group[0].stored == group[0].known:
                self.memory.fork(group, step.index)
            if all(sequence.stored == sequence.known for sequence in group):
                for sequence in group:
                    self.sample_one(sequence)

    def sample_one(self, sequence: Sequence) -> None:
        sequence.tokens.append(output_name(*sequence.key, sequence.sampled))
        sequence.prefilling = False
        self.sums.counters["output_tokens"] += 1
        if self.first_token_ns[sequence.request] < 0:
            self.first_token_ns[sequence.request] = self.now_ns

    def finish(self, step: Step) -> None:
        radix = self.memory if isinstance(self.memory, RadixPool) else None
        if radix:
            radix.tree.hold_frees()
        prefilled = {request for request, _ in step.chunks}
        for sequence in list(self.running):
            if sequence.sampled < sequence.output_tokens:
                if radix and sequence.request in prefilled:
                    radix.insert(sequence, step.index)
                continue
            assert sequence.stored == sequence.final
            waste = self.memory.held_slots(sequence) - sequence.final
            self.sums.waste_slots[waste.bit_length()] += 1
            self.count_released_table(sequence)
            self.memory.end(sequence, step.index)
            self.running.remove(sequence)
            step.finished.append(sequence.key)
            self.unfinished_samples[sequence.request] -= 1
            if self.unfinished_samples[sequence.request] == 0:
                self.status[sequence.request] = "completed"
                self.finish_ns[sequence.request] = self.joining.ended_ns[sequence.request] = self.now_ns
        if radix:
            radix.tree.release_frees()
        if not self.memory.contiguous:
            self.sums.collect(self.memory, step)
            step.cached_blocks_end = len(self.memory.cached_blocks())

    def count_released_table(self, sequence: Sequence) -> None:
        self.sums.table_released(sequence.blocks)

    # From the trace.

    def make_sequences(self, trace, row: int) -> list[Sequence]:
        beams = cell(getattr(trace, "beam_width", None), row, 1)
        number = max(beams, cell(trace.num_samples, row, 1))
        samples = [Sequence(row, sample, cell(trace.prompt_tokens, row, 0), cell(trace.output_tokens, row, 0),
                            cell(trace.max_tokens, row, 0), not self.memory.contiguous and beams > 1,
                            prompt_names(trace, row, [])) for sample in range(number)]
        for sequence in samples:
            sequence.group = [sequence] if self.memory.contiguous else samples
        return samples


def make_memory(allocator, capacity_slots: int, max_model_len: int):
    if isinstance(allocator, Contiguous):
        return Arena(allocator, capacity_slots, max_model_len)
    return (RadixPool if allocator.prefix_cache == "radix" else Pool)(allocator, capacity_slots)


def cell(column, row: int, otherwise: int) -> int:
    return otherwise if column is None else int(np.int64(column[row]))
