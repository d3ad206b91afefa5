"""A model from a local config.json: computed right or refused, never computed wrong."""

import json

import pytest

from pagesim import catalog
from pagesim.errors import InputError

LLAMA_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192},
}
QWEN3_4B = {"model_type": "qwen3", "hidden_size": 2560, "intermediate_size": 9728, "num_attention_heads": 32,
            "num_hidden_layers": 36, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
            "max_position_embeddings": 40960, "torch_dtype": "bfloat16", "tie_word_embeddings": True,
            "sliding_window": None, "use_sliding_window": False}
QWEN25_7B = {"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
             "num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 32768,
             "torch_dtype": "bfloat16", "tie_word_embeddings": False, "sliding_window": 131072,
             "use_sliding_window": False}
MIXTRAL = {"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
           "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
           "vocab_size": 32000, "max_position_embeddings": 32768, "torch_dtype": "bfloat16",
           "tie_word_embeddings": False, "sliding_window": None}
QWEN3_MOE = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_attention_heads": 32,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "dtype": "bfloat16",
    "tie_word_embeddings": False,
    "mlp_only_layers": [],
}
OPT_13B = {"model_type": "opt", "hidden_size": 5120, "ffn_dim": 20480, "num_attention_heads": 40,
           "num_hidden_layers": 40, "vocab_size": 50272, "max_position_embeddings": 2048, "torch_dtype": "float16"}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "max_position_embeddings": 163840,
    "torch_dtype": "bfloat16",
    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
}
GPT_OSS_20B = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "head_dim": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "num_hidden_layers": 24,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
}
GEMMA_3 = {
    "model_type": "gemma3",
    "torch_dtype": "bfloat16",
    "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 5376,
        "head_dim": 128,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "num_hidden_layers": 62,
        "sliding_window": 1024,
    },
}


@pytest.fixture
def written(tmp_path):
    def write(config):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config) if isinstance(config, dict) else config)
        return path

    return write


def kv_bytes(model, max_model_len=4096):
    return catalog.kv_bytes_per_token(model, "auto", 1, max_model_len)


@pytest.mark.parametrize(("config", "name"), [
    (LLAMA_8B, "llama-3.1-8b"),
    (QWEN3_4B, "qwen3-4b"),
    (QWEN25_7B, "qwen2.5-7b"),
    (MIXTRAL, "mixtral-8x7b"),
    (QWEN3_MOE, "qwen3-30b-a3b"),
])
def test_a_config_gives_what_the_catalogue_has_to_the_last_parameter(written, config, name):
    ours, known = catalog.model_from_config(written(config)), catalog.model(name)
    assert kv_bytes(ours) == kv_bytes(known)
    for name in ("params", "weights", "max_model_len", "heads"):
        assert getattr(ours, name) == getattr(known, name)
    assert ours.active_params == (known.active_params or known.params)


def test_head_dim_wins_over_hidden_size_over_heads(written):
    assert kv_bytes(catalog.model_from_config(written(QWEN3_4B))) == 147_456 != 92_160


def test_a_kind_with_a_head_dim_of_its_own_must_state_it(written):
    config = {key: value for key, value in QWEN3_4B.items() if key != "head_dim"}
    with pytest.raises(InputError,
                       match=r"config\.json: head_dim is missing, and qwen3's is not hidden_size / heads; add it"):
        catalog.model_from_config(written(config))


def test_kv_heads_that_are_left_out_are_all_heads_only_where_that_is_the_kinds_default(written):
    assert kv_bytes(catalog.model_from_config(written(OPT_13B)), 2048) == 819_200
    config = {key: value for key, value in MIXTRAL.items() if key != "num_key_value_heads"}
    with pytest.raises(InputError, match="num_key_value_heads is missing, and mixtral has no such default"):
        catalog.model_from_config(written(config))


def test_mla_stores_its_latent(written):
    model = catalog.model_from_config(written(DEEPSEEK_V3))
    assert kv_bytes(model) == 70_272
    assert model.max_model_len == 163_840


@pytest.mark.parametrize("key", ["torch_dtype", "dtype"])
def test_either_name_of_the_dtype_is_read(written, key):
    config = {other: value for other, value in LLAMA_8B.items() if other != "torch_dtype"} | {key: "float32"}
    assert catalog.model_from_config(written(config)).weights == "fp32"


def test_the_language_model_is_found_in_a_nested_config(written):
    config = {
        "model_type": "mistral3",
        "torch_dtype": "float16",
        "text_config": {**LLAMA_8B, "model_type": "mistral", "torch_dtype": None, "sliding_window": 131072},
    }
    model = catalog.model_from_config(
        written({**config, "text_config": {k: v for k, v in config["text_config"].items() if v is not None}}))
    assert kv_bytes(model) == 131_072
    assert model.weights == "fp16"


def test_what_a_whole_weighs_is_not_what_its_language_model_weighs(written):
    config = {"model_type": "llava", "vision_config": {}, "text_config": LLAMA_8B}
    assert catalog.model_from_config(written(LLAMA_8B)).params == 8_030_261_248
    with pytest.raises(InputError, match="weights is not known"):
        catalog.weight_bytes(catalog.model_from_config(written(config)), 1)


@pytest.mark.parametrize(
    ("config", "window"),
    [(GPT_OSS_20B, 128), (GEMMA_3, 1024), ({**LLAMA_8B, "model_type": "mistral", "sliding_window": 4096}, 4096)])
