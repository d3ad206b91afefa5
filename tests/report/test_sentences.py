"""A sentence a case says what its figures say, and each figure is explained."""

import json
import re

import pytest
from tiny import write_experiment

from pagesim import simulate
from pagesim.core.ledger import PARTS
from pagesim.report.explained import _MEANINGS, explanation
from pagesim.report.figures import EVERY, groups
from pagesim.report.sentences import _CAUSES, _PARTS, summary_lines

KINDS = ("[{kind: contiguous, reserve: max_model_len}, {kind: contiguous, reserve: exact}, {kind: paged, block_size: 16},"
         " {kind: paged, block_size: 1}]")


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    return simulate(write_experiment(tmp_path_factory.mktemp("run"), allocators=KINDS)).metrics


def test_every_figure_has_its_line_and_no_line_is_of_no_figure():
    figures = {(group.title, figure.name) for group in EVERY for figure in group.figures}
    assert figures == {(title, name) for title, lines in _MEANINGS.items() for name in lines}
    assert all(line for lines in _MEANINGS.values() for line in lines.values())


def test_what_is_explained_is_what_is_shown(document):
    shown = [each for group in groups(document["cases"]) for each in (group.title, *(f.name for f in group.figures))]
    assert [re.sub("^  ", "", line).partition(": ")[0] for line in explanation(document)] == shown


def test_every_part_of_memory_and_every_cause_has_its_words(document):
    assert {"token_states", *_PARTS} == set(PARTS)
    assert _CAUSES.keys() == document["cases"][0]["waiting_request_s"].keys()


def test_a_sentence_a_case_with_its_use_and_the_two_largest_other_parts(document):
    lines = summary_lines(document)
    assert len(lines) == len(document["cases"]) == 4
    for line, case in zip(lines, document["cases"]):
        parts = case["ledger"]["busy"]
        assert line.startswith(f"{case['name']}: ") and line.endswith(".")
        assert f"tokens filled {100 * case['utilization']:.1f} % of the memory" in line
        assert f"({case['peak']['running']} at most)" in line
        rest = sorted((value, part) for part, value in parts.items() if part != "token_states")
        told = [f"{100 * value:.1f} % {_PARTS[part]}" for value, part in rest[-2:] if value >= 0.005]
        assert all(words in line for words in told)
        told_in_all = sum(float(share) for share in re.findall(r"([\d.]+) %", line))
        assert told_in_all <= 100.11


def test_waiting_is_told_with_its_cause_or_that_none_waited(document, tmp_path):
    crowded = next(line for line in summary_lines(document) if line.startswith("contiguous max_model_len"))
    assert re.search(r"waited [\d.]+ s on average, mostly for memory", crowded)
    (alone,) = summary_lines(simulate(write_experiment(
        tmp_path, rows=((0, 9, 9),), allocators="[{kind: paged, block_size: 16}]")).metrics)
    assert "none waited" in alone


def test_preemptions_are_told_with_what_is_computed_again(tmp_path):
    rows = tuple((0, 15, 40) for _ in range(4))
    run = simulate(write_experiment(tmp_path, rows=rows, allocators="[{kind: paged, block_size: 16}]")).metrics
    (case,) = run["cases"]
    assert case["preemptions"]
    assert f"; {case['preemptions']} preempted, {case['recomputed_tokens']:,} tokens computed again." in (
        summary_lines(run)[0])


def test_a_sweep_of_many_cases_has_its_tables_alone(document):
    many = json.loads(json.dumps(document))
    many["cases"] *= 3
    assert summary_lines(many) == []


def test_a_case_in_which_nothing_ran_has_no_sentence(tmp_path):
    assert summary_lines(simulate(write_experiment(tmp_path, max_model_len=4)).metrics) == []
