import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the kernels need torch")

from cases import make_case

from pagesim.kernels.cache import Cache
from pagesim.kernels.mask import Mask
from pagesim.kernels.reference import attention, blockwise_attention, gather, paged_attention, visible


def random_inputs(q_len: int, length: int, num_q_heads: int = 6, num_kv_heads: int = 2, head_dim: int = 8,
                  seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)
    return draw(q_len, num_q_heads, head_dim), draw(length, num_kv_heads, head_dim), draw(length, num_kv_heads,
                                                                                          head_dim)


@settings(max_examples=60, deadline=None)
@given(q_len=st.integers(1, 5), length=st.integers(0, 40), block_size=st.integers(1, 17),
       window=st.none() | st.integers(0, 30), softcap=st.none() | st.floats(0.1, 50), scale=st.floats(0.01, 3),
       sinks=st.booleans(), seed=st.integers(0, 99))
def test_the_recurrence_over_blocks_equals_the_definition(q_len, length, block_size, window, softcap, scale, sinks,
                                                          seed):
    q, k, v = random_inputs(q_len, length, seed=seed)
    mask = Mask(scale, window, softcap, 5 * torch.randn(6, dtype=torch.float64) if sinks else None)
    whole = attention(q, k, v, mask)
    blocks = blockwise_attention(q, k, v, block_size, mask)
    torch.testing.assert_close(blocks, whole, rtol=1e-12, atol=1e-12)


def test_the_definition_is_torchs_attention():
    q, k, v = random_inputs(3, 20)
    expected = torch.nn.functional.scaled_dot_product_attention(
        q.transpose(0, 1), k.repeat_interleave(3, 1).transpose(0, 1), v.repeat_interleave(3, 1).transpose(0, 1),
        attn_mask=visible(3, 20, None, q.device), scale=0.3).transpose(0, 1)
    torch.testing.assert_close(attention(q, k, v, Mask(0.3)), expected, rtol=1e-12, atol=1e-12)


def test_two_tokens_by_hand():
    q = torch.tensor([[[1.0, 0.0]]], dtype=torch.float64)
    k = torch.tensor([[[0.0, 5.0]], [[math.log(3.0), 0.0]]], dtype=torch.float64)
    v = torch.tensor([[[4.0, 0.0]], [[0.0, 8.0]]], dtype=torch.float64)
    torch.testing.assert_close(attention(q, k, v, Mask(1.0)), torch.tensor([[[1.0, 6.0]]], dtype=torch.float64))


def test_a_query_sees_itself_what_is_before_it_and_no_more_than_the_window():
    assert visible(2, 4, None, "cpu").tolist() == [[True, True, True, False], [True, True, True, True]]
    assert visible(2, 4, 1, "cpu").tolist() == [[False, True, True, False], [False, False, True, True]]
    assert visible(1, 3, 0, "cpu").tolist() == [[False, False, True]]


def test_a_query_that_sees_nothing_gives_zeros():
    q, k, v = random_inputs(3, 1)
    for out in (attention(q, k, v, Mask(1.0)), blockwise_attention(q, k, v, 4)):
        assert (out[:2] == 0).all() and torch.equal(out[2], v[0].repeat_interleave(3, 0))
    assert (attention(*random_inputs(1, 0)) == 0).all()


def test_both_layouts_and_any_table_gather_the_sequence_in_order():
    token = torch.arange(12.0).reshape(4, 3, 1, 1)  # slot s of block b holds 3b + s
    table = torch.tensor([2, 0, 3], dtype=torch.int32)
    for cache, layout in ((token, "NHD"), (token.transpose(1, 2), "HND")):
        assert gather(cache, table, 7, layout).flatten().tolist() == [6, 7, 8, 0, 1, 2, 9]


def test_a_sink_is_a_token_more_whose_value_is_zero():
    q, k, v = random_inputs(1, 20, num_q_heads=2, num_kv_heads=2)
    sinks = torch.tensor([0.5, -3.0], dtype=torch.float64)
    more = q[0] * (sinks / (q[0] * q[0]).sum(-1))[:, None]  # a key whose score with its head's query is the sink
    expected = attention(q, torch.cat([more[None], k]), torch.cat([torch.zeros_like(v[:1]), v]), Mask(1.0))
    torch.testing.assert_close(attention(q, k, v, Mask(1.0, sinks=sinks)), expected, rtol=1e-12, atol=1e-12)


def test_scales_multiply_what_is_cached():
    case = make_case([9], dtype=torch.float32, k_scale=0.5, v_scale=3.0)
    plain = paged_attention(case.q, Cache(case.cache.k * 0.5, case.cache.v * 3.0), case.block_table, [9])
    torch.testing.assert_close(case.expected(), plain, rtol=1e-6, atol=1e-6)
