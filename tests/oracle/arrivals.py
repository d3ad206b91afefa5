"""When rows of the trace join the queue."""

import math


class Timed:
    """At the times of the trace."""

    def __init__(self, arrival_s) -> None:
        self.arrival_s = [float(time_s) for time_s in arrival_s]

    def request_left(self, number: int, now_s: float) -> None:
        pass


class Closed:
    """N users take rows in the order of the file; who leaves lets the next row arrive."""

    def __init__(self, num_rows: int, users: int) -> None:
        self.arrival_s = [math.nan] * num_rows
        self.arrived = 0      # first row that has not arrived
        self.request_left(users, 0.0)

    def request_left(self, number: int, now_s: float) -> None:
        for row in range(self.arrived, min(self.arrived + number, len(self.arrival_s))):
            self.arrival_s[row] = now_s
            self.arrived += 1


class Joining:
    """A row joins when it has arrived and the turn before it, if it has one, has ended.

    With think time it arrives so long after that end; what the trace says of its arrival counts for nothing then, but a
    user of a closed loop must have taken it.
    """

    def __init__(self, arrivals: Timed | Closed, parent: list[int], think_s: list[float]) -> None:
        self.arrivals, self.parent, self.think_s = arrivals, parent, think_s
        self.ended_s = [math.nan] * len(parent)
        self.not_joined = set(range(len(parent)))

    def joins_s(self, row: int) -> float:
        """NaN while it is not known."""
        arrival_s, parent = self.arrivals.arrival_s[row], self.parent[row]
        if parent < 0:
            return arrival_s
        ended_s = self.ended_s[parent]
        if math.isnan(arrival_s) or math.isnan(ended_s):
            return math.nan
        if self.think_s[row] < 0:
            return max(arrival_s, ended_s)
        taken_s = arrival_s if isinstance(self.arrivals, Closed) else 0.0
        return max(taken_s, ended_s + self.think_s[row])

    def next_s(self) -> float | None:
        return min((self.joins_s(row) for row in self.not_joined if not math.isnan(self.joins_s(row))), default=None)

    def next_row(self, now_s: float) -> int | None:
        """The row to join next of those that may by now: the earliest, of these the first in the file."""
        ready = [(self.joins_s(row), row) for row in self.not_joined if self.joins_s(row) <= now_s]
        if not ready:
            return None
        time_s, row = min(ready)
        self.not_joined.remove(row)
        if self.parent[row] >= 0 and self.think_s[row] >= 0:
            self.arrivals.arrival_s[row] = time_s
        return row
