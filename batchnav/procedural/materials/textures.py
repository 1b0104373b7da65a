"""The texture library that all procedural scenes share, so that each texture is in memory once.

332 textures of 128 x 128 texels take 21.8 MB, or 29.0 MB with mip levels, for any number of houses; a house uses about
65 textures.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from batchnav.procedural.materials import patterns
from batchnav.procedural.random_stream import RandomStream
from batchnav.types import Surface, Texture

_TEXTURES = 0x7E87
"""First part of the seeds of textures: their random numbers are independent of all others."""


class TextureFamily(NamedTuple):
    """Textures of one kind."""

    pattern: Callable[[RandomStream], np.ndarray]
    """Function that samples a pattern of `patterns.py`."""
    size: int
    """Number of textures."""
    metres: tuple[float, float]
    """Extent of one texture along U and V, metres; unused for textures that cover a whole side."""


TEXTURE_FAMILIES = {
    "plain": TextureFamily(patterns.plain, 12, (1.0, 1.0)),
    "grain": TextureFamily(patterns.grain, 28, (1.2, 0.4)),
    "planks": TextureFamily(patterns.planks, 40, (1.5, 1.0)),
    "tiles": TextureFamily(patterns.tiles, 40, (1.2, 1.2)),
    "wallpaper": TextureFamily(patterns.wallpaper, 40, (0.6, 0.6)),
    "weave": TextureFamily(patterns.weave, 16, (0.25, 0.25)),
    "cloth": TextureFamily(patterns.cloth, 40, (0.5, 0.5)),
    "carpet": TextureFamily(patterns.carpet, 12, (0.6, 0.6)),
    "rug": TextureFamily(patterns.rug, 24, (1.0, 1.0)),
    "stone": TextureFamily(patterns.stone, 16, (0.8, 0.8)),
    "brushed": TextureFamily(patterns.brushed, 4, (0.4, 0.4)),
    "leaf": TextureFamily(patterns.leaf, 8, (0.1, 0.1)),
    "wicker": TextureFamily(patterns.wicker, 4, (0.25, 0.25)),
    "art": TextureFamily(patterns.art, 32, (1.0, 1.0)),
    "outdoors": TextureFamily(patterns.outdoors, 16, (1.0, 1.0)),
}
LIBRARY = tuple((family, i) for family, row in TEXTURE_FAMILIES.items() for i in range(row.size))
"""Family and number of each texture."""
FIRST = {family: LIBRARY.index((family, 0)) for family in TEXTURE_FAMILIES}
"""Row of the library where each family begins."""
METRES = np.array([TEXTURE_FAMILIES[family].metres for family, _ in LIBRARY])
"""f64 [L, 2]: extent of each texture, metres."""


@cache
def texture(row: int) -> Texture:
    """A texture of the library: the same object on every call, with equal bytes on every machine."""
    family, number = LIBRARY[row]
    picture = TEXTURE_FAMILIES[family].pattern(RandomStream((_TEXTURES, FIRST[family], number)))
    pixels = np.full((patterns.SIDE, patterns.SIDE, 4), 255, np.uint8)
    pixels[:, :, :3] = np.round(np.clip(picture, 0.0, 1.0) * 255.0)
    _ROWS[id(pixels)] = row
    return Texture(pixels)


_ROWS: dict[int, int] = {}
"""Row of the library by `id` of the pixels; `texture` keeps the pixels alive."""


def replace_textures(surface: Surface) -> Surface:
    """The surface with every texture replaced by one texel that encodes its library row; this keeps files small."""
    rows = (_ROWS[id(found.pixels)] for found in surface.textures)
    texels = (np.array([[[row & 255, row >> 8, 0, 255]]], np.uint8) for row in rows)
    return surface._replace(textures=tuple(map(Texture, texels)))


def restore_textures(surface: Surface) -> Surface:
    """Inverse of `replace_textures`: textures of the library, which all scenes share."""
    texels = (found.pixels[0, 0].astype(int) for found in surface.textures)
    return surface._replace(textures=tuple(texture(int(low | high << 8)) for low, high, *_ in texels))
