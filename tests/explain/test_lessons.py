import numpy as np
import pytest

from pagesim.core.ledger import NOBODY
from pagesim.engine.ownership import free_runs
from pagesim.errors import InputError
from pagesim.explain.ae import ae
from pagesim.explain.block_size import block_size
from pagesim.explain.evict import evict
from pagesim.explain.growth import growth
from pagesim.explain.hit import hit
from pagesim.explain.holes import holes
from pagesim.explain.scene import bar
from pagesim.explain.softmax import BLOCK, KEYS, NOTHING, QUERY, VALUES, absorb, one_pass, softmax
from pagesim.explain.tokens import tokens
from pagesim.explain.translate import translate
from pagesim.explain.waste import waste


def text(lesson) -> str:
    return "\n".join(lesson.lines)


@pytest.mark.parametrize("lesson", [tokens, lambda: translate([7, 2, 15], 20), holes, ae, softmax, hit, evict, waste, growth, block_size])
def test_a_lesson_fits_eighty_columns_and_accepts_its_own_answer(lesson):
    made = lesson()
    assert [line for line in made.lines if len(line) > 80] == []
    assert made.question.accepts(made.question.solution)
    assert not made.question.accepts("5")


def test_fifty_tokens_become_four_blocks_on_scattered_places():
    lesson = tokens(50, 16)
    assert "table [12, 7, 42, 3]" in text(lesson)
    assert "20 → 116 " in text(lesson) and "49 → 49\n" in text(lesson)
    assert lesson.question.answer == 128, "2,048 tokens in blocks of 16"


def test_every_token_is_listed_once_whatever_the_block_size():
    for num_tokens, size in ((1, 1), (7, 1), (16, 16), (17, 16), (50, 16), (200, 24), (1024, 8), (3, 64)):
        listed = [cell.split(" → ") for line in tokens(num_tokens, size).lines if " → " in line
                  for cell in line.strip().split("  ") if cell.strip()]
        assert sorted(int(token) for token, _ in listed) == list(range(num_tokens))
        assert len({slot for _, slot in listed}) == num_tokens, "no two tokens share a slot"


def test_a_block_is_taken_when_its_first_token_is_computed_not_before():
    lines = tokens(50, 16).lines
    assert next(line for line in lines if "token 47 " in line).count(",") == 2
    assert "was full" in next(line for line in lines if "token 48 " in line)


def test_tokens_out_of_range_are_refused():
    with pytest.raises(InputError, match="1 to 1,024 tokens"):
        tokens(1025)


def test_token_20_of_table_7_2_15_lies_in_slot_36():
    lesson = translate([7, 2, 15], 20)
    assert "slot            2 · 16 + 4 = 36" in text(lesson)
    assert lesson.question.answer == 15 * 16 + 15
    assert translate([7, 2, 15], 47).question.answer == 7 * 16, "the last token is not asked for twice"


@pytest.mark.parametrize(("table", "token", "message"), [
    ([7, 2, 15], 48, "hold tokens 0 to 47, got token 48"), ([7, 2], -1, "got token -1"),
    ([], 0, "one or more block ids"), ([7, 7], 3, "owned twice"), ([2**31], 0, "32-bit")])
def test_a_table_or_token_that_cannot_be_is_refused(table, token, message):
    with pytest.raises(InputError, match=message):
        translate(table, token)


def test_holes_of_3584_refuse_1536_and_the_measures_disagree():
    lesson = holes()
    for fact in ("512 + 256 + 1024 + 768 + 1024 = 3,584 MiB = 3.50 GiB", "= 0.714", "cannot use = 1.0", "= 334",
                 "= 1 of 1 s", "starts at 2 s", "starts at 1 s"):
        assert fact in text(lesson)
    assert lesson.question.answer == 1024


def test_e_waits_for_adjacent_slots_and_runs_in_scattered_blocks():
    lesson = ae()
    assert "....BBBB....DDDD   32 slots free" in text(lesson)
    assert "EEEEBBBBEEEEDDDD" in text(lesson)
    assert "end at 9 s" in text(lesson) and "table is [2, 0]" in text(lesson)
    assert lesson.question.answer == 4


