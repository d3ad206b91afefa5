"""Durations of kind measured: the fit of a bench.json times the model's layers, and the rest of the step."""

import json

import pytest
import yaml

from pagesim.config import load
from pagesim.config.expand import expanded
from pagesim.engine.durations import Linear

LLAMA_8B = {"num_q_heads": 32, "num_kv_heads": 8, "head_dim": 128, "dtype": "bf16", "step_s": 5e-6,
            "context_token_s": 1e-9}
MHA = LLAMA_8B | {"num_kv_heads": 32, "context_token_s": 4e-9}
ON_GPU = """
trace: {path: trace.csv}
model: llama-3.1-8b
memory: {gpu: h200}
max_model_len: 8192
durations: {kind: measured, path: bench.json}
allocators: [{kind: paged}]
"""
WEIGHTS_S = 2 * 8_030_261_248 / (0.8 * 4.8e12)
PREFILL_TOKEN_S = 2 * 8_030_261_248 / (0.6 * 989e12)
ON_H200 = {"step_s": WEIGHTS_S + 32 * 5e-6, "prefill_token_s": PREFILL_TOKEN_S, "sequence_s": 0.0,
           "context_token_s": 32 * 1e-9}
WAY_OUT = ("measure this model's own tables, pagesim bench-kernel CONFIG --set durations=null -o DIR, or use "
           "roofline, linear or fixed")


@pytest.fixture
def bench(tmp_path):
    """Write a bench.json beside the config; keyword: a list of fits, or any text."""

    def written(fits) -> None:
        text = fits if isinstance(fits, str) else json.dumps({"schema": 1, "rows": [], "linear_one_layer": fits})
        (tmp_path / "bench.json").write_text(text)

    return written


def test_a_step_reads_the_weights_once_and_attends_in_every_layer(case, bench):
    bench([MHA, LLAMA_8B])
    assert vars(case(ON_GPU).durations) == pytest.approx(ON_H200)


def test_what_is_given_replaces_what_is_derived(case, bench):
    bench([LLAMA_8B])
    rest = ["durations.step_s=0.01", "durations.prefill_token_s=0", "durations.sequence_s=0.5"]
    assert case(ON_GPU, *rest).durations == Linear(0.01 + 32 * 5e-6, 0.0, 0.5, 32 * 1e-9)
    assert case(ON_GPU, "memory={kv_tokens: 99999}", *rest).durations == Linear(0.01 + 32 * 5e-6, 0.0, 0.5, 32 * 1e-9)
    half = case(ON_GPU, "durations.step_s=0.01").durations
    assert (half.step_s, half.prefill_token_s) == (0.01 + 32 * 5e-6, pytest.approx(PREFILL_TOKEN_S))


@pytest.mark.parametrize("memory, dtype", [("kv_cache_dtype: fp8", "fp8"), ("dtype: fp32", "fp32")])
def test_the_fit_is_that_of_the_caches_dtype(case, bench, memory, dtype):
    bench([LLAMA_8B, LLAMA_8B | {"dtype": dtype, "context_token_s": 3e-9}])
    assert case(ON_GPU, f"memory={{gpu: h200, {memory}}}").durations.context_token_s == 32 * 3e-9


def test_the_gpu_may_be_named_in_durations(case, bench):
    bench([LLAMA_8B])
    one = case(ON_GPU, "memory={kv_tokens: 99999}", "durations.gpu=h200-sxm")
    assert one.durations == case(ON_GPU).durations
    assert one.gpu == "h200"


def test_each_of_several_gpus_has_its_share_of_weights_and_heads(case, bench):
    bench([LLAMA_8B, LLAMA_8B | {"num_q_heads": 8, "num_kv_heads": 2, "context_token_s": 3e-10}])
    durations = case(ON_GPU, "memory.tensor_parallel_size=4").durations
    assert durations.step_s == pytest.approx(WEIGHTS_S / 4 + 32 * 5e-6)
    assert durations.prefill_token_s == pytest.approx(PREFILL_TOKEN_S / 4)
    assert durations.context_token_s == pytest.approx(32 * 3e-10)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_a_cache_of_dtype_auto_is_either_of_16_bits(case, bench, dtype):
    bench([LLAMA_8B | {"dtype": dtype}])
    assert case(ON_GPU).durations.context_token_s == 32 * 1e-9


def test_a_case_is_resolved_to_its_numbers_and_runs_again_without_the_file(write, bench, tmp_path):
    bench([LLAMA_8B])
    experiment = load(write(ON_GPU))
    (one,) = experiment.cases
    assert one.resolved["durations"] == {"kind": "linear"} | vars(one.durations)
    (tmp_path / "bench.json").unlink()
    (again,) = load(write(expanded(experiment))).cases
    assert (again.durations, again.resolved) == (one.durations, one.resolved)
    assert yaml.safe_load(expanded(experiment))["durations"]["context_token_s"] == 32 * 1e-9


def test_measured_and_roofline_can_be_swept(cases, bench):
    bench([LLAMA_8B])
    swept = cases(ON_GPU + "sweep: {durations: [{kind: roofline}, {kind: measured, path: bench.json}]}\n")
    assert [case.resolved["durations"]["kind"] for case in swept] == ["roofline", "linear"]


def test_a_path_on_the_command_line_is_relative_to_where_it_is_typed(case, bench, tmp_path, monkeypatch):
    bench([LLAMA_8B])
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert case(ON_GPU, "durations.path=../bench.json").durations.context_token_s == 32 * 1e-9


