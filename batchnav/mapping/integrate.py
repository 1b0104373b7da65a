"""What depth tells of the ground: where it is to be seen and where something stands, on a map that an agent makes.

The map of an episode is a square of SIDE x SIDE cells around the middle between its start and its goal, seen from
above. A pixel that met something between an agent's feet, which climb a little, and its head is an obstacle in the cell
below it; one that met the ground has seen that, and all ground between itself and what the pixel above it sees. What
stopped the agent is an obstacle too.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch

from batchnav.geometry.pose import camera_axes, forward
from batchnav.runtime.kernels.decorators import inline_function, lean_function
from batchnav.runtime.kernels.synchronization import atomic_add

SIDE = 192
"""Cells along the map's sides."""
CELLS = SIDE * SIDE
LONGEST = 384
"""Cells of a way that are kept; a longer one is planned anew at every step."""
BESIDE, SHARED, OBSTACLE = 1, 2, 3
GROUND, WALKED = 1, 2
EVERY = 8
"""Steps of an agent from one guess of what it has not seen to the next."""
_CELL = np.float32(0.2)
"""Metres of a cell's sides, at least."""
_AROUND = np.float32(8.0)
"""Metres around start and goal that a map has, at least: where they are far apart, its cells are larger."""
_LINK = np.float32(0.5)
"""Metres: neighbouring pixels that met something no farther apart met the same, also between them."""
_BEYOND, _BEFORE = np.float32(1.5), np.float32(0.9)
"""Cells ahead of an agent at which what stops it is marked: in another cell than its own, whichever way it looks; and
where something is known to stand there."""
FIRMEST = np.int32(200)
"""The highest number of an obstacle."""
SHUNNED = np.int32(WALKED + 40)
"""The highest number of walked ground, which is less dear than an obstacle."""
_MOST_BETWEEN = 32
"""Cells between two pixels of the ground that are seen too, at most."""
_NOTHING, _GROUND, _OBSTACLE = np.int32(0), np.int32(1), np.int32(2)
_ZERO, _HALF, _TWO = np.float32(0.0), np.float32(0.5), np.float32(2.0)
ALL_AROUND = np.float32(2.0 * math.pi)


class Known(NamedTuple):
    """What N agents know."""

    episode: torch.Tensor
    """i32 [N]: the episode that the map is of; -1: of none."""
    expected: torch.Tensor
    """i32 [N]: how long the way was a step ago, as `left` has it."""
    way: torch.Tensor
    """i32 [N, LONGEST]: the cells of the way when it was planned last, from where the agent was to the goal."""
    left: torch.Tensor
    """i32 [N, LONGEST]: how long it is from there, as `sensors.search` counts it."""
    length: torch.Tensor
    """i32 [N]: cells of the way; 0: nothing was planned."""
    frame: torch.Tensor
    """f32 [N, 3]: x and z of the map's corner, and the length of a cell's sides, metres."""
    stands: torch.Tensor
    """u8 [N, CELLS]: OBSTACLE where something stands, one more for each time that it stopped the agent again, SHARED
    where the agent stood too, BESIDE in the cells around. Rows of cells go along Z, and cells of a row along X."""
    ground: torch.Tensor
    """u8 [N, CELLS]: GROUND where the ground was seen, WALKED where the agent stood, one more for each time that
    something stopped it there."""
    pose: torch.Tensor
    """f32 [N, 3]: x, z and heading of the agent a step ago."""
    around: torch.Tensor
    """f32 [N]: radians to the left that the agent is to turn until it has looked around; 0: it has, or need not."""
    collisions: torch.Tensor
    """i32 [N]: how many the agent had had by then."""
    guessed: torch.Tensor
    """i32 [N]: the step of its episode when what it had not seen was guessed last; below 1: it was not."""
    news: torch.Tensor
    """i32 [N]: 1 where the map has changed since then."""
    anticipated: torch.Tensor
    """u8 [N, CELLS]: parts of a toll, added to a cell's as long as its ground was not seen; u8 [0, CELLS]: none."""

    @classmethod
    def empty(cls, n: int, device: torch.device, anticipates: bool = False) -> Known:
        """Of `n` agents before their first episode, which guess what they have not seen or take it for free."""
        episode = torch.full((n,), -1, dtype=torch.int32, device=device)
        expected, length, collisions, guessed, news = (torch.zeros_like(episode) for _ in range(5))
        way, left = (torch.zeros(n, LONGEST, dtype=torch.int32, device=device) for _ in range(2))
        stands, ground = (torch.zeros(n, CELLS, dtype=torch.uint8, device=device) for _ in range(2))
        frame, pose = (torch.ones(n, 3, device=device) for _ in range(2))
        around = torch.zeros(n, device=device)
        anticipated = torch.zeros(n if anticipates else 0, CELLS, dtype=torch.uint8, device=device)
        guesses = guessed, news, anticipated
        return cls(episode, expected, way, left, length, frame, stands, ground, pose, around, collisions, *guesses)


