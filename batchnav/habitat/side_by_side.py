"""The same policy on the same episodes in our simulator and in habitat-sim, and where the two part."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from batchnav.data.episodes.episode import Episode
from batchnav.data.episodes.playing import check_episodes, episode_table
from batchnav.envs.nav import NavEnv
from batchnav.habitat.agent import HabitatAgent
from batchnav.habitat.simulator import HabitatSim, find_stage
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene
from batchnav.sensors.depth import DepthConfig

POSITION, HEADING, DEPTH = 1e-4, 1e-4, 1e-2
"""Metres, radians, and metres of a pixel: from here on something differs. Both sides compute in float32."""


class Step(NamedTuple):
    """What was seen and done."""

    position: np.ndarray
    """[3], metres."""
    heading: float
    """Radians."""
    depth: np.ndarray
    """f32 [H, W], metres, clipped to the sensor's range."""
    action: int


class Run(NamedTuple):
    """An episode as it went."""

    steps: list[Step]
    metrics: dict[str, float]


class First(NamedTuple):
    """The first step at which something differs, counted from 0."""

    step: int
    by: str
    """By how much, in words."""


class Pair(NamedTuple):
    """An episode in both, up to the first action that differs: from there on they are two episodes."""

    ours: Run
    theirs: Run
    firsts: dict[str, First]
    """Of "position", "heading", "depth" and "action", those that differ, the earliest first."""
    largest: dict[str, float]
    """The largest difference of position (metres) and heading (radians), and the mean share of pixels that differ."""

    @property
    def same_actions(self) -> bool:
        """Whether all actions were the same."""
        return "action" not in self.firsts


def compare(ours: Run, theirs: Run) -> Pair:
    """Step by step."""
    firsts: dict[str, First] = {}
    position = heading = 0.0
    shares = []
    for t, (a, b) in enumerate(zip(ours.steps, theirs.steps, strict=False)):
        moved = float(np.linalg.norm(a.position - b.position))
        turned = abs(math.remainder(a.heading - b.heading, 2.0 * math.pi))
        gaps = np.abs(a.depth - b.depth)
        share = float((gaps > DEPTH).mean())
        for name, differs, by in (
            ("position", moved > POSITION, f"{moved:.2g} m"), ("heading", turned > HEADING, f"{turned:.2g} rad"),
            ("depth", share > 0.0, f"{gaps.max():.2g} m at most, {share:.2%} of the pixels over {DEPTH:g} m"),
            ("action", a.action != b.action, f"{a.action} here, {b.action} in habitat-sim"),
        ):  # fmt: skip
            if differs and name not in firsts:
                firsts[name] = First(t, by)
        position, heading = max(position, moved), max(heading, turned)
        shares.append(share)
        if a.action != b.action:
            break
    return Pair(ours, theirs, firsts, {"position": position, "heading": heading, "depth": float(np.mean(shares))})


def play_ours(scene: Scene, episodes: list[Episode], agent: HabitatAgent) -> Iterator[Run]:
    """The episodes of one scene in our simulator, one at a time, as habitat-sim plays them."""
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
            action = policy.act(observations, deterministic=not agent.sample)
            position, heading = bodies.position[0].cpu().numpy().copy(), float(bodies.heading[0])
            steps.append(Step(position, heading, _metres(observations["depth"][0, 0], depth), int(action)))
            observations, _, _, _, info = env.step(action)
            ended = bool(info["_episode"][0])
        yield Run(steps, {name: float(value[0]) for name, value in info["episode"].items()})
    env.close()


def play_theirs(sim: HabitatSim, episodes: list[Episode], agent: HabitatAgent) -> Iterator[Run]:
    """The same in habitat-sim."""
    for episode in episodes:
        agent.reset()
        observations, steps = sim.begin(episode), []
        while not sim.over:
            action = agent.act(observations)["action"]
            seen = agent.with_holes(torch.from_numpy(observations["depth"][..., 0]))
            depth = _metres(seen, sim.config.depth)
            steps.append(Step(sim.position.copy(), sim.heading, depth, action))
            observations = sim.step(action)
        yield Run(steps, sim.metrics)


def side_by_side(
    scene: Scene, episodes: list[Episode], agent: HabitatAgent, scenes_dir: Path, folder: Path
) -> Iterator[Pair]:
    """The episodes of one scene in both, in turn. `folder` takes what habitat-sim is to read."""
    check_episodes(episodes, {scene.name: scene})
    sim = HabitatSim(find_stage(episodes[0], scene, scenes_dir, folder), agent.config)
    try:
        for ours, theirs in zip(play_ours(scene, episodes, agent), play_theirs(sim, episodes, agent), strict=True):
            yield compare(ours, theirs)
    finally:
        sim.close()


def _metres(depth: torch.Tensor, limits: DepthConfig) -> np.ndarray:
    """Depth of 0..1 in metres, copied."""
    return (depth.cpu().numpy() * (limits.max_depth - limits.min_depth) + limits.min_depth).astype(np.float32)
