"""Compiler pipelines that generate machine code for kernels only, to compile faster.

numba optimises each function, generates its machine code and links it into its callers, where the work repeats: once
per level of the call graph, and four times more for a `prange` loop. Here each function of a kernel stays LLVM IR,
apart from its callees, until the kernel links all of them once. Such a part takes each argument as one value.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial, wraps
from typing import Any

from numba.core import event as events
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.imputils import user_function
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering, NativeParforLowering

from batchnav.runtime import garbage_collection as collector


class _Kernel(JITCodeLibrary):
    """Library of a kernel, which links each part that it needs once, wherever that part is called."""

    def __init__(self, codegen: Any, name: str) -> None:
        super().__init__(codegen, name)
        self._linked: set[JITCodeLibrary] = set()

    def add_linking_library(self, library: JITCodeLibrary) -> None:
        """Link a library, and the parts of a part."""
        for each in needed(library):
            if each not in self._linked:
                self._linked.add(each)
                super().add_linking_library(each)


class _Part(_Kernel):
    """Library of a function that is only linked into kernels: neither linked with others nor compiled by itself."""

    def finalize(self) -> None:
        """End the additions. The kernel links and optimises."""
        self._raise_if_finalized()
        self._finalize_dynamic_globals()
        self._finalized = True


def needed(library: JITCodeLibrary) -> list[JITCodeLibrary]:
    """The libraries to link for calls of a function in this library."""
    return [library, *library._linking_libraries] if isinstance(library, _Part) else [library]


class _WholeArguments:
    """Arguments of a part: each is one LLVM value.

    numba passes each word of an array or NamedTuple by itself. More than half of a kernel's instructions would then
    take arguments apart or put them together.
    """

    def __init__(self, kinds: Any, types: Sequence[Any]) -> None:
        self.argument_types = tuple(kinds[each].get_value_type() for each in types)

    def as_arguments(self, builder: Any, values: Sequence[Any]) -> Sequence[Any]:
        """LLVM arguments of a call with these values."""
        return values

    def from_arguments(self, builder: Any, arguments: Sequence[Any]) -> Sequence[Any]:
        """Values of a function's LLVM arguments."""
        return arguments

    def assign_names(self, arguments: Sequence[Any], names: Sequence[str]) -> None:
        """Name a function's LLVM arguments."""
        for argument, name in zip(arguments, names, strict=True):
            argument.name = name


def _passing_whole(context: Any) -> Any:
    """The context with the calling convention of parts."""
    return context.subtarget(get_arg_packer=partial(_WholeArguments, context.data_model_manager))


class _PartLower(Lower):
    """Lowering of a part to LLVM IR."""

    def init(self) -> None:
        """Keep the context that declares, enters and leaves the part."""
        super().init()
        self._passing_whole = _passing_whole(self.context)

    @property
    def call_conv(self) -> Any:
        """Convention by which the part takes its arguments."""
        return self._passing_whole.call_conv

    def setup_function(self, function: Any) -> None:
        """Declare the part."""
        with self._as_part():
            super().setup_function(function)

    def _lower_call_RecursiveCall(self, *call: Any) -> Any:
        with self._as_part():
            return super()._lower_call_RecursiveCall(*call)

    @contextlib.contextmanager
    def _as_part(self) -> Iterator[None]:
        context, self.context = self.context, self._passing_whole
        yield
        self.context = context


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(NativeLowering):
    """Lowering of a part."""

    _name = "batchnav_part_lowering"

    @property
    def lowering_class(self) -> type:
        """The class that lowers."""
        return _PartLower


class PartCompiler(Compiler):
    """Compiler of functions that only compiled code calls."""

    def __init__(self, typingctx, targetctx, library, args, return_type, flags, *rest) -> None:
        flags.no_compile = True  # no machine code
        library = _Part(targetctx.codegen(), "part")
        super().__init__(typingctx, targetctx, library, args, return_type, flags, *rest)

    def compile_extra(self, function) -> Any:
        """Compile and register the function for its callers under a placeholder entry point."""
        name = lambda: None  # noqa: E731
        result = super().compile_extra(function)._replace(entry_point=name)
        call = user_function(result.fndesc, needed(result.library))

        @wraps(call)  # which copies the libraries to link too
        def call_part(context, *rest):
            return call(_passing_whole(context), *rest)

        self.state.targetctx.insert_func_defn([(call_part, name, call.signature)])
        return result

    def define_pipelines(self) -> list:
        """numba's default passes with another lowering."""
        return [_passes_with(self.state, NativeLowering, _PartLowering)]


class _SeparateLower(_PartLower):
    """Lowering of a part that LLVM does not inline."""

    def setup_function(self, function: Any) -> None:
        """Declare the part."""
        super().setup_function(function)
        self.function.attributes.add("noinline")


@register_pass(mutates_CFG=True, analysis_only=False)
class _SeparateLowering(NativeLowering):
    """Lowering of a part that LLVM does not inline."""

    _name = "batchnav_separate_lowering"

    @property
    def lowering_class(self) -> type:
        """The class that lowers."""
        return _SeparateLower


class SeparateCompiler(PartCompiler):
    """Compiler of parts that a kernel has once, however many calls it has."""

    def define_pipelines(self) -> list:
        """numba's default passes with another lowering."""
        return [_passes_with(self.state, NativeLowering, _SeparateLowering)]


class LoopCompiler(Compiler):
    """Compiler of kernels with `prange` loops; loop bodies and their wrappers become parts."""

    def define_pipelines(self) -> list:
        """numba's default passes with another parfor lowering."""
        return [_passes_with(self.state, NativeParforLowering, _LoopLowering)]


def _passes_with(state: Any, replaced: type, own: type) -> Any:
    """numba's default passes with one replaced."""
    passes = DefaultPassBuilder.define_nopython_pipeline(state)
    passes.passes = [(own if step is replaced else step, text) for step, text in passes.passes]
    return passes


class _Parts(events.Listener):
    """Listener that makes code without a dispatcher, such as loop bodies, a `_Part` until `end` is called."""

    def __init__(self, codegen: Any) -> None:
        self._codegen, self._depth = codegen, 0
        codegen._library_class = _Part

    def on_start(self, event: Any) -> None:
        """A loop calls a function that is not compiled yet. It gets a normal library, as it may have other callers."""
        self.end()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        """The called function is compiled."""
        self._depth -= 1
        if self._depth == 0:
            self._codegen._library_class = _Part

    def end(self) -> None:
        """Restore numba's normal libraries."""
        vars(self._codegen).pop("_library_class", None)


@register_pass(mutates_CFG=True, analysis_only=False)
class _LoopLowering(NativeParforLowering):
    """Lowering of `prange` loops whose bodies become parts."""

    _name = "batchnav_loop_lowering"

    def run_pass(self, state) -> bool:
        codegen = state.targetctx.codegen()
        state.library = _Kernel(codegen, state.func_id.func_qualname)
        state.library.enable_object_caching()
        state.flags.no_compile = True  # inherited by loop bodies
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
    """Pauses the garbage collector while numba compiles: its millions of objects live until the compilation ends."""

    def on_start(self, event: Any) -> None:
        """A compilation step begins, possibly nested."""
        collector.pause()

    def on_end(self, event: Any) -> None:
        """The compilation step ends."""
        collector.resume()


events.register("numba:compiler_lock", _Collector())  # also taken by the CUDA compiler, which has separate events
