"""What not knowing the map costs a PointNav agent: one that maps what it sees, and plans on its map.

    python eval/without_map.py
    python eval/without_map.py --episodes assets/episodes/scan.json.gz --sees around --out runs/without_map

It knows its pose, and assumes that what it has not seen is free: "freespace assumption" (Zelinsky, "A mobile robot
exploration algorithm", 1992; Koenig and Smirnov, "Sensor-based planning with the freespace assumption", 1997). Its map
has cells of 5 cm. A cell that its depth camera sees tells at once whether one can stand there, by the navmesh: mapping
is without error, which no agent's is. The way to the goal is found by fast marching (Sethian, 1996), and anew when
something was seen to be in it. It is walked by the environment's own steps and turns.

With `--sees map` all is known from the start. What is then lost is the walking's, and the rest is not knowing.
Prints success and SPL with 95% intervals, and the SPL that is lost by outcome, as `eval/failures.py` has them.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numba
import numpy as np
import torch
import tyro
from numba import prange
from rich.console import Console
from rich.table import Table

from batchnav.envs.config import NavConfig, with_options
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError, BatchnavError
from batchnav.evaluation.run import Evaluation
from batchnav.navmesh.navmesh import NavMesh
from batchnav.runtime.bundled import EPISODES
from batchnav.sim.bodies import FORWARD, LEFT, RIGHT, STOP
from batchnav.tasks.pointnav import METRIC_SPECS
from batchnav.view.terminal import print_agents
from eval.failures import by_outcome, outcomes

CELL = 0.05
"""Metres."""
STOREY = 0.5
"""Metres: floors whose heights round to the same multiple share a map, which has what is up to 1.5 of it off."""
NEAR = 6
"""Cells around the agent that it knows, seen or not."""
BESIDE = 2
"""Cells around one in which a ray ended that are known: an agent's radius."""
TOLERANCE = 0.1
"""Metres by which a floor may be farther than what its ray met."""
BLOCKED, MARGIN, BUMPED = np.float32(1000.0), np.float32(1.5), np.float32(4.0)
"""What a metre costs where one cannot stand, beside such a cell, and by how much more where a step fell short. Nothing
is impassable: a passage can be too narrow for the cells."""
STOP_SLACK = 0.005
"""Metres nearer than need be at which it stops."""
EYES = {"map": (), "ahead": (0.0,), "around": (0.0, 90.0, 180.0, 270.0)}
"""Degrees to the left in which it looks."""

njit = numba.njit(error_model="numpy", cache=True)


@dataclass(frozen=True)
class Options:
    """What to play."""

    episodes: tuple[Path, ...] = field(default_factory=lambda: (EPISODES / "val.json.gz",))
    """Episode files."""
    sees: Literal["ahead", "around", "map"] = "ahead"
    """The 90 degrees ahead, all around, or all at once."""
    size: int = 64
    """Pixels of the depth camera's sides."""
    unknown: float = 1.0
    """What a metre through unseen cells costs, where one through seen ones costs 1."""
    num_envs: int = 64
    """Environments at a time, at most one per episode."""
    out: Path | None = None
    """Folder for a file of results for each file of episodes."""


def main(options: Options) -> None:
    player = MapPlayer(options.sees, options.size, options.unknown)
    for path in options.episodes:
        evaluation = Evaluation(path, torch.device("cpu"), player.config.body, options.num_envs)
        played = evaluation.play(player)
        outcome = outcomes(played.episodes, player.config.task.max_steps)
        print_agents(path.name, {player.name: played.overall}, METRIC_SPECS)
        table = Table("outcome", "episodes", "SPL lost")
        for name, values in by_outcome(outcome, played.episodes["spl"]).items():
            table.add_row(name, f"{values['episodes']:.3f}", f"{values['spl_lost']:.3f}")
        Console().print(table)
        if options.out is not None:
            evaluation.write_results(options.out / f"{evaluation.split}_{options.sees}.json", played)


