"""Every mistake is told at its place, with what was given, what is allowed and the way out; and all of them at once."""

import pytest

# One key of an otherwise right config, which stands in line 4; and what is said about it.
ONE_MISTAKE = {
    "kv_tokens: 1": "4:1: unknown key 'kv_tokens'; it belongs under memory",
    "max_num_seqs: 1": "4:1: unknown key 'max_num_seqs'; it belongs under scheduling",
    "alocators: []": "4:1: unknown key 'alocators'; did you mean 'allocators'?",
    "color: red":
        "4:1: unknown key 'color'; allowed: model, memory, max_model_len, allocators, trace, scheduling, "
        "durations, replicas, sweep, seed",
    "seed: -1": "4:7: seed must be at least 0, got -1",
    "seed: 1.5": "4:7: seed: must be a whole number, got 1.5",
    "seed: 1e16": "4:7: seed must be at most 1e+15, got 10000000000000000",
    "seed: true": "4:7: seed: must be a whole number, got true",
    "seed: [1]": "4:7: seed: must be a whole number, got [1]",
    "seed: 1x": "4:7: seed: a count must be a whole number, 16k (16,000) or 16K (16,384), got '1x'",
    "seed: .inf": "4:7: seed: must be a whole number, got inf",
    "seed: 010": "4:7: YAML 1.1 reads 010 as an octal number; write it without the leading 0",
    "seed: 1:30": "4:7: YAML 1.1 reads 1:30 as a number to base 60; write plain seconds",
    "model: lama-3.1-8b":
        "4:8: unknown model 'lama-3.1-8b'; did you mean 'llama-3.1-8b'? (or give the path of a config.json, "
        "or {kv_bytes_per_token: N})",
    "model: {kv_bytes: 1}": "4:9: unknown key 'kv_bytes'; did you mean 'kv_bytes_per_token'?",
    "model: {kv_bytes_per_token: 0}": "4:29: kv_bytes_per_token must be at least 1, got 0",
    "model: 7": "4:8: model must be text, got 7",
    "scheduling: 7": "4:13: scheduling must be a mapping (key: value), got 7",
    "scheduling: {max_num_seqs: 0}": "4:28: max_num_seqs must be at least 1, got 0",
    "scheduling: {enable_chunked_prefill: true}":
        "4:14: unknown key 'enable_chunked_prefill'; did you mean 'chunked_prefill'?",
    "scheduling: {chunked_prefill: 1}": "4:31: chunked_prefill: must be true or false, got 1",
    "scheduling: {preemption: swop}":
        "4:26: preemption must be one of recompute, swap, got 'swop'; did you mean 'swap'?",
    "scheduling: {preemption: swap}":
        "4:26: preemption by swap needs to know how many bytes a token takes; give model, or model: "
        "{kv_bytes_per_token: N}",
    "scheduling: {swap_space: 4}": "4:26: swap_space: 4 would be 4 bytes; write the unit, such as 4GiB",
    "scheduling: {swap_space: 4Gib/s}":
        "4:26: swap_space: a size must be a number with its unit (12GiB = 12·2³⁰ bytes, 80GB = 80·10⁹ "
        "bytes), got '4Gib/s'",
    "scheduling: {chunked_prefill: false, max_num_batched_tokens: 2047}":
        "4:62: max_num_batched_tokens 2047 is less than max_model_len 2048, so a long prompt could never be "
        "computed in one step; raise it, or set chunked_prefill: true",
    "durations: {step_s: 1}": "4:12: durations needs a kind, one of fixed, linear, roofline, measured",
    "durations: fixed": "4:12: durations must be a mapping such as {kind: fixed}, got 'fixed'",
    "durations: {kind: fix}":
        "4:19: kind must be one of fixed, linear, roofline, measured, got 'fix'; did you mean 'fixed'?",
    "durations: {kind: fixed}": "4:12: durations.step_s is missing",
    "durations: {kind: fixed, step_s: 0}":
        "4:12: durations: a step with work must last at least 1 ns (1e-9 s), which is what the clock counts; the shortest "
        "of these lasts 0 s: give step_s, sequence_s or context_token_s a larger value",
    "durations: {kind: fixed, step_s: 1e-300}":
        "4:12: durations: a step with work must last at least 1 ns (1e-9 s), which is what the clock counts; the shortest "
        "of these lasts 1e-300 s: give step_s, sequence_s or context_token_s a larger value",
    "durations: {kind: fixed, step_s: '0.1'}": "4:34: step_s: must be a number, got '0.1'",
    "durations: {kind: linear, step_s: 1, sequence_s: -1}":
        "4:50: sequence_s must be finite and not negative, got -1.0",
    "durations: {kind: roofline}":
        "4:19: kind roofline needs a model of the catalogue or a config.json; or use linear or fixed",
    "durations: {kind: roofline, gpu: h20}": "4:34: unknown GPU 'h20'; did you mean 'h200'?",
    "durations: {kind: measured, path: x}":
        "4:19: kind measured needs a model of the catalogue or a config.json, for its layers and heads; or use linear "
        "or fixed",
    "allocators: []": "4:13: allocators must have at least one entry",
    "allocators: {}": "4:13: allocators must be a list, got {}",
    "allocators: [{block_size: 16}]": "4:14: allocators.0 needs a kind, one of contiguous, paged",
    "allocators: [paged]": "4:14: allocators.0 must be a mapping such as {kind: paged}, got 'paged'",
    "allocators: [{kind: page}]": "4:21: kind must be one of contiguous, paged, got 'page'; did you mean 'paged'?",
    "allocators: [{kind: paged, block_sise: 16}]": "4:28: unknown key 'block_sise'; did you mean 'block_size'?",
    "allocators: [{kind: paged, block_size: 0}]": "4:40: block_size must be at least 1, got 0",
    "allocators: [{kind: paged, block_size: 15729}]":
        "4:40: block_size 15729 is more than the 15,728 slots of KV memory; no block fits",
    "allocators: [{kind: paged, watermark: 1}]": "4:39: watermark must be a share in [0, 1), got 1.0",
    "allocators: [{kind: paged, placement: buddy}]": "4:28: unknown key 'placement'; it belongs under allocators",
    "allocators: [{kind: contiguous, reserve: pow}]":
        "4:42: reserve must be one of max_model_len, pow2, exact, max_tokens, grow, got 'pow'; did you mean 'pow2'?",
    "allocators: [{kind: contiguous, growth: 1}]": "4:41: growth must be a number above 1, got 1.0",
    "allocators: [{kind: contiguous, growth: .nan}]": "4:41: growth must be finite, got nan",
    "sweep: [seed]": "4:8: sweep must map keys to lists of values, got ['seed']",
    "durations: {kind: fixed, step_s: 1e300}": "4:34: step_s must be at most 1e+15, got 1e+300",
    "sweep: 0": "4:8: sweep must map keys to lists of values, got 0",
    "sweep: {seed: 3}": "4:15: sweep over seed must be a list of one value or more, got 3",
    "sweep: {seed: []}": "4:15: sweep over seed must be a list of one value or more, got []",
    "sweep: {sead: [1]}": "4:9: unknown key 'sead'; did you mean 'seed'?",
    "seed: 2024-02-30":
        "4:7: this is not YAML: 2024-02-30 looks like a timestamp and is none; put it in quotes if it is text",
    "sweep: {seed: [0, x]}": "4:19: seed: a count must be a whole number, 16k (16,000) or 16K (16,384), got 'x'",
    "sweep: {allocators.2.block_size: [1]}": "4:9: allocators is a list with entries 0 to 1, there is no 2",
    "sweep: {allocators.x.block_size: [1]}": "4:9: allocators is a list with entries 0 to 1, there is no 'x'",
    "sweep: {max_model_len.x: [1]}":
        "4:9: max_model_len is 2048, so max_model_len.x cannot be set; set max_model_len as a whole",
    "sweep: {allocators.1.block_size: [8, 0]}": "4:38: block_size must be at least 1, got 0",
    "sweep: {sweep.seed: [1]}": "4:9: a sweep cannot sweep itself",
    "[1]: 2": "4:1: a key must be text",
    "max_model_len: 4096": "4:1: duplicate key 'max_model_len'; it is already given in line 3",
}

