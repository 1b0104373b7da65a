"""Check whether a device, the installation and Triton's version support this package's Triton kernels."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import shutil

import torch

CAPABILITY = 8, 0
"""Lowest compute capability with bfloat16 matrix products."""
OLDEST = 3, 5
"""Lowest Triton version, included in torch 2.9: the first whose products may have fewer than 16 rows."""


def has_triton(device: torch.device) -> bool:
    """True where a device is a GPU with bfloat16 products and Triton can compile for it.

    A module calls this when it moves to a device, and stores the result, since compiled code cannot call it.
    """
    return device.type == "cuda" and _is_installed() and torch.cuda.get_device_capability(device) >= CAPABILITY


@functools.cache
def _is_installed() -> bool:
    """True where a recent Triton is installed, and the C compiler that it needs for its first kernel."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    return compiler is not None and importlib.util.find_spec("triton") is not None and _version() >= OLDEST


def _version() -> tuple[int, ...]:
    """Major and minor version of Triton."""
    return tuple(map(int, importlib.import_module("triton").__version__.split(".")[:2]))
