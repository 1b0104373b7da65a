"""Whether kernels in Triton can run."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import shutil

import torch

CAPABILITY = 8, 0
"""The least that a GPU needs for products in bfloat16."""
OLDEST = 3, 5
"""The first Triton whose products may have fewer than 16 rows, as the encoder's have; torch 2.9 brings it."""


def has_triton(device: torch.device) -> bool:
    """Whether a device is a GPU that runs kernels in Triton with products in bfloat16, and Triton is there.

    A module asks when it goes to a device, and its `forward` reads what was said: compiled code cannot ask.
    """
    return device.type == "cuda" and _is_installed() and torch.cuda.get_device_capability(device) >= CAPABILITY


@functools.cache
def _is_installed() -> bool:
    """Whether a Triton of today is there, and the C compiler that it needs before it runs its first kernel."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    return compiler is not None and importlib.util.find_spec("triton") is not None and _version() >= OLDEST


def _version() -> tuple[int, ...]:
    """Triton's, as (3, 5)."""
    return tuple(map(int, importlib.import_module("triton").__version__.split(".")[:2]))
