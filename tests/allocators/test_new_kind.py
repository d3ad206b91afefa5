"""A kind of allocator is a module and a row of the table: one more works from YAML to page."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pagesim.core import blocktables

PACKAGE = Path(__file__).parents[2] / "pagesim"
OURS = Path(__file__).parent / "shuffled.py"

CONFIG = """
trace: {path: trace.csv, arrivals: {kind: trace}}
memory: {kv_tokens: 66}
max_model_len: 40
durations: {kind: fixed, step_s: 1}
allocators:
"""
TRACE = "arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(
    f"{i // 2},{3 + 7 * i % 11},{2 + 5 * i % 13}\n" for i in range(40))
COMPILED = {"NUMBA_DISABLE_JIT": "0"}


class Copy:
    """A copy of the package whose table has one row more, and a folder with a trace."""

    def __init__(self, folder):
        self.folder = folder
        allocators = folder / "lib" / "pagesim" / "allocators"
        shutil.copytree(PACKAGE, folder / "lib" / "pagesim", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(OURS, allocators)
        table = (allocators / "__init__.py").read_text()
        row = '    Kind("paged", Paged, PagedMemory, paged),\n'
        more = row + '    Kind("shuffled", shuffled.Shuffled, shuffled.ShuffledMemory, shuffled),\n'
        assert row in table
        table = table.replace(row, more).replace("import cached, contiguous, paged, radix\n",
                                                 "import cached, contiguous, paged, radix, shuffled\n")
        (allocators / "__init__.py").write_text(table)
        (folder / "trace.csv").write_text(TRACE)
        (folder / "both.yaml").write_text(CONFIG + "  - {kind: paged, block_size: 4}\n"
                                                   "  - {kind: shuffled, block_size: 4, seed: 3}\n")
        (folder / "one.yaml").write_text(CONFIG + "  - {kind: shuffled, block_size: 4, seed: 3}\n")

    def pagesim(self, *arguments, **environment):
        done = self.run(arguments, environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self, arguments, environment):
        return subprocess.run(
            [sys.executable, "-P", "-c", "from pagesim.cli.main import main; main()", *arguments], cwd=self.folder,
            capture_output=True, text=True, env=os.environ | {
                "PYTHONPATH": str(self.folder / "lib"), "PAGESIM_CACHE_DIR": str(self.folder / "cache"),
                "NUMBA_DISABLE_JIT": "1", "COLUMNS": "200"} | environment)

    def cases(self, run):
        return {case["allocator"]["kind"]: case
                for case in json.loads((self.folder / run / "metrics.json").read_text())["cases"]}


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    made = Copy(tmp_path_factory.mktemp("copy"))
    made.pagesim("simulate", "both.yaml", "-o", "run", "--snapshot", "peak", "--jobs", "1")
    return made


def test_its_ledger_sums_and_it_preempts_as_paged_does(copy):
    paged, shuffled = (copy.cases("run")[kind] for kind in ("paged", "shuffled"))
    assert shuffled["allocator"] == {"kind": "shuffled", "block_size": 4, "seed": 3}
    assert shuffled["ledger"] == paged["ledger"]  # where a block lies is all that differs
    assert shuffled["preemptions"] == paged["preemptions"] > 0
    assert sum(shuffled["ledger"]["busy"].values()) == pytest.approx(1, abs=1e-12)
    assert shuffled["requests"]["completed"] == 40


def test_its_tables_are_valid_and_in_another_order(copy):
    paged, shuffled = (blocktables.load(next((copy.folder / "run").glob(f"cases/{kind}*/snapshot-peak.npz")))
                       for kind in ("paged", "shuffled"))
    assert (shuffled.block_size, shuffled.num_blocks) == (4, 16)
    np.testing.assert_array_equal(shuffled.lengths, paged.lengths)
    assert shuffled.block_ids.tolist() != paged.block_ids.tolist()


def test_it_has_its_place_on_the_page_in_pictures_and_in_comparisons(copy):
    copy.pagesim("report", "run")
    page = (copy.folder / "run" / "report.html").read_text()
    assert "shuffled 4 seed=3" in page
    assert "shuffled 4 seed=3" in copy.pagesim("compare", "run", "run")
    copy.pagesim("plot", "run", "--kind", "map", "-o", "map.svg")
    assert "shuffled 4 seed=3" in (copy.folder / "map.svg").read_text()


def test_the_config_knows_its_keys(copy):
    keys = json.loads(copy.pagesim("config", "schema"))["$defs"]["ShuffledKeys"]["properties"]
    assert keys["seed"]["description"] == "Of the draws."
    assert keys["block_size"]["default"] == 8
    assert "kind: shuffled" in copy.pagesim("config", "expand", "both.yaml")
    refused = copy.run(["simulate", "both.yaml", "--set", "allocators.1.sed=3"], {})
    assert refused.returncode == 2 and "did you mean 'seed'" in refused.stderr
    refused = copy.run(["simulate", "both.yaml", "--set", "allocators.1.block_size=0"], {})
    assert refused.returncode == 2 and "block_size must be at least 1" in refused.stderr


def test_it_is_compiled_like_the_others(copy):
    copy.pagesim("simulate", "one.yaml", "-o", "compiled", **COMPILED)
    assert copy.cases("compiled")["shuffled"] == copy.cases("run")["shuffled"]
