"""What the Hopper decode kernel is compiled for, and where its sequences begin: the host's side, which needs no GPU."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", minversion="3.6", reason="Gluon needs triton 3.6")

from cases import make_case

from pagesim.kernels.hopper import decode_launch
from pagesim.kernels.hopper import plan as p

SM_SHARED_BYTES = 227 * 1024
OTHER_BYTES = 4 * 1024  # barriers, letters, and what Triton keeps of a reduction

SHAPES = [shape for shape in itertools.product((1, 2, 3, 4, 6, 8, 12, 16, 32, 40), range(64, 257, 16), (1, 4))
          if shape[1] <= 128 or shape[0] % 4 == 0]


@pytest.mark.parametrize("one_head", [False, True])
@pytest.mark.parametrize("num_kv_heads, head_dim, q_len", SHAPES)
def test_an_sm_has_room_for_the_ctas_that_a_plan_counts_on(num_kv_heads, head_dim, q_len, one_head):
    if one_head and head_dim > 128:
        pytest.skip("a CTA takes one head of at most 128 columns")
    shape = decode_launch.make_shape(q_len, 4 * num_kv_heads, num_kv_heads, head_dim, 16, one_head=one_head)
    heads, splits, warps, dim = (x.value for x in (shape.HEADS, shape.SPLITS, shape.WARPS, shape.DIM))
    assert heads * splits == warps == shape.LANES.value and num_kv_heads % heads == 0
    assert heads == 1 or not one_head
    ring = shape.NUM_SLOTS.value * warps * 16 * dim * 2
    meeting = warps * 16 * (dim + 2) * 4 if splits > 1 else 0
    assert shape.ctas_per_sm * (ring + meeting + OTHER_BYTES) <= SM_SHARED_BYTES
    assert shape.NUM_SLOTS.value >= 3, "a ring of two would fetch nothing while both are read"


@pytest.mark.parametrize("window", [0, 15, 16, 100, 5000])
@pytest.mark.parametrize("num_kv_heads, q_len", [(8, 1), (1, 3), (6, 16)])
def test_parts_hold_what_a_window_shows_and_less_than_16_tokens_before_it(window, num_kv_heads, q_len):
    lengths = np.array([0, 1, 15, 16, 17, 100, 117, 1000, 5017])
    lengths = np.where(lengths, np.maximum(lengths, q_len), 0)
    case = make_case(lengths.tolist(), num_q_heads=num_kv_heads, num_kv_heads=num_kv_heads, q_len=q_len, window=window)
    shape = decode_launch.make_shape(q_len, num_kv_heads, num_kv_heads, 64, 16, window)
    plan = decode_launch.HopperPlan(shape, case.q, case.cache, lengths, case.block_table.numpy(), 132)
    assert plan.shared is None
    records = plan.buffer.records.numpy()
    for seq, length in enumerate(lengths):
        parts = records[(records[:, p.SEQ] == seq) & (records[:, p.GROUP] == 0) & (records[:, p.NUM_TILES] > 0)]
        first = max(0, length - q_len - window)
        if not len(parts):
            assert length == 0
            continue
        assert first - 16 < parts[:, p.FIRST_TOKEN].min() <= first and (parts[:, p.FIRST_TOKEN] % 16 == 0).all()
        end = (parts[:, p.FIRST_TOKEN] + parts[:, p.NUM_TILES] * shape.tile_tokens).max()
        assert length <= end < length + shape.tile_tokens
