"""report/thinning.py: a thinned timeline keeps every mean, every extreme and every event."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagesim.core.ledger import PARTS
from pagesim.report.thinning import MAXIMA, MEANS, SUMS, thin

CAPACITY, REMAINDER = 100, 4


@st.composite
def timelines(draw):
    """Rows of a timeline with idle time between some; parts sum to the capacity."""
    count = draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    duration = rng.uniform(0.01, 2, count)
    gaps = np.where(rng.random(count) < 0.3, rng.uniform(0.1, 3, count), 0)
    start = np.cumsum(gaps + np.concatenate([[0], duration[:-1]]))
    parts = rng.dirichlet(np.ones(len(PARTS)), count) * (CAPACITY - REMAINDER)
    parts[:, PARTS.index("idle")] += parts[:, PARTS.index("remainder")]
    parts[:, PARTS.index("remainder")] = REMAINDER
    timeline = dict(zip(MEANS, [*parts.T, rng.uniform(0, 9, count), rng.uniform(0, 9, count)]))
    timeline |= {name: rng.integers(0, 50, count).astype(float) for name in (*MAXIMA, *SUMS)}
    return timeline | {"start_s": start, "duration_s": duration}


@given(timelines(), st.integers(1, 200))
def test_means_extremes_and_events_of_the_whole_are_kept(timeline, most_columns):
    thinned = thin(timeline, most_columns)
    assert len(thinned.edges_s) <= most_columns + 1
    lengths = np.diff(thinned.edges_s)
    for name in ("mean_running", "mean_token_states_slots"):
        area = (timeline[name] * timeline["duration_s"]).sum()
        assert (thinned.values[name] * lengths).sum() == pytest.approx(area)
    for name in MAXIMA:
        assert thinned.values[name].max() == timeline[name].max()
    for name in SUMS:
        assert thinned.values[name].sum() == timeline[name].sum()


@given(timelines(), st.integers(1, 200))
def test_the_ledger_fills_the_capacity_at_all_times_also_where_nothing_runs(timeline, most_columns):
    np.testing.assert_allclose(thin(timeline, most_columns).shares(CAPACITY).sum(axis=0), 1)


def test_few_rows_are_drawn_as_they_are():
    timeline = {name: np.array([1.0, 2.0, 3.0]) for name in (*MEANS, *MAXIMA, *SUMS)}
    thinned = thin(timeline | {"start_s": np.array([0.0, 1.0, 5.0]), "duration_s": np.array([1.0, 2.0, 1.0])}, 10)
    assert thinned.exact and thinned.edges_s.tolist() == [0, 1, 3, 5, 6]
    assert thinned.values["mean_running"].tolist() == [1, 2, 0, 3]


def test_a_run_without_steps_has_no_stretch():
    timeline = {name: np.zeros(0) for name in (*MEANS, *MAXIMA, *SUMS, "start_s", "duration_s")}
    assert len(thin(timeline, 10).edges_s) == 1
