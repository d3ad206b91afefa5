import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'pagesim[kernel]'")
pytest.importorskip("triton", reason="triton is not installed: pip install 'pagesim[kernel]' on Linux")
if torch.cuda.is_available():
    pytest.skip("the lesson runs in Triton's interpreter, which GPU tests cannot share", allow_module_level=True)

from pagesim.explain.corrupt import ENTRY, B, Batch, corrupt


def test_a_wrong_entry_changes_its_own_sequence_and_no_other():
    batch = Batch()
    right, table = batch.decode(batch.tables.dense()), batch.tables.dense()
    table[B, ENTRY] = table[0, 0]
    wrong = batch.decode(table)
    assert [torch.equal(before, after) for before, after in zip(right, wrong)] == [True, False, True]
    assert wrong.isfinite().all(), "foreign text, no sign of an error"


def test_the_lesson_says_so_and_names_the_table_check():
    lesson = corrupt()
    lines = "\n".join(lesson.lines)
    assert "A unchanged, B changed by up to" in lines and "A unchanged, B NaN, C unchanged" in lines
    assert "block 0 is owned twice: by sequence 0 entry 0 and by sequence 1 entry 1" in lines
    assert lesson.question.answer == "no", "the kernel gives the same output with two full blocks exchanged"
    assert [line for line in lesson.lines if len(line) > 80] == []
