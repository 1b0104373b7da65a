"""An agent that is watched while it plays: where it went, and afterwards what it saw there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from batchnav.agents.protocol import Agent
from batchnav.envs.config import NavConfig
from batchnav.envs.nav import NavEnv
from batchnav.envs.observations import image_sources
from batchnav.evaluation.play import Images
from batchnav.scene.bank import SceneBank
from batchnav.sensors.camera import FreeBodies
from batchnav.sensors.frame import Frame, write_observations

STEPS_KEPT = 64
"""Steps whose poses are kept on the device, before they go to the host together."""
VIEWS_AT_ONCE = 32
"""Poses from which pictures are drawn at a time: few, since what a way has too few for is drawn in vain."""


class Walk(NamedTuple):
    """The way through one episode of S actions."""

    positions: np.ndarray
    """f32 [S, 3]: where the agent stood when it chose each action."""
    headings: np.ndarray
    """f32 [S], radians."""
    tilts: np.ndarray
    """f32 [S], radians: of every camera, up is positive."""
    actions: np.ndarray
    """i64 [S], or f32 [S, 2]."""


class _Seeds(NamedTuple):
    """What noise is drawn from there: see `sensors.camera.Seeds`."""

    seed: torch.Tensor
    first_agent: torch.Tensor


class Watched:
    """`agent` itself, in `env`, and a note of every step: `walks` tells them when all is played."""

    def __init__(self, agent: Agent, env: NavEnv):
        self.agent, self.env = agent, env

    def reset(self, num_envs: int) -> None:
        """Forget everything."""
        self.agent.reset(num_envs)
        self._steps: list[tuple[torch.Tensor, ...]] = []
        self._kept: list[list[np.ndarray]] = []

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """The agent's actions."""
        bodies = self.env.sim.bodies
        # The pose is noted before, since an agent may turn the body that it plays with to look around.
        pose = bodies.position.clone(), bodies.heading.clone(), bodies.tilt.clone()
        actions = self.agent.act(observations, episode_start)
        self._steps.append((*pose, actions.clone(), episode_start.clone()))
        if len(self._steps) == STEPS_KEPT:
            self._keep()
        return actions

    def _keep(self) -> None:
        if self._steps:
            self._kept.append([torch.stack(column).cpu().numpy() for column in zip(*self._steps, strict=True)])
            self._steps = []

    def walks(self, num_episodes: int) -> list[Walk]:
        """The ways through the first episodes, as `evaluate` numbers them: i, i + N, ... are environment i's."""
        self._keep()
        *noted, start = (np.concatenate(rows) for rows in zip(*self._kept, strict=True))
        steps, n = start.shape
        found: list[Walk] = []
        begins = [np.flatnonzero(start[:, i]) for i in range(n)]
        for number in range(num_episodes):
            i, k = number % n, number // n
            end = begins[i][k + 1] if k + 1 < len(begins[i]) else steps
            rows = slice(begins[i][k], end)
            found.append(Walk(*(part[rows, i] for part in noted)))
        return found


class Eyes:
    """The cameras and sensors of a configuration, without a simulator: what they see from anywhere.

    Args:
        bank: with the appearance that the sensors need.
        config: cameras and sensors.
        at_once: poses from which pictures are drawn at a time.
        renderer: "raycast", "opengl" or "auto".
    """

    def __init__(self, bank: SceneBank, config: NavConfig, at_once: int = VIEWS_AT_ONCE, renderer: str = "raycast"):
        n, device = at_once, bank.device
        self.carriers = FreeBodies.at_origin(n, device)
        seeds = _Seeds(*torch.zeros(2, 1, dtype=torch.int64, device=device))
        self.sources = image_sources(config)
        self.frame = Frame(bank, self.carriers, config.all_cameras, self.sources.values(), renderer, seeds)
        self.specs = tuple(source.spec for source in self.sources.values())
        self.images = {spec.name: torch.zeros(n, *spec.shape, dtype=spec.dtype, device=device) for spec in self.specs}

    @torch.inference_mode()
    def look(self, scene: np.ndarray, position: np.ndarray, heading: np.ndarray, tilt: np.ndarray) -> dict[str, Images]:
        """What is seen, by sensor: exact, but a noisy sensor's noise is drawn anew.

        Args:
            scene: i32 [S], rows of the bank.
            position: f32 [S, 3], on the navmesh, as `Bodies` have it.
            heading: f32 [S], radians.
            tilt: f32 [S], radians, of every camera.
        """
        n = len(self.carriers.heading)
        parts: dict[str, list[np.ndarray]] = {name: [] for name in self.images}
        for first in range(0, len(heading), n):
            rows = slice(first, first + n)
            count = len(heading[rows])
            for target, source in zip(self.carriers[:4], (scene, position, heading, tilt), strict=True):
                target[:count] = torch.as_tensor(source[rows])
            self.carriers.steps[:count] = torch.arange(first, first + count)
            write_observations(self.frame, self.sources, self.images)
            for name, images in self.images.items():
                parts[name].append(images[:count].cpu().numpy().copy())
        return {spec.name: Images(spec, np.concatenate(parts[spec.name])) for spec in self.specs}


def seen_along(eyes: Eyes, scenes: np.ndarray, walks: Sequence[Walk]) -> Iterator[dict[str, Images]]:
    """What eyes see along walks in scenes i32 [...] of the bank, by sensor: drawn walk by walk, when asked for."""
    for scene, walk in zip(scenes, walks, strict=True):
        where = np.full(len(walk.headings), scene, np.int32)
        yield eyes.look(where, walk.positions, walk.headings, walk.tilts)
