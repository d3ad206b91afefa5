"""Merging the parts of sequences of latents, in Triton's interpreter, against the mean by hand."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'pagesim[kernel]'")
pytest.importorskip("triton", minversion="3.6", reason="Gluon needs triton 3.6")

import triton
import triton.language as tl

from pagesim.kernels.hopper.mla_merge import CELLS, FEW, _merge_rows

DIM = 32


@triton.jit
def merge_unit(cuts, part_out, part_log_sum, out, NUM_ROWS: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr,
               PARTS: tl.constexpr):
    _merge_rows(tl.program_id(0), cuts, part_out, part_log_sum, out, NUM_ROWS, DIM, ROWS, PARTS)


@pytest.mark.parametrize("num_parts", [2, 3, 16, 17, 66])
@pytest.mark.parametrize("rows, parts", [(1, CELLS.value), (CELLS.value // FEW.value, FEW.value)])
def test_rows_are_the_mean_of_their_parts_weighted_by_sums_and_nothing_else_is_read(device, num_parts, rows, parts):
    generator = torch.Generator().manual_seed(num_parts)
    num_rows, first = 5, 3
    part_out = torch.full((first + num_parts + 2, num_rows, DIM), float("nan"))
    log_sum = torch.full((first + num_parts + 2, num_rows), float("nan"))
    own = slice(first, first + num_parts)
    part_out[own] = torch.randn((num_parts, num_rows, DIM), generator=generator)
    log_sum[own] = 30 * torch.randn((num_parts, num_rows), generator=generator)
    log_sum[first, 1] = float("-inf")  # a part of which the row saw nothing
    log_sum[own, 2] = float("-inf")  # a row that saw nothing at all
    part_out[own, 2] = 0
    weight = torch.exp2(log_sum[own].double() - log_sum[own].double().amax(0).nan_to_num(0, neginf=0))
    expected = (weight[:, :, None] * part_out[own].double()).sum(0) / weight.sum(0).clamp(min=1e-300)[:, None]
    cuts = torch.tensor([[1, first, first + num_parts, 1]], dtype=torch.int32)
    out = torch.full((3, num_rows, DIM), float("nan"))
    tensors = [x.to(device) for x in (cuts, part_out, log_sum, out)]
    merge_unit[(-(-num_rows // rows),)](*tensors, num_rows, DIM, rows, parts)
    out = tensors[-1].cpu()
    torch.testing.assert_close(out[1].double(), expected, rtol=1e-5, atol=1e-6)
    assert (out[1, 2] == 0).all() and out[[0, 2]].isnan().all()
