"""Faster equivalents of what numba does for each variable, look-up of a function and call of LLVM while it compiles.

Compiled code stays the same, bit for bit.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir
from llvmlite.binding import ffi
from numba.core.base import BaseContext
from numba.core.targetconfig import TargetConfig


@functools.cache
def _defaults(kind: type[TargetConfig]) -> dict[str, Any]:
    """Default values of the options of a kind of compiler flags."""
    return {name: option.default for name, option in kind.options.items()}


def _values(self: TargetConfig) -> dict[str, Any]:
    """Values of all options. numba calls a property for each one, at each look-up of a function's implementation."""
    return _defaults(type(self)) | self._values


_sizes: dict[tuple[Any, str], int] = {}
"""Sizes of LLVM types in bytes, by data layout and type."""


def _size(self: BaseContext, kind: ir.Type) -> int:
    """Size of an LLVM type in bytes. numba writes and parses a module to find it, for each variable."""
    key = self.target_data, str(kind)
    if key not in _sizes:
        _sizes[key] = kind.get_abi_size(self.target_data)
    return _sizes[key]


TargetConfig.values = _values  # type: ignore[method-assign]
BaseContext.get_abi_sizeof = _size  # type: ignore[method-assign]
ffi.lib._lock._cblist.clear()  # numba's two events for each call of LLVM, for listeners that measure it
