"""Who owns which slots.  A kind of allocator is a module and a row of ``KINDS``; ``contract`` says what it answers."""

from types import ModuleType
from typing import NamedTuple

from pagesim.allocators import contiguous, paged
from pagesim.allocators.contiguous import Contiguous, ContiguousMemory
from pagesim.allocators.paged import Paged, PagedMemory


class Kind(NamedTuple):
    """``name`` as in a config, ``spec`` what a user asks for, ``memory`` the state, ``module`` the functions."""

    name: str
    spec: type
    memory: type
    module: ModuleType


KINDS = (
    Kind("contiguous", Contiguous, ContiguousMemory, contiguous),
    Kind("paged", Paged, PagedMemory, paged),
)

Spec = Contiguous | Paged


def kind_of(spec: Spec) -> Kind:
    return next(kind for kind in KINDS if kind.spec is type(spec))
