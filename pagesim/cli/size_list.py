"""``pagesim size --list``: what ``--model`` and ``--gpu`` know by name."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagesim.report.tables import Sheet


def listed() -> dict[str, dict[str, dict]]:
    """Figures of each model and each GPU of the catalogue, by its name.

    Bytes of KV are of one token in 16 bits on one GPU, null for a model with layers that keep a window only.
    """
    from pagesim import catalog
    from pagesim.catalog.lookup import entries

    models = {name: catalog.model(name) for name in entries("models.yaml")}
    gpus = {name: catalog.gpu(name) for name in entries("gpus.yaml")}
    return {
        "models": {name: {
            "kv_bytes_per_token": None if model.window else catalog.kv_bytes_per_token(model, "bf16", 1, None),
            "window": model.window,
            "weights_bytes": catalog.weight_bytes(model, 1),
            "max_model_len": model.max_model_len,
        } for name, model in models.items()},
        "gpus": {name: {
            "cuda_bytes": gpu.cuda_bytes,
            "memory_bytes": gpu.memory_bytes,
            "bandwidth_bytes_per_s": gpu.bandwidth_bytes_per_s,
            "peak_flops_per_s": gpu.peak_flops_per_s,
        } for name, gpu in gpus.items()}}


def list_sheets() -> "list[Sheet]":
    from pagesim.core.units import format_bytes
    from pagesim.report.tables import Sheet

    known = listed()
    models = tuple(
        (name, f"window {of['window']:,}" if of["window"] else f"{of['kv_bytes_per_token']:,}",
         format_bytes(of["weights_bytes"]), f"{of['max_model_len']:,}") for name, of in known["models"].items())
    gpus = tuple(
        (name, format_bytes(of["cuda_bytes"]), format_bytes(of["memory_bytes"]),
         f"{of['bandwidth_bytes_per_s'] / 1e12:g} TB/s") for name, of in known["gpus"].items())
    return [Sheet("Models", ("name", "KV bytes a token", "weights", "longest"), models),
            Sheet("GPUs", ("name", "CUDA's total", "nvidia-smi's", "bandwidth"), gpus)]
