"""Laws of the decode plan: it cannot run in an interpreter, so what it promises the kernel is checked here."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagesim.errors import InputError
from pagesim.kernels.hopper import plan as p

H200_SMS = 132

pools = st.sampled_from([8, 24, 200])  # mean tiles of a CTA from which there is one
batches = st.lists(st.one_of(st.integers(0, 40), st.integers(0, 3000)), max_size=60).map(
    lambda x: np.array(x, np.int64))
ctas = st.integers(1, 140)


def tiles_of(lengths):
    return -(-np.asarray(lengths) // 16)


def records_of(plan, cta):
    """A CTA's own records in its order."""
    found, at = [], cta
    while at >= 0:
        found.append(plan.records[at])
        at = plan.records[at, p.NEXT]
    return [] if found[0][p.SEQ] < 0 else found


def pool_of(plan):
    first, size = plan.records[0, p.POOL], plan.records[0, p.POOL_SIZE]
    return plan.records[first:first + size]


def all_records(plan):
    own = [r for cta in range(plan.num_ctas) for r in records_of(plan, cta)]
    return np.concatenate([np.array(own, np.int32).reshape(-1, p.RECORD_INTS), pool_of(plan)])


def parts_by_row(plan, head_groups=1):
    rows = {}
    for record in all_records(plan):
        rows.setdefault(record[p.SEQ] * head_groups + record[p.GROUP], []).append(record)
    return rows


def starts(parts, tile_tokens):
    """Of the tiles of a row's parts, in their order."""
    return sorted(r[p.FIRST_TOKEN] + i * tile_tokens for r in parts for i in range(r[p.NUM_TILES]))


def loads(plan):
    return np.array([sum(r[p.NUM_TILES] for r in records_of(plan, cta)) for cta in range(plan.num_ctas)])


