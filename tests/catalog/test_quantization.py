"""A quantized checkpoint's own numbers: the cache it wants is the cache it gets, and its weights are not guessed."""

import json

import pytest

from pagesim import catalog
from pagesim.errors import InputError

LLAMA_8B = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "vocab_size": 128256,
            "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
            "max_position_embeddings": 131072, "torch_dtype": "bfloat16"}
FLOATS_OF_8 = {"num_bits": 8, "type": "float", "dynamic": False}


@pytest.fixture
def model(tmp_path):
    def of(quantization_config=None, beside=None, **keys):
        said = {} if quantization_config is None else {"quantization_config": quantization_config}
        (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B | said | keys))
        for name, content in (beside or {}).items():
            (tmp_path / name).write_text(json.dumps(content))
        return catalog.model_from_config(tmp_path)

    return of


def kv_bytes(model, kv_cache_dtype="auto"):
    return catalog.kv_bytes_per_token(model, kv_cache_dtype, 1, 8192)


EIGHT_BITS = {
    "compressed-tensors": {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}},
    "its other spelling": {"quant_method": "compressed_tensors", "kv_cache_scheme": FLOATS_OF_8},
    "modelopt": {"quant_method": "modelopt", "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}},
    "modelopt, flat": {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": FLOATS_OF_8},
    "modelopt, the scheme beside": {"quant_method": "modelopt", "quantization": {"quant_algo": "FP8"},
                                    "kv_cache_scheme": FLOATS_OF_8},
    "modelopt, by its producer": {"producer": {"name": "modelopt"}, "quantization": {"kv_cache_quant_algo": "FP8"}},
}
SIXTEEN_BITS = {
    "compressed-tensors": {"quant_method": "compressed-tensors", "kv_cache_scheme": None},
    "modelopt": {"quant_method": "modelopt", "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None}},
    "modelopt, a scheme of nothing": {"quant_method": "modelopt_fp4", "kv_cache_scheme": {}},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128},
    "awq": {"quant_method": "awq", "bits": 4},
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    "bitsandbytes": {"quant_method": "bitsandbytes", "load_in_4bit": True},
    "mxfp4": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
    "quark": {"quant_method": "quark", "export": {"kv_cache_group": []}},
}


@pytest.mark.parametrize("name", EIGHT_BITS)
def test_a_cache_of_eight_bits_takes_half_and_an_explicit_dtype_wins(model, name):
    llama = model(EIGHT_BITS[name])
    assert (kv_bytes(llama), kv_bytes(llama, "bf16"), kv_bytes(llama, "fp8")) == (65_536, 131_072, 65_536)


@pytest.mark.parametrize("name", SIXTEEN_BITS)
def test_weights_say_nothing_of_the_cache(model, name):
    llama = model(SIXTEEN_BITS[name])
    assert (kv_bytes(llama), kv_bytes(llama, "fp8")) == (131_072, 65_536)


def test_what_is_said_is_found_in_the_whole_in_the_part_and_beside(model):
    said = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    assert kv_bytes(model(beside={"hf_quant_config.json": said})) == 65_536
    compressed = EIGHT_BITS["compressed-tensors"]
    assert kv_bytes(model(beside={"hf_quant_config.json": {}}, compression_config=compressed)) == 65_536
    whole = {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"]}
    assert kv_bytes(model(compressed, **whole, text_config=LLAMA_8B)) == 65_536
    assert kv_bytes(model(**whole, text_config=LLAMA_8B | {"quantization_config": compressed})) == 65_536


@pytest.mark.parametrize(("said", "message"), [
    ({"quant_method": "newone"}, "quantization_config is of quant_method 'newone', which is not known here"),
    ({"bits": 4, "group_size": 64}, "quantization_config is of quant_method '', which is not known here"),
    ("fp8", "quantization_config must be a JSON object, got 'fp8'"),
    ({"quant_method": "fp8", "kv_cache_scheme": "static"}, "quantization_config has kv_cache_scheme, which is not "),
    ({"quant_method": "quark", "export": {"kv_cache_group": ["*k_proj"]}}, "quantization_config has kv_cache_group, "),
    ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "int"}}, "kv_cache_scheme {"),
    ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 4, "type": "float"}}, "kv_cache_scheme {"),
    ({"quant_method": "modelopt", "kv_cache_quant_algo": "NVFP4"}, "kv_cache_quant_algo 'NVFP4' is not a cache whose "),
    ({"quant_method": "modelopt", "kv_cache_scheme": FLOATS_OF_8 | {"dynamic": True}}, "kv_cache_scheme {"),
])
def test_what_is_not_understood_is_refused(model, said, message):
    with pytest.raises(InputError) as error:
        model(said)
    assert message in str(error.value)


@pytest.mark.parametrize("name", SIXTEEN_BITS)
def test_quantized_weights_are_as_large_as_their_checkpoint_or_asked_for(model, name):
    with pytest.raises(InputError, match="weights is not known; put its model.safetensors.index.json beside it"):
        catalog.weight_bytes(model(SIXTEEN_BITS[name]), 1)
    index = {"model.safetensors.index.json": {"metadata": {"total_size": 5_700_000_000}}}
    assert catalog.weight_bytes(model(SIXTEEN_BITS[name], beside=index), 2) == 2_850_000_000
