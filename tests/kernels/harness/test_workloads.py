import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagesim.core.blocktables import from_rows
from pagesim.errors import InputError
from pagesim.kernels.harness.workloads import TABLES, Workload, builtin, from_snapshot, make_tables, num_blocks_for

SMALL = Workload("small", np.array([5, 0, 9, 16, 1]))
REAL = ("contiguous", "sorted", "shuffled")


def used(tables, block_size):
    counts = -(-SMALL.lengths // block_size)
    return [np.concatenate([table[i, :n] for i, n in enumerate(counts)]) for table in tables]


@pytest.mark.parametrize("kind", REAL)
@given(block_size=st.integers(1, 20), copies=st.integers(1, 4), spare=st.integers(0, 9), seed=st.integers(0, 5))
def test_no_block_of_a_real_table_is_used_twice_in_any_copy(kind, block_size, copies, spare, seed):
    num_blocks = num_blocks_for(SMALL, block_size, kind, copies) + spare
    ids = np.concatenate(used(make_tables(SMALL, block_size, num_blocks, kind, copies, seed), block_size))
    assert len(set(ids)) == len(ids) and ids.min() >= 0 and ids.max() < num_blocks


@pytest.mark.parametrize("kind", [kind for kind in TABLES if kind != "simulated"])
def test_tables_have_a_row_for_each_sequence_and_zeros_behind_its_end(kind):
    for table in make_tables(SMALL, 4, 40, kind, 2):
        assert table.shape == (5, 4) and table.dtype == np.int32
        assert kind == "same" or ((table[1] == 0).all() and (table[0, 2:] == 0).all())


def test_contiguous_ids_follow_each_other_and_sorted_ones_rise():
    (contiguous,), (rising,) = (used(make_tables(SMALL, 4, 40, kind, 1), 4) for kind in ("contiguous", "sorted"))
    assert (contiguous == np.arange(len(contiguous))).all()
    assert (np.diff(rising[5:9]) > 0).all()


def test_simulated_tables_are_the_snapshot_without_empty_sequences_and_copies_of_it():
    tables = from_rows([[3, 1], [], [0]], [6, 0, 4], 4, 5)
    workload = from_snapshot("peak", tables)
    assert list(workload.lengths) == [6, 4]
    first, second = make_tables(workload, 4, 10, "simulated", 2)
    assert first.tolist() == [[3, 1], [0, 0]] and (second - first == 5).all()
    with pytest.raises(InputError, match="its block size is 4"):
        make_tables(workload, 8, 10, "simulated", 1)


def test_a_pool_that_is_too_small_and_an_unknown_kind_are_refused():
    with pytest.raises(InputError, match="9 blocks is too small"):
        make_tables(SMALL, 4, 9, "shuffled", 1)
    with pytest.raises(InputError, match="tables must be one of"):
        make_tables(SMALL, 4, 9, "spread", 1)


TREE = Workload("tree", np.full(8, 52), shared=((1, 16), (4, 24)))


@pytest.mark.parametrize("kind", ["contiguous", "shuffled"])
def test_sequences_share_the_blocks_of_their_groups_and_no_others(kind):
    num_blocks = num_blocks_for(TREE, 8, kind, 2)
    assert num_blocks == 2 * (2 + 4 * 3 + 8 * 2)
    tables = make_tables(TREE, 8, num_blocks, kind, 2)
    for table in tables:
        assert (table[:, :2] == table[0, :2]).all() and (table[::2, 2:5] == table[1::2, 2:5]).all()
        assert len(np.unique(table[::2, 2:5])) == 12 and len(np.unique(table[:, 5:])) == 16
    assert len(np.unique(tables)) == num_blocks


def test_what_is_shared_counts_once_in_unique_bytes():
    assert TREE.unique_kv_elements == 2 * 8 * 128 * (16 + 4 * 24 + 8 * 12)
    assert builtin()["S1"].unique_kv_elements == 2 * 8 * 128 * (8192 + 64 * 512)
    assert builtin()["W4"].unique_kv_elements == builtin()["W4"].kv_elements
    sharing = from_snapshot("peak", from_rows([[3, 1], [3, 0]], [6, 4], 4, 5, shared=True))
    assert sharing.unique_kv_elements == 2 * 8 * 128 * 6


def test_tables_that_would_take_shared_blocks_apart_are_refused():
    with pytest.raises(InputError, match="take apart what the sequences of tree share"):
        make_tables(TREE, 8, 100, "sorted", 1)


def test_a_decode_step_reads_k_and_v_of_each_token_once_and_prefill_counts_visible_pairs_only():
    assert builtin()["W1"].kv_elements == 2 * 8 * 128 * 64 * 4096
    prompt = Workload("prompt", np.array([3]), q_len=3)
    assert prompt.flops == 4 * 32 * 128 * (1 + 2 + 3)
    assert Workload("chunk", np.array([10]), q_len=2).flops == 4 * 32 * 128 * (9 + 10)


def test_builtin_batches_are_the_same_in_every_run():
    assert (builtin()["R1"].lengths == builtin()["R1"].lengths).all()
    assert builtin()["W4"].lengths[:5].tolist() == [16384, 1, 16, 17, 31]
