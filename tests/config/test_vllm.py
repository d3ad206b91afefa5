"""A vLLM command line's flags are keys of a config."""

import pytest

from pagesim.config.document import parse
from pagesim.config.load import empty
from pagesim.config.overrides import assignment, overridden
from pagesim.config.size import size
from pagesim.config.vllm import vllm_server
from pagesim.config.vllm_flags import (
    DOES_NOTHING, IN_GIB, KEYS, OF_POOLS, PASSED_OVER, PASSED_OVER_SWITCHES, PASSED_OVER_WITH_VALUES, PREFIX_CACHES,
    REFUSED, REFUSED_SWITCHES, SWITCHES)
from pagesim.errors import ConfigError


def keys(command, document=None):
    """What the flags put into a config, an empty one if none is given; the null block apart."""
    document = document or empty("here")
    data = overridden(document, vllm_server(command, document).overrides).data
    memory = {key: value for key, value in data.get("memory", {}).items() if key != "null_block"}
    rest = {key: value for key, value in data.items() if key not in ("allocators", "memory")}
    return rest | ({"memory": memory} if memory else {})


def sized(command, *assignments):
    document = empty("here")
    overrides = [*vllm_server(command, document).overrides, *map(assignment, assignments)]
    return size(overridden(document, overrides), "")


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
    ("--kv-cache-memory-bytes 25g", {"memory": {"kv_memory": 25_000_000_000}}),
    ("--max-model-len -1 -pp 2", {"max_model_len": "auto", "memory": {"pipeline_parallel_size": 2}}),
    ("--no-scheduler-reserve-full-isl", {"scheduling": {"reserve_full_isl": False}}),
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
    overrides = vllm_server("--block-size 32 --watermark 0.01", document).overrides
    assert overridden(document, overrides).data["allocators"] == [
        {"kind": "contiguous"},
        {"kind": "paged", "block_size": 32, "watermark": 0.01, "prefix_cache": "vllm"},
    ]


@pytest.mark.parametrize(("command", "caches"), [
    ("vllm serve m", "vllm"), ("vllm serve m --enable-prefix-caching", "vllm"),
    ("vllm serve m --no-enable-prefix-caching", "none"), ("vllm serve m --enable-prefix-caching=false", "none"),
    ("--no-enable-prefix-caching --enable-prefix-caching", "vllm")])
def test_pools_have_a_prefix_cache_unless_it_is_turned_off(command, caches):
    document = empty("here")
    contiguous, paged = overridden(document, vllm_server(command, document).overrides).data["allocators"]
    assert (paged["prefix_cache"], "prefix_cache" in contiguous) == (caches, False)


WORDS = ["--model", "m", "--tensor-parallel-size", "2"]
POD = """apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
        - name: server
          image: vllm/vllm-openai:latest
          {}
          ports: [{{containerPort: 8000}}]
"""


@pytest.mark.parametrize("text", [
    f"args: {WORDS}", "args: ['--model=m', '-tp', 2]  # two GPUs", f"{WORDS}", "\n        - --model\n        - m\n        - -tp=2\n",
    "args:\n  - --model\n  - m\n  - --tensor-parallel-size\n  - '2'\n", "command: [vllm, serve]\nargs: [m, -tp, 2]",
    "command: [/bin/sh, -c]\nargs: ['vllm serve m -tp 2']", "command: [sh, -c]\nargs:\n  - |\n    exec vllm serve m \\\n      -tp 2\n",
    "- name: x\n  env: [{name: a, value: b}]\n  args: [--model=m, -tp=2, --trust-remote-code=true]",
    POD.format(f"args: {WORDS}"), POD.format("command: [python3, -m, vllm.entrypoints.openai.api_server, --model=m, -tp=2]")])
def test_a_container_of_kubernetes_is_a_command_line(text):
    assert keys(text) == {"model": "m", "memory": {"tensor_parallel_size": 2}}


@pytest.mark.parametrize(("command", "memory"), [
    ("--gpu-memory-utilization 0.9 --num-gpu-blocks-override 2587", {"num_gpu_blocks_override": 2587}),
    ("--kv-cache-memory=58969782886 --gpu-memory-utilization 0.9", {"kv_memory": 58_969_782_886}),
    ("--num-gpu-blocks-override 9 --kv-cache-memory-bytes 8", {"num_gpu_blocks_override": 9}),
    ("--kv-cache-memory-bytes 8 --num-gpu-blocks-override 9", {"num_gpu_blocks_override": 9})])
def test_blocks_win_over_bytes_and_bytes_over_utilization_as_they_do_in_vllm(command, memory):
    assert keys(command) == {"memory": memory}
    assert vllm_server(command, empty("here")).gives_kv_memory


