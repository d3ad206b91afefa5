import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pagesim.cli.main import app
from pagesim.errors import InputError, TraceError

PLAIN = "arrival_s,prompt_tokens,output_tokens\n0,16,1\n1,0,0\n4,17,2\n10,40,9\n"


def run(*arguments: object):
    return CliRunner().invoke(app, ["trace", *map(str, arguments)])


def write(folder: Path, text: str) -> Path:
    path = folder / "t.csv"
    path.write_text(text)
    return path


def test_inspect_prints_what_was_read_kept_and_dropped(tmp_path):
    result = run("inspect", write(tmp_path, PLAIN), "--max-model-len", 20, "--max-model-len", 100)
    assert result.exit_code == 0
    for line in ("format          plain", "rows            read 4 = kept 3 + dropped 1 (0 prompt and 0 output tokens)",
                 "arrivals        over 10.0 s, 0.2 requests/s, CV 0.20", "prompt tokens   mean 24.3, min 16, p50 17, p99 40, max 40",
                 "prefix reuse    n/a: no prefix ids", "accepted        2 of 3 with prompt + output ≤ 20",
                 "accepted        3 of 3 with prompt + output ≤ 100"):
        assert line in result.output.splitlines()


def test_inspect_json_is_one_strict_object(tmp_path):
    result = run("inspect", write(tmp_path, PLAIN), "--json", "--block-size", 8)
    summary = json.loads(result.output, parse_constant=pytest.fail)
    assert (summary["read"], summary["kept"], summary["dropped"]) == (4, 3, {"0 prompt and 0 output tokens": 1})
    assert summary["prefix_reuse"] is None
    assert summary["final_blocks"] == 2 + 3 + 6


def test_inspect_shows_prefix_reuse_with_the_size_of_a_block(tmp_path):
    rows = '{"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [7, 8]}\n' * 3
    result = run("inspect", write(tmp_path, rows))
    assert "prefix reuse    33.333 % of the prompt tokens in a cache without limit: 2 hits of 2 requests among 6 ids of 512 tokens, 2 distinct" in result.output


REUSED = ('{"prompt_tokens": 40, "output_tokens": 1, "prefix_ids": [0, 1, 2]}\n{"prompt_tokens": 40, "output_tokens": 1, "prefix_ids": [3, 4, 5]}\n'
          '{"prompt_tokens": 40, "output_tokens": 1, "prefix_ids": [0, 1, 6]}\n')


def test_reuse_prints_a_curve_and_what_it_leaves_out(tmp_path):
    result = run("reuse", write(tmp_path, REUSED), "--model", "llama-3.1-8b")
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.output.splitlines()]
    assert result.output.startswith("120 prompt tokens, 6 whole blocks of 16, 4 distinct; an LRU cache of 4 blocks hits as much as one without limit")
    assert ["4", "64", "8,192.0", "KiB", "26.667", "26.667"] in rows and ["2", "32", "4,096.0", "KiB", "0.000", "26.667"] in rows
    assert ["no", "limit", "26.667", "26.667"] in rows and "Left out: running requests hold their blocks" in result.output


def test_reuse_json_is_one_strict_object(tmp_path):
    result = run("reuse", write(tmp_path, REUSED), "--json", "--blocks", 3, "--blocks", 1)
    found = json.loads(result.output, parse_constant=pytest.fail)
    assert (found["block_tokens"], found["prompt_tokens"], found["whole_blocks"], found["distinct_blocks"]) == (16, 120, 6, 4)
    assert found["unlimited"] == 32 / 120 and found["enough_blocks"] == 4 and found["left_out"].startswith("Left out: ")
    assert found["curve"] == [{"blocks": 3, "tokens": 48, "bytes": None, "lru": 16 / 120, "optimal": 32 / 120},
                              {"blocks": 1, "tokens": 16, "bytes": None, "lru": 0, "optimal": 16 / 120}]


def test_reuse_draws_the_curve(tmp_path):
    pytest.importorskip("matplotlib")
    result = run("reuse", write(tmp_path, REUSED), "--plot", tmp_path / "curve.svg", "--model", "llama-3.1-8b")
    assert result.exit_code == 0, result.output
    svg = (tmp_path / "curve.svg").read_text()
    for text in ("size of the cache, GiB", "prompt tokens that hit, %", "no limit: 26.7 %", "LRU", "optimum (knows the future)"):
        assert text in svg


def test_reuse_without_ids_says_what_is_missing(tmp_path):
    assert "no prefix ids" in str(run("reuse", write(tmp_path, PLAIN)).exception)


def test_the_size_of_a_prefix_block_can_be_given_where_the_file_leaves_it_open(tmp_path):
    path = write(tmp_path, '{"input_length": 10, "output_length": 1, "hash_ids": [1]}\n')
    assert "--prefix-block-tokens" in str(run("inspect", path).exception)
    assert run("convert", path, tmp_path / "out.csv", "--prefix-block-tokens", 64).exit_code == 0
    assert (tmp_path / "out.csv").read_text().endswith("10,1,64,0\n")


