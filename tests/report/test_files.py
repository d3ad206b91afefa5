"""report/files.py: whole files or none, strict JSON, CSV with units."""

import csv
import errno
import io
import os

import pytest

from pagesim.core.files import replacing
from pagesim.report.files import csv_text, flat, json_text, write_text


def test_json_refuses_what_is_no_json():
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError):
            json_text({"share": bad})


def test_a_failed_write_leaves_the_old_file_and_no_part_of_the_new(tmp_path):
    path = tmp_path / "metrics.json"
    write_text(path, "old")
    with pytest.raises(RuntimeError), replacing(path) as file:
        file.write("half of the n")
        raise RuntimeError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_columns_carry_the_unit_that_the_key_does_not_say():
    entry = {
        "ledger": {"busy": {"idle": 0.5}, "queued": None},
        "latency": {"ttft": {"p50": 1.5}},
        "utilization": 0.25,
        "external_fragmentation": {"extfrag_index": 3.0, "unusable": 0.1},
        "peak": {"allocated": 7, "running": 2},
        "time": {"busy_s": 1.0},
        "histograms": {"waste_slots": [[0, 1, 2]]},
    }
    assert flat(entry) == {
        "ledger.busy.idle_share": 0.5,
        "latency.ttft.p50_s": 1.5,
        "utilization_share": 0.25,
        "external_fragmentation.extfrag_index": 3.0,
        "external_fragmentation.unusable_share": 0.1,
        "peak.allocated_slots": 7,
        "peak.running": 2,
        "time.busy_s": 1.0,
    }


def test_csv_has_a_row_a_case_and_an_empty_cell_for_null():
    document = {
        "cases": [
            {"name": "a", "ledger": {"busy": {"idle": 1.0}}, "utilization": 0.5},
            {"name": "b, c", "ledger": {"busy": None}, "utilization": None},
        ]
    }
    rows = list(csv.DictReader(io.StringIO(csv_text(document))))
    assert rows == [
        {"name": "a", "ledger.busy.idle_share": "1.0", "utilization_share": "0.5"},
        {"name": "b, c", "ledger.busy.idle_share": "", "utilization_share": ""},
    ]


def test_a_full_disk_is_told_with_the_file_that_was_to_be_written(tmp_path):
    with pytest.raises(OSError) as raised, replacing(tmp_path / "a.csv"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as the system tells it, without a name
    assert raised.value.filename == str(tmp_path / "a.csv")
    assert not list(tmp_path.iterdir())