# The value of `trace:`, from column 8 of line 1.
TRACE_MISTAKES = {
    "{}": "1:8: trace.path is missing",
    "trace.csv": "1:8: trace must be a mapping (key: value), got 'trace.csv'",
    "{path: none.csv}": "1:15: no trace file 'none.csv'",
    "{path: 7}": "1:15: trace.path must be text, got 7",
    "{path: trace.csv, arrivals: saturate}":
        "1:36: trace.arrivals must be a mapping such as {kind: saturate}, got 'saturate'",
    "{path: trace.csv, arrivals: {kind: poison}}":
        "1:43: kind must be one of trace, poisson, gamma, closed, saturate, got 'poison'; did you mean 'poisson'?",
    "{path: trace.csv, arrivals: {kind: poisson, rat: 1}}": "1:52: unknown key 'rat'; did you mean 'rate'?",
    "{path: trace.csv, arrivals: {kind: poisson}}": "1:36: trace.arrivals.rate is missing",
    "{path: trace.csv, arrivals: {kind: poisson, request_rate: 1}}":
        "1:52: unknown key 'request_rate'; did you mean 'rate'?",
    "{path: trace.csv, arrivals: {kind: poisson, rate: 0}}": "1:58: rate must be above 0, got 0",
    "{path: trace.csv, arrivals: {kind: gamma, rate: 1}}":
        "1:36: arrivals: give exactly one of cv and burstiness (= 1 / cv²)",
    "{path: trace.csv, arrivals: {kind: gamma, rate: 1, cv: 1, burstiness: 1}}":
        "1:36: arrivals: give exactly one of cv and burstiness (= 1 / cv²)",
    "{path: trace.csv, arrivals: {kind: closed, users: 0}}": "1:58: users must be at least 1, got 0",
    "{path: trace.csv, arrivals: {kind: saturate}, speedup: 2}":
        "1:63: speedup scales the trace's own times, and arrivals of kind saturate do not use them; leave it out",
    "{path: trace.csv, speedup: 0}": "1:35: speedup must be above 0, got 0",
    "{path: trace.csv, limit: 0}": "1:33: limit must be at least 1, got 0",
    "{path: trace.csv, until_s: .inf}": "1:35: until_s must be finite, got inf",
    "{path: trace.csv, until_s: 5, warmup_s: 5}": "1:48: warmup_s 5 is not before until_s 5, nothing would count",
    "{path: trace.csv, warmup_s: -1}": "1:36: warmup_s must be at least 0, got -1",
}

