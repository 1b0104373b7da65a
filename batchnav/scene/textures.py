"""Materials, textures and mip levels of many scenes in flat arrays, without duplicates.

Each mip level has half the width and height of the level before, rounded down, until one texel is left (Williams,
"Pyramidal Parametrics", SIGGRAPH 1983). As in `glGenerateMipmap`, a texel is the bilinear sample of the level before at
the texel's centre: the mean of four texels where both sides are even. Bytes are averaged without gamma correction and
rounded at each level.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

from batchnav.errors import ArgumentError
from batchnav.runtime.kernels.decorators import cpu_function
from batchnav.scene.material_sampling import FINISH_WIDTH, FIXED, MaterialLibrary
from batchnav.types import Blocks, Material, Texture

MOST_TEXELS = 2**31
"""Number of texels that a bank must stay below, since kernels index them with int32."""
MATERIAL_WIDTH, LEVEL_WIDTH, ROW = 8, 4, 8
"""Columns of materials and levels, and number of blocks in a row of `Appearance.blocks`."""
FIRST_LEVEL, SIZE, FLAGS = 3, 4, 6
"""Columns of a material's f32 row: red, green, blue, first row of the texture's levels (int bits; -1: none), width,
height, flags (int bits), number of the last mip level."""
WRAP_V_SHIFT, REPEAT, MIRROR, CLAMP = 2, 0, 1, 2
MAGNIFY_LINEAR, MINIFY_LINEAR, BETWEEN_LEVELS, IN_BLOCKS = 16, 32, 64, 128
"""Flags of a texture: wrap mode of U (two bits) and V (two bits), linear filtering of texels and between mip levels;
and whether its levels are in blocks."""
_WRAPS = {"repeat": REPEAT, "mirror": MIRROR, "clamp": CLAMP}


class Palette:
    """Collects the materials and textures of scenes, without duplicates.

    Args:
        first_material: row of the first material, where the arrays are part of larger ones.
        first_level: row of the first mip level.
        first_texel: row of the first texel.
        first_block: row of the first blocks.
    """

    def __init__(self, first_material: int = 0, first_level: int = 0, first_texel: int = 0, first_block: int = 0):
        self._first_material, self._first_level, self._first_texel = first_material, first_level, first_texel
        self._num_blocks = first_block
        self._materials: dict[tuple, int] = {}
        self._textures: dict[tuple, int] = {}
        # holds the arrays, so that their ids stay unique
        self._digests: dict[int, tuple[np.ndarray | Blocks, bytes]] = {}
        self._rows: list[tuple] = []
        self._finishes: list[tuple[int, int, int, int]] = []
        self._levels: list[tuple[int, int, int, int]] = []
        self._texels: list[np.ndarray] = []
        self._num_texels = 0
        self._blocks: list[np.ndarray] = []

    def add(self, material: Material, textures: tuple[Texture, ...], finish: tuple[int, int, int, int] = FIXED) -> int:
        """Row of a material; equal materials with different `finish` have separate rows."""
        texture = textures[material.texture] if material.texture >= 0 else None
        place = (-1, 1, 1, 0, 0) if texture is None else self._place(texture)
        row = (*material.color[:3], *place)
        number = self._materials.setdefault((row, finish), len(self._materials))
        if number == len(self._rows):
            self._rows.append(row)
            self._finishes.append(finish)
        return self._first_material + number

    def add_library(self, library: MaterialLibrary) -> int:
        """Row of the library's first material; the others follow."""
        rows = [self.add(m, library.textures, (*FIXED[:3], i)) for i, m in enumerate(library.materials, start=1)]
        return rows[0]

    def _place(self, texture: Texture) -> tuple[int, int, int, int, int]:
        """Row of the first level, width, height, flags, number of the last level."""
        height, width = texture.pixels.shape[:2]
        mipmapped = "_mipmap_" in texture.minify
        key = (self._digest(texture.pixels), mipmapped)
        if key not in self._textures:
            self._textures[key] = self._first_level + len(self._levels)
            levels = num_levels(width, height) if mipmapped else 1
            if isinstance(texture.pixels, Blocks):
                self._store_blocks(texture.pixels, levels)
            else:
                self._store(texture.pixels, levels)
        last = num_levels(width, height) - 1 if mipmapped else 0
        return self._textures[key], width, height, flags_of(texture), last

    def _digest(self, pixels: np.ndarray | Blocks) -> bytes:
        if id(pixels) not in self._digests:
            array = pixels.words if isinstance(pixels, Blocks) else pixels
            digest = hashlib.blake2b(np.ascontiguousarray(array).data, digest_size=16)
            digest.update(str(pixels.shape).encode())
            self._digests[id(pixels)] = pixels, digest.digest()
        return self._digests[id(pixels)][1]

    def _store(self, pixels: np.ndarray, levels: int) -> None:
        """Append the mip levels of a texture."""
        image = np.ascontiguousarray(pixels)
        for level in range(levels):
            if level:
                image = halved(image)
            height, width = image.shape[:2]
            self._levels.append((self._first_texel + self._num_texels, width, height, 0))
            self._texels.append(image.reshape(-1, 4).view("<i4")[:, 0])
            self._num_texels += height * width
        if self._first_texel + self._num_texels >= MOST_TEXELS:
            raise ArgumentError(
                f"scenes: found more than {MOST_TEXELS} texels with their mip levels, expected fewer; "
                f"load them with a smaller `largest_texture`"
            )

    def _store_blocks(self, blocks: Blocks, levels: int) -> None:
        """Append the first mip levels of a texture in blocks."""
        for level in range(levels):
            width, height = max(1, blocks.width >> level), max(1, blocks.height >> level)
            self._levels.append((self._num_blocks, width, height, 0))
            self._num_blocks += num_block_rows(width, height, 1)
        self._blocks.append(blocks.words[: num_block_rows(blocks.width, blocks.height, levels)])
        if self._num_blocks >= MOST_TEXELS:
            raise ArgumentError(
                f"scenes: found more than {MOST_TEXELS} rows of texture blocks, expected fewer; load them with a "
                f"smaller `largest_texture`"
            )

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Materials f32 [M, 8]; levels i32 [L, 4]; texels i32 [T]: RGBA bytes; blocks i64 [R, 8].

        A level's row has its first row of texels, or of blocks, its width, its height, and 0.
        """
        materials = np.array(self._rows, np.float32).reshape(-1, MATERIAL_WIDTH)
        bits = materials.view(np.int32)
        for column in (FIRST_LEVEL, FLAGS):
            bits[:, column] = [row[column] for row in self._rows]
        levels = np.array(self._levels, np.int32).reshape(-1, LEVEL_WIDTH)
        texels, blocks = np.empty(0, np.int32), np.empty((0, ROW), np.int64)
        return materials, levels, np.concatenate([texels, *self._texels]), np.concatenate([blocks, *self._blocks])

    @property
    def finish(self) -> np.ndarray:
        """i32 [M, 4]: `finish` of each material."""
        return np.array(self._finishes, np.int32).reshape(-1, FINISH_WIDTH)


def num_levels(width: int, height: int) -> int:
    """Number of mip levels of an image."""
    return max(width, height).bit_length()


def num_texels(width: int, height: int, levels: int) -> int:
    """Number of texels in the first `levels` mip levels of an image."""
    return sum(max(1, width >> level) * max(1, height >> level) for level in range(levels))


def num_block_rows(width: int, height: int, levels: int) -> int:
    """Number of rows of eight blocks of the first `levels` mip levels of an image."""
    sides = [(max(1, width >> level), max(1, height >> level)) for level in range(levels)]
    return sum(-(-(-(-w // 4) * -(-h // 4)) // ROW) for w, h in sides)


def flags_of(texture: Texture) -> int:
    """Flags of a texture's wrap modes and filters."""
    texels, _, levels = texture.minify.partition("_mipmap_")
    flags = _WRAPS[texture.wrap[0]] | _WRAPS[texture.wrap[1]] << WRAP_V_SHIFT
    flags |= MAGNIFY_LINEAR * (texture.magnify == "linear") | MINIFY_LINEAR * (texels == "linear")
    flags |= BETWEEN_LEVELS * (levels == "linear")
    return flags | IN_BLOCKS * isinstance(texture.pixels, Blocks)


