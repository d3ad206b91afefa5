"""What the engine asks of an allocator, and what it may count on."""

from typing import NamedTuple


class Ask(NamedTuple):
    """Who wants memory: ``copies`` sequences of one request that are admitted together, or one that comes back.

    ``known`` tokens they have, of which ``stored`` lie in ``units`` blocks or slots on the host.  ``budget`` tokens are
    computed at once by all of them; room for more is not needed yet.
    """

    request: int  # its number in the trace
    prompt: int
    output: int
    limit: int  # its max_tokens, 0 for none
    known: int
    stored: int
    units: int
    copies: int
    budget: int

    @classmethod
    def of(cls, tokens: int) -> "Ask":
        """One sequence with a prompt of ``tokens``, by itself."""
        return cls(0, tokens, 1, 0, tokens, 0, 0, 1, tokens)


class Demand(NamedTuple):
    """The most that a run can ask for: it decides how large an allocator's arrays are."""

    rows: int  # sequences that run at once
    max_model_len: int
    longest_tokens: int  # no sequence stores more
    total_tokens: int  # all sequences together store in the whole run, when none is preempted
    sequences: int
