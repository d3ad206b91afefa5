import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from cases import make_case

from pagesim.errors import InputError
from pagesim.kernels.cache import Cache
from pagesim.kernels.general.decode import decode
from pagesim.kernels.general.prefill import prefill
from pagesim.kernels.general.split import split
from pagesim.kernels.mask import Mask
from pagesim.kernels.validate import check_table


@pytest.mark.parametrize(("table", "lengths", "message"), [
    ([[0, 1], [2, 9]], [5, 5], "sequence 1 entry 1 is block 9, outside the pool of 9 blocks"),
    ([[0, -3], [2, 1]], [5, 5], "sequence 0 entry 1 is block -3, outside"),
    ([[0, 1], [2, 3]], [5, 9], r"sequence 1 has 9 tokens; a row of 2 table entries of 4 slots holds 0 to 8"),
    ([[0, 1], [2, 3]], [-1, 8], "sequence 0 has -1 tokens"),
    ([[0, 1], [2, 1]], [5, 5], "block 1 is used twice: by sequence 0 entry 1 and by sequence 1 entry 1"),
    ([[0, 0], [2, 1]], [5, 5], "block 0 is used twice: by sequence 0 entry 0 and by sequence 0 entry 1"),
    ([[0, 1, 2, 3, 4], [20, 21, 22, 23, 24]], [5, 5], "sequence 1 entry 0 is block 20"),  # bug 22: slots, not blocks
])
def test_a_wrong_entry_is_named(table, lengths, message):
    with pytest.raises(InputError, match=message):
        check_table(np.array(table, np.int32), np.array(lengths), 4, 9)


def test_entries_that_no_kernel_reads_may_hold_anything():
    check_table(np.array([[0, 77], [-5, 1]], np.int32), np.array([4, 8]), 4, 9, first_visible=np.array([0, 4]))


def test_sharing_between_sequences_is_allowed_when_asked_for_and_within_one_never():
    check_table(np.array([[0, 1], [0, 2]], np.int32), np.array([8, 8]), 4, 9, shared=True)
    with pytest.raises(InputError, match="block 1 is used twice"):
        check_table(np.array([[0, 2], [1, 1]], np.int32), np.array([8, 8]), 4, 9, shared=True)


def call(change: dict, kernel: str = "decode"):
    case = make_case([5, 20], num_q_heads=4, num_kv_heads=2, head_dim=16)
    args = {"q": case.q, "cache": case.cache, "block_table": case.block_table, "lengths": case.lengths_tensor(),
            "mask": case.mask}
    if kernel == "decode":
        args["plan"] = split(case.lengths, 64, device="cpu")
        return decode(**(args | {name: new(args[name]) if callable(new) else new for name, new in change.items()}))
    args |= {"q": case.q[:, 0], "first_query": torch.tensor([0, 1, 2], dtype=torch.int32), "max_q_len": 1}
    return prefill(**(args | {name: new(args[name]) if callable(new) else new for name, new in change.items()}))


ARGUMENTS = [
    ({"q": lambda q: q[..., :3, :].contiguous()}, "3 query heads cannot be shared evenly by 2 KV heads"),
    ({"q": lambda q: q[..., :8].contiguous()}, "head_dim of q and cache must be equal and at most 256, got 8 and 16"),
    ({"q": lambda q: q.double()}, "q must be contiguous and one of"),
    ({"q": lambda q: q.transpose(-2, -1)}, "q must be contiguous"),
    ({"q": lambda q: q.bfloat16()}, r"the cache must be torch.bfloat16 or torch.float8_e4m3fn, got torch.float16"),
    ({"block_table": lambda t: t.long()}, "block_table must be int32"),
    ({"block_table": lambda t: t[:1]}, "2 sequences, block_table 1 and lengths 2|2 sequences, block_table 1"),
    ({"block_table": lambda t: t + 100}, "sequence 0 entry 0 is block 1.., outside the pool"),
    ({"lengths": lambda n: n.long()}, "lengths must be contiguous int32"),
    ({"lengths": lambda n: n + 100}, "sequence 0 has 105 tokens"),
    ({"mask": Mask(sinks=torch.zeros(3))}, "sinks must be 4, one for each query head"),
    ({"out": torch.empty(1)}, "out must be like q"),
]


@pytest.mark.parametrize("kernel", ["decode", "prefill"])
@pytest.mark.parametrize(("change", "message"), ARGUMENTS, ids=[message[:30] for _, message in ARGUMENTS])
def test_arguments_that_do_not_fit_are_refused_before_the_launch(change, message, kernel, device):
    if device != "cpu" and any(text in message for text in ("entry", "tokens")):
        pytest.skip("contents on a GPU are checked by the caller, on the host copy")
    with pytest.raises(InputError, match=message):
        call(change, kernel)


@pytest.mark.parametrize(("change", "message"), [
    ({"v": lambda v: v[:-1]}, "k and v of a cache must agree"),
    ({"k": lambda k: k.transpose(2, 3)}, "4 dimensions, the last contiguous"),
    ({"layout": "HDN"}, "layout must be one of NHD, HND, got 'HDN'"),
    ({"scales": (float("nan"), 1.0)}, "the scale of k must be a number above 0, got nan"),
    ({"scales": (1.0, 0.0)}, "the scale of v must be a number above 0, got 0.0"),
])
def test_a_cache_that_is_none_is_refused_where_it_is_made(change, message):
    fields = {"k": torch.zeros(3, 4, 2, 8), "v": torch.zeros(3, 4, 2, 8)}
    with pytest.raises(InputError, match=message):
        Cache(**(fields | {name: new(fields[name]) if callable(new) else new for name, new in change.items()}))


@pytest.mark.parametrize(("change", "message"), [
    ({"window": -2}, "window must be None or at least 0, got -2"),
    ({"softcap": 0.0}, "softcap must be None or a number above 0, got 0.0"),
    ({"scale": -1.0}, "scale must be a number above 0, got -1.0"),
    ({"sinks": torch.zeros(2, 2)}, "sinks must be one float for each query head"),
])
def test_a_mask_that_is_none_is_refused_where_it_is_made(change, message):
    with pytest.raises(InputError, match=message):
        Mask(**change)


def test_a_correct_call_passes(device):
    if device == "cpu":
        call({})
        call({}, "prefill")


@pytest.mark.parametrize(("change", "message"), [
    ({"first_query": torch.tensor([0, 1], dtype=torch.int32)}, r"first_query must be contiguous int32 of shape \(3,\)"),
    ({"first_query": torch.tensor([0, 2, 2], dtype=torch.int32)}, "by at most max_q_len = 1, got"),
    ({"q": lambda q: q[:1]}, "must rise from 0 to 1"),
    ({"q": lambda q: torch.cat([q] * 12), "first_query": torch.tensor([0, 6, 24], dtype=torch.int32), "max_q_len": 18},
     "sequence 0 has 6 queries and only 5 tokens"),
])
def test_queries_that_do_not_fit_their_sequences_are_refused(change, message, device):
    if device != "cpu":
        pytest.skip("contents on a GPU are checked by the caller, on the host copy")
    with pytest.raises(InputError, match=message):
        call(change, "prefill")
