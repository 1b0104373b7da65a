"""Object ids by texel, for triangles that show parts of several objects.

HM3D stores ids as colours of textures. A triangle of one object has one id. A triangle of several objects has a tile:
the part of the id texture that it covers, with the texture's wrap mode applied. A pixel reads the nearest texel, so ids
are exact, and textures of ids need not be stored as a whole.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np

from batchnav.errors import MeshError
from batchnav.types import Surface

PATCH_WIDTH = 16
FIRST, WIDTH, HEIGHT = 11, 12, 13
"""Columns of an id patch that hold int bits."""
MOST_TEXELS = 2**26
"""Largest number of texels of a scene's tiles, since a small file may claim any number. Further triangles have one id.
"""
_READS = 4
"""Texels that may be read to find tiles, as a multiple of `MOST_TEXELS`."""
FIELDS = ("tile", "tile_uv", "tiles", "tile_ids")
"""Fields of `Surface` that belong to tiles."""
ON_THE_LINE = 1.0 / 2048.0
"""Tolerance in texels: a coordinate this close to the next texel belongs to the current one (`sensors/texture.py`)."""
_log = logging.getLogger(__name__)


class IdTiles(NamedTuple):
    """Tiles of F triangles: the fields `FIELDS` of `types.Surface`."""

    tile: np.ndarray
    tile_uv: np.ndarray
    tiles: np.ndarray
    tile_ids: np.ndarray


class TileMaker:
    """Collects the tiles of a mesh's triangles, texture by texture.

    Args:
        num_faces: number of the mesh's triangles.
        name: start of the warning about triangles beyond `MOST_TEXELS`.
    """

    def __init__(self, num_faces: int, name: str):
        self._name = name
        self._tile = np.full(num_faces, -1, np.int32)
        self._uv = np.zeros((num_faces, 3, 2), np.float32)
        self._tiles: list[tuple[int, int, int]] = []
        self._texels: list[np.ndarray] = []
        self._num_texels = self._num_read = self._num_left = 0

    def add(self, faces: np.ndarray, uv: np.ndarray, ids: np.ndarray, wrap: tuple[str, str]) -> None:
        """Make the tiles of some triangles.

        Args:
            faces: i64 [n], numbers of the triangles.
            uv: f [n, 3, 2], texture coordinates of their corners.
            ids: i32 [h, w], rows of the table given to `made`, for each texel.
            wrap: modes of U and V, as in `Texture.wrap`.
        """
        size = np.array(ids.shape[::-1])
        corners = uv.astype(np.float64) * size
        periods = np.array([{"repeat": 1, "mirror": 2}.get(mode, 0) for mode in wrap]) * size
        corners -= np.floor(corners.min(1) / np.maximum(periods, 1))[:, None] * periods
        low = np.floor(corners.min(1)).astype(np.int64)
        high = np.maximum(np.ceil(corners.max(1) - ON_THE_LINE).astype(np.int64), low + 1)  # exclusive
        areas = (high - low).astype(np.float64).prod(1)
        places: dict[tuple[int, ...], int] = {}
        for i in np.flatnonzero(_varies(ids, low, high)):
            box = *low[i].tolist(), *high[i].tolist()
            if box not in places:
                if max(self._num_texels, self._num_read / _READS) + areas[i] > MOST_TEXELS:
                    self._num_left += 1
                    continue
                columns, rows = (wrapped_texels(np.arange(low[i, k], high[i, k]), size[k], wrap[k]) for k in range(2))
                texels = ids[rows[:, None], columns]
                self._num_read += texels.size
                places[box] = -1 if (texels == texels[0, 0]).all() else self._append(texels)
            if places[box] >= 0:
                self._tile[faces[i]] = places[box]
                self._uv[faces[i]] = corners[i] - low[i]

    def _append(self, texels: np.ndarray) -> int:
        """Store a tile i32 [h, w]; returns its number."""
        height, width = texels.shape
        self._tiles.append((self._num_texels, width, height))
        self._texels.append(texels.reshape(-1))
        self._num_texels += texels.size
        return len(self._tiles) - 1

    def made(self, table: np.ndarray) -> IdTiles | None:
        """The tiles, or None where no triangle has one. `table`: i32 [K, 2], object id and category of each id."""
        if self._num_left:
            _log.warning(
                "%s: %d triangles cover more than %d texels of ids; each reads the id at its centre", self._name,
                self._num_left, MOST_TEXELS,
            )  # fmt: skip
        if not self._tiles:
            return None
        return IdTiles(self._tile, self._uv, np.array(self._tiles, np.int32), table[np.concatenate(self._texels)])


def wrapped_texels(texels: np.ndarray, size: int, mode: str) -> np.ndarray:
    """Numbers of texels along one axis, brought into 0 to size - 1 by a wrap mode."""
    if mode == "clamp":
        return np.clip(texels, 0, size - 1)
    if mode == "mirror":
        texels = texels % (2 * size)
        return np.minimum(texels, 2 * size - 1 - texels)
    return texels % size


def _varies(ids: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """bool [n]: True where the texels from `low` to below `high` i64 [n, 2] may differ; exact within the texture."""
    height, width = ids.shape
    right, below = np.zeros((height + 1, width + 1), np.int32), np.zeros((height + 1, width + 1), np.int32)
    right[1:, 2:] = (ids[:, 1:] != ids[:, :-1]).cumsum(0, np.int32).cumsum(1, np.int32)
    below[2:, 1:] = (ids[1:] != ids[:-1]).cumsum(0, np.int32).cumsum(1, np.int32)
    inside: np.ndarray = np.all((low >= 0) & (high <= [width, height]), axis=1)
    (x0, y0), (x1, y1) = np.where(inside[:, None], low, 0).T, np.where(inside[:, None], high, 1).T
    # a change in `right` (`below`) is counted at the second of its two texels
    changes = right[y1, x1] - right[y0, x1] - right[y1, x0 + 1] + right[y0, x0 + 1]
    changes += below[y1, x1] - below[y0 + 1, x1] - below[y1, x0] + below[y0 + 1, x0]
    return ~inside | (changes > 0)


def check_tiles(surface: Surface, name: str) -> dict[str, np.ndarray]:
    """The checked fields `tiles` and `tile_ids`, given checked fields by face. MeshError with `name`."""
    if missing := [field for field in FIELDS if getattr(surface, field) is None]:
        raise MeshError(f"{name}: surface.{missing[0]}: found None, expected all of {', '.join(FIELDS)}, or none")
    tables = {}
    for field, columns in (("tiles", 3), ("tile_ids", 2)):
        table = np.asarray(getattr(surface, field))
        if table.ndim != 2 or table.shape[1] != columns or table.dtype.kind not in "iu":
            raise MeshError(
                f"{name}: surface.{field}: found {table.dtype} {list(table.shape)}, expected [n, {columns}]"
            )
        tables[field] = np.ascontiguousarray(table, np.int32)
    tiles, ids = tables["tiles"].astype(np.int64), tables["tile_ids"]
    tile, uv = np.asarray(surface.tile), np.asarray(surface.tile_uv)
    first, width, height = tiles.T
    if len(tile) and not -1 <= tile.min() <= tile.max() < len(tiles):
        raise MeshError(f"{name}: surface.tile: found {tile.min()} to {tile.max()}, expected -1 to {len(tiles) - 1}")
    if (tiles < [0, 1, 1]).any() or (first + width * height > len(ids)).any():
        raise MeshError(f"{name}: surface.tiles: found a tile outside the {len(ids)} rows of tile_ids")
    if not np.isfinite(uv).all():
        raise MeshError(f"{name}: surface.tile_uv: found a number that is not finite")
    if len(ids) and not (ids.min() >= 0 and ids[:, 1].max() < max(len(surface.categories), 1)):
        raise MeshError(f"{name}: surface.tile_ids: found an id below 0, or a category without a name")
    return tables


def without_tiles(surface: Surface) -> Surface:
    """The surface with one id per triangle."""
    return surface._replace(tile=None, tile_uv=None, tiles=None, tile_ids=None)


def merged_tiles(surfaces: list[tuple[Surface | None, int]], categories: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Fields of tiles of concatenated triangles; empty where none has a tile.

    Args:
        surfaces: each mesh's surface and number of triangles.
        categories: for each mesh i32 [C], the merged number of each of its categories.
    """
    if all(surface is None or surface.tile is None for surface, _ in surfaces):
        return {}
    parts: list[tuple[np.ndarray, ...]] = []
    first_tile = first_texel = 0
    for (surface, count), rows in zip(surfaces, categories, strict=True):
        if surface is None or surface.tile is None:
            parts.append((np.full(count, -1, np.int32), np.zeros((count, 3, 2), np.float32)))
            continue
        tile, uv, tiles, ids = (np.asarray(getattr(surface, field)) for field in FIELDS)
        moved = np.where(tile >= 0, tile + np.int32(first_tile), np.int32(-1))
        ids = np.stack([ids[:, 0], rows[ids[:, 1]]], axis=1)
        parts.append((moved, uv, tiles + np.array([first_texel, 0, 0], np.int32), ids))
        first_tile, first_texel = first_tile + len(tiles), first_texel + len(ids)
    columns = [[part[k] for part in parts if k < len(part)] for k in range(len(FIELDS))]
    return dict(zip(FIELDS, map(np.concatenate, columns), strict=True))
