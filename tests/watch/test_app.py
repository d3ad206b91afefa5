import asyncio

import pytest

pytest.importorskip("textual", reason="textual is not installed: pip install 'pagesim[watch]'")

from games import player

from pagesim.allocators import Contiguous, Paged
from pagesim.watch.app import Panel, WatchApp
from pagesim.watch.draw import EMPTY, FREE, STORED, STRANDED


def play(script, *, paused=True, speed=1.0, players=None):
    """Run the script against an app of a contiguous and a paged case on 80 × 24; returns the app after it has ended."""
    app = WatchApp(players or [player(Contiguous("exact")), player(Paged(16))], speed, colour=True, paused=paused)

    async def run() -> None:
        async with app.run_test(size=(80, 24)) as pilot:
            await script(app, pilot)

    asyncio.run(run())
    return app


def texts(app) -> list[str]:
    return [panel.render().plain for panel in app.query(Panel)]


def clock_line(app) -> str:
    return str(app.query_one("#clock").render())


def test_both_cases_are_shown_side_by_side_at_the_start():
    async def script(app, pilot):
        await pilot.pause()
        left, right = texts(app)
        assert left.startswith("contiguous") and right.startswith("paged")
        assert "running 4  waiting 0" in left and "running 4  waiting 0" in right
        assert [panel.size.width for panel in app.query(Panel)] == [39, 40]

    play(script)


def test_the_right_arrow_takes_one_step_of_all_cases_and_pauses():
    async def script(app, pilot):
        await pilot.press("right")
        assert (app.clock_s, app.paused) == (1.0, True)
        left, right = texts(app)
        assert "waiting 1" in left and "stranded" in left and "×" in left
        assert "running 3  waiting 0" in right
        await pilot.press("right", "right")
        assert app.clock_s == 3.0

    play(script, paused=False, speed=1 / 64)


def test_steps_lead_over_idle_time_to_the_end():
    async def script(app, pilot):
        await pilot.press(*["right"] * 20)
        assert all("the run is over" in text for text in texts(app))
        assert "over" in clock_line(app)
        await pilot.press("right")

    play(script)


def test_space_pauses_and_goes_on():
    async def script(app, pilot):
        await pilot.press("space")
        assert not app.paused and "playing" in clock_line(app)
        await pilot.press("space")
        assert app.paused and "paused" in clock_line(app)

    play(script)


def test_plus_and_minus_double_and_halve_the_speed_within_bounds():
    async def script(app, pilot):
        await pilot.press("plus", "plus", "minus")
        assert app.speed == 2.0 and "2 simulated seconds a second" in clock_line(app)
        await pilot.press(*["minus"] * 20)
        assert app.speed == 1 / 64 and "1/64 simulated second" in clock_line(app)
        await pilot.press(*["plus"] * 40)
        assert app.speed == 1024

    play(script)


def test_playing_moves_the_clock_of_both_cases_together():
    async def script(app, pilot):
        while app.clock_s < 2.0:
            await pilot.pause(0.05)
        assert {panel.player.reached_s() for panel in app.query(Panel)} == {app.clock_s}

    play(script, paused=False, speed=64.0)


def test_where_a_case_cannot_keep_up_the_clock_stands_where_it_is(monkeypatch):
    monkeypatch.setattr("pagesim.watch.app._STEPS_AT_ONCE", 1)
    monkeypatch.setattr("pagesim.watch.app._BUSY_S", 0.0)

    async def script(app, pilot):
        assert app.clock_s == 0.0
        for step in (1.0, 2.0):
            app._advance_to(8.0)
            assert app.clock_s == step, "the step that begins then is under way, and there was no time for more"

    play(script)


def test_all_cases_stand_at_the_time_that_is_shown_however_little_time_there_is(monkeypatch):
    monkeypatch.setattr("pagesim.watch.app._BUSY_S", 0.0)

    async def script(app, pilot):
        for _ in range(30):
            app._advance_to(app.clock_s + 7.3)
            assert {player.reached_s() for player in app.players} == {app.clock_s}

    play(script)


def test_the_speed_that_is_reached_is_shown_where_it_is_not_the_one_asked_for(monkeypatch):
    monkeypatch.setattr("pagesim.watch.app._BUSY_S", 0.0)

    async def script(app, pilot):
        while "asked" not in clock_line(app) and not app._is_over():
            await pilot.pause(0.05)
        assert "1024 simulated seconds a second asked, " in clock_line(app) and "reached" in clock_line(app)

    play(script, paused=False, speed=1024.0)


def test_n_leads_to_the_next_preemption_and_e_to_the_end():
    growing = ((0, 16, 40), (0, 16, 40), (30, 20, 3))

    async def script(app, pilot):
        await pilot.press("n")
        while app._leaps_until is not None:
            await pilot.pause(0.05)
        first = sum(player.preemptions() for player in app.players)
        assert first >= 1 and app.paused and not app._is_over()
        await pilot.press("e")
        while app._leaps_until is not None:
            await pilot.pause(0.05)
        assert app._is_over()

    play(script, players=[player(Contiguous("grow"), growing), player(Paged(16), growing)])


def leap(pilot, app):
    async def wait() -> None:
        while app._leaps_until is not None:
            await pilot.pause(0.05)

    return wait()


def test_p_leads_to_the_fullest_moment_and_home_back_to_the_start():
    async def script(app, pilot):
        await pilot.press("e")
        await leap(pilot, app)
        await pilot.press("p")
        await leap(pilot, app)
        fullest = max(player.peak()[0] for player in app.players)
        shown = [view.parts_slots[0] / 64 for view in (panel.shown for panel in app.query(Panel))]
        assert app.clock_s > 0 and fullest in shown and app.paused
        await pilot.press("home")
        await leap(pilot, app)
        assert app.clock_s == 0.0 and all("running 1" in text for text in texts(app))

    rows = ((0, 16, 1), (2, 16, 1), (2, 40, 3), (9, 8, 1))
    play(script, players=[player(Contiguous("exact"), rows), player(Paged(16), rows)])


def test_g_asks_for_a_time_which_may_be_past():
    async def script(app, pilot):
        for typed, reached in (("30.5", 30.5), ("1.5", 1.5), ("", 1.5)):
            await pilot.press("g")
            await pilot.pause()
            await pilot.press(*typed, "enter")
            await pilot.pause()
            await leap(pilot, app)
            assert app.clock_s == reached and {player.reached_s() for player in app.players} == {reached}
        await pilot.press("g")
        await pilot.pause()
        await pilot.press("9", "escape")
        await pilot.pause()
        assert app.clock_s == 1.5 and len(app.query(Panel)) == 2

    play(script)


def test_the_help_names_every_key_and_sign_and_any_key_leads_back():
    async def script(app, pilot):
        await pilot.press("question_mark")
        await pilot.pause()
        shown = str(app.screen.query_one("Static").render())
        assert all(sign in shown for sign in (STORED, EMPTY, FREE, STRANDED, "space", "→", "n ", "e "))
        await pilot.press("x")
        await pilot.pause()
        assert len(app.query(Panel)) == 2

    play(script)


@pytest.mark.parametrize(("key", "code"), [("q", 0), ("escape", 0), ("ctrl+c", 130)])
def test_q_and_escape_quit_and_ctrl_c_ends_with_130(key, code):
    async def script(app, pilot):
        await pilot.press(key)

    assert play(script).return_code == code


def test_a_small_terminal_and_a_resize_are_borne():
    async def script(app, pilot):
        for size in ((30, 8), (10, 3), (200, 60)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert all(text for text in texts(app))

    play(script)
