"""Reference mapper in plain Python and NumPy, for one agent: the specification that tests compare the kernels with.

It has one array per meaning, computes in float64, searches the whole map with Dijkstra's algorithm at every step, and
keeps no path. Kernels compute in float32, so a point on a cell's border may fall into the neighbouring cell. Costs are
integers: on equal maps they are exactly equal.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

RESOLUTION, MARGIN, SIDE = 0.2, 8.0, 192
"""Smallest side of a cell and smallest distance to the map's edge, metres; cells along a side."""
UNITS, FREE, INFLATED, OCCUPIED, GAP = 4, 2, 1, 1000, 200
"""Integer units per unit of cost; cost of a free cell, addition for inflation, cost of an occupied cell, and of an
occupied cell with a gap."""
COLLISION, BARRED = 10 * FREE, 2 * OCCUPIED
"""Additions to the cost of a traversed obstacle per collision, and to the cost of a barred edge at its end."""
QUARTERS = {(0, 0): 1, (0, 1): 2, (1, 0): 4, (1, 1): 8}
"""Bits of the quarters of a cell by half along Z and half along X."""
GAPS = (1, 2, 4, 8, 1 + 2, 4 + 8, 1 + 4, 2 + 8)
"""Quadrants of cells with a gap: one quarter holds an obstacle, or two that share a side."""
MAX_REPEATED, MAX_TRAVERSED_COLLISIONS = 196, 40
"""Maximum counts of collisions: with an occupied cell after its detection, and in a traversed cell."""
SAME_SURFACE = 0.5
"""Neighbouring obstacle pixels less than this apart lie on one surface, metres."""
LOOKAHEAD = 24
"""Path cells tested for a line of sight."""
NEIGHBOURS = ((1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1))
"""Rows and columns to the neighbours, in the order in which equal paths are preferred."""
Cell = tuple[int, int]
"""Row (along Z) and column (along X)."""


class Layers(NamedTuple):
    """One array [SIDE, SIDE] per meaning."""

    obstacle: np.ndarray
    """bool: True where depth or a collision indicated an obstacle."""
    explored: np.ndarray
    """bool: True where the ground was seen or the agent was."""
    traversed: np.ndarray
    """bool: True where the agent was."""
    repeated: np.ndarray
    """int: collisions with an occupied cell after its detection."""
    collisions: np.ndarray
    """int: collisions in a cell after the agent traversed it."""
    inflated: np.ndarray
    """bool: True where a cell without an obstacle has one among its eight neighbours."""
    interpolated: np.ndarray
    """bool: True where an untraversed obstacle is neither detected nor confirmed by a collision."""
    quadrants: np.ndarray
    """int: sum of the `QUARTERS` in which depth showed an obstacle."""

    @classmethod
    def empty(cls) -> Layers:
        """An unknown map."""
        return cls(*(np.zeros((SIDE, SIDE), kind) for kind in (bool, bool, bool, int, int, bool, bool, int)))

    @property
    def occupied(self) -> np.ndarray:
        """bool: obstacles in cells that the agent did not traverse."""
        return self.obstacle & ~self.traversed

    def inflate(self) -> None:
        """Set `inflated` from `obstacle`."""
        self.inflated[:] = dilated(self.obstacle) & ~self.obstacle


def dilated(mask: np.ndarray) -> np.ndarray:
    """bool [SIDE, SIDE]: cells that are marked or have a marked neighbour, 8-connected."""
    padded = np.pad(mask, 1)
    shifted = [padded[r : r + SIDE, c : c + SIDE] for r in range(3) for c in range(3)]
    return np.logical_or.reduce(shifted)


# Costs and paths.


def traversal_costs(layers: Layers, predicted: np.ndarray | None = None) -> np.ndarray:
    """Traversal cost of every cell, int [SIDE, SIDE].

    Args:
        layers: the map.
        predicted: int [SIDE, SIDE]: predicted addition to the cost of an unexplored cell, in units; None: none.
    """
    costs = np.full((SIDE, SIDE), FREE * UNITS) + INFLATED * UNITS * layers.inflated
    traversed_obstacle = layers.obstacle & layers.traversed
    costs += traversed_obstacle * UNITS * (2 * INFLATED + COLLISION * layers.collisions)
    if predicted is not None:
        costs += predicted * ~layers.explored
    occupied = np.where(np.isin(layers.quadrants, GAPS), GAP, OCCUPIED) * (1 + layers.repeated)
    return np.where(layers.occupied, UNITS * np.where(layers.interpolated, GAP, occupied), costs)


def is_closed(quadrants: Any, cell: Cell, neighbour: Cell) -> bool:
    """True where all quarters of one of two cells that face the other hold obstacles."""
    for (r, c), (nr, nc) in ((cell, neighbour), (neighbour, cell)):
        facing = [bit for (z, x), bit in QUARTERS.items() if nr - r != 1 - 2 * z and nc - c != 1 - 2 * x]
        if (r, c) != (nr, nc) and all(quadrants[r][c] & bit for bit in facing):
            return True
    return False


