"""Numba compiles the loop's helpers into the loop, and by default each of them once more by itself.

That second time costs half of all and serves nobody, since only the loop is ever called: here the helpers stay LLVM's
intermediate code until the loop that they are linked into is optimized as a whole.  It reaches into numba; where a
version of it lacks what is reached for, compiling is slow and everything else the same.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from numba.core.codegen import JITCodeLibrary
from numba.core.registry import cpu_target


class _Helper(JITCodeLibrary):
    """A function's intermediate code and that of the functions that it calls, never made into machine code."""

    def _optimize_functions(self, ll_module: object) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0


@contextmanager
def one_module(name: str) -> Iterator[None]:
    """Of what is compiled inside, only the function called ``name`` becomes machine code."""
    codegen = cpu_target.target_context.codegen()
    engine = getattr(codegen, "_engine", None)
    if not (hasattr(codegen, "create_library") and hasattr(engine, "get_global_value_address")
            and hasattr(JITCodeLibrary, "_get_module_for_linking")):
        yield
        return
    set_environment = codegen.set_env

    def create_library(title: str, **options: object) -> JITCodeLibrary:
        return (JITCodeLibrary if title == name else _Helper)(codegen, title, **options)

    def set_env(variable: str, environment: object) -> None:
        if engine.get_global_value_address(variable):  # a helper's is in no machine code
            set_environment(variable, environment)

    codegen.create_library, codegen.set_env = create_library, set_env
    try:
        yield
    finally:
        del codegen.create_library, codegen.set_env