def test_block_by_block_equals_one_pass_for_any_cut():
    scores = KEYS @ QUERY
    for size in range(1, len(scores) + 1):
        running = NOTHING
        for start in range(0, len(scores), size):
            running = absorb(running, scores[start:start + size], VALUES[start:start + size])
        np.testing.assert_allclose(running.out / running.total, one_pass(scores, VALUES), rtol=1e-14)


def test_the_recurrence_of_the_lesson_is_that_of_the_kernels_reference():
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'pagesim[kernel]'")
    from pagesim.kernels.mask import Mask
    from pagesim.kernels.reference import blockwise_attention

    q, k, v = (torch.from_numpy(x)[:, None] for x in (QUERY[None], KEYS, VALUES))
    out = blockwise_attention(q, k, v, BLOCK, Mask(scale=1.0))[0, 0]
    np.testing.assert_allclose(out.numpy(), one_pass(KEYS @ QUERY, VALUES), rtol=1e-12)


def test_a_bar_shows_who_owns_the_middle_of_each_column():
    owners = np.repeat([0, NOBODY, 1], [72, 72, 144])
    assert bar(owners, "AB") == "A" * 18 + "." * 18 + "B" * 36
    assert bar(np.array([NOBODY, 1, 0]), "AB") == ".BA"


def test_free_runs_are_found_at_both_ends():
    assert free_runs(np.array([NOBODY, NOBODY, 3, NOBODY, 3, 3, NOBODY])) == [2, 1, 1]
    assert free_runs(np.array([1, 1])) == []


def test_two_blocks_of_the_prompt_are_found_and_of_a_prompt_that_is_all_there_its_last_token_is_not():
    lesson = hit()
    for fact in ("table of B   [0, 1, 3, 4]", "So 8 of 13 tokens", "7 entries, but 5 blocks are taken: 28.6 % saved"):
        assert fact in text(lesson)
    assert lesson.question.answer == 4


def test_the_block_used_least_recently_goes_first_and_the_end_of_a_prompt_before_its_beginning():
    lesson = evict()
    for fact in ("[0, 1, 2]     2  3  4  5  1  0", "[2, 3, 4]     4  5  1  0  3  2", "[0, 4, 5]     5  1  3  2  4  0",
                 "table [5, 1, 3, 2]"):
        assert fact in text(lesson)
    assert lesson.question.answer == 4


def test_of_2048_reserved_slots_200_are_used_and_78_requests_run_where_8_did():
    lesson = waste()
    for fact in ("1,848 slots empty, 90.2 %", "13 blocks, 208 slots, used 200: 8 slots empty", "  8 run at once, 9.8 %",
                 " 78 run at once, 95.2 %"):
        assert fact in text(lesson)
    assert lesson.question.answer == 56


def test_a_region_that_grows_is_copied_unless_the_slots_behind_it_are_free():
    lesson = growth()
    copies = [int(line.split()[2]) for line in lesson.lines if "tokens copied" in line]
    assert copies == [16 + 16, 24 + 24], "A and B, full at 16 and at 24; at 36 both grow in place"
    assert "In all 80 tokens were copied to store 96" in text(lesson) and "0 copied" in text(lesson)
    assert lesson.question.answer == 81


def test_empty_slots_come_near_half_a_block_a_sequence_and_entries_are_the_blocks():
    lesson, lengths = block_size(), [1 + 37 * k % 800 for k in range(100)]
    rows = {int(row[0]): row for row in (line.replace(",", "").split() for line in lesson.lines) if row and row[0].isdigit()}
    assert set(rows) == {1, 16, 64, 256}
    for size, row in rows.items():
        assert int(row[5]) == sum(-(-length // size) for length in lengths)
        assert float(row[1]) == pytest.approx((int(row[5]) * size - sum(lengths)) / 100, abs=0.05)
    assert lesson.question.answer == 16_000
