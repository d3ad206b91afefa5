"""Both decode kernels on a GPU, every unused slot NaN, each row against the definition in float64."""

import itertools
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'pagesim[kernel]'")
pytest.importorskip("triton", reason="triton is not installed: pip install 'pagesim[kernel]' on Linux")

from cases import make_case
from launching import RAGGED, check, run

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("block_size, layout, dtype, heads, q_len, head_dim", [
    (16, "NHD", "bfloat16", (32, 8), 1, 128),
    (16, "HND", "bfloat16", (32, 8), 1, 128),
    (32, "NHD", "float16", (32, 8), 4, 128),
    (48, "HND", "bfloat16", (56, 8), 2, 128),
    (64, "NHD", "bfloat16", (32, 32), 1, 128),
    (256, "HND", "float16", (16, 16), 3, 128),
    (16, "NHD", "bfloat16", (4, 4), 1, 128),
    (16, "HND", "float16", (96, 12), 2, 128),
    (16, "NHD", "bfloat16", (128, 8), 1, 128),
    (16, "NHD", "bfloat16", (32, 8), 1, 64),
    (64, "HND", "float16", (20, 4), 3, 64),
    (128, "NHD", "float16", (24, 8), 5, 128),
    (1, "NHD", "bfloat16", (32, 8), 1, 128),
    (1, "HND", "float16", (20, 4), 2, 64),
    (8, "HND", "bfloat16", (32, 8), 4, 128),
    (3, "NHD", "bfloat16", (16, 16), 1, 64),
    (24, "NHD", "float16", (28, 4), 2, 128),
    (40, "HND", "bfloat16", (32, 32), 1, 128),
    (16, "NHD", "bfloat16", (8, 1), 1, 128),
    (16, "HND", "float16", (16, 2), 2, 128),
    (32, "NHD", "bfloat16", (12, 6), 1, 128),
    (48, "HND", "bfloat16", (24, 3), 2, 64),
    (256, "NHD", "float16", (15, 1), 1, 64),
    (16, "NHD", "bfloat16", (16, 8), 1, 256),
    (64, "HND", "float16", (16, 4), 4, 192),
    (16, "NHD", "bfloat16", (32, 32), 1, 96),
    (16, "HND", "bfloat16", (32, 32), 1, 80),
    (64, "NHD", "float16", (30, 6), 3, 80),
    (16, "NHD", "bfloat16", (2, 1), 8, 112),
])
def test_the_hopper_kernel_is_right_for_ragged_lengths(hopper, block_size, layout, dtype, heads, q_len, head_dim):
    case = make_case(RAGGED, num_q_heads=heads[0], num_kv_heads=heads[1], head_dim=head_dim, q_len=q_len,
                     dtype=getattr(torch, dtype), block_size=block_size, layout=layout, device="cuda",
                     seed=block_size + q_len)
    check(case, run(case, "hopper"))


@pytest.mark.parametrize("block_size, group, head_dim, dtype, layout", [
    (1, 4, 128, "bfloat16", "NHD"),
    (3, 1, 64, "float16", "HND"),
    (8, 8, 128, "bfloat16", "HND"),
    (16, 24, 80, "bfloat16", "NHD"),
    (24, 3, 96, "float16", "NHD"),
    (64, 5, 192, "bfloat16", "HND"),
    (256, 7, 256, "float16", "NHD"),
    (16, 71, 64, "float16", "NHD"),
    (16, 4, 128, "float32", "NHD"),
    (5, 1, 256, "float32", "HND"),
    (16, 4, 128, "float16", "HND"),
])
@pytest.mark.parametrize("q_len", [1, 4])
def test_the_general_kernel_is_right_for_ragged_lengths(block_size, group, head_dim, dtype, layout, q_len):
    case = make_case(RAGGED, num_q_heads=2 * group, num_kv_heads=2, head_dim=head_dim, q_len=q_len,
                     dtype=getattr(torch, dtype), block_size=block_size, layout=layout, device="cuda", seed=group)
    check(case, run(case, "general"))


