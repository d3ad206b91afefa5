"""A trace with times since 1970 is simulated as its relative twin, in every digit."""

from decimal import Decimal

import pytest
from tiny import write_experiment

RELATIVE = ("0", "0.0000001", "0.5000001", "0.5000002", "1.0000008")


@pytest.mark.parametrize(("column", "unit"), [("arrival_s", 0), ("arrival_ms", 3), ("arrival_ns", 9)])
def test_what_a_run_writes_of_each_request_is_the_same(tmp_path, pagesim, column, unit):
    def requests_csv(name: str, first: Decimal) -> str:
        times = [f"{(first + Decimal(time)).scaleb(unit):f}" for time in RELATIVE]
        rows = tuple((time, prompt, 5) for time, prompt in zip(times, (20, 7, 30, 50, 16)))
        config = write_experiment(tmp_path / name, rows=rows, columns=f"{column},prompt_tokens,output_tokens")
        assert pagesim("simulate", config, "-q", "-o", tmp_path / name / "run").code == 0
        return "".join(path.read_text() for path in sorted((tmp_path / name / "run").rglob("requests*.csv")))

    twin = requests_csv("relative", Decimal(0))
    assert requests_csv("absolute", Decimal("1787267980.0827403")) == twin and twin.count("\n") > len(RELATIVE)
