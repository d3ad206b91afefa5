"""Which cache a config.json's kind has: vLLM's for the kinds that are known, a refusal for all others."""

import json

import pytest

from pagesim import catalog
from pagesim.catalog.lookup import entries
from pagesim.errors import InputError

BF16 = {"torch_dtype": "bfloat16", "max_position_embeddings": 32768}


def gqa(layers, heads, kv_heads, **keys):
    return BF16 | {"num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads} | keys


LLAMA = gqa(32, 32, 8, model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=4096)
FALCON_7B = {"architectures": ["FalconForCausalLM"], "hidden_size": 4544, "num_hidden_layers": 32,
             "num_attention_heads": 71, "multi_query": True, "torch_dtype": "bfloat16"}
MINIMAX_M2 = gqa(62, 48, 8, model_type="minimax_m2", architectures=["MiniMaxM2ForCausalLM"], head_dim=128,
                 hidden_size=3072, attn_type_list=[1] * 62, num_local_experts=256, num_experts_per_tok=8,
                 shared_intermediate_size=0)
LATENT = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
DEEPSEEK_V3 = gqa(61, 128, 128, model_type="deepseek_v3", architectures=["DeepseekV3ForCausalLM"], **LATENT)
QWEN3_VL_TEXT = gqa(36, 32, 8, model_type="qwen3_vl_text", head_dim=128, hidden_size=4096)
QWEN3_VL = {"model_type": "qwen3_vl", "architectures": ["Qwen3VLForConditionalGeneration"], "image_token_id": 151655,
            "text_config": QWEN3_VL_TEXT, "vision_config": {"depth": 27, "deepstack_visual_indexes": [8, 16, 24]}}

# layers × 2 × KV heads × head_dim × 2 bytes, or layers × (latent + rope part) × 2 bytes.
BYTES_PER_TOKEN = {
    "falcon-7b": (FALCON_7B, 32 * 2 * 1 * 64 * 2),
    "falcon-40b": (gqa(60, 128, None, model_type="falcon", hidden_size=8192, num_kv_heads=8, multi_query=True,
                       new_decoder_architecture=True), 60 * 2 * 8 * 64 * 2),
    "falcon-rw-1b": (gqa(24, 32, None, model_type="falcon", hidden_size=2048, multi_query=False, alibi=True),
                     24 * 2 * 32 * 64 * 2),
    "starcoder": ({"model_type": "gpt_bigcode", "architectures": ["GPTBigCodeForCausalLM"], "n_layer": 40, "n_head": 48,
                   "n_embd": 6144, "n_positions": 8192, "multi_query": True}, 40 * 2 * 1 * 128 * 2),
    "chatglm3-6b": ({"model_type": "chatglm", "architectures": ["ChatGLMModel"], "num_layers": 28, "hidden_size": 4096,
                     "num_attention_heads": 32, "multi_query_attention": True, "multi_query_group_num": 2,
                     "kv_channels": 128, "seq_length": 8192}, 28 * 2 * 2 * 128 * 2),
    "minimax-m2": (MINIMAX_M2, 253_952),
    "mimo-7b": (gqa(36, 32, 8, model_type="mimo", architectures=["MiMoForCausalLM"], hidden_size=4096,
                    use_sliding_window=False, sliding_window=32768, num_nextn_predict_layers=1), 36 * 2 * 8 * 128 * 2),
    "glm-4.5-air": (gqa(46, 96, 8, model_type="glm4_moe", architectures=["Glm4MoeForCausalLM"], head_dim=128,
                        hidden_size=4096, n_shared_experts=1, num_nextn_predict_layers=1), 46 * 2 * 8 * 128 * 2),
    "seed-oss-36b": (gqa(64, 80, 8, model_type="seed_oss", architectures=["SeedOssForCausalLM"], head_dim=128,
                         hidden_size=5120), 64 * 2 * 8 * 128 * 2),
    "ernie-4.5-21b-a3b": (gqa(28, 20, 4, model_type="ernie4_5_moe", architectures=["Ernie4_5_MoeForCausalLM"],
                              hidden_size=2560, moe_layer_start_index=1, moe_num_shared_experts=2),
                          28 * 2 * 4 * 128 * 2),
    "exaone-3.5-7.8b": ({"model_type": "exaone", "architectures": ["ExaoneForCausalLM"], "num_layers": 32,
                         "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096,
                         "max_position_embeddings": 32768}, 131_072),
    "hunyuan-a13b": (gqa(32, 32, 8, model_type="hunyuan_v1_moe", architectures=["HunYuanMoEV1ForCausalLM"],
                         head_dim=128, hidden_size=4096, use_cla=False, cla_share_factor=2, num_shared_expert=[1] * 32),
                     131_072),
    "ling-mini-2.0": (gqa(20, 16, 4, model_type="bailing_moe", architectures=["BailingMoeV2ForCausalLM"], head_dim=128,
                          hidden_size=2048, num_shared_experts=1, moe_shared_expert_intermediate_size=512),
                      20 * 2 * 4 * 128 * 2),
    "solar-open-100b": (gqa(48, 64, 8, model_type="solar_open", architectures=["SolarOpenForCausalLM"], head_dim=128,
                            hidden_size=4096, n_shared_experts=1), 48 * 2 * 8 * 128 * 2),
    "qwen-7b": ({"model_type": "qwen", "architectures": ["QWenLMHeadModel"], "num_hidden_layers": 32,
                 "num_attention_heads": 32, "hidden_size": 4096, "kv_channels": 128, "seq_length": 8192}, 524_288),
    "qwen3-vl-8b": (QWEN3_VL, 36 * 2 * 8 * 128 * 2),
    "qwen3-vl-30b-a3b": ({"model_type": "qwen3_vl_moe", "architectures": ["Qwen3VLMoeForConditionalGeneration"],
                          "text_config": gqa(48, 32, 4, model_type="qwen3_vl_moe_text", head_dim=128, hidden_size=2048,
                                             decoder_sparse_step=1, num_experts=128)}, 48 * 2 * 4 * 128 * 2),
    "qwen2.5-vl-7b, flat": (gqa(28, 28, 4, model_type="qwen2_5_vl", hidden_size=3584, vision_config={"depth": 32},
                                architectures=["Qwen2_5_VLForConditionalGeneration"], use_sliding_window=False,
                                sliding_window=32768, max_window_layers=28), 28 * 2 * 4 * 128 * 2),
    "internvl3-8b": ({"model_type": "internvl_chat", "architectures": ["InternVLChatModel"],
                      "llm_config": gqa(28, 28, 4, model_type="qwen2", hidden_size=3584,
                                        architectures=["Qwen2ForCausalLM"])}, 28 * 2 * 4 * 128 * 2),
    "llava-1.5-7b": ({"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "ignore_index": -100,
                      "image_token_index": 32000, "vision_feature_layer": -2, "torch_dtype": "float16",
                      "text_config": gqa(32, 32, 32, model_type="llama", hidden_size=4096, is_encoder_decoder=False,
                                         chunk_size_feed_forward=0, add_cross_attention=False,
                                         output_hidden_states=False, cross_attention_hidden_size=None)}, 524_288),
    "glm-4.7-flash": (gqa(47, 20, 20, model_type="glm4_moe_lite", architectures=["Glm4MoeLiteForCausalLM"], **LATENT),
                      47 * (512 + 64) * 2),
    "kimi-vl-a3b": ({"model_type": "kimi_vl", "architectures": ["KimiVLForConditionalGeneration"],
                     "text_config": gqa(27, 16, 16, model_type="deepseek_v3", **LATENT)}, 27 * (512 + 64) * 2),
    "minicpm3-4b": (gqa(62, 40, 40, model_type="minicpm3", architectures=["MiniCPM3ForCausalLM"], hidden_size=2560,
                        kv_lora_rank=256, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64),
                    62 * 2 * 40 * (64 + 32) * 2),
}


@pytest.fixture
def written(tmp_path):
    def write(config):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        return path

    return write


def kv_bytes(model):
    return catalog.kv_bytes_per_token(model, "auto", 1, 4096)


def refusal(path):
    with pytest.raises(InputError) as error:
        catalog.model_from_config(path)
    assert str(error.value).endswith("give the model as {kv_bytes_per_token: N} if you know its cache")
    return str(error.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("name", BYTES_PER_TOKEN)
def test_a_token_takes_what_the_engine_stores_of_it(written, name):
    config, num_bytes = BYTES_PER_TOKEN[name]
    assert kv_bytes(catalog.model_from_config(written(config))) == num_bytes


@pytest.mark.parametrize("name", BYTES_PER_TOKEN)
def test_the_same_keys_without_a_kind_are_not_computed(written, name):
    def anonymous(config):
        return {key: anonymous(value) if isinstance(value, dict) else value for key, value in config.items()
                if key not in ("model_type", "architectures")}

    assert refusal(written(anonymous(BYTES_PER_TOKEN[name][0]))).startswith(
        "neither model_type nor architectures says what kind of model this is; add model_type")


@pytest.mark.parametrize(("config", "message"), [
    (LLAMA | {"model_type": "newone"}, "model_type 'newone' is not one whose KV cache is known here"),
    (LLAMA | {"architectures": ["LlamaLoopForCausalLM"]},
     "architecture 'LlamaLoopForCausalLM' of model_type 'llama' is not one whose KV cache is known here"),
    (LLAMA | {"model_type": None, "architectures": ["NewForCausalLM"]},
     "architecture 'NewForCausalLM' is not one whose KV cache is known here"),
    (QWEN3_VL | {"model_type": "newone_vl"}, "model_type 'newone_vl' is not one"),
    (QWEN3_VL | {"architectures": ["Qwen3VLNextForConditionalGeneration"]},
     "architecture 'Qwen3VLNextForConditionalGeneration' of model_type 'qwen3_vl' is not one"),
    (QWEN3_VL | {"text_config": QWEN3_VL_TEXT | {"model_type": "newone"}}, "text_config: model_type 'newone' is not"),
    (QWEN3_VL | {"text_config": LLAMA}, "a language model of model_type 'llama' in a qwen3_vl is not known here"),
    (QWEN3_VL | {"text_config": {key: value for key, value in QWEN3_VL_TEXT.items() if key != "model_type"}},
     "text_config: neither model_type nor architectures says what kind of model this is"),
    ({key: value for key, value in QWEN3_VL.items() if key != "text_config"},
     "a language model of model_type 'qwen3_vl' in a qwen3_vl is not known here"),
    (LLAMA | {"model_type": "bailing_hybrid", "architectures": ["BailingMoeV2ForCausalLM"]},
     "model_type 'bailing_hybrid' is not one"),
    (LLAMA | {"text_config": LLAMA}, "model_type 'llama' with a text_config is not one"),
    ({"model_type": "qwen3_vl", "thinker_config": LLAMA}, "model_type 'qwen3_vl' with a thinker_config is not one"),
])
def test_a_kind_that_is_not_known_is_refused_however_plain_its_keys_look(written, config, message):
    assert refusal(written(config)).startswith(message)


@pytest.mark.parametrize("key", [
    "index_topk", "indexer_num_heads", "sparse_config", "sparse_attention", "moba_config", "nsa_block_size",
    "kv_compress_ratio", "attention_window_size", "swa_window", "attention_chunk_size", "num_kv_shared_layers",
    "kv_sharing_pattern", "cla_share_factor", "linear_attn_config", "conv_kernel", "ssm_state_size", "mamba_d_state",
    "recurrent_block_type", "lru_width", "lightning_num_heads", "cross_attention_layers", "is_encoder_decoder",
    "full_attention_interval", "attention_other_setting"])
@pytest.mark.parametrize("config", [LLAMA, MINIMAX_M2, DEEPSEEK_V3], ids=["plain", "experts", "latent"])
def test_a_key_that_speaks_of_another_cache_is_refused_in_a_known_kind_too(written, config, key):
    assert refusal(written(config | {key: 2})).startswith(f"{key} says that the model has ")
    for nothing in (None, False, 0, []):
        assert kv_bytes(catalog.model_from_config(written(config | {key: nothing}))) > 0


def test_such_a_key_is_refused_in_the_whole_and_in_the_part(written):
    assert refusal(written(QWEN3_VL | {"index_topk": 9})).startswith("index_topk says")
    assert refusal(written(QWEN3_VL | {"text_config": QWEN3_VL_TEXT | {"index_topk": 9}})).startswith("index_topk says")


def test_layers_of_another_type_are_refused_by_the_list_that_names_them(written):
    assert refusal(written(MINIMAX_M2 | {"attn_type_list": [0, 1] * 31})).startswith("attn_type_list has types other ")


def test_a_latents_rank_alone_makes_no_latent(written):
    assert refusal(written(LLAMA | LATENT)).startswith(
        "kv_lora_rank says that K and V come from a latent, which is not known of llama")


def test_v_that_is_narrower_than_k_takes_as_much_and_wider_is_refused(written):
    config, num_bytes = BYTES_PER_TOKEN["minicpm3-4b"]
    for v_head_dim in (32, 64, 96):
        assert kv_bytes(catalog.model_from_config(written(config | {"v_head_dim": v_head_dim}))) == num_bytes
    assert refusal(written(config | {"v_head_dim": 97})).startswith("v_head_dim 97 is wider than the 96 of K")


@pytest.mark.parametrize("kind", [name for name, entry in entries("kinds.yaml").items() if "window" in entry])
def test_a_kind_with_a_window_of_its_own_must_say_that_it_has_none(written, kind):
    config = LLAMA | {"model_type": kind, "architectures": None, "head_dim": 128}
    with pytest.raises(InputError, match=f"sliding_window is missing, and {kind} has one of its own; add it, null"):
        catalog.model_from_config(written(config))
    assert catalog.model_from_config(written(config | {"sliding_window": None})).window is None
    assert catalog.model_from_config(written(config | {"sliding_window": 4096})).window == 4096


@pytest.mark.parametrize(("keys", "longest"), [
    ({"max_position_embeddings": 131072, "seq_length": 32768}, 32768),
    ({"max_position_embeddings": 4096, "model_max_length": 131072}, 131072),
    ({"max_position_embeddings": None, "max_seq_len": 2048}, 2048)])
def test_the_longest_sequence_goes_by_any_of_its_words(written, keys, longest):
    assert catalog.model_from_config(written(LLAMA | keys)).max_model_len == longest


def test_every_kind_says_what_is_in_it_and_names_only_kinds():
    kinds = entries("kinds.yaml")
    assert all(set(entry) <= {"architectures", "kv_heads", "head_dim", "window", "cache", "extras", "wraps"}
               for entry in kinds.values())
    assert all(wrapped in kinds for entry in kinds.values() for wrapped in entry.get("wraps", ()))


@pytest.mark.parametrize(("config", "extras"), [
    (LLAMA, ()),
    (LLAMA | {"model_type": "gpt_oss", "architectures": None, "head_dim": 64, "sliding_window": 128}, ("sinks",)),
    (LLAMA | {"model_type": "bloom", "architectures": None}, ("ALiBi",)),
    (FALCON_7B | {"alibi": True}, ("ALiBi",)),
    (FALCON_7B | {"alibi": False}, ()),
    (LLAMA | {"model_type": "baichuan", "architectures": None}, ()),
    (LLAMA | {"model_type": "baichuan", "architectures": None, "hidden_size": 5120, "head_dim": 128}, ("ALiBi",)),
    (LLAMA | {"model_type": "gemma2", "architectures": None, "head_dim": 128, "sliding_window": 4096,
              "attn_logit_softcapping": 50.0, "query_pre_attn_scalar": 144}, ("a soft cap of 50", "scores over √144")),
    (LLAMA | {"model_type": "gemma2", "architectures": None, "head_dim": 256, "sliding_window": 4096,
              "attn_logit_softcapping": None, "query_pre_attn_scalar": 256}, ()),
    (LLAMA | {"model_type": "granite", "architectures": None, "attention_multiplier": 0.015625},
     ("scores times 0.015625",)),
])
def test_what_attention_has_besides_a_causal_softmax_is_told(written, config, extras):
    assert catalog.model_from_config(written(config)).extras == extras


def test_a_window_is_left_out_only_of_sequences_that_are_longer():
    model = catalog.model("gemma-2-27b")
    assert model.beyond_plain_attention(4096) == ["a soft cap of 50", "scores over √144"]
    assert model.beyond_plain_attention(4097)[-1] == "a window of 4,096 tokens in some layers"
    assert catalog.model("llama-3.1-8b").beyond_plain_attention(10**6) == []