def test_strict_and_bad_rows_end_in_one_message(tmp_path):
    result = run("inspect", write(tmp_path, PLAIN), "--strict")
    assert isinstance(result.exception, TraceError) and str(result.exception).startswith(f"{tmp_path / 't.csv'}:3: a request without")


def test_convert_writes_the_plain_form_and_says_what_became_of_the_rows(tmp_path):
    out = tmp_path / "out.csv"
    result = run("convert", write(tmp_path, PLAIN), out, "--speedup", 2)
    assert result.exit_code == 0 and "read 4 rows as plain, dropped 1 (0 prompt and 0 output tokens); wrote 3 to" in result.stderr
    assert out.read_text() == "arrival_s,prompt_tokens,output_tokens\n0.0,16,1\n2.0,17,2\n5.0,40,9\n"


def test_convert_draws_arrivals_for_lengths_only(tmp_path):
    path = write(tmp_path, "prompt_tokens,output_tokens\n1,2\n3,4\n")
    for name in ("a.csv", "b.csv"):
        assert run("convert", path, tmp_path / name, "--arrivals", "poisson", "--rate", 2, "--seed", 7).exit_code == 0
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()
    assert (tmp_path / "a.csv").read_text().startswith("arrival_s,prompt_tokens,output_tokens\n0.0,1,2\n")
    assert run("convert", path, tmp_path / "c.jsonl").exit_code == 0
    assert (tmp_path / "c.jsonl").read_text() == '{"prompt_tokens": 1, "output_tokens": 2}\n{"prompt_tokens": 3, "output_tokens": 4}\n'


def test_convert_never_overwrites_its_input(tmp_path):
    path = write(tmp_path, PLAIN)
    assert isinstance(run("convert", path, path, "--force").exception, TraceError) and path.read_text() == PLAIN


def test_generate_offers_everything_that_can_be_drawn(tmp_path):
    out = tmp_path / "g.jsonl"
    result = run("generate", out, "-n", 20, "--prompt", "constant:tokens=40", "--output", "gamma:mean=9,cv=1", "--arrivals", "bursty", "--rate", 3,
                 "--burst-s", 1, "--quiet-s", 2, "--max-tokens", 50, "--samples", 4, "--prefix-depth", 1, "--prefix-node-tokens", 32, "--seed", 5)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 20 and set(rows[0]) == {"arrival_s", "prompt_tokens", "output_tokens", "max_tokens", "num_samples", "prefix_block_tokens",
                                                "prefix_ids"}
    assert {row["num_samples"] for row in rows} == {4} and all(len(row["prefix_ids"]) == 3 for row in rows)


def test_generate_draws_chats_that_begin_with_shared_texts_and_inspect_describes_them(tmp_path):
    out = tmp_path / "chats.csv"
    result = run("generate", out, "-n", 200, "--prompt", "constant:tokens=40", "--output", "constant:tokens=8", "--rate", 2, "--turns", 4,
                 "--think-s", 3, "--system-prompts", 2, "--system-tokens", 64, "--documents", 5, "--document-tokens", 100, "--samples", 2)
    assert result.exit_code == 0, result.output
    assert out.read_text().startswith("arrival_s,prompt_tokens,output_tokens,num_samples,session,think_s,prefix_block_tokens,prefix_ids\n")
    lines = run("inspect", out).output
    assert "of 200 requests; " in lines and "after its end in the mean (placed as early as they can come)" in lines
    assert "num_samples     2 for 200; 400 sequences of 200 requests" in lines and "of the turn before and its output" in lines


def test_inspect_says_that_prompts_are_shorter_than_their_history(tmp_path):
    path = write(tmp_path, "prompt_tokens,output_tokens,session\n10,9,a\n12,9,a\n")
    assert "1 prompts are shorter than that: they share what they have" in run("inspect", path).output


@pytest.mark.parametrize(("options", "message"), [
    (["--turns", "3"], "chats need both --turns and --think-s"),
    (["--arrivals", "poisson"], "--arrivals poisson needs --rate"), (["--arrivals", "gamma", "--rate", "2"], "--arrivals gamma needs --cv"),
    (["--arrivals", "none", "--rate", "2"], "--arrivals none has no --rate"),
    (["--arrivals", "bursty", "--rate", "2", "--burst-s", "3"], "--arrivals bursty needs --quiet-s")])
def test_generate_asks_for_what_its_arrivals_need(tmp_path, options, message):
    result = run("generate", tmp_path / "g.csv", "-n", 3, "--prompt", "constant:tokens=4", "--output", "constant:tokens=4", *options)
    assert isinstance(result.exception, InputError) and str(result.exception) == message


def test_the_help_says_that_speedup_2_is_twice_the_rate():
    assert "2 is twice the rate" in run("convert", "--help").output
