"""What is shared and what is not meet in the same partial results: the host's side, which needs no GPU."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", minversion="3.6", reason="Gluon needs triton 3.6")

from trees import Node, tree_case, trees

from pagesim.kernels import sharing as s
from pagesim.kernels import shared_plan
from pagesim.kernels.hopper import decode_launch
from pagesim.kernels.hopper import plan as p


@settings(deadline=None, max_examples=25)
@given(trees, st.sampled_from([(4, 1, 8), (8, 2, 16), (16, 1, 16), (1, 2, 16), (6, 1, 32)]))
def test_every_part_has_a_place_of_its_own_within_the_workspace(tree, shape):
    num_kv_heads, q_len, block_size = shape
    case = tree_case(Node(256, (tree, Node(20))), num_q_heads=2 * num_kv_heads, num_kv_heads=num_kv_heads, q_len=q_len,
                     head_dim=64, block_size=block_size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s, "MIN_SAVED_BYTES", 0)
        patch.setattr(shared_plan, "num_sms", lambda device: 132)
        shape = decode_launch.make_shape(q_len, 2 * num_kv_heads, num_kv_heads, 64, block_size)
        plan = decode_launch.HopperPlan(shape, case.q, case.cache, case.lengths, case.block_table.numpy(), 132)
    assert plan.shared.launches
    header, first, count, members, items = (tensor.numpy() for tensor in plan.shared.tensors)
    records = plan.buffer.records.numpy()
    records = records[(records[:, p.SEQ] >= 0) & (records[:, p.NUM_PARTS] > 0)]
    groups = num_kv_heads // shape.HEADS.value
    slots = [(record[p.SLOT], record[p.SEQ] * groups + record[p.GROUP]) for record in records if record[p.SLOT] >= 0]
    for item in items.reshape(-1, s.ITEM_INTS)[:header[0]]:
        if item[s.FIRST_ROW] == 0:
            own = members[item[s.FIRST_MEMBER]:item[s.FIRST_MEMBER] + item[s.NUM_MEMBERS]]
            slots += [(first[row] + item[s.PART], row) for seq in own for row in range(seq * groups, seq * groups + groups)]
    expected = [(first[row] + i, row) for row in range(len(first)) for i in range(count[row])]
    assert sorted(slots) == sorted(expected)
    assert len({slot for slot, _ in slots}) == len(slots)
    assert max(slot for slot, _ in slots) < len(plan.lse) // (shape.HEADS.value * shape.ROWS_PADDED.value)
    assert np.array_equal(np.sort(np.unique(records[:, p.SEQ])), np.arange(len(case.lengths)))
