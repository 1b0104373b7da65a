"""Playing episodes with an agent: metrics of a fixed set of episodes, and recordings."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch

from batchnav.agents.protocol import Agent
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError
from batchnav.mapping.mapper import Mapper
from batchnav.mapping.state import MapLayers
from batchnav.observation import Spec
from batchnav.renderers.bodies import SeenBodies
from batchnav.runtime.console import Show
from batchnav.types import Metric

STEPS_BETWEEN_CHECKS = 16
"""Steps between checks for the end of all episodes; each check waits for the device."""


class Images(NamedTuple):
    """Images of one sensor in an episode of S actions."""

    spec: Spec
    values: np.ndarray
    """Observations [S, C, H, W]."""


class AgentMap(NamedTuple):
    """The map of one agent, as in `mapping.state.MapState`."""

    layers: MapLayers
    """u8 [CELLS] each."""
    origin_and_resolution: torch.Tensor
    """f32 [3]: world x and z of the map's corner, and the side of a cell, metres."""
    goal_cells: torch.Tensor | None = None
    """bool [CELLS]: True where the agent saw the object that it searches for; None for agents without a search."""


class Recording(NamedTuple):
    """One played episode of S actions: poses, actions, images and metrics."""

    scene: int
    """Index of the scene in the bank."""
    positions: np.ndarray
    """f32 [S, 3]: position of the agent when it chose each action, metres."""
    headings: np.ndarray
    """f32 [S], radians."""
    actions: np.ndarray
    """i64 [S], or f32 [S, 2]."""
    images: dict[str, Images]
    """Images by sensor."""
    goal: np.ndarray | None
    """f32 [3]: the task's target, metres; None for a task without one."""
    goal_radius: float
    """Success distance, metres."""
    metrics: dict[str, float]
    """Metrics of the episode by name."""
    metric_specs: tuple[Metric, ...]
    """The task's descriptions of its metrics."""
    agent_map: AgentMap | None = None
    """The agent's map when it chose its last action; None for an agent without a map."""
    seen: SeenBodies | None = None
    """Moving bodies at each step, arrays [S, ...]; None for a world without them."""


