import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagesim.core.blocktables import BlockTables, from_rows, load, renumbered
from pagesim.errors import InputError


@st.composite
def tables(draw):
    block_size = draw(st.integers(1, 5))
    num_blocks = draw(st.integers(0, 30))
    ids = draw(st.permutations(range(num_blocks)))
    cuts = sorted(draw(st.lists(st.integers(0, num_blocks), max_size=6)))
    rows = [ids[a:b] for a, b in zip([0, *cuts], cuts, strict=False)]
    lengths = [draw(st.integers(0, len(row) * block_size)) for row in rows]
    return from_rows(rows, lengths, block_size, num_blocks, origin={"step": draw(st.integers(0, 9))})


def assert_equal(one: BlockTables, other: BlockTables) -> None:
    for name in ("block_ids", "offsets", "lengths", "seq_ids"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert getattr(one, name).dtype == getattr(other, name).dtype
    for name in ("block_size", "num_blocks", "origin", "shared"):
        assert getattr(one, name) == getattr(other, name)


@given(tables())
def test_disjoint_tables_are_valid_and_survive_a_file(tmp_path_factory, tables):
    tables.validate()
    path = tmp_path_factory.mktemp("tables") / "peak.npz"
    tables.save(path)
    assert_equal(load(path), tables)


@given(tables())
def test_dense_rows_hold_each_table_and_the_fill(tables):
    dense = tables.dense(fill=-7)
    assert dense.dtype == np.int32 and dense.shape[0] == tables.num_seqs
    for seq in range(tables.num_seqs):
        row = tables.table(seq)
        np.testing.assert_array_equal(dense[seq, :len(row)], row)
        assert (dense[seq, len(row):] == -7).all()


@given(tables())
def test_renumbering_keeps_the_order_and_leaves_no_block_unused(tables):
    (small,) = renumbered([tables])
    small.validate()
    assert small.num_blocks == len(tables.block_ids) == len(set(small.block_ids.tolist()))
    np.testing.assert_array_equal(np.argsort(small.block_ids), np.argsort(tables.block_ids))


@given(tables())
def test_every_stored_token_has_a_slot_of_its_own_in_a_block_of_its_sequence(tables):
    slots = tables.slots()
    assert len(slots) == tables.lengths.sum() == len(set(slots.tolist()))
    blocks = np.split(slots // tables.block_size, np.cumsum(tables.lengths)[:-1])
    for seq in range(tables.num_seqs):
        used = tables.table(seq)[:-(-tables.lengths[seq] // tables.block_size)]
        np.testing.assert_array_equal(blocks[seq], np.repeat(used, tables.block_size)[:tables.lengths[seq]])


def test_slots_by_hand():
    assert from_rows([[3, 0], [], [2]], [5, 0, 1], 4, 5).slots().tolist() == [12, 13, 14, 15, 0, 8]


def test_tables_of_several_steps_are_renumbered_together():
    one, two = renumbered([from_rows([[9, 4]], [2], 1, 20), from_rows([[4], [17]], [1, 1], 1, 20)])
    assert one.block_ids.tolist() == [1, 0] and two.block_ids.tolist() == [0, 2] and one.num_blocks == two.num_blocks == 3


def test_select_keeps_the_order_it_is_given_and_the_sequence_numbers():
    tables = from_rows([[4], [], [2, 0]], [3, 0, 5], 3, 5, seq_ids=[70, 80, 90], origin={"step": 8})
    assert_equal(tables.select(np.array([2, 0])),
                 from_rows([[2, 0], [4]], [5, 3], 3, 5, seq_ids=[90, 70], origin={"step": 8}))


def test_a_table_may_own_more_blocks_than_its_tokens_fill():
    from_rows([[3, 1, 2]], [1], 16, 4).validate()


@pytest.mark.parametrize(("rows", "lengths", "message"), [
    ([[0, 1], [2, 4]], [5, 5], "sequence 1 entry 1 is block 4, outside the pool of 4 blocks"),
    ([[0, -1]], [5], "sequence 0 entry 1 is block -1, outside the pool of 4 blocks"),
    ([[0], [1]], [4, 5], "sequence 1 has 5 tokens and 1 table entries of 4 slots; a length is at least 0"),
    ([[0]], [-1], "sequence 0 has -1 tokens"),
    ([[0, 3], [], [1, 2, 3]], [8, 0, 9], "block 3 is owned twice: by sequence 0 entry 1 and by sequence 2 entry 2"),
    ([[2, 2]], [8], "block 2 is owned twice: by sequence 0 entry 0 and by sequence 0 entry 1"),
])
def test_a_wrong_table_is_named_by_sequence_and_entry_and_in_a_file_by_the_file_too(tmp_path, rows, lengths, message):
    tables = from_rows(rows, lengths, 4, 4)
    with pytest.raises(InputError, match=message):
        tables.validate()
    tables.save(tmp_path / "wrong.npz")
    with pytest.raises(InputError, match=f"wrong.npz: {message}"):
        load(tmp_path / "wrong.npz")


def test_tables_that_say_so_share_blocks_but_none_has_one_twice(tmp_path):
    tables = from_rows([[0, 1], [0, 2]], [8, 8], 4, 4, shared=True)
    tables.save(tmp_path / "shared.npz")
    assert_equal(load(tmp_path / "shared.npz"), tables)
    assert tables.select(np.array([1, 0])).shared and renumbered([tables])[0].shared
    with pytest.raises(InputError, match="sequence 1 entry 0 and by sequence 1 entry 1"):
        from_rows([[0, 1], [0, 0]], [8, 8], 4, 4, shared=True).validate()


def test_arrays_that_do_not_fit_together_are_refused_where_they_are_made():
    good = from_rows([[0]], [1], 1, 1)
    with pytest.raises(InputError, match="offsets must rise from 0 to the 1 entries"):
        BlockTables(good.block_ids, np.array([0, 2]), good.lengths, 1, 1, good.seq_ids)
    with pytest.raises(InputError, match="block_ids must be int32"):
        BlockTables(good.block_ids.astype(np.int64), good.offsets, good.lengths, 1, 1, good.seq_ids)
    with pytest.raises(InputError, match="block_size must be at least 1"):
        from_rows([[0]], [1], 0, 1)
    with pytest.raises(InputError, match="1 lengths need 2 offsets and as many seq_ids, got 2 and 2"):
        from_rows([[0]], [1], 1, 1, seq_ids=[0, 1])


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 broken"])
def test_a_file_that_is_no_snapshot_is_named(tmp_path, content):
    path = tmp_path / "x.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match="x.npz: cannot be read as a snapshot"):
        load(path)


def test_a_missing_file_a_foreign_npz_and_a_pickle_are_refused(tmp_path):
    with pytest.raises(InputError, match="absent.npz: cannot be read: No such file"):
        load(tmp_path / "absent.npz")
    np.savez(tmp_path / "foreign.npz", a=1)
    with pytest.raises(InputError, match="foreign.npz: not a snapshot of block tables"):
        load(tmp_path / "foreign.npz")
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(InputError, match="one.npy: cannot be read"):
        load(tmp_path / "one.npy")
    from_rows([], [], 1, 0).save(tmp_path / "good.npz")
    arrays = dict(np.load(tmp_path / "good.npz"))
    np.savez(tmp_path / "pickled.npz", **(arrays | {"seq_ids": np.array([object()])}))
    with pytest.raises(InputError, match="pickled.npz"):
        load(tmp_path / "pickled.npz")
    np.savez(tmp_path / "short.npz", **(arrays | {"offsets": np.array([0, 9])}))
    with pytest.raises(InputError, match="short.npz: "):
        load(tmp_path / "short.npz")


def test_the_origin_is_kept_as_json(tmp_path):
    origin = {"trace": "a.csv", "step": 12, "time_s": 0.5, "model": {"num_layers": 32}, "note": "naïve"}
    from_rows([[0]], [1], 1, 1, origin=origin).save(tmp_path / "t.npz")
    assert load(tmp_path / "t.npz").origin == json.loads(json.dumps(origin)) == origin