# The value of `memory:`, from column 9 of line 2, of a config with model llama-3.1-8b.
MEMORY_MISTAKES = {
    "{}": "2:9: memory needs exactly one of gpu, gpu_memory, kv_memory, kv_tokens, num_gpu_blocks_override, got none",
    "{kv_tokens: 1, kv_memory: 1GiB}":
        "2:9: memory needs exactly one of gpu, gpu_memory, kv_memory, kv_tokens, num_gpu_blocks_override, got "
        "kv_memory, kv_tokens",
    "{num_gpu_blocks_override: 1e15, block_size: 1e15}":
        "2:53: block_size 1000000000000000 times 1000000000000000 blocks are more slots than can be counted",
    "{gpu: h200, num_gpu_blocks_override: 9}":
    "2:9: memory needs exactly one of gpu, gpu_memory, kv_memory, kv_tokens, num_gpu_blocks_override, got gpu, "
    "num_gpu_blocks_override (a roofline's GPU can be named in durations)",
    "{gpu_memory: 12GiB}":
        "2:9: no KV memory is left: 0.92 of 12.00 GiB of GPU memory is less than weights 14.96 GiB; raise "
        "tensor_parallel_size or take a larger GPU",
    "{gpu_memory: 90GiB, kv_tokens: 9}": "2:9: memory needs exactly one of gpu, gpu_memory, kv_memory, kv_tokens, "
    "num_gpu_blocks_override, got gpu_memory, kv_tokens",
    "{gpu: h2000}": "2:15: unknown GPU 'h2000'; did you mean 'h200'?",
    "{gpu: h200, gpu_memory_utilization: 1.5}": "2:45: gpu_memory_utilization must be at most 1, got 1.5",
    "{gpu: h200, gpu_memory_utilization: 0}": "2:45: gpu_memory_utilization must be above 0, got 0",
    "{kv_tokens: 9999, gpu_memory_utilization: 0.9}":
        "2:51: gpu_memory_utilization goes with gpu or gpu_memory and means nothing beside kv_tokens; leave it out",
    "{kv_memory: 1GiB, block_size: 16}":
        "2:39: block_size goes with num_gpu_blocks_override and means nothing beside kv_memory; leave it out",
    "{kv_memory: 12}": "2:21: kv_memory: 12 would be 12 bytes; write the unit, such as 12GiB",
    "{kv_memory: -2000000}": "2:21: kv_memory must be at least 0, got -2000000",
    "{kv_memory: 100KiB}": "2:9: memory of 102,400 bytes is less than one token's 131,072",
    "{kv_tokens: 0}": "2:21: kv_tokens must be at least 1, got 0",
    "{kv_tokens: 99999, kv_cache_dtype: fp4}":
        "2:44: kv_cache_dtype must be one of auto, bf16, fp16, fp8, float16, bfloat16, fp8_e4m3, fp8_e5m2, "
        "got 'fp4'; did you mean 'fp8'?",
    "{gpu: l4, dtype: fp32}": "2:9: no KV memory is left: 0.92 of l4's 21.99 GiB (as CUDA reports it) is less than "
    "weights 29.92 GiB; raise tensor_parallel_size or take a larger GPU",
    "{kv_tokens: 16, null_block: true}":
        "1:1: the 16 slots of KV memory are one block of 16, which is vLLM's null block; none is left",
    "{kv_tokens: 9999, null_block: maybe}": "2:39: null_block: must be true or false, got 'maybe'",
    "{kv_tokens: 9999, pipeline_parallel_size: 0}": "2:51: pipeline_parallel_size must be at least 1, got 0",
    "{kv_tokens: 9999, pipeline_parallel_size: 2}":
        "2:51: pipeline_parallel_size is for pagesim size; stages side by side are not simulated",
    "{gpu: h200, tensor_parallel_size: 3}":
        "1:8: tensor_parallel_size 3 does not divide the 32 attention heads of llama-3.1-8b",
}


