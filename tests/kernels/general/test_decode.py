"""The general decode kernel against the definition.  A bug's number is its place in the list of bugs of public paged
kernels from which these cases were made: what is wrong in such a kernel shows here."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from cases import Case, make_case
from far import FAR, far_case, far_parts
from guarded import guarded
from pairwise import label, pairwise

from pagesim.errors import InputError
from pagesim.kernels.cache import Cache
from pagesim.kernels.general.attend import as_pairs
from pagesim.kernels.general.decode import Workspace, decode, make_workspace
from pagesim.kernels.general.split import Split, split
from pagesim.kernels.harness.check import compare

FP16, BF16, FP32, FP8 = torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn


def run(case: Case, *, item: int = 64, plan: Split | None = None, **options) -> torch.Tensor:
    plan = plan or split(case.lengths, item, device=case.q.device, q_len=case.q.shape[1], window=case.mask.window)
    small = None if case.q.is_cuda else 64 if case.q.shape[-1] <= 128 else 32  # the interpreter's own is longer
    tile = options.pop("tile_tokens", small)
    return decode(case.q, case.cache, case.block_table, case.lengths_tensor(), plan, mask=case.mask,
                  out=options.pop("out", case.poisoned_out()), tile_tokens=tile, **options)


def assert_right(out: torch.Tensor, case: Case) -> None:
    verdict = compare(out, case.expected())
    assert verdict.passed, verdict


def ragged(block_size: int) -> list[int]:
    return [0, 1, block_size - 1, block_size, block_size + 1, 3 * block_size + 75]


MATRIX = pairwise({
    "dtypes": [(FP16, FP16), (BF16, BF16), (FP32, FP32), (FP16, FP8), (BF16, FP8), (FP32, FP8)],
    "block_size": [1, 3, 8, 16, 24, 64, 192, 256],
    "group": [1, 3, 4, 5, 8, 24],
    "num_kv_heads": [1, 2],
    "head_dim": [64, 80, 96, 128, 192, 256],
    "q_len": [1, 1, 4],
    "layout": ["NHD", "HND"],
    "window": [None, None, 0, 100],
    "softcap": [None, None, 5.0],
    "sinks": [False, False, True],
    "item": [64, 100, 4096],
})


@pytest.mark.parametrize("row", MATRIX, ids=label)
def test_decode_equals_the_definition_and_never_sees_poison(row, device):
    dtype, cache_dtype = row["dtypes"]
    case = make_case(ragged(row["block_size"]), num_q_heads=row["group"] * row["num_kv_heads"],
                     num_kv_heads=row["num_kv_heads"], head_dim=row["head_dim"], q_len=row["q_len"], dtype=dtype,
                     cache_dtype=cache_dtype, block_size=row["block_size"], layout=row["layout"], window=row["window"],
                     softcap=row["softcap"], sinks=row["sinks"], device=device,
                     k_scale=0.5 if cache_dtype == FP8 else 1.0,
                     v_scale=3.0 if cache_dtype == FP8 else 1.0)
    assert_right(run(case, item=row["item"]), case)


def test_the_matrix_has_every_pair():
    for a, b in (("dtypes", "block_size"), ("group", "head_dim"), ("window", "item")):
        values_a, values_b = ({str(row[name]) for row in MATRIX} for name in (a, b))
        assert len({(str(row[a]), str(row[b])) for row in MATRIX}) == len(values_a) * len(values_b)


def takes_pairs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    return as_pairs(q, Cache(k, v)).v.dtype == torch.int16


@pytest.mark.parametrize("dtype", [FP16, BF16])
def test_every_e4m3_value_comes_out_as_it_is_cached(dtype, device):
    case = make_case([1], num_q_heads=1, num_kv_heads=1, head_dim=256, dtype=dtype, cache_dtype=FP8, device=device)
    case.cache.v[case.block_table[0, 0], 0, 0] = torch.arange(256, dtype=torch.uint8, device=device).view(FP8)
    value = case.cache.v[case.block_table[0, 0], 0, 0].to(dtype)
    out = run(case)[0, 0, 0]
    assert torch.equal(out.isnan(), value.isnan()) and torch.equal(out.nan_to_num(), value.nan_to_num())


@pytest.mark.parametrize("dim", [0, 77])
def test_a_nan_among_fp8_keys_shows(dim, device):
    case = make_case([100], num_kv_heads=1, head_dim=128, cache_dtype=FP8, device=device)
    case.cache.k.view(torch.uint8)[case.block_table[0, 3], 5, 0, dim] = 0x7F
    assert run(case).isnan().all()


@pytest.mark.parametrize("power", [-105, -20, 20, 123])
def test_bf16_queries_of_any_size_meet_fp8_keys(power, device):
    case = make_case([70, 33], q_len=2, head_dim=128, dtype=BF16, cache_dtype=FP8, softcap=9.0, device=device)
    case.q[0, 0] = 0
    case.q[1] *= 2.0 ** torch.linspace(-14, 0, 128, device=device).to(BF16)
    scale = 2.0 ** (-1 - power)
    far = replace(case, q=case.q * 2.0 ** power)
    far = replace(far, mask=replace(far.mask, scale=scale))
    assert compare(run(far), far.expected()).passed


def test_fp8_is_read_in_pairs_where_they_are_aligned(device, monkeypatch):
    q, memory = torch.empty((1, 1, 4, 64), dtype=BF16, device=device), torch.zeros(9999, device=device).to(FP8)
    cache = memory[:4096].view(2, 16, 2, 64)
    assert takes_pairs(q, cache, cache) and takes_pairs(q.half(), cache, cache)
    assert not takes_pairs(q.float(), cache, cache) and not takes_pairs(q, cache.to(BF16), cache.to(BF16))
    assert not takes_pairs(q, memory[1:4097].view(2, 16, 2, 64), cache)
    assert not takes_pairs(q, cache, memory[1:4097].view(2, 16, 2, 64))
    assert not takes_pairs(q, *[memory.as_strided((2, 16, 2, 64), (2049, 128, 64, 1))] * 2)
    assert not takes_pairs(q[..., :16], cache[..., :16], cache[..., :16])
    monkeypatch.setattr("pagesim.kernels.general.attend.HAS_TUPLES", False)  # Triton 3.2
    assert not takes_pairs(q, cache, cache)


@pytest.mark.parametrize(("head_dim", "odd"), [(16, 0), (33, 0), (64, 1)])
def test_fp8_is_right_where_it_is_not_read_in_pairs(head_dim, odd, device):
    case = make_case([40, 17], head_dim=head_dim, dtype=BF16, cache_dtype=FP8, k_scale=0.5, device=device)
    pools = [torch.cat([cache.flatten().view(torch.uint8)[:odd], cache.flatten().view(torch.uint8)]).view(FP8)[odd:]
             for cache in (case.cache.k, case.cache.v)]
    moved = case.moved(*(pool.view(case.cache.k.shape) for pool in pools))
    assert not takes_pairs(moved.q, moved.cache.k, moved.cache.v)
    assert_right(run(moved), moved)


@pytest.mark.parametrize("group", [5, 7, 17, 24, 71])
def test_groups_that_are_no_power_of_two_stay_within_their_kv_head(group, device):  # bugs 18, 19
    case = make_case([30, 9], num_q_heads=2 * group, num_kv_heads=2, head_dim=64, device=device)
    assert_right(run(case), case)


@pytest.mark.parametrize("item", [11, 64, 80, 1000])
@pytest.mark.parametrize("q_len", [1, 4])
@pytest.mark.parametrize("window", [None, 7, 70])
def test_any_number_of_parts_gives_the_same_rows(item, q_len, window, device):  # bugs 17, 32
    case = make_case([0, 1, 2, 40, 150], num_kv_heads=1, num_q_heads=2, dtype=FP32, q_len=q_len, window=window,
                     block_size=8, device=device)
    assert_right(run(case, item=item), case)


def test_parts_of_one_token_merge(device):
    case = make_case([0, 1, 9], num_kv_heads=1, num_q_heads=2, dtype=FP32, device=device)
    assert_right(run(case, item=1), case)


def test_blocks_left_of_the_window_are_not_read_even_by_a_plan_that_covers_them(device):  # bug 10
    case = make_case([10, 200, 90], window=30, q_len=2, num_q_heads=80, num_kv_heads=2, device=device)
    assert_right(run(case, plan=split(case.lengths, 64, device=device)), case)


def test_parts_beyond_the_length_merge_to_nothing(device):  # bug 14
    case = make_case([0, 1, 70, 130], dtype=FP32, device=device)
    plan = split(np.array([300, 300, 300, 300]), 64, device=device)
    assert_right(run(case, plan=plan), case)


def test_logits_far_below_any_sentinel_are_still_weighed(device):  # bug 15
    case = make_case([40, 3], dtype=FP32, device=device)
    case.q.mul_(1e4)
    flipped = case.moved(case.cache.k.abs() * -100, case.cache.v, q=case.q.abs())
    scores = torch.einsum("qhd,d->qh", flipped.q[0], flipped.cache.k[flipped.block_table[0, 0], 0, 0])
    assert scores.max() * 64 ** -0.5 < -1e5
    assert_right(run(flipped), flipped)


def test_softcap_survives_scores_a_thousand_times_the_cap(device):  # bug 16
    case = make_case([40, 3, 100], dtype=FP32, softcap=0.01, device=device)
    case.q.mul_(100)
    assert_right(run(case), case)


@pytest.mark.parametrize("tile", [16, 32, 64, 128])
@pytest.mark.parametrize("block_size", [24, 192, 256])
def test_blocks_and_tiles_need_not_divide_each_other(block_size, tile, device):  # bugs 20, 21
    case = make_case([block_size - 1, block_size + 1, 2 * block_size + 130], num_kv_heads=1, num_q_heads=1,
                     block_size=block_size, device=device)
    assert_right(run(case, item=4096, tile_tokens=tile), case)


def test_nothing_is_read_behind_a_table_row(device):  # bugs 11, 12
    case = make_case([16, 48, 33], device=device)
    wide = torch.full((3, 7), torch.iinfo(torch.int32).max, dtype=torch.int32, device=device)
    wide[:, :3] = torch.where(case.block_table == 0, torch.iinfo(torch.int32).max, case.block_table)
    assert_right(run(replace(case, block_table=wide[:, :3])), case)


@pytest.mark.parametrize("block_size", [1, 16, 24])
@pytest.mark.parametrize("window", [None, 20])
def test_nothing_is_touched_behind_any_tensor(block_size, window, device):  # bug 12
    case = make_case([70, 3, 130], q_len=2, window=window, block_size=block_size, spare_blocks=0, device=device)
    plan = split(case.lengths, 64, device=device, q_len=2, window=window)
    workspace = make_workspace(plan.num_parts, 2, 4, 64, case.q.device)
    inside = case.moved(guarded(case.cache.k), guarded(case.cache.v), q=guarded(case.q),
                        block_table=guarded(case.block_table))
    plan = Split(guarded(plan.items), guarded(plan.cuts), plan.num_parts)
    assert_right(run(inside, plan=plan, workspace=Workspace(guarded(workspace.out), guarded(workspace.log_sum)),
                     out=guarded(case.poisoned_out())), case)


def test_padded_items_and_a_poisoned_workspace_change_nothing(device):  # bug 25
    case = make_case([40, 1, 130, 0], device=device)
    plan = split(case.lengths, 64, device=device, pad_items=20, pad_cuts=9)
    workspace = make_workspace(plan.num_parts + 3, 1, 4, 64, case.q.device)
    workspace.out.fill_(float("nan"))
    workspace.log_sum.fill_(float("nan"))
    assert torch.equal(run(case, plan=plan, workspace=workspace), run(case))


def test_one_workspace_serves_two_batches_one_after_the_other(device):  # bug 27
    workspace = make_workspace(50, 1, 4, 64, device)
    for lengths in ([200, 30], [10, 500, 77], [200, 30]):
        case = make_case(lengths, device=device)
        assert_right(run(case, workspace=workspace), case)


def test_a_workspace_that_is_too_small_is_refused(device):  # bug 28
    case = make_case([200, 30], device=device)
    with pytest.raises(InputError, match=r"the workspace must hold 4 parts of \(1, 4, 64\)"):
        run(case, workspace=make_workspace(3, 1, 4, 64, device))


def test_a_row_is_the_same_to_the_last_bit_alone_and_in_a_batch(device):  # bug 30
    case = make_case([150, 77, 300], device=device)
    together = run(case)
    for seq in range(3):
        alone = replace(case, q=case.q[seq:seq + 1], block_table=case.block_table[seq:seq + 1],
                        lengths=case.lengths[seq:seq + 1])
        assert torch.equal(run(alone)[0], together[seq])


def test_shared_blocks_are_read_by_both_sequences(device):
    case = make_case([48, 40], num_q_heads=2, num_kv_heads=1, device=device)
    case.block_table[1, :2] = case.block_table[0, :2]
    assert_right(run(case), case)


def test_interleaved_strided_pools_are_read_in_place(device):  # bugs 2, 6
    case = make_case([50, 17], num_q_heads=4, num_kv_heads=2, device=device)
    blocks, size, heads, dim = case.cache.k.shape
    pool = torch.full((blocks, 3, size, 2, heads + 1, dim), float("nan"), dtype=FP16, device=device)
    k_cache, v_cache = pool[:, 1, :, 0, :heads], pool[:, 1, :, 1, :heads]
    k_cache.copy_(case.cache.k)
    v_cache.copy_(case.cache.v)
    assert torch.equal(run(case.moved(k_cache, v_cache)), run(case))


@pytest.mark.parametrize(("block_size", "far", "block_stride"), FAR)
def test_addresses_are_64_bit(block_size, far, block_stride, device):
    case = make_case([40, 17], num_q_heads=1, num_kv_heads=1, block_size=block_size, dtype=FP16, cache_dtype=FP8,
                     device=device)
    assert torch.equal(run(far_case(case, far, block_stride)), run(case))


def test_offsets_of_partial_results_are_64_bit(device):  # bug 31
    case = make_case([130], num_q_heads=64, num_kv_heads=1, head_dim=256, device=device)
    plan = split(case.lengths, 64, device=device)
    workspace = far_parts(plan, 64, 256, device)
    assert workspace.out.numel() > 2 ** 31
    assert_right(run(case, plan=plan, workspace=workspace), case)


class Compiling:
    """A kernel that is compiled before it is launched: the launch names nothing any more."""

    def __init__(self, kernel):
        self.kernel, self.__name__, self.compiled = kernel, kernel.__name__, 0

    def run(self, *arguments, grid, warmup, num_warps, num_stages=3, **constants):
        self.compiled += 1
        return {(*grid, 1, 1): lambda *again: self.kernel[grid](*again)}


def test_a_kept_kernel_gets_what_triton_would_pass_and_is_compiled_once(device, monkeypatch):
    from pagesim.kernels import launch
    from pagesim.kernels.general import decode as module

    monkeypatch.setattr(launch, "addresses", lambda arguments: arguments)  # the interpreter takes tensors only
    cases = [make_case([300, 0, 17], block_size=8, window=90, softcap=9.0, seed=seed, device=device)
             for seed in range(2)]
    expected = [run(case) for case in cases]
    kernels = [Compiling(module._decode), Compiling(module._merge)]
    for kernel in kernels:
        monkeypatch.setattr(module, kernel.__name__, kernel)
    kept = {}
    for case, right in zip(cases, expected, strict=True):
        assert torch.equal(run(case, kept=kept), right)
    assert [kernel.compiled for kernel in kernels] == [1, 1]


def test_an_empty_batch_gives_an_empty_output(device):
    assert run(make_case([], device=device)).shape == (0, 1, 4, 64)
