"""Sequences that share blocks through the general kernels against the definition, all else poisoned as ever."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from cases import make_case
from pairwise import label, pairwise
from trees import Node, leaves, tree_case, trees

from pagesim.kernels import sharing
from pagesim.kernels.dispatch import paged_decode, plan_decode
from pagesim.kernels.general import shared
from pagesim.kernels.harness.check import compare
from pagesim.kernels.shared_plan import Places

FP16, BF16, FP32, FP8 = torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn


@pytest.fixture(autouse=True)
def share_all(monkeypatch):
    """However little it saves."""
    monkeypatch.setattr(sharing, "MIN_SAVED_BYTES", 0)


def make_plan(case, **options):
    return plan_decode(case.q, case.cache, case.lengths, case.block_table.cpu().numpy(), mask=case.mask,
                       kernel="general", **options)


def check(case, plan=None):
    plan = plan or make_plan(case)
    plan.workspace.out.fill_(float("nan"))
    plan.workspace.log_sum.fill_(float("nan"))
    out = paged_decode(case.q, case.cache, case.block_table, case.lengths_tensor(), plan, mask=case.mask,
                       out=case.poisoned_out())
    verdict = compare(out, case.expected())
    assert verdict.passed, verdict


def is_shared(plan) -> bool:
    return plan.shared is not None and plan.shared.launches


TREE = Node(150, (Node(150, leaves(20, 2)), Node(40), Node(17, (Node(140, leaves(1, 2)),))))

MATRIX = pairwise({
    "dtypes": [(FP16, FP16), (BF16, BF16), (FP32, FP32), (BF16, FP8)],
    "block_size": [1, 8, 16, 24],
    "group": [1, 3, 8],
    "num_kv_heads": [1, 2],
    "head_dim": [64, 80, 256],
    "q_len": [1, 1, 3],
    "layout": ["NHD", "HND"],
    "softcap": [None, None, 5.0],
    "sinks": [False, False, True],
})


@pytest.mark.parametrize("row", MATRIX, ids=label)
def test_what_is_shared_gives_every_sequence_its_own_rows(row, device):
    dtype, cache_dtype = row["dtypes"]
    fp8 = cache_dtype == FP8
    case = tree_case(TREE, num_q_heads=row["group"] * row["num_kv_heads"], dtype=dtype, cache_dtype=cache_dtype,
                     device=device, k_scale=0.5 if fp8 else 1.0, v_scale=3.0 if fp8 else 1.0,
                     **{name: row[name] for name in ("num_kv_heads", "head_dim", "q_len", "block_size", "layout",
                                                     "softcap", "sinks")})
    plan = make_plan(case)
    assert is_shared(plan)
    check(case, plan)


@settings(deadline=None, max_examples=12)
@given(tree=trees, block_size=st.sampled_from([1, 8, 16, 24]), seed=st.integers(0, 3))
def test_random_trees_are_right(tree, block_size, seed):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    check(tree_case(tree, block_size=block_size, num_q_heads=2, num_kv_heads=1, head_dim=32, dtype=FP32, seed=seed,
                    device=device))


def test_more_rows_than_one_item_holds_and_more_items_than_programs(device):
    check(tree_case(Node(300, leaves(5, 17)), num_q_heads=16, num_kv_heads=1, device=device))


def test_sequences_that_share_all_that_they_have_are_merged_too(device):
    check(tree_case(Node(320, leaves(0, 3)), device=device))


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_parts_of_head_groups_in_padded_rows_are_merged_whole(heads, device):
    """As Hopper's decode has them; here all tokens are shared, so that no part of decode's is missing."""
    tree = Node(320, (Node(160, leaves(0, 2)), Node(320, leaves(0, 3))))
    case = tree_case(tree, num_q_heads=12, num_kv_heads=4, q_len=1, dtype=FP32, device=device)
    groups, rows = 4 // heads, 4
    plan = shared.make_plan(case.q, case.cache, Places(heads, groups, heads * rows, rows, 3))
    found = plan.find(case.block_table.cpu().numpy(), case.lengths)
    assert (found.begin == case.lengths).all()
    num_parts = np.repeat(found.num_parts, groups)
    first = np.cumsum(num_parts) - num_parts + 5
    plan.upload(first, num_parts)
    partial = torch.full(((5 + num_parts.sum()) * heads * rows, 64), float("nan"), device=device)
    log_sum, out = partial[:, 0].clone(), case.poisoned_out()
    shared.attend_shared(case.q, case.cache, case.block_table, case.mask, plan, partial, log_sum)
    shared.merge_parts(plan, partial, log_sum, out)
    verdict = compare(out, case.expected())
    assert verdict.passed, verdict


def test_a_window_keeps_a_batch_from_sharing(device):
    case = tree_case(TREE, window=300, device=device)
    assert not is_shared(make_plan(case))


@pytest.mark.parametrize("capacity_tokens", [None, 5000])
def test_a_plan_goes_from_batch_to_batch_with_and_without_something_shared(device, capacity_tokens):
    batches = [tree_case(TREE, device=device, seed=1), tree_case(Node(0, leaves(90, 5)), device=device, seed=2),
               tree_case(Node(300, leaves(33, 5)), device=device, seed=3), tree_case(TREE, device=device, seed=4)]
    plan = make_plan(batches[0], capacity_tokens=capacity_tokens)
    for case, shares in zip(batches, [True, False, True, True], strict=True):
        plan.update(case.lengths, case.block_table.cpu().numpy())
        assert is_shared(plan) == shares
        check(case, plan)
    plan.update(case.lengths)
    assert not is_shared(plan), "nothing is known of the tables"
    check(case, plan)


def test_without_tables_nothing_is_looked_for(device):
    case = tree_case(TREE, device=device)
    plan = plan_decode(case.q, case.cache, case.lengths, kernel="general")
    assert not is_shared(plan)
    check(case, plan)


def test_what_no_plan_shares_is_cut_as_without_tables(device):
    case = make_case([700, 3, 0, 90], device=device)
    with_tables, without = make_plan(case), plan_decode(case.q, case.cache, case.lengths, kernel="general")
    assert torch.equal(with_tables.split.items, without.split.items)
    assert torch.equal(with_tables.split.cuts, without.split.cuts)
    assert np.array_equal(with_tables.split.first_parts, without.split.first_parts)