class MapPlayer:
    """The agent with the eyes that it has: a `batchnav.evaluation.run.Player`."""

    def __init__(self, sees: str = "ahead", size: int = 64, unknown: float = 1.0):
        if not 1.0 <= unknown < BLOCKED:
            raise ArgumentError(f"unknown: found {unknown}, expected 1 to less than {BLOCKED:g}")
        self.name, self.unknown, self.degrees = f"maps what it sees: {sees}", unknown, EYES[sees]
        config = with_options(NavConfig(), {"height": size, "width": size})
        names = ["", "left", "back", "right"][: len(self.degrees)]
        cameras = {
            name: dataclasses.replace(config.camera, camera_heading_deg=degrees)
            for name, degrees in zip(names, self.degrees, strict=True)
            if name
        }
        sensors = tuple(f"{name}_depth" if name else "depth" for name in names)
        self.config = dataclasses.replace(config, cameras=cameras, sensors=sensors)
        self.sees = bool(sensors)

    def enter(self, env: NavEnv) -> MapAgent:
        """The agent in this environment."""
        return MapAgent(env, self)


class Maps(NamedTuple):
    """What every agent knows. Rows of cells go along Z, columns along X."""

    free: np.ndarray
    """bool [N, R, C]: the truth, which it does not know."""
    known: np.ndarray
    """bool [N, R, C]."""
    cost: np.ndarray
    """f32 [N, R, C]: of a metre, as far as it knows."""
    dearer: np.ndarray
    """bool [N, R, C]: since it planned."""
    time: np.ndarray
    """f32 [N, R, C]: cost from there to the goal, in cells; inf where planning did not come to."""
    low: np.ndarray
    """f64 [N, 2]: x and z of the first cell's corner."""
    size: np.ndarray
    """i64 [N, 2]: rows and columns in use."""
    stale: np.ndarray
    """bool [N]: whether it has to plan anew for other reasons."""


class Eyes(NamedTuple):
    """What is the same for all cameras."""

    height: float
    """Metres above the navmesh."""
    reach: float
    """Metres, to which depth 1 belongs."""
    headings: np.ndarray
    """f64 [V], radians to the left."""