@pytest.mark.parametrize("line", ONE_MISTAKE)
def test_a_mistake_is_told_at_its_place(problems, line):
    text = f"trace: {{path: trace.csv}}\nmemory: {{kv_tokens: 15728}}\nmax_model_len: 2048\n{line}\n"
    assert problems(text) == [f"bad.yaml:{ONE_MISTAKE[line]}"]


@pytest.mark.parametrize("value", TRACE_MISTAKES)
def test_a_mistake_about_the_trace_is_told_at_its_place(problems, tmp_path, value):
    (line,) = problems(f"trace: {value}\nmemory: {{kv_tokens: 15728}}\nmax_model_len: 2048\n")
    assert line.startswith(f"bad.yaml:{TRACE_MISTAKES[value]}")


@pytest.mark.parametrize("value", MEMORY_MISTAKES)
def test_a_mistake_about_memory_is_told_at_its_place(problems, value):
    text = f"model: llama-3.1-8b\nmemory: {value}\nmax_model_len: 2048\ntrace: {{path: trace.csv}}\n"
    assert problems(text) == [f"bad.yaml:{MEMORY_MISTAKES[value]}"]


def test_an_empty_sweep_is_no_sweep(cases):
    assert len(cases("trace: {path: trace.csv}\nmemory: {kv_tokens: 15728}\nmax_model_len: 2048\nsweep: {}\n")) == 2


