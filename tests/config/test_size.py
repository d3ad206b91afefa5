"""Sizing without a trace: how many requests each rule lets in."""

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagesim.config.load import empty
from pagesim.config.overrides import assignment, overridden
from pagesim.config.size import Request, size
from pagesim.errors import ConfigError, InputError
from pagesim.report.notes import capacity_lines


def sized(*assignments, request=None):
    return size(overridden(empty("here"), map(assignment, assignments)), "", request)


def at_once(answer):
    return {row.rule: row.at_once for row in answer.reservations}


@pytest.mark.parametrize(("max_model_len", "requests"), [(32768, 1), (16384, 2), (8192, 5), (4096, 10), (2048, 20)])
def test_slots_of_full_length_in_the_real_runs_memory(max_model_len, requests):
    answer = sized("memory.num_gpu_blocks_override=2587", f"max_model_len={max_model_len}")
    assert answer.arena.capacity.slots == 41_392
    assert at_once(answer)["contiguous max_model_len"] == requests


def test_orca_max_holds_seven_and_its_buddy_too():
    row = sized("memory.kv_tokens=15728", "max_model_len=2048").reservations[0]
    assert (row.slots_each, row.at_once, row.at_once_buddy) == (2048, 7, 7)


def test_capacity_over_length_is_the_concurrency_and_says_when_not_one_fits():
    answer = sized("memory.num_gpu_blocks_override=1478", "max_model_len=29000")
    (pool,) = answer.pools
    assert (pool.capacity.usable_slots, round(pool.max_concurrency, 3)) == (23_648, 0.815)
    (pool,) = sized("memory.num_gpu_blocks_override=1952", "max_model_len=20000").pools
    assert (pool.capacity.usable_slots, round(pool.max_concurrency, 2)) == (31_232, 1.56)


def test_each_rule_takes_what_it_asks_for():
    answer = sized("memory.kv_tokens=10000", "max_model_len=2048", request=Request(50, 25, max_tokens=100))
    assert {row.rule: row.slots_each for row in answer.reservations} == {
        "contiguous max_model_len": 2048,
        "contiguous max_tokens": 150,
        "contiguous pow2": 82,
        "contiguous exact": 74,
        "contiguous grow, at first": 50,
        "contiguous grow, at its end": 74,
        "paged 16, at first": 64,
        "paged 16, at its end": 80,
    }
    assert at_once(answer) == {
        "contiguous max_model_len": 4,
        "contiguous max_tokens": 66,
        "contiguous pow2": 121,
        "contiguous exact": 135,
        "contiguous grow, at first": 200,
        "contiguous grow, at its end": 135,
        "paged 16, at first": 625 // 4,
        "paged 16, at its end": 125,
    }


def test_reservations_never_exceed_the_longest_sequence():
    answer = sized("memory.kv_tokens=10000", "max_model_len=100", request=Request(60, 40, max_tokens=900))
    assert max(row.slots_each for row in answer.reservations if row.rule.startswith("contiguous")) == 100


@given(st.integers(1, 10**6), st.integers(1, 2000), st.integers(1, 2000), st.integers(1, 64))
def test_what_is_let_in_fits_and_one_more_does_not(slots, prompt_tokens, output_tokens, block_size):
    if slots < block_size:
        return
    answer = sized(f"memory.kv_tokens={slots}", "max_model_len=4000", f"allocators.1.block_size={block_size}",
                   request=Request(prompt_tokens, output_tokens))
    for row in answer.reservations:
        room = answer.pools[0].capacity.usable_slots if row.rule.startswith("paged") else slots
        assert row.at_once * row.slots_each <= room < (row.at_once + 1) * row.slots_each
        if row.at_once_buddy is not None:
            assert row.at_once_buddy == buddy_regions(slots, row.slots_each)


