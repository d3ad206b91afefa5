"""Drawn prompts that share: system prompts × documents × questions, and chats of several turns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagesim.errors import InputError
from pagesim.trace import read_trace
from pagesim.trace.conversations import Chats, Texts
from pagesim.trace.inspect import summarize
from pagesim.trace.lengths import Constant, Gamma, Lognormal
from pagesim.trace.reuse import reuse
from pagesim.trace.synthetic import Bounds, PrefixTree, Samples, Steady, generate
from pagesim.trace.write import write_trace


def ids_of(trace) -> list[list[int]]:
    return [own.tolist() for own in np.split(trace.prefix_ids, trace.prefix_offsets[1:-1])]


def common(one: list[int], other: list[int]) -> int:
    """Leading equal ids."""
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


@given(st.integers(0, 3), st.integers(0, 60), st.integers(0, 3), st.integers(0, 60), st.integers(1, 20), st.integers(0, 99))
def test_prompts_share_their_system_prompt_and_then_their_document_and_nothing_else(systems, system_tokens, documents, document_tokens,
                                                                                   block_tokens, seed):
    systems, documents = min(systems, system_tokens), min(documents, document_tokens)
    texts = Texts(systems, system_tokens if systems else 0, documents, document_tokens if documents else 0)
    if not texts.tokens:
        return
    trace = generate(12, Constant(30), Constant(1), texts=texts, block_tokens=block_tokens, seed=seed)
    assert set(trace.prompt_tokens) == {texts.tokens + 30} and trace.session is None
    shared = {0, texts.tokens // block_tokens} | ({texts.system_tokens // block_tokens} if documents else set())
    own = ids_of(trace)
    assert all(len(ids) == -(-(texts.tokens + 30) // block_tokens) == len(set(ids)) for ids in own)
    for i, ids in enumerate(own):
        for others in own[:i]:
            begun = common(ids, others)
            assert begun in shared and not set(ids[begun:]) & set(others[begun:])
    assert all(common(own[0], ids) >= texts.system_tokens // block_tokens for ids in own) or systems > 1


def test_one_system_prompt_before_all_is_hit_by_all_but_the_first():
    trace = generate(10, Constant(20), Constant(1), texts=Texts(1, 64), block_tokens=16)
    assert reuse(trace).unlimited == 9 * 64 / (10 * 84)


def test_a_turn_begins_with_the_turn_before_and_its_output():
    trace = generate(500, Lognormal(50, 1), Gamma(40, 1), arrivals=Steady(2), chats=Chats(4, 10), texts=Texts(2, 100, 3, 50), seed=3)
    follows = np.flatnonzero(trace.session_parent >= 0)
    before = trace.session_parent[follows]
    assert (trace.prompt_tokens[follows] > trace.prompt_tokens[before] + trace.output_tokens[before]).all()
    assert (trace.session[follows] == trace.session[before]).all() and ((trace.think_ns >= 0) == (trace.session_parent >= 0)).all()
    own = ids_of(trace)
    for row, parent in zip(follows, before):
        assert own[row][:trace.prompt_tokens[parent] // 16] == own[parent][:trace.prompt_tokens[parent] // 16]
    first = np.flatnonzero(trace.session_parent < 0)
    assert (trace.prompt_tokens[first] > 150).all()


def test_chats_have_the_turns_the_think_time_and_the_rate_asked_for():
    trace = generate(20_000, Constant(10), Constant(5), arrivals=Steady(3), chats=Chats(4, 7))
    sessions = summarize(trace).sessions
    assert sessions.requests == 20_000 and sessions.requests / sessions.sessions == pytest.approx(4, rel=0.03)
    assert sessions.mean_think_s == pytest.approx(7, rel=0.03) and sessions.shorter_than_history == 0
    starts_s = trace.arrival_s[trace.session_parent < 0]
    assert (len(starts_s) - 1) / starts_s[-1] == pytest.approx(3, rel=0.05)


def test_a_chat_ends_before_a_turn_that_is_out_of_bounds():
    bounds = Bounds(max_total_tokens=200)
    trace = generate(1000, Constant(30), Constant(20), chats=Chats(50, 1), texts=Texts(1, 40), bounds=bounds)
    assert (trace.prompt_tokens + trace.output_tokens).max() == 190  # 40 + 3 turns of 50
    assert np.bincount(trace.session).max() == 3
    with pytest.raises(InputError, match="the shared texts of 300 tokens leave no room within"):
        generate(3, Constant(30), Constant(20), texts=Texts(1, 300), bounds=bounds)


@given(st.integers(0, 99), st.sampled_from([".csv", ".jsonl"]), st.booleans())
def test_chats_are_written_and_read_back_the_same(tmp_path_factory, seed, ending, timed):
    trace = generate(20, Gamma(30, 1), Gamma(20, 1), arrivals=Steady(1) if timed else None, chats=Chats(3, 2), texts=Texts(2, 20),
                     samples=Samples(2, 0.5), seed=seed)
    path = tmp_path_factory.getbasetemp() / f"drawn{ending}"
    write_trace(trace, path)
    back = read_trace(path)
    for name in ("arrival_ns", "prompt_tokens", "output_tokens", "num_samples", "prefix_ids", "prefix_offsets", "session", "session_parent"):
        np.testing.assert_array_equal(getattr(back, name), getattr(trace, name), err_msg=name)
    assert (trace.think_ns == (-1 if back.think_ns is None else back.think_ns)).all()


@given(st.integers(0, 99))
def test_the_seed_alone_decides_chats(seed):
    def draw(seed):
        trace = generate(9, Gamma(50, 1), Gamma(50, 1), arrivals=Steady(1), chats=Chats(2, 1), seed=seed)
        return trace.arrival_ns.tolist(), trace.prompt_tokens.tolist(), trace.think_ns.tolist()
    assert draw(seed) == draw(seed) != draw(seed + 1)


@pytest.mark.parametrize(("wrong", "message"), [
    (lambda: Texts(2, 0), "shared texts need a number and a length, both at least 1, got 2 of 0 tokens"),
    (lambda: Texts(documents=0, document_tokens=5), "got 0 of 5 tokens"), (lambda: Chats(0.5, 1), "a chat has at least one turn"),
    (lambda: Chats(2, 0), "think_s of a chat must be finite and above 0"),
    (lambda: generate(3, Constant(9), Constant(9), prefixes=PrefixTree(), chats=Chats(2, 1)), "a prefix tree and shared texts or chats both")])
def test_what_makes_no_conversation_is_refused(wrong, message):
    with pytest.raises(InputError) as raised:
        wrong()
    assert message in str(raised.value)
