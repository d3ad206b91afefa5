"""report/tables.py and figures.py: what the tables say, and that nothing in them is cut."""

import pytest
from tiny import write_experiment

from pagesim import simulate
from pagesim.report.figures import number
from pagesim.report.tables import markdown, row_by_row, sheets


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    return simulate(write_experiment(tmp_path_factory.mktemp("tables"))).metrics


def test_few_cases_stand_side_by_side_and_many_have_a_row_each(document):
    (one,) = sheets(document)
    assert one.columns == ("", *(case["name"] for case in document["cases"]))
    many = sheets({"cases": document["cases"] * 3})
    assert len(many) > 1 and all(len(sheet.rows) == 6 for sheet in many)


def test_token_use_and_block_use_are_two_numbers_and_both_conventions_are_shown(document):
    names = [row[0] for row in sheets(document)[0].rows]
    for name in ("token use", "block use", "reserved", "overreserved", "rounding", "stranded", "idle", "running, mean",
                 "running, peak", "waiting, mean", "preemptions", "requests/s", "ttft p50", "As SOSP'23 Figure 2, %",
                 "As a textbook, %"):
        assert name in names
    (token_use,) = [row for row in sheets(document)[0].rows if row[0] == "token use"]
    assert token_use[1:] == tuple(f"{100 * case['utilization']:.2f}" for case in document["cases"])


def test_the_paper_counts_rounding_as_external_where_the_textbook_counts_it_as_internal(tmp_path):
    config = write_experiment(tmp_path, allocators="[{kind: contiguous, reserve: exact, placement: buddy}]")
    case = simulate(config).metrics["cases"][0]
    assert case["ledger"]["busy"]["rounding"] > 0 and case["ledger"]["saturated"] is None
    rows = {sheet.title: dict(zip(sheet.columns, sheet.rows[0])) for sheet in row_by_row([case])}
    assert rows["As SOSP'23 Figure 2, %"]["internal"] == "0.00" and rows["As SOSP'23 Figure 2, %"]["window"] == "busy"
    assert float(rows["As a textbook, %"]["internal"]) > 0


def test_external_fragmentation_is_left_out_where_every_case_is_paged(document):
    paged = [case for case in document["cases"] if case["allocator"]["kind"] == "paged"]
    assert not any("External" in row[0] for row in sheets({"cases": paged})[0].rows)
    assert any("External" in row[0] for row in sheets(document)[0].rows)


def test_a_rare_figure_is_shown_where_some_case_has_it(tmp_path, document):
    assert not any(row[0] == "recomputed tokens" for row in sheets(document)[0].rows)
    config = write_experiment(tmp_path, rows=((0, 16, 30), (0, 16, 30)), kv_tokens=80,
                              allocators="[{kind: paged, block_size: 16}]")
    case = simulate(config).metrics["cases"][0]
    rows = {row[0]: row[1:] for row in sheets({"cases": [case]})[0].rows}
    assert case["preemptions"] > 0 and rows["recomputed tokens"] == (f"{case['recomputed_tokens']:,}",)


def test_the_main_cause_of_waiting_is_named_with_its_share(document):
    case = document["cases"][0] | {"waiting_request_s": {"memory": 3.0, "fragmentation": 1.0}}
    rows = {row[0]: row[1:] for row in sheets({"cases": [case]})[0].rows}
    assert rows["waits for"] == ("memory 75 %",)


def test_what_does_not_exist_is_a_dash(tmp_path):
    config = write_experiment(tmp_path, max_model_len=4)  # every request is longer
    rows = {row[0]: row[1:] for row in sheets(simulate(config).metrics)[0].rows}
    assert rows["token use"] == rows["ttft p50"] == ("–", "–")


def test_markdown_has_as_many_cells_in_every_row(document):
    for sheet in [*sheets(document), *row_by_row(document["cases"])]:
        lines = [line for line in markdown(sheet).splitlines() if line.startswith("|")]
        assert {line.count("|") for line in lines} == {len(sheet.columns) + 1}


@pytest.mark.parametrize(
    "value, text", [(None, "–"), (0.0, "0"), (1234567.8, "1,234,568"), (12.3456, "12.35"), (0.000123456, "0.0001235")])
def test_numbers_have_four_significant_digits(value, text):
    assert number(value) == text
