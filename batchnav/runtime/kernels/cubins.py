"""Machine code of CUDA kernels, kept on disk as that of the CPU's is."""

from __future__ import annotations

import functools
import hashlib
import logging
import pickle
import sys
import zlib
from importlib import metadata
from pathlib import Path
from typing import Any

from numba.core.caching import NullCache

from batchnav.errors import ArgumentError
from batchnav.runtime.files.cache import versioned_cache_folder

COMPILERS = (
    "numba-cuda", "llvmlite", "cuda-core", "cuda-bindings",
    "nvidia-nvvm", "nvidia-nvjitlink", "nvidia-cuda-nvcc-cu12", "nvidia-nvjitlink-cu12",
)  # fmt: skip
"""Distributions that a kernel's code comes from. Of another toolkit numba-cuda tells the version."""
log = logging.getLogger(__name__)


class Cubins(NullCache):
    """What numba-cuda asks for a kernel's code before it compiles it, and gives it to afterwards.

    In place of its own `cache=True`, which notices no edit in another file, and numbers its files: where processes
    compile at once, one may find another kernel under a number. Here a file is named after all that it is made of.
    """

    def __init__(self, dispatcher: Any) -> None:
        self._dispatcher = dispatcher

    def load_overload(self, argument_types: tuple, target_context: Any) -> Any | None:
        """The kernel for these types, in the driver's hands; None where there is none, or a damaged one."""
        try:
            kept = self._path(argument_types, target_context.codegen()).read_bytes()
            kernel = pickle.loads(zlib.decompress(kept))  # which looks at a check sum
        except (OSError, zlib.error, AttributeError, ImportError):  # the latter two: an argument's class has moved
            return None
        kernel.bind()
        return kernel

    def save_overload(self, argument_types: tuple, kernel: Any) -> None:
        """Keep a kernel that was compiled; a warning where it cannot be, as on a full disk."""
        # Not above: every kernel, navmesh and tree would be made anew when that module changes, or `config`.
        from batchnav.runtime.files.atomic import replacing

        path = self._path(argument_types, kernel.codegen)
        try:
            with replacing(path, ArgumentError, make_folder=False, durable=False) as part:
                part.write_bytes(zlib.compress(pickle.dumps(kernel), 1))  # most of it is LLVM's text
        except (ArgumentError, RuntimeError, pickle.PicklingError) as error:  # the latter two: it links others' code
            log.warning("%s: found %s, will be compiled again", self._dispatcher.py_func.__qualname__, error)

    def _path(self, argument_types: tuple, codegen: Any) -> Path:
        function, options = self._dispatcher.py_func, sorted(self._dispatcher.targetoptions.items())
        # `magic_tuple`: the toolkit's version and the device's compute capability
        what = f"{_described(argument_types)} {options} {codegen.magic_tuple()} {_versions()}"
        name = f"{function.__qualname__}-{hashlib.sha256(what.encode()).hexdigest()[:32]}.cubin"
        return versioned_cache_folder("kernels", function.__module__) / name


def _described(kinds: tuple) -> list:
    """Types, and of NamedTuples the fields' names, which their text lacks: a kernel finds a field by its place."""
    return [(str(kind), getattr(kind, "fields", ()), _described(getattr(kind, "types", ()))) for kind in kinds]


@functools.cache
def _versions() -> str:
    """Of Python, whose pickles these are, and of the compilers."""
    return f"{sys.version_info[:2]} {[(name, _version(name)) for name in COMPILERS]}"


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
