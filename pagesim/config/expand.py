"""An experiment written out: every key with its value, as configs that give the same cases again."""

from itertools import groupby

import yaml

from pagesim.case import Case, Experiment


def expanded(experiment: Experiment) -> str:
    """YAML documents, one for each setting that the sweep makes; cases that differ only in the allocator share one."""
    return "---\n".join(_document(list(cases)) for _, cases in groupby(experiment.cases, _all_but_allocators))


def _all_but_allocators(case: Case) -> dict:
    return {key: value for key, value in case.resolved.items() if key != "allocators"}


def _document(cases: list[Case]) -> str:
    plain = cases[0].resolved | {"allocators": [case.resolved["allocators"][0] for case in cases]}
    names = "".join(f"#   {case.name}\n" for case in cases)
    return f"# cases:\n{names}" + yaml.safe_dump(plain, sort_keys=False, width=120, default_flow_style=None)