class Sight(NamedTuple):
    """The camera and the body, as far as the map depends on them."""

    reach: np.float32
    """Metres: what is deeper is not seen."""
    climb: np.float32
    """Metres above the ground up to which nothing is an obstacle."""
    head: np.float32
    """Metres above the ground from which on nothing is one."""
    half_step: np.float32
    """Metres: a step ahead that comes less far has met something."""
    half_turn: np.float32
    """Radians: who turned so much did not go ahead."""
    around: np.float32
    """Radians that an agent is to have seen before it plans: all around, or 0."""


@inline_function
def place_in_cells(i, x, z, frame):
    """Where a point is on agent i's map, in cells from its corner: along X and along Z."""
    return (x - frame[i, 0]) / frame[i, 2], (z - frame[i, 1]) / frame[i, 2]


@inline_function
def cell_at(u, v):
    """The cell of a place on a map, as one number; -1 off the map."""
    limit = np.float32(SIDE)
    if not (u >= _ZERO and v >= _ZERO and u < limit and v < limit):  # NaN is off it too
        return np.int32(-1)
    return np.int32(v) * np.int32(SIDE) + np.int32(u)


@inline_function
def cell_of(i, x, z, frame):
    """The cell of agent i's map that a point lies in; -1 off the map."""
    u, v = place_in_cells(i, x, z, frame)
    return cell_at(u, v)


@lean_function
def forget(lane, lanes, i, known_out):
    """An empty map; every lane does its share."""
    for cell in range(lane, CELLS, lanes):
        known_out.stands[i, cell] = np.uint8(0)
        known_out.ground[i, cell] = np.uint8(0)
    if len(known_out.anticipated) > 0:
        for cell in range(lane, CELLS, lanes):
            known_out.anticipated[i, cell] = np.uint8(0)


@lean_function
def begin_map(i, episode, pose, goal_x, goal_z, known_out):
    """Where the map of a new episode lies, for an agent at `pose`: x, z and heading."""
    x, z, heading = pose
    apart = max(abs(goal_x - x), abs(goal_z - z))
    size = max(_CELL, (apart + _TWO * _AROUND) / np.float32(SIDE))
    known_out.frame[i, 0] = _HALF * (x + goal_x - np.float32(SIDE) * size)
    known_out.frame[i, 1] = _HALF * (z + goal_z - np.float32(SIDE) * size)
    known_out.frame[i, 2] = size
    known_out.pose[i, 0], known_out.pose[i, 1], known_out.pose[i, 2] = x, z, heading
    known_out.episode[i], known_out.expected[i], known_out.length[i] = episode, np.int32(0), np.int32(0)
    known_out.news[i], known_out.guessed[i] = np.int32(1), np.int32(1 - EVERY)  # so that it is due after the first step


@inline_function
def _mark(i, x, z, row, new_out, known_out):
    """Something stands here: note the cell, where that is news."""
    cell = cell_of(i, x, z, known_out.frame)
    if cell >= 0 and known_out.stands[i, cell] < SHARED:
        known_out.stands[i, cell] = np.uint8(SHARED if known_out.ground[i, cell] >= WALKED else OBSTACLE)
        known_out.news[i] = np.int32(1)
        place = atomic_add(new_out.count, row, np.int32(0), np.int32(1))
        if place < new_out.line.shape[1]:  # several lanes may note one cell
            new_out.line[row, place] = cell


@inline_function
def touches(i, cell, least, most, known):
    """Whether what stands in one of the cells around a cell has a number from `least` to `most`."""
    r, c = cell // np.int32(SIDE), cell % np.int32(SIDE)
    found = False
    for nr in range(max(r - 1, 0), min(r + 2, SIDE)):
        for nc in range(max(c - 1, 0), min(c + 2, SIDE)):
            found |= least <= known.stands[i, nr * SIDE + nc] <= most
    return found


