import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the kernels need torch")

from pagesim.errors import InputError
from pagesim.kernels.split import MAX_ITEM_TOKENS, MIN_ITEM_TOKENS, item_tokens, split


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


def test_items_get_shorter_where_sms_would_stay_idle_but_not_too_short():
    assert item_tokens(64 * 4096, 8, 132) == MAX_ITEM_TOKENS
    assert item_tokens(131072, 1, 132) == MIN_ITEM_TOKENS
    assert MIN_ITEM_TOKENS < item_tokens(65536, 8, 132) < MAX_ITEM_TOKENS
