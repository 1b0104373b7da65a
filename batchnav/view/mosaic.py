"""Sensor images as colour images, single or in a grid."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image

from batchnav.errors import ArgumentError
from batchnav.observation import Spec

# Viridis (Nathaniel Smith and Stefan van der Walt, CC0), sampled at even steps. It is perceptually uniform and suitable
# for colour-blind readers and greyscale.
_VIRIDIS = np.array([
    (68, 1, 84), (71, 45, 123), (59, 82, 139), (44, 114, 142), (33, 145, 140),
    (40, 174, 128), (94, 201, 98), (173, 220, 48), (253, 231, 37),
])  # fmt: skip
HOLE = (20, 20, 20)
"""Colour of depth 0 (no surface) and of id 0."""


def colour_depth(depth: np.ndarray, far: float = 1.0) -> np.ndarray:
    """Colours of depth f32 [..., H, W]: u8 [..., H, W, 3], yellow near, purple at `far` and beyond, dark in holes."""
    depth = np.asarray(depth, np.float32)
    # The square root gives most colours to the near range, where most surfaces are.
    nearness = 1.0 - np.sqrt(np.clip(np.nan_to_num(depth) / far, 0.0, 1.0))
    steps = np.linspace(0.0, 1.0, len(_VIRIDIS))
    colours = np.stack([np.interp(nearness, steps, channel) for channel in _VIRIDIS.T], axis=-1)
    return np.where(depth[..., None] > 0.0, np.round(colours), HOLE).astype(np.uint8)


def colour(values: np.ndarray, spec: Spec) -> np.ndarray:
    """Sensor images [..., C, H, W] as colour images u8 [..., H, W, 3].

    One channel is depth, or ids with one colour each; three channels are colour. ArgumentError for other channels.
    """
    if holds_ids(spec):
        return colour_ids(values[..., 0, :, :])
    if values.shape[-3] == 1:
        return colour_depth(values[..., 0, :, :], spec.high)
    if values.shape[-3] != 3:
        raise ArgumentError(f"{spec.name}: found {values.shape[-3]} channels, expected 1 (depth or ids) or 3 (colour)")
    share = (values.astype(np.float32) - spec.low) / (spec.high - spec.low)
    return np.round(255 * np.moveaxis(np.clip(share, 0.0, 1.0), -3, -1)).astype(np.uint8)


def holds_ids(spec: Spec) -> bool:
    """True where a sensor's images hold ids, such as categories or instances."""
    return spec.shape[0] == 1 and not spec.dtype.is_floating_point and spec.high > 255


def colour_ids(ids: np.ndarray) -> np.ndarray:
    """Ids i32 [..., H, W] -> u8 [..., H, W, 3]: each id has the same colour in every image; 0 is dark."""
    # Multiples of the golden ratio keep consecutive hues far apart.
    hue = (np.asarray(ids, np.float64) * 0.618033988749895)[..., None] + np.array([0.0, 2.0, 1.0]) / 3.0
    colours = 105.0 + 130.0 * np.clip(np.abs(hue % 1.0 * 6.0 - 3.0) - 1.0, 0.0, 1.0)
    return np.where(np.asarray(ids)[..., None] > 0, np.round(colours), HOLE).astype(np.uint8)


def depth_mosaic(
    depth: np.ndarray, columns: int | None = None, scale: int = 1, gap: int = 2, far: float = 1.0
) -> Image.Image:
    """A grid of depth images f32 [N, H, W] in one image. Colours: `colour_depth`; layout: `mosaic`.

    Depth is 0..1, or metres with `far` in metres. ArgumentError for another shape.
    """
    if depth.ndim != 3 or not len(depth):
        raise ArgumentError(f"depth: found shape {list(depth.shape)}, expected [N, H, W] with N >= 1")
    return mosaic(colour_depth(depth, far), columns, scale, gap)


def mosaic(pictures: np.ndarray, columns: int | None = None, scale: int = 1, gap: int = 2) -> Image.Image:
    """A grid of images in one image; the first is at the top left.

    Args:
        pictures: u8 [N, H, W, 3].
        columns: images per row; default: the square root of N, rounded up.
        scale: integer enlargement factor.
        gap: white pixels between images.
    """
    n, height, width, _ = pictures.shape
    columns = min(n, columns or math.ceil(math.sqrt(n)))
    rows = -(-n // columns)
    images = pictures.repeat(scale, axis=1).repeat(scale, axis=2)
    step_y, step_x = height * scale + gap, width * scale + gap
    sheet = np.full((rows * step_y - gap, columns * step_x - gap, 3), 255, np.uint8)
    for i, image in enumerate(images):
        y, x = i // columns * step_y, i % columns * step_x
        sheet[y : y + height * scale, x : x + width * scale] = image
    return Image.fromarray(sheet)
