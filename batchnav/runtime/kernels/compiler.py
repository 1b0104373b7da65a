"""numba's compiler, which by itself makes machine code of every function: here of kernels alone.

numba optimises a function, makes machine code of it and links it into its callers, where all that is done again. A
kernel of fifty functions is optimised as deep as they call each other, and a `prange` loop four times more. Here a
part of a kernel stays as it was lowered until the kernel is whole.
"""

from __future__ import annotations

from typing import Any

from numba.core import event as events
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeParforLowering

from batchnav.runtime import garbage_collection as collector


class _Part(JITCodeLibrary):
    """Code that is only linked into other code."""

    def _optimize_final_module(self) -> None:
        pass  # with the kernel that it becomes part of

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class PartCompiler(Compiler):
    """Of functions that only compiled code calls."""

    def __init__(self, typingctx, targetctx, library, args, return_type, flags, *rest) -> None:
        flags.no_compile = True  # to machine code
        library = _Part(targetctx.codegen(), "part")
        super().__init__(typingctx, targetctx, library, args, return_type, flags, *rest)

    def compile_extra(self, function) -> Any:
        """Compile, and have callers find it by an entry point, which here is but a name."""
        name = lambda: None  # noqa: E731
        result = super().compile_extra(function)._replace(entry_point=name)
        self.state.targetctx.insert_user_function(name, result.fndesc, [result.library])
        return result


class LoopCompiler(Compiler):
    """Of kernels with `prange` loops, whose bodies and the wrappers around them are parts."""

    def define_pipelines(self) -> list:
        """numba's own passes but one."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [
            (_LoopLowering if step is NativeParforLowering else step, text) for step, text in passes.passes
        ]
        return [passes]


class _Parts(events.Listener):
    """Has code of no dispatcher, as loops' bodies are, made as parts, until it is told to `end`."""

    def __init__(self, codegen: Any) -> None:
        self._codegen, self._depth = codegen, 0
        codegen._library_class = _Part

    def on_start(self, event: Any) -> None:
        """A loop calls what is not compiled yet: a function, which may be called from elsewhere too."""
        self.end()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        """It is compiled."""
        self._depth -= 1
        if self._depth == 0:
            self._codegen._library_class = _Part

    def end(self) -> None:
        """Back to libraries as numba makes them."""
        vars(self._codegen).pop("_library_class", None)


@register_pass(mutates_CFG=True, analysis_only=False)
class _LoopLowering(NativeParforLowering):
    _name = "batchnav_loop_lowering"

    def run_pass(self, state) -> bool:
        codegen = state.targetctx.codegen()
        state.library = codegen.create_library(state.func_id.func_qualname)
        state.library.enable_object_caching()
        state.flags.no_compile = True  # which loop bodies take over
        parts = _Parts(codegen)
        try:
            with events.install_listener("numba:compile", parts):
                super().run_pass(state)
        finally:
            parts.end()
        lowered = state.cr
        entry = state.targetctx.get_executable(state.library, lowered.fndesc, lowered.env)
        state.targetctx.insert_user_function(entry, lowered.fndesc, [state.library])
        state.cr = lowered._replace(cfunc=entry)
        return True


class _Collector(events.Listener):
    """Python's garbage collector rests while numba compiles: what that makes by the million lives until it is done."""

    def on_start(self, event: Any) -> None:
        """A step of a compilation begins, perhaps within another."""
        collector.pause()

    def on_end(self, event: Any) -> None:
        """The step is over."""
        collector.resume()


events.register("numba:compiler_lock", _Collector())  # which the compiler for CUDA takes too, whose events are its own
