"""Map state: the arrays of N agents' maps, the codes in their two layers, and the geometry of cells.

A map lasts for one episode. It is a top-down square of SIDE x SIDE cells, centred between start and goal. The row index
grows along world Z, the column index along world X. Two u8 layers hold what is known of a cell:

    occupancy   0      free or unknown
                1      inflated: next to an obstacle
                2      traversed obstacle: holds an obstacle and was traversed by the agent
                3      interpolated: holds an obstacle only if two neighbouring pixels show one surface
                4 + k  occupied: holds an obstacle; the agent collided with it k more times
    explored    0      unexplored
                1      explored: its ground was seen
                2 + k  traversed by the agent, which then collided k times in it

No other file compares or computes codes. Device functions below take a code, properties of `MapLayers` take tensors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.runtime.kernels.decorators import inline_function, lean_function

SIDE = 192
"""Cells along a side of the map."""
CELLS = SIDE * SIDE
CELLS_PER_WORD = 8
"""Cells that share a word of `MapState.quadrants`."""
MAX_PATH_CELLS = 384
"""Maximum number of stored path cells. A longer path is not kept: the agent searches again at every step."""
PREDICTION_INTERVAL = 8
"""Minimum number of steps between two predictions for one agent."""
INFLATED, TRAVERSED_OBSTACLE, INTERPOLATED, OCCUPIED = 1, 2, 3, 4
"""Codes of `MapState.occupancy`."""
EXPLORED, TRAVERSED = 1, 2
"""Codes of `MapState.explored`."""
MAX_OCCUPIED = np.int32(200)
"""Highest code of an occupied cell."""
MAX_TRAVERSED = np.int32(TRAVERSED + 40)
"""Highest code of a traversed cell: 40 collisions. A traversed cell therefore always costs less than an occupied
one."""
_RESOLUTION = np.float32(0.2)
"""Smallest side of a cell, metres."""
_MARGIN = np.float32(8.0)
"""Smallest distance from start and goal to the map's edge, metres; maps of distant goals have larger cells."""
_ZERO, _HALF, _TWO = np.float32(0.0), np.float32(0.5), np.float32(2.0)


class MapLayers(NamedTuple):
    """The two layers of some maps, or of windows of maps, as tensors of equal shape."""

    occupancy: torch.Tensor
    """u8, codes of obstacles, inflation and collisions."""
    explored: torch.Tensor
    """u8, codes of exploration, traversal and collisions."""

    @property
    def is_occupied(self) -> torch.Tensor:
        """bool: True where a cell holds an obstacle and was not traversed."""
        return self.occupancy >= INTERPOLATED

    @property
    def is_inflated(self) -> torch.Tensor:
        """bool: True where a cell without an obstacle is next to one."""
        return self.occupancy == INFLATED

    @property
    def has_obstacle(self) -> torch.Tensor:
        """bool: True where a cell holds an obstacle, traversed or not."""
        return self.occupancy >= TRAVERSED_OBSTACLE

    @property
    def is_explored(self) -> torch.Tensor:
        """bool: True where a cell's ground was seen or traversed."""
        return self.explored > 0

    @property
    def is_known(self) -> torch.Tensor:
        """bool: True where a cell is explored or occupied."""
        return self.is_explored | self.is_occupied

    @property
    def is_traversed(self) -> torch.Tensor:
        """bool: True where the agent was in a cell."""
        return self.explored >= TRAVERSED

    @property
    def repeated_collisions(self) -> torch.Tensor:
        """i32: collisions that raise a cell's cost: after the detection of an occupied cell, or in a traversed one."""
        occupied = (self.occupancy.int() - OCCUPIED).clamp(min=0)
        traversed = (self.explored.int() - TRAVERSED).clamp(min=0) * (self.occupancy == TRAVERSED_OBSTACLE)
        return occupied + traversed


