"""Whatever sequences take, store, change and give back, the parts sum to the capacity and none is negative."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pagesim.core.ledger import HELD, LEVELS, PARTS, change, give, is_whole, split, store, take

# Of a sequence: slots asked for, what is taken beyond them, tokens at its end, tokens that it has stored of those.
SEQUENCE = st.tuples(st.integers(1, 50), st.integers(0, 20), st.integers(1, 80), st.integers(0, 80)).map(
    lambda each: (each[0], each[1], each[2], min(each[3], each[0], each[2])))


def parts_of(levels, capacity, is_stranded, remainder):
    parts = np.zeros(len(PARTS), np.int64)
    split(parts, levels, 0, 0, capacity - remainder - levels.allocated, is_stranded, remainder)
    return parts


@given(st.lists(st.tuples(SEQUENCE, st.integers(0, 30))), st.integers(0, 100), st.booleans(), st.integers(0, 15))
def test_the_parts_are_whole_whatever_the_sequences_do(sequences, spare, is_stranded, remainder):
    levels = np.zeros(1, LEVELS).view(np.recarray)[0]
    capacity = sum(asked + beyond + more for (asked, beyond, _, _), more in sequences) + spare + remainder
    for (asked, beyond, final, stored), more in sequences:
        take(levels, asked, final, asked + beyond)
        store(levels, stored)
        change(levels, asked, asked + more, final, more)
        parts = parts_of(levels, capacity, is_stranded, remainder)
        assert is_whole(parts, capacity) and sum(parts) == capacity
        assert (parts >= 0).all()
        assert sum(parts[:len(HELD)]) == levels.allocated
    for (asked, beyond, final, stored), more in sequences:
        store(levels, -stored)
        give(levels, asked + more, final, asked + beyond + more)
    assert not any(levels)


@given(st.lists(st.integers(0, 10**4), min_size=len(PARTS), max_size=len(PARTS)), st.integers(1, 10))
def test_a_slot_too_many_or_too_few_is_seen(parts, error):
    assert is_whole(parts, sum(parts))
    assert not is_whole(parts, sum(parts) + error) and not is_whole([*parts[:-1], parts[-1] + error], sum(parts))
