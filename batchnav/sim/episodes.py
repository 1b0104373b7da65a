"""Sampling of episodes ahead of time: the queue of agents, and the random numbers of an episode.

Random numbers are a pure function of (seed, agent, episode number, draw). An episode therefore does not depend on other
agents, the time of sampling or the device. Agent numbers continue from process to process, so an episode does not
depend on the number of processes either.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.runtime.kernels.decorators import device_function, lean_function
from batchnav.runtime.kernels.rng import uniform4

_SCENE_AND_HEADING = 0
"""Number of the draw that gives an episode's scene and start heading."""
GOAL_DRAW = 1
"""Number of the draw that gives what a goal has besides its place, such as a heading or an image."""
FIRST_DRAW = 2
"""Number of the first draw that gives an episode's start and the place of its goal."""
NO_AGENT = -1
"""Queue entry without an agent (CPU)."""
_TWO_PI = np.float32(2.0 * math.pi)


class SamplingState(NamedTuple):
    """Seed and scenes of sampled episodes. Tensors, so that a captured CUDA graph reads their current values."""

    seed: torch.Tensor
    """i64 [1]: seed of the run."""
    scene_ranges: torch.Tensor
    """i32 [N, 2]: first scene of each agent, a row of the bank, and its number of scenes."""
    first_agent: torch.Tensor
    """i64 [1]: number of the first agent among those of all processes."""

    @classmethod
    def of(cls, seed: int, num_envs: int, num_scenes: int, device: torch.device, first_agent: int = 0) -> SamplingState:
        """Divide the scenes evenly among the agents, in order.

        Neighbouring agents share a scene if there are fewer scenes than agents; they then read the same memory.
        """
        shares = np.arange(num_envs + 1, dtype=np.int64) * num_scenes // num_envs
        ranges = np.stack([shares[:-1], np.maximum(1, np.diff(shares))], axis=1).astype(np.int32)
        seeds, firsts = (torch.full((1,), value, dtype=torch.int64, device=device) for value in (seed, first_agent))
        return cls(seeds, torch.from_numpy(ranges).to(device), firsts)

    def share_scenes(self, agents: int, num_scenes: int) -> None:
        """Give each group of this many neighbouring agents one scene, for worlds of several robots."""
        worlds = len(self.scene_ranges) // agents
        scenes = np.arange(worlds, dtype=np.int64) * num_scenes // worlds
        self.scene_ranges[:, 0] = torch.from_numpy(np.repeat(scenes, agents)).to(self.scene_ranges)
        self.scene_ranges[:, 1] = 1


class SamplingQueue(NamedTuple):
    """Queue of agents whose next episode must be sampled."""

    agents: torch.Tensor
    """i32 [N]: agents in any order. On the CPU entry i is agent i or NO_AGENT."""
    count: torch.Tensor  # type: ignore[assignment]  # hides `tuple.count`
    """i32 [1]: number of entries in use."""

    @classmethod
    def empty(cls, n: int, device: torch.device) -> SamplingQueue:
        """An empty queue for `n` agents."""
        i32: dict[str, Any] = {"dtype": torch.int32, "device": device}
        return cls(torch.zeros(n, **i32), torch.zeros(1, **i32))

    def put(self, agents: torch.Tensor) -> None:
        """Queue these agents, i64, and no others."""
        self.agents[: len(agents)] = agents.to(self.agents)
        self.count.fill_(len(agents))


@lean_function
def agent_number(i, sampling):
    """The agent's number among those of all processes, which its random numbers depend on."""
    return sampling.first_agent[0] + np.int64(i)


@device_function
def sample_scene(i, episode, sampling):
    """A random scene of the agent's range, and a start heading in [0, 2 pi)."""
    u, v, _, _ = uniform4(sampling.seed[0], agent_number(i, sampling), episode, _SCENE_AND_HEADING)
    first, count = sampling.scene_ranges[i, 0], sampling.scene_ranges[i, 1]
    offset = min(np.int32(u * np.float32(count)), np.int32(count - 1))
    return np.int32(first + offset), v * _TWO_PI
