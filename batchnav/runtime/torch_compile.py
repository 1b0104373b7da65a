"""The one place that switches torch.compile on."""

from __future__ import annotations

import getpass
import os
from typing import TypeVar

import torch

from batchnav.runtime.files.cache import cache_folder, private_folder

Part = TypeVar("Part")
CACHE = "TORCHINDUCTOR_CACHE_DIR"
"""Environment variable with PyTorch's folder for compiled code."""


def compiled(part: Part) -> Part:
    """A function, or a module in place, run through torch.compile for static shapes."""
    _choose_cache()
    if isinstance(part, torch.nn.Module):
        part.compile(dynamic=False)
        return part
    return torch.compile(part, dynamic=False)  # type: ignore[call-overload]


def _choose_cache() -> None:
    """Put PyTorch's cache into ours where the user has no name: PyTorch 2.6 needs one for its own choice."""
    if CACHE in os.environ:
        return
    try:
        getpass.getuser()
    except (KeyError, OSError, ImportError):  # no variable such as USER, no entry in the passwd file
        os.environ[CACHE] = str(private_folder(private_folder(cache_folder()) / "torch"))
