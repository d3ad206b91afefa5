"""Simulated steps on real memory: what a replay must notice, and that it stays silent where all is right."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from pagesim.core.blocktables import from_rows
from pagesim.errors import InputError
from pagesim.kernels.harness import replay as module
from pagesim.kernels.harness.contents import Model
from pagesim.kernels.harness.corruption import corrupt
from pagesim.kernels.harness.replay import Replay
from pagesim.kernels.harness.speed import decode_bytes

MODEL = Model(num_q_heads=2, num_kv_heads=1, head_dim=16, layers=1, dtype=torch.float32, cache_dtype=torch.float32)
FP8 = Model(num_q_heads=2, num_kv_heads=1, head_dim=16, layers=2, dtype=torch.bfloat16, cache_dtype=torch.float8_e4m3fn,
            layout="HND")

MLA = Model(num_q_heads=3, num_kv_heads=1, head_dim=40, layers=2, dtype=torch.float16, cache_dtype=torch.float16,
            latent_dim=24)

# Sequence 7 grows over a block's end, 8 ends, 9 takes its blocks; then 7 is preempted and comes back in other blocks.
STEPS = [
    from_rows([[5, 1], [3, 0]], [7, 5], 4, 6, seq_ids=[7, 8], origin={"step": 40}),
    from_rows([[5, 1], [3, 0]], [8, 6], 4, 6, seq_ids=[7, 8], origin={"step": 41}),
    from_rows([[5, 1, 2], [0, 3]], [9, 7], 4, 6, seq_ids=[7, 9], origin={"step": 42}),
    from_rows([[0, 3]], [8], 4, 6, seq_ids=[9], origin={"step": 43}),
    from_rows([[0, 3, 5], [4, 2, 1]], [9, 9], 4, 6, seq_ids=[9, 7], origin={"step": 44}),
]


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("cache_dtype", [torch.float16, torch.float8_e4m3fn])
def test_an_mla_model_caches_its_latent_once_and_every_decoded_row_is_right(cache_dtype, layout, device):
    replay = Replay(STEPS, replace(MLA, layout=layout, cache_dtype=cache_dtype), device, prefill_tokens=3)
    rows = [row for tables in STEPS for row in replay.step(tables)]
    assert all(row.verdict.passed for row in rows), rows
    assert [(row.kernel, row.verdict.num_rows) for row in rows[::2]] == [("decode (mla, general)", n) for n in (6, 6, 6, 3, 6)]
    cache = replay.cache(1)
    assert cache.k.data_ptr() == cache.v.data_ptr()
    assert decode_bytes(replay) == 18 * 40 * cache_dtype.itemsize + 2 * 3 * (40 + 24) * 2 + 4 * 6


def test_an_mla_model_has_one_vector_longer_than_its_latent():
    for change in ({"num_kv_heads": 3}, {"latent_dim": 40}):
        with pytest.raises(InputError, match="MLA caches one vector a token, longer than its latent"):
            replace(MLA, **change)


@pytest.mark.parametrize("model", [MODEL, FP8], ids=["fp32", "fp8-two-layers-HND"])
def test_every_row_of_every_step_is_right(model, device):
    replay = Replay(STEPS, model, device, prefill_tokens=3)
    rows = [row for tables in STEPS for row in replay.step(tables)]
    assert all(row.verdict.passed for row in rows), rows
    decodes = [row for row in rows if row.kernel.startswith("decode")]
    assert [row.num_seqs for row in decodes[::model.layers]] == [2, 2, 2, 1, 2]
    assert [row.verdict.num_rows for row in decodes[::model.layers]] == [4, 4, 4, 2, 4]
    prefills = [row for row in rows if row.kernel == "prefill"]
    assert [row.step for row in prefills] == [step for step in (40, 42, 44) for _ in range(model.layers)]
    assert prefills[0].verdict.num_rows == 12  # two sequences, their last three tokens, two heads


def replayed(steps, device):
    replay = Replay(steps, MODEL, device, prefill_tokens=0)
    return [row for tables in steps for row in replay.step(tables)]


def test_entries_that_are_not_uploaded_show(device, monkeypatch):
    def follow_without_upload(self, tables):
        before = self._table.clone()
        result = follow(self, tables)
        if tables.origin["step"] > 40:
            self._table.copy_(before)
        return result

    follow = Replay._follow
    monkeypatch.setattr(Replay, "_follow", follow_without_upload)
    rows = replayed(STEPS[:3], device)
    assert [row.verdict.passed for row in rows] == [True, True, False]
    assert rows[2].verdict.num_wrong == 4  # of sequence 9, in whose row those of 8 stand, and of 7 with its new block


def test_tokens_written_to_a_wrong_slot_show(device, monkeypatch):
    def write_elsewhere(k, v, cache, slots):
        write(k, v, cache, torch.where(slots == 20, 19, slots))  # slot 20: token 0 of sequence 7

    write = module.write_cache
    monkeypatch.setattr(module, "write_cache", write_elsewhere)
    first = replayed(STEPS[:1], device)[0]
    assert not first.verdict.passed and first.where[0] == 0 and first.verdict.num_wrong == 2


def test_a_reused_block_that_still_holds_its_old_owners_keys_shows(device, monkeypatch):
    def write_only_at_first(k, v, cache, slots):
        if len(calls) < 2:
            write(k, v, cache, slots)
        calls.append(slots)

    calls = []
    write = module.write_cache
    monkeypatch.setattr(module, "write_cache", write_only_at_first)
    rows = replayed(STEPS[:3], device)
    assert [row.verdict.passed for row in rows] == [True, True, False]
    assert rows[2].verdict.num_wrong == 4  # sequence 9 sees keys of sequence 8, sequence 7 a slot that nobody wrote


def test_parallel_samples_of_one_request_are_told_apart(device):
    steps = [from_rows([[0], [1]], [2, 2], 4, 2, seq_ids=[5, 5]), from_rows([[0], [1]], [3, 3], 4, 2, seq_ids=[5, 5]),
             from_rows([[1]], [4], 4, 2, seq_ids=[5])]  # the first is preempted: now the other is the first
    assert all(row.verdict.passed for row in replayed(steps, device))


def test_an_invalid_table_is_refused_before_anything_runs(device):
    with pytest.raises(InputError, match="block 1 is owned twice"):
        Replay([from_rows([[0, 1], [1]], [8, 2], 4, 2)], MODEL, device, prefill_tokens=0)
    with pytest.raises(InputError, match="of one pool"):
        Replay([from_rows([[0]], [1], 4, 2), from_rows([[0]], [1], 4, 3)], MODEL, device, prefill_tokens=0)


PREFIX = from_rows([[4, 2, 5], [4, 2], [0], [4, 6]], [11, 7, 3, 8], 4, 7, shared=True)


def test_sequences_that_share_blocks_hold_the_same_tokens_there(device, monkeypatch):
    written, write = [], module.write_cache
    monkeypatch.setattr(module, "write_cache", lambda *arguments: (
        written.append(arguments[-1]), write(*arguments)))
    replay = Replay([PREFIX], MODEL, device, prefill_tokens=3)
    rows = replay.step(PREFIX)
    assert [row.kernel[:7] for row in rows] == ["decode ", "prefill"] * MODEL.layers
    assert all(row.verdict.passed and row.verdict.num_wrong == 0 for row in rows)
    assert sorted(written[0][written[0] >= 0].tolist()) == sorted(set(PREFIX.slots().tolist()))
    found = corrupt(replay, PREFIX, 0, 0)  # sequences 1 and 3 have this block too
    assert (found.other_place, found.other_entry, found.other_block) == (2, 0, 0)
    assert found.changed == [0, 2]


def test_shared_blocks_are_of_one_step(device):
    with pytest.raises(InputError, match="several steps takes no shared blocks"):
        Replay([PREFIX, PREFIX], MODEL, device, prefill_tokens=0)


def test_exchanged_entries_change_the_two_sequences_and_no_other(device):
    tables = from_rows([[5, 1], [3, 0], [2, 6], [4]], [8, 5, 7, 1], 4, 7)
    replay = Replay([tables], MODEL, device, prefill_tokens=0)
    replay.step(tables)
    found = corrupt(replay, tables, 1, 0)
    assert (found.block, found.other_place, found.other_entry, found.other_block) == (3, 2, 0, 2)
    assert found.changed == [1, 2] and found.unchanged == [0, 3]


def test_a_lone_sequence_gets_a_free_block_of_poison(device):
    tables = from_rows([[5, 1]], [8], 4, 7)
    replay = Replay([tables], MODEL, device, prefill_tokens=0)
    replay.step(tables)
    found = corrupt(replay, tables, 0, 1)
    assert found.other_place is None and found.other_block == 0 and found.changed == [0]


def test_only_entries_in_use_can_be_corrupted(device):
    tables = from_rows([[5, 1, 2]], [8], 4, 7)
    replay = Replay([tables], MODEL, device, prefill_tokens=0)
    with pytest.raises(InputError, match="uses entries 0 to 1"):
        corrupt(replay, tables, 0, 2)
    with pytest.raises(InputError, match="there is no sequence 1 to corrupt; they are 0 to 0"):
        corrupt(replay, tables, 1, 0)


def test_bytes_of_a_decode_count_each_key_and_value_once(device):
    tables = from_rows([[5, 1], [3]], [8, 3], 4, 7)
    replay = Replay([tables], MODEL, device, prefill_tokens=0)
    replay.step(tables)
    assert decode_bytes(replay) == 2 * 11 * 16 * 4 + 2 * 2 * 2 * 16 * 4 + 4 * 3


def test_a_token_that_sequences_share_counts_once_in_the_bytes_of_a_decode(device):
    replay = Replay([PREFIX], MODEL, device, prefill_tokens=0)
    replay.step(PREFIX)
    queries_and_entries = decode_bytes(replay) - 2 * len(set(PREFIX.slots().tolist())) * 16 * 4
    assert queries_and_entries == 2 * 4 * 2 * 16 * 4 + 4 * (3 + 2 + 1 + 2)


def test_a_batch_without_sequences_is_right(device):
    tables = from_rows([], [], 4, 7)
    assert all(row.verdict.passed for row in Replay([tables], MODEL, device, prefill_tokens=4).step(tables))
    assert np.array_equal(tables.slots(), [])