@pytest.mark.parametrize("window, softcap, scales, cache", [
    (0, None, (1, 1), None),
    (64, None, (1, 1), None),
    (100, 30.0, (1, 1), None),
    (None, 5.0, (1, 1), None),
    (None, None, (0.5, 2.0), "float8_e4m3fn"),
    (64, 20.0, (0.25, 3.0), "float8_e4m3fn"),
])
def test_the_general_kernel_is_right_with_windows_soft_caps_and_an_fp8_cache(window, softcap, scales, cache):
    case = make_case(RAGGED, num_q_heads=8, num_kv_heads=2, head_dim=128, q_len=3, dtype=torch.bfloat16, window=window,
                     softcap=softcap, k_scale=scales[0], v_scale=scales[1], cache_dtype=cache and getattr(torch, cache),
                     device="cuda")
    check(case, run(case, "general"))


@pytest.mark.parametrize("window", [0, 1, 15, 16, 100, 1023])
@pytest.mark.parametrize("block_size, heads, q_len, head_dim", [
    (16, (32, 8), 1, 128),
    (64, (16, 8), 2, 256),
    (32, (8, 1), 2, 128),
    (16, (12, 6), 8, 96),
    (8, (32, 8), 4, 64),
    (16, (64, 32), 3, 128),
])
def test_the_hopper_kernel_is_right_with_windows(hopper, block_size, heads, q_len, head_dim, window):
    case = make_case([n and max(n, q_len) for n in RAGGED], num_q_heads=heads[0], num_kv_heads=heads[1],
                     head_dim=head_dim, q_len=q_len, dtype=torch.bfloat16, block_size=block_size, window=window,
                     device="cuda", seed=window)
    check(case, run(case, "hopper"))


@pytest.mark.parametrize("heads, head_dim", [((8, 1), 128), ((16, 2), 64), ((16, 8), 256), ((16, 16), 80),
                                             ((12, 3), 96)])
@pytest.mark.parametrize("lengths", [[40_000], [33_000, 17, 20_000], [700] * 132, [9000, 9000, 5, 1], [20_000] * 9])
@pytest.mark.parametrize("window", [None, 8000])
def test_rows_of_other_shapes_cut_into_few_and_many_parts_merge_right(hopper, heads, head_dim, lengths, window):
    case = make_case(lengths, num_q_heads=heads[0], num_kv_heads=heads[1], head_dim=head_dim, dtype=torch.bfloat16,
                     window=window, device="cuda")
    check(case, run(case, "hopper"))


@pytest.mark.parametrize("kernel, block_size", [("hopper", 16), ("hopper", 8), ("general", 16)])
@pytest.mark.parametrize("lengths",
                         [[40_000], [33_000, 17, 20_000], [3000] * 40, [700] * 132, [9000, 9000, 5, 1], [2500] * 9])
def test_rows_cut_into_few_and_many_parts_merge_right(hopper, kernel, block_size, lengths):
    case = make_case(lengths, num_q_heads=32, num_kv_heads=8, head_dim=128, dtype=torch.bfloat16, block_size=block_size,
                     device="cuda")
    check(case, run(case, kernel))


def test_a_row_whose_last_part_only_later_queries_see_merges_right(hopper):
    for length in (16 * 131 * 2 + 2, 16 * 131 * 2 + 1, 40_001):
        case = make_case([length], num_q_heads=32, num_kv_heads=8, head_dim=128, q_len=4, dtype=torch.bfloat16,
                         device="cuda")
        check(case, run(case, "hopper"))


