"""PointNav episodes in habitat-sim: its renderer and PathFinder, with the formulas of habitat-lab.

habitat-sim is imported when a `HabitatSim` is made. No package registry has it, and conda's packages are for Python
3.9, so build it from source (docs/get_started/from_habitat.md). Written for habitat-sim 0.3, with documented functions
only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import trimesh

from batchnav.data.episodes import DEFAULT_CONFIG, Episode, episode_table, heading_of, scene_name
from batchnav.data.play import check_episodes
from batchnav.envs.config import NavConfig
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError, ConfigError, DeviceError
from batchnav.habitat.agent import HabitatAgent, goal_sensor
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene
from batchnav.sensors.depth import DepthConfig
from batchnav.sim.bodies import STOP
from batchnav.tasks.pointnav import PointNavConfig

ACTIONS = {1: "move_forward", 2: "turn_left", 3: "turn_right"}
"""habitat-sim's names of the actions; habitat-sim has no stop action."""


class Stage(NamedTuple):
    """A scene as habitat-sim loads it."""

    scene_id: str
    """Scene file, or a name in the scene dataset."""
    dataset_config: str
    """File of the scene dataset's configuration, or habitat-sim's default."""


def find_stage(episode: Episode, scene: Scene, scenes_dir: Path, folder: Path) -> Stage:
    """The scene's own files where the episode names files; else its triangles, written to `folder`.

    A stage configuration states that the triangles are +Y up: habitat-sim reads a `.glb` alone as +Z up.
    """
    if episode.scene_dataset_config != DEFAULT_CONFIG:
        config = Path(episode.scene_dataset_config)
        return Stage(episode.scene_id, str(config if config.is_file() else scenes_dir / config))
    own = scenes_dir / episode.scene_id
    if own.is_file():
        return Stage(str(own), DEFAULT_CONFIG)
    name = scene_name(episode.scene_id)
    trimesh.Trimesh(scene.mesh.vertices, scene.mesh.faces, process=False).export(folder / f"{name}.glb")
    stage = folder / f"{name}.stage_config.json"
    stage.write_text(json.dumps({"render_asset": f"{name}.glb", "up": [0, 1, 0], "front": [0, 0, -1]}))
    return Stage(str(stage), DEFAULT_CONFIG)


