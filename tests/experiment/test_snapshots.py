import numpy as np
import pytest

from pagesim.config import load
from pagesim.core.blocktables import load as load_tables
from pagesim.errors import InputError
from pagesim.experiment.snapshots import consecutive, kernel_shape, moment, snapshot, write_snapshots
from tiny import write_experiment


@pytest.fixture
def paged(tmp_path):
    return load(write_experiment(tmp_path, allocators="[{kind: paged, block_size: 16}]")).cases[0]


@pytest.fixture
def contiguous(tmp_path):
    return load(write_experiment(tmp_path, allocators="[{kind: contiguous, reserve: exact}]")).cases[0]


def every_step(case):
    return list(consecutive(case, moment("0"), 10**6))


@pytest.mark.parametrize("kind", ["paged", "contiguous"])
def test_the_peak_is_the_first_step_with_the_most_tokens_and_the_end_the_last_step(kind, request):
    case = request.getfixturevalue(kind)
    steps = every_step(case)
    tokens = [int(tables.lengths.sum()) for tables in steps]
    assert snapshot(case, moment("peak")).origin["step"] == int(np.argmax(tokens))
    end = snapshot(case, moment("end"))
    assert end.origin["step"] == len(steps) - 1 and end.num_seqs == 1
    np.testing.assert_array_equal(end.block_ids, steps[-1].block_ids)


@pytest.mark.parametrize("kind", ["paged", "contiguous"])
def test_tables_of_every_step_are_valid_and_hold_the_tokens(kind, request):
    for number, tables in enumerate(every_step(request.getfixturevalue(kind))):
        tables.validate()
        assert tables.origin["step"] == number
        assert tables.block_size == (16 if kind == "paged" else 1)


def test_a_time_is_the_step_under_way_then_or_the_next(paged):
    assert snapshot(paged, moment("0s")).origin["step"] == 0
    assert snapshot(paged, moment("0.07s")).origin["step"] == 1  # steps of 0.05 s
    later = snapshot(paged, moment("2s"))  # nothing runs until 3 s
    assert later.origin["time_s"] == 3.0 and later.num_seqs == 1


def test_moments_outside_the_run_and_unknown_ones_are_refused(paged):
    num_steps = len(every_step(paged))
    with pytest.raises(InputError, match=f"has {num_steps} steps, numbered from 0; there is no step 900"):
        snapshot(paged, moment("900"))
    with pytest.raises(InputError, match="ends at .* s, before 99s"):
        snapshot(paged, moment("99s"))
    for text in ("top", "-1", "1.5", "3 s", ""):
        with pytest.raises(InputError, match="a moment is peak, end, a step's number such as 1200, or a time"):
            moment(text)


def test_the_shape_is_one_shard_of_the_models(tmp_path):
    keys = "model: llama-3.1-8b\nmemory: {kv_memory: 1GiB, tensor_parallel_size: 16}"
    config = write_experiment(tmp_path, allocators="[{kind: paged, block_size: 16}]")
    config.write_text(config.read_text().replace("memory: {kv_tokens: 160}", keys))
    assert kernel_shape(load(config).cases[0]) == {
        "name": "llama-3.1-8b", "layers": 32, "num_q_heads": 2, "num_kv_heads": 1, "head_dim": 128}


def test_an_mla_model_has_its_latent_and_the_whole_vector_for_a_head(tmp_path):
    keys = "model: deepseek-v3\nmemory: {kv_memory: 1GiB, tensor_parallel_size: 8}"
    config = write_experiment(tmp_path, allocators="[{kind: paged, block_size: 16}]")
    config.write_text(config.read_text().replace("memory: {kv_tokens: 160}", keys))
    assert kernel_shape(load(config).cases[0]) == {
        "name": "deepseek-v3", "layers": 61, "num_q_heads": 16, "num_kv_heads": 1, "head_dim": 576, "latent_dim": 512}


def test_without_a_model_there_is_no_shape(paged):
    assert snapshot(paged, moment("peak")).origin["model"] is None


def test_snapshots_are_written_into_each_cases_part_of_the_run_folder(tmp_path):
    cases = load(write_experiment(tmp_path)).cases
    paths = write_snapshots(cases, [moment("peak"), moment("3")], tmp_path / "run")
    assert [path.name for path in paths] == ["snapshot-peak.npz", "snapshot-3.npz"] * 2
    assert len({path.parent for path in paths}) == 2
    tables = load_tables(paths[2])
    assert tables.block_size == 16 and tables.origin == snapshot(cases[1], moment("peak")).origin
