"""Whatever stands in a config, it is understood or refused with its places; capacity is divided without loss."""

import copy
import pickle
import re

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagesim.config import Capacity, load
from pagesim.config.expand import expanded
from pagesim.errors import ConfigError

WHOLE = {
    "trace": {
        "path": "trace.csv",
        "arrivals": {"kind": "gamma", "rate": 2.0, "cv": 1.5},
        "limit": 10,
        "until_s": 5,
        "warmup_s": 1,
    },
    "model": "llama-3.1-8b",
    "memory": {
        "gpu": "h200",
        "gpu_memory_utilization": 0.9,
        "tensor_parallel_size": 2,
        "kv_cache_dtype": "fp8",
        "other": "1GiB",
    },
    "max_model_len": "8k",
    "scheduling": {
        "max_num_seqs": 64,
        "max_num_batched_tokens": 8192,
        "chunked_prefill": True,
        "preemption": "swap",
        "swap_space": "2GiB",
    },
    "durations": {"kind": "roofline", "overhead_s": 0.001},
    "allocators": [
        {"kind": "contiguous", "reserve": "grow", "placement": "best_fit", "growth": 2},
        {"kind": "paged", "block_size": 8, "watermark": 0.01},
    ],
    "sweep": {"allocators.1.block_size": [1, 16], "seed": [0, 1]},
    "seed": 3,
}

anything = st.one_of(st.none(), st.booleans(), st.integers(-3, 10**12), st.floats(), st.text(max_size=8),
                     st.sampled_from(["paged", "gpu", "16k", "1e9", "12GiB"]), st.lists(st.integers(0, 3), max_size=2),
                     st.dictionaries(st.sampled_from(["kind", "path", "seed", "x", "<<"]), st.integers(0, 3),
                                     max_size=2))


def paths(data, path=()):
    yield path
    if isinstance(data, dict | list):
        for step in data if isinstance(data, dict) else range(len(data)):
            yield from paths(data[step], (*path, step))


@st.composite
def spoilt(draw):
    """The whole config with up to three of its values replaced, dropped or joined by a key that is not known."""
    data = copy.deepcopy(WHOLE)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from([path for path in paths(data) if path]))
        inner = data
        for step in way:
            inner = inner[step]
        action = draw(st.sampled_from(["replace", "drop", "join"]))
        if action == "replace":
            inner[last] = draw(anything)
        elif action == "drop":
            del inner[last]
        elif isinstance(inner, dict):
            inner[draw(st.text(min_size=1, max_size=8))] = draw(anything)
        if not data:
            break
    return data


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spoilt())
def test_any_config_is_understood_or_refused_with_places(write, data):
    path = write(yaml.safe_dump(data, allow_unicode=True))
    try:
        experiment = load(path)
    except ConfigError as error:
        assert all(re.match(re.escape(str(path)) + r":\d+(:\d+)?: ", line) for line in str(error).split("\n")), str(
            error)
    else:
        assert experiment.cases


def test_a_case_is_picklable_and_stays_itself(write):
    for case in load(write(yaml.safe_dump(WHOLE))).cases:
        assert pickle.loads(pickle.dumps(case)) == case


def test_reading_what_expand_writes_gives_the_same_cases(write):
    experiment = load(write(yaml.safe_dump(WHOLE)))
    documents = expanded(experiment).split("---\n")
    assert len(documents) == 2
    again = [case for document in documents for case in load(write(document)).cases]
    assert [case.resolved for case in again] == [case.resolved for case in experiment.cases]
    assert [(case.allocator, case.capacity, case.scheduling, case.durations) for case in again] == [
        (case.allocator, case.capacity, case.scheduling, case.durations) for case in experiment.cases]


@given(st.integers(1, 10**9), st.integers(1, 300))
def test_blocks_and_remainder_are_all_the_slots(slots, block_size):
    capacity = Capacity(slots, None, slots // block_size, block_size)
    assert 0 <= capacity.slots - capacity.usable_slots < block_size


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(2**20, 2**45), st.integers(1, 2**20), st.integers(1, 300))
def test_blocks_are_the_bytes_over_the_bytes_of_a_block(write, kv_memory, kv_bytes_per_token, block_size):
    path = write(f"""
        trace: {{path: trace.csv}}
        model: {{kv_bytes_per_token: {kv_bytes_per_token}}}
        memory: {{kv_memory: {kv_memory}}}
        max_model_len: 10
        allocators: [{{kind: paged, block_size: {block_size}}}]
        """)
    if kv_memory < kv_bytes_per_token * block_size:
        return
    (case,) = load(path).cases
    assert case.capacity.blocks == kv_memory // (block_size * kv_bytes_per_token)
    assert case.capacity.bytes <= kv_memory < case.capacity.bytes + kv_bytes_per_token
