"""PointNav in unknown scenes: success and SPL of an agent with an error-free mapper and a planner.

    python eval/studies/without_map.py
    python eval/studies/without_map.py --episodes assets/episodes/scan.json.gz --out runs/without_map

The agent knows its pose, and unexplored cells count as free (free-space assumption: Zelinsky, "A mobile robot
exploration algorithm", 1992; Koenig and Smirnov, "Sensor-based planning with the freespace assumption", 1997). Cells
are 5 cm. A cell that the depth camera sees takes its value from the navmesh, so the map has no errors. The agent
plans its path to the goal by fast marching (Sethian, 1996), and plans again when it sees an obstacle on the path. It
moves by the actions of the environment.

With `--truth-within` the agent also knows the blocked cells within a distance of those that it has seen.

    python eval/studies/without_map.py --truth-within 2

Prints success and SPL with 95% intervals, and the SPL lost by outcome (the outcomes of `eval/studies/failures.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy import ndimage

from batchnav.cli.console import run
from batchnav.config import bounded
from batchnav.envs.config import NavConfig, with_options
from batchnav.envs.nav import NavEnv
from batchnav.evaluation.run import Evaluation, write_results
from batchnav.navmesh.navmesh import NavMesh
from batchnav.report.results import print_agents
from batchnav.runtime.bundled import EPISODES
from batchnav.sim.bodies import FORWARD, STOP
from batchnav.tasks.goal_task import METRIC_SPECS
from eval.studies.failures import by_outcome, outcomes
from eval.studies.free_space import (
    BLOCKED,
    CELL,
    INFLATED,
    KNOWN_RADIUS,
    MapperSettings,
    Maps,
    act_all,
    set_unexplored_cost,
    update_maps,
)

STOREY = 0.5
"""Height of a storey in metres. Starts whose heights round to the same multiple share a map of the surfaces within 1.5
times this height."""
STOP_SLACK = 0.005
"""The agent stops this far inside the success distance, metres."""


@dataclass(frozen=True)
class Options:
    """Episodes, and what the agent knows."""

    episodes: tuple[Path, ...] = field(default_factory=lambda: (EPISODES / "val.json.gz",))
    """Episode files."""
    size: int = bounded(64, 1, 4096)
    """Height and width of depth images, pixels."""
    truth_within: float | None = bounded(None, 0.0, 1000.0)
    """Distance from explored cells within which the agent knows the blocked cells, metres; default: explored only."""
    num_envs: int = bounded(64, 1, 2**24)
    """Parallel environments, at most one per episode."""
    out: Path | None = None
    """Folder for the results, one file per episode file; default: none is written."""


def main(options: Options) -> None:
    """Evaluate the agent on every file; print and write the results."""
    player = MapPlayer(options.size, options.truth_within)
    for path in options.episodes:
        evaluation = Evaluation(path, torch.device("cpu"), player.config, options.num_envs)
        played = evaluation.play(player)
        outcome = outcomes(played.episodes, player.config.task.max_steps)
        print_agents(f"{player.name} on {path.name}", {player.name: played.overall}, METRIC_SPECS)
        table = Table("outcome", "episodes", "SPL lost")
        for name, values in by_outcome(outcome, played.episodes["spl"]).items():
            table.add_row(name, f"{values['episodes']:.3f}", f"{values['spl_lost']:.3f}")
        Console().print(table)
        if options.out is not None:
            name = f"{evaluation.split}_{player.name.replace(' ', '_')}.json"
            write_results(options.out / name, evaluation, played)


class MapPlayer:
    """A `batchnav.evaluation.players.Player` of the mapping agent."""

    def __init__(self, size: int = 64, truth_within: float | None = None):
        self.name = "map" if truth_within is None else f"map truth {truth_within:g}"
        self.truth_within, self.changes = truth_within, dict[str, Any]()
        self.config = with_options(NavConfig(), {"height": size, "width": size})

    @property
    def env_config(self) -> NavConfig:
        """The environment of its recordings."""
        return self.config

    def make_agent(self, env: NavEnv) -> MapAgent:
        """Make the agent for an environment."""
        return MapAgent(env, self)


class MapAgent:
    """Agent that maps what its depth images show and follows the path that it plans on this map."""

    def __init__(self, env: NavEnv, player: MapPlayer):
        self._env, self._player, n = env, player, env.num_envs
        lows, highs = zip(*(scene.navmesh.bounds[:, [0, 2]] for scene in env.bank.scenes), strict=True)
        columns, rows = np.ceil((np.array(highs) - np.array(lows)).max(0) / CELL).astype(int) + 2 * KNOWN_RADIUS
        shape = n, rows, columns
        free, explored, increased = (np.zeros(shape, bool) for _ in range(3))
        cost, cost_to_go = (np.zeros(shape, np.float32) for _ in range(2))
        origin, size = np.zeros((n, 2)), np.zeros((n, 2), np.int64)
        self.maps = Maps(free, explored, cost, increased, cost_to_go, origin, size, np.zeros(n, bool))
        self._num_explored = np.zeros(n, np.int64)
        body, radius = env.config.body, env.config.task.success_distance - STOP_SLACK
        camera, depth, turn = player.config.camera, player.config.depth, math.radians(body.turn_angle_deg)
        self._settings = MapperSettings(camera.camera_height, depth.max_depth, turn, radius)
        self._step = body.forward_step
        self._floors: dict[tuple[int, int, int], np.ndarray] = {}

    def reset(self, num_envs: int) -> None:
        """Clear the state of all agents; `act` begins a new map for each episode."""
        self._actions = np.zeros(num_envs, np.int64)
        self._positions = np.zeros((num_envs, 3), np.float32)

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Return the actions i64 [N]."""
        bodies, state = self._env.sim.bodies, self._env.task.state
        playing = state.table_index.numpy() >= 0  # False in environments that have no episode left
        positions, started = bodies.position.numpy(), episode_start.numpy()
        for i in np.flatnonzero(started & playing):
            self._begin(i, int(bodies.scene[i]), positions[i])
        seen = observations["depth"].numpy()[:, 0]
        moved = self._actions == FORWARD
        fell_short = ~started & moved & (np.linalg.norm(positions - self._positions, axis=1) < 0.5 * self._step)
        headings, goals = bodies.heading.numpy(), state.goal.numpy()
        update_maps(self._settings, seen, positions, headings, playing, fell_short, self.maps)
        if self._player.truth_within is not None:
            self._apply_true_costs(self._player.truth_within, playing)
        act_all(self._settings, positions, headings, goals, playing, self.maps, self._actions)
        self._positions = positions.copy()
        return torch.from_numpy(self._actions)

    def _apply_true_costs(self, within: float, playing: np.ndarray) -> None:
        """Set the true costs of unexplored cells within a distance (metres) of explored ones.

        Only for agents that have explored more cells since the last call.
        """
        num_explored = np.array([np.count_nonzero(cells) for cells in self.maps.explored])
        for i in np.flatnonzero(playing & (num_explored > self._num_explored)):
            rows, columns = self.maps.size[i]
            free, explored = (cells[i, :rows, :columns] for cells in (self.maps.free, self.maps.explored))
            set_unexplored_cost(i, true_cost(free, explored, within), self.maps)
        self._num_explored = num_explored

    def _begin(self, i: int, scene: int, start: np.ndarray) -> None:
        """Begin an episode in environment i: no cell is explored."""
        maps, navmesh = self.maps, self._env.bank.scenes[scene].navmesh
        key = scene, int(navmesh.island(start)), round(float(start[1]) / STOREY)
        if key not in self._floors:
            self._floors[key] = floor_of(navmesh, key[1], key[2] * STOREY)
        floor = self._floors[key]
        rows, columns = maps.size[i] = floor.shape
        maps.origin[i] = navmesh.bounds[0, [0, 2]] - KNOWN_RADIUS * CELL
        maps.free[i] = False
        maps.free[i, :rows, :columns] = floor
        maps.explored[i], maps.cost[i], maps.increased[i], maps.outdated[i] = False, 1.0, False, True
        self._actions[i], self._num_explored[i] = STOP, 0