def test_a_window_is_refused_where_it_is_shorter_than_a_sequence_can_be(written, config, window):
    model = catalog.model_from_config(written(config))
    assert kv_bytes(model, window) > 0
    with pytest.raises(InputError, match=f"keep only a window of {window:,} tokens"):
        kv_bytes(model, window + 1)


def test_a_window_that_is_stated_and_turned_off_is_none(written):
    assert catalog.model_from_config(written(QWEN25_7B)).window is None
    assert (
        catalog.model_from_config(
            written({**LLAMA_8B, "sliding_window": 4096, "layer_types": ["full_attention"] * 32})
        ).window
        is None
    )


@pytest.mark.parametrize(("change", "message"), [
    ({"model_type": "mamba2"}, "model_type 'mamba2' is not one whose KV cache is known here"),
    ({"attn_layer_period": 8}, "attn_layer_period says that the model has layers with a recurrent state"),
    (
        {"layer_types": ["linear_attention", "full_attention"]},
        "layer_types has linear_attention, which is not modelled",
    ),
    ({"linear_num_key_heads": 16}, "linear_num_key_heads says that the model has layers with a recurrent state"),
    (
        {"hybrid_override_pattern": "M-M*"},
        "hybrid_override_pattern says that the model has layers with a recurrent state",
    ),
    ({"block_configs": [{}]}, "block_configs says that the model has layers of different shapes"),
    ({"num_kv_shared_layers": 10}, "num_kv_shared_layers says that the model has layers that share a cache"),
    ({"cross_attention_layers": [3, 8]}, "cross_attention_layers says that the model has cross-attention layers"),
    (
        {"attention_chunk_size": 8192},
        "attention_chunk_size says that the model has layers that attend within chunks",
    ),
    ({"is_encoder_decoder": True}, "is_encoder_decoder says that the model has an encoder's cache"),
])
def test_what_is_not_modelled_is_refused_and_the_way_out_named(written, change, message):
    with pytest.raises(InputError) as error:
        catalog.model_from_config(written(LLAMA_8B | change))
    assert f"config.json: {message}" in str(error.value)
    assert str(error.value).endswith("give the model as {kv_bytes_per_token: N} if you know its cache")


@pytest.mark.parametrize(("text", "message"), [
    ("{", "config.json: is not JSON: Expecting property name"),
    ("[]", "config.json: must hold a JSON object"),
    ('{"model_type": "llama"}', "config.json: num_attention_heads is missing"),
    (
        json.dumps(LLAMA_8B | {"num_hidden_layers": "32"}),
        "config.json: num_hidden_layers must be a positive whole number, got '32'",
    ),
    (
        json.dumps(LLAMA_8B | {"num_attention_heads": 0}),
        "config.json: num_attention_heads must be a positive whole number, got 0",
    ),
    (
        json.dumps(LLAMA_8B | {"num_attention_heads": 33}),
        "config.json: head_dim is missing, and hidden_size 4096 is not a multiple of 33 heads",
    ),
])
def test_a_broken_config_says_where_and_what(written, text, message):
    with pytest.raises(InputError) as error:
        catalog.model_from_config(written(text))
    assert message in str(error.value)


def test_a_missing_file_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match=r"none\.json: cannot be read: No such file or directory"):
        catalog.model_from_config(tmp_path / "none.json")


def test_a_directory_stands_for_the_config_in_it(written):
    path = written(LLAMA_8B)
    assert catalog.model_from_config(path.parent).name == str(path)


def test_a_model_is_found_by_name_or_by_a_path_from_a_directory(written):
    path = written(LLAMA_8B)
    assert catalog.find_model("llama-3.1-8b") == catalog.model("llama-3.1-8b")
    assert catalog.find_model("config.json", str(path.parent)).name == str(path)
    assert catalog.find_model(".", str(path.parent)).name == str(path)


def test_a_directory_that_holds_no_config_hides_no_name(tmp_path):
    (tmp_path / "llama-3.1-8b").mkdir()
    assert catalog.find_model("llama-3.1-8b", str(tmp_path)) == catalog.model("llama-3.1-8b")


def test_a_checkpoint_beside_the_config_says_what_the_weights_take(written, tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 9_000_000_000}}))
    model = catalog.model_from_config(written(LLAMA_8B | {"quantization_config": {"quant_method": "awq"}}))
    assert catalog.weight_bytes(model, 1) == 9_000_000_000


def test_an_index_without_a_size_leaves_the_size_to_the_shapes(written, tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    assert catalog.weight_bytes(catalog.model_from_config(written(LLAMA_8B)), 1) == 16_060_522_496


def test_parameters_of_a_family_that_is_not_known_are_not_guessed(written):
    assert catalog.model_from_config(written(OPT_13B)).params is None
    assert catalog.model_from_config(written(LLAMA_8B | {"vocab_size": None})).params is None


def test_weights_of_a_dtype_that_is_not_known_have_no_known_size(written):
    with pytest.raises(InputError, match="weights is not known"):
        catalog.weight_bytes(catalog.model_from_config(written(LLAMA_8B | {"torch_dtype": "float4_e2m1"})), 1)


@pytest.mark.parametrize(("scaling", "length"), [
    (None, 131_072),
    ({"type": "linear", "factor": 2.0}, 262_144),
    ({"rope_type": "dynamic", "factor": 4.0}, 524_288),
    ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 131_072),
    ({"rope_type": "llama3", "factor": 8.0}, 131_072),
])
def test_scaled_positions_stretch_the_longest_sequence(written, scaling, length):
    assert catalog.model_from_config(written(LLAMA_8B | {"rope_scaling": scaling})).max_model_len == length
