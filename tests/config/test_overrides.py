"""``--set`` puts a key in, with errors as good as a file's."""

import pytest

from pagesim.allocators import Paged
from pagesim.config import load
from pagesim.errors import ConfigError

TEXT = """
trace: {path: trace.csv}
memory: {kv_tokens: 15728}
max_model_len: 2048
allocators: [{kind: paged}, {kind: contiguous}]
sweep: {allocators.0.block_size: [8, 16]}
"""


def test_an_override_replaces_a_value_in_a_list(cases):
    assert cases(TEXT, "sweep={}", "allocators.0.block_size=32")[0].allocator == Paged(32)


def test_an_override_makes_the_mappings_on_its_way(cases):
    assert cases(TEXT, "scheduling.max_num_seqs=7")[0].scheduling.max_num_seqs == 7


def test_a_value_is_yaml(cases):
    (case,) = cases(TEXT, "allocators=[{kind: paged, reuse: fifo}]", "sweep={}", "memory={num_gpu_blocks_override: 10}",
                    "seed=1e3")
    assert (case.allocator, case.capacity.blocks, case.trace.seed) == (Paged(16, "fifo"), 10, 1000)


def test_a_sweep_can_be_added_and_replaced(cases):
    assert [case.name for case in cases(TEXT, "sweep.allocators.0.block_size=[1, 2]", "sweep.seed=[3, 4]")][:3] == [
        "paged 1 seed=3",
        "paged 2 seed=3",
        "contiguous max_model_len first_fit seed=3",
    ]


def test_a_key_that_is_set_is_not_swept_any_more(cases):
    assert [case.name for case in cases(TEXT, "allocators.0.block_size=64")] == [
        "paged 64", "contiguous max_model_len first_fit"]


def test_the_last_of_two_overrides_counts(cases):
    assert cases(TEXT, "seed=1", "seed=2")[0].trace.seed == 2


def test_a_value_may_hold_an_equals_sign(problems):
    assert problems(TEXT, "model=a=b")[0].startswith("--set model=a=b: unknown model 'a=b'")


def test_a_trace_named_on_the_command_line_is_relative_to_where_it_is_typed(write, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "other.csv").write_text("prompt_tokens,output_tokens\n")
    monkeypatch.chdir(tmp_path / "here")
    assert load(write(TEXT), ["trace.path=other.csv"]).cases[0].trace.path == str(tmp_path / "here" / "other.csv")


@pytest.mark.parametrize(("override", "message"), [
    ("seed", "--set seed: must be key=value, such as --set seed=1 or --set allocators.0.block_size=32"),
    ("=1", "--set =1: must be key=value, such as --set seed=1 or --set allocators.0.block_size=32"),
    ("seed=-1", "--set seed=-1: seed must be at least 0, got -1"),
    ("sead=1", "--set sead=1: unknown key 'sead'; did you mean 'seed'?"),
    ("seed=010", "--set seed=010: YAML 1.1 reads 010 as an octal number; write it without the leading 0"),
    ("seed=[1", "--set seed=[1: this is not YAML: expected ',' or ']', but got '<stream end>'"),
    ("memory.kv_tokns=3", "--set memory.kv_tokns=3: unknown key 'kv_tokns'; did you mean 'kv_tokens'?"),
    (
        "allocators.7.block_size=3",
        "--set allocators.7.block_size=3: allocators is a list with entries 0 to 1, there is no 7",
    ),
    (
        "max_model_len.x=3",
        (
            "--set max_model_len.x=3: max_model_len is 2048, so max_model_len.x cannot be set; set max_model_len "
            "as a whole"
        ),
    ),
    (
        "allocators.1={kind: paged, block_size: 0}",
        "--set allocators.1={kind: paged, block_size: 0}: block_size must be at least 1, got 0",
    ),
    (
        "trace.path=/none.csv",
        "--set trace.path=/none.csv: no trace file '/none.csv'; paths are relative to this config",
    ),
])
def test_a_mistake_is_told_with_the_override(problems, override, message):
    assert problems(TEXT, override) == [message]


def test_mistakes_of_the_command_line_come_after_the_files(problems):
    assert problems(TEXT.lstrip() + "sead: 1\n", "seed=-1") == [
        "bad.yaml:6:1: unknown key 'sead'; did you mean 'seed'?",
        "--set seed=-1: seed must be at least 0, got -1",
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [("none.yaml", "cannot be read: No such file or directory"), (".", "cannot be read: Is a directory")])
def test_a_file_that_cannot_be_read_is_an_error(tmp_path, name, message):
    with pytest.raises(ConfigError) as error:
        load(tmp_path / name)
    assert str(error.value) == f"{tmp_path / name}: {message}"


def test_a_file_that_is_not_text_is_an_error(tmp_path):
    (tmp_path / "x.yaml").write_bytes(b"a: \xff\n")
    with pytest.raises(ConfigError, match=r"x\.yaml: is not text in UTF-8 \(byte 3\)"):
        load(tmp_path / "x.yaml")
