"""Trajectories of evaluated agents: poses, actions and images of every step, and why episodes failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.agents.protocol import Agent
from batchnav.data.goals import FailedEpisode, kind_of
from batchnav.envs.config import NavConfig
from batchnav.envs.nav import NavEnv
from batchnav.envs.observations import goal_images_of, image_sources
from batchnav.evaluation.play import AgentMap, Images, agent_map_of, bodies_by_agent
from batchnav.observation import ObservationSource
from batchnav.renderers.bodies import SeenBodies
from batchnav.scene.bank import SceneBank
from batchnav.sensors.body_surfaces import BODY_CATEGORIES, category_numbers
from batchnav.sensors.camera import MAIN, FreeBodies
from batchnav.sensors.frame import Frame, write_observations
from batchnav.sensors.goal_mask import GOAL, GoalCategorySensor, GoalMaskSensor
from batchnav.sim.bodies import STOP
from batchnav.tasks import TASKS
from batchnav.types import MovingBodies

STEPS_ON_DEVICE = 64
"""Steps whose poses are kept on the device before they are copied to the host together."""
POSES_AT_ONCE = 32
"""Poses rendered at a time. A small number, since the last batch of a trajectory is rendered at full size."""


class Trajectory(NamedTuple):
    """Poses and actions of one episode of S actions."""

    positions: np.ndarray
    """f32 [S, 3]: position of the agent when it chose each action, metres."""
    headings: np.ndarray
    """f32 [S], radians."""
    tilts: np.ndarray
    """f32 [S]: tilt of every camera, radians, up positive."""
    actions: np.ndarray
    """i64 [S], or f32 [S, 2] for velocity control."""
    seen: SeenBodies | None = None
    """Moving bodies at each step, arrays [S, ...]; None for a world without them."""
    goal_index: np.ndarray | None = None
    """i32 [S]: number of the goal in the list of the episode; None for a task with one goal."""

    def rows(self, steps: np.ndarray) -> Trajectory:
        """These steps alone."""
        seen = None if self.seen is None else SeenBodies(*(column[steps] for column in self.seen))
        goal_index = None if self.goal_index is None else self.goal_index[steps]
        parts = self.positions, self.headings, self.tilts, self.actions
        positions, headings, tilts, actions = (part[steps] for part in parts)
        return Trajectory(positions, headings, tilts, actions, seen, goal_index)


class _Seeds(NamedTuple):
    """Origin of the sensor noise; see `sensors.camera.Seeds`."""

    seed: torch.Tensor
    first_agent: torch.Tensor


class TrajectoryRecorder:
    """An agent that acts as `agent` does and records the pose and action of every step.

    Args:
        agent: chooses the actions.
        env: environment that the agent acts in.
    """

    def __init__(self, agent: Agent, env: NavEnv):
        self.agent, self.env = agent, env

    def reset(self, num_envs: int) -> None:
        """Reset the agent and delete the recorded steps."""
        self.agent.reset(num_envs)
        self._steps: list[tuple[torch.Tensor, ...]] = []
        self._blocks: list[list[np.ndarray]] = []

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """The agent's actions."""
        bodies = self.env.sim.bodies
        # Record the poses first: an agent may turn the body of its environment while it acts.
        pose = bodies.position.clone(), bodies.heading.clone(), bodies.tilt.clone()
        others = bodies_by_agent(self.env)
        goal = () if self.env.task.goal_index is None else (self.env.task.goal_index.clone(),)
        actions = self.agent.act(observations, episode_start)
        self._steps.append((*pose, actions.clone(), *others, *goal, episode_start.clone()))
        if len(self._steps) == STEPS_ON_DEVICE:
            self._copy_to_host()
        return actions

    def _copy_to_host(self) -> None:
        """Move the recorded steps to the host as one block."""
        if self._steps:
            self._blocks.append([torch.stack(column).cpu().numpy() for column in zip(*self._steps, strict=True)])
            self._steps = []

    def trajectories(self, num_episodes: int) -> list[Trajectory]:
        """Trajectories of the first episodes in the order of `evaluate`: environment i plays i, i + N, i + 2N ..."""
        self._copy_to_host()
        *recorded, start = (np.concatenate(blocks) for blocks in zip(*self._blocks, strict=True))
        steps, n = start.shape
        found: list[Trajectory] = []
        goal = None if self.env.task.goal_index is None else recorded.pop()
        begins = [np.flatnonzero(start[:, i]) for i in range(n)]
        for number in range(num_episodes):
            i, k = number % n, number // n
            end = begins[i][k + 1] if k + 1 < len(begins[i]) else steps
            rows = slice(begins[i][k], end)
            positions, headings, tilts, actions, *seen = (part[rows, i] for part in recorded)
            bodies, index = SeenBodies(*seen) if seen else None, None if goal is None else goal[rows, i]
            found.append(Trajectory(positions, headings, tilts, actions, bodies, index))
        return found


