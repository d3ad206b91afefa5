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
        assert kind == "same" or (table[1] == 0).all() and (table[0, 2:] == 0).all()


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


def test_a_decode_step_reads_k_and_v_of_each_token_once_and_prefill_counts_visible_pairs_only():
    assert builtin()["W1"].kv_elements == 2 * 8 * 128 * 64 * 4096
    prompt = Workload("prompt", np.array([3]), q_len=3)
    assert prompt.flops == 4 * 32 * 128 * (1 + 2 + 3)
    assert Workload("chunk", np.array([10]), q_len=2).flops == 4 * 32 * 128 * (9 + 10)


def test_builtin_batches_are_the_same_in_every_run():
    assert (builtin()["R1"].lengths == builtin()["R1"].lengths).all()
    assert builtin()["W4"].lengths[:5].tolist() == [16384, 1, 16, 17, 31]