def _leads_behind(layers: Layers, cell: Cell, neighbour: Cell) -> bool:
    """True where a cell holds a detected obstacle without a gap, and its neighbour is unexplored."""
    (r, c), (nr, nc) = cell, neighbour
    solid = layers.obstacle[r][c] and not layers.interpolated[r][c] and layers.quadrants[r][c] not in GAPS
    return bool(solid and not layers.explored[nr][nc])


def edge_cost(layers: Layers, costs: Any, cell: Cell, neighbour: Cell) -> int:
    """Cost of the edge from a cell to a neighbour. Layers and costs are arrays or nested lists."""
    (r, c), (nr, nc) = cell, neighbour
    entry = costs[nr][nc]
    barred = is_closed(layers.quadrants, cell, neighbour) or _leads_behind(layers, cell, neighbour)
    if barred or _leads_behind(layers, neighbour, cell):
        entry += BARRED * UNITS
    if r == nr or c == nc:
        return int(5 * (costs[r][c] + entry))
    return int(7 * (costs[r][c] + max(entry, costs[nr][c], costs[r][nc])))


def neighbours(cell: Cell) -> Iterator[Cell]:
    """Neighbours of a cell on the map."""
    for dr, dc in NEIGHBOURS:
        r, c = cell[0] + dr, cell[1] + dc
        if 0 <= r < SIDE and 0 <= c < SIDE:
            yield r, c


def cost_to_go(layers: Layers, costs: np.ndarray, *goals: Cell) -> np.ndarray:
    """Path cost from every cell to the nearest goal, float [SIDE, SIDE] (Dijkstra, 1959)."""
    layers, costs = Layers(*(layer.tolist() for layer in layers)), costs.tolist()  # lists are faster to index
    found, queue = dict.fromkeys(goals, 0), [(0, goal) for goal in goals]
    while queue:
        cost, cell = heapq.heappop(queue)
        if cost > found[cell]:
            continue
        for neighbour in neighbours(cell):
            reached = cost + edge_cost(layers, costs, cell, neighbour)
            if reached < found.get(neighbour, math.inf):
                found[neighbour] = reached
                heapq.heappush(queue, (reached, neighbour))
    return np.array([[found.get((r, c), math.inf) for c in range(SIDE)] for r in range(SIDE)])


def extract_path(layers: Layers, costs: np.ndarray, to_go: np.ndarray, start: Cell) -> list[Cell]:
    """Cells of a shortest path from a start to the goal."""
    path = [start]
    while to_go[path[-1]] > 0:
        cell = path[-1]
        path.append(next(n for n in neighbours(cell) if to_go[n] + edge_cost(layers, costs, n, cell) == to_go[cell]))
    return path


# Waypoint. `place` and `target` are map coordinates (u, v): columns and rows, in cells from the map's corner.


def has_line_of_sight(layers: Layers, place: np.ndarray, target: np.ndarray) -> bool:
    """True where no cell and no edge blocks the line between two places; its last cell is not tested."""
    repeated = dilated(layers.occupied & (layers.repeated > 0))
    blocked = layers.occupied | (layers.obstacle & layers.traversed & (layers.collisions > 0))
    near = layers.obstacle | layers.inflated
    steps = int(2.0 * math.dist(place, target)) + 1
    before = (int(place[1]), int(place[0]))
    for k in range(1, steps + 1):
        c, r = np.floor(place + k / steps * (target - place)).astype(int)
        if (r, c) == (int(target[1]), int(target[0])):
            return True
        if not (0 <= r < SIDE and 0 <= c < SIDE) or is_closed(layers.quadrants, before, (r, c)):
            return False
        if k > 1 and (blocked[r, c] or (near[r, c] and repeated[r, c])):
            return False
        before = (r, c)
    return True


def waypoint(
    layers: Layers, to_go: np.ndarray, path: list[Cell], place: np.ndarray, heading: float
) -> tuple[float, float] | None:
    """Distance, cells, and bearing, radians, of the waypoint; None where the goal itself is in line of sight."""
    seen = 0
    for cell in path[1 : min(LOOKAHEAD, len(path) - 1) + 1]:
        if not has_line_of_sight(layers, place, _centre(cell)):
            break
        seen += 1
    target = min(max(seen, 1), len(path) - 1)
    if target == 0 or path[target] == path[-1]:
        return None
    du, dv = _centre(path[target]) - place
    fx, fz = -math.sin(heading), -math.cos(heading)
    bearing = math.atan2(du * fz - dv * fx, du * fx + dv * fz)
    if target > 1 and layers.occupied[path[target]]:
        target -= 1  # the distance includes the cost of passing the obstacle
    beyond = to_go[path[target]] / (2 * FREE * UNITS * 5)
    return math.dist(place, _centre(path[target])) + beyond, bearing


