"""One policy on the same episodes in this simulator and in habitat-sim: the first differences of every episode."""

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
            action = policy.act(observations, deterministic=not agent.sample)
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
