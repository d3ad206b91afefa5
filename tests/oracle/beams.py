"""Beam search by a stated model: who continues whom, drawn from numbers that depend on their key alone."""

from dataclasses import dataclass

MASK = 2**64 - 1


@dataclass(frozen=True)
class Sharing:
    """``fork_rate``: how likely a beam is replaced in a step, in [0, 1].  ``seed``: 0 <= seed < 2^64."""

    fork_rate: float = 0.0
    seed: int = 0


def mixed(value: int) -> int:
    """One step of splitmix64 (Steele, Lea, Flood 2014): 64 bits in, 64 bits out, all arithmetic modulo 2^64."""
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def word(seed: int, request: int, step: int, beam: int, draw: int) -> int:
    """64 random bits.  The key is folded into the state one by one, ``state = mixed(state xor part)``, from state 0.

    The parts in this order: seed, request (its row in the trace), step (output tokens that each beam has sampled, so 1
    in the first step after the fork), beam (from 0), draw.
    """
    state = 0
    for part in (seed, request, step, beam, draw):
        state = mixed(state ^ part)
    return state


def parent_of(sharing: Sharing, request: int, step: int, beam: int, width: int) -> int:
    """The beam that this one continues: itself, or with probability ``fork_rate`` another, each as likely.

    Draw 0 gives a number in [0, 1): its upper 53 bits times 2^-53; below ``fork_rate`` the beam is replaced.  Draw 1
    modulo ``width - 1`` counts the other beams in ascending order (so uneven by less than width / 2^64).
    """
    if width == 1 or (word(sharing.seed, request, step, beam, 0) >> 11) * 2.0**-53 >= sharing.fork_rate:
        return beam
    other = word(sharing.seed, request, step, beam, 1) % (width - 1)
    return other if other < beam else other + 1
