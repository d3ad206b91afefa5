"""A YAML text as plain data in which every key and value still knows its place."""

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from pagesim.errors import ConfigError

Path = tuple[str | int, ...]

# No experiment has so many; a few aliases (*) of aliases make billions, which would fill the machine's memory.
_MOST_VALUES = 100_000


class Place(NamedTuple):
    """Where something stands, and in which order to report it: ``bad.yaml:8:5``, or ``--set seed=x``."""

    line: int
    column: int
    text: str


class Problem(NamedTuple):
    place: Place
    message: str


@dataclass
class Document:
    """Data of a YAML text, and the places of its keys and values by path, such as ``("allocators", 2, "block_size")``.

    ``problems`` holds what is wrong with the text itself; the data is then still good enough to look for more.
    """

    data: Any = None
    keys: dict[Path, Place] = field(default_factory=dict)
    values: dict[Path, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def place(self, path: Path, *, of_key: bool = False) -> Place:
        """The place of the value (or key) at ``path``, or of the nearest thing around it that is written down."""
        if of_key and path in self.keys:
            return self.keys[path]
        while path and path not in self.values:
            path = path[:-1]
        return self.values.get(path, Place(1, 1, "config"))

    def part(self, path: Path) -> "Document":
        """The document of what stands at ``path``."""
        data = self.data
        for step in path:
            data = data[step]
        end = len(path)
        return Document(data, {known[end:]: place for known, place in self.keys.items() if known[:end] == path},
                        {known[end:]: place for known, place in self.values.items() if known[:end] == path})

    def replaced(self, path: Path, key: Place, part: "Document") -> "Document":
        """A copy with ``part`` at ``path``, whose key stands at ``key``.

        Mappings on the way are made where they are missing.

        Raises:
            ConfigError: a list on the way has no such entry, or something on the way is neither list nor mapping.
        """
        keys = {known: place for known, place in self.keys.items() if known[:len(path)] != path}
        values = {known: place for known, place in self.values.items() if known[:len(path)] != path}
        for end in range(len(path)):
            values.setdefault(path[:end], key)
            keys.setdefault(path[:end], key)
        values |= {path: key} | {path + inner: place for inner, place in part.values.items()}
        keys |= {path + inner: place for inner, place in part.keys.items()} | {path: key}
        return Document(_with(self.data, path, part.data, ()), keys, values, self.problems)


def _with(data: Any, path: Path, new: Any, walked: Path) -> Any:
    """``data`` with ``new`` at ``path``, sharing all that does not change."""
    if not path:
        return new
    step, rest = path[0], path[1:]
    if isinstance(data, list):
        if not isinstance(step, int) or step >= len(data):
            raise ConfigError(f"{dotted(walked)} is a list with entries 0 to {len(data) - 1}, there is no {step!r}")
        return [*data[:step], _with(data[step], rest, new, (*walked, step)), *data[step + 1:]]
    if data is not None and not isinstance(data, dict):
        here, there = dotted(walked), dotted((*walked, *path))
        raise ConfigError(f"{here} is {data!r}, so {there} cannot be set; set {here} as a whole")
    data = data or {}
    return {**data, step: _with(data.get(step), rest, new, (*walked, step))}


def dotted(path: Path) -> str:
    return ".".join(map(str, path))


def undotted(key: str) -> Path:
    """``allocators.2.block_size`` as a path; keys under ``sweep`` are dotted themselves."""
    if key.startswith("sweep."):
        return ("sweep", key.removeprefix("sweep."))
    return tuple(int(step) if step.isdecimal() else step for step in key.split("."))


def parse(text: str, name: str, *, one_place: bool = False) -> Document:
    """Read YAML ``text``; places are ``name:line:column``, or all just ``name`` for a text of one line without a file.

    Duplicate keys, keys that are not text, and numbers that YAML 1.1 reads otherwise than they look become problems.
    ``1e9``, which YAML 1.1 takes for text, is read as the number.

    Raises:
        ConfigError: not YAML at all, too deep or too much.
    """
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        document = Document()
        if root is not None:
            document.data = _Reader(loader, document, name, one_place).read(root, ())
        return document
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = name if one_place else f"{name}:{mark.line + 1}:{mark.column + 1}"
        raise ConfigError(f"{where}: this is not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: this is not YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise ConfigError(f"{name}: lists and mappings lie too deep in each other to be read") from None


class _Reader:
    """Walks a node tree once and fills a document."""

    def __init__(self, loader: yaml.SafeLoader, document: Document, name: str, one_place: bool) -> None:
        self.loader, self.document, self.name, self.one_place = loader, document, name, one_place
        self.open: set[int] = set()

    def place(self, node: yaml.Node) -> Place:
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        return Place(10**9, 0, self.name) if self.one_place else Place(line, column, f"{self.name}:{line}:{column}")

    def problem(self, node: yaml.Node, message: str) -> None:
        self.document.problems.append(Problem(self.place(node), message))

    def read(self, node: yaml.Node, path: Path) -> Any:
        self.document.values[path] = self.place(node)
        if len(self.document.values) > _MOST_VALUES:
            raise ConfigError(f"{self.name}: more than {_MOST_VALUES:,} values; aliases (*) count each time")
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node)
        if id(node) in self.open:
            self.problem(node, "an alias (*) inside the value that it stands for never ends")
            return None
        self.open.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            data = [self.read(item, (*path, index)) for index, item in enumerate(node.value)]
        else:
            data = self.mapping(node, path)
        self.open.discard(id(node))
        return data

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        own = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        first: dict[str, yaml.Node] = {}
        for key in own:
            if not isinstance(key, yaml.ScalarNode):
                self.problem(key, "a key must be text")
            elif key.value in first:
                line = first[key.value].start_mark.line + 1
                self.problem(key, f"duplicate key {key.value!r}; it is already given in line {line}")
            else:
                first[key.value] = key
        self.loader.flatten_mapping(node)
        data = {}
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                self.document.keys[(*path, key.value)] = self.place(key)
                data[key.value] = self.read(value, (*path, key.value))
        return data

    def scalar(self, node: yaml.ScalarNode) -> Any:
        if node.style is None:
            if re.fullmatch(r"[-+]?0[0-9_]*[1-9][0-9_]*", node.value):
                self.problem(node, f"YAML 1.1 reads {node.value} as an octal number; write it without the leading 0")
                return int(node.value.replace("_", ""))
            if re.fullmatch(r"[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9_]*)?", node.value):
                self.problem(node, f"YAML 1.1 reads {node.value} as a number to base 60; write plain seconds")
            if re.fullmatch(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+", node.value):
                return float(node.value)
        try:
            return self.loader.construct_object(node, deep=True)
        except ValueError:
            looks_like = node.tag.rsplit(":", 1)[-1]
            problem = f"{node.value} looks like a {looks_like} and is none; put it in quotes if it is text"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None
