"""Who owns which slots.  A kind of allocator is a module and a row of ``KINDS``; ``contract`` says what it answers."""

from types import ModuleType
from typing import NamedTuple

from pagesim.allocators import cached, contiguous, paged, radix
from pagesim.allocators.cached import CachedMemory
from pagesim.allocators.contiguous import Contiguous, ContiguousMemory
from pagesim.allocators.paged import Paged, PagedMemory
from pagesim.allocators.radix import RadixMemory
from pagesim.errors import InputError


class Kind(NamedTuple):
    """``spec`` is what a user asks for, ``memory`` the state, ``module`` the functions.

    Of several kinds with one spec each serves some of its values; ``name`` of the first is what a config calls them.
    """

    name: str
    spec: type
    memory: type
    module: ModuleType


KINDS = (
    Kind("contiguous", Contiguous, ContiguousMemory, contiguous),
    Kind("paged", Paged, PagedMemory, paged),
    Kind("cached", Paged, CachedMemory, cached),
    Kind("radix", Paged, RadixMemory, radix),
)

Spec = Contiguous | Paged


def first_kind(spec: Spec) -> Kind:
    """The first kind of the spec, which knows its rules though another may serve it."""
    return next(kind for kind in KINDS if kind.spec is type(spec))


def kind_of(spec: Spec) -> Kind:
    """Raises InputError where none serves the spec yet."""
    kinds = [kind for kind in KINDS if kind.spec is type(spec)]
    for kind in kinds:
        if kind.module.serves(spec):
            return kind
    served = " or ".join(kind.module.name(kind.module.EXAMPLE) for kind in kinds)
    raise InputError(f"{kinds[0].module.name(spec)} is not simulated yet, only what is like {served}")


def kinds_by_name() -> dict[str, Kind]:
    """The first kind of each spec, by what a config calls it."""
    firsts = {kind.spec: kind for kind in reversed(KINDS)}
    return {kind.name: kind for kind in KINDS if firsts[kind.spec] is kind}


def name_of(spec: Spec) -> str:
    """What a config calls its kind."""
    return first_kind(spec).name
