"""Playing episodes to measure an agent: every episode counted once, paths to draw."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np
import torch

from batchnav.envs.pointnav import PointNavEnv
from batchnav.errors import ArgumentError
from batchnav.sim.state import METRICS

STEPS_BETWEEN_CHECKS = 16
"""How often to ask whether all episodes have ended: each time waits for the device."""


class Agent(Protocol):
    """What plays: a trained policy or one of `batchnav.evaluation.agents`."""

    def reset(self, num_envs: int) -> None:
        """Forget everything, for so many environments."""
        ...

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Observations and the bool [N] mask of first observations of an episode -> actions i64 [N]."""
        ...


class Recording(NamedTuple):
    """One played episode of S actions, to draw."""

    scene: int
    """Index of the scene in the bank."""
    positions: np.ndarray
    """f32 [S, 3]: where the agent stood when it chose each action; the last was a stop, or the last before time-out."""
    headings: np.ndarray
    """f32 [S], radians."""
    actions: np.ndarray
    """i64 [S]."""
    depth: np.ndarray
    """f32 [S, H, W] in 0..1, as observed."""
    goal: np.ndarray
    """f32 [3]."""
    metrics: dict[str, float]
    """By name, as METRICS lists them."""


@torch.inference_mode()
def evaluate(agent: Agent, env: PointNavEnv, num_episodes: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Play `num_episodes` episodes from the environment's first on, each counted once.

    Environment i plays episodes i, i + N, i + 2N ...: rows of the environment's episode table where it has one. What is
    counted is fixed beforehand, so that quick failures do not crowd out long episodes.

    Args:
        agent: its `act` may keep a memory.
        env: is reset with `seed`.
        num_episodes: M. No more than the table has.
        seed: of the sampled episodes, where there is no table.

    Returns:
        f32 [M] for each name of METRICS, "start_distance" f32 [M] (geodesic, metres) and "scene" i32 [M].
    """
    rows = env.sim.episodes.scene.shape[0]
    if num_episodes < 1 or (rows and num_episodes > rows):
        raise ArgumentError(f"num_episodes: found {num_episodes}, expected 1 to {rows or 'any'}")
    n, device, state = env.num_envs, env.device, env.sim.state
    # One column more than there are episodes: what is not to be counted is written there.
    results = torch.full((len(METRICS) + 2, num_episodes + 1), math.nan, device=device)
    index = torch.arange(n, device=device)
    start = torch.ones(n, dtype=torch.bool, device=device)
    observations, _ = env.reset(seed=seed)
    agent.reset(n)
    for step in range(-(-num_episodes // n) * env.config.max_steps):
        before = torch.stack([state.start_distance, state.scene.float()])
        observations, _, _, _, info = env.step(agent.act(observations, start))
        start = info["_episode"].clone()
        column = torch.where(start & (index < num_episodes), index, num_episodes)
        results[:, column] = torch.cat([torch.stack([info["episode"][name] for name in METRICS]), before])
        index += n * start
        if step % STEPS_BETWEEN_CHECKS == 0 and bool((index >= num_episodes).all()):
            break
    found = results[:, :num_episodes].cpu().numpy()
    episodes = dict(zip((*METRICS, "start_distance"), found, strict=False))
    return episodes | {"scene": found[-1].astype(np.int32)}


@torch.inference_mode()
def record(agent: Agent, env: PointNavEnv, seed: int = 0) -> list[Recording]:
    """Play one episode in every environment and keep what was seen and done."""
    n, state = env.num_envs, env.sim.state
    observations, _ = env.reset(seed=seed)
    agent.reset(n)
    goals, scenes = state.goal.cpu().numpy().copy(), state.scene.tolist()
    lengths, metrics = np.zeros(n, int), [{} for _ in range(n)]
    start = torch.ones(n, dtype=torch.bool, device=env.device)
    positions, headings, actions, depth = [], [], [], []
    while not lengths.all():
        positions.append(state.position.cpu().numpy().copy())
        headings.append(state.heading.cpu().numpy().copy())
        depth.append(observations["depth"][:, 0].cpu().numpy().copy())
        action = agent.act(observations, start)
        actions.append(action.cpu().numpy().copy())
        observations, _, _, _, info = env.step(action)
        start = info["_episode"].clone()
        for i in np.flatnonzero(start.cpu().numpy() & (lengths == 0)):
            lengths[i] = len(positions)
            metrics[i] = {name: float(info["episode"][name][i]) for name in METRICS}
    stacked = [np.stack(rows, axis=1) for rows in (positions, headings, actions, depth)]
    return [
        Recording(scenes[i], *(rows[i, : lengths[i]] for rows in stacked), goal=goals[i], metrics=metrics[i])
        for i in range(n)
    ]
