"""Reference of the search for objects in plain NumPy, for one agent: the specification that tests compare with."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from batchnav.mapping.reference import (
    GAP,
    SIDE,
    UNITS,
    Camera,
    Layers,
    ReferenceMap,
    cost_to_go,
    dilated,
    extract_path,
    traversal_costs,
)

HITS = 5
"""Pixels of the goal's category that make a cell a goal cell."""
OBSTACLE_EDGE = 5 * GAP * UNITS
"""Least cost of an edge that touches an obstacle."""


def frontiers(layers: Layers, is_open: bool) -> np.ndarray:
    """bool [SIDE, SIDE]: explored cells without an obstacle, not traversed, next to unexplored cells.

    `is_open`: only cells that are not inflated and border at least two unexplored cells.
    """
    unexplored = np.pad(~layers.explored & ~layers.obstacle, 1)
    around = sum(unexplored[r : r + SIDE, c : c + SIDE].astype(int) for r in range(3) for c in range(3))
    candidates = layers.explored & ~layers.traversed & ~layers.obstacle
    if is_open:
        return candidates & ~layers.inflated & (around >= 2)
    return candidates & (around >= 1)


def nearest_target(layers: Layers, hits: np.ndarray, here: tuple[int, int]) -> tuple[int, float]:
    """Kind of the agent's target and path cost to it; (0, inf) for none. Kinds are those of `search`.

    Args:
        layers: the map.
        hits: int [SIDE, SIDE]: pixels of the goal seen in each cell.
        here: the agent's cell.
    """
    costs = traversal_costs(layers)
    goals = hits >= HITS
    free = layers.explored & ~layers.obstacle
    beside, near = free & dilated(goals), free & dilated(dilated(goals))
    kinds = {1: beside, 2: near, 3: goals, 4: frontiers(layers, True), 5: frontiers(layers, False)}
    for kind, targets in kinds.items():
        if targets.any():
            to_go = cost_to_go(layers, costs, *((int(r), int(c)) for r, c in np.argwhere(targets)))
            path = extract_path(layers, costs, to_go, here)
            crossing = any(to_go[cell] - to_go[following] >= OBSTACLE_EDGE for cell, following in pairwise(path))
            if kind in (3, 5) or not crossing:
                return kind, float(to_go[here])
    return 0, math.inf


def goal_hits(own: ReferenceMap, depth: np.ndarray, mask: np.ndarray, camera: Camera, ground: float) -> np.ndarray:
    """int [SIDE, SIDE]: pixels of the goal in each cell, of one depth image [H, W], metres, and mask [H, W]."""
    points, _ = own.points_seen(depth, camera, ground)
    hits = np.zeros((SIDE, SIDE), int)
    for r, c in np.argwhere((mask > 0) & (depth > 0) & (depth < own.body.max_depth)):
        if (cell := own.cell(points[r, c])) is not None:
            hits[cell] += 1
    return hits
