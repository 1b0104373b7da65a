"""U-Nets (Ronneberger, Fischer and Brox, MICCAI 2015) for maps and images: layers, inference form, weights files."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from batchnav.errors import CheckpointError
from batchnav.runtime.bundled import check_bundled
from batchnav.runtime.device import torch_defaults
from batchnav.runtime.files import open_tensors, replacing, safetensors_bytes, tensor_errors

_DTYPES = (torch.float32, torch.bfloat16)
"""Types of weights in a file; the network has float32."""


class UNet(nn.Module):
    """U-Net from f32 [B, planes, H, W] to [B, outputs, H / 2, W / 2]; sides are multiples of 2^levels.

    Args:
        planes: number of input planes; cells of 2 x 2 pixels are the channels of the first level.
        outputs: number of output channels.
        widths: channels per level, from half the input's resolution to the coarsest.
    """

    @torch_defaults()
    def __init__(self, planes: int, outputs: int, widths: Sequence[int]) -> None:
        super().__init__()
        pairs = list(itertools.pairwise(widths))
        self.down = nn.ModuleList([_two_layers(4 * planes, widths[0]), *(_two_layers(a, b) for a, b in pairs)])
        self.up = nn.ModuleList([_two_layers(b + a, a) for a, b in pairs])
        self.out = nn.Conv2d(widths[0], outputs, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Encoder, then decoder with skip connections."""
        levels = [self.down[0](functional.pixel_unshuffle(x, 2))]
        for layers in self.down[1:]:
            levels.append(layers(functional.max_pool2d(levels[-1], 2)))
        x = levels.pop()
        for layers in reversed(self.up):
            x = layers(torch.cat([functional.interpolate(x, scale_factor=2, mode="nearest"), levels.pop()], 1))
        result: torch.Tensor = self.out(x)
        return result


Net = TypeVar("Net", bound=UNet)


def _two_layers(inputs: int, outputs: int) -> nn.Sequential:
    """Two 3x3 convolutions, each with batch normalisation and ReLU."""
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(True)]
    return nn.Sequential(*layers)


def _fused(layers: nn.Module) -> nn.Sequential:
    """The layers with batch normalisation folded into the convolutions, for inference."""
    parts: list[Any] = list(layers.children())
    fused = [(fuse_conv_bn_eval(parts[k], parts[k + 1]), parts[k + 2]) for k in range(0, len(parts), 3)]
    return nn.Sequential(*(layer for pair in fused for layer in pair))


def folded(model: Net) -> Net:
    """The network for inference: batch normalisation is folded into the convolutions."""
    model = copy.deepcopy(model).eval().requires_grad_(False)
    model.down, model.up = (nn.ModuleList(map(_fused, parts)) for parts in (model.down, model.up))
    return model


def save_weights(path: Path, model: UNet, metadata: Mapping[str, str]) -> None:
    """Write weights in bfloat16, atomically. CheckpointError where that fails."""
    weights = {
        name: value.to("cpu", torch.bfloat16 if value.is_floating_point() else value.dtype).contiguous()
        for name, value in model.state_dict().items()
    }
    with replacing(path, CheckpointError) as part:
        part.write_bytes(safetensors_bytes(weights, dict(metadata)))


def read_weights(path: Path, expected: str) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Tensors and metadata of a file; `expected` ends messages. CheckpointError for a file without weights."""
    check_bundled(path, CheckpointError)
    try:
        with open_tensors(path, CheckpointError) as file:
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return found, file.metadata() or {}
    except tensor_errors() as error:
        raise CheckpointError(f"{path}: found no weights ({error}), {expected}") from error


def set_weights(model: UNet, found: Mapping[str, torch.Tensor], path: Path, expected: str) -> None:
    """Give a network the weights of a file. CheckpointError where they are those of another one, or not finite."""
    wanted = model.state_dict()
    if other := found.keys() ^ wanted.keys():
        raise CheckpointError(f"{path}: found an unknown or missing tensor {min(other)!r}, {expected}")
    for name, value in wanted.items():
        given = found[name]
        dtypes = _DTYPES if value.is_floating_point() else (value.dtype,)
        if given.shape != value.shape or given.dtype not in dtypes:
            raise CheckpointError(f"{path}: {name}: found {given.dtype} {list(given.shape)}, {expected}")
        if not given.isfinite().all():
            raise CheckpointError(f"{path}: {name}: found values that are not finite, {expected}")
        if name.endswith("running_var") and (given < 0).any():
            raise CheckpointError(f"{path}: {name}: found a negative variance, {expected}")
    model.load_state_dict(dict(found))
    if not all(value.isfinite().all() for value in folded(model).state_dict().values()):
        raise CheckpointError(f"{path}: found weights that are too large for float32 with their norms, {expected}")