class MapAgent:
    """Maps what the depth cameras see, plans on the map, and goes where the plan says."""

    def __init__(self, env: NavEnv, player: MapPlayer):
        self._env, self._player, n = env, player, env.num_envs
        lows, highs = zip(*(scene.navmesh.bounds[:, [0, 2]] for scene in env.bank.scenes), strict=True)
        columns, rows = np.ceil((np.array(highs) - np.array(lows)).max(0) / CELL).astype(int) + 2 * NEAR
        bools, floats = (n, rows, columns), (n, rows, columns)
        self._maps = Maps(
            np.zeros(bools, bool), np.zeros(bools, bool), np.zeros(floats, np.float32), np.zeros(bools, bool),
            np.zeros(floats, np.float32), np.zeros((n, 2)), np.zeros((n, 2), np.int64), np.zeros(n, bool),
        )  # fmt: skip
        camera, depth = player.config.camera, player.config.depth
        self._eyes = Eyes(camera.camera_height, depth.max_depth, np.radians(np.array(player.degrees, np.float64)))
        body = env.config.body
        self._step, self._turn = body.forward_step, math.radians(body.turn_angle_deg)
        self._radius = env.config.task.success_distance - STOP_SLACK
        self._floors: dict[tuple[int, int, int], np.ndarray] = {}

    def reset(self, num_envs: int) -> None:
        """Forget everything."""
        self._actions = np.zeros(num_envs, np.int64)
        self._positions = np.zeros((num_envs, 3), np.float32)

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Actions i64 [N]."""
        bodies, state = self._env.sim.bodies, self._env.task.state
        playing = state.table_index.numpy() >= 0  # who has played all of the table waits for the others
        positions, started = bodies.position.numpy(), episode_start.numpy()
        for i in np.flatnonzero(started & playing):
            self._begin(i, int(bodies.scene[i]), positions[i])
        names = self._player.config.sensors
        seen = np.stack([observations[name].numpy()[:, 0] for name in names], axis=1) if names else NOTHING
        went = self._actions == FORWARD
        fell_short = ~started & went & (np.linalg.norm(positions - self._positions, axis=1) < 0.5 * self._step)
        act_all(
            self._maps, self._eyes, seen, positions, bodies.heading.numpy(), state.goal.numpy(),
            playing, fell_short, self._turn, self._radius, self._player.unknown, self._actions,
        )  # fmt: skip
        self._positions = positions.copy()
        return torch.from_numpy(self._actions)

    def _begin(self, i: int, scene: int, start: np.ndarray) -> None:
        """An empty map for environment i, or, for one that sees nothing, a whole one."""
        maps, navmesh = self._maps, self._env.bank.scenes[scene].navmesh
        key = scene, int(navmesh.island(start)), round(float(start[1]) / STOREY)
        if key not in self._floors:
            self._floors[key] = floor_of(navmesh, key[1], key[2] * STOREY)
        floor = self._floors[key]
        rows, columns = maps.size[i] = floor.shape
        maps.low[i] = navmesh.bounds[0, [0, 2]] - NEAR * CELL
        maps.free[i] = False
        maps.free[i, :rows, :columns] = floor
        maps.known[i], maps.cost[i], maps.dearer[i], maps.stale[i] = False, self._player.unknown, False, True
        self._actions[i] = STOP
        if not self._player.sees:
            reveal_all(i, maps)


NOTHING = np.zeros((0, 0, 0, 0), np.float32)
"""What an agent without cameras sees."""


def floor_of(navmesh: NavMesh, island: int, height: float) -> np.ndarray:
    """Where one can stand on an island at about this height: bool [rows, columns], NEAR cells around its bounds."""
    low, high = navmesh.bounds[:, [0, 2]].astype(float)
    columns, rows = np.ceil((high - low) / CELL).astype(int) + 2 * NEAR
    x = low[0] + (np.arange(columns) - NEAR + 0.5) * CELL
    z = low[1] + (np.arange(rows) - NEAR + 0.5) * CELL
    points = np.stack(np.broadcast_arrays(x, height, z[:, None]), axis=2).reshape(-1, 3).astype(np.float32)
    stands = navmesh.is_navigable(points, 1.5 * STOREY) & (navmesh.island(points) == island)
    return stands.reshape(rows, columns)


# One agent's map.


@njit
def reveal(i, r, c, maps):
    """A cell becomes known, and what is beside an obstacle dearer."""
    rows, columns = maps.size[i]
    if r < 0 or c < 0 or r >= rows or c >= columns or maps.known[i, r, c]:
        return
    maps.known[i, r, c], free = True, maps.free[i, r, c]
    cost = np.float32(1.0) if free else BLOCKED
    for nr in range(max(r - 1, 0), min(r + 2, rows)):
        for nc in range(max(c - 1, 0), min(c + 2, columns)):
            known = maps.known[i, nr, nc]
            if not free and maps.cost[i, nr, nc] < MARGIN:
                maps.cost[i, nr, nc], maps.dearer[i, nr, nc] = MARGIN, True
            elif free and known and not maps.free[i, nr, nc]:
                cost = MARGIN
    maps.stale[i] |= cost < maps.cost[i, r, c]
    maps.dearer[i, r, c] |= cost > maps.cost[i, r, c]
    maps.cost[i, r, c] = cost


@njit
def reveal_all(i, maps):
    """The whole map."""
    for r in range(maps.size[i, 0]):
        for c in range(maps.size[i, 1]):
            reveal(i, r, c, maps)


@njit
def look(i, eyes, heading, depth, x, z, maps):
    """What one camera's image f32 [H, W] tells, from x and z in cells."""
    height, width = depth.shape
    fx, fz = -math.sin(heading), -math.cos(heading)
    look_at_floor(i, eyes, fx, fz, depth, x, z, maps)
    for row in range(height):
        up = (height - 1 - 2 * row) / width
        for column in range(width):
            metres, right = depth[row, column] * eyes.reach, (2 * column + 1 - width) / width
            level = eyes.height + up * metres
            if 0.0 < metres < 0.999 * eyes.reach and 0.0 < level < 1.5:
                hit_c = int(x + metres / CELL * (fx - right * fz))
                hit_r = int(z + metres / CELL * (fz + right * fx))
                for r in range(hit_r - BESIDE, hit_r + BESIDE + 1):
                    for c in range(hit_c - BESIDE, hit_c + BESIDE + 1):
                        reveal(i, r, c, maps)


