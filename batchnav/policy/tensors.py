"""Tensors that files hold: where pretrained weights come from, and checks of names, shapes, types and values."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

from batchnav.errors import CheckpointError
from batchnav.runtime.kernels.arrays import is_dense, tensor_text

DTYPES = (torch.float32, torch.bfloat16)
"""Types of weights in a file; networks have float32."""


class Source(NamedTuple):
    """Origin of pretrained weights, as policy files and model cards name it."""

    model: str
    """Name of the model in timm, with the tag of its weights; or of our own, as `vision.source_of_width` has it."""
    weights: str
    """Name of the file that the weights were read from, or "random"."""
    sha256: str
    """SHA-256 of that file; "" for random weights."""
    licence: str
    """Licence of the weights, as timm names it; "" for none."""


def check_names_and_shapes(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], source: str) -> None:
    """CheckpointError where names, shapes or types of tensors differ from the expected ones; it begins with `source`.

    Weights may be float32 or bfloat16.
    """
    for name, value in expected.items():
        if name not in found:
            raise CheckpointError(f"{source}: lacks tensor {name!r}, expected {list(value.shape)}")
        dtypes = DTYPES if value.is_floating_point() else (value.dtype,)
        fits = isinstance(found[name], torch.Tensor) and is_dense(found[name])
        if not fits or found[name].shape != value.shape or found[name].dtype not in dtypes:
            raise CheckpointError(
                f"{source}: tensor {name!r} is {tensor_text(found[name])}, "
                f"expected {' or '.join(map(str, dtypes))} {list(value.shape)}"
            )
    if extra := found.keys() - expected.keys():
        raise CheckpointError(f"{source}: tensor {min(extra)!r} is not part of this policy")


def check_finite(tensors: dict[str, torch.Tensor], path: Path) -> None:
    """CheckpointError for a tensor with NaN or infinite values."""
    for name, value in tensors.items():
        if value.is_floating_point() and not torch.isfinite(value).all():
            raise CheckpointError(f"{path}: tensor {name!r} holds values that are not finite")
