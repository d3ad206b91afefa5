"""Which tokens of two requests are equal, token by token, as far as a trace says it.

A token has a source: the prefix id that covers it, or, without one, the request that it belongs to.  Two tokens at the
same position are equal where their sources are.  Of a session the turn before comes first, with its sources.
"""

from pagesim.allocators.block_keys import covered, mixed
from pagesim.core.jit import COLD, HOT

_FAR = 2**62


@HOT
def _source(prefixes, request, position):
    """The source of a token, and the position up to which those behind it have the same."""
    owner, end = int(request), _FAR
    if len(prefixes.parent) > 0:
        while prefixes.parent[owner] >= 0 and position < prefixes.history[owner]:
            end = min(end, int(prefixes.history[owner]))
            owner = int(prefixes.parent[owner])
    with_ids = covered(prefixes, owner)
    if position >= with_ids:
        return -1 - owner, end
    at = position // prefixes.granularity
    end = min(end, with_ids, (at + 1) * prefixes.granularity)
    return int(prefixes.ids[prefixes.offsets[owner] + at]), end


@COLD
def part_at(prefixes, request, other, begin, end):
    """The first position in ``[begin, end)`` at which two requests' tokens differ, or ``end``."""
    at = begin
    if request == other:
        at = end
    while at < end:
        source, until = _source(prefixes, request, at)
        other_source, other_until = _source(prefixes, other, at)
        if source != other_source:
            break
        at = min(until, other_until)
    return min(at, end)


@COLD
def mix_in(prefixes, key, request, begin, end):
    """``key`` mixed with the tokens of ``[begin, end)``: equal for equal tokens, however sources divide them."""
    at, last = begin, -_FAR
    while at < end:
        source, at = _source(prefixes, request, at)
        if source != last:
            key = mixed(key, 2 * source + 2 if source >= 0 else -1 - 2 * source)
        last = source
    return key
