import numpy as np
import pytest
from games import player, seen_at, sharing_player

from pagesim.allocators import Contiguous, Paged
from pagesim.core.ledger import PARTS
from pagesim.watch.draw import (
    EMPTY, FREE, KEPT, LEDGER, OWNER_COLOURS, SHARED, STORED, STRANDED, bar_widths, draw, memory_cells)


def lines(view, width=38, height=22, colour=True):
    return draw(view, width, height, colour=colour).plain.split("\n")


def test_every_part_of_the_ledger_has_a_name_and_a_character_of_its_own():
    assert tuple(LEDGER) == PARTS
    characters = {character for _, character, _ in LEDGER.values()}
    assert len(characters) == len(PARTS) and EMPTY not in characters
    assert len(set(OWNER_COLOURS)) == len(OWNER_COLOURS)


@pytest.mark.parametrize("allocator", [Contiguous("exact"), Contiguous("max_model_len", "buddy"), Paged(16), Paged(1)])
@pytest.mark.parametrize(("width", "height"), [(38, 22), (26, 22), (12, 8), (150, 45), (1, 1)])
def test_a_panel_never_exceeds_its_room(allocator, width, height):
    for time_s in (0.0, 1.0, 20.0, 99.0):
        drawn = lines(seen_at(player(allocator), time_s), width, height)
        assert len(drawn) <= height and max(map(len, drawn)) <= width


def test_the_map_shows_stored_empty_and_stranded_slots_in_order_of_address():
    kinds, owners = memory_cells(seen_at(player(), 1.0), 64)
    assert kinds == STRANDED * 16 + STORED * 9 + EMPTY * 7 + STRANDED * 16 + STORED * 9 + EMPTY * 7
    assert owners.tolist() == [-1] * 16 + [1] * 16 + [-1] * 16 + [3] * 16


def test_a_cell_of_many_slots_shows_what_most_of_it_is():
    assert memory_cells(seen_at(player(), 1.0), 4)[0] == STRANDED + STORED + STRANDED + STORED
    assert memory_cells(seen_at(player(Paged(16)), 1.0), 4)[0] == STORED * 4


def test_a_cell_that_several_share_shows_the_latest_of_them():
    view = seen_at(player(Paged(16)), 1.0)
    assert view.owners.tolist() == [4, 1, 4, 3]
    assert memory_cells(view, 4)[1].tolist() == [4, 1, 4, 3]
    assert memory_cells(view, 2)[1].tolist() == [4, 4]


def test_without_colour_a_request_is_a_letter_and_its_empty_slots_are_small():
    view = seen_at(player(), 1.0)
    drawn = lines(view, width=64, colour=False)
    assert "×" * 16 + "B" * 9 + "b" * 7 + "×" * 16 + "D" * 9 + "d" * 7 in drawn
    styles = [span.style for span in draw(view, 64, 22, colour=False).spans if not isinstance(span.style, str)]
    assert not any(style.color for style in styles)


def test_the_figures_of_the_panel_are_those_of_the_view():
    text = "\n".join(lines(seen_at(player(), 1.0)))
    for figure in ("64 slots, a cell each", "running 2  waiting 1", "done 2/7  preempted 0", "× stranded 50.0%",
                   "█ used 28.1%", "free: 32 in 2 holes, largest 16"):
        assert figure in text


def test_blocks_of_one_slot_are_blocks_and_have_no_holes():
    text = "\n".join(lines(seen_at(player(Paged(1)), 20.0)))
    assert "64 blocks of 1, a cell each" in text and "free: 64 blocks, any of them serves" in text


def test_an_idle_and_an_ended_run_say_so():
    assert "idle until 30.00 s" in lines(seen_at(player(), 20.0))
    assert "the run is over" in lines(seen_at(player(), 99.0))


def test_the_bar_fills_its_width_and_is_true_to_a_column():
    rng = np.random.default_rng(1)
    for _ in range(200):
        parts, width = rng.integers(0, 1000, len(PARTS)), int(rng.integers(1, 90))
        widths = bar_widths(parts, width)
        assert sum(widths) == width or parts.sum() == 0
        assert all(abs(columns - width * part / max(1, parts.sum())) <= 1 for columns, part in zip(widths, parts))


def test_shared_and_cached_blocks_have_signs_of_their_own():
    view = seen_at(sharing_player(), 1.0)  # two found the prompt of the first
    kinds, owners = memory_cells(view, 8)
    assert (kinds, owners.tolist()) == (SHARED * 2 + EMPTY * 2 + FREE * 4, [1, 1, 1, 2, -1, -1, -1, -1])
    assert memory_cells(seen_at(sharing_player(), 6.0), 8)[0] == KEPT * 2 + FREE * 6, "nothing runs until 9 s"
    idle = lines(seen_at(sharing_player(), 6.0))
    assert "idle until 9.00 s" in idle and "o cached 25.0%  · free 75.0%" in idle
    assert "free: 6 blocks, 2 more are cached" in idle
    assert memory_cells(seen_at(sharing_player(), 99.0), 8)[0] == KEPT * 2 + FREE * 6, "nor after the end"