def test_all_mistakes_of_a_file_are_told_at_once_in_its_order(problems):
    assert problems("""
        trace: {path: none.csv, arrivals: {kind: poison}, limit: 1:30}
        model: lama-3.1-8b
        memory: {gpu: h20, gpu_memory_utilisation: 0.9}
        max_model_len: 010
        scheduling:
          max_num_seqs: 0
          max_num_batched_tokens: abc
          enable_chunked_prefill: false
          chunked_prefill: maybe
        durations: {kind: linear, step_s: -1}
        allocators:
          - {kind: paged, block_sise: 16, watermark: 2}
          - {kind: contiguos}
          - {reserve: exact}
          - {kind: contiguous, placement: frist_fit}
          - 7
        kv_tokens: 33
        seed: 1
        seed: 2
        """) == [
        (
            "bad.yaml:1:42: kind must be one of trace, poisson, gamma, closed, saturate, got 'poison'; did you "
            "mean 'poisson'?"
        ),
        "bad.yaml:1:58: YAML 1.1 reads 1:30 as a number to base 60; write plain seconds",
        (
            "bad.yaml:2:8: unknown model 'lama-3.1-8b'; did you mean 'llama-3.1-8b'? (or give the path of a "
            "config.json, or {kv_bytes_per_token: N})"
        ),
        "bad.yaml:3:15: unknown GPU 'h20'; did you mean 'h200'?",
        "bad.yaml:3:20: unknown key 'gpu_memory_utilisation'; did you mean 'gpu_memory_utilization'?",
        "bad.yaml:4:16: YAML 1.1 reads 010 as an octal number; write it without the leading 0",
        "bad.yaml:6:17: max_num_seqs must be at least 1, got 0",
        (
            "bad.yaml:7:27: max_num_batched_tokens: a count must be a whole number, 16k (16,000) or 16K "
            "(16,384), got 'abc'"
        ),
        "bad.yaml:8:3: unknown key 'enable_chunked_prefill'; did you mean 'chunked_prefill'?",
        "bad.yaml:9:20: chunked_prefill: must be true or false, got 'maybe'",
        "bad.yaml:10:35: step_s must be finite and not negative, got -1.0",
        "bad.yaml:12:19: unknown key 'block_sise'; did you mean 'block_size'?",
        "bad.yaml:12:46: watermark must be a share in [0, 1), got 2.0",
        "bad.yaml:13:12: kind must be one of contiguous, paged, got 'contiguos'; did you mean 'contiguous'?",
        "bad.yaml:14:5: allocators.2 needs a kind, one of contiguous, paged",
        (
            "bad.yaml:15:35: placement must be one of first_fit, next_fit, best_fit, worst_fit, buddy, got "
            "'frist_fit'; did you mean 'first_fit'?"
        ),
        "bad.yaml:16:5: allocators.4 must be a mapping such as {kind: contiguous}, got 7",
        "bad.yaml:17:1: unknown key 'kv_tokens'; it belongs under memory",
        "bad.yaml:19:1: duplicate key 'seed'; it is already given in line 18",
    ]


def test_a_mistake_that_many_cases_share_is_told_once(problems):
    text = "trace: {path: none.csv}\nmemory: {kv_tokens: 15728}\nmax_model_len: 2048\nsweep: {seed: [0, 1, 2]}\n"
    assert len(problems(text)) == 1


def test_what_is_missing_is_told_with_what_it_takes(problems):
    assert problems("seed: 1\n") == [
        "bad.yaml:1:1: memory is missing; it takes gpu, gpu_memory, gpu_memory_utilization, weights, other, kv_memory, "
        "kv_tokens, num_gpu_blocks_override, "
        "block_size, null_block, tensor_parallel_size, pipeline_parallel_size, kv_cache_dtype, dtype",
        "bad.yaml:1:1: trace is missing; it takes path, arrivals, speedup, limit, strict, until_s, warmup_s",
    ]


