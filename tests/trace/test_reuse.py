"""What a prefix cache would find, against caches that are played block by block and against every cache there could be."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_files import public

from pagesim.errors import TraceError
from pagesim.trace import Source, Trace, read_trace
from pagesim.trace.inspect import prefix_reuse
from pagesim.trace.numbering import by_appearance
from pagesim.trace.reuse import reuse, sizes
from pagesim.trace.reuse_pass import lru_hits

BLOCK = 4


def trace_of(prompts: list[tuple[list[int], int]]) -> Trace:
    """Prompts of these ids; their last block has so many tokens."""
    tokens = np.array([BLOCK * (len(ids) - 1) + last if ids else last for ids, last in prompts], dtype=np.int32)
    return Trace(None, tokens, np.ones_like(tokens), prefix_ids=np.array([i for ids, _ in prompts for i in ids], dtype=np.int64),
                 prefix_offsets=np.cumsum([0, *(len(ids) for ids, _ in prompts)]), source=Source("test", "test", hash_block_tokens=BLOCK))


@st.composite
def prompts(draw, most: int = 12, longest: int = 5) -> list[tuple[list[int], int]]:
    """Prompts whose equal ids are equal tokens after equal prefixes, as in real traces: paths in a tree."""
    paths = draw(st.lists(st.tuples(st.lists(st.integers(0, 1), max_size=longest), st.integers(1, BLOCK)), min_size=1, max_size=most))
    names = {}
    def name(path: list[int], end: int, last: int) -> int:
        return names.setdefault((*path[:end], "" if end < len(path) else f"{last} tokens" if last < BLOCK else ""), len(names))
    return [([name(path, end, last) for end in range(1, len(path) + 1)], last) for path, last in paths]


def whole(ids: list[int], last: int) -> tuple[list[int], int]:
    """The blocks a cache can keep of a prompt, and how many of them may hit."""
    tokens = BLOCK * (len(ids) - 1) + last if ids else 0
    return ids[:tokens // BLOCK], max(tokens - 1, 0) // BLOCK


def played_lru(rows: list[tuple[list[int], int]], capacity: int) -> int:
    """Hits of a cache of ``capacity`` blocks, the one used least recently at the list's end."""
    stack, hits = [], 0
    for row in rows:
        own, countable = whole(*row)
        leading = 0
        while leading < countable and own[leading] in stack:
            leading += 1
        hits += leading
        for block in reversed(own):  # the last block of the prompt is let go first
            stack = [block, *(other for other in stack if other != block)]
        stack = stack[:capacity]
    return hits


def best_possible(rows: list[tuple[list[int], int]], capacity: int) -> int:
    """Hits of the best of all caches: after every request each subset of what it knows is tried."""
    requests = [whole(*row) for row in rows]

    @cache
    def best(at: int, kept: frozenset) -> int:
        if at == len(requests):
            return 0
        own, countable = requests[at]
        leading = 0
        while leading < countable and own[leading] in kept:
            leading += 1
        return leading + max(best(at + 1, held) for held in subsets(kept | set(own)))

    def subsets(known: frozenset) -> list[frozenset]:
        held = [frozenset()]
        for block in known:
            held += [more | {block} for more in held if len(more) < capacity]
        return held

    return best(0, frozenset())


def hit_blocks(rate: float, rows: list[tuple[list[int], int]]) -> float:
    return rate * sum(trace_of(rows).prompt_tokens.tolist()) / BLOCK


@given(prompts())
def test_lru_of_every_size_is_what_playing_each_gives(rows):
    found = reuse(trace_of(rows))
    for capacity in range(1, 40):
        assert hit_blocks(found.lru(capacity), rows) == pytest.approx(played_lru(rows, capacity))
    assert found.num_blocks == sum(len(whole(*row)[0]) for row in rows)
    assert found.num_distinct == len({block for row in rows for block in whole(*row)[0]})


@given(st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=4), st.integers(1, BLOCK)), min_size=1, max_size=15))
def test_lru_holds_for_any_ids_also_where_no_prefix_is_equal(rows):
    found = reuse(trace_of(rows))
    for capacity in (1, 2, 3, 6, 20):
        assert hit_blocks(found.lru(capacity), rows) == pytest.approx(played_lru(rows, capacity))


@given(prompts(most=5, longest=3), st.integers(1, 4))
def test_the_optimum_is_what_the_best_of_all_caches_reaches(rows, capacity):
    assert hit_blocks(reuse(trace_of(rows)).optimal(capacity), rows) == pytest.approx(best_possible(rows, capacity))


