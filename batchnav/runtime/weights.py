"""Weights in safetensors files: writing and reading, checks of names, shapes, types and values, and their origin."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from batchnav.errors import CheckpointError
from batchnav.runtime.bundled import check_bundled
from batchnav.runtime.files import open_tensors, replacing, safetensors_bytes, tensor_errors
from batchnav.runtime.kernels.arrays import is_dense, tensor_text

DTYPES = (torch.float32, torch.bfloat16)
"""Types of weights in a file; networks have float32."""
MAX_METADATA = 2**20
"""Limit of a file's metadata, characters."""


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


def save_weights(path: Path, network: torch.nn.Module, metadata: Mapping[str, str]) -> None:
    """Write a network's weights in bfloat16, atomically. CheckpointError where that fails or a weight is not finite."""
    tensors = {
        name: value.detach().to("cpu", torch.bfloat16 if value.is_floating_point() else value.dtype).contiguous()
        for name, value in network.state_dict().items()
    }
    check_finite(tensors, path)
    with replacing(path, CheckpointError) as part:
        part.write_bytes(safetensors_bytes(tensors, dict(metadata)))


def read_weights(
    path: Path, file_format: str | None, expected: str = "expected weights in safetensors format"
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Tensors and metadata of a file.

    CheckpointError where it cannot be read, differs from the manifest, or has another `format` in its metadata than
    `file_format` (None: any). `expected` ends the message for a file without weights.
    """
    check_bundled(path, CheckpointError)
    try:
        with open_tensors(path, CheckpointError) as file:
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
    except tensor_errors() as error:
        raise CheckpointError(f"{path}: found no weights ({error}), {expected}") from error
    if file_format is not None and metadata.get("format") != file_format:
        raise CheckpointError(f"{path}: format is {metadata.get('format')!r}, expected {file_format!r}")
    if sum(map(len, metadata.values())) > MAX_METADATA:
        raise CheckpointError(f"{path}: has more than {MAX_METADATA:,} characters of metadata")
    return found, metadata


def read_settings(path: Path, text: str | None, most_categories: int) -> dict[str, Any]:
    """Settings of a network that names categories, from its metadata in JSON: "categories", "info" and others.

    CheckpointError for other metadata, and for no categories or more than this number.
    """
    try:
        settings = dict(json.loads(text or ""))
        categories, settings["info"] = settings["categories"], dict(settings["info"])
        if not isinstance(categories, list) or not all(isinstance(each, str) for each in categories):
            raise ValueError("categories that are no texts")
        if not 1 <= len(categories) <= most_categories:
            raise ValueError(f"{len(categories)} categories")
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path}: damaged metadata ({type(error).__name__}: {error})") from error
    return settings


def check_names_and_shapes(
    found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], source: str
) -> None:
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
        raise CheckpointError(f"{source}: tensor {min(extra)!r} is not part of this network")


def check_finite(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """CheckpointError for a tensor with NaN or infinite values."""
    for name, value in tensors.items():
        if value.is_floating_point() and not torch.isfinite(value).all():
            raise CheckpointError(f"{path}: tensor {name!r} holds values that are not finite")
