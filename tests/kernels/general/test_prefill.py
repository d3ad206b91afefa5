"""Causal prefill against the definition: whole prompts and chunks behind a prefix, of different lengths in one call."""

from dataclasses import dataclass, replace

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from cases import Case, make_case
from far import FAR, far_case
from guarded import guarded
from pairwise import label, pairwise

from pagesim.kernels.general.prefill import prefill
from pagesim.kernels.harness.check import compare

FP16, BF16, FP32, FP8 = torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn


@dataclass(frozen=True)
class Chunks:
    """Sequence i has ``q_lens[i]`` queries: the last of ``case.q[i]``."""

    case: Case
    q_lens: list[int]

    def run(self) -> list[torch.Tensor]:
        """Output rows of each sequence."""
        q = guarded(torch.cat([rows[len(rows) - n:] for rows, n in zip(self.case.q, self.q_lens, strict=True)]))
        first = torch.tensor([0, *self.q_lens], dtype=torch.int32).cumsum(0, dtype=torch.int32).to(q.device)
        out = prefill(q, self.case.cache, self.case.block_table, self.case.lengths_tensor(), first, max(self.q_lens),
                      mask=self.case.mask, out=guarded(torch.full_like(q, float("nan"))),
                      tile_tokens=None if q.is_cuda else 64 if q.shape[-1] <= 128 else 32)
        return list(out.split(self.q_lens))

    def assert_right(self) -> None:
        out, expected = self.run(), self.case.expected()
        rows = torch.cat([rows[len(rows) - n:] for rows, n in zip(expected, self.q_lens, strict=True)])
        verdict = compare(torch.cat(out), rows)
        assert verdict.passed, verdict


def make_chunks(lengths: list[int], q_lens: list[int], **options) -> Chunks:
    return Chunks(make_case(lengths, q_len=max(q_lens), **options), q_lens)


MATRIX = pairwise({
    "dtypes": [(FP16, FP16), (BF16, BF16), (FP32, FP32), (FP16, FP8), (BF16, FP8), (FP32, FP8)],
    "block_size": [1, 3, 8, 16, 24, 64],
    "group": [1, 3, 4, 8, 24],
    "num_kv_heads": [1, 2],
    "head_dim": [64, 80, 96, 128, 192, 256],
    "layout": ["NHD", "HND"],
    "window": [None, None, 0, 90],
    "softcap": [None, None, 5.0],
    "sinks": [False, False, True],
    "chunk": ["whole", "half", "last"],
})


