"""A config becomes cases: the example of the issue, the defaults, capacities, names."""

import pytest

from pagesim.allocators import Contiguous, Paged
from pagesim.config import Capacity, TraceOptions
from pagesim.core.units import GIB
from pagesim.engine.durations import Linear, Roofline
from pagesim.engine.scheduling import Scheduling

H200_BYTES = 150_109_880_320   # as CUDA reports it
EXAMPLE = """
# What does contiguous preallocation waste on an H200, and what does paging win?
trace: {path: trace.csv, arrivals: {kind: saturate}}
model: llama-3.1-8b
memory: {gpu: h200, gpu_memory_utilization: 0.92}
max_model_len: 8192
scheduling: {max_num_seqs: 2048, max_num_batched_tokens: 8192, chunked_prefill: true, preemption: recompute}
durations: {kind: roofline}
allocators:
  - {kind: contiguous, reserve: max_model_len, placement: buddy}
  - {kind: contiguous, reserve: exact, placement: first_fit}
  - {kind: paged, block_size: 16}
sweep: {"allocators.2.block_size": [1, 8, 16, 32, 64, 128, 256]}
seed: 0
"""

MINIMAL = """
trace: {path: trace.csv}
memory: {kv_tokens: 15728}
max_model_len: 2048
allocators: [{kind: paged}]
"""