@pytest.mark.parametrize("kernel", ["hopper", "general"])
def test_queries_that_see_nothing_get_zeros_among_hundreds_of_empty_sequences(hopper, kernel):
    case = make_case([0] * 300 + [5] + [0] * 300 + [2], num_q_heads=32, num_kv_heads=8, head_dim=128, q_len=4,
                     dtype=torch.bfloat16, device="cuda")
    out = run(case, kernel)
    check(case, out)
    assert (out[0] == 0).all() and (out[-1, :2] == 0).all() and (out[-1, 2:] != 0).any()


@pytest.mark.parametrize("kernel, block_size", [("hopper", 16), ("hopper", 64), ("hopper", 8), ("general", 16)])
def test_no_entry_behind_a_sequences_end_is_followed(hopper, kernel, block_size):
    case = make_case(RAGGED, num_q_heads=32, num_kv_heads=8, head_dim=128, dtype=torch.bfloat16, block_size=block_size,
                     device="cuda")
    table = torch.where(case.block_table == 0, torch.iinfo(torch.int32).max, case.block_table)
    assert torch.equal(run(replace(case, block_table=table), kernel), run(case, kernel))


@pytest.mark.parametrize("kernel", ["hopper", "general"])
def test_logits_far_below_any_sentinel_are_not_taken_for_masked(hopper, kernel):
    case = make_case([3000, 40, 1], num_q_heads=32, num_kv_heads=8, head_dim=128, dtype=torch.bfloat16, device="cuda")
    case.cache.k[..., 0] = torch.where(case.cache.k[..., 0].isnan(), float("nan"), 1.0)
    case.q[..., 0] = -3e6  # every logit near -2.7e5
    out = run(case, kernel)
    assert out.isfinite().all()
    check(case, out)


@pytest.mark.parametrize("kernel, block_size, num_kv_heads, head_dim", [
    ("hopper", 16, 8, 128),
    ("hopper", 1, 8, 128),
    ("hopper", 1, 4, 64),  # more blocks than 2^23
    ("general", 16, 8, 128),
    ("general", 1, 8, 128),
])
@pytest.mark.parametrize("elements", [2**31, 2**32])
def test_blocks_at_the_end_of_a_pool_past_2_to_the_31_and_32_elements_are_read_right(
    hopper, kernel, block_size, num_kv_heads, head_dim, elements
):
    free, _ = torch.cuda.mem_get_info()
    if free < 4 * elements * 2.2:
        pytest.skip(f"needs {4 * elements * 2.2 / 1e9:.0f} GB of free GPU memory, {free / 1e9:.0f} are free")
    small = make_case([1000, 17, 300], num_q_heads=32, num_kv_heads=num_kv_heads, head_dim=head_dim,
                      dtype=torch.bfloat16, block_size=block_size, device="cuda")
    num_blocks = elements // (block_size * num_kv_heads * head_dim) + 2 * len(small.cache.k)
    shift = num_blocks - len(small.cache.k)
    caches = []
    for cache in (small.cache.k, small.cache.v):
        large = torch.full((num_blocks, *cache.shape[1:]), float("nan"), dtype=cache.dtype, device="cuda")
        large[shift:] = cache
        caches.append(large)
    table = small.block_table + shift
    check(small, run(small.moved(*caches, block_table=table), kernel))


@pytest.mark.parametrize("kernel, layout, block_size",
                         list(itertools.product(["hopper", "general"], ["NHD", "HND"], [16, 8])))
def test_a_strided_pool_of_interleaved_layers_is_read_right(hopper, kernel, layout, block_size):
    case = make_case(RAGGED, num_q_heads=32, num_kv_heads=8, head_dim=128, dtype=torch.bfloat16, layout=layout,
                     block_size=block_size, device="cuda")
    blocks, *inner = case.cache.k.shape
    packed = torch.full((blocks, 3, 2, *inner), float("nan"), dtype=torch.bfloat16, device="cuda")
    packed[:, 1, 0], packed[:, 1, 1] = case.cache.k, case.cache.v
    check(case, run(case.moved(packed[:, 1, 0], packed[:, 1, 1]), kernel))