def halved(image: np.ndarray) -> np.ndarray:
    """Next mip level of u8 [h, w, 4]."""
    height, width = (max(1, side // 2) for side in image.shape[:2])
    smaller = np.empty((height, width, 4), np.uint8)
    _halve(image, smaller)
    return smaller


@cpu_function
def _halve(image, smaller_out):
    """Fill u8 [h, w, 4] with the next mip level of u8 [H, W, 4]."""
    (height, width, _), (h, w, _) = image.shape, smaller_out.shape
    if height == 2 * h and width == 2 * w:
        for row in range(h):
            for column in range(w):
                for k in range(4):
                    y, x = 2 * row, 2 * column
                    above = np.int32(image[y, x, k]) + np.int32(image[y, x + 1, k])
                    below = np.int32(image[y + 1, x, k]) + np.int32(image[y + 1, x + 1, k])
                    smaller_out[row, column, k] = np.uint8((above + below + np.int32(2)) >> 2)
        return
    for row in range(h):
        y = (row + 0.5) * height / h - 0.5
        y0 = max(math.floor(y), 0)
        fy, y1 = y - y0, min(y0 + 1, height - 1)
        for column in range(w):
            x = (column + 0.5) * width / w - 0.5
            x0 = max(math.floor(x), 0)
            fx, x1 = x - x0, min(x0 + 1, width - 1)
            for k in range(4):
                top = image[y0, x0, k] * (1.0 - fx) + image[y0, x1, k] * fx
                bottom = image[y1, x0, k] * (1.0 - fx) + image[y1, x1, k] * fx
                smaller_out[row, column, k] = int(top * (1.0 - fy) + bottom * fy + 0.5)
