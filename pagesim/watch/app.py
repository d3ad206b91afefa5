"""The terminal: panels side by side on one clock, and the keys."""

import math
import time
from collections.abc import Callable

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, Static

from pagesim.watch.draw import EMPTY, FREE, KEPT, SHARED, STORED, STRANDED, draw
from pagesim.watch.player import Player, View

_FRAMES_PER_S = 12
_MOST_ELAPSED_S = 0.25      # of real time between two frames: a terminal that was stopped does not make up for it
_STEPS_AT_ONCE = 100
_BUSY_S = 0.05              # of a frame, for advancing
_KEPT_UP = 0.9              # of the speed that was asked for; below it the speed that is reached is shown
_SLOWEST, _FASTEST = 1 / 64, 1024.0
_KEYS = "space pause  → step  + - speed  n preemption  p peak  g time  ? more  q quit"
_HELP = f"""space   pause, and go on
→       one step of the case whose step ends first
+ -     twice, half the speed
n       on to the next preemption, of whichever case
p       to the fullest moment, of the case that is fullest of all
g       to a time that you type, in seconds
Home    back to the start: then n leads to the first preemption
e       on to the end
q       quit; Escape and Ctrl-C too

Memory, from the lowest address, row by row; a colour is a request:
{STORED} holds tokens   {EMPTY} is taken and still empty
{SHARED} several own it   {KEPT} is cached: nobody's, found again or overwritten
{FREE} is free        {STRANDED} is free, but no hole is large enough for the next request

The bar below is the ledger: shares of all memory, named under it.
All cases stand at the time that the first line says.

Any key leads back."""


class Panel(Widget):
    """A case."""

    DEFAULT_CSS = "Panel { width: 1fr; height: 1fr; margin-right: 1; } Panel:last-of-type { margin-right: 0; }"

    def __init__(self, player: Player, *, colour: bool) -> None:
        super().__init__()
        self.player, self._colour = player, colour
        self.shown: View | None = None

    def look(self) -> None:
        self.shown = self.player.view()
        self.refresh()

    def render(self):
        if self.shown is None:
            return ""
        return draw(self.shown, self.size.width, self.size.height, colour=self._colour)


class Help(ModalScreen[None]):
    """The keys, and what each sign means."""

    CSS = "Help { align: center middle; } Help Static { width: 76; max-width: 100%; height: auto; border: solid; }"

    def compose(self) -> ComposeResult:
        yield Static(_HELP, markup=False)

    def on_key(self, event: events.Key) -> None:
        event.stop()
        self.dismiss()


class AskTime(ModalScreen[float | None]):
    """A time in seconds; anything else leads back without one."""

    CSS = "AskTime { align: center middle; } AskTime Input { width: 40; max-width: 100%; }"
    BINDINGS = [Binding("escape", "dismiss(None)", "back")]

    def compose(self) -> ComposeResult:
        yield Input(type="number", placeholder="simulated seconds, then Enter")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        time_s = float(event.value) if event.validation_result is None or event.validation_result.is_valid else math.nan
        self.dismiss(time_s if math.isfinite(time_s) and time_s >= 0 else None)


