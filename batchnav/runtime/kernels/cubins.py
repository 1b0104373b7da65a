"""Disk cache for the machine code of CUDA kernels."""

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
from batchnav.runtime.cache import versioned_cache_folder

COMPILERS = (
    "numba-cuda", "llvmlite", "cuda-core", "cuda-bindings",
    "nvidia-nvvm", "nvidia-nvjitlink", "nvidia-cuda-nvcc-cu12", "nvidia-nvjitlink-cu12",
)  # fmt: skip
"""Distributions whose versions are part of the cache key. numba-cuda reports the version of any other toolkit."""
log = logging.getLogger(__name__)


class CubinCache(NullCache):
    """Cache of a kernel: numba-cuda looks it up before it compiles, and stores the result in it.

    It replaces numba's `cache=True`, which misses edits in imported files and numbers its files, so that processes that
    compile at the same time may load a wrong kernel. Here the file name is a hash of everything the code depends on.
    """

    def __init__(self, dispatcher: Any) -> None:
        self._dispatcher = dispatcher

    def load_overload(self, argument_types: tuple, target_context: Any) -> Any | None:
        """The kernel for these types, loaded into the driver; None where it is missing or damaged."""
        try:
            kept = self._path(argument_types, target_context.codegen()).read_bytes()
            kernel = pickle.loads(zlib.decompress(kept))  # verifies a checksum
        except (OSError, zlib.error, AttributeError, ImportError):  # the last two: the class of an argument has moved
            return None
        kernel.bind()
        return kernel

    def save_overload(self, argument_types: tuple, kernel: Any) -> None:
        """Store a compiled kernel; logs a warning on failure, as on a full disk."""
        # Imported here, so that kernels, navmeshes and BVHs in the cache do not depend on that module and on `config`.
        from batchnav.runtime.files import replacing

        path = self._path(argument_types, kernel.codegen)
        try:
            with replacing(path, ArgumentError, make_folder=False, durable=False) as part:
                part.write_bytes(zlib.compress(pickle.dumps(kernel), 1))  # mostly LLVM text
        except (ArgumentError, RuntimeError, pickle.PicklingError) as error:  # the last two: it links external code
            log.warning("%s: not cached (%s), will be compiled again", self._dispatcher.py_func.__qualname__, error)

    def _path(self, argument_types: tuple, codegen: Any) -> Path:
        function, options = self._dispatcher.py_func, sorted(self._dispatcher.targetoptions.items())
        # `magic_tuple`: the toolkit's version and the device's compute capability
        what = f"{_described(argument_types)} {options} {codegen.magic_tuple()} {_versions()}"
        name = f"{function.__qualname__}-{hashlib.sha256(what.encode()).hexdigest()[:32]}.cubin"
        return versioned_cache_folder("kernels", function.__module__) / name


def _described(kinds: tuple) -> list:
    """Types with the field names of NamedTuples; code addresses fields by position, and the types' text omits names."""
    return [(str(kind), getattr(kind, "fields", ()), _described(getattr(kind, "types", ()))) for kind in kinds]


@functools.cache
def _versions() -> str:
    """Versions of Python, which determines the pickle format, and of the compilers."""
    return f"{sys.version_info[:2]} {[(name, _version(name)) for name in COMPILERS]}"


def _version(distribution: str) -> str | None:
    """Version of an installed distribution; None if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