@torch.inference_mode()
def final_maps(env: NavEnv, trajectories: Sequence[Trajectory]) -> list[AgentMap]:
    """The map of each agent when it chose its last action; the environment repeats the recorded actions.

    Args:
        env: one environment per trajectory, which plays its episode; it is reset. Its sensors need a map.
        trajectories: recorded trajectories.
    """
    mapper, lengths = env.mapper, np.array([len(trajectory.actions) for trajectory in trajectories])
    assert mapper is not None and env.num_envs == len(trajectories)
    env.reset(seed=0)
    maps: dict[int, AgentMap] = {}
    for step in range(lengths.max()):
        for i in np.flatnonzero(lengths == step + 1).tolist():
            maps[i] = agent_map_of(mapper, i)
        env.step(np.stack([each.actions[min(step, len(each.actions) - 1)] for each in trajectories]))
    return [maps[i] for i in range(len(trajectories))]


class PoseCameras:
    """The cameras and sensors of a configuration, without a simulator: images from any pose.

    Args:
        bank: scenes with the appearance that the sensors need.
        config: cameras and sensors.
        at_once: poses rendered at a time.
        renderer: "raycast", "opengl" or "auto".
        sources: observation sources by name, instead of those of the configuration.
        task: for sources that read a goal of each of the `at_once` cameras.
    """

    def __init__(
        self,
        bank: SceneBank,
        config: NavConfig,
        at_once: int = POSES_AT_ONCE,
        renderer: str = "raycast",
        sources: Mapping[str, ObservationSource] | None = None,
        task: Any = None,
    ):
        n, device = at_once, bank.device
        self.carriers = FreeBodies.at_origin(n, device)
        self._categories = kind_of(config.task_name).standing_categories
        seeds = _Seeds(*torch.zeros(2, 1, dtype=torch.int64, device=device))
        self.sources = image_sources(config) if sources is None else sources
        self.frame = Frame(bank, self.carriers, config.all_cameras, self.sources.values(), renderer, seeds, task)
        self.specs = tuple(source.spec for source in self.sources.values())
        self.images = {spec.name: torch.zeros(n, *spec.shape, dtype=spec.dtype, device=device) for spec in self.specs}

    @torch.inference_mode()
    def images_at(
        self,
        scene: np.ndarray,
        position: np.ndarray,
        heading: np.ndarray,
        tilt: np.ndarray,
        seen: SeenBodies | None = None,
    ) -> dict[str, Images]:
        """Images from S poses by sensor. Sensor noise is sampled again and differs from that of the episode.

        Args:
            scene: i32 [S], rows of the bank.
            position: f32 [S, 3], positions of bodies on the navmesh, metres.
            heading: f32 [S], radians.
            tilt: f32 [S], tilt of every camera, radians.
            seen: moving bodies at each pose, arrays [S, ...]; None: none.
        """
        n = len(self.carriers.heading)
        parts: dict[str, list[np.ndarray]] = {name: [] for name in self.images}
        for first in range(0, len(heading), n):
            rows = slice(first, first + n)
            count = len(heading[rows])
            for target, source in zip(self.carriers[:4], (scene, position, heading, tilt), strict=True):
                target[:count] = torch.from_numpy(source[rows])
            self._show(None if seen is None else SeenBodies(*(column[rows] for column in seen)))
            self.carriers.steps[:count] = torch.arange(first, first + count, dtype=torch.int64, device="cpu")
            write_observations(self.frame, self.sources, self.images)
            for name, images in self.images.items():
                parts[name].append(images[:count].cpu().numpy().copy())
        return {spec.name: Images(spec, np.concatenate(parts[spec.name])) for spec in self.specs}

    def _show(self, seen: SeenBodies | None) -> None:
        """Show moving bodies, arrays [S, ...] for the first S cameras; None: none."""
        if seen is None:
            if self.frame.seen is not None:
                self.frame.show_bodies(None)
            return
        shown = self.frame.seen
        if shown is None or shown.radius.shape[1] != seen.radius.shape[1]:
            n, device = len(self.carriers.heading), self.frame.device
            columns = (torch.from_numpy(np.zeros((n, *column.shape[1:]), column.dtype)) for column in seen)
            *bodies, _, own = (column.to(device) for column in columns)
            self.frame.show_bodies(MovingBodies(*bodies), own=own)
            self.frame.resource(BODY_CATEGORIES, lambda: category_numbers(self.frame.bank, self._categories))
        for name, target, source in zip(SeenBodies._fields, self.frame.seen or (), seen, strict=True):
            if name != "world":
                target[: len(source)] = torch.from_numpy(source)


