import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from far import FAR, far_like
from guarded import guarded
from pairwise import label, pairwise

from pagesim.errors import InputError
from pagesim.kernels.cache import Cache, poisoned_pool
from pagesim.kernels.general.cache_write import write_cache

FP16, BF16, FP32, FP8 = torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn


def new_tokens(num_tokens, heads, dim, dtype, device, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn((num_tokens, heads, dim), generator=generator).to(dtype).to(device) for _ in range(2))


def rows(cache, layout):
    """Slots in order, shape (num_slots, heads, dim)."""
    return (cache if layout == "NHD" else cache.transpose(1, 2)).flatten(0, 1)


MATRIX = pairwise({
    "dtypes": [(FP16, FP16), (BF16, BF16), (FP32, FP32), (FP16, FP8), (BF16, FP8), (FP32, FP8)],
    "block_size": [1, 3, 8, 16, 24, 64, 192, 256],
    "heads": [1, 2, 3, 8],
    "dim": [64, 80, 96, 128, 192, 256],
    "layout": ["NHD", "HND"],
    "num_tokens": [0, 1, "b - 1", "b", "b + 1", "2 b + 75"],
})


@pytest.mark.parametrize("row", MATRIX, ids=label)
def test_each_token_lands_in_its_slot_and_no_other_slot_changes(row, device):
    (dtype, cache_dtype), b, layout = row["dtypes"], row["block_size"], row["layout"]
    num_tokens = {"b - 1": b - 1, "b": b, "b + 1": b + 1, "2 b + 75": 2 * b + 75}.get(row["num_tokens"],
                                                                                      row["num_tokens"])
    num_blocks = -(-2 * num_tokens // b) + 1
    scales = (0.5, 4.0) if cache_dtype == FP8 else (1.0, 1.0)
    k, v = map(guarded, new_tokens(num_tokens, row["heads"], row["dim"], dtype, device))
    slots = torch.randperm(num_blocks * b, generator=torch.Generator().manual_seed(1))[:num_tokens]
    slots = guarded(slots.to(device))
    k_cache, v_cache = (guarded(poisoned_pool(num_blocks, b, row["heads"], row["dim"], layout=layout,
                                              dtype=cache_dtype, device=device)) for _ in range(2))
    write_cache(k, v, Cache(k_cache, v_cache, layout, scales), slots)
    for new, cache, scale in ((k, k_cache, scales[0]), (v, v_cache, scales[1])):
        stored = rows(cache, layout).float()
        assert torch.equal(stored[slots], (new.float() / scale).to(cache_dtype).float())
        stored[slots] = float("nan")
        assert stored.isnan().all()


@pytest.mark.parametrize(("block_size", "far", "block_stride"), FAR)
def test_addresses_are_64_bit(block_size, far, block_stride, device):
    k, v = new_tokens(2 * block_size, 1, 64, FP16, device)
    near = torch.empty((2, block_size, 1, 64), dtype=FP8, device=device)
    k_cache, v_cache = (far_like(near, far, block_stride) for _ in range(2))
    slots = torch.arange(2 * block_size, device=device).flip(0)
    write_cache(k, v, Cache(k_cache, v_cache), slots + far * block_size)
    for new, cache in ((k, k_cache), (v, v_cache)):
        assert torch.equal(cache[far:].float().reshape(-1, 1, 64)[slots], new.to(FP8).float())


def test_a_negative_slot_is_padding_and_skipped(device):
    k, v = new_tokens(3, 1, 16, torch.float32, device)
    k_cache, v_cache = (torch.zeros((2, 2, 1, 16), device=device) for _ in range(2))
    write_cache(k, v, Cache(k_cache, v_cache), torch.tensor([-1, 2, -1], device=device))
    assert torch.equal(k_cache[1, 0], k[1]) and (k_cache[0] == 0).all() and (k_cache[1, 1] == 0).all()


def test_interleaved_strided_pools_are_written_in_place(device):
    pool = torch.zeros((4, 2, 2, 8, 16),
                       device=device)  # K and V of a block side by side, two layers' heads interleaved
    k_cache, v_cache = pool[:, 0, :, ::2], pool[:, 1, :, ::2]
    k, v = new_tokens(5, 4, 16, torch.float32, device)
    slots = torch.tensor([7, 0, 3, 5, 1], device=device)
    write_cache(k, v, Cache(k_cache, v_cache), slots)
    assert torch.equal(k_cache.reshape(8, 4, 16)[slots], k) and torch.equal(v_cache.reshape(8, 4, 16)[slots], v)
    assert (pool[:, :, :, 1::2] == 0).all()


def test_fp8_stores_value_over_scale_rounded_and_saturated(device):
    k, v = new_tokens(10, 2, 16, torch.bfloat16, device)
    v[5] /= 64  # some become subnormal
    k[0, 0, 0], k[0, 0, 1] = 1000.0, -1000.0
    k_cache, v_cache = (poisoned_pool(4, 4, 2, 16, layout="NHD", dtype=torch.float8_e4m3fn,
                                      device=device) for _ in range(2))
    slots = torch.arange(3, 13, device=device)
    write_cache(k, v, Cache(k_cache, v_cache, scales=(0.5, 4.0)), slots)
    stored_k, stored_v = (cache.float().reshape(16, 2, 16) for cache in (k_cache, v_cache))
    assert torch.equal(stored_k[slots], (k.float() / 0.5).clamp(-448, 448).to(torch.float8_e4m3fn).float())
    assert torch.equal(stored_v[slots], (v.float() / 4.0).to(torch.float8_e4m3fn).float())
    assert stored_k[:3].isnan().all() and stored_v[13:].isnan().all()


def test_nan_stays_nan_in_fp8(device):
    if device == "cpu":
        pytest.skip("Triton's interpreter turns NaN into 384 when it casts to fp8")
    k, v = (torch.full((1, 1, 16), float("nan"), device=device) for _ in range(2))
    k_cache, v_cache = (torch.zeros((1, 1, 1, 16), device=device).to(torch.float8_e4m3fn) for _ in range(2))
    write_cache(k, v, Cache(k_cache, v_cache), torch.tensor([0], device=device))
    assert k_cache.float().isnan().all() and v_cache.float().isnan().all()


def test_what_does_not_fit_is_refused(device):
    k, v = new_tokens(2, 1, 16, torch.float16, device)
    k_cache, v_cache = (torch.zeros((2, 2, 1, 16), dtype=torch.float16, device=device) for _ in range(2))
    slots = torch.tensor([0, 1], device=device)
    with pytest.raises(InputError, match=r"v must be contiguous of shape \(2, 1, 16\)"):
        write_cache(k, v[:1], Cache(k_cache, v_cache), slots)
    with pytest.raises(InputError, match="slots must be contiguous int64"):
        write_cache(k, v, Cache(k_cache, v_cache), slots.int())
    with pytest.raises(InputError, match="the cache must be"):
        write_cache(k.float(), v.float(), Cache(k_cache, v_cache), slots)
    if device == "cpu":
        with pytest.raises(InputError, match="token 1 goes to slot 4, outside the pool of 4 slots"):
            write_cache(k, v, Cache(k_cache, v_cache), torch.tensor([0, 4]))
