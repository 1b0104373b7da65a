"""How the OpenGL renderer's pictures and lists fit into what a driver allows."""

from __future__ import annotations

import math
from typing import NamedTuple

from batchnav.errors import DeviceError
from batchnav.renderers.opengl.clusters import MAX_TRIANGLES, Clusters

GRID = 16
"""Cells along a side of an image, in which its greatest depths are kept for occlusion culling."""
CAMERA, PAIR, TRIANGLE, DRAW, DISPATCH = 48, 4, 8, 20, 12
"""Bytes of a camera, of a listed pair and triangle, and of the commands to draw and to dispatch."""
MAX_PAIRS = 2**25
"""(agent, cluster) pairs culled at a time; agents are taken in slices of so many."""
MAX_ROUND = 2**17
"""Pairs drawn at a time: bounds the list of triangles to 128 MiB."""
_MAX_GROUPS = 65535
"""Work groups of a dispatch along y and z, which count agents: what OpenGL promises."""
_MAX_VIEWPORT_TILES = 4
"""Tiles along a side of a layer: OpenGL has 16 viewports."""


class Limits(NamedTuple):
    """What an OpenGL implementation allows."""

    texture_size: int
    layers: int
    groups: int
    """Work groups of a dispatch along x."""
    block: int
    """Bytes of a storage buffer."""
    texels: int
    """Of a buffer that is read as a texture."""


class Layout(NamedTuple):
    """Where things go: tiles of agents in layers, and how many pairs are culled and drawn at a time."""

    columns: int
    rows: int
    layers: int
    slice: int
    """Agents culled at a time."""
    round: int
    """Pairs drawn at a time."""
    rounds: int
    """Of a slice, where every pair is drawn."""


def arrange(num_agents: int, height: int, width: int, most_clusters: int, limits: Limits) -> Layout:
    """Fit agents' tiles and lists into what OpenGL allows. DeviceError where they do not."""
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
    """Bytes of the buffers that `render` needs and that depend on the number of agents."""
    return {
        "cameras": 2 * num_agents * CAMERA,
        "pairs": layout.slice * most_clusters * PAIR,
        "commands": layout.rounds * (DRAW + DISPATCH) + 4,
        "selected": layout.round * MAX_TRIANGLES * TRIANGLE,
        "farthest": 2 * num_agents * GRID * GRID * 4,
        "depth": num_agents * height * width * 4,
    }


def check_triangles(clusters: Clusters, limits: Limits, renderer: str) -> None:
    """DeviceError where there are more triangles than a shader can read."""
    if 3 * len(clusters.corners) > limits.texels:
        raise DeviceError(
            f"OpenGL: found {len(clusters.corners)} triangles in all scenes, expected at most {limits.texels // 3} "
            f"on {renderer}"
        )


def check_memory(
    sizes: dict[str, int], others: int, limits: Limits, free: int | None, what: str, renderer: str
) -> None:
    """DeviceError before anything is allocated: where a buffer would not fit, or all of them with `others` bytes."""
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
