"""Layout of the OpenGL renderer's images and lists within the limits of the driver."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from batchnav.errors import DeviceError
from batchnav.types import TriangleMesh

# Clusters of nearby triangles with bounding boxes, the unit of culling on the GPU

MAX_TRIANGLES = 128
"""Largest number of triangles in a cluster. Clusters of larger meshes have at least half as many."""


class Clusters(NamedTuple):
    """Concatenated clusters of K meshes."""

    corners: np.ndarray
    """f32 [F, 3, 4]: x, y, z of the triangles' corners and the triangle's number (i32 bits), cluster by cluster.

    Triangle numbers count the faces of all meshes in order; those of mesh k begin at the face count of meshes[:k]."""
    boxes: np.ndarray
    """f32 [C, 8]: low x, y, z, first triangle (u32 bits), high x, y, z, number of triangles (u32 bits)."""
    ranges: np.ndarray
    """u32 [K, 2]: first cluster and number of clusters of each mesh."""


def build_clusters(meshes: Sequence[TriangleMesh]) -> Clusters:
    """Build the clusters of each mesh; 3 s for a million triangles on a core of 2.5 GHz."""
    corners, ranges = [], []
    boxes: list[np.ndarray] = []
    first_triangle = np.cumsum([0, *(len(mesh.faces) for mesh in meshes)])
    for mesh, first in zip(meshes, first_triangle, strict=False):
        triangles = mesh.vertices[mesh.faces]
        order, bounds = _cut(triangles.min(axis=1) + triangles.max(axis=1))
        triangles = triangles[order]
        box = np.zeros((len(bounds) - 1, 8), np.float32)
        box[:, 0:3] = np.minimum.reduceat(triangles.min(axis=1), bounds[:-1])
        box[:, 4:7] = np.maximum.reduceat(triangles.max(axis=1), bounds[:-1])
        box.view(np.uint32)[:, 3] = first + bounds[:-1]
        box.view(np.uint32)[:, 7] = np.diff(bounds)
        ranges.append((sum(len(b) for b in boxes), len(box)))
        corners.append(np.pad(triangles, ((0, 0), (0, 0), (0, 1))))
        corners[-1].view(np.int32)[:, :, 3] = (first + order)[:, None]
        boxes.append(box)
    return Clusters(np.concatenate(corners), np.concatenate(boxes), np.array(ranges, np.uint32))


def _cut(centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split groups of centres f32 [F, 3] at the median of the widest axis until small: order [F] and group bounds."""
    order, bounds = np.arange(len(centres)), np.array([0, len(centres)])
    for _ in range(max(0, math.ceil(math.log2(len(centres) / MAX_TRIANGLES)))):
        sorted_centres, group = centres[order], np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        low = np.minimum.reduceat(sorted_centres, bounds[:-1])
        size = np.maximum.reduceat(sorted_centres, bounds[:-1]) - low
        axis = size.argmax(axis=1)[group]
        along = np.take_along_axis(sorted_centres - low[group], axis[:, None], axis=1)[:, 0]
        order = order[np.lexsort((along, group))]
        bounds = np.sort(np.concatenate([bounds, (bounds[:-1] + bounds[1:]) // 2]))
    return order, bounds


GRID = 16
"""Cells per side of the grid of greatest depths in an image, for occlusion culling."""
CAMERA, PAIR, TRIANGLE, DRAW, DISPATCH = 48, 4, 8, 20, 12
"""Sizes in bytes: camera, listed pair, listed triangle, draw command, dispatch command."""
MAX_PAIRS = 2**25
"""Largest number of (agent, cluster) pairs that are culled together; determines the slices of agents."""
MAX_ROUND = 2**17
"""Largest number of pairs that are drawn together; limits the list of triangles to 128 MiB."""
_MAX_GROUPS = 65535
"""Largest number of work groups along y and z, which count agents, that OpenGL guarantees."""
_MAX_VIEWPORT_TILES = 4
"""Largest number of tiles per side of a layer; OpenGL guarantees 16 viewports."""


class Limits(NamedTuple):
    """Limits of an OpenGL implementation."""

    texture_size: int
    layers: int
    groups: int
    """Work groups of a dispatch along x."""
    block: int
    """Size of a storage buffer, bytes."""
    texels: int
    """Texels of a buffer texture."""


class Layout(NamedTuple):
    """Arrangement of agents' tiles in layers, and numbers of pairs that are culled and drawn together."""

    columns: int
    rows: int
    """Columns and rows of tiles in a layer."""
    layers: int
    slice: int
    """Number of agents that are culled together."""
    round: int
    """Number of pairs that are drawn together."""
    rounds: int
    """Number of rounds for a slice in which every pair is drawn."""


def arrange(num_agents: int, height: int, width: int, most_clusters: int, limits: Limits) -> Layout:
    """Layout of agents' tiles and lists within OpenGL's limits; `most_clusters`: largest number of clusters of a scene.

    DeviceError where they do not fit.
    """
    columns = min(_MAX_VIEWPORT_TILES, limits.texture_size // width, num_agents)
    rows = min(_MAX_VIEWPORT_TILES, limits.texture_size // height, -(-num_agents // max(columns, 1)))
    if columns == 0 or rows == 0:
        raise DeviceError(
            f"OpenGL: found images of {height} x {width}, expected sides of at most {limits.texture_size}"
        )
    most_agents = min(columns * rows * limits.layers, _MAX_GROUPS)
    if num_agents > most_agents:
        raise DeviceError(f"OpenGL: found {num_agents} agents, expected at most {most_agents} of {height} x {width}")
    agents = min(num_agents, max(1, MAX_PAIRS // most_clusters))
    pairs = agents * most_clusters
    per_round = min(pairs, MAX_ROUND, limits.groups, limits.block // (MAX_TRIANGLES * TRIANGLE))
    return Layout(columns, rows, -(-num_agents // (columns * rows)), agents, per_round, -(-pairs // per_round))


def buffer_sizes(num_agents: int, height: int, width: int, most_clusters: int, layout: Layout) -> dict[str, int]:
    """Sizes in bytes of the buffers of `render` that depend on the number of agents."""
    return {
        "cameras": 2 * num_agents * CAMERA,
        "pairs": layout.slice * most_clusters * PAIR,
        "commands": layout.rounds * (DRAW + DISPATCH) + 4,
        "selected": layout.round * MAX_TRIANGLES * TRIANGLE,
        "farthest": 2 * num_agents * GRID * GRID * 4,
        "depth": num_agents * height * width * 4,
    }


def check_triangles(clusters: Clusters, limits: Limits, renderer: str) -> None:
    """DeviceError where there are more triangles than a shader can access."""
    if 3 * len(clusters.corners) > limits.texels:
        raise DeviceError(
            f"OpenGL: found {len(clusters.corners)} triangles in all scenes, expected at most {limits.texels // 3} "
            f"on {renderer}"
        )


def check_memory(
    sizes: dict[str, int], others: int, limits: Limits, free: int | None, what: str, renderer: str
) -> None:
    """DeviceError where a buffer, or all buffers with `others` further bytes, exceed the memory.

    Call it before allocating.
    """
    for name, size in sizes.items():
        if size > limits.block:
            raise DeviceError(
                f"OpenGL: {what} need a buffer ({name}) of {_mib(size)}, expected at most {_mib(limits.block)} "
                f"on {renderer}"
            )
    needed = sum(sizes.values()) + others
    if free is not None and needed > free:
        raise DeviceError(
            f"OpenGL: {what} need {_mib(needed)}, found {_mib(free)} free on {renderer}; "
            "use fewer agents or smaller images"
        )


def _mib(size: int) -> str:
    return f"{math.ceil(size / 2**20):,} MiB"
