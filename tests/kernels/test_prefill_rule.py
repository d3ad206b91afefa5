"""Which prefill kernel runs: the rule, and what a user may ask for against it."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'pagesim[kernel]'")
pytest.importorskip("triton", reason="triton is not installed: pip install 'pagesim[kernel]' on Linux")

from cases import make_case

from pagesim.errors import InputError
from pagesim.kernels import dispatch
from pagesim.kernels.check import compare
from pagesim.kernels.dispatch import paged_prefill, why_general_prefill


@pytest.fixture
def case(device):
    return make_case([40, 7], q_len=7, window=5, device=device)  # no Hopper kernel takes a window


def prefill(case, **options):
    first = torch.tensor([0, 7, 14], dtype=torch.int32, device=case.q.device)
    return paged_prefill(case.q.flatten(0, 1), case.k_cache, case.v_cache, case.block_table, case.lengths_tensor(),
                         first, 7, **case.options, **options)


@pytest.mark.parametrize("kernel", [None, "general"])
def test_what_the_hopper_kernel_does_not_take_goes_to_the_general_one(case, kernel):
    assert why_general_prefill(case.q.flatten(0, 1), case.k_cache, 2, **case.options) is not None
    out = prefill(case, kernel=kernel)
    assert compare(out.view_as(case.q), case.expected()).passed


def test_an_unknown_kernel_and_one_that_cannot_run_are_refused(case):
    with pytest.raises(InputError, match="hopper, general, got 'fast'"):
        prefill(case, kernel="fast")
    with pytest.raises(InputError, match="does not take this"):
        prefill(case, kernel="hopper")


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
    assert why_general_prefill(q, cache, num_seqs, layout="NHD") == reason


@pytest.mark.parametrize("block_size, box", [(16, 16), (48, 16), (64, 64), (96, 32), (256, 128)])
def test_a_box_lies_within_a_block_and_within_a_tile(block_size, box):
    from pagesim.kernels.hopper_prefill import TILE
    from pagesim.kernels.hopper_prefill_launch import make_shape

    assert make_shape(6, 2, 64, block_size).BOX.value == box
    assert block_size % box == TILE.value % box == 0
