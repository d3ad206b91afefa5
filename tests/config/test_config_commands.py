"""``pagesim config`` and ``pagesim size`` on the command line: data on stdout, mistakes on stderr, exit codes."""

import json
import subprocess
import sys

import pytest
import yaml

from pagesim.catalog.lookup import entries

TEXT = "trace: {path: trace.csv}\nmemory: {kv_tokens: 15728}\nmax_model_len: 2048\nsweep: {seed: [0, 1]}\n"


@pytest.fixture
def pagesim(tmp_path):
    """Run the program in a directory with a config and its trace; returns exit code, stdout, stderr."""
    (tmp_path / "trace.csv").write_text("prompt_tokens,output_tokens\n1,1\n")
    (tmp_path / "good.yaml").write_text(TEXT)
    (tmp_path / "bad.yaml").write_text(TEXT + "sead: 0\n")

    def run(*arguments):
        done = subprocess.run([sys.executable, "-c", "from pagesim.cli.main import main; main()", *arguments],
                              cwd=tmp_path, check=False, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    return run


def test_validate_counts_the_cases(pagesim):
    assert pagesim("config", "validate", "good.yaml") == (0, "good.yaml: valid, 4 cases\n", "")


def test_validate_tells_a_mistake_on_stderr_and_exits_2(pagesim):
    assert pagesim("config", "validate", "bad.yaml") == (
        2,
        "",
        "pagesim: bad.yaml:5:1: unknown key 'sead'; did you mean 'seed'?\n",
    )


def test_validate_takes_overrides(pagesim):
    assert (pagesim("config", "validate", "good.yaml", "--set", "seed=-1", "--set", "sweep={}")[2]
            == "pagesim: --set seed=-1: seed must be at least 0, got -1\n")


def test_expand_writes_a_config_for_each_setting(pagesim, tmp_path):
    code, out, _ = pagesim("config", "expand", "good.yaml")
    documents = list(yaml.safe_load_all(out))
    assert code == 0
    assert [document["seed"] for document in documents] == [0, 1]
    assert documents[0]["scheduling"] == {
        "max_num_seqs": 256,
        "max_num_batched_tokens": 8192,
        "chunked_prefill": True,
        "preemption": "recompute",
        "reserve_full_isl": True,
    }
    assert [allocator["kind"] for allocator in documents[0]["allocators"]] == ["contiguous", "paged"]
    assert "#   paged 16 seed=1\n" in out


def test_schema_is_a_json_schema_that_forbids_unknown_keys(pagesim):
    code, out, _ = pagesim("config", "schema")
    schema = json.loads(out)
    assert code == 0
    assert set(schema["properties"]) == {"trace", "model", "memory", "max_model_len", "scheduling", "durations",
                                         "allocators", "replicas", "sweep", "seed"}
    assert schema["additionalProperties"] is False
    assert all(part["additionalProperties"] is False for part in schema["$defs"].values())
    assert schema["$defs"]["Poisson"]["properties"]["rate"]["description"] == "Mean requests per second."
    assert schema["properties"]["model"]["description"].startswith("Name in the catalogue")


def test_init_writes_a_config_and_never_over_another(pagesim, tmp_path):
    assert pagesim("config", "init", "new.yaml")[:2] == (
        0,
        "wrote new.yaml; set trace.path in it, then: pagesim simulate new.yaml\n",
    )
    assert pagesim("config", "validate", "new.yaml")[0] == 0
    (tmp_path / "new.yaml").write_text("mine")
    assert pagesim("config", "init", "new.yaml") == (
        2,
        "",
        "pagesim: new.yaml: exists already and is left as it is; give another name\n",
    )
    assert (tmp_path / "new.yaml").read_text() == "mine"
    assert pagesim("config", "init", "no/new.yaml") == (
        2,
        "",
        "pagesim: no/new.yaml: cannot be written: No such file or directory\n",
    )


def test_size_says_tokens_gib_blocks_and_concurrency_first(pagesim):
    code, out, err = pagesim("size", "--model", "llama-3.1-8b", "--set", "memory.num_gpu_blocks_override=2587",
                             "--max-model-len", "32768")
    assert (code, err) == (0, "")
    assert out.splitlines()[:3] == [
        "llama-3.1-8b; 131,072 bytes of KV per token on each GPU",
        (
            "KV cache: 41,392 tokens, 5.05 GiB, 2,587 blocks of 16; maximum concurrency at 32,768 tokens per "
            "request: 1.26x"
        ),
        "vLLM counts its null block too: num_gpu_blocks 2,588 there is 2,587 here",
    ]


def test_size_warns_where_not_even_one_full_length_request_fits(pagesim):
    code, out, err = pagesim("size", "--kv-tokens", "23648", "--max-model-len", "29000")
    assert code == 0
    assert "maximum concurrency at 29,000 tokens per request: 0.81x" in out
    assert err.startswith("pagesim: warning: not even one full-length request fits: max_model_len is 29,000 tokens, "
                          "the KV cache holds 23,648")


def test_size_takes_a_config_and_options_that_change_it(pagesim):
    code, out, _ = pagesim("size", "good.yaml", "--block-size", "32", "--prompt-tokens", "50", "--output-tokens", "25",
                           "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["pools"] == [
        {
            "slots": 15728,
            "usable_slots": 15712,
            "bytes": None,
            "kv_bytes_per_token": None,
            "blocks": 491,
            "block_size": 32,
            "remainder_slots": 16,
            "max_concurrency": 15712 / 2048,
            "fits_one": True,
        }
    ]
    assert answer["request"] == {"prompt_tokens": 50, "output_tokens": 25, "max_tokens": None}
    assert {"rule": "contiguous exact", "slots_each": 74, "at_once": 212, "at_once_buddy": 122} in answer[
        "reservations"]


def test_size_needs_no_trace(pagesim, tmp_path):
    (tmp_path / "trace.csv").unlink()
    assert pagesim("size", "good.yaml")[0] == 0


def test_size_takes_a_vllm_command_line(pagesim):
    code, out, _ = pagesim("size", "--gpu", "h200", "--json", "--from-vllm",
                           "vllm serve meta-llama/Llama-3.1-8B --max-model-len 8192 --block-size 32")
    answer = json.loads(out)
    assert (code, answer["model"], answer["max_model_len"], answer["pools"][0]["block_size"]) == (
        0, "llama-3.1-8b", 8192, 32)


def test_a_gpu_of_the_catalogue_is_what_its_memory_by_hand_is(pagesim):
    arguments = ["size", "--model", "llama-3.1-70b", "--tensor-parallel-size", "4", "--kv-cache-dtype", "fp8", "--json"]
    named, by_hand = (json.loads(pagesim(*arguments, *how)[1]) for how in (["--gpu", "h200"],
                                                                          ["--gpu-memory", "150109880320b"]))
    assert named["arena"]["kv_bytes_per_token"] == 2 * 80 * 2 * 128
    assert by_hand == named | {"gpu": None}


def test_the_list_has_every_name_that_can_be_given_with_its_figures(pagesim):
    code, out, _ = pagesim("size", "--list")
    listed = json.loads(pagesim("size", "--list", "--json")[1])
    assert code == 0
    assert list(listed["models"]) == list(entries("models.yaml")) and list(listed["gpus"]) == list(entries("gpus.yaml"))
    assert all(name in out for name in (*listed["models"], *listed["gpus"]))
    assert listed["models"]["llama-3.1-8b"] == {"kv_bytes_per_token": 131_072, "window": None, "max_model_len": 131_072,
                                                "weights_bytes": 16_060_522_496}
    assert listed["models"]["gemma-3-27b"]["kv_bytes_per_token"] is None
    assert listed["gpus"]["rtx-4090"]["cuda_bytes"] == 25_250_627_584


@pytest.mark.parametrize("gpu", [[], ["--gpu", "h100"]])
def test_size_takes_the_bytes_that_vllms_own_log_suggests(pagesim, gpu):
    command = "vllm serve llama-3.1-8b --kv-cache-memory=58969782886 --gpu-memory-utilization 0.9 -O3 --port 80"
    code, out, err = pagesim("size", *gpu, "--from-vllm", command)
    assert code == 0
    assert out.splitlines()[:3] == [
        "llama-3.1-8b; 131,072 bytes of KV per token on each GPU; KV memory 54.92 GiB",
        "KV cache: 449,872 tokens, 54.92 GiB, 28,117 blocks of 16; maximum concurrency at 131,072 tokens per request: "
        "3.43x",
        "one block is set aside as vLLM's null block: of num_gpu_blocks 28,118 there, 28,117 are usable, and counted "
        "here"]
    notes = ["pagesim: note: --from-vllm: passed over, as the KV cache does not depend on it: -O, --port"]
    notes += ["pagesim: note: --from-vllm says itself how much KV memory there is; --gpu h100 is not used"] * bool(gpu)
    assert err.splitlines() == notes


def test_a_length_that_needs_vllms_null_block_too_is_flagged(pagesim):
    code, _, err = pagesim("size", "--from-vllm", "vllm serve llama-2-7b --num-gpu-blocks-override 256")
    assert code == 0
    assert err.startswith("pagesim: warning: not even one full-length request fits: max_model_len is 4,096 tokens, the "
                          "KV cache holds 4,080;")
    assert pagesim("size", "--from-vllm", "vllm serve llama-2-7b --num-gpu-blocks-override 257")[2] == ""


def test_a_gpus_memory_is_told_as_a_sum_with_who_reports_it_and_what_is_not_counted(pagesim):
    """The real run got 2,588 blocks; without activations, graphs and context there is room for 3,178."""
    arguments = ["size", "--gpu", "rtx-4090", "--model", "llama-3.1-8b", "--set", "memory.gpu_memory_utilization=0.9"]
    lines = pagesim(*arguments)[1].splitlines()
    assert lines[1] == ("KV memory 6.21 GiB = 0.9 × rtx-4090's 23.52 GiB (as CUDA reports it) − weights 14.96 GiB")
    assert lines[2].startswith("at most: activations, CUDA graphs and CUDA itself are not counted (")
    assert "3,178 blocks of 16" in lines[3]
    lines = pagesim(*arguments, "--set", "memory.other=1.15GiB")[1].splitlines()
    assert lines[1].endswith("− weights 14.96 GiB − other 1.15 GiB") and "2,589 blocks of 16" in lines[2]


@pytest.mark.parametrize(("arguments", "message"), [
    (["--gpu", "h20", "--model", "llama-3.1-8b"], "pagesim: --gpu h20: unknown GPU 'h20'; did you mean 'h200'?\n"),
    (
        ["--gpu", "h200", "--kv-tokens", "5", "--max-model-len", "9"],
        "pagesim: --gpu h200: memory needs exactly one of gpu, gpu_memory, kv_memory, kv_tokens, "
        "num_gpu_blocks_override, got gpu, kv_tokens (a roofline's GPU can be named in durations)\n",
    ),
    (
        ["--model", "llama-3.1-8b"],
        "pagesim: how much memory is there? Give --gpu NAME (--list has them), --gpu-memory SIZE, --kv-memory SIZE or "
        "--kv-tokens N\n",
    ),
    (
        ["--model", "llama-3.1-8b", "--kv-tokens", "99999", "--kv-cache-dtype", "fp4"],
        "pagesim: --kv-cache-dtype fp4: kv_cache_dtype must be one of auto, bf16, fp16, fp8, float16, bfloat16, "
        "fp8_e4m3, fp8_e5m2, got 'fp4'; did you mean 'fp8'?\n",
    ),
    (
        ["--from-vllm", "--max-modellen 3"],
        "pagesim: --from-vllm: unknown flag --max-modellen; did you mean --max-model-len?\n",
    ),
    (
        ["good.yaml", "--max-tokens", "5"],
        "pagesim: --max-tokens 5 is below the output of 256 tokens; give --output-tokens too\n",
    ),
])
def test_size_tells_a_mistake_by_the_option_that_says_it(pagesim, arguments, message):
    assert pagesim("size", *arguments) == (2, "", message)