class HabitatSim:
    """PointNav with one agent in one scene of habitat-sim. Observations and metrics are those of habitat-lab.

    Args:
        stage: scene to load.
        config: environment. ArgumentError for settings that `check_comparable` refuses.

    DeviceError where habitat-sim is not installed.
    """

    def __init__(self, stage: Stage, config: NavConfig):
        check_comparable(config)
        self._api, self.config = _import(), config
        assert isinstance(config.task, PointNavConfig)
        self._task = config.task
        self._sim = self._api.Simulator(self._configuration(stage))
        self._bake_if_needed()

    def _configuration(self, stage: Stage) -> Any:
        """habitat-sim's configuration of simulator, agent, depth camera and actions."""
        api, body, camera = self._api, self.config.body, self.config.camera
        if camera.lens is not None or camera.distortion:
            raise ConfigError(
                "camera: found fx, fy, cx, cy or distortion, expected a field of view, as habitat-sim has"
            )
        backend = api.SimulatorConfiguration()
        backend.scene_id, backend.scene_dataset_config_file = stage
        backend.allow_sliding, backend.enable_physics = body.sliding, False
        depth = api.CameraSensorSpec()
        depth.uuid, depth.sensor_type, depth.channels = "depth", api.SensorType.DEPTH, 1
        depth.resolution, depth.hfov = [camera.height, camera.width], camera.hfov_deg
        depth.position = [-camera.camera_left, camera.camera_height, -camera.camera_forward]
        depth.orientation = [math.radians(camera.camera_pitch_deg), math.radians(camera.camera_heading_deg), 0.0]
        agent = api.agent.AgentConfiguration()
        agent.height, agent.radius, agent.sensor_specifications = body.agent_height, body.agent_radius, [depth]
        amounts = {"move_forward": body.forward_step, "turn_left": body.turn_angle_deg}
        amounts["turn_right"] = body.turn_angle_deg
        agent.action_space = {
            name: api.agent.ActionSpec(name, api.agent.ActuationSpec(amount=amount)) for name, amount in amounts.items()
        }
        return api.Configuration(backend, [agent])

    def _bake_if_needed(self) -> None:
        """Bake a navmesh where there is none for this body, as habitat-lab does."""
        body, finder = self.config.body, self._sim.pathfinder
        found = finder.nav_mesh_settings  # None without a navmesh, or for a file without settings
        if (
            finder.is_loaded
            and found is not None
            and math.isclose(found.agent_radius, body.agent_radius, abs_tol=1e-5)
            and math.isclose(found.agent_height, body.agent_height, abs_tol=1e-5)
        ):
            return
        settings = self._api.NavMeshSettings()
        settings.set_defaults()
        settings.agent_radius, settings.agent_height = body.agent_radius, body.agent_height
        self._sim.recompute_navmesh(finder, settings)

    def begin(self, episode: Episode) -> dict[str, np.ndarray]:
        """Place the agent at the start of an episode, and return the first observations."""
        state = self._api.agent.AgentState()
        state.position = np.array(episode.start_position, np.float32)
        state.rotation = list(episode.start_rotation)
        self._sim.get_agent(0).set_state(state)
        self._goals = [np.array(goal.position, np.float32) for goal in episode.goals]
        self._read_pose()
        self._start = self.position, self.heading
        self.start_distance = self.distance = self._geodesic()
        self.steps, self.collisions, self.path_length = 0, 0, 0.0
        self.over = self.stopped = False
        return self._observe(self._sim.get_sensor_observations())

    def step(self, action: int) -> dict[str, np.ndarray]:
        """Execute an action (0 stop, 1 forward, 2 left, 3 right), and return the next observations."""
        self.steps += 1
        self.stopped = action == STOP
        self.over = self.stopped or self.steps >= self._task.max_steps
        if self.stopped:
            return self._observe(self._sim.get_sensor_observations())
        before = self.position
        seen = self._sim.step(ACTIONS[action])
        self._read_pose()
        self.path_length += float(np.linalg.norm(self.position - before))
        self.collisions += bool(seen["collided"])
        self.distance = self._geodesic()
        return self._observe(seen)

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the episode: habitat-lab's Success, SPL (Anderson et al., 2018), DistanceToGoal and Collisions."""
        success = float(self.stopped and self.distance < self._task.success_distance)
        return {
            "success": success, "spl": success * self.start_distance / max(self.start_distance, self.path_length, 1e-9),
            "distance_to_goal": self.distance, "collisions": float(self.collisions), "path_length": self.path_length,
            "steps": float(self.steps),
        }  # fmt: skip

    def close(self) -> None:
        """Close habitat-sim and free its memory."""
        self._sim.close()

    def _read_pose(self) -> None:
        """Update position and heading from habitat-sim."""
        state = self._sim.get_agent(0).get_state()
        self.position: np.ndarray = np.array(state.position, np.float64)
        turned = state.rotation
        self.heading = heading_of((turned.x, turned.y, turned.z, turned.w))

    def _geodesic(self) -> float:
        """Geodesic distance to the nearest goal, metres; inf where there is no path."""
        distances = []
        for goal in self._goals:
            path = self._api.ShortestPath()
            path.requested_start, path.requested_end = self.position.astype(np.float32), goal
            found = self._sim.pathfinder.find_path(path)
            distances.append(float(path.geodesic_distance) if found else math.inf)
        return min(distances)

    def _observe(self, seen: dict) -> dict[str, np.ndarray]:
        """Observations of habitat-lab from the images of habitat-sim."""
        depth, limits = np.array(seen["depth"], np.float32), self.config.depth
        near, far = np.float32(limits.min_depth), np.float32(limits.max_depth)
        shape = self.config.camera.height, self.config.camera.width, 1
        position, heading = (self.position, self.heading) if self._task.gps_compass else self._start
        east, _, south = self._goals[0] - position
        left = -(math.cos(heading) * east - math.sin(heading) * south)
        ahead = -(math.sin(heading) * east + math.cos(heading) * south)
        goal = np.array([math.hypot(left, ahead), math.atan2(left, ahead)], np.float32)
        return {
            "depth": ((depth.clip(near, far) - near) / (far - near)).reshape(shape), goal_sensor(self.config): goal,
        }  # fmt: skip


def check_comparable(config: NavConfig) -> None:
    """ArgumentError unless the environment is PointNav with exact depth and v0 actions, which `HabitatSim` supports."""
    noise = config.body.actuation_noise or config.depth.depth_noise
    for name, found, expected in (
        ("task", config.task_name, "pointnav"), ("sensors", ", ".join(config.sensors), "depth"),
        ("noise", noise, 0.0), ("control", config.body.control, "v0"),
    ):  # fmt: skip
        if found != expected:
            raise ArgumentError(f"{name}: found {found}, expected {expected} for episodes in habitat-sim")


def _import() -> Any:
    """The module `habitat_sim`. DeviceError where it is not installed."""
    try:
        import habitat_sim
    except ImportError as error:
        raise DeviceError(
            "habitat_sim: not installed, expected habitat-sim 0.3, built from source; "
            "see docs/get_started/from_habitat.md"
        ) from error
    return habitat_sim


# One policy on the same episodes in this simulator and in habitat-sim: the first differences of every episode

POSITION_TOLERANCE = 1e-4
"""Largest difference of positions that count as equal, metres. Both simulators compute in float32."""
HEADING_TOLERANCE = 1e-4
"""Largest difference of headings that count as equal, radians."""
DEPTH_TOLERANCE = 1e-2
"""Largest difference of a pixel's depth that counts as equal, metres."""


class Step(NamedTuple):
    """Pose, image and action of one step."""

    position: np.ndarray
    """[3], metres."""
    heading: float
    """Radians."""
    depth: np.ndarray
    """f32 [H, W], metres, clipped to the sensor's range."""
    action: int
    """Index of the action chosen at this pose."""