class WatchApp(App[None]):
    """Plays the cases at ``speed`` simulated seconds a second."""

    TITLE = "pagesim watch"
    ENABLE_COMMAND_PALETTE = False
    CSS = "Screen { layout: vertical; } #clock, #keys { height: 1; } #keys { text-style: dim; }"
    BINDINGS = [
        Binding("space", "pause", "pause"),
        Binding("right", "step", "step"),
        Binding("plus,equals_sign", "faster", "faster"),
        Binding("minus,underscore", "slower", "slower"),
        Binding("n", "next_preemption", "next preemption"),
        Binding("p", "peak", "peak"),
        Binding("g", "go", "to a time"),
        Binding("home", "start", "start"),
        Binding("e", "end", "end"),
        Binding("question_mark,h", "help", "help"),
        Binding("q,escape", "quit", "quit"),
        Binding("ctrl+c", "interrupt", "quit", priority=True),
    ]

    def __init__(self, players: list[Player], speed: float, *, colour: bool, paused: bool = False) -> None:
        super().__init__()
        self.players, self.speed, self.paused, self._colour = players, speed, paused, colour
        self.clock_s = 0.0
        self._last_frame_s = 0.0
        self._reached: float | None = None  # simulated seconds a second, lately
        self._leaps_until: Callable[[], bool] | None = None
        self._leaps_to_s = math.inf

    def compose(self) -> ComposeResult:
        yield Static(id="clock")
        with Horizontal():
            for player in self.players:
                yield Panel(player, colour=self._colour)
        yield Static(_KEYS, id="keys")

    def on_mount(self) -> None:
        self._advance_to(0.0)
        self._look()
        self._last_frame_s = time.monotonic()
        self.set_interval(1 / _FRAMES_PER_S, self._frame)

    def _frame(self) -> None:
        now_s = time.monotonic()
        elapsed_s, self._last_frame_s = now_s - self._last_frame_s, now_s
        if self._leaps_until is not None:
            self._leap(self._leaps_until)
        elif not self.paused and not self._is_over():
            before_s = self.clock_s
            self._advance_to(before_s + self.speed * min(elapsed_s, _MOST_ELAPSED_S))
            self._measure((self.clock_s - before_s) / elapsed_s)
            self._look()

    def _measure(self, speed: float) -> None:
        self._reached = speed if self._reached is None else 0.9 * self._reached + 0.1 * speed

    def _leap(self, arrived: Callable[[], bool]) -> None:
        """As fast as it goes, a frame's worth."""
        self._advance_to(self._leaps_to_s, arrived)
        if arrived() or self._is_over():
            self._leaps_until, self.paused = None, True
        self._look()

    def _advance_to(self, time_s: float, arrived: Callable[[], bool] = lambda: False) -> None:
        """All players from change to change, so that all stand at one time; as far as a frame has time for."""
        until_s = time.monotonic() + _BUSY_S
        while coming := [player.next_s() for player in self.players if not player.over]:
            self.clock_s = min(time_s, *coming)
            for player in self.players:
                player.advance_to(self.clock_s, _STEPS_AT_ONCE)
            if self.clock_s == time_s or arrived() or time.monotonic() >= until_s:
                return

    def _is_over(self) -> bool:
        return all(player.over for player in self.players)

    def _look(self) -> None:
        if isinstance(self.screen, ModalScreen):
            return
        for panel in self.query(Panel):
            panel.look()
        state = ("over" if self._is_over() else "on the way" if self._leaps_until else "paused" if self.paused else
                 "playing")
        reached = ""
        if state == "playing" and self._reached is not None and self._reached < _KEPT_UP * self.speed:
            reached = f" asked, {self._reached:,.3g} reached"
        self.query_one("#clock", Static).update(f"{self.clock_s:,.3f} s  {state}  {_times(self.speed)}{reached}")

    def action_pause(self) -> None:
        self.paused = self._leaps_until is not None or not self.paused
        self._leaps_until = self._reached = None
        self._look()

    def action_step(self) -> None:
        """One step of the case whose step ends first."""
        self.paused = True
        coming = [player.next_s() for player in self.players if not player.over]
        if coming:
            self._advance_to(min(coming))
        self._look()

    def action_next_preemption(self) -> None:
        before = [player.preemptions() for player in self.players]
        self._leaps_to_s = math.inf
        self._leaps_until = lambda: [player.preemptions() for player in self.players] != before

    def action_end(self) -> None:
        self._leap_to(math.inf)

    def action_start(self) -> None:
        self._leap_to(0.0)

    def action_peak(self) -> None:
        share, time_s = max((player.peak() for player in self.players), key=lambda peak: peak[0])
        if share > 0:
            self._leap_to(time_s)

    def action_go(self) -> None:
        self.paused = True
        self.push_screen(AskTime(), lambda time_s: None if time_s is None else self._leap_to(time_s))

    def _leap_to(self, time_s: float) -> None:
        """To a time that may be past: a run is determined, it begins anew."""
        if time_s < self.clock_s:
            for player in self.players:
                player.rewind()
            self._advance_to(0.0)
        self._leaps_to_s, self._leaps_until = time_s, lambda: self.clock_s >= time_s

    def action_help(self) -> None:
        self.paused = True
        self.push_screen(Help())

    def action_faster(self) -> None:
        self.speed, self._reached = min(_FASTEST, self.speed * 2), None
        self._look()

    def action_slower(self) -> None:
        self.speed, self._reached = max(_SLOWEST, self.speed / 2), None
        self._look()

    def action_interrupt(self) -> None:
        self.exit(return_code=130)


def _times(speed: float) -> str:
    return f"{speed:g} simulated seconds a second" if speed >= 1 else f"1/{1 / speed:g} simulated second a second"
