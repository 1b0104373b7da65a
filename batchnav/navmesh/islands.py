"""Islands: connected components of the walkable area, their size and height, and navmeshes with some of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from batchnav.errors import ArgumentError
from batchnav.navmesh.data import WALKABLE, NavMeshData, areas, surface
from batchnav.navmesh.file import NavMeshFile

SMALL_ISLAND = 1.5
"""Smallest radius of an island for sampling episodes, metres (Habitat's ISLAND_RADIUS_LIMIT)."""
_MAIN_SHARE = 1 / 3
"""Smallest area of the main island, as a share of the largest island's, which may be a roof."""


class Island(NamedTuple):
    """Size and place of an island."""

    number: int
    """Number that `NavMesh.island` gives."""
    area: float
    """Walkable area, square metres."""
    height: float
    """Mean y of the walkable area, metres."""
    radius: float
    """Distance from the island's mean vertex to its farthest vertex, metres."""

    def __str__(self) -> str:
        """Number, area and height for a message."""
        return f"island {self.number} ({self.area:.1f} m² at y = {self.height:.2f} m)"

    @property
    def is_playable(self) -> bool:
        """True where episodes are sampled on it, as in Habitat: its radius is 1.5 m or more."""
        return self.radius >= SMALL_ISLAND


def list_islands(data: NavMeshData[np.ndarray]) -> list[Island]:
    """All islands of `navmesh.data`, by number."""
    corners, owner = surface(data)
    of_triangle = data.polygon_island[owner]
    corners, of_triangle = corners[of_triangle >= 0], of_triangle[of_triangle >= 0]
    count, area = len(data.island_radius), areas(corners)
    total = np.bincount(of_triangle, area, count)
    height = np.bincount(of_triangle, area * corners[:, :, 1].mean(1, dtype=np.float64), count) / total
    return [Island(k, float(total[k]), float(height[k]), float(data.island_radius[k])) for k in range(count)]


def island_areas(data: NavMeshData[np.ndarray]) -> np.ndarray:
    """f64 [I]: walkable area of each island, square metres."""
    return np.array([island.area for island in list_islands(data)], np.float64)


def main_island(data: NavMeshData[np.ndarray]) -> Island:
    """The island that views show first: the lowest one with at least a third of the largest one's area.

    A roof may be the largest island of a building. ArgumentError where nothing is walkable.
    """
    found = list_islands(data)
    if not found:
        raise ArgumentError("navmesh: found no walkable polygon, expected at least one")
    enough = max(island.area for island in found) * _MAIN_SHARE
    return min((island for island in found if island.area >= enough), key=lambda island: island.height)


def with_islands(file: NavMeshFile, polygon_island: np.ndarray, kept: Collection[int]) -> NavMeshFile:
    """The file with the polygons of all other islands not walkable.

    Args:
        file: content of a navmesh file.
        polygon_island: i32 [P], island of each polygon of all tiles.
        kept: numbers of the islands to keep.
    """
    is_kept = np.isin(polygon_island, sorted(kept))
    tiles, first = [], 0
    for tile in file.tiles:
        polygons = tile.polygons.copy()
        polygons["flags"][~is_kept[first : first + len(polygons)]] &= np.uint16(0xFFFF ^ WALKABLE)
        first += len(polygons)
        tiles.append(tile._replace(polygons=polygons))
    return file._replace(tiles=tiles)


def moved(file: NavMeshFile, offset: np.ndarray) -> NavMeshFile:
    """The file with all coordinates moved by `offset` f64 [3], metres."""

    def shift(points: np.ndarray) -> np.ndarray:
        return (np.asarray(points, np.float64) + offset).astype(np.float32)

    tiles = [
        tile._replace(
            vertices=shift(tile.vertices), detail_vertices=shift(tile.detail_vertices),
            low=shift(tile.low), high=shift(tile.high),
        )
        for tile in file.tiles
    ]  # fmt: skip
    x, y, z = (np.array(file.origin) + offset).tolist()
    return file._replace(tiles=tiles, origin=(x, y, z))
