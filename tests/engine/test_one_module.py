"""Only the loop becomes machine code: the installed numba has what that reaches for."""

import numba

from pagesim.core.jit import INLINE_OPTIONS
from pagesim.engine.one_module import one_module


def compiled_alone():
    """A function and its helper, compiled without a cache; returns the function and what else was made machine code."""
    @numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)
    def helper(number):
        return number * 3

    @numba.njit(**INLINE_OPTIONS)
    def inlined(number):
        return number + 4

    def advance(number):
        return inlined(helper(number))

    return helper, advance


def libraries(function):
    return [each.library for each in function.overloads.values()]


def test_a_helper_stays_intermediate_code_and_the_loop_computes_with_it():
    helper, advance = compiled_alone()
    loop = numba.njit(_nrt=False)(advance)
    with one_module(advance.__qualname__):
        loop.compile((numba.int64,))
    assert loop(5) == 19
    assert [type(each).__name__ for each in libraries(helper)] == ["_Helper"]
    assert [type(each).__name__ for each in libraries(loop)] == ["JITCodeLibrary"]


def test_outside_all_is_compiled_as_numba_does_it():
    helper, advance = compiled_alone()
    with one_module("another"):
        pass
    assert numba.njit(advance)(5) == 19
    assert [type(each).__name__ for each in libraries(helper)] == ["JITCodeLibrary"]
