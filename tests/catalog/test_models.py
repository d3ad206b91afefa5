"""What a token takes and what a model weighs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagesim import catalog
from pagesim.catalog.lookup import entries
from pagesim.errors import InputError

# facts.md §4: layers × kv_heads × head_dim in bf16.
KV_BYTES_PER_TOKEN = {
    "opt-13b": 819_200,
    "opt-66b": 2_359_296,
    "opt-175b": 4_718_592,
    "llama-2-7b": 524_288,
    "llama-2-13b": 819_200,
    "llama-2-70b": 327_680,
    "llama-3.1-8b": 131_072,
    "llama-3.1-70b": 327_680,
    "llama-3.1-405b": 516_096,
    "mistral-7b": 131_072,
    "mixtral-8x7b": 131_072,
    "mixtral-8x22b": 229_376,
    "qwen2.5-7b": 57_344,
    "qwen2.5-32b": 262_144,
    "qwen2.5-72b": 327_680,
    "qwen3-4b": 147_456,
    "qwen3-8b": 147_456,
    "qwen3-32b": 262_144,
    "qwen3-30b-a3b": 98_304,
    "qwen3-235b-a22b": 192_512,
    "deepseek-v3": 70_272,
    "deepseek-r1": 70_272,
}

# The same formula, for models whose window it would ignore: only right where nothing is ever outside the window.
KV_BYTES_WITHIN_THE_WINDOW = {
    "gpt-oss-20b": 49_152,
    "gpt-oss-120b": 73_728,
    "gemma-2-9b": 344_064,
    "gemma-2-27b": 376_832,
    "gemma-3-27b": 507_904,
}


@pytest.mark.parametrize("name", KV_BYTES_PER_TOKEN)
def test_kv_bytes_per_token_are_the_published_ones(name):
    assert catalog.kv_bytes_per_token(catalog.model(name), "auto", 1, 2048) == KV_BYTES_PER_TOKEN[name]


@pytest.mark.parametrize("name", KV_BYTES_WITHIN_THE_WINDOW)
def test_a_model_with_a_window_is_computed_within_it_and_refused_beyond(name):
    model = catalog.model(name)
    assert catalog.kv_bytes_per_token(model, "auto", 1, model.window) == KV_BYTES_WITHIN_THE_WINDOW[name]
    for too_long in (model.window + 1, None):
        with pytest.raises(
            InputError,
            match=f"{name} has layers that keep only a window of {model.window:,} tokens, which is not modelled yet"):
            catalog.kv_bytes_per_token(model, "auto", 1, too_long)


def test_every_model_of_the_catalogue_has_a_shape_parameters_and_a_length():
    for name in entries("models.yaml"):
        model = catalog.model(name)
        assert model.params > 0 and model.max_model_len > 0 and model.layers > 0 and model.heads > 0
        assert (model.head_dim is None) == model.is_mla
        assert model.active_params is None or model.active_params < model.params


def test_no_name_or_alias_means_two_models():
    names = [alias.lower() for name, entry in entries("models.yaml").items()
             for alias in (name, *entry.get("aliases", ()))]
    assert len(names) == len(set(names))


def test_head_dim_is_not_hidden_size_over_heads():
    assert (catalog.kv_bytes_per_token(catalog.model("qwen3-4b"), "auto", 1, 4096) == 147_456
            != 2 * 36 * 8 * (2560 // 32) * 2)


@pytest.mark.parametrize(("dtype", "bytes_per_token"),
                         [("auto", 131_072), ("bf16", 131_072), ("fp16", 131_072), ("fp8", 65_536)])
def test_an_fp8_cache_takes_half(dtype, bytes_per_token):
    assert catalog.kv_bytes_per_token(catalog.model("llama-3.1-8b"), dtype, 1, 8192) == bytes_per_token


def test_a_model_in_fp32_keeps_an_fp32_cache_unless_told_otherwise():
    model = replace(catalog.model("llama-3.1-8b"), weights="fp32")
    assert catalog.kv_bytes_per_token(model, "auto", 1, 8192) == 262_144
    assert catalog.kv_bytes_per_token(model, "bf16", 1, 8192) == 131_072


@pytest.mark.parametrize(("shards", "heads"), [(1, 8), (2, 4), (4, 2), (8, 1), (16, 1), (32, 1)])
def test_a_shard_has_its_part_of_the_kv_heads_and_never_none(shards, heads):
    assert catalog.kv_bytes_per_token(catalog.model("llama-3.1-8b"), "auto", shards, 8192) == 2 * 32 * heads * 128 * 2


def test_the_latent_of_mla_lies_whole_on_every_shard():
    model = catalog.model("deepseek-v3")
    assert {catalog.kv_bytes_per_token(model, "auto", shards, 4096) for shards in (1, 2, 8, 16)} == {70_272}


def test_shards_that_cannot_share_the_heads_are_refused():
    with pytest.raises(InputError,
                       match="tensor_parallel_size 3 does not divide the 32 attention heads of llama-3.1-8b"):
        catalog.kv_bytes_per_token(catalog.model("llama-3.1-8b"), "auto", 3, 8192)
    with pytest.raises(InputError,
                       match="tensor_parallel_size 3 and the 8 KV heads of llama-3.2-3b do not divide one another"):
        catalog.kv_bytes_per_token(catalog.model("llama-3.2-3b"), "auto", 3, 8192)


@given(st.sampled_from(sorted(KV_BYTES_PER_TOKEN)), st.sampled_from([1, 2, 4, 8]))
def test_all_shards_together_store_at_least_what_one_would(name, shards):
    model = catalog.model(name)
    if model.heads % shards == 0:
        assert shards * catalog.kv_bytes_per_token(model, "auto", shards, 2048) >= catalog.kv_bytes_per_token(
            model, "auto", 1, 2048)
        assert 0 <= catalog.weight_bytes(model, 1) - shards * catalog.weight_bytes(model, shards) < shards


def test_weights_are_parameters_times_the_bytes_of_their_dtype():
    model = catalog.model("llama-3.1-8b")
    assert catalog.weight_bytes(model, 1) == 8_030_261_248 * 2
    assert catalog.weight_bytes(model, 4) == 8_030_261_248 * 2 // 4
    assert catalog.weight_bytes(replace(model, weights="fp8"), 1) == 8_030_261_248
    assert catalog.weight_bytes(replace(model, weights="int4"), 1) == 8_030_261_248 // 2
    assert catalog.weight_bytes(catalog.model("deepseek-v3"), 1) == 671_026_419_200


def test_weights_of_unknown_size_ask_for_the_size():
    with pytest.raises(InputError,
                       match="the size of m's weights is not known; give memory.weights, such as weights: 15GiB"):
        catalog.weight_bytes(catalog.Model("m", layers=1, heads=1, kv_heads=1, head_dim=1), 1)


def test_experts_that_are_not_used_do_not_compute():
    mixtral = catalog.model("mixtral-8x7b")
    assert catalog.flops_per_token(mixtral, 1) == 2 * 12_879_925_248
    assert catalog.flops_per_token(catalog.model("llama-3.1-8b"), 2) == 8_030_261_248


def test_attention_costs_four_operations_for_each_number_of_a_head():
    assert catalog.flops_per_context_token(catalog.model("llama-3.1-8b"), 1) == 4 * 32 * 32 * 128
    latent = catalog.flops_per_context_token(catalog.model("deepseek-v3"), 1)
    assert latent == 2 * 61 * 128 * (
        (512 + 64) + 512
    )  # scores over the latent and its rope part, values over the latent


@pytest.mark.parametrize("name", ["LLAMA-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/llama-3.1-8b"])
def test_a_model_goes_by_its_repository_too_in_any_case(name):
    assert catalog.model(name) == catalog.model("llama-3.1-8b")


@pytest.mark.parametrize(("name", "message"), [
    ("lama-3.1-8b", "unknown model 'lama-3.1-8b'; did you mean 'llama-3.1-8b'?"),
    ("zzz", "unknown model 'zzz'; known: opt-13b, opt-66b, "),
])
def test_an_unknown_model_comes_with_the_nearest_name_or_all(name, message):
    with pytest.raises(InputError) as error:
        catalog.model(name)
    assert str(error.value).startswith(message)