def test_the_example_gives_two_contiguous_cases_and_one_for_each_block_size(cases):
    all_cases = cases(EXAMPLE)
    assert [case.name for case in all_cases] == [
        "contiguous max_model_len buddy",
        "contiguous exact first_fit",
        *(f"paged {size}" for size in (1, 8, 16, 32, 64, 128, 256)),
    ]
    kv_bytes = H200_BYTES * 92 // 100 - 2 * 8_030_261_248
    assert {case.capacity.slots for case in all_cases} == {kv_bytes // 131_072}
    assert [case.capacity.blocks for case in all_cases[2:]] == [kv_bytes // (131_072 * size)
                                                                for size in (1, 8, 16, 32, 64, 128, 256)]
    assert all(case.capacity.blocks is None for case in all_cases[:2])
    assert all_cases[0].allocator == Contiguous("max_model_len", "buddy")
    assert all_cases[4].allocator == Paged(16)
    assert all_cases[0].scheduling == Scheduling(2048, 8192, chunked_prefill=True)
    assert all_cases[0].durations == Roofline(2 * 8_030_261_248, 131_072, 2 * 8_030_261_248, 4 * 32 * 32 * 128, 4.8e12,
                                              989e12)
    assert (all_cases[0].model, all_cases[0].gpu) == ("llama-3.1-8b", "h200")


def test_the_trace_is_found_from_the_configs_directory(case, tmp_path):
    one = case(MINIMAL)
    assert one.trace.path == str(tmp_path / "trace.csv")
    assert one.resolved["trace"]["path"] == str(tmp_path / "trace.csv")


def test_the_defaults_are_a_vllm_users(case, tmp_path):
    one = case(MINIMAL)
    assert one.trace == TraceOptions(str(tmp_path / "trace.csv"))
    assert one.scheduling == Scheduling(256, 8192, chunked_prefill=True, preemption="recompute", reserve_full_isl=True)
    assert one.allocator == Paged(16, "lifo", 0.0)
    assert one.durations == Linear(0.03)


def test_every_key_of_a_resolved_case_has_its_value(case, tmp_path):
    assert case(MINIMAL).resolved == {
        "trace": {
            "path": str(tmp_path / "trace.csv"),
            "arrivals": {"kind": "trace"},
            "speedup": 1.0,
            "limit": None,
            "strict": False,
            "until_s": None,
            "warmup_s": 0.0,
        },
        "model": None,
        "memory": {"kv_tokens": 15728, "tensor_parallel_size": 1, "kv_cache_dtype": "auto", "dtype": "auto"},
        "max_model_len": 2048,
        "scheduling": {
            "max_num_seqs": 256,
            "max_num_batched_tokens": 8192,
            "chunked_prefill": True,
            "preemption": "recompute",
            "reserve_full_isl": True,
        },
        "durations": {"kind": "fixed", "step_s": 0.03},
        "allocators": [{"kind": "paged", "block_size": 16, "reuse": "lifo", "watermark": 0.0, "prefix_cache": "none",
                        "eviction": "lru"}],
        "seed": 0,
    }


def test_without_allocators_preallocation_and_paging_are_compared(cases):
    assert [case.name for case in cases(MINIMAL.replace("allocators: [{kind: paged}]", ""))] == [
        "contiguous max_model_len first_fit", "paged 16"]


def test_utilization_is_vllms_0_92_unless_given(case):
    one = case("trace: {path: trace.csv}\nmodel: llama-3.1-8b\nmemory: {gpu: h200}\nallocators: [{kind: paged}]\n")
    assert one.resolved["memory"]["gpu_memory_utilization"] == 0.92
    assert one.resolved["durations"] == {"kind": "roofline", "overhead_s": 0.0}


def test_the_longest_sequence_is_the_models_unless_given(case):
    assert (
        case(
            "trace: {path: trace.csv}\nmodel: llama-3.1-8b\nmemory: {gpu: h200}\nallocators: [{kind: paged}]\n"
        ).max_model_len
        == 131_072
    )


@pytest.mark.parametrize(("memory", "allocator", "capacity"), [
    ("kv_tokens: 15728", "kind: paged", Capacity(15_728, 819_200, 983, 16)),
    ("kv_tokens: 15728", "kind: paged, block_size: 100", Capacity(15_728, 819_200, 157, 100)),
    ("kv_tokens: 15728", "kind: contiguous", Capacity(15_728, 819_200)),
    ("kv_memory: 12GiB", "kind: contiguous", Capacity(15_728, 819_200)),
    ("kv_memory: 12GiB", "kind: paged", Capacity(15_728, 819_200, 983, 16)),
    ("kv_memory: 12884901888", "kind: paged, block_size: 256", Capacity(15_728, 819_200, 61, 256)),
    ("num_gpu_blocks_override: 2587", "kind: paged", Capacity(41_392, 819_200, 2587, 16)),
    ("num_gpu_blocks_override: 2587", "kind: paged, block_size: 32", Capacity(82_784, 819_200, 2587, 32)),
    ("num_gpu_blocks_override: 2587", "kind: contiguous", Capacity(41_392, 819_200)),
    ("num_gpu_blocks_override: 2587, block_size: 32", "kind: contiguous", Capacity(82_784, 819_200)),
    (
        "num_gpu_blocks_override: 2587, block_size: 32",
        "kind: paged, block_size: 16",
        Capacity(82_784, 819_200, 5174, 16),
    ),
])
def test_memory_in_tokens_bytes_or_blocks_becomes_slots(case, memory, allocator, capacity):
    assert (
        case(
            f"trace: {{path: trace.csv}}\nmodel: opt-13b\nmemory: {{{memory}}}\nallocators: [{{{allocator}}}]\n"
        ).capacity
        == capacity
    )


def test_2588_blocks_of_llama_are_5_0546875_gib(case):
    one = case("trace: {path: trace.csv}\nmodel: llama-3.1-8b\nmemory: {num_gpu_blocks_override: 2588}\nallocators: "
               "[{kind: paged}]\n")
    assert one.capacity.bytes == 5.0546875 * GIB


def test_memory_in_tokens_needs_no_model_and_then_has_no_bytes(case):
    assert case(MINIMAL).capacity == Capacity(15_728, None, 983, 16)
    assert case(MINIMAL).capacity.bytes is None


@pytest.mark.parametrize(("written", "read"), [
    ("16384", 16384),
    ("16k", 16_000),
    ("16K", 16_384),
    ("1e4", 10_000),
    ("1.5e+3", 1500),
    ("'8k'", 8000),
    ("1_000", 1000),
])
def test_counts_are_read_as_people_write_them(case, written, read):
    assert case(MINIMAL, f"max_model_len={written}").max_model_len == read


@pytest.mark.parametrize("dtype", ["fp8", "fp8_e4m3", "fp8_e5m2"])
def test_vllms_names_of_an_fp8_cache_are_one(case, dtype):
    text = (f"trace: {{path: trace.csv}}\nmodel: llama-3.1-8b\nmemory: "
            f"{{kv_tokens: 999, kv_cache_dtype: {dtype}}}\nallocators: [{{kind: paged}}]\n")
    assert case(text).capacity.kv_bytes_per_token == 65_536
    assert case(text).resolved["memory"]["kv_cache_dtype"] == "fp8"


def test_more_gpus_leave_each_more_memory_for_fewer_bytes_a_token(case):
    text = ("trace: {path: trace.csv}\nmodel: llama-3.1-70b\nmemory: {gpu: h200, tensor_parallel_size: 4}\n"
            "allocators: [{kind: paged}]\n")
    one = case(text)
    assert one.capacity.kv_bytes_per_token == 2 * 80 * 2 * 128 * 2
    assert one.capacity.slots == (H200_BYTES * 92 // 100 - 70_553_706_496 * 2 // 4) // 81_920
    assert one.durations == Roofline(70_553_706_496 // 2, 81_920, 70_553_706_496 / 2, 4 * 80 * 16 * 128, 4.8e12, 989e12)


def test_other_and_weights_are_taken_off_the_gpus_memory(case):
    text = ("trace: {path: trace.csv}\nmodel: {kv_bytes_per_token: 1024}\nmemory: {gpu: h200, "
            "gpu_memory_utilization: 1, weights: 15GiB, other: 2GiB}\n"
            "max_model_len: 9\nallocators: [{kind: contiguous}]\n")
    assert case(text).capacity.slots == (H200_BYTES - 17 * GIB) // 1024


def test_swap_moves_at_0_8_of_pcie_into_4_gib(case):
    text = ("trace: {path: trace.csv}\nmodel: llama-3.1-8b\nmemory: {gpu: h200}\nscheduling: {preemption: swap}\n"
            "allocators: [{kind: paged}]\n")
    one = case(text)
    assert one.scheduling.swap_slots == 4 * GIB // 131_072
    assert one.scheduling.swap_s_per_slot == 131_072 / (0.8 * 64e9)
    assert (one.resolved["scheduling"]["swap_space"], one.resolved["scheduling"]["swap_bandwidth"]) == (
        4 * GIB, 51_200_000_000)
    given = case(text, "scheduling.swap_space=1GiB", "scheduling.swap_bandwidth=10GB").scheduling
    assert (given.swap_slots, given.swap_s_per_slot) == (8192, 131_072 / 10**10)


def test_without_chunked_prefill_the_budget_takes_the_longest_prompt(case):
    text = ("trace: {path: trace.csv}\nmemory: {kv_tokens: 99999}\nmax_model_len: 32768\nscheduling: "
            "{chunked_prefill: false}\nallocators: [{kind: paged}]\n")
    assert case(text).scheduling.max_num_batched_tokens == 32_768
    assert case(text, "max_model_len=100").scheduling.max_num_batched_tokens == 8192


@pytest.mark.parametrize(("durations", "spec"), [
    ("{kind: fixed, step_s: 0.045}", Linear(0.045)),
    ("{kind: linear, step_s: 1, prefill_token_s: 2, sequence_s: 3, context_token_s: 4}", Linear(1, 2, 3, 4)),
    ("{kind: linear, sequence_s: 0.001}", Linear(0.0, 0.0, 0.001)),
    (
        "{kind: roofline, gpu: l4, overhead_s: 0.002}",
        Roofline(25_706_946_560, 819_200, 25_706_946_560, 4 * 40 * 40 * 128, 0.3e12, 121e12, 0.002),
    ),
])
def test_durations_become_the_engines_rules(case, durations, spec):
    text = (f"trace: {{path: trace.csv}}\nmodel: opt-13b\nmemory: {{kv_tokens: 15728}}\ndurations: {durations}\n"
            f"allocators: [{{kind: paged}}]\n")
    assert case(text).durations == spec


@pytest.mark.parametrize(("arrivals", "options"), [
    ("{kind: poisson, rate: 2}", {"kind": "poisson", "rate": 2.0}),
    ("{kind: gamma, rate: 2, cv: 3}", {"kind": "gamma", "rate": 2.0, "cv": 3.0}),
    ("{kind: gamma, rate: 2, burstiness: 0.25}", {"kind": "gamma", "rate": 2.0, "cv": 2.0}),
    ("{kind: closed, users: 8}", {"kind": "closed", "users": 8}),
    ("{kind: saturate}", {"kind": "saturate"}),
])
def test_arrivals_become_options_of_the_trace(case, tmp_path, arrivals, options):
    text = (f"trace: {{path: trace.csv, arrivals: {arrivals}}}\nmemory: {{kv_tokens: 15728}}\nmax_model_len: 9\n"
            f"allocators: [{{kind: paged}}]\nseed: 5\n")
    assert case(text).trace == TraceOptions(str(tmp_path / "trace.csv"), **options, seed=5)


def test_a_local_config_json_is_a_model_found_from_the_configs_directory(case, tmp_path):
    (tmp_path / "config.json").write_text(
        '{"model_type": "llama", "num_attention_heads": 4, "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 10}'
    )
    one = case("trace: {path: trace.csv}\nmodel: ./config.json\nmemory: {kv_tokens: 15728}\nmax_model_len: 9\n"
               "allocators: [{kind: paged}]\n")
    assert one.capacity.kv_bytes_per_token == 2 * 2 * 4 * 16 * 2
    assert one.resolved["model"] == one.model == str(tmp_path / "config.json")


def test_an_anchor_and_a_merge_key_stand_for_what_they_name(cases):
    text = MINIMAL.replace(
        "allocators: [{kind: paged}]",
        "allocators: [&a {kind: paged, block_size: 8}, {<<: *a, reuse: fifo}, {<<: *a, block_size: 32}]")
    assert [case.allocator for case in cases(text)] == [Paged(8), Paged(8, "fifo"), Paged(32)]


def test_a_number_that_yaml_takes_for_text_is_the_number(case):
    assert case(MINIMAL, "trace.until_s=1e9", "durations={kind: fixed, step_s: 1e-2}").durations == Linear(0.01)
    assert case(MINIMAL, "trace.until_s=1e9").trace.until_s == 1e9


def test_names_tell_allocators_apart(cases):
    text = MINIMAL.replace(
        "[{kind: paged}]",
        """
      - {kind: paged}
      - {kind: paged, reuse: fifo}
      - {kind: paged, watermark: 0.01}
      - {kind: contiguous, reserve: grow, placement: best_fit}
      - {kind: contiguous, reserve: grow, placement: best_fit, growth: 2}
      - {kind: contiguous, reserve: pow2, placement: buddy}
    """,
    )
    assert [case.name for case in cases(text)] == ["paged 16", "paged 16 fifo", "paged 16 watermark=0.01",
                                                   "contiguous grow best_fit", "contiguous grow best_fit growth=2.0",
                                                   "contiguous pow2 buddy"]
