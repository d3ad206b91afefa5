import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the kernels need torch")

from pagesim.errors import InputError
from pagesim.kernels.general.split import ALIGN_TOKENS, CTAS_PER_SM, MIN_ITEM_TOKENS, item_tokens, most_items, split


@given(lengths=st.lists(st.integers(0, 5000), max_size=30), item=st.integers(1, 3000), q_len=st.integers(1, 5),
       window=st.none() | st.integers(0, 3000))
def test_every_token_that_is_seen_is_in_exactly_one_item_and_parts_are_numbered_without_gaps(lengths, item, q_len,
                                                                                             window):
    plan = split(np.array(lengths, np.int64), item, device="cpu", q_len=q_len, window=window)
    items, cuts = plan.items.numpy(), plan.cuts.numpy()
    assert sorted(part for part in items[:, 3] if part >= 0) == list(range(plan.num_parts))
    for seq, length in enumerate(lengths):
        own = items[items[:, 0] == seq]
        own = own[np.argsort(own[:, 1])]
        begin = 0 if window is None else max(0, length - q_len - window)
        assert own[0, 1] == begin and own[-1, 2] == length and (own[1:, 1] == own[:-1, 2]).all()
        assert (own[:, 2] - own[:, 1] <= item).all()
        if len(own) > 1:
            assert (own[:, 2] > own[:, 1]).all(), "an empty part"
            (cut,) = cuts[cuts[:, 0] == seq]
            assert own[:, 3].tolist() == list(range(cut[1], cut[2]))
        else:
            assert own[0, 3] == -1 and seq not in cuts[:, 0]


def test_the_longest_items_come_first():
    items = split(np.array([10, 3000, 500]), 1000, device="cpu").items.numpy()
    assert (np.diff(items[:, 2] - items[:, 1]) <= 0).all()


def test_a_sequence_is_cut_the_same_alone_and_in_a_batch():
    alone = split(np.array([3000]), 700, device="cpu").items[:, 1:3].tolist()
    batch = split(np.array([90, 3000, 4000]), 700, device="cpu").items
    assert sorted(batch[batch[:, 0] == 1][:, 1:3].tolist()) == sorted(alone)


def test_padding_names_no_sequence():
    plan = split(np.array([5, 300]), 100, device="cpu", pad_items=9, pad_cuts=4)
    assert len(plan.items) == 9 and len(plan.cuts) == 4
    assert (plan.items[4:] == -1).all() and (plan.cuts[1:] == -1).all()


def test_wrong_lengths_are_refused():
    with pytest.raises(InputError, match="sequence 1 has -4 tokens"):
        split(np.array([3, -4]), 64, device="cpu")
    with pytest.raises(InputError, match="at least 1 token"):
        split(np.array([3]), 0, device="cpu")


@pytest.mark.parametrize("tokens", [131_072, 262_144, 600_000])
def test_items_of_one_long_sequence_fill_whole_waves(tokens):
    slots = CTAS_PER_SM * 132 // 8
    waves = -(-tokens // item_tokens(tokens, 8, 132)) / slots
    assert 0 <= math.ceil(waves) - waves < 0.05


def test_items_get_shorter_where_sms_would_stay_idle_but_not_too_short():
    assert item_tokens(131072, 1, 132) > item_tokens(110_000, 1, 132) > MIN_ITEM_TOKENS
    assert item_tokens(1000, 8, 132) == MIN_ITEM_TOKENS


@given(lengths=st.lists(st.integers(0, 20_000), min_size=1, max_size=40), spare=st.integers(0, 100_000))
def test_no_batch_within_its_tokens_is_cut_into_more_items_than_the_bound(lengths, spare):
    total = sum(lengths)
    items = split(np.array(lengths, np.int64), item_tokens(total, 8, 132), device="cpu").items
    assert len(items) <= most_items(len(lengths), total + spare, 8, 132)
    assert item_tokens(total, 8, 132) % ALIGN_TOKENS == 0