def chunks(kind: str, lengths: list[int]) -> list[int]:
    """Queries of each sequence: the whole prompt, its second half, or a few of which not every sequence has any."""
    return {"whole": lengths, "half": [(n + 1) // 2 for n in lengths],
            "last": [min(n, 5 * (i % 4)) for i, n in enumerate(lengths)]}[kind]


@pytest.mark.parametrize("row", MATRIX, ids=label)
def test_prefill_equals_the_definition_and_never_sees_poison(row, device):
    dtype, cache_dtype = row["dtypes"]
    b = row["block_size"]
    lengths = [0, 1, b - 1, b, b + 1, 2 * b + 70]
    make_chunks(lengths, chunks(row["chunk"], lengths), num_q_heads=row["group"] * row["num_kv_heads"],
                num_kv_heads=row["num_kv_heads"], head_dim=row["head_dim"], dtype=dtype, cache_dtype=cache_dtype,
                block_size=b, layout=row["layout"], window=row["window"], softcap=row["softcap"], sinks=row["sinks"],
                device=device,
                k_scale=0.5 if cache_dtype == FP8 else 1.0, v_scale=3.0 if cache_dtype == FP8 else 1.0).assert_right()


@pytest.mark.parametrize("group", [7, 17, 71])
def test_groups_that_are_no_power_of_two_stay_within_their_kv_head(group, device):
    make_chunks([30, 9], [13, 9], num_q_heads=2 * group, num_kv_heads=2, device=device).assert_right()


@pytest.mark.parametrize("block_size", [40, 192, 256])
def test_blocks_and_tiles_need_not_divide_each_other(block_size, device):
    make_chunks([block_size - 1, block_size + 1, 2 * block_size + 70], [20, 30, 40], num_q_heads=1, num_kv_heads=1,
                block_size=block_size, device=device).assert_right()


def test_nothing_is_read_behind_a_table_row(device):
    case = make_chunks([16, 48, 33], [3, 48, 20], device=device).case
    wide = torch.full((3, 7), torch.iinfo(torch.int32).max, dtype=torch.int32, device=device)
    wide[:, :3] = torch.where(case.block_table == 0, torch.iinfo(torch.int32).max, case.block_table)
    Chunks(replace(case, block_table=wide[:, :3]), [3, 48, 20]).assert_right()


@pytest.mark.parametrize("block_size", [1, 16, 24])
@pytest.mark.parametrize("window", [None, 20])
def test_nothing_is_touched_behind_any_tensor(block_size, window, device):
    case = make_case([70, 3, 130], q_len=40, window=window, block_size=block_size, spare_blocks=0, device=device)
    inside = case.moved(guarded(case.cache.k), guarded(case.cache.v), block_table=guarded(case.block_table))
    Chunks(inside, [40, 1, 30]).assert_right()


@pytest.mark.parametrize(("block_size", "far", "block_stride"), FAR)
def test_addresses_are_64_bit(block_size, far, block_stride, device):
    near = make_chunks([40, 17], [9, 17], num_q_heads=1, num_kv_heads=1, block_size=block_size, dtype=FP16,
                       cache_dtype=FP8, device=device)
    moved = Chunks(far_case(near.case, far, block_stride), near.q_lens)
    assert all(map(torch.equal, moved.run(), near.run()))


def test_a_prompt_in_chunks_gives_the_rows_of_the_whole_prompt(device):
    whole = make_chunks([150], [150], dtype=FP32, num_q_heads=3, num_kv_heads=1, device=device)
    (expected,) = whole.run()
    for start, end in ((0, 50), (50, 51), (51, 150)):
        part = Chunks(replace(whole.case, lengths=whole.case.lengths - (150 - end), q=whole.case.q[:, :end]),
                      [end - start])
        torch.testing.assert_close(part.run()[0], expected[start:end], rtol=1e-5, atol=1e-6)


def test_more_rows_than_one_tile_holds(device):
    make_chunks([140, 90], [70, 90], num_q_heads=8, num_kv_heads=1, device=device).assert_right()


def test_blocks_left_of_the_window_are_not_read(device):
    make_chunks([200, 150], [60, 60], window=20, block_size=8, device=device).assert_right()


def test_logits_far_below_any_sentinel_are_still_weighed(device):
    chunks = make_chunks([70], [20], dtype=FP32, device=device)
    case = chunks.case
    Chunks(case.moved(case.cache.k.abs() * -100, case.cache.v, q=case.q.abs() * 1e4), [20]).assert_right()


def test_softcap_survives_scores_a_thousand_times_the_cap(device):
    chunks = make_chunks([70, 3], [20, 3], dtype=FP32, softcap=0.01, device=device)
    chunks.case.q.mul_(10)
    chunks.assert_right()


def test_interleaved_strided_pools_are_read_in_place(device):
    chunks = make_chunks([50, 17], [20, 17], device=device)
    blocks, size, heads, dim = chunks.case.cache.k.shape
    pool = torch.full((blocks, 3, size, 2, heads + 1, dim), float("nan"), dtype=FP16, device=device)
    k_cache, v_cache = pool[:, 1, :, 0, :heads], pool[:, 1, :, 1, :heads]
    k_cache.copy_(chunks.case.cache.k)
    v_cache.copy_(chunks.case.cache.v)
    moved = Chunks(chunks.case.moved(k_cache, v_cache), chunks.q_lens)
    assert all(map(torch.equal, moved.run(), chunks.run()))


def test_without_queries_nothing_is_launched(device):
    chunks = make_chunks([20, 5], [0, 0], device=device)
    assert [len(rows) for rows in chunks.run()] == [0, 0]