class MapState(NamedTuple):
    """Maps, paths and poses of N agents: all that their next update depends on."""

    episode: torch.Tensor
    """i32 [N]: number of the episode that the map belongs to; -1: none."""
    expected_cost: torch.Tensor
    """i32 [N]: path cost to the goal at the previous step, in the integer units of `costs`; 0: no path."""
    path: torch.Tensor
    """i32 [N, MAX_PATH_CELLS]: cells of the last planned path, from the agent's cell at planning time to the goal's."""
    cost_to_go: torch.Tensor
    """i32 [N, MAX_PATH_CELLS]: path cost from each cell of `path` to the goal."""
    path_length: torch.Tensor
    """i32 [N]: cells of `path`; 0: no path."""
    origin_and_resolution: torch.Tensor
    """f32 [N, 3]: world x and z of the map's corner, and the side of a cell, metres."""
    occupancy: torch.Tensor
    """u8 [N, CELLS]: codes of obstacles, inflation and collisions, see the module's table."""
    explored: torch.Tensor
    """u8 [N, CELLS]: codes of exploration, traversal and collisions, see the module's table."""
    quadrants: torch.Tensor
    """i32 [N, CELLS / 8]: quarters of the cells that hold obstacles, 4 bits a cell; see `quadrants`."""
    pose: torch.Tensor
    """f32 [N, 3]: the agent's x, z (metres) and heading (radians) at the previous step."""
    remaining_scan: torch.Tensor
    """f32 [N]: remaining rotation of the initial scan, radians to the left; 0 when done or disabled."""
    collisions: torch.Tensor
    """i32 [N]: collisions of the episode up to the previous step."""
    predicted_at: torch.Tensor
    """i32 [N]: step of the episode at which unexplored cells were last predicted; below 1: not yet."""
    dirty: torch.Tensor
    """i32 [N]: 0 where the map has not changed since the last prediction; 1 in the update that changes it; then 2 plus
    the step of the last change."""
    predicted_cost: torch.Tensor
    """u8 [N, CELLS]: predicted addition to an unexplored cell's traversal cost; u8 [0, CELLS] without a predictor."""

    @classmethod
    def empty(cls, n: int, device: torch.device, with_predictor: bool = False) -> MapState:
        """State of `n` agents before their first episode."""
        episode = torch.full((n,), -1, dtype=torch.int32, device=device)
        expected_cost, path_length, collisions, predicted_at, dirty = (torch.zeros_like(episode) for _ in range(5))
        path, cost_to_go = (torch.zeros(n, MAX_PATH_CELLS, dtype=torch.int32, device=device) for _ in range(2))
        occupancy, explored = (torch.zeros(n, CELLS, dtype=torch.uint8, device=device) for _ in range(2))
        quadrants = torch.zeros(n, CELLS // CELLS_PER_WORD, dtype=torch.int32, device=device)
        origin_and_resolution, pose = (torch.ones(n, 3, dtype=torch.float32, device=device) for _ in range(2))
        remaining_scan = torch.zeros(n, dtype=torch.float32, device=device)
        predicted_cost = torch.zeros(n if with_predictor else 0, CELLS, dtype=torch.uint8, device=device)
        return cls(
            episode, expected_cost, path, cost_to_go, path_length, origin_and_resolution, occupancy, explored,
            quadrants, pose, remaining_scan, collisions, predicted_at, dirty, predicted_cost,
        )  # fmt: skip

    @property
    def layers(self) -> MapLayers:
        """Occupancy and exploration, u8 [N, CELLS] each; live tensors."""
        return MapLayers(self.occupancy, self.explored)


class MappingParameters(NamedTuple):
    """Constants of the camera and the body that the map depends on."""

    max_depth: np.float32
    """Depths from here on are ignored, metres."""
    max_climb: np.float32
    """Surfaces up to this height above the ground are ground, metres."""
    agent_height: np.float32
    """Surfaces from this height above the ground on are ignored, metres."""
    half_step: np.float32
    """A collision is marked on the map only if the step advanced by less than this, metres."""
    half_turn: np.float32
    """A collision is marked on the map only if the step turned by less than this, radians."""
    scan_angle: np.float32
    """Angle that the camera sees before the agent plans, radians: 2 pi, or 0 without an initial scan."""


class Agents(NamedTuple):
    """Inputs of the map that come from the bodies and the goal sensor, as kernels read them."""

    position: Any
    """f32 [N, 3], metres."""
    heading: Any
    """f32 [N], radians."""
    episode: Any
    """i32 [N]: number of the running episode."""
    collisions: Any
    """i32 [N]: collisions of the running episode."""
    goal: Any
    """f32 [N, 2]: distance to the goal in the plane, metres, and its bearing, radians, positive to the left."""
    goal_level: Any
    """f32 [N, 3]: points at the height of the goals, metres."""


class MapCameras(NamedTuple):
    """Inputs of the map that come from the main cameras, as kernels read them."""

    position: Any
    """f32 [N, 3], metres."""
    heading: Any
    """f32 [N], radians."""
    pitch: Any
    """f32 [N], radians."""
    tan_half_hfov: Any
    """f32 [N]: tangent of half the horizontal field of view."""
    ground: Any
    """f32 [N, 3]: positions of the bodies that carry the cameras, metres."""


# Codes.


@inline_function
def is_inflated(occupancy):
    """True where the code is that of a cell next to an obstacle."""
    return occupancy == INFLATED


@inline_function
def is_near_obstacle(occupancy):
    """True where the code is that of an inflated cell or of an obstacle."""
    return occupancy > 0


@inline_function
def has_obstacle(occupancy):
    """True where the code is that of an obstacle, in a traversed cell or not."""
    return occupancy >= TRAVERSED_OBSTACLE


@inline_function
def is_traversed_obstacle(occupancy):
    """True where the code is that of an obstacle in a traversed cell."""
    return occupancy == TRAVERSED_OBSTACLE


@inline_function
def is_occupied(occupancy):
    """True where the code is that of an obstacle, interpolated or not, in a cell that was not traversed."""
    return occupancy >= INTERPOLATED


@inline_function
def is_interpolated(occupancy):
    """True where the code is that of an interpolated obstacle."""
    return occupancy == INTERPOLATED


@inline_function
def inflation(occupancy):
    """Inflation cost level of a cell that is not occupied, i32: 0 free, 1 inflated, 2 traversed obstacle."""
    return np.int32(occupancy)


@inline_function
def repeated_collisions(occupancy):
    """Collisions with an occupied cell after its detection, i32; negative where the cell is not occupied."""
    return np.int32(occupancy) - np.int32(OCCUPIED)


@inline_function
def is_explored(explored):
    """True where the code is that of a seen or traversed cell."""
    return explored != 0


@inline_function
def is_traversed(explored):
    """True where the code is that of a traversed cell."""
    return explored >= TRAVERSED


@inline_function
def collisions_while_traversed(explored):
    """Collisions in a cell after the agent traversed it, i32."""
    return max(np.int32(explored) - np.int32(TRAVERSED), np.int32(0))


@inline_function
def obstacle_code(occupancy, explored):
    """Occupancy of a cell after an obstacle is detected in it."""
    return np.uint8(max(occupancy, TRAVERSED_OBSTACLE if explored >= TRAVERSED else OCCUPIED))


@inline_function
def interpolated_code(explored):
    """Occupancy of a cell in which an obstacle is interpolated."""
    return np.uint8(TRAVERSED_OBSTACLE if explored >= TRAVERSED else INTERPOLATED)


@inline_function
def traversed_codes(occupancy, explored):
    """Both codes of a cell after the agent traverses it."""
    return np.uint8(min(occupancy, TRAVERSED_OBSTACLE)), np.uint8(max(explored, TRAVERSED))


@inline_function
def collided_occupancy(occupancy):
    """Occupancy of an occupied cell after one more collision, which confirms an interpolated obstacle."""
    return np.uint8(min(np.int32(occupancy) + np.int32(1), MAX_OCCUPIED))


@inline_function
def collided_explored(explored):
    """Exploration code of a traversed cell after one more collision."""
    return np.uint8(min(np.int32(explored) + np.int32(1), MAX_TRAVERSED))


@inline_function
def touches_codes(i, cell, lowest, highest, state):
    """True where one of the 3x3 cells around a cell has an occupancy code from `lowest` to `highest`."""
    r, c = cell // np.int32(SIDE), cell % np.int32(SIDE)
    found = False
    for nr in range(max(r - 1, 0), min(r + 2, SIDE)):
        for nc in range(max(c - 1, 0), min(c + 2, SIDE)):
            found |= lowest <= state.occupancy[i, nr * SIDE + nc] <= highest
    return found


@inline_function
def touches_traversed_obstacle(i, cell, state):
    """True where one of the 3x3 cells around a cell is a traversed obstacle."""
    return touches_codes(i, cell, TRAVERSED_OBSTACLE, TRAVERSED_OBSTACLE, state)


@inline_function
def touches_repeated_collision(i, cell, state):
    """True where the agent collided repeatedly with one of the 3x3 cells around a cell."""
    return touches_codes(i, cell, OCCUPIED + 1, MAX_OCCUPIED, state)


# Geometry.


@inline_function
def to_map(i, x, z, origin_and_resolution):
    """World x and z as map coordinates of agent i, in cells from the map's corner along X and Z."""
    u = (x - origin_and_resolution[i, 0]) / origin_and_resolution[i, 2]
    return u, (z - origin_and_resolution[i, 1]) / origin_and_resolution[i, 2]


@inline_function
def cell_at(u, v):
    """Index of the cell at map coordinates (u along X, v along Z, in cells); -1 off the map and for NaN."""
    limit = np.float32(SIDE)
    if not (u >= _ZERO and v >= _ZERO and u < limit and v < limit):
        return np.int32(-1)
    return np.int32(v) * np.int32(SIDE) + np.int32(u)


@inline_function
def cell_of(i, x, z, origin_and_resolution):
    """Index of the cell of agent i's map at world x and z; -1 off the map."""
    u, v = to_map(i, x, z, origin_and_resolution)
    return cell_at(u, v)


@inline_function
def centre_of(cell):
    """Map coordinates of a cell's centre, in cells."""
    return np.float32(cell % np.int32(SIDE)) + _HALF, np.float32(cell // np.int32(SIDE)) + _HALF


# A new map.


@lean_function
def clear_map(lane, lanes, i, state_out):
    """Clear the layers of agent i's map. The lanes share the cells."""
    for cell in range(lane, CELLS, lanes):
        state_out.occupancy[i, cell] = np.uint8(0)
        state_out.explored[i, cell] = np.uint8(0)
    for word in range(lane, state_out.quadrants.shape[1], lanes):
        state_out.quadrants[i, word] = np.int32(0)
    if len(state_out.predicted_cost) > 0:
        for cell in range(lane, CELLS, lanes):
            state_out.predicted_cost[i, cell] = np.uint8(0)


@lean_function
def place_map(i, episode, pose, goal_x, goal_z, state_out):
    """Place agent i's map for a new episode. `pose`: x, z and heading of the agent."""
    x, z, heading = pose
    extent = max(abs(goal_x - x), abs(goal_z - z))
    size = max(_RESOLUTION, (extent + _TWO * _MARGIN) / np.float32(SIDE))
    state_out.origin_and_resolution[i, 0] = _HALF * (x + goal_x - np.float32(SIDE) * size)
    state_out.origin_and_resolution[i, 1] = _HALF * (z + goal_z - np.float32(SIDE) * size)
    state_out.origin_and_resolution[i, 2] = size
    state_out.pose[i, 0], state_out.pose[i, 1], state_out.pose[i, 2] = x, z, heading
    state_out.episode[i], state_out.expected_cost[i], state_out.path_length[i] = episode, np.int32(0), np.int32(0)
    # a prediction is due after the first step
    state_out.dirty[i], state_out.predicted_at[i] = np.int32(1), np.int32(1 - PREDICTION_INTERVAL)


# Quadrants of cells: which of the four quarters of a cell hold points of an obstacle

_ALL, _LOW_Z, _HIGH_Z, _LOW_X, _HIGH_X = (np.int32(bits) for bits in (15, 3, 12, 5, 10))
"""Quadrants of a whole cell and of its halves."""
_GAPS = np.int32(sum(1 << bits for bits in (1, 2, 4, 8, 3, 12, 5, 10)))
"""Bit k is 1 where quadrants k are one quarter, or two that share a side."""
_TWO_BITS = np.float32(2.0)


@inline_function
def word_of(cell):
    """Index of the word of `MapState.quadrants` that holds the quadrants of a cell and of its seven neighbours."""
    return cell >> np.int32(3)


@inline_function
def quadrants_of(i, cell, state):
    """Quadrants of a cell, i32, 0 to 15."""
    return quadrants_in(cell, state.quadrants[i, word_of(cell)])


@inline_function
def quadrants_in(cell, word):
    """Quadrants of a cell in its word."""
    return (word >> (np.int32(4) * (cell & np.int32(7)))) & _ALL


@inline_function
def quadrant_bit(cell, u, v):
    """Bit of the quarter at map coordinates (u, v) in the word that holds the quadrants of its cell."""
    right, down = np.int32(_TWO_BITS * u) & np.int32(1), np.int32(_TWO_BITS * v) & np.int32(1)
    return np.int32(1) << (np.int32(4) * (cell & np.int32(7)) + np.int32(2) * down + right)


@inline_function
def is_gap(quadrants):
    """True where the obstacle in a cell leaves one of the cell's sides free."""
    return (_GAPS >> quadrants) & np.int32(1) != 0


@inline_function
def _holds_all_facing(quadrants, dr, dc):
    """True where all quarters that face the neighbour `dr` rows and `dc` columns away hold obstacles."""
    facing = _ALL
    if dr != 0:
        facing &= _HIGH_Z if dr > 0 else _LOW_Z
    if dc != 0:
        facing &= _HIGH_X if dc > 0 else _LOW_X
    return quadrants & facing == facing


@inline_function
def is_closed(i, cell, to, state):
    """True where the edge between two neighbouring cells is closed; False for a cell and itself."""
    side = np.int32(SIDE)
    dr, dc = to // side - cell // side, to % side - cell % side
    if dr == 0 and dc == 0:
        return False
    return _holds_all_facing(quadrants_of(i, cell, state), dr, dc) or _holds_all_facing(
        quadrants_of(i, to, state), -dr, -dc
    )
