"""Construction that does not depend on the caller's settings of PyTorch.

A program may call `torch.set_default_dtype` or `torch.set_default_device`, or run under `torch.inference_mode`:

* Tensors of this package name their dtype and device.
* Networks are made under `torch_defaults`.
* Constructors of everything that keeps tensors switch inference mode off (`@torch.inference_mode(False)`).
"""

from __future__ import annotations

import contextlib
import getpass
import os
from collections.abc import Iterator
from typing import TypeVar

import torch

from batchnav.runtime.cache import cache_folder, private_folder


@contextlib.contextmanager
def torch_defaults(device: str | torch.device = "cpu") -> Iterator[None]:
    """Context, or decorator, in which modules are made in float32, on `device`, with inference mode off."""
    saved = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.inference_mode(False), torch.device(device):
            yield
    finally:
        torch.set_default_dtype(saved)


# The one place that switches torch.compile on

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
