"""U-Nets (Ronneberger, Fischer and Brox, MICCAI 2015) for maps and images: layers, inference form, weights."""

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
from batchnav.runtime.device import torch_defaults
from batchnav.runtime.weights import check_finite, check_names_and_shapes


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


def set_weights(model: UNet, found: Mapping[str, torch.Tensor], path: Path) -> None:
    """Give a network the weights of a file. CheckpointError where they are those of another one, or not finite."""
    check_names_and_shapes(found, model.state_dict(), f"{path}")
    check_finite(found, path)
    for name, value in found.items():
        if name.endswith("running_var") and (value < 0).any():
            raise CheckpointError(f"{path}: tensor {name!r} holds a negative variance")
    model.load_state_dict(dict(found))
    if not all(value.isfinite().all() for value in folded(model).state_dict().values()):
        raise CheckpointError(f"{path}: found weights that are too large for float32 with their norms")
