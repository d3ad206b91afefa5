"""Durations of kind ``measured``: attention as ``bench-kernel`` timed it, in a line for the whole step."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pagesim import catalog
from pagesim.config.schema import Measured, Memory
from pagesim.config.sizing import Sized
from pagesim.engine.durations import BANDWIDTH_SHARE, COMPUTE_SHARE, Linear
from pagesim.errors import InputError

# durations=null, because a config that cannot read its bench.json could not be simulated for new tables either.
_WAY_OUT = ("measure this model's own tables, pagesim bench-kernel CONFIG --set durations=null -o DIR, or use "
            "roofline, linear or fixed")

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Fit(BaseModel):
    """Seconds of one layer's decode attention, ``step_s + context_token_s · context``, and the shape it is of."""

    model_config = ConfigDict(frozen=True)

    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    dtype: str
    step_s: Seconds
    context_token_s: Seconds


class BenchFile(BaseModel):
    """What is read of a ``bench.json``."""

    linear_one_layer: list[Fit]


def measured(keys: Measured, sized: Sized, gpu: catalog.Gpu | None, path: str) -> Linear:
    """The rest of a step, and ``layers · (fit.step_s + fit.context_token_s · context)``, as one ``Linear``.

    The rest is what the kernels were not measured for.  Where it is not given it is the roofline's: the weights are
    read once a step, ``weights / (BANDWIDTH_SHARE · bandwidth)``, and each prefill token costs
    ``2 · params / (COMPUTE_SHARE · peak)``.  Decoding counts as bound by memory: ``sequence_s`` is 0 unless given.

    Args:
        path: the ``bench.json``, as it opens from the current directory.

    Raises:
        InputError: a model or GPU that is not known, or a file without a fit for the model's attention.
    """
    model = sized.model
    if model is None:
        raise InputError("kind measured needs a model of the catalogue or a config.json, for its layers and heads; or "
                         "use linear or fixed")
    if model.is_mla:
        raise InputError(f"kind measured is for K and V heads, and not for the latent of {model.name}; use roofline, "
                         "linear or fixed")
    fit = _fit(keys.path, path, sized)
    if gpu is None and (keys.step_s is None or keys.prefill_token_s is None):
        raise InputError("kind measured needs a GPU, for the part of a step that is not attention: name it in memory "
                         "or in durations; or give both step_s and prefill_token_s, without attention")
    step_s, prefill_token_s = keys.step_s, keys.prefill_token_s
    if step_s is None:
        step_s = sized.weights_bytes() / (BANDWIDTH_SHARE * gpu.bandwidth_bytes_per_s)
    if prefill_token_s is None:
        flops = catalog.flops_per_token(model, sized.config.memory.tensor_parallel_size)
        prefill_token_s = flops / (COMPUTE_SHARE * gpu.peak_flops_per_s)
    return Linear(step_s + model.layers * fit.step_s, prefill_token_s, keys.sequence_s,
                  model.layers * fit.context_token_s)


def _fit(name: str, path: str, sized: Sized) -> Fit:
    """The fit of the model's shape on one shard in the file at ``path``, which the config calls ``name``."""
    model, shards = sized.model, sized.config.memory.tensor_parallel_size
    shape = model.heads // shards, max(1, model.kv_heads // shards), model.head_dim
    dtypes = _kv_dtypes(sized.config.memory, model)
    fits = _read(name, path)
    if not fits:
        raise InputError(f"path {name!r} has no fit, which takes decode rows of kernel ours, right ones, on simulated "
                         "or shuffled tables and with two different numbers of tokens, such as those of two "
                         f"allocators; {_WAY_OUT}")
    for fit in fits:
        if (fit.num_q_heads, fit.num_kv_heads, fit.head_dim) == shape and fit.dtype in dtypes:
            return fit
    measured_shapes = ", ".join(_words(fit.num_q_heads, fit.num_kv_heads, fit.head_dim, fit.dtype) for fit in fits)
    raise InputError(f"path {name!r} has a fit for {measured_shapes}, and none for {model.name}: "
                     f"{_words(*shape, ' or '.join(dtypes))} on each GPU; {_WAY_OUT}")


def _read(name: str, path: str) -> list[Fit]:
    try:
        with open(path, "rb") as file:
            return BenchFile.model_validate_json(file.read()).linear_one_layer
    except OSError as error:
        raise InputError(f"path {name!r} cannot be read: {error.strerror}; give the bench.json that pagesim "
                         "bench-kernel -o DIR writes, relative to this config") from None
    except ValidationError:
        raise InputError(f"path {name!r} is no bench.json as this version of pagesim bench-kernel -o DIR writes it; "
                         f"{_WAY_OUT}") from None


def _kv_dtypes(memory: Memory, model: catalog.Model) -> tuple[str, ...]:
    """Dtypes that the KV cache can have: the one named, or with ``auto`` either of 16 bits or an fp32 model's."""
    dtype = "fp32" if (memory.kv_cache_dtype, model.weights) == ("auto", "fp32") else memory.kv_cache_dtype
    return ("bf16", "fp16") if dtype == "auto" else (dtype,)


def _words(num_q_heads: int, num_kv_heads: int, head_dim: int, dtype: str) -> str:
    return f"{num_q_heads} query and {num_kv_heads} KV heads of {head_dim} in {dtype}"