@torch.inference_mode()
def evaluate(
    agent: Agent, env: NavEnv, num_episodes: int, seed: int = 0, progress: Show | None = None
) -> dict[str, np.ndarray]:
    """Play the first `num_episodes` episodes of the environment, and return the metrics of each.

    Environment i plays episodes i, i + N, i + 2N ...: rows of the environment's episode table where it has one. The
    counted episodes are fixed before play starts, so short failures do not take the place of long episodes.

    Args:
        agent: chooses the actions; it may keep state between calls.
        env: environment to play in; it is reset with `seed`.
        num_episodes: M, at most the length of the episode table.
        seed: seed for episode sampling, where there is no table.
        progress: called every `STEPS_BETWEEN_CHECKS` steps with the number of episodes that have ended, the number of
            steps, and the largest number of steps.

    Returns:
        f32 [M] for each metric of the task, each value of `Task.episode_info` and `Task.episode_details`,
        and "scene" i32 [M].

    ArgumentError where `num_episodes` is out of range.
    """
    task, n, device = env.task, env.num_envs, env.device
    if num_episodes < 1 or (task.num_fixed and num_episodes > task.num_fixed):
        expected = f"1 to {task.num_fixed}" if task.num_fixed else "1 or more"
        raise ArgumentError(f"num_episodes: found {num_episodes}, expected {expected}")
    details = task.episode_details
    names = (*task.metrics, *details, *task.episode_info)
    # The last column takes the results of episodes that do not count.
    results = torch.full((len(names) + 1, num_episodes + 1), math.nan, dtype=torch.float32, device=device)
    index = torch.arange(n, dtype=torch.int64, device=device)
    start = torch.ones(n, dtype=torch.bool, device=device)
    observations, _ = env.reset(seed=seed)
    agent.reset(n)
    most_steps = -(-num_episodes // n) * task.max_steps
    for step in range(most_steps):
        before = torch.stack([*task.episode_info.values(), env.sim.bodies.scene.float()])
        observations, _, _, _, info = env.step(agent.act(observations, start))
        start = info["_episode"].clone()
        column = torch.where(start & (index < num_episodes), index, num_episodes)
        results[:, column] = torch.cat([torch.stack([*info["episode"].values(), *details.values()]), before])
        index += n * start
        if step % STEPS_BETWEEN_CHECKS == 0:
            ended = int(results[-1, :num_episodes].isfinite().sum())
            if progress:
                progress(ended, step + 1, most_steps)
            if ended == num_episodes:
                break
    found = results[:, :num_episodes].cpu().numpy()
    episodes = dict(zip(names, found, strict=False))
    return episodes | {"scene": found[-1].astype(np.int32)}


@torch.inference_mode()
def record(agent: Agent, env: NavEnv, seed: int = 0) -> list[Recording]:
    """Play one episode in every environment, and record poses, actions, images and maps.

    Args:
        agent: chooses the actions.
        env: environment to play in; it is reset with `seed`.
        seed: seed for episode sampling, where there is no episode table.

    Returns a `Recording` for each environment.
    """
    n, bodies = env.num_envs, env.sim.bodies
    observations, _ = env.reset(seed=seed)
    agent.reset(n)
    target, scenes = env.task.target, bodies.scene.tolist()
    goals = None if target is None else target.cpu().numpy().copy()
    lengths = np.zeros(n, int)
    metrics: list[dict[str, float]] = [{} for _ in range(n)]
    start = torch.ones(n, dtype=torch.bool, device=env.device)
    positions, headings, actions, others = [], [], [], []
    seen: dict[str, list[np.ndarray]] = {spec.name: [] for spec in env.specs if len(spec.shape) == 3}
    maps: list[AgentMap | None] = [None] * n
    while not lengths.all():
        positions.append(bodies.position.cpu().numpy().copy())
        headings.append(bodies.heading.cpu().numpy().copy())
        others.append([column.cpu().numpy() for column in bodies_by_agent(env)])
        for name, images in seen.items():
            images.append(observations[name].cpu().numpy().copy())
        if env.mapper is not None:  # the step that ends an episode begins the map of the next one
            for i in np.flatnonzero(lengths == 0):
                maps[i] = agent_map_of(env.mapper, int(i))
        action = agent.act(observations, start)
        actions.append(action.cpu().numpy().copy())
        observations, _, _, _, info = env.step(action)
        start = info["_episode"].clone()
        for i in np.flatnonzero(start.cpu().numpy() & (lengths == 0)):
            lengths[i] = len(positions)
            metrics[i] = {name: float(info["episode"][name][i]) for name in info["episode"]}
    all_positions, all_headings, all_actions = (np.stack(rows, axis=1) for rows in (positions, headings, actions))
    bodies_seen = [np.stack(rows, axis=1) for rows in zip(*others, strict=True)]
    recorded = {spec: np.stack(seen[spec.name], axis=1) for spec in env.specs if spec.name in seen}
    return [
        Recording(
            scene=scenes[i],
            positions=all_positions[i, : lengths[i]],
            headings=all_headings[i, : lengths[i]],
            actions=all_actions[i, : lengths[i]],
            images={spec.name: Images(spec, images[i, : lengths[i]]) for spec, images in recorded.items()},
            goal=None if goals is None else goals[i],
            goal_radius=env.task.target_radius,
            metrics=metrics[i],
            metric_specs=env.task.metric_specs,
            agent_map=maps[i],
            seen=SeenBodies(*(column[i, : lengths[i]] for column in bodies_seen)) if bodies_seen else None,
        )
        for i in range(n)
    ]


def bodies_by_agent(env: NavEnv) -> tuple[torch.Tensor, ...]:
    """The moving bodies in each agent's world: copies of the columns of `SeenBodies`, [N, ...]; none without bodies."""
    if (seen := env.frame.seen) is None:
        return ()
    rows = seen.world.long()
    return *(column[rows] for column in seen[:-2]), torch.zeros_like(seen.world), seen.own.clone()


def present(seen: SeenBodies, step: int) -> np.ndarray:
    """Numbers of the bodies in the agent's world at a step, without the agent itself; `seen` has arrays [S, ...]."""
    numbers = np.arange(min(int(seen.count[step]), seen.radius.shape[1]))
    return numbers[numbers != seen.own[step]]


def agent_map_of(mapper: Mapper, i: int) -> AgentMap:
    """A copy of agent i's map."""
    state, goal_cells = mapper.map_state, mapper.goal_cells(i)
    return AgentMap(
        MapLayers(state.occupancy[i].clone(), state.explored[i].clone()), state.origin_and_resolution[i].clone(),
        goal_cells,
    )  # fmt: skip
