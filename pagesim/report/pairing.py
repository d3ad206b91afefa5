"""Which case of one run answers to which of another, and what was changed between the two."""

from dataclasses import dataclass

from pagesim.errors import InputError


@dataclass(frozen=True)
class Side:
    """A case of a run: its figures, and its settings by their dotted keys."""

    entry: dict
    settings: dict[str, object]

    @property
    def name(self) -> str:
        return self.entry["name"]


@dataclass(frozen=True)
class Pairing:
    pairs: tuple[tuple[Side, Side], ...]
    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]


def pair_cases(a: list[Side], b: list[Side]) -> Pairing:
    """Cases of one name; of the others, those of one kind of allocator that differ in the fewest settings.

    Equally near ones pair in the order of the runs.  Two runs of one case each are a pair whatever they are.

    Raises:
        InputError: there is no pair.
    """
    by_name = {side.name: side for side in b}
    found = {side.name: by_name[side.name] for side in a if side.name in by_name}
    taken = set(found)
    rest = [side for side in b if side.name not in taken]
    left = [side for side in a if side.name not in found]
    while near := _nearest(left, rest, any_kind=len(a) == len(b) == 1):
        mine, other = near
        found[mine.name] = other
        left.remove(mine)
        rest.remove(other)
    if not found:
        raise InputError(f"the runs have no case in common: A has {_names(a)}; B has {_names(b)}")
    pairs = tuple((side, found[side.name]) for side in a if side.name in found)
    return Pairing(pairs, tuple(side.name for side in left), tuple(side.name for side in rest))


def changed(a: Side, b: Side) -> list[dict]:
    """The settings that differ: ``{key, a, b}``, None where one side has no such key."""
    keys = dict.fromkeys([*a.settings, *b.settings])
    return [{"key": key, "a": a.settings.get(key), "b": b.settings.get(key)} for key in keys
            if a.settings.get(key) != b.settings.get(key)]


def settings_of(resolved: dict) -> dict[str, object]:
    """A resolved config under dotted keys; its one allocator is called so."""
    return dict(_leaves({"allocator" if key == "allocators" else key: value[0] if key == "allocators" else value
                         for key, value in resolved.items()}, ""))


def _leaves(value: dict, prefix: str) -> list[tuple[str, object]]:
    found = []
    for key, item in value.items():
        found += _leaves(item, f"{prefix}{key}.") if isinstance(item, dict) else [(prefix + key, item)]
    return found


def _nearest(left: list[Side], rest: list[Side], *, any_kind: bool) -> tuple[Side, Side] | None:
    near = [(len(changed(a, b)), i, j) for i, a in enumerate(left) for j, b in enumerate(rest)
            if any_kind or a.entry["allocator"]["kind"] == b.entry["allocator"]["kind"]]
    if not near:
        return None
    _, i, j = min(near)
    return left[i], rest[j]


def _names(sides: list[Side]) -> str:
    return ", ".join(side.name for side in sides) or "none"