def true_cost(free: np.ndarray, explored: np.ndarray, within: float) -> np.ndarray:
    """Cost per metre of unexplored cells, f32 [rows, columns]: true near explored cells, that of free cells elsewhere.

    Args:
        free: bool [rows, columns], True where a cell is navigable.
        explored: bool [rows, columns].
        within: distance from explored cells up to which costs are true, metres.
    """
    blocked = ~free & (ndimage.distance_transform_edt(~explored) * CELL <= within)
    inflated = ndimage.binary_dilation(blocked, np.ones((3, 3)))
    return np.where(blocked, BLOCKED, np.where(inflated, INFLATED, np.float32(1.0)))


def floor_of(navmesh: NavMesh, island: int, height: float) -> np.ndarray:
    """Navigable cells of an island near a height (metres): bool [rows, columns], with KNOWN_RADIUS cells of border."""
    low, high = navmesh.bounds[:, [0, 2]].astype(float)
    columns, rows = np.ceil((high - low) / CELL).astype(int) + 2 * KNOWN_RADIUS
    x = low[0] + (np.arange(columns) - KNOWN_RADIUS + 0.5) * CELL
    z = low[1] + (np.arange(rows) - KNOWN_RADIUS + 0.5) * CELL
    points = np.stack(np.broadcast_arrays(x, height, z[:, None]), axis=2).reshape(-1, 3).astype(np.float32)
    free = navmesh.is_navigable(points, 1.5 * STOREY) & (navmesh.island(points) == island)
    return free.reshape(rows, columns)


if __name__ == "__main__":
    run(Options, main, __doc__)
