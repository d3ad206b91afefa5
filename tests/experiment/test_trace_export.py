from tiny import write_experiment

from pagesim.config import load
from pagesim.experiment.attempt import start
from pagesim.experiment.trace_export import preemptions

# Three sequences that grow to 40 tokens each where only 96 fit: the last one admitted goes, and later comes back.
CROWD = {"rows": ((0.0, 20, 21), (0.0, 20, 21), (0.1, 20, 21)), "kv_tokens": 96}


def only_case(folder, **options):
    return load(write_experiment(folder, allocators="[{kind: paged, block_size: 16}]", **options)).cases[0]


def test_each_preemption_is_found_at_the_start_of_its_step(tmp_path):
    case = only_case(tmp_path, **CROWD)
    run, expected, before = start(case), [], [0, 0, 0]
    while run.advance(1):
        now = run.result().requests.preemptions.tolist()
        expected += [(run.step_start_s(), k) for k in range(3) if now[k] > before[k]]
        before = now
    assert expected, "the case was made so that one is preempted"
    assert [tuple(each) for each in preemptions(case, run.result())] == expected


def test_a_run_without_preemption_has_none(tmp_path):
    case = only_case(tmp_path)
    run = start(case)
    run.advance()
    assert preemptions(case, run.result()) == []