@njit
def look_at_floor(i, eyes, fx, fz, depth, x, z, maps):
    """The cells whose floor is not hidden; what is below the image is seen as far as its lowest row is free."""
    height, width = depth.shape
    reach = int(eyes.reach * math.sqrt(2.0) / CELL)
    for r in range(max(0, int(z) - reach), min(maps.size[i, 0], int(z) + reach)):
        for c in range(max(0, int(x) - reach), min(maps.size[i, 1], int(x) + reach)):
            if maps.known[i, r, c]:
                continue
            dx, dz = (c + 0.5 - x) * CELL, (r + 0.5 - z) * CELL
            ahead, right = dx * fx + dz * fz, dz * fx - dx * fz
            if ahead <= 0.0 or ahead >= eyes.reach or abs(right) >= ahead:
                continue
            column = min(width - 1, int((right / ahead + 1.0) * 0.5 * width))
            row = min(height - 1, int((height / width + eyes.height / ahead) * 0.5 * width))
            below = (2 * row + 1 - height) / width
            if depth[row, column] * eyes.reach >= min(ahead, eyes.height / below) - TOLERANCE:
                reveal(i, r, c, maps)


# One agent's plan.


@njit
def arrival(r, c, cost, time):
    """The eikonal equation's time at a cell, of first order, from its neighbours'."""
    inf = np.float32(np.inf)
    rows, columns = time.shape
    a = min(time[r - 1, c] if r > 0 else inf, time[r + 1, c] if r + 1 < rows else inf)
    b = min(time[r, c - 1] if c > 0 else inf, time[r, c + 1] if c + 1 < columns else inf)
    if abs(a - b) >= cost:
        return min(a, b) + cost
    return np.float32(0.5) * (a + b + np.float32(math.sqrt(2.0 * cost * cost - (a - b) * (a - b))))


@njit
def plan(i, agent_r, agent_c, goal_x, goal_z, maps):
    """Cost from every cell to the goal, as far as to just beyond the agent."""
    rows, columns = maps.size[i]
    cost, time = maps.cost[i, :rows, :columns], maps.time[i, :rows, :columns]
    time[:] = np.inf
    maps.dearer[i], maps.stale[i] = False, False
    heap, last = [(np.float32(0.0), int(goal_z), int(goal_x))], np.float32(np.inf)
    for r in range(max(int(goal_z) - 1, 0), min(int(goal_z) + 2, rows)):
        for c in range(max(int(goal_x) - 1, 0), min(int(goal_x) + 2, columns)):
            time[r, c] = math.hypot(r + 0.5 - goal_z, c + 0.5 - goal_x)
            heapq.heappush(heap, (time[r, c], r, c))
    while len(heap) and heap[0][0] <= last:
        key, r, c = heapq.heappop(heap)
        if r == agent_r and c == agent_c:
            last = min(last, time[r, c] + np.float32(2 * NEAR))
        for k in range(4 if key <= time[r, c] else 0):
            nr, nc = r + (k == 0) - (k == 1), c + (k == 2) - (k == 3)
            if 0 <= nr < rows and 0 <= nc < columns:
                found = arrival(nr, nc, cost[nr, nc], time)
                if found < time[nr, nc]:
                    time[nr, nc] = found
                    heapq.heappush(heap, (found, nr, nc))


@njit
def descend(i, r, c, goal_x, goal_z, maps, path_out):
    """The steepest way down to the goal into `path_out` f64 [K, 2]: how many points; 0 where the plan will not do."""
    rows, columns = maps.size[i]
    time = maps.time[i, :rows, :columns]
    for count in range(len(path_out)):
        if math.hypot(goal_x - c - 0.5, goal_z - r - 0.5) < 1.5:
            path_out[count] = goal_x, goal_z
            return count + 1
        if time[r, c] == np.inf or maps.dearer[i, r, c]:
            return 0
        steepest, to_r, to_c = 0.0, r, c
        for nr in range(max(r - 1, 0), min(r + 2, rows)):
            for nc in range(max(c - 1, 0), min(c + 2, columns)):
                fall = (time[r, c] - time[nr, nc]) / max(math.hypot(nr - r, nc - c), 1.0)
                if fall > steepest:
                    steepest, to_r, to_c = fall, nr, nc
        if to_r == r and to_c == c:
            return 0
        r, c = to_r, to_c
        path_out[count] = c + 0.5, r + 0.5
    return 0


@njit
def clear(i, x, z, to_x, to_z, dearest, maps):
    """Whether a straight line meets no cell that costs more than so much, but where it begins."""
    length = math.hypot(to_x - x, to_z - z)
    steps = int(2.0 * length) + 1
    for k in range(min(3, steps), steps + 1):
        share = k / steps
        if maps.cost[i, int(z + share * (to_z - z)), int(x + share * (to_x - x))] > dearest:
            return False
    return True


