"""A sweep is every combination; what concerns one allocator does not repeat the others; nothing runs twice."""

TWO = """
trace: {path: trace.csv}
memory: {kv_tokens: 15728}
max_model_len: 2048
allocators: [{kind: contiguous, placement: buddy}, {kind: paged}]
"""


def names(cases):
    return [case.name for case in cases]


def test_a_key_of_one_allocator_concerns_that_one_only(cases):
    assert names(cases(TWO + "sweep: {allocators.1.block_size: [8, 32]}\n")) == [
        "contiguous max_model_len buddy", "paged 8", "paged 32"]


def test_any_other_key_concerns_all_and_stands_in_the_names(cases):
    assert names(cases(TWO + "sweep: {seed: [0, 1]}\n")) == ["contiguous max_model_len buddy seed=0", "paged 16 seed=0",
                                                             "contiguous max_model_len buddy seed=1", "paged 16 seed=1"]


def test_keys_are_combined_with_one_another(cases):
    swept = cases(TWO + "sweep: {seed: [0, 1], allocators.1.block_size: [8, 32], allocators.1.reuse: [lifo, fifo], "
                        "max_model_len: [1024, 2048]}\n")
    assert len(swept) == 2 * 2 * (1 + 2 * 2)
    assert len(set(names(swept))) == len(swept)
    assert names(swept)[:6] == [
        "contiguous max_model_len buddy seed=0 max_model_len=1024",
        "paged 8 seed=0 max_model_len=1024",
        "paged 8 fifo seed=0 max_model_len=1024",
        "paged 32 seed=0 max_model_len=1024",
        "paged 32 fifo seed=0 max_model_len=1024",
        "contiguous max_model_len buddy seed=0 max_model_len=2048",
    ]


def test_a_key_with_one_value_needs_no_place_in_the_names(cases):
    assert names(cases(TWO + "sweep: {seed: [7]}\n")) == ["contiguous max_model_len buddy", "paged 16"]


def test_two_keys_with_the_same_last_word_keep_their_whole_names(cases):
    swept = cases(TWO + "durations: {kind: fixed, step_s: 1}\nsweep: {trace.arrivals.kind: [trace, saturate], "
                        "durations.kind: [fixed, linear], seed: [0, 1]}\n")
    assert names(swept)[0] == "contiguous max_model_len buddy trace.arrivals.kind=trace durations.kind=fixed seed=0"


def test_identical_cases_run_once(cases):
    assert names(cases(TWO + "sweep: {allocators.1.block_size: [16, 16, 8, 16]}\n")) == [
        "contiguous max_model_len buddy", "paged 16", "paged 8"]
    assert names(cases(TWO.replace("{kind: paged}", "{kind: paged}, {kind: paged, block_size: 16}"))) == [
        "contiguous max_model_len buddy", "paged 16"]


def test_cases_are_identical_by_what_they_come_to_not_by_how_they_are_written(cases):
    assert len(cases(TWO + "sweep: {max_model_len: [1000, 1k, 1e3]}\n")) == 2


def test_a_whole_mapping_can_be_swept(cases):
    swept = cases(TWO + "sweep: {durations: [{kind: fixed, step_s: 1}, {kind: linear, step_s: 2}], "
                        "memory: [{kv_tokens: 9999}, {num_gpu_blocks_override: 500}]}\n")
    assert [case.capacity.slots for case in swept] == [9999, 9999, 8000, 8000] * 2
    assert len(set(names(swept))) == 8


def test_a_swept_value_may_be_all_that_makes_the_config_whole(cases):
    text = ("trace: {path: trace.csv}\nmax_model_len: 9\nsweep: {memory.kv_tokens: [100, 200]}\n"
            "allocators: [{kind: paged}]\n")
    assert len(cases(text)) == 2


def test_a_mistake_in_a_swept_value_is_told_at_that_value(problems):
    assert problems(
        TWO.lstrip() + "sweep:\n  durations:\n    - {kind: fixed, step_s: 1}\n    - {kind: linear, stepp_s: 2}\n"
    ) == ["bad.yaml:8:22: unknown key 'stepp_s'; did you mean 'step_s'?"]


def test_a_combination_that_does_not_fit_is_told_at_the_value_that_does_not(problems):
    assert problems(
        TWO.lstrip()
        + "scheduling: {chunked_prefill: false, max_num_batched_tokens: 3000}\nsweep: {max_model_len: [2048, 4096]}\n"
    ) == [
        "bad.yaml:5:62: max_num_batched_tokens 3000 is less than max_model_len 4096, so a long prompt could "
        "never be computed in one step; raise it, or "
        "set chunked_prefill: true"
    ]