@settings(deadline=None, max_examples=200)
@given(batches, ctas, st.integers(1, 4), pools)
def test_every_tile_of_every_row_is_in_exactly_one_part(lengths, num_ctas, head_groups, pool):
    plan = p.make_plan(lengths, num_ctas, head_groups=head_groups, pool_tiles=pool)
    rows = parts_by_row(plan, head_groups)
    assert sorted(rows) == list(range(len(lengths) * head_groups))
    for row, parts in rows.items():
        assert starts(parts, 16) == [16 * t for t in range(tiles_of(lengths[row // head_groups]))]
        assert all(r[p.TOKENS] == lengths[row // head_groups] for r in parts)


@st.composite
def shared_batches(draw):
    """Lengths, where own tokens begin, and shared parts: some where there are shared tokens, else none."""
    lengths = draw(batches)
    begin = np.array([draw(st.integers(0, n // 16)) * 16 for n in lengths], np.int64)
    return lengths, begin, np.array([draw(st.integers(1, 20)) if at else 0 for at in begin], np.int64)


@settings(deadline=None, max_examples=200)
@given(shared_batches(), ctas, st.integers(1, 4), pools, st.sampled_from([16, 32, 64]))
def test_of_a_sequence_that_shares_its_own_tiles_are_counted_behind_the_parts_that_it_shares(
        batch, num_ctas, head_groups, pool, tile_tokens):
    lengths, begin, shared = batch
    plan = p.make_plan(lengths, num_ctas, head_groups=head_groups, tile_tokens=tile_tokens, pool_tiles=pool,
                       begin=begin, shared_parts=shared)
    rows = parts_by_row(plan, head_groups)
    assert sorted(rows) == list(range(len(lengths) * head_groups))
    slots = []
    for row, parts in rows.items():
        seq = row // head_groups
        assert starts(parts, tile_tokens) == list(range(begin[seq], lengths[seq], tile_tokens))
        assert all(r[p.NUM_PARTS] == len(parts) + shared[seq] for r in parts)
        assert plan.num_parts[row] == (len(parts) + shared[seq] if len(parts) + shared[seq] > 1 else 0)
        if len(parts) + shared[seq] > 1:
            first = plan.first_slots[row]
            assert sorted(r[p.SLOT] - first for r in parts) == list(range(shared[seq], shared[seq] + len(parts)))
            assert all(r[p.FIRST_SLOT] == first for r in parts)
            slots += range(first, first + shared[seq] + len(parts))
    assert sorted(slots) == list(range(plan.num_slots))
    assert plan.num_slots <= p.max_slots(num_ctas) + head_groups * (shared.sum() + len(lengths))
    assert plan.num_counters <= p.max_counters(num_ctas) + head_groups * len(lengths)


@settings(deadline=None, max_examples=100)
@given(batches, ctas)
def test_only_a_sequence_of_length_zero_has_an_empty_part(lengths, num_ctas):
    plan = p.make_plan(lengths, num_ctas)
    empty = all_records(plan)
    empty = empty[empty[:, p.NUM_TILES] == 0]
    assert sorted(empty[:, p.SEQ]) == list(np.flatnonzero(lengths == 0))


@settings(deadline=None, max_examples=100)
@given(batches, ctas, pools)
def test_slots_and_counters_of_cut_rows_are_distinct_and_fit_the_workspace(lengths, num_ctas, pool):
    plan = p.make_plan(lengths, num_ctas, pool_tiles=pool)
    slots, counters = [], []
    for parts in parts_by_row(plan).values():
        assert all(r[p.NUM_PARTS] == len(parts) for r in parts)
        if len(parts) == 1:
            assert parts[0][p.SLOT] == -1
            continue
        first = parts[0][p.FIRST_SLOT]
        assert sorted(r[p.SLOT] for r in parts) == list(range(first, first + len(parts)))
        assert len({r[p.COUNTER] for r in parts}) == 1
        slots += [r[p.SLOT] for r in parts]
        counters.append(parts[0][p.COUNTER])
    assert sorted(slots) == list(range(plan.num_slots)) and plan.num_slots <= p.max_slots(num_ctas)
    assert sorted(counters) == list(range(1, plan.num_counters)) and plan.num_counters <= p.max_counters(num_ctas)
    assert len(plan.records) <= p.max_records(len(lengths), num_ctas)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 60_000), max_size=20), ctas, pools)
def test_the_merge_of_a_row_in_many_parts_is_shared_out_whole_and_no_cta_takes_three(lengths, num_ctas, pool):
    plan = p.make_plan(np.array(lengths, np.int64), num_ctas, pool_tiles=pool)
    for parts in parts_by_row(plan).values():
        shares = sorted(r[p.SHARE] for r in parts if r[p.SHARE] >= 0)
        assert shares == list(range(parts[0][p.NUM_SHARERS]))
        many = len(parts) > p.FEW_PARTS
        assert many or not shares
        assert shares or not many or len(pool_of(plan))  # whose rows may be nobody's
    assert (pool_of(plan)[:, p.SHARE] == -1).all()  # whoever draws a part shares no merge for it
    for cta in range(num_ctas):
        assert sum(r[p.SHARE] >= 0 for r in records_of(plan, cta)) <= 2  # the kernel remembers two


@pytest.mark.parametrize("lengths", [
    [4096] * 64,
    [1024] * 256,
    [131072],
    [2048] * 64,
    np.random.default_rng(1).lognormal(6.3, 1, 128),
    np.random.default_rng(2).lognormal(6, 1.5, 256),
    np.random.default_rng(3).lognormal(7, 1, 64),
])
@pytest.mark.parametrize("head_groups, num_ctas", [(1, H200_SMS), (4, H200_SMS), (3, 2 * H200_SMS)])
def test_no_cta_of_a_large_batch_has_more_than_the_slack_over_the_mean(lengths, head_groups, num_ctas):
    lengths = np.maximum(1, np.asarray(lengths)).astype(np.int64)
    load = loads(p.make_plan(lengths, num_ctas, head_groups=head_groups, pool_tiles=10**9))
    mean_cost = head_groups * (tiles_of(lengths).sum() + p._PART_COST_TILES * len(lengths)) / num_ctas
    assert load.max() <= (1 + p._PACK_SLACK) * mean_cost + 1


@settings(deadline=None, max_examples=100)
@given(batches, ctas, pools)
def test_who_has_parts_goes_on_with_the_pool_and_so_does_who_drew_from_it(lengths, num_ctas, pool):
    plan = p.make_plan(lengths, num_ctas, pool_tiles=pool)
    own = [records_of(plan, cta) for cta in range(num_ctas)]
    if not len(pool_of(plan)):
        assert all(records[-1][p.NEXT] == -1 for records in own if records)
        return
    assert all(records[-1][p.NEXT] == p.DRAW for records in own if records)
    assert (pool_of(plan)[:, p.NEXT] == p.DRAW).all()
    assert (all_records(plan)[:, p.NUM_DRAWERS] == sum(map(bool, own))).all()


@pytest.mark.parametrize("lengths", [
    [8192] * 64,
    [2048] * 256,
    [1600] * 320,
    [524288],
    [32768] * 16,
    np.random.default_rng(1).lognormal(8, 1, 128),
    np.random.default_rng(2).lognormal(6, 1.5, 700),
])
def test_in_a_large_batch_a_tenth_of_the_work_is_drawn_in_small_parts(lengths):
    lengths = np.maximum(1, np.asarray(lengths)).astype(np.int64)
    plan = p.make_plan(lengths, H200_SMS)
    mean = tiles_of(lengths).sum() / H200_SMS
    assert mean >= 200
    assert loads(plan).max() <= mean
    pool = pool_of(plan)
    assert 0.05 * mean <= pool[:, p.NUM_TILES].sum() / H200_SMS <= 0.25 * mean
    assert pool[:, p.NUM_TILES].max() <= 0.16 * mean


def test_a_batch_just_too_small_has_no_pool():
    def pool_size(tokens):
        return len(pool_of(p.make_plan(np.full(132, tokens), H200_SMS)))

    assert pool_size(199 * 16) == 0 < pool_size(200 * 16)


def test_uniform_short_sequences_are_not_cut():
    assert p.make_plan(np.full(256, 1024), H200_SMS).num_slots == 0


def test_one_long_sequence_goes_over_all_ctas():
    plan = p.make_plan(np.array([131072]), H200_SMS)
    assert (loads(plan) > 0).all() and plan.num_counters == 2 and plan.num_slots == H200_SMS


def test_ctas_that_are_left_to_others_get_no_part():
    load = loads(p.make_plan(np.full(64, 512), 2 * H200_SMS, used_ctas=100))
    assert load[:100].min() > 0 and not load[100:].any()


def test_a_small_batch_is_not_cut_into_single_tiles():
    load = loads(p.make_plan(np.array([128]), H200_SMS))
    assert np.count_nonzero(load) == 8 // p.MIN_TILES


def test_an_empty_batch_has_no_parts():
    plan = p.make_plan(np.zeros(0, np.int64), 4)
    assert len(all_records(plan)) == 0 and plan.num_ctas == 4


def test_a_negative_length_names_its_sequence():
    with pytest.raises(InputError, match="sequence 1 has -3 tokens"):
        p.make_plan(np.array([4, -3]), 8)
