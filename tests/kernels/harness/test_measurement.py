import csv
import io
import json
from dataclasses import replace

import pytest

from pagesim.kernels.harness.measurement import (
    Row, advice, as_csv, as_json, fit_linear, fits_by_shape, over_contiguous, read_rows, write_row)

PLAIN = Row("W1/ours/shuffled/b16/NHD/bf16", "W1", "ours", "shuffled", 16, "NHD", "bf16", 64, 1000, 1, 32, 8, 128,
            10**9, 10**9, 2, 250.0, 249.0, 251.0, 300.0, 4000.0, 240.0, 0.96, 240.0, 0.96, 1.0,
            4200.0, 2e-3, 3e-3, True, {"gpu": "G", "driver": "1"})


def row(tables="shuffled", block_size=16, graph_us=250.0, context_tokens=1000, kernel="ours", workload="W1"):
    key = f"{workload}/{kernel}/{tables}/b{block_size}/NHD/bf16"
    return replace(PLAIN, key=key, workload=workload, kernel=kernel, tables=tables, block_size=block_size, graph_us=graph_us,
                   context_tokens=context_tokens)


def test_scatter_is_measured_against_contiguous_tables_of_the_same_kernel_and_block_size():
    rows = [row("contiguous", graph_us=200.0), row(graph_us=250.0), row(block_size=32), row(kernel="general")]
    assert over_contiguous(rows) == {rows[0].key: 1.0, rows[1].key: 1.25}


def test_a_wrong_row_has_no_ratio_and_no_advice():
    rows = [row("contiguous"), replace(row(), graph_us=None, passed=False)]
    assert over_contiguous(rows) == {rows[0].key: 1.0}
    assert advice(rows) == []


def test_advice_names_the_cost_of_scatter_and_the_smallest_block_within_one_percent():
    rows = [r for size, us in ((1, 260.0), (16, 251.0), (64, 249.0), (256, 248.9)) for r in
            (row("contiguous", size, 248.0), row("shuffled", size, us))]
    cost, choice = advice(rows)
    assert "+4.8 % at block size 1, +1.2 % at block size 16" in cost
    assert "take block size 16, the smallest within 1 % of the fastest of 1, 16, 64, 256" in choice


def test_the_linear_fit_finds_the_line_that_rows_lie_on():
    rows = [row(graph_us=5 + context * 1e-3, context_tokens=context) for context in (100, 1000, 50_000)]
    fit = fit_linear([*rows, row("same", graph_us=1.0, context_tokens=7)])
    assert fit == {"step_s": pytest.approx(5e-6), "context_token_s": pytest.approx(1e-9)}
    assert fit_linear(rows[:1]) is None


def test_each_shape_has_its_own_line_and_one_without_two_contexts_has_none():
    rows = [replace(row(graph_us=us, context_tokens=context), num_kv_heads=kv_heads, dtype=dtype)
            for kv_heads, dtype, context, us in ((8, "bf16", 1000, 6.0), (8, "bf16", 5000, 10.0), (32, "bf16", 1000, 9.0),
                                                 (32, "bf16", 5000, 25.0), (8, "fp16", 1000, 6.0))]
    shape = {"num_q_heads": 32, "head_dim": 128, "dtype": "bf16", "step_s": pytest.approx(5e-6)}
    assert fits_by_shape(rows) == [shape | {"num_kv_heads": 8, "context_token_s": pytest.approx(1e-9)},
                                   shape | {"num_kv_heads": 32, "context_token_s": pytest.approx(4e-9)}]
    assert json.loads(as_json(rows))["linear_one_layer"] == fits_by_shape(rows)


def test_rows_come_back_from_their_file_and_a_line_cut_off_is_dropped(tmp_path):
    path = tmp_path / "rows.jsonl"
    write_row(path, row())
    write_row(path, row("contiguous"))
    path.write_text(path.read_text() + '{"key": "W1/o')
    assert read_rows(path) == {r.key: r for r in (row(), row("contiguous"))}
    assert read_rows(tmp_path / "none") == {}


def test_csv_and_json_hold_every_field_and_the_environment():
    rows = [row("contiguous"), row()]
    (first, second) = csv.DictReader(io.StringIO(as_csv(rows)))
    assert first["gpu"] == "G" and float(second["over_contiguous"]) == 1.0
    document = json.loads(as_json(rows))
    assert document["schema"] == 1 and document["rows"][1]["environment"]["driver"] == "1"
