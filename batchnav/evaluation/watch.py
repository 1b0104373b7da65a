"""An agent that is watched while it plays: where it went, and afterwards what it saw there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from batchnav.envs.config import NavConfig
from batchnav.envs.nav import NavEnv
from batchnav.evaluation.play import Agent, Images
from batchnav.scene.bank import SceneBank
from batchnav.sensors.rig import Rig, make_sensors

STEPS_KEPT = 64
"""Steps whose poses are kept on the device, before they go to the host together."""
VIEWS_AT_ONCE = 256
"""Poses from which pictures are drawn at a time."""


class Walk(NamedTuple):
    """The way through one episode of S actions."""

    positions: np.ndarray
    """f32 [S, 3]: where the agent stood when it chose each action."""
    headings: np.ndarray
    """f32 [S], radians."""
    actions: np.ndarray
    """i64 [S]."""


class _Carriers(NamedTuple):
    """What carries cameras, where there is no simulator: see `sensors.camera.Carriers`."""

    scene: torch.Tensor
    position: torch.Tensor
    heading: torch.Tensor


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
        """The agent's actions i64 [N]."""
        bodies = self.env.sim.bodies
        # The pose is noted before, since an agent may turn the body that it plays with to look around.
        pose = bodies.position.clone(), bodies.heading.clone()
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
        positions, headings, actions, start = (np.concatenate(rows) for rows in zip(*self._kept, strict=True))
        steps, n = start.shape
        found: list[Walk] = []
        begins = [np.flatnonzero(start[:, i]) for i in range(n)]
        for number in range(num_episodes):
            i, k = number % n, number // n
            end = begins[i][k + 1] if k + 1 < len(begins[i]) else steps
            rows = slice(begins[i][k], end)
            found.append(Walk(positions[rows, i], headings[rows, i], actions[rows, i]))
        return found


@torch.inference_mode()
def seen_along(
    bank: SceneBank,
    config: NavConfig,
    scenes: np.ndarray,
    walks: Sequence[Walk],
    renderer: str = "raycast",
) -> list[dict[str, Images]]:
    """What the sensors of a configuration see along walks, by sensor: drawn anew, and exact but for a sensor's noise.

    Args:
        bank: with the appearance that the sensors need.
        config: cameras and sensors.
        scenes: i32 [...], rows of the bank, of each walk.
        walks: as `Watched` notes them, or some of their steps.
        renderer: "raycast", "opengl" or "auto".
    """
    device, n = bank.device, VIEWS_AT_ONCE
    carriers = _Carriers(
        torch.zeros(n, dtype=torch.int32, device=device),
        torch.zeros(n, 3, device=device),
        torch.zeros(n, device=device),
    )
    sensors = make_sensors(config.sensors, config.all_cameras, config.sensor_settings)
    rig = Rig(bank, carriers, config.all_cameras, sensors, renderer)
    out = {spec.name: torch.zeros(n, *spec.shape, dtype=spec.dtype, device=device) for spec in rig.specs}
    lengths = [len(walk.headings) for walk in walks]
    scene = torch.from_numpy(np.repeat(scenes.astype(np.int32), lengths))
    position = torch.from_numpy(np.concatenate([walk.positions for walk in walks]))
    heading = torch.from_numpy(np.concatenate([walk.headings for walk in walks]))
    parts: dict[str, list[np.ndarray]] = {name: [] for name in out}
    for first in range(0, len(heading), n):
        rows = slice(first, min(first + n, len(heading)))
        count = rows.stop - rows.start
        for target, source in zip(carriers, (scene, position, heading), strict=True):
            target[:count] = source[rows].to(device)
        rig.observe(out)
        for name, images in out.items():
            parts[name].append(images[:count].cpu().numpy().copy())
    ends = np.cumsum(lengths)[:-1]
    films = {spec: np.split(np.concatenate(parts[spec.name]), ends) for spec in rig.specs}
    return [{spec.name: Images(spec, film[k]) for spec, film in films.items()} for k in range(len(walks))]
