"""A vLLM command line's flags are keys of a config."""

import pytest

from pagesim.config.load import empty
from pagesim.config.overrides import overridden
from pagesim.config.vllm import vllm_overrides
from pagesim.errors import ConfigError


def keys(command):
    """What the flags put into an empty config."""
    document = empty("here")
    data = overridden(document, vllm_overrides(command, document)).data
    return {key: value for key, value in data.items() if key != "allocators"}


@pytest.mark.parametrize(("command", "expected"), [
    ("--max-model-len 8192", {"max_model_len": 8192}),
    ("--max_model_len=16k", {"max_model_len": "16k"}),
    ("vllm serve meta-llama/Llama-3.1-8B --seed 3", {"model": "meta-llama/Llama-3.1-8B", "seed": 3}),
    ("CUDA_VISIBLE_DEVICES=0 vllm serve opt-13b \\\n  --seed 3", {"model": "opt-13b", "seed": 3}),
    ("python3 -m vllm.entrypoints.openai.api_server --model opt-13b", {"model": "opt-13b"}),
    ("--model 'my dir/config.json'", None),
    (
        "--gpu-memory-utilization 0.85 -tp 2",
        {"memory": {"gpu_memory_utilization": 0.85, "tensor_parallel_size": 2}},
    ),
    ("--kv-cache-dtype fp8_e4m3 --dtype bfloat16", {"memory": {"kv_cache_dtype": "fp8_e4m3", "dtype": "bfloat16"}}),
    (
        "--max-num-seqs 64 --max-num-batched-tokens 2048 --enable-chunked-prefill",
        {"scheduling": {"max_num_seqs": 64, "max_num_batched_tokens": 2048, "chunked_prefill": True}},
    ),
    ("--no-enable-chunked-prefill", {"scheduling": {"chunked_prefill": False}}),
    ("--preemption-mode swap --swap-space 4", {"scheduling": {"preemption": "swap", "swap_space": "4GiB"}}),
    ("--kv-cache-memory-bytes 12884901888", {"memory": {"kv_memory": 12_884_901_888}}),
    ("--quantization fp8", {"memory": {"dtype": "fp8"}}),
    ("--trust-remote-code --port 8000 --served-model-name x --disable-log-requests", {}),
    ("", {}),
])
def test_a_flag_is_its_key(command, expected):
    if expected is None:
        assert keys(command)["model"].endswith("/my dir/config.json")
    else:
        assert keys(command) == expected


def test_a_block_size_is_every_paged_allocators():
    document = empty("here")
    assert overridden(document, vllm_overrides("--block-size 32", document)).data["allocators"] == [
        {"kind": "contiguous"},
        {"kind": "paged", "block_size": 32},
    ]


def test_blocks_win_over_utilization_as_they_do_in_vllm():
    assert keys("--gpu-memory-utilization 0.9 --num-gpu-blocks-override 2587") == {
        "memory": {"num_gpu_blocks_override": 2587}}


@pytest.mark.parametrize(("command", "message"), [
    ("--max-modellen 3", "--from-vllm: unknown flag --max-modellen; did you mean --max-model-len?"),
    (
        "--xyzzy",
        "--from-vllm: unknown flag --xyzzy; taken are --model, --max-model-len, --seed, "
        "--gpu-memory-utilization, --tensor-parallel-size, --tp, "
        "--kv-cache-dtype, --dtype, --num-gpu-blocks-override, --kv-cache-memory-bytes, --max-num-seqs, "
        "--max-num-batched-tokens, --preemption-mode, "
        "--swap-space, --enable-chunked-prefill, --no-enable-chunked-prefill, --block-size",
    ),
    ("--max-model-len", "--from-vllm: --max-model-len needs a value"),
    ("--seed --dtype bf16", "--from-vllm: --seed needs a value"),
    ("--model 'x", '--from-vllm: No closing quotation in "--model \'x"'),
    (
        "--quantization awq",
        (
            "--from-vllm --quantization awq: only fp8 says how large the weights are; leave it out and give "
            "--set memory.weights=SIZE"
        ),
    ),
])
def test_a_flag_that_cannot_be_taken_is_an_error(command, message):
    with pytest.raises(ConfigError) as error:
        vllm_overrides(command, empty("here"))
    assert str(error.value) == message
