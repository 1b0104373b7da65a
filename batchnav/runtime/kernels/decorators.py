"""Kernels from one source, and the one place that imports numba's CUDA.

Three decorators:

* `device_function`: the work for one item; callable from both forms below, never compiled with a fixed signature.
* `cpu_kernel`: a `prange` loop over items. Its machine code is kept on disk, in a folder named after a hash of the
  sources it is made of, since numba's own cache does not notice an edit in another file. One process makes it, others
  wait (`runtime.once`).
* `cuda_kernel`: the same loop as a CUDA grid, kept in the same folder; `runtime.launch` starts it on torch's current
  stream.
"""

from __future__ import annotations

import numba
from numba import cuda, types

from batchnav.runtime.files.cache import versioned_cache_folder
from batchnav.runtime.kernels.compile_lock import compiled_once
from batchnav.runtime.kernels.compiler import LoopCompiler, PartCompiler
from batchnav.runtime.kernels.cubins import Cubins

_OPTIONS = {"error_model": "numpy", "no_cfunc_wrapper": True}
"""Of all that runs on the CPU; no C code calls it."""


def _not_for_literals(dispatcher):
    """Have a number that a caller writes out, as 0 or True, be one of its type: numba compiles for each number anew."""

    def get_call_template(args, kws):
        args, kws = [types.unliteral(arg) for arg in args], {key: types.unliteral(arg) for key, arg in kws.items()}
        return type(dispatcher).get_call_template(dispatcher, args, kws)

    dispatcher.get_call_template = get_call_template
    return dispatcher


def _called_by_kernels(**options):
    """Decorator of functions that only compiled code calls.

    They do without the code that takes arguments out of Python's objects, which for NamedTuples of arrays is a third
    of the time to compile.
    """

    def decorate(function):
        def refuse(*args, **kwargs):
            raise TypeError(f"{function.__name__}: called from Python, expected a call from a compiled function")

        dispatcher = numba.njit(**_OPTIONS, **options, no_cpython_wrapper=True, pipeline_class=PartCompiler)(function)
        # Without these two a call from Python would jump to the code that is not there.
        dispatcher._insert = lambda *entry, **kwargs: None
        dispatcher._compile_for_args = refuse
        return _not_for_literals(dispatcher)

    return decorate


def device_function(function):
    """The work for one item, which Python can call too, by code of its own."""
    dispatcher = _called_by_kernels()(function)
    dispatcher._compile_for_args = numba.njit(**_OPTIONS)(function)._compile_for_args
    return dispatcher


lean_function = _called_by_kernels(_nrt=False)
"""A `device_function` without reference counting, for those that take NamedTuples of arrays: a call would count every
array's references (measured on the CPU: searches 2 to 3 times slower). May not allocate, nor be called from Python."""
inline_function = _called_by_kernels(_nrt=False, forceinline=True)
"""A `lean_function` whose code goes into its caller. For those that take NamedTuples and are called once per item, or
more: a real call hands every array over as seven words (measured on the CPU: with the counting, 10 times slower)."""
exact_function = _called_by_kernels(_nrt=False, forceinline=True, fastmath=False)
"""An `inline_function` that gives the same bits in every kernel. Without `fastmath` a function takes that of its first
caller, so whether a product and a sum become one instruction depends on what a process happened to compile first."""


def _kept_on_disk(decorate, function):
    """Decorate while numba's cache points at our folder: numba reads the setting once, when it decorates."""
    saved, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(versioned_cache_folder("kernels", function.__module__))
    try:
        decorated = decorate(function)
    finally:
        numba.config.CACHE_DIR = saved
    return decorated if numba.config.DISABLE_JIT else compiled_once(decorated)


def cpu_kernel(function):
    """Compile a function with `prange` loops for all CPU threads; cached on disk."""
    decorate = numba.njit(**_OPTIONS, parallel=True, cache=True, fastmath={"contract"}, pipeline_class=LoopCompiler)
    return _kept_on_disk(decorate, function)


def cpu_function(function):
    """Compile a serial function for the CPU (tree building, baking); cached on disk."""
    return _kept_on_disk(numba.njit(**_OPTIONS, cache=True), function)


def _with_cubins(kernel, function):
    """Have a CUDA kernel's code kept on disk, where it is made of this package's sources alone."""
    of_sources = function.__module__.startswith("batchnav.") and not function.__closure__
    if of_sources and not numba.config.ENABLE_CUDASIM:
        kernel._cache = Cubins(kernel)
    return kernel


def cuda_kernel(function, max_registers=None, lto=None):
    """Compile a function as a CUDA kernel, at its first launch; cached on disk. Start it with `launch`.

    `max_registers`: of a thread, where fewer than the compiler would take let more threads work at a time. `lto`:
    whether it is optimised when it is linked, as it is by default where it can be; divisions then are subroutines
    (numba-cuda 0.30.4), where `fastmath` has a few instructions.
    """
    # The simulator runs Python, and knows nothing of either. jit(...)(function) would lose `lto`.
    options = {} if numba.config.ENABLE_CUDASIM else {"max_registers": max_registers, "lto": lto}
    return _with_cubins(cuda.jit(function, fastmath=True, **options), function)


def exact_cuda_kernel(function):
    """A `cuda_kernel` with IEEE roots and divisions, so that equal paths compare equal as they do on the CPU."""
    return _with_cubins(cuda.jit(function), function)
