"""Textures and materials of many scenes in flat arrays, each stored once, with their mip levels.

A mip chain halves a picture, sides rounded down, until one texel is left (Williams, "Pyramidal Parametrics", SIGGRAPH
1983), as `glGenerateMipmap` does: every texel of a level is read from the one before, linearly, at its own centre; that
is the mean of four where both sides are even. Bytes are averaged as they are, and rounded at each level.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

from batchnav.errors import ArgumentError
from batchnav.runtime.kernels.decorators import cpu_function
from batchnav.scene.material_sampling import FINISH_WIDTH, STAYS, MaterialLibrary
from batchnav.types import Material, Texture

MOST_TEXELS = 2**31
"""Kernels count texels in int32."""
MATERIAL_WIDTH, LEVEL_WIDTH = 8, 4
FIRST_LEVEL, SIZE, FLAGS = 3, 4, 6
"""A material's row of f32: red, green, blue, then its texture: first row of levels (an int's bits; -1: none), width,
height, flags (an int's bits), the number of the last mip level."""
WRAP_V_SHIFT, REPEAT, MIRROR, CLAMP = 2, 0, 1, 2
MAGNIFY_LINEAR, MINIFY_LINEAR, BETWEEN_LEVELS = 16, 32, 64
"""Flags of a texture: how it wraps in two bits for U and two for V, whether its texels, and its levels, are mixed."""
_WRAPS = {"repeat": REPEAT, "mirror": MIRROR, "clamp": CLAMP}


class Palette:
    """Rows of materials, mip levels and texels, as they are found in the surfaces of scenes.

    Args:
        first_material: the first row that is given out; the arrays are part of larger ones.
        first_level: likewise.
        first_texel: likewise.
    """

    def __init__(self, first_material: int = 0, first_level: int = 0, first_texel: int = 0):
        self._first_material, self._first_level, self._first_texel = first_material, first_level, first_texel
        self._materials: dict[tuple, int] = {}
        self._textures: dict[tuple, int] = {}
        self._digests: dict[int, tuple[np.ndarray, bytes]] = {}  # the arrays are kept, so that ids stay theirs
        self._rows: list[tuple] = []
        self._finishes: list[tuple[int, int, int, int]] = []
        self._levels: list[tuple[int, int, int, int]] = []
        self._texels: list[np.ndarray] = []
        self._num_texels = 0

    def add(self, material: Material, textures: tuple[Texture, ...], finish: tuple[int, int, int, int] = STAYS) -> int:
        """The row of a material; those of different `finish` have a row each. ArgumentError for too many textures."""
        texture = textures[material.texture] if material.texture >= 0 else None
        place = (-1, 1, 1, 0, 0) if texture is None else self._place(texture)
        row = (*material.color[:3], *place)
        number = self._materials.setdefault((row, finish), len(self._materials))
        if number == len(self._rows):
            self._rows.append(row)
            self._finishes.append(finish)
        return self._first_material + number

    def add_swatches(self, swatches: MaterialLibrary) -> int:
        """The row of the first swatch; the others follow."""
        rows = [self.add(m, swatches.textures, (*STAYS[:3], i)) for i, m in enumerate(swatches.materials, start=1)]
        return rows[0]

    def _place(self, texture: Texture) -> tuple[int, int, int, int, int]:
        """First level's row, width, height, flags, last level."""
        height, width = texture.pixels.shape[:2]
        mipmapped = "_mipmap_" in texture.minify
        key = (self._digest(texture.pixels), mipmapped)
        if key not in self._textures:
            self._textures[key] = self._first_level + len(self._levels)
            self._store(texture.pixels, num_levels(width, height) if mipmapped else 1)
        last = num_levels(width, height) - 1 if mipmapped else 0
        return self._textures[key], width, height, flags_of(texture), last

    def _digest(self, pixels: np.ndarray) -> bytes:
        if id(pixels) not in self._digests:
            digest = hashlib.blake2b(np.ascontiguousarray(pixels).data, digest_size=16)
            digest.update(str(pixels.shape).encode())
            self._digests[id(pixels)] = pixels, digest.digest()
        return self._digests[id(pixels)][1]

    def _store(self, pixels: np.ndarray, levels: int) -> None:
        """Append a texture's levels."""
        picture = np.ascontiguousarray(pixels)
        for level in range(levels):
            if level:
                picture = halved(picture)
            height, width = picture.shape[:2]
            self._levels.append((self._first_texel + self._num_texels, width, height, 0))
            self._texels.append(picture.reshape(-1, 4).view("<i4")[:, 0])
            self._num_texels += height * width
        if self._first_texel + self._num_texels >= MOST_TEXELS:
            raise ArgumentError(
                f"scenes: found more than {MOST_TEXELS} texels with their mip levels, expected fewer; "
                f"load them with a smaller largest_texture"
            )

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Materials f32 [M, 8], levels i32 [L, 4]: first texel, width, height, 0; texels i32 [T]: RGBA bytes."""
        materials = np.array(self._rows, np.float32).reshape(-1, MATERIAL_WIDTH)
        bits = materials.view(np.int32)
        for column in (FIRST_LEVEL, FLAGS):
            bits[:, column] = [row[column] for row in self._rows]
        levels = np.array(self._levels, np.int32).reshape(-1, LEVEL_WIDTH)
        return materials, levels, np.concatenate([np.empty(0, np.int32), *self._texels])

    @property
    def finish(self) -> np.ndarray:
        """i32 [M, 4]: the finish that each material was added with."""
        return np.array(self._finishes, np.int32).reshape(-1, FINISH_WIDTH)


def num_levels(width: int, height: int) -> int:
    """Mip levels of a picture."""
    return max(width, height).bit_length()


def num_texels(width: int, height: int, levels: int) -> int:
    """Texels of a picture's first levels together."""
    return sum(max(1, width >> level) * max(1, height >> level) for level in range(levels))


def flags_of(texture: Texture) -> int:
    """How a texture is read, in bits."""
    texels, _, levels = texture.minify.partition("_mipmap_")
    flags = _WRAPS[texture.wrap[0]] | _WRAPS[texture.wrap[1]] << WRAP_V_SHIFT
    flags |= MAGNIFY_LINEAR * (texture.magnify == "linear") | MINIFY_LINEAR * (texels == "linear")
    return flags | BETWEEN_LEVELS * (levels == "linear")


def halved(picture: np.ndarray) -> np.ndarray:
    """The next mip level of u8 [h, w, 4]."""
    height, width = (max(1, side // 2) for side in picture.shape[:2])
    smaller = np.empty((height, width, 4), np.uint8)
    _halve(picture, smaller)
    return smaller


@cpu_function
def _halve(picture, smaller_out):
    """Fill u8 [h, w, 4] with the next mip level of u8 [H, W, 4]."""
    (height, width, _), (h, w, _) = picture.shape, smaller_out.shape
    for row in range(h):
        y = (row + 0.5) * height / h - 0.5
        y0 = max(math.floor(y), 0)
        fy, y1 = y - y0, min(y0 + 1, height - 1)
        for column in range(w):
            x = (column + 0.5) * width / w - 0.5
            x0 = max(math.floor(x), 0)
            fx, x1 = x - x0, min(x0 + 1, width - 1)
            for k in range(4):
                top = picture[y0, x0, k] * (1.0 - fx) + picture[y0, x1, k] * fx
                bottom = picture[y1, x0, k] * (1.0 - fx) + picture[y1, x1, k] * fx
                smaller_out[row, column, k] = int(top * (1.0 - fy) + bottom * fy + 0.5)
