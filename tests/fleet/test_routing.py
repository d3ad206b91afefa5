"""fleet/routing.py: who serves which request, known beforehand."""

import numpy as np
import pytest

from pagesim.case import Replicas
from pagesim.errors import InputError
from pagesim.fleet.routing import dealt, part
from pagesim.trace import Trace


def trace(num_requests, **columns):
    ones = np.ones(num_requests, np.int32)
    return Trace(np.arange(num_requests), ones, ones, **{name: np.array(values) for name, values in columns.items()})


def test_round_robin_gives_each_request_to_the_next_replica():
    assert dealt(trace(7), Replicas(3)).tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_a_session_goes_where_its_first_turn_went_and_a_request_without_one_is_its_own():
    sessions = trace(8, session=[5, -1, 5, 2, -1, 2, 9, 5])
    #                      session: 0   1  0  2   3  2  4  0
    assert dealt(sessions, Replicas(2, "by_session")).tolist() == [0, 1, 0, 0, 1, 0, 0, 0]


def test_without_sessions_by_session_is_round_robin():
    assert dealt(trace(9), Replicas(4, "by_session")).tolist() == dealt(trace(9), Replicas(4)).tolist()


def test_a_turn_is_not_sent_away_from_the_turn_that_it_waits_for():
    turns = trace(4, session=[0, 1, 0, 1], session_parent=[-1, -1, 0, 1])
    assert dealt(turns, Replicas(2)).tolist() == [0, 1, 0, 1]
    with pytest.raises(InputError, match=r"request 2 for 0.*by_session"):
        dealt(turns, Replicas(3))


def test_a_part_of_a_trace_keeps_times_ids_and_turns():
    whole = trace(4, session=[0, 1, 0, 1], session_parent=[-1, -1, 0, 1], prefix_ids=[7, 8, 8, 9, 9, 9],
                  prefix_offsets=[0, 1, 3, 3, 6])
    own = part(whole, np.array([1, 3]))
    assert own.arrival_ns.tolist() == [1, 3] and own.session_parent.tolist() == [-1, 0]
    assert own.prefix_ids.tolist() == [8, 8, 9, 9, 9] and own.prefix_offsets.tolist() == [0, 2, 5]
