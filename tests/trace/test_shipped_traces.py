"""The traces in ``traces/`` are what their README says, and its commands make them again."""

import hashlib
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pagesim.cli.main import app
from pagesim.trace import read_trace
from pagesim.trace.inspect import summarize

FOLDER = Path(__file__).parents[2] / "traces"
README = (FOLDER / "README.md").read_text()
COMMANDS = [shlex.split(block.replace("\\\n", " ")) for block in re.findall(r"```console\n(pagesim trace generate .*?)```", README, re.DOTALL)]
ROWS = re.findall(r"^\| `(\S+)` \| ([\d,]+) \| `(\S+)` \| `([0-9a-f]{64})` \|$", README, re.MULTILINE)


def test_every_file_has_a_row_and_a_command():
    files = {path.name for path in FOLDER.iterdir()} - {"README.md"}
    assert files == {row[0] for row in ROWS} == {Path(command[3]).name for command in COMMANDS}


@pytest.mark.parametrize(("name", "num_requests", "columns", "sha256"), ROWS, ids=[row[0] for row in ROWS])
def test_a_file_has_the_bytes_rows_and_columns_of_its_row(name, num_requests, columns, sha256):
    data = (FOLDER / name).read_bytes()
    assert hashlib.sha256(data).hexdigest() == sha256
    assert len(read_trace(FOLDER / name)) == int(num_requests.replace(",", ""))
    first = data.decode().splitlines()[0]
    assert columns == (",".join(re.findall(r'"(\w+)":', first)) if name.endswith(".jsonl") else first)


@pytest.mark.parametrize("command", COMMANDS, ids=[Path(command[3]).name for command in COMMANDS])
def test_the_command_in_the_readme_writes_the_same_bytes(tmp_path, command):
    name = Path(command[3]).name
    result = CliRunner().invoke(app, [*command[1:3], str(tmp_path / name), *command[4:]])
    assert result.exit_code == 0, result.output
    assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()


@pytest.mark.parametrize(("name", "prompt", "output", "rate", "cv"), [
    ("azure_conv_like.csv", (1155, 1020, 4142), (211, 129, 601), 5.53, 1.09), ("azure_code_like.csv", (2048, 1469, 7436), (28, 13, 252), 2.57, 13.15),
    ("mooncake_like.jsonl", (12035, 6909, None), (343, 350, 1120), 3.40, 3.03), ("vllm_rtx4090_like.csv", (857, 730, 2764), (653, 631, 784), 10.27, 0.94)])
def test_a_file_resembles_its_original(name, prompt, output, rate, cv):
    summary = summarize(read_trace(FOLDER / name))
    for spread, original in ((summary.prompt_tokens, prompt), (summary.output_tokens, output)):
        for value, expected in zip((spread.mean, spread.p50, spread.p99), original):
            assert expected is None or value == pytest.approx(expected, rel=0.12)
    assert summary.rate_per_s == pytest.approx(rate, rel=0.1) and summary.arrival_cv == pytest.approx(cv, rel=0.2)


def test_sharegpt_like_has_the_papers_means_after_its_filters():
    summary = summarize(read_trace(FOLDER / "sharegpt_like.csv"))
    assert summary.prompt_tokens.mean == pytest.approx(161.31, rel=0.01) and summary.output_tokens.mean == pytest.approx(337.99, rel=0.01)
    assert summary.prompt_tokens.max <= 1024 and summary.total_tokens.max <= 2048 and summary.kept >= 10_000
    assert summary.span_s is None


def test_a_third_of_mooncake_likes_prompt_tokens_repeat():
    reuse = summarize(read_trace(FOLDER / "mooncake_like.jsonl")).prefix_reuse
    assert reuse.block_tokens == 512 and reuse.hit_share_of_prompt_tokens == pytest.approx(1 / 3, abs=0.05)
