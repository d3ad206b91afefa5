import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagesim.errors import InputError
from pagesim.kernels.splits import CTAS_PER_SM, make_splits, split_at

batches = st.lists(st.integers(0, 6000), max_size=30).map(lambda x: np.array(x, np.int64))


@given(batches, st.integers(1, 700), st.sampled_from([16, 64, 128]))
def test_items_of_a_sequence_cover_each_token_once_and_start_at_whole_tiles(lengths, max_tokens, tile_tokens):
    s = split_at(lengths, max_tokens, tile_tokens=tile_tokens)
    for seq, length in enumerate(lengths):
        mine = np.flatnonzero(s.seq == seq)
        order = mine[np.argsort(s.first_token[mine])]
        assert s.first_token[order[0]] == 0 and s.end_token[order[-1]] == length
        assert (s.end_token[order[:-1]] == s.first_token[order[1:]]).all()
        assert (s.first_token[order] % tile_tokens == 0).all()
        assert length == 0 or (s.end_token[mine] > s.first_token[mine]).all()


@given(batches, st.integers(1, 700))
def test_cut_sequences_have_their_own_slots_and_whole_ones_none(lengths, max_tokens):
    s = split_at(lengths, max_tokens)
    cut = [seq for seq in range(len(lengths)) if (s.seq == seq).sum() > 1]
    assert list(s.cut_seq) == cut
    for i, seq in enumerate(cut):
        assert sorted(s.slot[s.seq == seq]) == list(range(s.cut_slots[i], s.cut_slots[i + 1]))
    assert (s.slot[~np.isin(s.seq, cut)] == -1).all()


@given(batches)
def test_longest_items_come_first(lengths):
    s = split_at(lengths, 500)
    assert (np.diff(s.end_token - s.first_token) <= 0).all()


def test_one_long_sequence_fills_whole_waves():
    s = make_splits(np.array([131072]), 8, 132)
    assert (len(s.seq) * 8) / (CTAS_PER_SM * 132) == pytest.approx(2, rel=0.03)


def test_a_short_sequence_is_not_split():
    assert make_splits(np.array([128]), 8, 132).num_slots == 0


def test_a_negative_length_names_its_sequence():
    with pytest.raises(InputError, match="sequence 0 has -1 tokens"):
        make_splits(np.array([-1]), 8, 132)
