"""Construction that does not depend on the caller's settings of PyTorch.

A program may call `torch.set_default_dtype` or `torch.set_default_device`, or run under `torch.inference_mode`:

* Tensors of this package name their dtype and device.
* Networks are made under `torch_defaults`.
* Constructors of everything that keeps tensors switch inference mode off (`@torch.inference_mode(False)`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


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
