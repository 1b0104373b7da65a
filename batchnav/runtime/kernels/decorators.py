"""Decorators that compile one source for CPU and CUDA. Only this module imports numba's CUDA target.

* `device_function`: the work for one item, which CPU and CUDA kernels call. It must not have an explicit signature.
* `cpu_kernel`: a `prange` loop over items. Its machine code is cached on disk in a folder named after a hash of all
  sources it depends on; numba's own cache misses edits in imported files. One process compiles, the others wait
  (`runtime/kernels/compile_lock.py`).
* `lean_kernel`: a `cpu_kernel` that allocates no memory.
* `cuda_kernel`: the same loop as a CUDA grid, cached in the same folder, compiled by one process as well.
  `runtime/kernels/launch.py` starts it.
"""

from __future__ import annotations

import io
import pickle
import sys

import numba
from numba import cuda, types
from numba.core.caching import IndexDataCacheFile

from batchnav.runtime.cache import versioned_cache_folder
from batchnav.runtime.kernels.compile_lock import compiled_once
from batchnav.runtime.kernels.compiler import LoopCompiler, PartCompiler, SeparateCompiler
from batchnav.runtime.kernels.cubins import CubinCache
from batchnav.runtime.kernels.forks import refused_after_fork

_OPTIONS = {"error_model": "numpy", "fastmath": False, "no_cfunc_wrapper": True}
"""Compile options of every CPU function. A function without an explicit `fastmath` would take the setting of its first
caller in the process, and its results would depend on the order of compilation. `intrinsics.fma` fuses a multiplication
and an addition where that pays. No C code calls CPU functions, so they need no C wrapper."""


def _not_for_literals(dispatcher):
    """Make numba treat literal arguments (0, True) by their type, instead of compiling once per literal value."""

    def get_call_template(args, kws):
        args, kws = [types.unliteral(arg) for arg in args], {key: types.unliteral(arg) for key, arg in kws.items()}
        return type(dispatcher).get_call_template(dispatcher, args, kws)

    dispatcher.get_call_template = get_call_template
    return dispatcher


def _called_by_kernels(compiler=PartCompiler, **options):
    """Decorator of functions that only compiled code calls.

    It omits the wrapper that unpacks Python objects, which takes a third of the compile time with NamedTuples of
    arrays.
    """

    def decorate(function):
        def refuse(*args, **kwargs):
            raise TypeError(f"{function.__name__}: called from Python, expected a call from a compiled function")

        dispatcher = numba.njit(**_OPTIONS, **options, no_cpython_wrapper=True, pipeline_class=compiler)(function)
        # Without these two assignments a call from Python would jump into the omitted wrapper.
        dispatcher._insert = lambda *entry, **kwargs: None
        dispatcher._compile_for_args = refuse
        return _not_for_literals(dispatcher)

    return decorate


def device_function(function):
    """Compile the work for one item. Python can call it too, through a separate compilation."""
    dispatcher = _called_by_kernels()(function)
    dispatcher._compile_for_args = numba.njit(**_OPTIONS)(function)._compile_for_args
    return dispatcher


lean_function = _called_by_kernels(_nrt=False)
"""A `device_function` without reference counting, for arguments that are NamedTuples of arrays. Counting the references
of every array in each call makes searches on the CPU 2 to 3 times slower. It must not allocate memory or be called from
Python."""
separate_function = _called_by_kernels(SeparateCompiler, _nrt=False, forceinline=False)
"""A `lean_function` that is never inlined, for long searches and rare cases: a kernel with several calls of it has its
machine code once, and compiles faster. Each call passes seven words per array."""
inline_function = _called_by_kernels(_nrt=False, forceinline=True)
"""A `lean_function` that is inlined into its caller, for frequent calls with NamedTuples of arrays. A call that is not
inlined passes seven words per array; with reference counting it is 10 times slower on the CPU."""


