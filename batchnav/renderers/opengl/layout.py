"""Layout of the OpenGL renderer's images and lists within the limits of the driver."""

from __future__ import annotations

import math
from typing import NamedTuple

from batchnav.errors import DeviceError
from batchnav.renderers.opengl.clusters import MAX_TRIANGLES, Clusters

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
