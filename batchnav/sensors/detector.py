"""Object detector: a network that finds objects of some categories in colour and depth, pixel by pixel.

    rgb, depth, lens, camera height and pitch -- `encoded` -- U-Net -- probability of each category at half resolution

Depth enters as geometry that does not depend on the camera: size of a pixel's footprint, height above the floor and
surface normal in a frame aligned with gravity, after HHA (Gupta, Girshick, Arbelaez and Malik, ECCV 2014).
`batchnav train detector` trains it on renders.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from batchnav.errors import ConfigError
from batchnav.observation import Frame
from batchnav.runtime.bundled import find_encoder
from batchnav.runtime.device import compiled, torch_defaults
from batchnav.runtime.weights import read_settings, read_weights, save_weights
from batchnav.sensors.unet import UNet, folded, set_weights

SCALE = 2
"""Rows (and columns) of the images per row (and column) of the masks."""
NEAREST, FARTHEST = 0.1, 10.0
"""Range of depth, metres; holes count as far."""
LEAST_SCORE = 0.5
"""Probability from which on a pixel belongs to a mask."""
FORMAT = "batchnav detector 1"
MAX_CATEGORIES = 256
"""Limit of a file."""
_PLANES, _WIDTHS = 8, (24, 48, 96, 128, 128)
"""Number of input planes; channels per level, from the masks' resolution to the coarsest."""
_CELL = 2 ** len(_WIDTHS)
"""Sides of the network's input are multiples of this."""
_LOWEST, _HIGHEST = -1.0, 4.0
"""Range of heights above the floor, metres."""
AT_ONCE = 1024
"""Largest number of images in a forward pass."""


BYTES_PER_PIXEL = 160
"""Estimated bytes of a forward pass per pixel of its images."""


class Views(NamedTuple):
    """What N cameras measure."""

    rgb: torch.Tensor
    """u8 [N, 3, H, W], or floats in 0..1."""
    depth: torch.Tensor
    """f32 [N, H, W]: planar depth, metres; 0 for holes."""
    tan_half_hfov: torch.Tensor
    """f32 [N], or f32 [N, 4], as in `sensors.sensor.Cameras`."""
    height: torch.Tensor
    """f32 [N]: height above the floor, metres."""
    pitch: torch.Tensor
    """f32 [N], radians, up is positive."""

    def rows(self, part: slice) -> Views:
        """Some of the cameras."""
        return Views(*(column[part] for column in self))


def views_of(frame: Frame, camera: str, rgb: torch.Tensor) -> Views:
    """The views of a frame's cameras with this name; `rgb`: colours at SCALE times their resolution."""
    cameras = frame.cameras(camera)
    height = cameras.position[:, 1] - frame.bodies.position[:, 1]
    return Views(rgb, frame.depth(camera, SCALE), cameras.tan_half_hfov, height, cameras.pitch)


class Geometry(NamedTuple):
    """Points of N images in a frame aligned with gravity, f32 [N, H, W] each, metres."""

    right: torch.Tensor
    up: torch.Tensor
    """Height above the floor."""
    ahead: torch.Tensor
    footprint: torch.Tensor
    """Half the width of the image plane at the point's depth."""


def points_of(views: Views) -> Geometry:
    """The visible points; those of holes are far away."""
    z = torch.where(views.depth > 0.0, views.depth, FARTHEST).clamp(NEAREST, FARTHEST)
    (height, width), lens = z.shape[1:], views.tan_half_hfov
    columns, rows = (torch.arange(n, dtype=torch.float32, device=z.device) for n in (width, height))
    u = (2.0 * columns + 1.0 - width)[None, None, :] / width
    v = (height - 1.0 - 2.0 * rows)[None, :, None] / width
    half = (lens if lens.ndim == 1 else lens[:, 0])[:, None, None]
    if lens.ndim == 2:
        aspect, across, rise = (lens[:, k, None, None] for k in (1, 2, 3))
        u, v = u + across, (v + rise) * aspect
    sine, cosine = torch.sin(views.pitch)[:, None, None], torch.cos(views.pitch)[:, None, None]
    v = v * half
    up = z * (sine + v * cosine) + views.height[:, None, None]
    return Geometry(z * u * half, up, z * (cosine - v * sine), z * half)


