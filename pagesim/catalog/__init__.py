"""Models and GPUs by name, and the KV memory that follows from them."""

from pagesim.catalog.gpus import Gpu, Total, gpu, kv_memory_bytes
from pagesim.catalog.hf import find_model, model_from_config
from pagesim.catalog.models import (
    Model, flops_per_context_token, flops_per_token, kv_bytes_per_token, kv_heads_per_shard, model, served_in,
    weight_bytes)

__all__ = ["Gpu", "Model", "Total", "find_model", "flops_per_context_token", "flops_per_token", "gpu",
           "kv_bytes_per_token", "kv_heads_per_shard", "kv_memory_bytes", "model", "model_from_config", "served_in",
           "weight_bytes"]