@inline_function
def _see(i, x, z, known_out):
    """The ground is to be seen here. Where a way may become shorter by that, the one that is kept no longer is."""
    cell = cell_of(i, x, z, known_out.frame)
    if cell >= 0 and known_out.ground[i, cell] == 0:
        known_out.ground[i, cell], known_out.news[i] = np.uint8(GROUND), np.int32(1)
        # around a SHARED cell all are BESIDE at least, so that few look further
        if known_out.stands[i, cell] > 0 and known_out.length[i] > 0 and touches(i, cell, SHARED, SHARED, known_out):
            known_out.length[i] = np.int32(0)


@inline_function
def _met(i, row, column, depth, eye, sight):
    """What a pixel met, and where that is, seen from the camera: metres along X and Z.

    `eye`: the camera's axes, half a pixel's side at distance 1, and its height above the ground.
    """
    _, height, width = depth.shape
    metres, (axes, scale, camera_height) = depth[i, row, column], eye
    right = np.float32(2 * column + 1 - width) * scale * metres
    up = np.float32(height - 1 - 2 * row) * scale * metres
    (rx, _, rz), (ux, uy, uz), (fx, fy, fz) = axes
    level = camera_height + up * uy + metres * fy
    met = _NOTHING
    if metres > _ZERO and metres < sight.reach and level < sight.head:
        met = _OBSTACLE if level > sight.climb else _GROUND
    return met, right * rx + up * ux + metres * fx, right * rz + up * uz + metres * fz


@lean_function
def begin_look(row, new_out):
    """Nothing is noted yet."""
    new_out.count[row, 0] = np.int32(0)


@inline_function
def stand(i, cell, known_out):
    """An agent stands here, where something may stand too; if that is news, the shortest way may be another."""
    if known_out.stands[i, cell] >= OBSTACLE:
        known_out.length[i], known_out.news[i] = np.int32(0), np.int32(1)
    known_out.stands[i, cell] = np.uint8(min(known_out.stands[i, cell], SHARED))
    known_out.ground[i, cell] = np.uint8(max(known_out.ground[i, cell], WALKED))


@lean_function
def begin_around(i, tan_half_hfov, sight, known_out):
    """How far an agent is to turn until its camera has seen so much."""
    known_out.around[i] = max(sight.around - _TWO * np.float32(math.atan(tan_half_hfov)), _ZERO)


@inline_function
def _turn_around(i, turned, known_out):
    """The agent has turned to the left, by an angle of which whole turns may be missing."""
    turned -= ALL_AROUND * np.float32(math.floor(turned / ALL_AROUND + _HALF))
    if known_out.around[i] > _ZERO:
        known_out.around[i] = max(known_out.around[i] - turned, _ZERO)


@lean_function
def walk(i, row, walkers, sight, new_out, known_out):
    """Where the agent came by since it looked last, and what stopped it."""
    x, z, heading = walkers.position[i, 0], walkers.position[i, 2], walkers.heading[i]
    dx, dz = x - known_out.pose[i, 0], z - known_out.pose[i, 1]
    came = np.float32(math.sqrt(dx * dx + dz * dz))
    _turn_around(i, heading - known_out.pose[i, 2], known_out)
    hit = walkers.collisions[i] > known_out.collisions[i] and abs(heading - known_out.pose[i, 2]) < sight.half_turn
    if hit and came < sight.half_step:
        _bump(i, x, z, heading, row, new_out, known_out)
    parts = max(np.int32(came / known_out.frame[i, 2]) + np.int32(1), np.int32(2))
    for k in range(1, parts):
        share = np.float32(k) / np.float32(parts)
        between = cell_of(i, x - share * dx, z - share * dz, known_out.frame)
        if between >= 0:
            stand(i, between, known_out)
    known_out.pose[i, 0], known_out.pose[i, 1], known_out.pose[i, 2] = x, z, heading
    known_out.collisions[i] = walkers.collisions[i]