@pytest.mark.parametrize(("text", "message"), [
    (
        "trace: {path: trace.csv}\nmemory: {kv_tokens: 9}\n",
        "bad.yaml:1:1: max_model_len is missing, and no model says how long its sequences can be",
    ),
    (
        "trace: {path: trace.csv}\nmemory: {kv_memory: 1GiB}\nmax_model_len: 9\n",
        (
            "bad.yaml:2:9: memory in bytes needs a model, to know how many bytes a token takes; give model, or "
            "kv_tokens"
        ),
    ),
    (
        "trace: {path: trace.csv}\nmodel: {kv_bytes_per_token: 9}\nmemory: {gpu: h200}\nmax_model_len: 9\n",
        (
            "bad.yaml:3:15: gpu needs the size of the weights: name a model, or give memory.weights, such as "
            "weights: 15GiB"
        ),
    ),
    (
        "trace: {path: trace.csv}\nmodel: llama-2-7b\nmemory: {gpu: h200}\nmax_model_len: 4097\n",
        (
            "bad.yaml:4:16: max_model_len 4097 is more than the 4096 of llama-2-7b; lower it, or give the model "
            "as {kv_bytes_per_token: N}, which has no limit"
        ),
    ),
    (
        "trace: {path: trace.csv}\nmodel: gpt-oss-20b\nmemory: {gpu: h200}\n",
        "bad.yaml:2:8: gpt-oss-20b has layers that keep only a window of 128 tokens, which is not modelled "
        "yet; set max_model_len to 128 or less, or give the model as {kv_bytes_per_token: N}; N is at most 49152, as "
        "if every layer kept all tokens",
    ),
    (
        "trace: {path: trace.csv}\nmodel: llama-2-7b\nmemory: {kv_tokens: 9999}\nscheduling: {preemption: swap}\n",
        (
            "bad.yaml:4:26: preemption by swap needs the bandwidth to the host; give swap_bandwidth (bytes per "
            "second, such as 25GB), or a GPU"
        ),
    ),
    (
        "trace: {path: trace.csv}\nmodel: llama-2-7b\nmemory: {kv_tokens: 9999}\ndurations: {kind: roofline}\n",
        "bad.yaml:4:19: kind roofline needs a GPU: name it in memory or in durations; or use linear or fixed",
    ),
])
def test_keys_that_need_one_another_say_so(problems, text, message):
    assert problems(text) == [message]


@pytest.mark.parametrize(("text", "message"), [
    ("", "bad.yaml:1:1: a config is empty; pagesim config init writes one to start from"),
    ("# nothing\n", "bad.yaml:1:1: a config is empty; pagesim config init writes one to start from"),
    (
        "- 1\n",
        "bad.yaml:1:1: a config must be a mapping (key: value); pagesim config init writes one to start from",
    ),
    ("a: [1\nb: 2\n", "bad.yaml:2:2: this is not YAML: expected ',' or ']', but got ':'"),
    ("a: 1\n\tb: 2\n", "bad.yaml:2:1: this is not YAML: found character '\\t' that cannot start any token"),
    ("a: *b\n", "bad.yaml:1:4: this is not YAML: found undefined alias 'b'"),
    (
        "a: !!python/none x\n",
        (
            "bad.yaml:1:4: this is not YAML: could not determine a constructor for the tag "
            "'tag:yaml.org,2002:python/none'"
        ),
    ),
    ("a: 1\n---\nb: 2\n", "bad.yaml:2:1: this is not YAML: but found another document"),
    (
        "a: \0\n",
        "bad.yaml: this is not YAML: unacceptable character #x0000: special characters are not allowed",
    ),
    ("[" * 5000, "bad.yaml: lists and mappings lie too deep in each other to be read"),
    (
        "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
        + "".join(f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi")),
        "bad.yaml: more than 100,000 values; aliases (*) count each time",
    ),
])
def test_what_is_not_a_yaml_mapping_is_told_with_its_place(problems, text, message):
    assert problems(text) == [message]