class PlayedEpisode(NamedTuple):
    """The steps and metrics of an episode in one simulator."""

    steps: list[Step]
    metrics: dict[str, float]


class Difference(NamedTuple):
    """First difference of a quantity between the simulators."""

    step: int
    """Step, counted from 0."""
    amount: str
    """Size of the difference with its unit, as text."""


class Comparison(NamedTuple):
    """An episode in both simulators, compared up to the first different action."""

    batchnav: PlayedEpisode
    habitat: PlayedEpisode
    first_differences: dict[str, Difference]
    """First differences of "position", "heading", "depth" and "action", earliest first; equal quantities are absent."""
    largest: dict[str, float]
    """Largest difference of position (metres) and heading (radians), and mean share of different depth pixels."""

    @property
    def same_actions(self) -> bool:
        """True where all actions were equal."""
        return "action" not in self.first_differences


def compare(batchnav: PlayedEpisode, habitat: PlayedEpisode) -> Comparison:
    """Compare an episode step by step, up to the first different action."""
    found: dict[str, Difference] = {}
    position = heading = 0.0
    shares = []
    for t, (a, b) in enumerate(zip(batchnav.steps, habitat.steps, strict=False)):
        moved = float(np.linalg.norm(a.position - b.position))
        turned = abs(math.remainder(a.heading - b.heading, 2.0 * math.pi))
        gaps = np.abs(a.depth - b.depth)
        share = float((gaps > DEPTH_TOLERANCE).mean())
        for name, differs, amount in (
            ("position", moved > POSITION_TOLERANCE, f"{moved:.2g} m"),
            ("heading", turned > HEADING_TOLERANCE, f"{turned:.2g} rad"),
            ("depth", share > 0.0, f"{gaps.max():.2g} m at most, {share:.2%} of the pixels over {DEPTH_TOLERANCE:g} m"),
            ("action", a.action != b.action, f"{a.action} here, {b.action} in habitat-sim"),
        ):  # fmt: skip
            if differs and name not in found:
                found[name] = Difference(t, amount)
        position, heading = max(position, moved), max(heading, turned)
        shares.append(share)
        if a.action != b.action:
            break
    largest = {"position": position, "heading": heading, "depth": float(np.mean(shares))}
    return Comparison(batchnav, habitat, found, largest)


def play_here(scene: Scene, episodes: list[Episode], agent: HabitatAgent) -> Iterator[PlayedEpisode]:
    """Play the episodes of one scene in this simulator, one at a time."""
    policy, config = agent.policy, agent.config
    bank = SceneBank.pack([scene], policy.device)
    env = NavEnv(bank, 1, config=config, episodes=episode_table(episodes, [scene.name], policy.device))
    bodies, depth = env.sim.bodies, config.depth
    observations, _ = env.reset()
    for _ in episodes:
        agent.reset()
        steps: list[Step] = []
        ended = False
        while not ended:
            action = policy.act(observations, deterministic=agent.deterministic)
            position, heading = bodies.position[0].cpu().numpy().copy(), float(bodies.heading[0])
            steps.append(Step(position, heading, _metres(observations["depth"][0, 0], depth), int(action)))
            observations, _, _, _, info = env.step(action)
            ended = bool(info["_episode"][0])
        yield PlayedEpisode(steps, {name: float(value[0]) for name, value in info["episode"].items()})
    env.close()


def play_in_habitat(sim: HabitatSim, episodes: list[Episode], agent: HabitatAgent) -> Iterator[PlayedEpisode]:
    """Play the episodes of one scene in habitat-sim."""
    for episode in episodes:
        agent.reset()
        observations, steps = sim.begin(episode), []
        while not sim.over:
            action = agent.act(observations)["action"]
            seen = agent.with_holes(torch.from_numpy(observations["depth"][..., 0]))
            depth = _metres(seen, sim.config.depth)
            steps.append(Step(sim.position.copy(), sim.heading, depth, action))
            observations = sim.step(action)
        yield PlayedEpisode(steps, sim.metrics)


def side_by_side(
    scene: Scene, episodes: list[Episode], agent: HabitatAgent, scenes_dir: Path, folder: Path
) -> Iterator[Comparison]:
    """Play every episode of one scene in both simulators, and compare the two.

    Args:
        scene: scene of all episodes.
        episodes: episodes to play.
        agent: policy that acts in both simulators.
        scenes_dir: folder of the scenes that Habitat's episode files name.
        folder: folder for files that habitat-sim reads.
    """
    check_episodes(episodes, {scene.name: scene})
    sim = HabitatSim(find_stage(episodes[0], scene, scenes_dir, folder), agent.config)
    try:
        here, there = play_here(scene, episodes, agent), play_in_habitat(sim, episodes, agent)
        for pair in zip(here, there, strict=True):
            yield compare(*pair)
    finally:
        sim.close()


def _metres(depth: torch.Tensor, limits: DepthConfig) -> np.ndarray:
    """A copy of depth images in 0..1, in metres."""
    return (depth.cpu().numpy() * (limits.max_depth - limits.min_depth) + limits.min_depth).astype(np.float32)
