"""Time is counted in whole nanoseconds: k steps last k times one step, and no sum of them drifts."""

import pytest
from comparison import assert_engine_equals_oracle
from examples import blocks_of

from pagesim.engine.durations import Linear, Roofline
from pagesim.engine.run import Run, simulate
from pagesim.errors import InputError

NS = 10**9


@pytest.mark.parametrize(("step_s", "step_ns"), [
    (0.1, 10**8), (0.03, 3 * 10**7), (1e-9, 1), (2.5e-9, 2), (1 / 3, 333_333_333), (0.7, 7 * 10**8)])
def test_many_steps_last_as_many_times_one(step_s, step_ns):
    result = simulate(blocks_of([(4, 5000)], 400, max_model_len=6000, durations=Linear(step_s)))
    assert result.requests.first_token_ns.tolist() == [step_ns]
    assert result.requests.finish_ns.tolist() == [5000 * step_ns]
    assert result.end_s == 5000 * step_ns / NS


@pytest.mark.parametrize(("step_s", "steps"), [(0.1, 8), (0.1, 3), (0.03, 10), (0.03, 4999), (0.7, 49), (1e-3, 1001)])
def test_a_request_that_arrives_as_a_step_ends_joins_the_next(play, step_s, steps):
    at_s = round(steps * step_s, 9)
    outcome = play(blocks_of([(4, steps + 2), (4, 1, at_s)], 400, max_model_len=6000, durations=Linear(step_s)))
    assert outcome.first_scheduled_s[1] == at_s, "it queues 0 s"
    assert len(outcome.views[-1].stored) == 1 and len(outcome.views[steps].stored) == 2


def test_a_step_is_rounded_once_and_halves_go_to_even():
    for step_s, prefill_token_s, expected_ns in ((1e-9, 0.5e-9, 2), (1e-9, 1.5e-9, 2), (2e-9, 0.4e-9, 2), (2e-9, 0.6e-9, 3)):
        made = blocks_of([(1, 1)], 4, durations=Linear(step_s, prefill_token_s))
        assert simulate(made).requests.finish_ns.tolist() == [expected_ns]
        assert_engine_equals_oracle(made)


def test_no_step_starts_at_an_end_that_many_steps_reach_exactly(play):
    assert len(play(blocks_of([(4, 99)], 9, durations=Linear(0.1), until_s=0.8)).views) == 8
    assert play(blocks_of([(4, 99)], 9, durations=Linear(0.1), warmup_s=0.8)).counters["steps"] == 91


def test_a_user_of_a_closed_loop_comes_back_at_the_end_of_a_step():
    result = simulate(blocks_of([(4, 8), (4, 1)], 9, durations=Linear(0.1), closed_users=1))
    assert result.requests.arrival_ns.tolist() == result.requests.first_scheduled_ns.tolist() == [0, 8 * 10**8]


def test_a_time_that_does_not_exist_is_none_in_seconds_too():
    requests = simulate(blocks_of([(4, 9), (4000, 1)], 4, until_s=2.0)).requests
    assert requests.finish_ns.tolist() == [-1, -1]
    assert requests.finish_s.tolist() == pytest.approx([float("nan")] * 2, nan_ok=True)
    assert requests.first_token_s.tolist() == pytest.approx([1.0, float("nan")], nan_ok=True)


@pytest.mark.parametrize("make", [
    lambda: Linear(1e-300), lambda: Linear(0.99e-9), lambda: Linear(0.0), lambda: Linear(0.0, 1.0),
    lambda: Linear(0.3e-9, 1.0, 0.3e-9, 0.3e-9), lambda: Roofline(1.0, 1.0, 1.0, 1.0, 1e12, 1e12)])
def test_a_step_shorter_than_a_nanosecond_is_refused(make):
    with pytest.raises(InputError, match=r"at least 1 ns .* a larger value"):
        make()


def test_a_step_of_a_nanosecond_is_accepted():
    assert Linear(1e-9).step_s == Linear(0.0, 0.0, 1e-9).sequence_s == Linear(0.0, 0.0, 0.0, 1e-9).context_token_s
    assert Roofline(1.0, 1.0, 1.0, 1.0, 1e12, 1e12, 1e-9).overhead_s == 1e-9


@pytest.mark.parametrize(("rows", "rest"), [
    ([(4, 1)], {"durations": Linear(1e15)}),
    ([(4, 9)], {"durations": Linear(1e9)}),
    ([(4, 9)], {"durations": Linear(1e9), "until_s": 1e12}),
    ([(4, 1), (4, 1, 9e9)], {}),
])
def test_a_run_beyond_the_end_of_the_clock_is_refused(rows, rest):
    with pytest.raises(InputError, match="longer than 146 years.*until_s"):
        Run(blocks_of(rows, 4, **rest)).advance()