def encoded(views: Views) -> torch.Tensor:
    """Input planes of the network, f32 [N, 8, H, W]: colour, footprint, height, normal (right, up, back)."""
    rgb = views.rgb.float() / 127.5 - 1.0 if views.rgb.dtype == torch.uint8 else 2.0 * views.rgb - 1.0
    points = points_of(views)
    place = torch.stack([points.right, points.up, points.ahead], 1)
    padded = functional.pad(place, (1, 1, 1, 1), mode="replicate")
    across = padded[:, :, 1:-1, 2:] - padded[:, :, 1:-1, :-2]
    down = padded[:, :, 2:, 1:-1] - padded[:, :, :-2, 1:-1]
    normal = functional.normalize(torch.cross(across, down, dim=1), dim=1)
    normal = normal * torch.tensor([1.0, 1.0, -1.0], dtype=torch.float32, device=normal.device).view(1, 3, 1, 1)
    height = points.up.clamp(_LOWEST, _HIGHEST) - 1.0
    return torch.cat([rgb, points.footprint.log()[:, None], height[:, None], normal], 1)


class DetectorNet(UNet):
    """U-Net from `encoded` views [B, 8, H, W] to logits [B, 1 + C, H / 2, W / 2]; the first one is of no category.

    Args:
        categories: names of the C categories.
        info: values that JSON can hold, which the file keeps, such as how it was trained.
    """

    def __init__(self, categories: Sequence[str], info: Mapping[str, Any] | None = None):
        super().__init__(_PLANES, 1 + len(categories), _WIDTHS)
        self.categories, self.info = tuple(categories), dict(info or {})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits; sides that are no multiples of 32 are padded."""
        height, width = x.shape[2:]
        if height % _CELL or width % _CELL:
            x = functional.pad(x, (0, -width % _CELL, 0, -height % _CELL))
        return super().forward(x)[:, :, : height // SCALE, : width // SCALE]


class Detector:
    """Finds objects in batches: weights of `batchnav train detector`, without batch normalisation, on any device.

    Computes in bfloat16 on CUDA.

    Args:
        weights: a file, or the name of bundled weights.
    """

    def __init__(self, weights: str | Path):
        self._network = folded(load_detector(weights)).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.categories: tuple[str, ...] = self._network.categories
        """Names of the categories that it finds."""
        self._name, self._part = weights, self._scores

    def numbers_of(self, names: Sequence[str]) -> torch.Tensor:
        """Its numbers of these categories, i64. ConfigError for a category that it does not find."""
        if unknown := [name for name in names if name not in self.categories]:
            raise ConfigError(
                f"detector {self._name}: found {', '.join(self.categories)}, expected {', '.join(unknown)} among its "
                "categories, as the task asks for"
            )
        return torch.tensor([self.categories.index(name) for name in names], dtype=torch.int64, device="cpu")

    @torch.no_grad()
    def scores(self, views: Views) -> torch.Tensor:
        """Probability of each category, f32 [N, C, H / 2, W / 2]."""
        device, n = views.depth.device, len(views.depth)
        self._network.to(device, torch.bfloat16 if device.type == "cuda" else torch.float32)
        if device.type == "cuda" and n > AT_ONCE and self._part == self._scores:
            self._part = compiled(self._scores)  # takes 30 s, which pays for thousands
        parts = [self._part(views.rows(slice(first, first + AT_ONCE))) for first in range(0, n, AT_ONCE)]
        return torch.cat(parts)

    def _scores(self, views: Views) -> torch.Tensor:
        """Scores of few views, on the network's device."""
        planes = encoded(views).to(self._network.out.weight.dtype)
        logits = self._network(planes.contiguous(memory_format=torch.channels_last))
        return torch.softmax(logits.float(), 1)[:, 1:]

    def masks(self, views: Views, number: torch.Tensor) -> torch.Tensor:
        """Scores f32 [N, 1, H / 2, W / 2] of a category each, i64 [N]; those below LEAST_SCORE become 0."""
        scores = self.scores(views)
        found = scores.gather(1, number.view(-1, 1, 1, 1).expand(-1, 1, *scores.shape[2:]))
        return torch.where(found >= LEAST_SCORE, found, 0.0)


def save_detector(path: Path, network: DetectorNet) -> None:
    """Write weights in bfloat16, categories and `info`, atomically. CheckpointError where that fails."""
    settings = {"categories": network.categories, "info": network.info}
    save_weights(path, network, {"format": FORMAT, "detector": json.dumps(settings)})


def load_detector(weights: str | Path) -> DetectorNet:
    """The network of a file that `save_detector` wrote, or of bundled weights by name, on the CPU.

    ConfigError for a missing file, CheckpointError for another kind of file and for a damaged one.
    """
    path = find_encoder(weights)
    found, metadata = read_weights(path, FORMAT, "expected weights that `batchnav train detector` wrote")
    settings = read_settings(path, metadata.get("detector"), MAX_CATEGORIES)
    with torch_defaults("cpu"):
        network = DetectorNet(settings["categories"], settings["info"])
    set_weights(network, found, path)
    return network
