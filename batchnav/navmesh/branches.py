"""A link's branch: the polygons that are reached by it without coming back through the polygon that it leaves.

A path search that enters a branch where neither of its ends lies comes out of it nowhere else, so it need not go there.
Polygons are numbered so that those of a branch follow one another, or those that are not in it do: depth first, and of
the polygons that one was left for, those from where there is no other way back come last (low points: Hopcroft and
Tarjan, "Efficient algorithms for graph manipulation", 1973).
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from batchnav.navmesh.connect import Links


def branches(links: Links, num_polygons: int) -> tuple[np.ndarray, np.ndarray]:
    """(numbers i32 [P], branches of links i32 [L, 2]): the numbers from the first to before the second are in a branch.

    Where the second is not above the first, those that are not in between are: from the first on, and before the
    second. Of the polygon that a link leaves itself nothing is said.
    """
    neighbours: list[list[int]] = [[] for _ in range(num_polygons)]
    for polygon, target in zip(links.polygon.tolist(), links.target.tolist(), strict=True):  # both ways, as safe
        neighbours[polygon].append(target)
        neighbours[target].append(polygon)
    order, parent, apart = _walk(neighbours)
    size, near = [1] * num_polygons, [1] * num_polygons  # of what is below a polygon, itself too: all, and not apart
    for polygon in reversed(order):
        above = parent[polygon]
        if above >= 0:
            size[above] += size[polygon]
            near[above] += 0 if apart[polygon] else size[polygon]
    number, next_near, next_apart = ([0] * num_polygons for _ in range(3))
    parts: list[list[int]] = [[] for _ in range(num_polygons)]  # where each of those apart begins
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


def _walk(neighbours: list[list[int]]) -> tuple[list[int], list[int], list[bool]]:
    """Depth first: the order, from where each polygon was entered (-1: begun there), and whether that is its only way.

    That is, whether what is below it leads to nothing above the polygon from where it was entered.
    """
    number = len(neighbours)
    place, lowest, parent, apart = [-1] * number, [0] * number, [-1] * number, [False] * number
    order: list[int] = []
    for root in range(number):
        waiting = [] if place[root] >= 0 else [root]
        ways = []
        while waiting:
            polygon = waiting[-1]
            if place[polygon] < 0:
                place[polygon] = lowest[polygon] = len(order)
                order.append(polygon)
                ways.append(iter(neighbours[polygon]))
            for other in ways[-1]:
                if place[other] < 0:
                    parent[other] = polygon
                    waiting.append(other)
                    break
                lowest[polygon] = min(lowest[polygon], place[other])
            else:
                waiting.pop()
                ways.pop()
                above = parent[polygon]
                if above >= 0:
                    apart[polygon] = lowest[polygon] >= place[above]
                    lowest[above] = min(lowest[above], lowest[polygon])
    return order, parent, apart