def images_along(
    cameras: PoseCameras, scenes: np.ndarray, trajectories: Sequence[Trajectory]
) -> Iterator[dict[str, Images]]:
    """Images along each trajectory by sensor, rendered when the iterator reaches it.

    Args:
        cameras: render the images.
        scenes: i32, row of the bank of each trajectory.
        trajectories: poses to render from.
    """
    for scene, trajectory in zip(scenes, trajectories, strict=True):
        rows = np.full(len(trajectory.headings), scene, np.int32)
        poses = trajectory.positions, trajectory.headings, trajectory.tilts
        yield cameras.images_at(rows, *poses, seen=trajectory.seen)


def showing_goals(config: NavConfig) -> NavConfig:
    """A configuration for `goal_images`, in which stops lead from goal to goal."""
    if not TASKS[config.task_name].changes_goals:
        return config
    body = replace(config.body, control="v1")
    return replace(config, body=body, task=kind_of(config.task_name).rules_of_stops(config.task))


@torch.inference_mode()
def goal_images(env: NavEnv) -> list[dict[str, Images]]:
    """The images that show the goals of each environment's first episode, by name: one step a goal; resets `env`.

    An environment with several goals in an episode has a configuration of `showing_goals`.
    """
    observations, _ = env.reset()
    specs, n = {spec.name: spec for spec in env.specs}, env.num_envs
    found: list[dict[str, list[np.ndarray]]] = [{name: [] for name in goal_images_of(env.config)} for _ in range(n)]
    ended = np.zeros(n, bool)
    while not ended.all():
        for name in goal_images_of(env.config):
            images = observations[name].cpu().numpy().copy()
            for i in np.flatnonzero(~ended):
                found[i][name].append(images[i])
        if not env.task.changes_goals:
            break
        observations, _, terminated, truncated, _ = env.step(env.config.body.empty_actions(n, env.device))  # stops
        ended |= (terminated | truncated).cpu().numpy()
    return [{name: Images(specs[name], np.stack(images)) for name, images in shown.items()} for shown in found]


def goals_shown(shown: dict[str, Images], goal_index: np.ndarray | None) -> dict[str, Images]:
    """Of the images of `goal_images` for one episode, those of the goals with these numbers; None: all."""
    if goal_index is None:
        return shown
    return {name: Images(spec, values[goal_index]) for name, (spec, values) in shown.items()}


class GoalMasks:
    """Images of the main camera that mark the objects which an episode asks for, from any pose.

    Args:
        bank: scenes with the field "goal" of the appearance, where goals are objects.
        config: cameras and task.
        at_once: poses rendered at a time.
        renderer: "raycast", "opengl" or "auto".
    """

    def __init__(self, bank: SceneBank, config: NavConfig, at_once: int = POSES_AT_ONCE, renderer: str = "raycast"):
        self.kind, self.names = kind_of(config.task_name), bank.goal_categories
        spec = GoalMaskSensor(config.camera).spec
        is_observed = spec.name in config.sensors and config.goal_mask.is_exact
        self.spec = spec if is_observed else spec._replace(name=f"{spec.name} (not observed)")
        self.cameras = None
        changes = TASKS[config.task_name].changes_goals
        if self.names and "goal" in bank.appearance_fields and not changes:
            sensor = GoalCategorySensor(config.camera).of_camera(MAIN)
            self.cameras = PoseCameras(bank, config, at_once, renderer, {sensor.spec.name: sensor})

    def images_at(self, episode: Any, scene: np.ndarray, walk: Trajectory) -> dict[str, Images]:
        """The masks of an episode's goal along a trajectory by name; empty where goals are no objects, or change.

        `scene`: i32 [S], rows of the bank.
        """
        if self.cameras is None:
            return {}
        (seen,) = self.cameras.images_at(scene, walk.positions, walk.headings, walk.tilts, seen=walk.seen).values()
        wanted = self.names.index(self.kind.goal_name(episode)) + 1
        return {self.spec.name: Images(self.spec, np.where(seen.values == wanted, GOAL, 0).astype(np.uint8))}


