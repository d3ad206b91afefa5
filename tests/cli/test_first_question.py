"""A trace and a few flags are an experiment, and what is missing is said with its way out."""

import json
import shlex

import pytest
import yaml

ROWS = "arrival_s,prompt_tokens,output_tokens\n0,20,5\n0.1,7,9\n0.1,30,1\n0.4,50,12\n3,16,4\n"
SHORT = ["--model", "opt-13b", "--kv-memory", "1GiB", "--max-model-len", "64"]


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "my trace.csv"
    path.write_text(ROWS)
    return path


def cases(ended):
    assert ended.code == 0, ended.err
    return {case["name"]: case for case in json.loads(ended.out)["cases"]}


def test_a_trace_runs_under_the_textbooks_rule_and_paged(pagesim, trace):
    found = cases(pagesim("simulate", trace, *SHORT, "--json"))
    assert list(found) == ["contiguous max_model_len first_fit", "paged 16"]
    assert all(case["requests"]["completed"] == 5 for case in found.values())


@pytest.mark.parametrize("flags", [
    SHORT, ["--model", "opt-13b", "--gpu", "h100", "--set", "scheduling.max_num_seqs=2"],
    ["--from-vllm", "vllm serve opt-13b --max-model-len 64 -tp 2", "--gpu", "h100"],
    ["--from-vllm", "docker run --gpus all vllm/vllm-openai --model opt-13b --num-gpu-blocks-override 99"]])
def test_the_command_at_the_end_writes_a_config_of_the_very_same_cases(pagesim, trace, tmp_path, flags):
    asked = pagesim("simulate", trace, *flags, "--json")
    (said,) = [line for line in asked.err.splitlines() if line.startswith("this experiment as YAML")]
    words = shlex.split(said.partition(": ")[2])
    assert words[0] == "pagesim" and words[-2:] == [">", "experiment.yaml"]
    written = tmp_path / "experiment.yaml"
    written.write_text(pagesim(*words[1:-2]).out)
    assert pagesim("simulate", written, "--json").out == asked.out
    assert "as YAML" not in pagesim("simulate", written).err


def test_a_server_brings_its_prefix_cache_and_its_null_block(pagesim, trace):
    found = cases(pagesim("simulate", trace, "--from-vllm", "vllm serve opt-13b --num-gpu-blocks-override 99", "--json"))
    assert found["paged 16 prefix_cache=vllm"]["capacity"]["blocks"] == 98
    without = "vllm serve opt-13b --num-gpu-blocks-override 99 --no-enable-prefix-caching"
    assert "paged 16" in cases(pagesim("simulate", trace, "--from-vllm", without, "--json"))


def test_flags_speak_of_an_experiment_too(pagesim, trace, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"trace": {"path": trace.name}, "memory": {"kv_tokens": 640}, "model": "opt-13b"}))
    (paged,) = [case for name, case in cases(pagesim(
        "simulate", config, "--max-model-len", "32", "--json")).items() if name == "paged 16"]
    assert paged["requests"]["rejected"] == 1


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t", "t.txt", "t.json"])
def test_a_trace_is_known_by_its_name_or_its_rows(pagesim, tmp_path, name):
    path = tmp_path / name
    path.write_text('{"input_length": 9, "output_length": 3, "timestamp": 0, "hash_ids": [1]}\n' if "js" in name else ROWS)
    ended = pagesim("simulate", path)
    assert ended.code == 2 and ended.out == ""
    assert ended.err.startswith(f"pagesim: {path}: a trace of requests; which model serves them, on which GPU?")
    assert "--model" in ended.err and "--from-vllm" in ended.err


@pytest.mark.parametrize("name", ["t.yaml", "t"])
def test_what_is_no_trace_is_read_as_an_experiment(pagesim, tmp_path, name):
    path = tmp_path / name
    path.write_text("- a\n- b\n")
    assert "a config must be a mapping" in pagesim("simulate", path).err


def test_without_anything_it_says_what_to_do_next(pagesim):
    ended = pagesim("simulate")
    assert ended.code == 2 and ended.out == ""
    assert all(way in ended.err for way in ("config init", "--model llama-3.1-8b --gpu h200", "--from-vllm"))


def test_a_model_that_is_missing_is_asked_for(pagesim, trace):
    ended = pagesim("simulate", trace, "--gpu", "h200")
    assert ended.code == 2 and "model" in ended.err and str(trace) in ended.err
