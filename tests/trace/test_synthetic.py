import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagesim.errors import InputError
from pagesim.trace.inspect import prefix_reuse
from pagesim.trace.lengths import Constant, Gamma, Lognormal, Quantiles, parse_lengths
from pagesim.trace.synthetic import Bounds, Bursty, PrefixTree, Samples, Steady, generate

MANY = 50_000


def test_lognormal_has_its_mean_and_sigma():
    tokens = generate(MANY, Lognormal(1200, 0.6), Constant(1)).prompt_tokens
    assert tokens.mean() == pytest.approx(1200, rel=0.02) and np.log(tokens).std() == pytest.approx(0.6, rel=0.02)


def test_gamma_has_its_mean_and_cv():
    tokens = generate(MANY, Constant(1), Gamma(345, 0.88)).output_tokens
    assert tokens.mean() == pytest.approx(345, rel=0.02) and tokens.std() / tokens.mean() == pytest.approx(0.88, rel=0.02)


def test_quantiles_come_back_as_given():
    points = ((0, 5), (0.25, 50), (0.5, 60), (0.9, 1000), (1, 4000))
    tokens = generate(MANY, Quantiles(points), Constant(1)).prompt_tokens
    for share, value in points[1:-1]:
        assert np.mean(tokens <= value) == pytest.approx(share, abs=0.02)
    assert tokens.min() >= 5 and tokens.max() <= 4000


def test_a_count_is_never_below_1():
    assert generate(MANY, Gamma(2, 3), Gamma(2, 3)).prompt_tokens.min() == 1


def test_requests_outside_the_bounds_are_drawn_again_and_not_cut():
    bounds = Bounds(max_prompt_tokens=1024, max_total_tokens=2048)
    trace = generate(MANY, Lognormal(182, 1.05), Gamma(345, 0.88), bounds=bounds)
    total = trace.prompt_tokens + trace.output_tokens
    assert len(trace) == MANY and trace.prompt_tokens.max() <= 1024 and total.max() <= 2048
    assert np.mean(trace.prompt_tokens == 1024) < 0.001
    assert trace.prompt_tokens.mean() == pytest.approx(160, rel=0.02) and trace.output_tokens.mean() == pytest.approx(341, rel=0.02)


def test_bounds_that_nothing_meets_are_refused():
    with pytest.raises(InputError, match="1,000 draws in a row gave no request within .* widen the bounds"):
        generate(5, Constant(100), Constant(100), bounds=Bounds(max_total_tokens=50))


def test_steady_arrivals_have_their_rate_and_cv():
    intervals_s = np.diff(generate(MANY, Constant(1), Constant(1), arrivals=Steady(5, 2)).arrival_s)
    assert 1 / intervals_s.mean() == pytest.approx(5, rel=0.05) and intervals_s.std() / intervals_s.mean() == pytest.approx(2, rel=0.05)


def test_bursts_keep_the_rate_over_all_and_leave_quiet_between_them():
    arrival_s = generate(200_000, Constant(1), Constant(1), arrivals=Bursty(20, on_s=2, off_s=6)).arrival_s
    assert (len(arrival_s) - 1) / arrival_s[-1] == pytest.approx(20, rel=0.1)
    seconds = np.bincount(arrival_s.astype(int))
    assert np.mean(seconds == 0) > 0.5 and np.median(seconds[seconds > 40]) == pytest.approx(80, rel=0.2)