# Failure analysis: why each failed episode failed.
#
# A failed episode has one of the kinds that the task's goals tell apart (`GoalKind.failures`). "At" a goal or view
# point means within the task's success distance. Images are rendered again from the agent's poses, with at most
# IMAGE_SIDE rows and columns; an object of one pixel counts as seen.

IMAGE_SIDE = 64
"""Largest number of rows and columns of the images that show what an agent saw."""


def meanings_of(config: NavConfig) -> dict[str, str]:
    """Kinds of failures in the task of a configuration, with their meanings; empty for a task without kinds."""
    return dict(kind_of(config.task_name).failures)


def failure_kinds(
    bank: SceneBank,
    config: NavConfig,
    episodes: Sequence[Any],
    results: Mapping[str, np.ndarray],
    trajectories: Sequence[Trajectory],
    renderer: str = "raycast",
) -> np.ndarray | None:
    """The kind of each failed episode, "" for a success.

    Args:
        bank: the scenes; with goals where these are objects.
        config: environment of the agent.
        episodes: the played episodes.
        results: results of `evaluate`, in the same order.
        trajectories: the agent's trajectories, in the same order.
        renderer: "raycast", "opengl" or "auto".

    None for tasks without kinds, and where they need images but the bank lacks the field "goal" of the appearance.
    """
    kind = kind_of(config.task_name)
    if not kind.failures or (kind.failures_need_images and "goal" not in bank.appearance_fields):
        return None
    task: Any = config.task
    found = np.full(len(trajectories), "", f"U{max(map(len, kind.failures))}")
    failed = np.flatnonzero(results["success"] == 0.0)
    cameras = goal_cameras(bank, config, renderer) if kind.failures_need_images and len(failed) else None
    for i in failed.tolist():
        row, episode, trajectory = int(results["scene"][i]), episodes[i], trajectories[i]
        saw = partial(saw_goal, cameras, row, bank.goal_categories, kind.goal_name(episode), trajectory)
        found[i] = kind.failure(
            FailedEpisode(
                episode, bank.scenes[row], trajectory.positions, _stopped(trajectory, config), task.success_distance,
                bank.goal_categories, saw,
            )
        )  # fmt: skip
    return found


def _stopped(trajectory: Trajectory, config: NavConfig) -> bool:
    """True where the agent ended the episode."""
    if config.body.is_discrete:
        return bool(trajectory.actions[-1] == STOP)
    return len(trajectory.actions) < config.task.max_steps


def goal_cameras(bank: SceneBank, config: NavConfig, renderer: str) -> PoseCameras:
    """The main camera with images of goal categories, at most IMAGE_SIDE rows and columns."""
    camera = config.camera.fixed
    scale = min(1.0, IMAGE_SIDE / max(camera.height, camera.width))
    height, width = (max(4, round(side * scale)) for side in (camera.height, camera.width))
    small = replace(config, camera=replace(camera, height=height, width=width))
    sensor = GoalCategorySensor(small.camera).of_camera(MAIN)
    return PoseCameras(bank, small, renderer=renderer, sources={sensor.spec.name: sensor})


def saw_goal(
    cameras: PoseCameras | None, scene: int, goal_names: Sequence[str], goal_name: str, trajectory: Trajectory
) -> bool:
    """True where some image along a trajectory, in a row of the bank, shows a goal of this name."""
    assert cameras is not None
    number = goal_names.index(goal_name)
    poses = np.unique(np.column_stack([trajectory.positions, trajectory.headings, trajectory.tilts]), axis=0)
    for begin in range(0, len(poses), POSES_AT_ONCE):
        some = poses[begin : begin + POSES_AT_ONCE]
        rows = np.full(len(some), scene, np.int32)
        position = np.ascontiguousarray(some[:, :3])
        (images,) = cameras.images_at(rows, position, some[:, 3].copy(), some[:, 4].copy()).values()
        if (images.values == number + 1).any():
            return True
    return False
