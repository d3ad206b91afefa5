import math

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")

from pagesim.kernels.harness.check import BOUNDS, compare, row_errors


def test_the_error_of_a_row_is_relative_to_its_own_norm():
    expected = torch.tensor([[3.0, 4.0], [300.0, 400.0]])
    out = expected + torch.tensor([[0.5, 0.0], [0.0, 0.5]])
    assert row_errors(out, expected).tolist() == pytest.approx([0.1, 0.001])


def test_nan_infinity_and_anything_in_place_of_zeros_are_infinitely_wrong():
    expected = torch.tensor([[1.0, 1.0], [1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    out = torch.tensor([[math.nan, 1.0], [math.inf, 1.0], [0.0, 1e-9], [0.0, 0.0]])
    assert row_errors(out, expected).tolist() == [math.inf, math.inf, math.inf, 0.0]


def test_one_wrong_row_among_many_fails_and_is_named():
    expected = torch.ones((50, 2, 4, 8), dtype=torch.float64)
    out = expected.float()
    assert compare(out, expected).passed
    out[7, 1, 2] *= 1 + 1e-5
    verdict = compare(out, expected)
    assert not verdict.passed and verdict.where == (7, 1, 2) and verdict.num_wrong == 1 and verdict.num_rows == 400


def test_a_small_error_everywhere_fails_by_its_mean():
    expected = torch.ones((50, 8), dtype=torch.float64)
    verdict = compare((expected * (1 + 1.5e-6)).float(), expected)
    assert verdict.worst <= verdict.bounds.worst and not verdict.passed


@pytest.mark.parametrize("dtype", list(BOUNDS), ids=str)
def test_rounding_the_exact_result_passes_and_twice_the_bound_fails(dtype):
    expected = torch.randn((200, 64), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert compare(expected.to(dtype), expected).passed
    wrong = expected.clone()
    wrong[3] *= 1 + 2 * BOUNDS[dtype].worst
    assert not compare(wrong.to(dtype), expected).passed


def test_an_eager_run_that_is_worse_widens_the_bounds():
    expected = torch.ones((4, 8), dtype=torch.float64)
    out = (expected * (1 + 1e-5)).float()
    assert not compare(out, expected).passed
    assert compare(out, expected, eager=(expected * (1 - 1e-5)).float()).passed


def test_no_rows_are_right():
    assert compare(torch.empty((0, 8)), torch.empty((0, 8))).passed
