"""What not knowing the map costs a PointNav agent: one that maps what it sees, and plans on its map.

    python eval/studies/without_map.py
    python eval/studies/without_map.py --episodes assets/episodes/scan.json.gz --sees around --out runs/without_map

It knows its pose, and assumes that what it has not seen is free: "freespace assumption" (Zelinsky, "A mobile robot
exploration algorithm", 1992; Koenig and Smirnov, "Sensor-based planning with the freespace assumption", 1997). Its map
has cells of 5 cm. A cell that its depth camera sees tells at once whether one can stand there, by the navmesh: mapping
is without error, which no agent's is. The way to the goal is found by fast marching (Sethian, 1996), and anew when
something was seen to be in it. It is walked by the environment's own steps and turns.

With `--sees map` all is known from the start. What is then lost is the walking's, and the rest is not knowing. Between
the two it can be told the truth about what is near to what it sees:

    python eval/studies/without_map.py --truth-within 2

Prints success and SPL with 95% intervals, and the SPL that is lost by outcome, as `eval/studies/failures.py` has them.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table
from scipy import ndimage

from batchnav.envs.config import NavConfig, with_options
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError, BatchnavError
from batchnav.evaluation.results import write_results
from batchnav.evaluation.run import Evaluation
from batchnav.navmesh.navmesh import NavMesh
from batchnav.report.terminal import print_agents
from batchnav.runtime.files.bundled import EPISODES
from batchnav.sim.bodies import FORWARD, STOP
from batchnav.tasks.goal_state import METRIC_SPECS
from eval.studies.failures import by_outcome, outcomes
from eval.studies.free_space import (
    BLOCKED,
    CELL,
    MARGIN,
    NEAR,
    Maps,
    Settings,
    go_all,
    look_all,
    reveal_all,
    set_unseen,
)

STOREY = 0.5
"""Metres: floors whose heights round to the same multiple share a map, which has what is up to 1.5 of it off."""
STOP_SLACK = 0.005
"""Metres nearer than need be at which it stops."""
EYES: dict[str, dict[str, float]] = {
    "map": {}, "ahead": {"": 0.0}, "around": {"": 0.0, "left": 90.0, "back": 180.0, "right": 270.0}
}  # fmt: skip
"""Its cameras, and by how many degrees to the left each looks."""


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
    truth_within: float | None = None
    """Metres from what it sees within which it is told which unseen cells are blocked."""
    num_envs: int = 64
    """Environments at a time, at most one per episode."""
    out: Path | None = None
    """Folder for a file of results for each file of episodes."""


def main(options: Options) -> None:
    player = MapPlayer(options.sees, options.size, options.unknown, options.truth_within)
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
            name = f"{evaluation.split}_{player.name.removeprefix('maps: ').replace(' ', '_')}"
            write_results(options.out / f"{name}.json", evaluation, played)


class MapPlayer:
    """The agent with the eyes that it has: a `batchnav.evaluation.players.Player`."""

    def __init__(self, sees: str = "ahead", size: int = 64, unknown: float = 1.0, truth_within: float | None = None):
        if not 1.0 <= unknown < BLOCKED:
            raise ArgumentError(f"unknown: found {unknown}, expected 1 to less than {BLOCKED:g}")
        if truth_within is not None and unknown != 1.0:
            raise ArgumentError("found truth_within and unknown, expected one of them")
        if truth_within is not None and not EYES[sees]:
            raise ArgumentError(f"truth_within: found {truth_within} with sees {sees}, expected eyes: it knows all")
        if truth_within is not None and not (math.isfinite(truth_within) and truth_within >= 0.0):
            raise ArgumentError(f"truth_within: found {truth_within}, expected metres, 0 or more")
        self.name = f"maps: {sees}" if truth_within is None else f"maps: {sees} truth {truth_within:g}"
        self.unknown, self.truth_within, self.degrees = unknown, truth_within, list(EYES[sees].values())
        config = with_options(NavConfig(), {"height": size, "width": size})
        cameras = {
            name: dataclasses.replace(config.camera, camera_heading_deg=degrees)
            for name, degrees in EYES[sees].items()
            if name
        }
        sensors = tuple(f"{name}_depth" if name else "depth" for name in EYES[sees])
        self.config = dataclasses.replace(config, cameras=cameras, sensors=sensors)

    @property
    def env_config(self) -> NavConfig:
        """The environment of its recordings."""
        return self.config

    def make_agent(self, env: NavEnv) -> MapAgent:
        """The agent in this environment."""
        return MapAgent(env, self)


class MapAgent:
    """Maps what the depth cameras see, plans on the map, and goes where the plan says."""

    def __init__(self, env: NavEnv, player: MapPlayer):
        self._env, self._player, n = env, player, env.num_envs
        lows, highs = zip(*(scene.navmesh.bounds[:, [0, 2]] for scene in env.bank.scenes), strict=True)
        columns, rows = np.ceil((np.array(highs) - np.array(lows)).max(0) / CELL).astype(int) + 2 * NEAR
        shape = n, rows, columns
        free, known, dearer = (np.zeros(shape, bool) for _ in range(3))
        cost, time = (np.zeros(shape, np.float32) for _ in range(2))
        low, size = np.zeros((n, 2)), np.zeros((n, 2), np.int64)
        self.maps = Maps(free, known, cost, dearer, time, low, size, np.zeros(n, bool))
        self._known = np.zeros(n, np.int64)
        body, radius = env.config.body, env.config.task.success_distance - STOP_SLACK
        views, turn = np.radians(np.array(player.degrees, float)), math.radians(body.turn_angle_deg)
        camera, depth = player.config.camera, player.config.depth
        self._settings = Settings(camera.camera_height, depth.max_depth, views, turn, radius, player.unknown)
        self._step = body.forward_step
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
        images = [observations[name].numpy()[:, 0] for name in names]
        seen = np.stack(images, axis=1) if images else np.zeros((len(started), 0, 0, 0), np.float32)
        went = self._actions == FORWARD
        fell_short = ~started & went & (np.linalg.norm(positions - self._positions, axis=1) < 0.5 * self._step)
        headings, goals = bodies.heading.numpy(), state.goal.numpy()
        look_all(self._settings, seen, positions, headings, playing, fell_short, self.maps)
        if self._player.truth_within is not None:
            self._tell_truth(self._player.truth_within, playing)
        go_all(self._settings, positions, headings, goals, playing, self.maps, self._actions)
        self._positions = positions.copy()
        return torch.from_numpy(self._actions)

    def _tell_truth(self, within: float, playing: np.ndarray) -> None:
        """Say what the unseen within so many metres of the seen costs, where more was seen."""
        known = np.array([np.count_nonzero(cells) for cells in self.maps.known])
        for i in np.flatnonzero(playing & (known > self._known)):
            rows, columns = self.maps.size[i]
            set_unseen(
                i, true_cost(self.maps.free[i, :rows, :columns], self.maps.known[i, :rows, :columns], within), self.maps
            )
        self._known = known

    def _begin(self, i: int, scene: int, start: np.ndarray) -> None:
        """An empty map for environment i, or, for one that sees nothing, a whole one."""
        maps, navmesh = self.maps, self._env.bank.scenes[scene].navmesh
        key = scene, int(navmesh.island(start)), round(float(start[1]) / STOREY)
        if key not in self._floors:
            self._floors[key] = floor_of(navmesh, key[1], key[2] * STOREY)
        floor = self._floors[key]
        rows, columns = maps.size[i] = floor.shape
        maps.low[i] = navmesh.bounds[0, [0, 2]] - NEAR * CELL
        maps.free[i] = False
        maps.free[i, :rows, :columns] = floor
        maps.known[i], maps.cost[i], maps.dearer[i], maps.stale[i] = False, self._player.unknown, False, True
        self._actions[i], self._known[i] = STOP, 0
        if not self._player.config.sensors:
            reveal_all(i, maps)


def true_cost(free: np.ndarray, known: np.ndarray, within: float) -> np.ndarray:
    """What a metre of unseen cells costs, f32 [rows, columns]: near seen ones what it will be, beyond as if free.

    `free`, `known`: bool [rows, columns]; `within`: metres.
    """
    blocked = ~free & (ndimage.distance_transform_edt(~known) * CELL <= within)
    beside = ndimage.binary_dilation(blocked, np.ones((3, 3)))
    return np.where(blocked, BLOCKED, np.where(beside, MARGIN, np.float32(1.0)))


def floor_of(navmesh: NavMesh, island: int, height: float) -> np.ndarray:
    """Where one can stand on an island at about this height: bool [rows, columns], NEAR cells around its bounds."""
    low, high = navmesh.bounds[:, [0, 2]].astype(float)
    columns, rows = np.ceil((high - low) / CELL).astype(int) + 2 * NEAR
    x = low[0] + (np.arange(columns) - NEAR + 0.5) * CELL
    z = low[1] + (np.arange(rows) - NEAR + 0.5) * CELL
    points = np.stack(np.broadcast_arrays(x, height, z[:, None]), axis=2).reshape(-1, 3).astype(np.float32)
    stands = navmesh.is_navigable(points, 1.5 * STOREY) & (navmesh.island(points) == island)
    return stands.reshape(rows, columns)


if __name__ == "__main__":
    try:
        main(tyro.cli(Options, description=__doc__))
    except BatchnavError as error:
        sys.exit(f"error: {error}")
