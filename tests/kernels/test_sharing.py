"""What is found to be shared, from the tables alone: laws over random trees, and examples of the rule."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from trees import Node, leaves, tree_case, trees

from pagesim.errors import InputError
from pagesim.kernels import sharing as s
from pagesim.kernels.sharing import Sharing, cut, find_shared

sizes = st.sampled_from([1, 8, 16, 24, 64])


def find(case, block_size, q_len=1, **options) -> Sharing | None:
    return find_shared(case.block_table.numpy(), case.lengths, block_size, q_len=q_len, **options)


def stretches_of(sharing: Sharing, seq: int) -> list[np.ndarray]:
    members = [sharing.members[first:first + count] for *_, first, count in sharing.stretches]
    return [stretch for stretch, own in zip(sharing.stretches, members, strict=True) if seq in own]


@settings(deadline=None, max_examples=200)
@given(trees, sizes, st.integers(1, 4), st.sampled_from([1, 16, 64]))
def test_every_token_of_every_sequence_is_in_one_stretch_or_is_its_own(tree, block_size, q_len, part_tokens):
    case = tree_case(tree, block_size=block_size, num_q_heads=1, num_kv_heads=1, head_dim=16)
    sharing = find(case, block_size, q_len, part_tokens=part_tokens)
    if sharing is None:
        return
    for seq, length in enumerate(case.lengths):
        at = 0
        for _, first, end, *_ in stretches_of(sharing, seq):  # in this order
            assert first == at and end > first and end % s.ALIGN_TOKENS == 0
            at = end
        assert at == sharing.begin[seq] <= max(0, length - q_len + 1), "every query must see what is shared"


@settings(deadline=None, max_examples=200)
@given(trees, sizes)
def test_members_have_the_blocks_of_the_sequence_whose_table_is_read(tree, block_size):
    case = tree_case(tree, block_size=block_size, num_q_heads=1, num_kv_heads=1, head_dim=16)
    sharing = find(case, block_size, part_tokens=8)
    for seq, first, end, member, count in (() if sharing is None else sharing.stretches):
        own = sharing.members[member:member + count]
        assert count > 1 and seq in own and (np.diff(own) > 0).all()
        used = case.block_table.numpy()[own, first // block_size:-(-end // block_size)]
        assert (used == used[0]).all()
        assert (end - first) * (count - 1) >= 8 * count, "it does not pay"


@settings(deadline=None, max_examples=100)
@given(trees, sizes)
def test_what_pays_is_found_whatever_the_order_of_the_sequences(tree, block_size):
    found = [find(tree_case(tree, block_size=block_size, shuffle=shuffle, num_q_heads=1, num_kv_heads=1, head_dim=16),
                  block_size, part_tokens=8) for shuffle in (False, True)]
    assert len({sharing and sharing.saved_tokens for sharing in found}) == 1


@settings(deadline=None, max_examples=200)
@given(trees, st.sampled_from([1, 3, 4, 24]), st.sampled_from([16, 64, 128]), st.integers(2, 140), st.integers(1, 2),
       st.integers(1, 9), st.sampled_from([0, 1, 5000, 10**6]))
def test_items_cover_every_row_and_token_of_every_stretch_once_and_parts_are_numbered_without_gaps(
        tree, rows, tile_rows, sms, an_sm, heads, own):
    case = tree_case(tree, num_q_heads=1, num_kv_heads=1, head_dim=16)
    sharing = find(case, 16, part_tokens=8)
    if sharing is None:
        return
    most_parts = s.max_parts(len(case.lengths), rows, tile_rows, -(-sms * an_sm // heads))
    items = cut(sharing, rows, tile_rows, sms, an_sm, heads, most_parts, own)
    assert len(items.items) <= s.max_items(len(case.lengths), rows, tile_rows, -(-sms * an_sm // heads))
    assert items.num_parts.sum() <= most_parts
    assert items.num_sms == sms if own == 0 else 0 < items.num_sms <= max(1, sms - 2)
    parts = [[] for _ in case.lengths]
    for seq, first, end, member, count in sharing.stretches:
        of_stretch = items.items[items.items[:, s.FIRST_MEMBER] == member]
        for row in range(0, count * rows, tile_rows):
            own = of_stretch[of_stretch[:, s.FIRST_ROW] == row]
            own = own[np.argsort(own[:, s.FIRST])]
            assert own[0, s.FIRST] == first and own[-1, s.END] == end
            assert (own[1:, s.FIRST] == own[:-1, s.END]).all() and (own[:, s.END] > own[:, s.FIRST]).all()
            assert (own[:, s.SEQ] == seq).all() and (own[:, s.NUM_MEMBERS] == count).all()
        assert set(of_stretch[:, s.FIRST_ROW]) == set(range(0, count * rows, tile_rows))
        for each in sharing.members[member:member + count]:
            parts[each] += sorted(set(of_stretch[:, s.PART]))
    for seq, own in enumerate(parts):
        assert own == list(range(items.num_parts[seq]))


@pytest.mark.parametrize("own_tokens", [10**5, 10**6, 10**7])
def test_what_is_shared_gets_as_many_sms_as_make_it_last_as_long_as_the_rest(own_tokens):
    table = np.concatenate([np.tile(np.arange(512), (64, 1)), 512 + np.arange(64)[:, None]], 1).astype(np.int32)
    sharing = find_shared(table, np.full(64, 513 * 16), 16)
    items = cut(sharing, 4, 128, 132, 1, 8, 10**6, own_tokens)
    waves = -(-len(items.items) * 8 // items.num_sms)
    shared = waves * (np.diff(items.items[:, [s.FIRST, s.END]]).max() + s.ITEM_TOKENS)
    assert 0.5 < shared / (own_tokens / (131 - items.num_sms)) < 2


def test_a_prompt_a_document_and_a_question_are_three_levels():
    tree = Node(512, (Node(256, leaves(40, 3)), Node(128, leaves(40, 2)), Node(40)))
    sharing = find(tree_case(tree, shuffle=False), 16)
    assert sharing.stretches[:, [s.FIRST, s.END, s.NUM_MEMBERS]].tolist() in (
        [[0, 512, 6], [512, 768, 3], [512, 640, 2]], [[0, 512, 6], [512, 640, 2], [512, 768, 3]])
    assert sharing.begin.tolist() == [768] * 3 + [640] * 2 + [512]


def test_samples_of_one_prompt_share_all_blocks_but_the_one_that_they_write():
    table, lengths = np.tile(np.arange(20, dtype=np.int32), (4, 1)), np.full(4, 20 * 16)
    assert find_shared(table, lengths, 16).begin.tolist() == [320] * 4
    assert find_shared(table, lengths, 16, q_len=2).begin.tolist() == [304] * 4  # the last token is not everyone's


def test_a_short_stretch_is_left_to_those_below_it_and_small_savings_are_left_alone():
    tree = Node(32, (Node(512, leaves(40, 2)), Node(40)))
    case = tree_case(tree, shuffle=False)
    assert find(case, 16).stretches[:, [s.FIRST, s.END, s.NUM_MEMBERS]].tolist() == [[0, 544, 2]]
    assert find(case, 16, token_bytes=4096) is None
    assert find(case, 16, token_bytes=s.MIN_SAVED_BYTES // 544) is None
    assert find(case, 16, token_bytes=-(-s.MIN_SAVED_BYTES // 544)) is not None


def test_equal_blocks_behind_different_ones_are_not_shared():
    table = np.array([[1, 2, 3, 4], [9, 2, 3, 4]] * 2, np.int32)
    assert find_shared(table[:2], np.array([1024, 1024]), 256) is None
    assert find_shared(table, np.full(4, 1024), 256).stretches[:, s.NUM_MEMBERS].tolist() == [2, 2]


def test_of_a_tree_deeper_than_memory_allows_what_saves_most_is_shared():
    num_seqs = 40  # sequence i agrees with those after it in i · 100 tokens more
    table = np.array([[*range(10 * i), *range(1000 * i + 1000, 1000 * i + 1000 + 10 * (num_seqs - i))]
                      for i in range(num_seqs)], np.int32)
    sharing = find_shared(table, np.full(num_seqs, 4000), 10)
    assert 0 < len(sharing.members) <= s.max_members(num_seqs)


@pytest.mark.parametrize("shape", [(2, 4), (4, 4), (3,)])
def test_a_table_without_a_row_for_each_length_is_refused(shape):
    with pytest.raises(InputError, match="with 3 rows, as there are lengths; got"):
        find_shared(np.zeros(shape, np.int32), np.full(3, 64), 16)


def test_nothing_is_shared_where_there_are_no_sequences_or_no_common_blocks():
    assert find_shared(np.zeros((0, 4), np.int32), np.zeros(0, np.int64), 16) is None
    assert find_shared(np.arange(8, dtype=np.int32).reshape(2, 4), np.array([64, 64]), 16) is None
    assert find_shared(np.zeros((3, 9), np.int32), np.array([0, 1, 15]), 16) is None
