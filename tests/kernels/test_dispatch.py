"""Which kernel runs: the rules of decode and prefill, and what a user may ask for against them."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'pagesim[kernel]'")
pytest.importorskip("triton", reason="triton is not installed: pip install 'pagesim[kernel]' on Linux")

from cases import make_case

from pagesim.errors import InputError
from pagesim.kernels import dispatch
from pagesim.kernels.dispatch import (
    Cache, Mask, paged_decode, paged_prefill, plan_decode, why_general, why_general_prefill)
from pagesim.kernels.harness.check import compare


def decode(case, plan):
    return paged_decode(case.q, case.cache, case.block_table, case.lengths_tensor(), plan, mask=case.mask,
                        out=case.poisoned_out())


def test_the_rule_says_why_the_general_kernel_runs(device):
    case = make_case([5, 20], window=3, device=device)
    reason = why_general(case.q, case.cache, case.lengths, case.mask)
    assert reason == "the device is cpu" if device == "cpu" else reason
    assert plan_decode(case.q, case.cache, case.lengths, mask=case.mask).kernel == "general"


@pytest.mark.parametrize("capability, new_triton, reason", [
    ((9, 0), True, None),
    ((10, 0), True, "compute capability is 10.0, not 9.0"),
    ((8, 6), True, "compute capability is 8.6, not 9.0"),
    ((9, 0), False, "older than 3.6"),
])
def test_the_rule_asks_for_the_gpu_and_the_triton_that_the_hopper_kernels_need(monkeypatch, capability, new_triton,
                                                                               reason):
    monkeypatch.setattr(dispatch, "_capability", lambda device: capability)
    monkeypatch.setattr(dispatch, "num_sms", lambda device: 132)
    monkeypatch.setattr(dispatch, "NEW_TRITON", new_triton)
    q = SimpleNamespace(device=SimpleNamespace(type="cuda", index=0), dtype=torch.bfloat16, shape=(64, 1, 32, 128))
    found = why_general(q, Cache(*[torch.empty(2, 16, 8, 128, dtype=torch.bfloat16)] * 2), np.full(64, 4096))
    assert found is reason is None or reason in found


@pytest.mark.parametrize("num_kv_heads, head_dim, block_size, mask, reason", [
    (1, 128, 16, {}, None),
    (6, 80, 32, {}, None),
    (8, 256, 16, {"window": 1000}, None),
    (8, 72, 16, {}, "head_dim is 72, not a multiple of 16 from 64 to 256"),
    (2, 192, 16, {}, "head_dim is 192 and 2 KV heads are not a multiple of 4"),
    (2, 128, 8, {}, "of blocks of 8 tokens, not a multiple of 16, with 2 KV heads"),
    (8, 96, 1, {}, "of blocks of 1 tokens, not a multiple of 16, with head_dim 96"),
    (8, 128, 16, {"window": 10}, "the batch is small"),
    (8, 128, 16, {"softcap": 30.0}, "of a soft cap or sinks"),
])
def test_the_rule_of_decode_says_which_shapes_the_hopper_kernel_takes(monkeypatch, num_kv_heads, head_dim, block_size,
                                                                      mask, reason):
    monkeypatch.setattr(dispatch, "_capability", lambda device: (9, 0))
    monkeypatch.setattr(dispatch, "num_sms", lambda device: 132)
    monkeypatch.setattr(dispatch, "NEW_TRITON", True)
    q = SimpleNamespace(device=SimpleNamespace(type="cuda", index=0), dtype=torch.bfloat16,
                        shape=(256, 1, 4 * num_kv_heads, head_dim))
    cache = Cache(*[torch.empty(2, block_size, num_kv_heads, head_dim, dtype=torch.bfloat16)] * 2)
    assert why_general(q, cache, np.full(256, 2048), Mask(**mask)) == reason


@pytest.mark.parametrize("lengths, block_size, head_dim, one", [
    ([1500] * 24, 16, 128, True),
    ([4096] * 64, 16, 128, False),  # enough for every CTA
    ([4096] * 4, 16, 128, False),  # whose rows stay in many parts
    ([1500] * 24, 8, 128, False),
    ([1500] * 24, 16, 256, False),
])
def test_a_cta_takes_one_head_of_several_short_sequences(monkeypatch, lengths, block_size, head_dim, one):
    monkeypatch.setattr(dispatch, "num_sms", lambda device: 132)
    q = torch.empty((len(lengths), 1, 32, head_dim), dtype=torch.bfloat16)
    cache = Cache(*[torch.empty(2, block_size, 8, head_dim, dtype=torch.bfloat16)] * 2)
    assert dispatch.takes_one_head(q, cache, np.array(lengths)) is one


@pytest.mark.parametrize("capacity_tokens", [None, 4000])
def test_a_plan_updated_to_other_lengths_computes_what_a_new_one_does(device, capacity_tokens):
    first = make_case([700, 3, 0], device=device)
    plan = plan_decode(first.q, first.cache, first.lengths, capacity_tokens=capacity_tokens)
    for lengths in ([1, 2, 3], [3000, 3, 900], [0, 600, 90]):
        case = make_case(lengths, device=device, seed=sum(lengths))
        plan.update(case.lengths)
        assert compare(decode(case, plan), case.expected()).passed


def test_a_plan_refuses_another_batch_size_and_more_tokens_than_it_has_room_for(device):
    case = make_case([40, 40], device=device)
    plan = plan_decode(case.q, case.cache, case.lengths, capacity_tokens=80)
    for lengths in ([40], [41, 40]):
        with pytest.raises(InputError, match="2 sequences of at most 80 tokens"):
            plan.update(np.array(lengths))


def test_an_unknown_kernel_and_one_that_cannot_run_are_refused(device):
    case = make_case([5], device=device, block_size=24)
    with pytest.raises(InputError, match="hopper, general, got 'fast'"):
        plan_decode(case.q, case.cache, case.lengths, kernel="fast")
    with pytest.raises(InputError, match="does not take this"):
        plan_decode(case.q, case.cache, case.lengths, mask=replace(case.mask, window=3), kernel="hopper")


@pytest.fixture
def chunks(device):
    return make_case([40, 7], q_len=7, window=5, device=device)  # no Hopper kernel takes a window


def prefill(chunks, **options):
    first = torch.tensor([0, 7, 14], dtype=torch.int32, device=chunks.q.device)
    return paged_prefill(chunks.q.flatten(0, 1), chunks.cache, chunks.block_table, chunks.lengths_tensor(), first, 7,
                         mask=chunks.mask, **options)


@pytest.mark.parametrize("kernel", [None, "general"])
def test_what_the_hopper_kernel_does_not_take_goes_to_the_general_one(chunks, kernel):
    assert why_general_prefill(chunks.q.flatten(0, 1), chunks.cache, 2, chunks.mask) is not None
    out = prefill(chunks, kernel=kernel)
    assert compare(out.view_as(chunks.q), chunks.expected()).passed


def test_of_prefill_too_an_unknown_kernel_and_one_that_cannot_run_are_refused(chunks):
    with pytest.raises(InputError, match="hopper, general, got 'fast'"):
        prefill(chunks, kernel="fast")
    with pytest.raises(InputError, match="does not take this"):
        prefill(chunks, kernel="hopper")


@pytest.mark.parametrize("num_queries, num_seqs, block_size, reason", [
    (8192, 1, 16, None),
    (512, 1, 48, None),
    (80 * 32, 32, 16, None),
    (79 * 32, 32, 16, "the sequences have few queries"),
    (511, 1, 16, "the batch is small"),
    (0, 0, 16, "there are no queries"),
    (8192, 1, 24, "blocks of 24 tokens are not a multiple of 16"),
])
def test_on_its_gpu_the_rule_looks_at_queries_and_blocks(monkeypatch, num_queries, num_seqs, block_size, reason):
    monkeypatch.setattr(dispatch, "_why_not_hopper", lambda *call: None)
    q, cache = torch.empty(num_queries, 4, 64), torch.empty(2, block_size, 2, 64)
    assert why_general_prefill(q, Cache(cache, cache), num_seqs) == reason


@pytest.mark.parametrize("block_size, box", [(16, 16), (48, 16), (64, 64), (96, 32), (256, 128)])
def test_a_box_lies_within_a_block_and_within_a_tile(block_size, box):
    from pagesim.kernels.hopper.prefill import TILE
    from pagesim.kernels.hopper.prefill_launch import make_shape

    assert make_shape(6, 2, 64, block_size).BOX.value == box
    assert block_size % box == TILE.value % box == 0