@njit
def aim(i, x, z, goal_x, goal_z, unknown, maps):
    """Where to walk to: the farthest point of the planned way that lies in a straight line; it plans where it must."""
    path = np.empty((4 * (maps.size[i, 0] + maps.size[i, 1]), 2))
    count = 0 if maps.stale[i] else descend(i, int(z), int(x), goal_x, goal_z, maps, path)
    if count == 0:
        plan(i, int(z), int(x), goal_x, goal_z, maps)
        count = descend(i, int(z), int(x), goal_x, goal_z, maps, path)
    dearest = max(MARGIN, np.float32(unknown))
    for k in range(count - 1, -1, -1):
        near = math.hypot(path[k, 0] - x, path[k, 1] - z) < 2.0
        if near or clear(i, x, z, path[k, 0], path[k, 1], dearest, maps):
            return path[k, 0], path[k, 1]
    return goal_x, goal_z


@njit
def choose(heading, dx, dz, turn, before):
    """Forward or a turn; never back from a turn just made, which could go on for ever."""
    error = math.atan2(-dx, -dz) - heading
    error -= 2.0 * math.pi * math.floor(error / (2.0 * math.pi) + 0.5)
    if abs(error) <= 0.5 * turn:
        return FORWARD
    action = LEFT if error > 0.0 else RIGHT
    if before + action == LEFT + RIGHT and before != FORWARD and before != STOP:
        return FORWARD if abs(error) < 3.0 * turn else before
    return action


@njit
def bump(i, x, z, heading, maps):
    """A step fell short: what is just ahead costs more."""
    for k in range(1, 4):
        r, c = int(z - k * math.cos(heading)), int(x - k * math.sin(heading))
        if 0 <= r < maps.size[i, 0] and 0 <= c < maps.size[i, 1]:
            maps.cost[i, r, c] += BUMPED
            maps.dearer[i, r, c] = True


@njit
def act(i, maps, eyes, depth, position, heading, goal, fell_short, turn, radius, unknown, before):
    """One agent's action."""
    if math.hypot(goal[0] - position[0], goal[2] - position[2]) < radius:
        return STOP
    x, z = (position[0] - maps.low[i, 0]) / CELL, (position[2] - maps.low[i, 1]) / CELL
    goal_x, goal_z = (goal[0] - maps.low[i, 0]) / CELL, (goal[2] - maps.low[i, 1]) / CELL
    if fell_short:
        bump(i, x, z, heading, maps)
    if len(eyes.headings):
        for view in range(len(eyes.headings)):
            look(i, eyes, heading + eyes.headings[view], depth[view], x, z, maps)
        for r in range(int(z) - NEAR, int(z) + NEAR + 1):
            for c in range(int(x) - NEAR, int(x) + NEAR + 1):
                if (r - int(z)) ** 2 + (c - int(x)) ** 2 <= NEAR * NEAR:
                    reveal(i, r, c, maps)
    if maps.cost[i, int(z), int(x)] >= BLOCKED:  # it stands there
        maps.cost[i, int(z), int(x)] = MARGIN
    to_x, to_z = aim(i, x, z, goal_x, goal_z, unknown, maps)
    return choose(heading, to_x - x, to_z - z, turn, before)


@numba.njit(error_model="numpy", parallel=True, cache=True)
def act_all(maps, eyes, depth, positions, headings, goals, playing, fell_short, turn, radius, unknown, actions_out):
    """`act` of every agent that plays; the others turn on the spot."""
    for k in prange(len(actions_out)):
        i = np.int64(k)  # prange counts in unsigned integers
        if playing[i]:
            images = depth[i] if len(eyes.headings) else np.empty((0, 0, 0), np.float32)
            actions_out[i] = act(
                i, maps, eyes, images, positions[i], headings[i], goals[i], fell_short[i], turn, radius, unknown,
                actions_out[i],
            )  # fmt: skip
        else:
            actions_out[i] = LEFT


if __name__ == "__main__":
    try:
        main(tyro.cli(Options, description=__doc__))
    except BatchnavError as error:
        sys.exit(f"error: {error}")
