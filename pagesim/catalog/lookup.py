"""Named entries of a data file beside this module, with the way out for a name that is not there."""

from difflib import get_close_matches
from functools import cache
from importlib.resources import files

from pagesim.errors import InputError


@cache
def entries(file: str) -> dict[str, dict]:
    """Entries of ``file`` by name."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(files("pagesim.catalog").joinpath(file).read_text("utf-8"), loader)


def find(file: str, kind: str, name: str) -> tuple[str, dict]:
    """The entry that ``name`` or one of its aliases names, in any case, and the name it goes by here.

    Raises:
        InputError: no such entry; the message has the nearest name, or all of them.
    """
    names = {}
    for known, entry in entries(file).items():
        names |= {alias.lower(): known for alias in (known, *entry.get("aliases", ()))}
    if name.lower() in names:
        known = names[name.lower()]
        return known, entries(file)[known]
    near = get_close_matches(name.lower(), names, n=1)
    hint = f"did you mean {names[near[0]]!r}?" if near else f"known: {', '.join(entries(file))}"
    raise InputError(f"unknown {kind} {name!r}; {hint}")
