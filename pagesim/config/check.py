"""A document against the schema: everything that is wrong with it, each at its place."""

from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pagesim.config.document import Document, Path, Problem, dotted
from pagesim.config.schema import Config, Keys
from pagesim.config.values import shown
from pagesim.errors import InputError

_VLLM_NAMES = {"enable_chunked_prefill": "chunked_prefill", "request_rate": "rate", "max_concurrency": "users",
               "preemption_mode": "preemption", "kv_cache_memory_bytes": "kv_memory"}
_BOUNDS = {"greater_than": ("above", "gt"), "greater_than_equal": ("at least", "ge"),
           "less_than": ("below", "lt"), "less_than_equal": ("at most", "le")}


def check(document: Document, schema: type[Keys], directory: str) -> tuple[Any, list[Problem]]:
    """The validated config, or None and what is wrong.

    What is found wrong is taken out and the rest looked at again, since pydantic does not compare the keys of a mapping
    before each of them is right; so one call finds everything.  Paths in the config are relative to ``directory``.
    """
    problems: list[Problem] = []
    left_out: list[Path] = []
    misspelt: list[Path | None] = []
    data = {} if document.data is None else document.data
    while True:
        try:
            config = schema.model_validate(data, context={"directory": directory})
            return (None if left_out else config), problems
        except ValidationError as error:
            found = [(_data_path(data, details), details) for details in error.errors()]
        misspelt += [_meant(path, details, schema) for path, details in found]
        new = [(path, details) for path, details in found if not any(gone[:len(path)] == path for gone in left_out)
               and not (details["type"] == "missing" and path in misspelt)]
        for path, details in new:
            place = document.place(path, of_key=details["type"] == "extra_forbidden")
            problems.append(Problem(place, _message(path, details, schema)))
        removable = [path for path, _ in new if path and isinstance(path[-1], str) and _has(data, path)]
        if not removable:
            return None, problems
        left_out += removable
        for path in removable:
            data = _without(data, path)


def positioned(document: Document, path: Path, message: str) -> Problem:
    """A problem of the mapping at ``path`` whose message begins with the key that it is about, at that key's value."""
    return Problem(document.place(_narrowed(document.data, path, message)), message)


def _narrowed(data: Any, path: Path, message: str) -> Path:
    key = (*path, message.split(maxsplit=1)[0])
    return key if _has(data, key) else path


def _data_path(data: Any, details: ErrorDetails) -> Path:
    """The path in the data of an error; pydantic's has the tags of unions in between."""
    path: Path = ()
    for step in details["loc"]:
        last_of_missing = details["type"] == "missing" and step == details["loc"][-1]
        if _has(data, (*path, step)) or last_of_missing:
            path = (*path, step)
    if details["type"] == "value_error" and isinstance(details["ctx"]["error"], InputError):
        return _narrowed(data, path, str(details["ctx"]["error"]))
    if details["type"] == "union_tag_invalid":
        return (*path, "kind")
    return path


def _has(data: Any, path: Path) -> bool:
    for step in path:
        in_mapping = isinstance(data, dict) and step in data
        in_list = isinstance(data, list) and isinstance(step, int) and step < len(data)
        if not in_mapping and not in_list:
            return False
        data = data[step]
    return True


def _without(data: Any, path: Path) -> Any:
    step, rest = path[0], path[1:]
    if not rest:
        return {key: value for key, value in data.items() if key != step}
    if isinstance(data, list):
        return [*data[:step], _without(data[step], rest), *data[step + 1:]]
    return {**data, step: _without(data[step], rest)} if step in data else data


