"""When rows of the trace join the queue."""

class Timed:
    """At the times of the trace."""

    def __init__(self, arrival_ns) -> None:
        self.arrival_ns = [int(time_ns) for time_ns in arrival_ns]

    def request_left(self, number: int, now_ns: int) -> None:
        pass


class Closed:
    """N users take rows in the order of the file; who leaves lets the next row arrive."""

    def __init__(self, num_rows: int, users: int) -> None:
        self.arrival_ns = [None] * num_rows
        self.arrived = 0      # first row that has not arrived
        self.request_left(users, 0)

    def request_left(self, number: int, now_ns: int) -> None:
        for row in range(self.arrived, min(self.arrived + number, len(self.arrival_ns))):
            self.arrival_ns[row] = now_ns
            self.arrived += 1


class Joining:
    """A row joins when it has arrived and the turn before it, if it has one, has ended.

    With think time it arrives so long after that end; what the trace says of its arrival counts for nothing then, but a
    user of a closed loop must have taken it.
    """

    def __init__(self, arrivals: Timed | Closed, parent: list[int], think_ns: list[int]) -> None:
        self.arrivals, self.parent, self.think_ns = arrivals, parent, think_ns
        self.ended_ns = [None] * len(parent)
        self.not_joined = set(range(len(parent)))

    def joins_ns(self, row: int) -> int | None:
        """None while it is not known."""
        arrival_ns, parent = self.arrivals.arrival_ns[row], self.parent[row]
        if parent < 0:
            return arrival_ns
        ended_ns = self.ended_ns[parent]
        if arrival_ns is None or ended_ns is None:
            return None
        if self.think_ns[row] < 0:
            return max(arrival_ns, ended_ns)
        taken_ns = arrival_ns if isinstance(self.arrivals, Closed) else 0
        return max(taken_ns, ended_ns + self.think_ns[row])

    def known(self) -> list[tuple[int, int]]:
        """(when it joins, row) of those that have not joined."""
        times = [(self.joins_ns(row), row) for row in self.not_joined]
        return [(time_ns, row) for time_ns, row in times if time_ns is not None]

    def next_ns(self) -> int | None:
        return min((time_ns for time_ns, _ in self.known()), default=None)

    def next_row(self, now_ns: int) -> int | None:
        """The row to join next of those that may by now: the earliest, of these the first in the file."""
        ready = [(time_ns, row) for time_ns, row in self.known() if time_ns <= now_ns]
        if not ready:
            return None
        time_ns, row = min(ready)
        self.not_joined.remove(row)
        if self.parent[row] >= 0 and self.think_ns[row] >= 0:
            self.arrivals.arrival_ns[row] = time_ns
        return row