def _centre(cell: Cell) -> np.ndarray:
    """Map coordinates of a cell's centre."""
    return np.array([cell[1] + 0.5, cell[0] + 0.5])


# Integration.


class Camera(NamedTuple):
    """One depth camera."""

    position: np.ndarray
    """[3], metres."""
    heading: float
    """Radians."""
    pitch: float
    """Radians, up is positive."""
    tan_half_hfov: float
    """Tangent of half the horizontal field of view."""


class Body(NamedTuple):
    """Constants of the agent and of its camera's range, as in `MappingParameters`; metres and radians."""

    max_depth: float
    max_climb: float
    agent_height: float
    half_step: float
    half_turn: float


class ReferenceMap:
    """The map of one agent in one episode.

    Args:
        position: [3], the agent's position at the start, metres.
        heading: its heading, radians.
        goal: x and z of the goal, metres.
        body: constants.
    """

    def __init__(self, position: np.ndarray, heading: float, goal: np.ndarray, body: Body):
        start = np.asarray(position, float)[[0, 2]]
        self.size = max(RESOLUTION, (np.abs(goal - start).max() + 2 * MARGIN) / SIDE)
        self.origin = (start + goal - SIDE * self.size) / 2
        self.layers, self.body = Layers.empty(), body
        self._place, self._heading, self._collisions = start, heading, 0

    def place(self, point: np.ndarray) -> np.ndarray:
        """Map coordinates of x and z."""
        return (np.asarray(point, float) - self.origin) / self.size

    def cell(self, point: np.ndarray) -> Cell | None:
        """The cell of x and z; None off the map."""
        u, v = np.floor(self.place(point))
        return (int(v), int(u)) if 0 <= u < SIDE and 0 <= v < SIDE else None

    def update(self, position: np.ndarray, heading: float, collisions: int, depth: np.ndarray, camera: Camera) -> None:
        """Integrate a step: motion, collision, depth image [H, W] in metres, and the agent's cell."""
        here, before = np.asarray(position, float)[[0, 2]], self._place
        advance, turn = math.dist(here, before), heading - self._heading
        if collisions > self._collisions and abs(turn) < self.body.half_turn and advance < self.body.half_step:
            self._collide(here, heading)
        parts = max(int(advance / self.size) + 1, 2)
        for k in range(1, parts):
            self._traverse(here - k / parts * (here - before))
        self._place, self._heading, self._collisions = here, heading, collisions
        self._integrate_depth(depth, camera, float(position[1]))
        self.layers.inflate()
        self._traverse(here)

    def _obstacle(self, point: np.ndarray) -> None:
        if (cell := self.cell(point)) is not None:
            u, v = self.place(point) % 1.0
            self.layers.quadrants[cell] |= QUARTERS[int(v >= 0.5), int(u >= 0.5)]
            self.layers.obstacle[cell], self.layers.interpolated[cell] = True, False

    def _interpolate(self, point: np.ndarray) -> None:
        if (cell := self.cell(point)) is not None and not self.layers.obstacle[cell]:
            self.layers.obstacle[cell], self.layers.interpolated[cell] = True, not self.layers.traversed[cell]

    def _explore(self, point: np.ndarray) -> None:
        if (cell := self.cell(point)) is not None:
            self.layers.explored[cell] = True

    def _traverse(self, point: np.ndarray) -> None:
        if (cell := self.cell(point)) is not None:
            self.layers.traversed[cell] = self.layers.explored[cell] = True
            self.layers.repeated[cell], self.layers.interpolated[cell] = 0, False

    def _collide(self, here: np.ndarray, heading: float) -> None:
        """Record a collision 1.5 cells ahead, and 0.9 cells ahead if that first cell is already occupied.

        If the cell 0.9 cells ahead is occupied behind a closed edge, record the collision there only.
        """
        forward = np.array([-math.sin(heading), -math.cos(heading)]) * self.size
        own, near = self.cell(here), self.cell(here + 0.9 * forward)
        if own and near and self.layers.occupied[near] and is_closed(self.layers.quadrants, own, near):
            self._record_collision(here + 0.9 * forward)
            return
        ahead = self.cell(here + 1.5 * forward)
        if ahead is not None and self.layers.occupied[ahead]:
            self._record_collision(here + 0.9 * forward)
        self._record_collision(here + 1.5 * forward)

    def _record_collision(self, point: np.ndarray) -> None:
        if (cell := self.cell(point)) is None:
            return
        layers = self.layers
        if layers.occupied[cell]:
            if not layers.interpolated[cell]:
                layers.repeated[cell] = min(layers.repeated[cell] + 1, MAX_REPEATED)
            layers.interpolated[cell] = False
            return
        if layers.traversed[cell]:
            layers.collisions[cell] = min(layers.collisions[cell] + 1, MAX_TRAVERSED_COLLISIONS)
        layers.obstacle[cell] = True

    def _integrate_depth(self, depth: np.ndarray, camera: Camera, ground: float) -> None:
        """Mark the points that the pixels see, and points between neighbouring pixels."""
        points, kind = self.points_seen(depth, camera, ground)
        height, width = depth.shape
        for r in range(height):
            for c in range(width):
                point = points[r, c]
                if kind[r, c] == "ground":
                    self._explore(point)
                    if r > 0 and kind[r - 1, c] != "":
                        for between in self._between(point, points[r - 1, c]):
                            self._explore(between)
                elif kind[r, c] == "obstacle":
                    self._obstacle(point)
                    if c + 1 == width or kind[r, c + 1] != "obstacle":
                        continue
                    offset = points[r, c + 1] - point
                    if self.size < math.hypot(*offset) < SAME_SURFACE:
                        for k in (1, 2):
                            self._interpolate(point + k / 3 * offset)

    def _between(self, point: np.ndarray, other: np.ndarray) -> Iterator[np.ndarray]:
        """Points on the line between two points, less than a cell apart; at most 31."""
        distance = math.dist(point, other)
        steps = min(int(distance / self.size) + 1, 32) if distance > self.size else 1
        for k in range(1, steps):
            yield point + k / steps * (other - point)

    def points_seen(self, depth: np.ndarray, camera: Camera, ground: float) -> tuple[np.ndarray, np.ndarray]:
        """x and z of the point that each pixel sees [H, W, 2], and its class: "ground", "obstacle" or ""."""
        height, width = depth.shape
        scale = camera.tan_half_hfov / width
        right = (2 * np.arange(width) + 1 - width) * scale * depth
        up = (height - 1 - 2 * np.arange(height))[:, None] * scale * depth
        sin, cos, rise, level = (f(a) for a in (camera.heading, camera.pitch) for f in (math.sin, math.cos))
        x = right * cos + up * rise * sin - depth * level * sin
        z = -right * sin + up * rise * cos - depth * level * cos
        y = camera.position[1] - ground + up * level + depth * rise
        seen = (depth > 0) & (depth < self.body.max_depth) & (y < self.body.agent_height)
        kind = np.where(seen, np.where(y > self.body.max_climb, "obstacle", "ground"), "")
        return np.stack([x, z], -1) + np.asarray(camera.position, float)[[0, 2]], kind


