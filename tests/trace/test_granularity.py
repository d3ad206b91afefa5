"""Prompt tokens to one prefix id: stated, usual, or what ids and lengths leave; never guessed."""

import json

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from trace_files import public, write

from pagesim.errors import TraceError
from pagesim.trace import read_trace
from pagesim.trace.granularity import Granularity


def rows(lengths: list[tuple[int, int]], ids: str = "hash_ids", **more) -> str:
    names = ("input_length", "output_length") if ids == "hash_ids" else ("prompt_tokens", "output_tokens")
    return "".join(json.dumps({names[0]: tokens, names[1]: 5, ids: list(range(num)), **more}) + "\n" for tokens, num in lengths)


def complaint(path, **options) -> str:
    with pytest.raises(TraceError) as raised:
        read_trace(path, **options)
    return str(raised.value).removeprefix(str(path))


@pytest.mark.parametrize("more", [{}, {"arrival_s": 0}, {"arrival_ms": 0}, {"timestamp": 0}, {"type": "chat"}])
@pytest.mark.parametrize(("lengths", "tokens"), [([(600, 2)], 512), ([(600, 2), (10, 1)], 512), ([(33, 3)], 16),
                                                 ([(100, 2), (130, 3)], 64), ([(49, 3), (48, 2)], 24)])
def test_the_size_follows_from_ids_and_lengths_whatever_else_the_rows_say(tmp_path, lengths, tokens, more):
    trace = read_trace(write(tmp_path, rows(lengths, **more)))
    assert trace.source.hash_block_tokens == tokens and len(trace.prefix_ids) == sum(num for _, num in lengths)
    assert (trace.arrival_ns is None) == (not {"arrival_s", "arrival_ms", "timestamp"} & more.keys())


@given(st.integers(1, 600), st.lists(st.integers(1, 5000), min_size=1, max_size=8))
def test_what_is_read_is_the_size_that_the_file_was_made_with_or_a_question(tmp_path_factory, tokens, prompts):
    path = write(tmp_path_factory.getbasetemp(), rows([(p, -(-p // tokens)) for p in prompts]), "made.jsonl")
    try:
        found = read_trace(path).source.hash_block_tokens
    except TraceError as error:
        assert "say how many in a column prefix_block_tokens" in str(error)
    else:
        assume(tokens & (tokens - 1) == 0)  # another size may leave one power of two, and that is taken
        assert found == tokens
    assert read_trace(path, prefix_block_tokens=tokens).source.hash_block_tokens == tokens


@given(st.integers(1, 600), st.lists(st.integers(1, 5000), min_size=1, max_size=8), st.integers(0, 8))
def test_the_bounds_are_those_of_trying_every_size_in_one_go_or_two(tokens, prompts, cut):
    prompt = np.array(prompts)
    num = -(-prompt // tokens)
    line = np.arange(len(prompt))
    first, bad = Granularity().narrowed(prompt[:cut], num[:cut], line[:cut])
    both, also_bad = first.narrowed(prompt[cut:], num[cut:], line[cut:])
    possible = [size for size in range(1, 6000) if (-(-prompt // size) == num).all()]
    assert (bad, also_bad, both.least) == (-1, -1, possible[0])
    assert both.most == possible[-1] or possible[-1] == 5999


def test_the_forms_have_their_usual_sizes_where_the_rows_leave_them(tmp_path):
    assert read_trace(write(tmp_path, rows([(10, 1)], timestamp=0))).source.hash_block_tokens == 512
    assert read_trace(write(tmp_path, rows([(10, 1)], timestamp=0, chat_id=1, parent_chat_id=-1))).source.hash_block_tokens == 16
    assert read_trace(write(tmp_path, rows([(10, 1)], "prefix_ids"))).source.hash_block_tokens == 16
    assert read_trace(write(tmp_path, rows([(600, 2)], timestamp=0, chat_id=1, parent_chat_id=-1))).source.hash_block_tokens == 512


def test_a_size_that_several_could_be_is_asked_for_with_the_rows_that_leave_it_open(tmp_path):
    path = write(tmp_path, rows([(10, 1), (100, 1), (30, 1)]))
    assert complaint(path) == (": prefix ids may stand for 100 to more tokens each (line 2: 1 for 100 tokens); say how many in a column "
                               "prefix_block_tokens, which 'pagesim trace convert' adds with --prefix-block-tokens N")
    assert read_trace(path, prefix_block_tokens=512).source.hash_block_tokens == 512
    stated = write(tmp_path, rows([(10, 1), (100, 1)], prefix_block_tokens=128), "stated.jsonl")
    assert read_trace(stated).source.hash_block_tokens == 128
    assert "a column prefix_block_tokens of its own" in complaint(stated, prefix_block_tokens=64)


def test_ids_that_contradict_the_lengths_are_an_error_with_both_rows(tmp_path):
    assert complaint(write(tmp_path, rows([(600, 2), (10, 1), (1024, 5)], timestamp=0))) == (
        ":3: hash_ids has 5 ids for a prompt of 1024 tokens, but the rows above have one for each 300 to 599 tokens (line 1: 2 for 600 "
        "tokens); the row is damaged, or its blocks have another size than the rows above or prefix_block_tokens say")
    path = write(tmp_path, rows([(600, 2)]))
    assert ":1: hash_ids has 2 ids for a prompt of 600 tokens, expected 3 (one for each 256 tokens" in complaint(path, prefix_block_tokens=256)


def test_more_ids_than_tokens_are_an_error(tmp_path):
    assert complaint(write(tmp_path, rows([(3, 9)]))).startswith(":1: hash_ids has 9 ids for a prompt of 3 tokens")


@pytest.mark.parametrize("none", ["[]", "null", None])
def test_a_row_without_ids_has_none(tmp_path, none):
    own = "" if none is None else f', "prefix_ids": {none}'
    text = f'{{"prompt_tokens": 17, "output_tokens": 1{own}}}\n{{"prompt_tokens": 17, "output_tokens": 1, "prefix_ids": [4, 5]}}\n'
    trace = read_trace(write(tmp_path, text))
    assert trace.prefix_offsets.tolist() == [0, 0, 2] and trace.prefix_ids.tolist() == [0, 1]


def test_a_file_in_which_no_row_has_ids_has_none(tmp_path):
    trace = read_trace(write(tmp_path, "prompt_tokens,output_tokens,prefix_ids\n5,1,\n6,1,\n"))
    assert trace.prefix_ids is None and trace.source.hash_block_tokens is None


def test_real_mooncake_rows_without_their_times_are_the_same_prompts(tmp_path):
    path = public("mooncake_conversation_head400.jsonl")
    bare = [{key: value for key, value in json.loads(line).items() if key != "timestamp"} for line in path.read_text().splitlines()]
    trace, original = read_trace(write(tmp_path, "".join(json.dumps(row) + "\n" for row in bare))), read_trace(path)
    assert trace.arrival_ns is None and trace.source.hash_block_tokens == original.source.hash_block_tokens == 512
    np.testing.assert_array_equal(trace.prefix_ids, original.prefix_ids)