def _message(path: Path, details: ErrorDetails, schema: type[Keys]) -> str:
    """What is wrong and what would be right, in our words."""
    kind, context, given = details["type"], details.get("ctx", {}), details["input"]
    name = dotted(path) or "a config"
    key = path[-1] if path and isinstance(path[-1], str) else name
    if kind == "extra_forbidden":
        return f"unknown key {key!r}; {_way_out(key, details['loc'], schema)}"
    if kind == "missing":
        inner = _models_in(_model_at(schema, details["loc"][:-1]).model_fields[details["loc"][-1]].annotation)
        return f"{name} is missing" + (f"; it takes {', '.join(inner[0].model_fields)}" if inner else "")
    if kind == "union_tag_not_found":
        return f"{name} needs a kind, one of {_kinds(details, schema)}"
    if kind == "union_tag_invalid":
        return _not_one_of("kind", context["tag"], context["expected_tags"])
    if kind == "literal_error":
        return _not_one_of(key, given, context["expected"].replace(" or ", ", "))
    if kind == "value_error":
        error = context["error"]
        text = str(error)
        return text if text.startswith((f"{key} ", "memory ", "unknown ")) else f"{key}: {text}"
    if kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        return f"{key} must be {words} {context[bound]:.15g}, got {given}"
    if kind == "model_attributes_type":
        kinds = _kinds(details, schema).split(", ")
        return _wrong_shape(name, f"a mapping such as {{kind: {given if given in kinds else kinds[0]}}}", given)
    if kind == "finite_number":
        return f"{key} must be finite, got {given}"
    if kind in ("model_type", "dict_type"):
        return _wrong_shape(name, "a mapping (key: value)", given)
    if kind == "list_type":
        return _wrong_shape(name, "a list", given)
    if kind == "too_short":
        return f"{name} must have at least one entry"
    if kind == "string_type":
        return _wrong_shape(name, "text", given)
    return f"{name}: {details['msg'].lower()}, got {shown(given)}"


def _wrong_shape(name: str, wanted: str, given: Any) -> str:
    return f"{name} must be {wanted}, got {shown(given)}"


def _not_one_of(key: str, given: Any, quoted: str) -> str:
    choices = [choice.strip("' ") for choice in quoted.split(",")]
    near = get_close_matches(str(given), choices, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{key} must be one of {', '.join(choices)}, got {shown(given)}{hint}"


def _nearest_key(key: str, loc: tuple, schema: type[Keys]) -> str | None:
    allowed = list(_model_at(schema, loc[:-1]).model_fields)
    near = [_VLLM_NAMES[key]] if _VLLM_NAMES.get(key) in allowed else get_close_matches(key, allowed, n=1)
    return near[0] if near else None


def _meant(path: Path, details: ErrorDetails, schema: type[Keys]) -> Path | None:
    """Where the key that an unknown one stands for would be; that it is missing need not be told too."""
    nearest = _nearest_key(path[-1], details["loc"], schema) if details["type"] == "extra_forbidden" else None
    return (*path[:-1], nearest) if nearest else None


def _way_out(key: str, loc: tuple, schema: type[Keys]) -> str:
    """The key that was meant, where it belongs, or all keys."""
    nearest, allowed = _nearest_key(key, loc, schema), _model_at(schema, loc[:-1]).model_fields
    if nearest:
        return f"did you mean {nearest!r}?"
    homes = [name for name, field in Config.model_fields.items()
             if any(key in model.model_fields for model in _models_in(field.annotation))]
    if key in Config.model_fields:
        return f"{key} belongs at the top level"
    return f"it belongs under {' or '.join(homes)}" if homes else f"allowed: {', '.join(allowed)}"


def _kinds(details: ErrorDetails, schema: type[Keys]) -> str:
    return ", ".join(kind for model in _candidates(schema, details["loc"]) for kind in _kinds_of(model))


def _kinds_of(model: type[BaseModel]) -> tuple[str, ...]:
    """The value of ``kind`` that chooses this model; none where it has no such key."""
    return get_args(model.model_fields["kind"].annotation) if "kind" in model.model_fields else ()


def _model_at(schema: type[Keys], loc: tuple) -> type[BaseModel]:
    return _candidates(schema, loc)[0]


def _candidates(schema: type[Keys], loc: tuple) -> list[type[BaseModel]]:
    """The models of the schema that an error's location allows, walking fields and the tags of unions."""
    models: list[type[BaseModel]] = [schema]
    for step in loc:
        tagged = [model for model in models if step in _kinds_of(model)]
        if tagged and len(models) > 1:
            models = tagged
        elif step in models[0].model_fields:
            models = _models_in(models[0].model_fields[step].annotation)
    return models


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]