def buddy_regions(slots, needed):
    """Regions that a buddy arena has for requests of ``needed`` slots, counted over its descending powers of two."""
    size = 1
    while size < needed:
        size *= 2
    return sum(2**bit // size for bit in range(slots.bit_length()) if slots >> bit & 1)


def test_a_typical_request_is_assumed_within_the_longest_sequence():
    assert sized("memory.kv_tokens=9999", "max_model_len=8192").request == Request(1024, 256)
    assert sized("memory.kv_tokens=9999", "max_model_len=300").request == Request(150, 150)


def test_weights_and_kv_memory_are_told_where_a_gpu_gives_them():
    answer = sized("memory.gpu=h200", "model=llama-3.1-8b")
    assert answer.weights_bytes == 16_060_522_496
    assert (answer.gpu_bytes, answer.gpu_memory_utilization, answer.other_bytes) == (150_109_880_320, 0.92, 0)
    assert answer.kv_memory_bytes == -(-150_109_880_320 * 92 // 100) - 16_060_522_496
    assert sized("memory.kv_memory=12GiB", "model=opt-13b").kv_memory_bytes == 12 * 2**30


def test_a_request_longer_than_max_model_len_is_an_error():
    with pytest.raises(InputError, match="a request of 90 \\+ 11 tokens is longer than max_model_len 100"):
        sized("memory.kv_tokens=9999", "max_model_len=100", request=Request(90, 11))


def test_what_is_wrong_is_told_by_the_flag_that_says_it():
    with pytest.raises(ConfigError) as error:
        sized("memory.gpu=h20", "max_model_len=x")
    assert str(error.value) == (
        "--set max_model_len=x: max_model_len: a count must be a whole number, 16k (16,000) or 16K (16,384), got 'x'\n"
        "--set memory.gpu=h20: unknown GPU 'h20'; did you mean 'h200'?")


def test_a_stage_of_a_pipeline_holds_the_most_layers_and_sets_the_blocks():
    """3.18 GiB over 16 of 32 layers of 2,048 bytes each: 104,202 tokens."""
    keys = ("model=llama-3.1-8b", "memory.tensor_parallel_size=2", "memory.kv_memory=3.18GiB")
    assert sized(*keys, "memory.pipeline_parallel_size=2").arena.capacity.slots == 104_202
    assert sized(*keys, "memory.pipeline_parallel_size=1") == sized(*keys)
    each = [sized(*keys, f"memory.pipeline_parallel_size={stages}").arena.capacity.kv_bytes_per_token
            for stages in (1, 3, 5, 32)]
    assert each == [2048 * layers for layers in (32, 11, 7, 1)]


@pytest.mark.parametrize(("assignments", "message"), [
    (("memory.kv_tokens=99999", "memory.pipeline_parallel_size=33"), "pipeline_parallel_size 33 is more than"),
    (("memory.gpu=h200", "memory.pipeline_parallel_size=2"), "pipeline_parallel_size 2: what a stage weighs")])
def test_stages_that_cannot_be_or_whose_weights_are_not_known_are_an_error(assignments, message):
    with pytest.raises(ConfigError, match=message):
        sized("model=llama-3.1-8b", *assignments)


@given(st.integers(2, 10**6), st.integers(1, 64), st.integers(1, 64))
def test_the_longest_that_fits_fits_every_allocator_and_one_more_token_does_not(slots, block_size, other_size):
    if slots < 2 * max(block_size, other_size):
        return
    answer = sized(f"memory.kv_tokens={slots}", "max_model_len=auto", "model={kv_bytes_per_token: 8}",
                   f"allocators=[{{kind: contiguous}}, {{kind: paged, block_size: {block_size}}}, "
                   f"{{kind: paged, block_size: {other_size}}}]")
    rooms = [room.capacity.usable_slots for room in (answer.arena, *answer.pools)]
    assert answer.max_model_len == min(rooms)


def test_the_longest_that_fits_is_never_longer_than_the_models():
    assert sized("memory.kv_tokens=9999", "model=llama-2-7b", "max_model_len=auto").max_model_len == 4096
    assert sized("memory.kv_tokens=999", "model=llama-2-7b", "max_model_len=auto").max_model_len == 992
    with pytest.raises(ConfigError, match="keep only a window of 128 tokens"):
        sized("memory.kv_tokens=100", "model=gpt-oss-20b", "max_model_len=auto")


@given(st.integers(1, 5000), st.integers(1, 200), st.integers(2, 10**5))
def test_concurrency_is_never_shown_as_more_than_it_is(slots, per_block, max_model_len):
    (line,) = capacity_lines(sized(f"memory.kv_tokens={slots * per_block}", f"max_model_len={max_model_len}",
                                   f"allocators=[{{kind: paged, block_size: {per_block}}}]").pools)
    shown = Fraction(line.rpartition(": ")[2].removesuffix("x"))
    assert shown <= Fraction(slots * per_block, max_model_len) < shown + Fraction(1, 100)


def test_a_request_that_does_not_quite_fit_does_not_read_as_one_that_does():
    """15.99 GiB for a request that needs 16 is 0.99 of one."""
    answer = sized("model=llama-3.1-8b", "memory.kv_memory=15.99GiB", "max_model_len=131072")
    (line,) = capacity_lines(answer.pools)
    assert line.endswith("maximum concurrency at 131,072 tokens per request: 0.99x")


@pytest.mark.parametrize(("dtype", "weights", "bytes_per_token"), [
    ("auto", 2, 2), ("float32", 4, 4), ("bfloat16", 2, 2), ("fp8", 1, 2)])
def test_float32_is_served_in_16_bits_unless_it_is_asked_for(tmp_path, dtype, weights, bytes_per_token):
    params = write_config(tmp_path, torch_dtype="float32")
    answer = sized(f"model={tmp_path}/config.json", "memory.gpu=l4", f"memory.dtype={dtype}")
    assert answer.weights_bytes == params * weights
    assert answer.arena.capacity.kv_bytes_per_token == 2 * 2 * 4 * 16 * bytes_per_token


def test_quantized_weights_stay_as_they_are_whatever_is_computed_in(tmp_path):
    write_config(tmp_path, quantization_config={"quant_method": "awq"})
    (tmp_path / "model.safetensors.index.json").write_text('{"metadata": {"total_size": 12345}}')
    for dtype, bytes_each in (("auto", 2), ("float16", 2), ("bfloat16", 2), ("float32", 4)):
        answer = sized(f"model={tmp_path}/config.json", "memory.gpu=l4", f"memory.dtype={dtype}")
        assert (answer.weights_bytes, answer.arena.capacity.kv_bytes_per_token) == (12345, 2 * 2 * 4 * 16 * bytes_each)
    oss = sized("model=gpt-oss-20b", "memory.gpu=h200", "memory.dtype=bfloat16", "max_model_len=128")
    assert oss.weights_bytes == 13_761_264_768


def test_a_checkpoint_in_one_dtype_takes_as_much_more_or_less_in_another(tmp_path):
    write_config(tmp_path, model_type="phi", vocab_size=None)   # whose parameters are not counted
    (tmp_path / "model.safetensors.index.json").write_text('{"metadata": {"total_size": 1000}}')
    sizes = {dtype: sized(f"model={tmp_path}/config.json", "memory.gpu=l4", f"memory.dtype={dtype}").weights_bytes
             for dtype in ("auto", "fp16", "fp32", "fp8", "int4")}
    assert sizes == {"auto": 1000, "fp16": 1000, "fp32": 2000, "fp8": 500, "int4": 250}


def write_config(directory, **keys):
    """A small Llama, and how many parameters it has."""
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
              "num_hidden_layers": 2, "num_key_value_heads": 4, "vocab_size": 100, "max_position_embeddings": 2048,
              "torch_dtype": "bfloat16"}
    (directory / "config.json").write_text(json.dumps(config | keys))
    return 2 * 100 * 64 + 64 + 2 * (4 * 64 * 64 + 2 * 64 + 3 * 64 * 128)