# Reference of the search for objects in plain NumPy, for one agent: the specification that tests compare with

HITS = 5
"""Least number of pixels of the goal in a cell that holds it."""
NEAR = 2.5
"""Depth below which a pixel looks at its cell from close by, metres."""
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


def nearest_target(layers: Layers, goals: np.ndarray, here: tuple[int, int]) -> tuple[int, float]:
    """Kind of the agent's target and path cost to it; (0, inf) for none. Kinds are those of `search`.

    Args:
        layers: the map.
        goals: bool [SIDE, SIDE]: cells that hold the goal.
        here: the agent's cell.
    """
    costs = traversal_costs(layers)
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


class GoalEvidence:
    """Evidence of the goal in the cells of a map."""

    def __init__(self):
        self.pixels, self.views, self.misses = (np.zeros((SIDE, SIDE), int) for _ in range(3))

    @property
    def goals(self) -> np.ndarray:
        """bool [SIDE, SIDE]: cells that hold the goal."""
        return (self.pixels >= HITS) & (2 * self.views >= self.misses)

    def look(self, own: ReferenceMap, depth: np.ndarray, mask: np.ndarray, camera: Camera, ground: float) -> None:
        """Count a view: depth image [H, W], metres, and mask [H, W]."""
        points, _ = own.points_seen(depth, camera, ground)
        valid = (depth > 0) & (depth < own.body.max_depth)
        hits, near = np.zeros((SIDE, SIDE), int), np.zeros((SIDE, SIDE), bool)
        for r, c in np.argwhere(valid & ((mask > 0) | (depth < NEAR))):
            if (cell := own.cell(points[r, c])) is not None:
                hits[cell] += mask[r, c] > 0
                near[cell] |= mask[r, c] == 0
        known = self.pixels + self.views + self.misses > 0
        self.pixels = np.minimum(self.pixels + hits, 2047)
        self.views += hits > 0
        self.misses += (hits == 0) & near & known
        halved = (self.views > 15) | (self.misses > 31)
        self.views[halved] //= 2
        self.misses[halved] //= 2
        gone = (self.views == 0) & (self.misses > 0)
        self.pixels[gone] = self.misses[gone] = 0