@pytest.mark.parametrize("memory", [
    "{gpu: h200, gpu_memory_utilization: 0.9, other: 1GiB}", "{kv_tokens: 99}", "{kv_memory: 1GiB}",
    "{num_gpu_blocks_override: 7}"])
def test_memory_that_the_flags_give_replaces_the_files(memory):
    document = parse(f"memory: {memory}\nallocators: [{{kind: paged}}]\n", "file.yaml")
    given = keys("--kv-cache-memory-bytes 8589934592", document)["memory"]
    assert {key: value for key, value in given.items() if value is not None} == {"kv_memory": 8_589_934_592}


@pytest.mark.parametrize(("command", "blocks"), [
    ("--num-gpu-blocks-override 2588", 2588),
    ("--kv-cache-memory-bytes 58969782886", 28_118),
    ("--gpu-memory-utilization 0.9", 3_178),
    ("--gpu-memory-utilization 0.9 --block-size 32", 1_589),
    ("", 3_418)])
def test_a_pool_in_vllms_words_loses_one_block_to_the_null_block(command, blocks):
    answer = sized(f"vllm serve meta-llama/Llama-3.1-8B {command}",
                   *(["memory.gpu=rtx-4090"] if "blocks" not in command and "bytes" not in command else []))
    (pool,) = answer.pools
    assert (pool.capacity.blocks, answer.null_block) == (blocks - 1, True)
    assert 0 <= answer.arena.capacity.slots - blocks * pool.capacity.block_size < pool.capacity.block_size


def test_a_length_that_needs_the_null_block_too_does_not_fit():
    fits, too_long = (sized(f"vllm serve llama-2-7b --num-gpu-blocks-override 11 --max-model-len {length}").pools[0]
                      for length in (160, 176))
    assert fits.max_concurrency == 1 and too_long.max_concurrency < 1


def test_a_file_that_counts_in_usable_blocks_loses_none_to_flags_that_do_not_speak_of_memory():
    document = parse("memory: {num_gpu_blocks_override: 2587}\nallocators: [{kind: paged}]\n", "file.yaml")
    data = overridden(document, vllm_server("--max-model-len 8192", document).overrides).data
    assert data["memory"] == {"num_gpu_blocks_override": 2587}


@pytest.mark.parametrize("value", ["auto", "-1"])
@pytest.mark.parametrize(("blocks", "longest"), [(1001, 16_000), (8193, 131_072), (10_000, 131_072)])
def test_the_longest_that_fits_is_asked_for_by_either_word(value, blocks, longest):
    answer = sized(f"vllm serve llama-3.1-8b --max-model-len {value} --num-gpu-blocks-override {blocks}")
    assert answer.max_model_len == longest


@pytest.mark.parametrize("command", [
    "vllm serve m --tensor-parallel-size 2", "vllm serve --tensor_parallel_size=2 m", "vllm serve m -tp 2",
    "vllm serve m --tensor-par 2", "--model m --tensor-parallel-size 2 --port 80 --api-key a b --trust-remote-code",
    "docker run --gpus all -p 8000:8000 --ipc=host vllm/vllm-openai:latest --model m --tensor-parallel-size 2",
    "docker run ghcr.io/x/vllm-openai@sha256:12 m -tp 2",
    "HF_TOKEN=x python -m vllm.entrypoints.openai.api_server --model=m --tensor-parallel-size=2"])
def test_a_command_is_read_however_it_is_written(command):
    assert keys(command) == {"model": "m", "memory": {"tensor_parallel_size": 2}}


PASTED = """--enable-auto-tool-choice --tool-call-parser hermes
    --reasoning-parser qwen3 -O3 -O 3 -O.level=3 --async-scheduling --uvicorn-log-level warning
    --compilation-config '{"mode": 3}' --compilation-config.mode 3 -cc '{}' --generation-config vllm
    --attention-backend FLASH_ATTN --limit-mm-per-prompt '{"image": 2}' --host 0.0.0.0 --port 8000 --api-key a b
    --served-model-name x y --disable-log-requests --disable-log-stats --no-enable-log-requests --chat-template t.jinja
    --tokenizer-mode mistral --load-format auto --enforce-eager --trust-remote-code --swap-space 4 --task generate
    --enable-expert-parallel --distributed-executor-backend mp --data-parallel-size 1 --override-generation-config '{}'
    --mm-processor-kwargs '{}' --max-log-len 100 --enable-sleep-mode --no-enable-lora --allowed-origins '["*"]'
    --cudagraph-capture-sizes 1 2 4 8 --scheduling-policy priority --structured-outputs-config '{"backend": "xgrammar"}'
    --hf-token --otlp-traces-endpoint http://x:4317 --runner generate --cpu-offload-gb 0 --stream-interval 4"""