def test_without_arrivals_a_trace_has_lengths_only():
    assert generate(3, Constant(1), Constant(1)).arrival_s is None


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 8), st.integers(0, 9))
def test_every_prompt_has_an_id_for_each_block_and_shares_only_whole_texts_of_its_path(depth, fanout, node_blocks, block_tokens, seed):
    tree = PrefixTree(depth, fanout, node_blocks * block_tokens, block_tokens)
    trace = generate(30, Gamma(40, 1), Constant(1), prefixes=tree, seed=seed)
    own = [ids.tolist() for ids in np.split(trace.prefix_ids, trace.prefix_offsets[1:-1])]
    assert [len(ids) for ids in own] == [-(-tokens // block_tokens) for tokens in trace.prompt_tokens]
    for i, ids in enumerate(own):
        assert len(set(ids)) == len(ids)
        for j, others in enumerate(own[:i]):
            common = len(set(ids) & set(others))
            assert ids[:common] == others[:common]  # what two prompts share is a prefix of both
            assert common <= min(depth * node_blocks, trace.prompt_tokens[i] // block_tokens, trace.prompt_tokens[j] // block_tokens)


def test_a_tree_of_one_path_is_shared_by_all():
    trace = generate(10, Constant(100), Constant(1), prefixes=PrefixTree(1, 1, 64, 16))
    assert prefix_reuse(trace).hits == 9 * 4
    assert trace.prefix_ids[:14].tolist() == [0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 7, 8, 9]


def test_a_share_of_the_requests_begins_with_the_tree():
    trace = generate(1000, Constant(64), Constant(1), prefixes=PrefixTree(1, 1, 64, 64, share=0.3))
    assert np.mean(trace.prefix_ids == trace.prefix_ids[np.bincount(trace.prefix_ids)[trace.prefix_ids] > 1][0]) == pytest.approx(0.3, abs=0.05)


def test_parallel_samples_and_max_tokens_are_columns():
    trace = generate(1000, Constant(9), Gamma(50, 1), samples=Samples(4, share=0.25), max_tokens=60)
    assert set(trace.num_samples) == {1, 4} and np.mean(trace.num_samples == 4) == pytest.approx(0.25, abs=0.05)
    assert set(trace.max_tokens) == {60} and trace.output_tokens.max() <= 60


@given(st.integers(0, 100))
def test_the_seed_alone_decides_a_trace(seed):
    def draw(seed):
        trace = generate(5, Lognormal(500, 1), Gamma(500, 1), arrivals=Bursty(1, 2, 3), prefixes=PrefixTree(), seed=seed)
        return trace.arrival_s.tolist(), trace.prompt_tokens.tolist(), trace.prefix_ids.tolist()
    assert draw(seed) == draw(seed) != draw(seed + 1)


@pytest.mark.parametrize(("text", "expected"), [
    ("lognormal:mean=182,sigma=1.05", Lognormal(182, 1.05)), ("gamma:mean=345,cv=0.88", Gamma(345, 0.88)),
    ("constant:tokens=9", Constant(9)), ("quantiles:0=1,0.5=100,1=2000", Quantiles(((0, 1), (0.5, 100), (1, 2000))))])
def test_a_distribution_is_written_in_one_word(text, expected):
    assert parse_lengths(text) == expected


@pytest.mark.parametrize("text", ["", "normal:mean=3", "gamma", "gamma:mean=3", "gamma:mean=x,cv=1", "gamma:mean=3,cv=1,sigma=2", "lognormal:182"])
def test_another_spelling_is_refused_with_the_right_ones(text):
    with pytest.raises(InputError, match="a length distribution is written lognormal:mean=182,sigma=1.05 | gamma") as raised:
        parse_lengths(text)
    assert repr(text) in str(raised.value)


@pytest.mark.parametrize(("text", "message"), [
    ("gamma:mean=-3,cv=1", "mean of a length distribution must be finite and above 0, got -3.0"),
    ("quantiles:0=1,0.5=9", "quantiles must rise from share 0 to share 1"), ("quantiles:0=5,1=2", "quantiles must rise"),
    ("gamma:mean=3,cv=1e300", "cv of a length distribution must lie between 1e-6 and 1e6, got 1e+300"),
    ("quantiles:0=0,1=2", "tokens of a length distribution must be finite and above 0, got 0.0")])
def test_numbers_that_make_no_distribution_are_refused(text, message):
    with pytest.raises(InputError) as raised:
        parse_lengths(text)
    assert message in str(raised.value)


@pytest.mark.parametrize("wrong", [lambda: Steady(0), lambda: Bursty(1, 0, 1), lambda: PrefixTree(depth=0), lambda: PrefixTree(node_tokens=17), lambda: PrefixTree(400),
                                   lambda: Samples(0), lambda: generate(0, Constant(1), Constant(1))])
def test_what_makes_no_trace_is_refused(wrong):
    with pytest.raises(InputError):
        wrong()