@given(prompts(most=30, longest=8))
def test_hits_grow_with_the_size_and_lru_never_beats_the_optimum_nor_this_no_limit(rows):
    trace = trace_of(rows)
    found = reuse(trace)
    rates = [(found.lru(capacity), found.optimal(capacity)) for capacity in range(1, found.num_distinct + 2)]
    assert all(one <= other for one, other in zip(rates, rates[1:]))
    assert all(lru <= best <= found.unlimited for lru, best in rates)
    assert found.lru(max(found.enough_blocks, 1)) == found.unlimited == prefix_reuse(trace).hit_share_of_prompt_tokens
    assert found.enough_blocks == 0 or found.lru(found.enough_blocks - 1) < found.unlimited


def test_a_worked_example():
    # Blocks of 4: two prompts of 12 + 1 tokens share 0 1 2 with a third between them that shares nothing.
    found = reuse(trace_of([([0, 1, 2, 3], 1), ([4, 5, 6, 7], 1), ([0, 1, 2, 8], 1)]))
    assert (found.prompt_tokens, found.num_blocks, found.num_distinct) == (39, 9, 6)
    # After the second prompt the stack is 4 5 6 0 1 2: four blocks still hold the first of the prefix.
    assert [hit * found.prompt_tokens / 4 for hit in map(found.lru, range(1, 8))] == [0, 0, 0, 1, 2, 3, 3]
    assert [hit * found.prompt_tokens / 4 for hit in map(found.optimal, range(1, 5))] == [1, 2, 3, 3]
    assert found.enough_blocks == 6


def test_a_prompt_that_is_all_there_computes_its_last_token():
    assert reuse(trace_of([([0, 1], 4), ([0, 1], 4)])).unlimited == 4 / 16
    assert reuse(trace_of([([0, 1], 4), ([0, 1, 2], 1)])).unlimited == 8 / 17


def test_a_request_without_ids_hits_nothing_and_counts_with_its_tokens():
    assert reuse(trace_of([([0, 1], 1), ([], 100), ([0, 2], 1)])).unlimited == 4 / 110


def test_ids_that_are_not_numbered_from_0_are_the_same():
    rows = [([0, 1], 1), ([0, 2], 1)]
    sparse = [([10**15 + 7 * i for i in ids], last) for ids, last in rows]
    assert reuse(trace_of(sparse)).unlimited == reuse(trace_of(rows)).unlimited


def test_a_trace_without_ids_says_so():
    ones = np.ones(3, dtype=np.int32)
    with pytest.raises(TraceError, match="no prefix ids, and nothing else says which prompts are alike"):
        reuse(Trace(None, ones, ones))


def test_a_table_doubles_its_sizes_up_to_the_first_that_hits_all():
    found = reuse(trace_of([([0, 1, 2, 3], 1), ([4, 5, 6, 7], 1), ([0, 1, 2, 8], 1)]))
    assert sizes(found) == [1, 2, 4, 8] and found.lru(8) == found.unlimited > found.lru(4)
    assert sizes(found, per_octave=2) == [1, 2, 3, 4, 6, 8]
    assert sizes(reuse(trace_of([([0], 1)]))) == [1]  # nothing repeats


@given(st.lists(st.integers(-2**63, 2**63 - 1) | st.integers(0, 5), max_size=30))
def test_keys_are_numbered_by_their_first_appearance(keys):
    names = {}
    assert by_appearance(np.array(keys, dtype=np.int64)).tolist() == [names.setdefault(key, len(names)) for key in keys]


@pytest.mark.parametrize(("name", "hits", "rate"), [("conversation", 105_592, 37.338), ("synthetic", 77_740, 65.043)])
def test_mooncakes_prompts_hit_a_cache_without_limit_as_known(name, hits, rate):
    found = reuse(read_trace(public(f"mooncake_{name}_trace.jsonl.gz")))
    assert found.lru_blocks[-1] == hits and round(100 * found.unlimited, 3) == rate


@pytest.mark.parametrize(("name", "rates"), [("conversation", (4.5, 21.1, 32.6, 35.5, 36.4)), ("synthetic", (8.3, 42.4, 62.4, 64.0, 64.0))])
def test_mooncakes_ids_hit_an_lru_cache_as_known_where_each_is_looked_up_for_itself(name, rates):
    """The known figures are of another question: every id is a request of its own, also of a partial block, hits
    whether or not the blocks before it do, up to the last token, and is one of so many ids, not of prompt tokens.
    """
    ids = read_trace(public(f"mooncake_{name}_trace.jsonl.gz")).prefix_ids
    one_each = np.ones(len(ids), dtype=np.int64)
    hits, _ = lru_hits(ids, np.arange(len(ids) + 1), one_each, one_each, int(ids.max()) + 1)
    # The known figures were rounded to two digits first, then to one: 4.447 % stands there as 4.5 %.
    for capacity, rate in zip((1_000, 10_000, 30_000, 50_000, 100_000), rates):
        assert 100 * hits[:capacity + 1].sum() / len(ids) == pytest.approx(rate, abs=0.055)