def test_flags_that_cannot_touch_the_cache_are_passed_over_in_one_note():
    server = vllm_server(PASTED, empty("here"))
    assert keys(PASTED) == {"scheduling": {"swap_space": "4GiB"}}
    (note,) = server.notes
    assert note.startswith("note: --from-vllm: passed over, as the KV cache does not depend on it: --enable-auto-")
    written = {word.partition("=")[0].partition(".")[0] for word in PASTED.split() if word.startswith("-")}
    assert written - {"--swap-space", "-O3"} == set(note.split(": ")[-1].split(", "))


@pytest.mark.parametrize("flag", sorted([*PASSED_OVER, *(f"no-{flag}" for flag in PASSED_OVER_SWITCHES | REFUSED_SWITCHES)]))
def test_no_flag_that_is_passed_over_changes_anything(flag):
    value = " '{}'" if flag in PASSED_OVER - PASSED_OVER_SWITCHES else ""
    assert keys(f"--{flag}{value} --seed 1") == {"seed": 1}


@pytest.mark.parametrize("flag", sorted(REFUSED))
def test_flags_that_touch_the_cache_in_unknown_ways_are_refused_by_name_with_the_way_out(flag):
    with pytest.raises(ConfigError) as error:
        vllm_server(f"vllm serve m --{flag}{'' if flag in REFUSED_SWITCHES else ' 7'}", empty("here"))
    assert str(error.value).startswith(f"--from-vllm: --{flag}: ")
    assert any(way_out in str(error.value) for way_out in ("leave it out", "give the flags"))


def test_every_flag_is_one_thing_only():
    tables = [KEYS, IN_GIB, SWITCHES, OF_POOLS, PREFIX_CACHES, REFUSED, PASSED_OVER]
    assert sum(map(len, tables)) == len({flag for table in tables for flag in table})
    assert PASSED_OVER_WITH_VALUES < PASSED_OVER > PASSED_OVER_SWITCHES and REFUSED_SWITCHES < REFUSED.keys()
    assert all(flags < REFUSED.keys() for flags in DOES_NOTHING.values())


@pytest.mark.parametrize(("written", "chunked"), [
    ("--enable-chunked-prefill", True), ("--enable-chunked-prefill=True", True), ("--no-enable-chunked-prefill", False),
    ("--enable-chunked-prefill False", False)])
def test_a_switch_may_say_true_or_false(written, chunked):
    assert keys(f"vllm serve {written} m") == {"model": "m", "scheduling": {"chunked_prefill": chunked}}


@pytest.mark.parametrize(("command", "message"), [
    ("--max-modellen 3", "--from-vllm: unknown flag --max-modellen; did you mean --max-model-len?"),
    (
        "--xyzzy",
        "--from-vllm: unknown flag --xyzzy; taken are --model, --max-model-len, --seed, "
        "--gpu-memory-utilization, --device-memory-utilization, --tensor-parallel-size, --tp, "
        "--pipeline-parallel-size, --pp, --kv-cache-dtype, --dtype, --num-gpu-blocks-override, "
        "--kv-cache-memory-bytes, --max-num-seqs, --max-num-batched-tokens, --preemption-mode, "
        "--swap-space, --enable-chunked-prefill, --no-enable-chunked-prefill, --scheduler-reserve-full-isl, "
        "--no-scheduler-reserve-full-isl, --block-size, --watermark, --enable-prefix-caching, "
        "--no-enable-prefix-caching",
    ),
    ("--max-model-len", "--from-vllm: --max-model-len needs a value"),
    ("--seed --dtype bf16", "--from-vllm: --seed needs a value"),
    ("vllm serve a b", "--from-vllm: 'b' belongs to no flag; quote a value that has spaces"),
    ("--enforce-eager=maybe", "--from-vllm: --enforce-eager takes no value, got 'maybe'"),
    ("--model 'x", '--from-vllm: No closing quotation in "--model \'x"'),
    (
        "--quantization awq",
        (
            "--from-vllm --quantization awq: only fp8 says how large the weights are; leave it out and give "
            "--set memory.weights=SIZE, or the config.json of the checkpoint, with its index beside it"
        ),
    ),
])
def test_a_flag_that_cannot_be_taken_is_an_error(command, message):
    with pytest.raises(ConfigError) as error:
        vllm_server(command, empty("here"))
    assert str(error.value) == message