NO_MODEL = ("19: kind measured needs a model of the catalogue or a config.json, for its layers and heads; or use "
            "linear or fixed")
NO_GPU = ("19: kind measured needs a GPU, for the part of a step that is not attention: name it in memory or in "
          "durations; or give both step_s and prefill_token_s, without attention")
NO_FILE = (
    "35: path {} cannot be read: {}; give the bench.json that pagesim bench-kernel -o DIR writes, relative to this "
    "config")
NO_BENCH = f"35: path {{}} is no bench.json as this version of pagesim bench-kernel -o DIR writes it; {WAY_OUT}"
ANOTHER_SHAPE = (f"35: path 'bench.json' has a fit for 32 query and 8 KV heads of 128 in bf16, and none for {{}} on "
                 f"each GPU; {WAY_OUT}")
NOT_MLA = ("19: kind measured is for K and V heads, and not for the latent of deepseek-v3; use "
           "roofline, linear or fixed")
MISTAKES = [
    ({"model": None, "memory": "{kv_tokens: 99999}"}, NO_MODEL),
    ({"model": "{kv_bytes_per_token: 9}", "memory": "{kv_tokens: 99999}"}, NO_MODEL),
    ({"model": "deepseek-v3", "memory": "{gpu: h200, tensor_parallel_size: 8}"}, NOT_MLA),
    ({"memory": "{kv_tokens: 99999}"}, NO_GPU),
    ({"memory": "{kv_tokens: 99999}", "durations": "{kind: measured, path: bench.json, step_s: 0.01}"}, NO_GPU),
    ({"durations": "{kind: measured}"}, "12: durations.path is missing"),
    ({"durations": "{kind: measured, path: bench.json, step_s: -1}"}, "55: step_s must be at least 0, got -1"),
    ({"durations": "{kind: measured, path: none.json}"}, NO_FILE.format("'none.json'", "No such file or directory")),
    ({"durations": "{kind: measured, path: .}"}, NO_FILE.format("'.'", "Is a directory")),
    ({"durations": "{kind: measured, path: trace.csv}"}, NO_BENCH.format("'trace.csv'")),
    (
        {"model": "llama-2-7b", "max_model_len": 4096},
        ANOTHER_SHAPE.format("llama-2-7b: 32 query and 32 KV heads of 128 in bf16 or fp16"),
    ),
    (
        {"memory": "{gpu: h200, tensor_parallel_size: 2}"},
        ANOTHER_SHAPE.format("llama-3.1-8b: 16 query and 4 KV heads of 128 in bf16 or fp16"),
    ),
    *(
        ({"memory": f"{{gpu: h200, {key}: {dtype}}}"},
         ANOTHER_SHAPE.format(f"llama-3.1-8b: 32 query and 8 KV heads of 128 in {dtype}"))
        for key, dtype in (("kv_cache_dtype", "fp16"), ("kv_cache_dtype", "fp8"), ("dtype", "fp32"))
    ),
]


@pytest.mark.parametrize(("keys", "message"), MISTAKES)
def test_what_does_not_go_with_the_kind_is_told_at_its_place(problems, bench, keys, message):
    bench([LLAMA_8B])
    plain = {"durations": "{kind: measured, path: bench.json}", "model": "llama-3.1-8b", "memory": "{gpu: h200}",
             "max_model_len": 8192, "trace": "{path: trace.csv}"}
    text = "".join(f"{key}: {value}\n" for key, value in (plain | keys).items() if value is not None)
    assert problems(text) == [f"bad.yaml:1:{message}"]


@pytest.mark.parametrize("content", [
    "{", "[]", "{}", '{"linear_one_layer": null}', '{"linear_one_layer": {"step_s": 1, "context_token_s": 1}}', "\x00",
    json.dumps({"linear_one_layer": [LLAMA_8B | {"step_s": -1}]}),
    json.dumps({"linear_one_layer": [LLAMA_8B | {"context_token_s": float("nan")}]}),
])
def test_another_file_is_refused(problems, bench, content):
    bench(content)
    (line,) = problems(ON_GPU)
    assert line == ("bad.yaml:5:35: path 'bench.json' is no bench.json as this version of pagesim bench-kernel -o DIR "
                    f"writes it; {WAY_OUT}")


def test_a_file_without_a_fit_says_what_a_fit_takes(problems, bench):
    bench([])
    (line,) = problems(ON_GPU)
    assert line == ("bad.yaml:5:35: path 'bench.json' has no fit, which takes decode rows of kernel ours, right ones, "
                    "on simulated or shuffled tables and with two different numbers of tokens, such as those of two "
                    f"allocators; {WAY_OUT}")


def test_bench_kernels_own_json_is_read(case, bench):
    from pagesim.kernels.harness.measurement import Row, as_json

    rows = [
        Row(f"{name}/ours/shuffled/b16/NHD/bf16", name, "ours", "shuffled", 16, "NHD", "bf16", 64, tokens, 1, 32,
            kv_heads, 128, 10**9, 10**9, 2, micros, micros, micros, None, 4e3, 240.0, 0.96, 240.0, 0.96, 1.0, 4e3, 2e-3,
            3e-3, True, {})
        for name, tokens, kv_heads, micros in [("a", 1000, 8, 6.0), ("b", 5000, 8, 10.0), ("c", 1000, 32, 9.0),
                                               ("d", 5000, 32, 25.0)]
    ]
    bench(as_json(rows))
    assert vars(case(ON_GPU).durations) == pytest.approx(ON_H200)
