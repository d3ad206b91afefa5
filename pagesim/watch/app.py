"""The terminal: panels side by side on one clock, and the keys."""

import time

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Static

from pagesim.watch.draw import draw
from pagesim.watch.player import Player, View

_FRAMES_PER_S = 12
_MOST_ELAPSED_S = 0.25      # of real time between two frames: a terminal that was stopped does not make up for it
_STEPS_AT_ONCE = 100
_BUSY_S = 0.05              # of a frame, for advancing
_SLOWEST, _FASTEST = 1 / 64, 1024.0
_KEYS = "space pause   → step   + - speed   q quit"


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
        Binding("q,escape", "quit", "quit"),
        Binding("ctrl+c", "interrupt", "quit", priority=True),
    ]

    def __init__(self, players: list[Player], speed: float, *, colour: bool, paused: bool = False) -> None:
        super().__init__()
        self.players, self.speed, self.paused, self._colour = players, speed, paused, colour
        self.clock_s = 0.0
        self._last_frame_s = 0.0

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
        elapsed_s, self._last_frame_s = min(now_s - self._last_frame_s, _MOST_ELAPSED_S), now_s
        if not self.paused and not self._is_over():
            self._advance_to(self.clock_s + self.speed * elapsed_s)
            self._look()

    def _advance_to(self, time_s: float) -> None:
        """All players to the same time; where they cannot keep up, to the time that the slowest reaches."""
        until_s = time.monotonic() + _BUSY_S
        left = [player for player in self.players if not player.advance_to(time_s, _STEPS_AT_ONCE)]
        while left and time.monotonic() < until_s:
            left = [player for player in left if not player.advance_to(time_s, _STEPS_AT_ONCE)]
        self.clock_s = min([time_s, *(player.reached_s() for player in left)])

    def _is_over(self) -> bool:
        return all(player.over for player in self.players)

    def _look(self) -> None:
        for panel in self.query(Panel):
            panel.look()
        state = "over" if self._is_over() else "paused" if self.paused else "playing"
        self.query_one("#clock", Static).update(f"{self.clock_s:,.3f} s  {state}  {_times(self.speed)}")

    def action_pause(self) -> None:
        self.paused = not self.paused
        self._look()

    def action_step(self) -> None:
        """One step of the case whose step ends first."""
        self.paused = True
        coming = [player.next_s() for player in self.players if not player.over]
        if coming:
            self._advance_to(min(coming))
        self._look()

    def action_faster(self) -> None:
        self.speed = min(_FASTEST, self.speed * 2)
        self._look()

    def action_slower(self) -> None:
        self.speed = max(_SLOWEST, self.speed / 2)
        self._look()

    def action_interrupt(self) -> None:
        self.exit(return_code=130)


def _times(speed: float) -> str:
    return f"{speed:g} simulated seconds a second" if speed >= 1 else f"1/{1 / speed:g} simulated second a second"
