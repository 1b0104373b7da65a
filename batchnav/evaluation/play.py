"""Playing episodes to measure an agent: every episode counted once, paths to draw."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from batchnav.agents.protocol import Agent
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError
from batchnav.types import Metric, Spec

STEPS_BETWEEN_CHECKS = 16
"""How often to ask whether all episodes have ended: each time waits for the device."""


class Images(NamedTuple):
    """What one sensor saw in an episode of S actions."""

    spec: Spec
    values: np.ndarray
    """[S, C, H, W], as observed."""


class Recording(NamedTuple):
    """One played episode of S actions, to draw."""

    scene: int
    """Index of the scene in the bank."""
    positions: np.ndarray
    """f32 [S, 3]: where the agent stood when it chose each action; the last was a stop, or the last before time-out."""
    headings: np.ndarray
    """f32 [S], radians."""
    actions: np.ndarray
    """i64 [S], or f32 [S, 2]."""
    images: dict[str, Images]
    """By sensor."""
    goal: np.ndarray | None
    """f32 [3]: the task's target; None where it has none."""
    goal_radius: float
    """Metres."""
    metrics: dict[str, float]
    """By name."""
    metric_specs: tuple[Metric, ...]
    """What the task says of them."""


@torch.inference_mode()
def evaluate(
    agent: Agent, env: NavEnv, num_episodes: int, seed: int = 0, show: Callable[[int], None] | None = None
) -> dict[str, np.ndarray]:
    """Play `num_episodes` episodes from the environment's first on, each counted once.

    Environment i plays episodes i, i + N, i + 2N ...: rows of the environment's episode table where it has one. What is
    counted is fixed beforehand, so that quick failures do not crowd out long episodes.

    Args:
        agent: its `act` may keep a memory.
        env: is reset with `seed`.
        num_episodes: M. No more than the table has.
        seed: of the sampled episodes, where there is no table.
        show: is told now and then how many episodes have ended.

    Returns:
        f32 [M] for each of the task's metrics and facts, and "scene" i32 [M].
    """
    task, n, device = env.task, env.num_envs, env.device
    if num_episodes < 1 or (task.num_fixed and num_episodes > task.num_fixed):
        raise ArgumentError(f"num_episodes: found {num_episodes}, expected 1 to {task.num_fixed or 'any'}")
    names = (*task.metrics, *task.episode_info)
    # One column more than there are episodes: what is not to be counted is written there.
    results = torch.full((len(names) + 1, num_episodes + 1), math.nan, device=device)
    index = torch.arange(n, device=device)
    start = torch.ones(n, dtype=torch.bool, device=device)
    observations, _ = env.reset(seed=seed)
    agent.reset(n)
    for step in range(-(-num_episodes // n) * task.max_steps):
        before = torch.stack([*task.episode_info.values(), env.sim.bodies.scene.float()])
        observations, _, _, _, info = env.step(agent.act(observations, start))
        start = info["_episode"].clone()
        column = torch.where(start & (index < num_episodes), index, num_episodes)
        results[:, column] = torch.cat([torch.stack(list(info["episode"].values())), before])
        index += n * start
        if step % STEPS_BETWEEN_CHECKS == 0:
            ended = int(results[-1, :num_episodes].isfinite().sum())
            if show:
                show(ended)
            if ended == num_episodes:
                break
    found = results[:, :num_episodes].cpu().numpy()
    episodes = dict(zip(names, found, strict=False))
    return episodes | {"scene": found[-1].astype(np.int32)}


@torch.inference_mode()
def record(agent: Agent, env: NavEnv, seed: int = 0) -> list[Recording]:
    """Play one episode in every environment and keep what was seen and done."""
    n, bodies = env.num_envs, env.sim.bodies
    observations, _ = env.reset(seed=seed)
    agent.reset(n)
    target, scenes = env.task.target, bodies.scene.tolist()
    goals = None if target is None else target.cpu().numpy().copy()
    lengths = np.zeros(n, int)
    metrics: list[dict[str, float]] = [{} for _ in range(n)]
    start = torch.ones(n, dtype=torch.bool, device=env.device)
    positions, headings, actions = [], [], []
    seen: dict[str, list[np.ndarray]] = {spec.name: [] for spec in env.specs if len(spec.shape) == 3}
    while not lengths.all():
        positions.append(bodies.position.cpu().numpy().copy())
        headings.append(bodies.heading.cpu().numpy().copy())
        for name, images in seen.items():
            images.append(observations[name].cpu().numpy().copy())
        action = agent.act(observations, start)
        actions.append(action.cpu().numpy().copy())
        observations, _, _, _, info = env.step(action)
        start = info["_episode"].clone()
        for i in np.flatnonzero(start.cpu().numpy() & (lengths == 0)):
            lengths[i] = len(positions)
            metrics[i] = {name: float(info["episode"][name][i]) for name in info["episode"]}
    all_positions, all_headings, all_actions = (np.stack(rows, axis=1) for rows in (positions, headings, actions))
    films = {spec: np.stack(seen[spec.name], axis=1) for spec in env.specs if spec.name in seen}
    return [
        Recording(
            scene=scenes[i],
            positions=all_positions[i, : lengths[i]],
            headings=all_headings[i, : lengths[i]],
            actions=all_actions[i, : lengths[i]],
            images={spec.name: Images(spec, film[i, : lengths[i]]) for spec, film in films.items()},
            goal=None if goals is None else goals[i],
            goal_radius=env.task.target_radius,
            metrics=metrics[i],
            metric_specs=env.task.metric_specs,
        )
        for i in range(n)
    ]