class _Index(IndexDataCacheFile):
    """List of a kernel's compiled forms, which names the types of their arguments, such as records of a user's task.

    Each form is pickled by itself. One with types of modules that this process has not imported keeps its place in the
    list: no call here has such types, and an import could run a user's program.
    """

    def _load_index(self):
        """File names by form, or by the form's pickled bytes where its types are unknown here."""
        try:
            with open(self._index_path, "rb") as file:
                version, forms = pickle.load(file)
        except FileNotFoundError:
            return {}
        return dict(map(_unpacked, forms)) if version == self._version else {}

    def _save_index(self, overloads):
        forms = [(form if isinstance(form, bytes) else self._dump(form), name) for form, name in overloads.items()]
        with self._open_for_write(self._index_path) as file:
            pickle.dump((self._version, forms), file, protocol=-1)


class _Known(pickle.Unpickler):
    """Reads objects whose classes are in modules that this process has imported. ImportError for others."""

    def find_class(self, module, name):
        if module not in sys.modules:
            raise ImportError(f"{module}: not imported")
        return super().find_class(module, name)


def _unpacked(entry):
    packed, name = entry
    try:
        return _Known(io.BytesIO(packed)).load(), name
    except (ImportError, AttributeError):
        return packed, name


def _kept_on_disk(decorate, function):
    """Decorate a function so that numba caches it in our cache folder; numba reads that setting while decorating.

    The folder's name contains a hash of this package's sources. So numba need not check their path and date, and
    another installation of the same sources finds the machine code.
    """
    folder = str(versioned_cache_folder("kernels", function.__module__))
    saved, numba.config.CACHE_DIR = numba.config.CACHE_DIR, folder
    try:
        decorated = decorate(function)
    finally:
        numba.config.CACHE_DIR = saved
    if numba.config.DISABLE_JIT:
        return decorated
    if function.__module__.startswith("batchnav."):
        cache = decorated._cache
        cache._cache_file = _Index(folder, cache._impl.filename_base, source_stamp=None)
    return compiled_once(decorated)


def _loop_kernel(**options):
    """Decorator of functions with `prange` loops."""

    def decorate(function):
        compiler = numba.njit(**_OPTIONS, **options, parallel=True, cache=True, pipeline_class=LoopCompiler)
        kernel = _kept_on_disk(compiler, function)
        return kernel if numba.config.DISABLE_JIT else refused_after_fork(kernel)

    return decorate


cpu_kernel = _loop_kernel()
"""Compile a function with `prange` loops for all CPU threads; cached on disk."""
lean_kernel = _loop_kernel(_nrt=False)
"""A `cpu_kernel` without reference counting, which compiles faster. It must not allocate memory."""


def cpu_function(function):
    """Compile a serial function for the CPU (tree building, baking); cached on disk. It releases Python's lock."""
    return _kept_on_disk(numba.njit(**_OPTIONS, cache=True, nogil=True), function)


def _with_cubins(kernel, function):
    """Cache a CUDA kernel's machine code on disk, if it depends on the sources of this package only."""
    from_package = function.__module__.startswith("batchnav.") and not function.__closure__
    if from_package and not numba.config.ENABLE_CUDASIM:
        kernel._cache = CubinCache(kernel)
        return compiled_once(kernel)
    return kernel


def cuda_kernel(function, max_registers=None, lto=None):
    """Compile a function as a CUDA kernel at its first launch; cached on disk. `launch` starts it.

    Args:
        function: the kernel.
        max_registers: limit of registers per thread, to raise occupancy.
        lto: link-time optimisation; None: on where available. With it divisions are subroutine calls (numba-cuda
            0.30.4) instead of the few instructions of `fastmath`.
    """
    # The CUDA simulator runs Python and accepts neither option. `cuda.jit(...)(function)` would ignore `lto`.
    options = {} if numba.config.ENABLE_CUDASIM else {"max_registers": max_registers, "lto": lto}
    return _with_cubins(cuda.jit(function, fastmath=True, **options), function)


def exact_cuda_kernel(function):
    """A `cuda_kernel` with IEEE square roots and divisions, so that equal path lengths compare equal as on the CPU."""
    return _with_cubins(cuda.jit(function), function)
