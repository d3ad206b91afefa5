"""When rows of the trace join the queue."""

import math

from pagesim.errors import InputError


class Timed:
    """At the times of the trace."""

    def __init__(self, arrival_s) -> None:
        if arrival_s is None:
            raise InputError("the trace has no arrival times")
        self.arrival_s = [float(time_s) for time_s in arrival_s]
        self.row = 0

    def next_s(self) -> float | None:
        return self.arrival_s[self.row] if self.row < len(self.arrival_s) else None

    def until(self, now_s: float) -> list[int]:
        rows = []
        while self.row < len(self.arrival_s) and self.arrival_s[self.row] <= now_s:
            rows.append(self.row)
            self.row += 1
        return rows

    def request_left(self, number: int, now_s: float) -> None:
        pass


class Closed:
    """N users take rows in the order of the file; who leaves lets the next row arrive."""

    def __init__(self, num_rows: int, users: int) -> None:
        if users < 1:
            raise InputError("closed arrivals need at least one user")
        self.arrival_s = [math.nan] * num_rows
        self.row = 0          # first row that has not joined
        self.arrived = 0      # first row that has not arrived
        self.request_left(users, 0.0)

    def request_left(self, number: int, now_s: float) -> None:
        for row in range(self.arrived, min(self.arrived + number, len(self.arrival_s))):
            self.arrival_s[row] = now_s
            self.arrived += 1

    def next_s(self) -> float | None:
        return self.arrival_s[self.row] if self.row < self.arrived else None

    def until(self, now_s: float) -> list[int]:
        rows = list(range(self.row, self.arrived))
        self.row = self.arrived
        return rows