@lean_function
def _bump(i, x, z, heading, row, new_out, known_out):
    """What stopped the agent stands before it, seen or not: what is at its feet, a camera looks over.

    As the collision map of Chaplot et al. (ICLR 2020) has it. Where an obstacle stood already, it becomes firmer, as
    what is nearer does: of the obstacles around an agent that knows no way out, it is to try another.
    """
    (fx, fz), size = forward(heading), known_out.frame[i, 2]
    ahead, nearer = _BEYOND * size, _BEFORE * size
    cell = cell_of(i, x + ahead * fx, z + ahead * fz, known_out.frame)
    if cell >= 0 and known_out.stands[i, cell] >= OBSTACLE:
        _stop(i, x + nearer * fx, z + nearer * fz, row, new_out, known_out)
    _stop(i, x + ahead * fx, z + ahead * fz, row, new_out, known_out)


@inline_function
def _stop(i, x, z, row, new_out, known_out):
    """Note what stopped the agent: an obstacle, or, where it has walked, ground that is dearer each time."""
    cell = cell_of(i, x, z, known_out.frame)
    if cell < 0:
        return
    if known_out.stands[i, cell] >= OBSTACLE:
        known_out.stands[i, cell] = np.uint8(min(np.int32(known_out.stands[i, cell]) + np.int32(1), FIRMEST))
        return
    if known_out.ground[i, cell] >= WALKED:
        known_out.ground[i, cell] = np.uint8(min(np.int32(known_out.ground[i, cell]) + np.int32(1), SHUNNED))
    _mark(i, x, z, row, new_out, known_out)


@lean_function
def look(lane, lanes, i, row, depth, views, sight, new_out, known_out):
    """What an image f32 [N, H, W] of agent i tells; every lane does its share. Several may write one cell.

    The cells that are obstacles from now on are noted in row `row` of new_out.line, and counted.
    """
    _, height, width = depth.shape
    scale, camera_height = views.tan_half_hfov[i] / np.float32(width), views.position[i, 1] - views.ground[i, 1]
    eye = camera_axes(views.heading[i], views.pitch[i]), scale, camera_height
    x, z, size = views.position[i, 0], views.position[i, 2], known_out.frame[i, 2]
    place, w = np.int32(lane), np.int32(width)
    for _ in range(lane, height * width, lanes):
        line, column = place // w, place % w
        place += np.int32(lanes)
        met, dx, dz = _met(i, line, column, depth, eye, sight)
        if met == _NOTHING:
            continue
        if met == _GROUND:
            _see(i, x + dx, z + dz, known_out)
            if line > 0:  # what the pixel above sees may be farther away, and all ground before it is seen
                above, to_dx, to_dz = _met(i, line - np.int32(1), column, depth, eye, sight)
                apart = np.float32(math.sqrt((to_dx - dx) * (to_dx - dx) + (to_dz - dz) * (to_dz - dz)))
                if above != _NOTHING and apart > size:
                    steps = min(np.int32(apart / size) + np.int32(1), np.int32(_MOST_BETWEEN))
                    for k in range(1, steps):
                        share = np.float32(k) / np.float32(steps)
                        _see(i, x + dx + share * (to_dx - dx), z + dz + share * (to_dz - dz), known_out)
            continue
        _mark(i, x + dx, z + dz, row, new_out, known_out)
        if column + 1 < width:
            beside, to_dx, to_dz = _met(i, line, column + np.int32(1), depth, eye, sight)
            apart = np.float32(math.sqrt((to_dx - dx) * (to_dx - dx) + (to_dz - dz) * (to_dz - dz)))
            if beside == _OBSTACLE and size < apart < _LINK:
                third = np.float32(1.0 / 3.0)
                for k in range(1, 3):
                    share = np.float32(k) * third
                    _mark(i, x + dx + share * (to_dx - dx), z + dz + share * (to_dz - dz), row, new_out, known_out)


@lean_function
def widen(lane, lanes, i, row, new, known_out):
    """Mark what is beside the noted obstacles; every lane does its share."""
    for k in range(lane, min(new.count[row, 0], new.line.shape[1]), lanes):
        cell = new.line[row, k]
        r, c = cell // np.int32(SIDE), cell % np.int32(SIDE)
        for nr in range(max(r - 1, 0), min(r + 2, SIDE)):
            for nc in range(max(c - 1, 0), min(c + 2, SIDE)):
                if known_out.stands[i, nr * SIDE + nc] == 0:
                    known_out.stands[i, nr * SIDE + nc] = np.uint8(BESIDE)
