"""Branches of links, which let a path search skip dead ends.

The branch of a link is the set of polygons that can be reached through it without returning through the polygon that it
leaves. If neither the start nor the goal is in a branch, no path leads through it. Polygons are numbered so that the
polygons of a branch, or those outside it, have consecutive numbers: depth-first order in which the children without
another connection back come last (low points: Hopcroft and Tarjan, "Efficient algorithms for graph manipulation",
1973).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from batchnav.navmesh.connect import Links


def branches(links: Links, num_polygons: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers i32 [P] of polygons, and branches (first, end) i32 [L, 2] of links.

    A branch contains the numbers from `first` to `end` - 1. If `end` <= `first`, it contains the numbers from `first`
    on and those below `end`. Whether it contains the polygon that the link leaves is undefined.
    """
    neighbours: list[list[int]] = [[] for _ in range(num_polygons)]
    # In both directions, which is conservative.
    for polygon, target in zip(links.polygon.tolist(), links.target.tolist(), strict=True):
        neighbours[polygon].append(target)
        neighbours[target].append(polygon)
    order, parent, apart = _depth_first(neighbours)
    size, near = [1] * num_polygons, [1] * num_polygons  # sizes of subtrees: all polygons, and those not apart
    for polygon in reversed(order):
        above = parent[polygon]
        if above >= 0:
            size[above] += size[polygon]
            near[above] += 0 if apart[polygon] else size[polygon]
    number, next_near, next_apart = ([0] * num_polygons for _ in range(3))
    parts: list[list[int]] = [[] for _ in range(num_polygons)]  # first numbers of the parts that are apart
    begun = 0
    for polygon in order:
        above = parent[polygon]
        if above < 0:
            number[polygon] = begun
            begun += size[polygon]
        elif apart[polygon]:
            number[polygon] = next_apart[above]
            next_apart[above] += size[polygon]
            parts[above].append(number[polygon])
        else:
            number[polygon] = next_near[above]
            next_near[above] += size[polygon]
        next_near[polygon], next_apart[polygon] = number[polygon] + 1, number[polygon] + near[polygon]
    found = []
    for polygon, target in zip(links.polygon.tolist(), links.target.tolist(), strict=True):
        first_apart, end = number[polygon] + near[polygon], number[polygon] + size[polygon]
        if first_apart <= number[target] < end:
            part = bisect_right(parts[polygon], number[target]) - 1
            found.append((parts[polygon][part], [*parts[polygon], end][part + 1]))
        else:
            found.append((end, first_apart))
    return np.array(number, np.int32), np.array(found, np.int32).reshape(-1, 2)


def _depth_first(neighbours: list[list[int]]) -> tuple[list[int], list[int], list[bool]]:
    """Depth-first traversal: order, parent of each polygon (-1: root), and flags of polygons that are apart.

    A polygon is apart if its subtree has no connection to polygons above its parent.
    """
    number = len(neighbours)
    place, lowest, parent, apart = [-1] * number, [0] * number, [-1] * number, [False] * number
    order: list[int] = []
    for root in range(number):
        waiting = [] if place[root] >= 0 else [root]
        rest: list[Iterator[int]] = []  # neighbours left to visit, for each waiting polygon
        while waiting:
            polygon = waiting[-1]
            if place[polygon] < 0:
                place[polygon] = lowest[polygon] = len(order)
                order.append(polygon)
                rest.append(iter(neighbours[polygon]))
            for other in rest[-1]:
                if place[other] < 0:
                    parent[other] = polygon
                    waiting.append(other)
                    break
                lowest[polygon] = min(lowest[polygon], place[other])
            else:
                waiting.pop()
                rest.pop()
                above = parent[polygon]
                if above >= 0:
                    apart[polygon] = lowest[polygon] >= place[above]
                    lowest[above] = min(lowest[above], lowest[polygon])
    return order, parent, apart
