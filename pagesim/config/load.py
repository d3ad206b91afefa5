"""A config file → an experiment, or one error that lists all that is wrong with it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from pagesim.allocators import kind_of
from pagesim.case import Case, Experiment
from pagesim.config.check import check, positioned
from pagesim.config.document import Document, Place, Problem, parse
from pagesim.config.overrides import Override, assignment, overridden
from pagesim.config.resolve import case
from pagesim.config.schema import DEFAULT_ALLOCATORS, Config
from pagesim.config.sweep import variants
from pagesim.errors import ConfigError


def load(path: str | Path, overrides: Sequence[str | Override] = (), *, need_trace: bool = True) -> Experiment:
    """The experiment of the YAML file at ``path``, with ``overrides`` such as ``"trace.limit=8"`` put in first.

    The ``config.yaml`` of a run folder with several cases has a config for each of them, by its name.

    Args:
        need_trace: the trace's file must exist.

    Raises:
        ConfigError: one line ``file:line:column: what is wrong`` for each thing that is wrong.
    """
    changes = [assignment(each) if isinstance(each, str) else each for each in overrides]
    return experiment(read(path), path, lambda document: overridden(document, changes), need_trace=need_trace)


def experiment(document: Document, path: str | Path, changed: Callable[[Document], Document], *,
               need_trace: bool = True) -> Experiment:
    """The experiment of a document that stands at ``path``, or of each one in it, after it is ``changed``.

    Raises:
        ConfigError: as ``load``.
    """
    problems, cases = [], {}
    if _is_of_cases(document):
        problems += document.problems
        for name in document.data:
            one = _cases(changed(document.part((name,))), path, problems, need_trace=need_trace)
            cases |= {key: replace(made, name=name) for key, made in one.items()}
    else:
        cases = _cases(changed(document), path, problems, need_trace=need_trace)
    raise_all(problems)
    return Experiment(str(path), tuple(cases.values()))


def _is_of_cases(document: Document) -> bool:
    return all(isinstance(each, dict) and {"trace", "allocators"} <= each.keys() for each in document.data.values())


def _cases(document: Document, path: str | Path, problems: list[Problem], *, need_trace: bool) -> dict[str, Case]:
    """The cases of a document, none of them twice; what is wrong with it goes to ``problems``."""
    problems += document.problems
    cases: dict[str, Case] = {}
    for variant in variants(document):
        if isinstance(variant, Problem):
            problems.append(variant)
            continue
        config, wrong = check(variant.document, Config, str(Path(path).parent))
        problems += wrong
        if config is None:
            continue
        made, findings = case(config, variant.allocator, "", str(Path(path).parent))
        problems += [positioned(variant.document, at, message) for at, message in findings]
        if made is None:
            continue
        if need_trace and not Path(made.trace.path).is_file():
            problems.append(Problem(variant.document.place(("trace", "path")),
                                    f"no trace file {made.trace.path!r}; paths are relative to this config"))
        named = replace(made, name=_name(made, variant.swept, document))
        cases.setdefault(repr(made.resolved), named)
    return cases


def read(path: str | Path) -> Document:
    """The file as a document with a mapping at its top and at least the default allocators."""
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not text in UTF-8 (byte {error.start})") from None
    document = parse(text, str(path))
    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else "must be a mapping (key: value)"
        raise ConfigError(f"{path}:1:1: a config {what}; pagesim config init writes one to start from")
    return document if document.data and _is_of_cases(document) else _with_default_allocators(document)


def empty(name: str) -> Document:
    """A document in which nothing is given but the default allocators; what is missing is told under ``name``."""
    return _with_default_allocators(Document({}, values={(): Place(1, 1, name)}))


def _with_default_allocators(document: Document) -> Document:
    """So that ``--set allocators.1.block_size=32`` finds them."""
    document.data.setdefault("allocators", [{"kind": kind} for kind in DEFAULT_ALLOCATORS])
    return document


def raise_all(problems: Iterable[Problem]) -> None:
    """Raise one error with all problems, each once, in the order of the file.

    Raises:
        ConfigError: there are problems.
    """
    in_order = sorted(problems, key=lambda problem: problem.place)
    lines = dict.fromkeys(f"{problem.place.text}: {problem.message}" for problem in in_order)
    if lines:
        raise ConfigError("\n".join(lines))


def _name(made: Case, swept: dict[str, object], document: Document) -> str:
    """Short: the allocator's rules where they matter, then what the sweep varies for all allocators."""
    varied = {key: value for key, value in swept.items() if len(document.data["sweep"][key]) > 1}
    short = [key.rsplit(".", 1)[-1] for key in varied]
    suffix = [f"{key if short.count(last) > 1 else last}={value}" for (key, value), last in zip(varied.items(), short)]
    return " ".join([kind_of(made.allocator).module.name(made.allocator), *suffix])
