"""Scratch memory of searches on a navmesh, and the limits of a search."""

from __future__ import annotations

from typing import Generic, NamedTuple

import numpy as np
import torch

from batchnav.errors import ArgumentError
from batchnav.navmesh.data import SCENE_ROW, NavMeshData, records
from batchnav.types import Column

NODE_POOL = 2048
"""Largest number of polygons that a path search may reach; beyond it there is no path (habitat-sim's
dtNavMeshQuery)."""
MAX_VISITS = 16 * NODE_POOL
"""Largest number of polygons that a path search may expand, with repetitions; it bounds the time on any mesh."""
MAX_PATH = 256
"""Largest number of polygons and of corners of a path (habitat-sim's buffers)."""


class SearchScratch(NamedTuple, Generic[Column]):
    """Scratch memory of searches: one row per CPU chunk or CUDA thread. `search_scratch` allocates it, zeroed, once.

    Row-major on both devices, since the searches of adjacent threads diverge immediately: a node is one 16-byte access,
    and a search's heap uses few cache lines. Only `navmesh/heap.py` accesses the contents.
    """

    data: Column
    """f32 [rows * row_size, 4]. A row: search counter | nodes (cost, first link, link, state) | heap | list."""
    corners: Column
    """f32 [rows * max_corners (at least 1), 4]: corners of the latest path, x, y, z, unused."""
    row_size: int
    heap: int
    """Start of the heap within a row: pairs (total, node)."""
    list: int
    """Start of the list within a row: the links of a path, last first, or the polygons that a step has reached."""
    max_corners: int


def search_scratch(nodes: int, rows: int, device: torch.device, max_corners: int = 0) -> SearchScratch[torch.Tensor]:
    """Zeroed memory for `rows` concurrent searches over `nodes` nodes. ArgumentError beyond the range of int32."""
    heap, listed, row_size = _search_row(nodes)
    if rows * row_size >= 2**31:
        raise ArgumentError(f"rows: found {rows}, expected at most {2**31 // row_size} for {nodes} polygons per scene")
    memory = torch.zeros((rows * row_size, 4), dtype=torch.float32, device=device)
    corners = torch.zeros((max(rows * max_corners, 1), 4), dtype=torch.float32, device=device)
    return SearchScratch(memory, corners, row_size, heap, listed, max_corners)


def search_bytes(nodes: int) -> int:
    """Size of a row of `search_scratch` without corners, bytes."""
    return _search_row(nodes)[2] * 16


def _search_row(nodes: int) -> tuple[int, int, int]:
    """Start of the heap, start of the list and size of a row, in units of four floats."""
    heap = 1 + nodes
    listed = heap + min(nodes, NODE_POOL) // 2 + 1
    return heap, listed, -(-(listed + MAX_PATH // 4) // 8) * 8


def search_size(data: NavMeshData) -> int:
    """Number of search nodes in the largest scene, for `search_scratch`."""
    scenes = data.scenes.cpu().numpy() if isinstance(data.scenes, torch.Tensor) else np.asarray(data.scenes)
    scenes = records(scenes, SCENE_ROW)
    return int((scenes["polygons"] << scenes["side_shift"]).max(initial=1))
