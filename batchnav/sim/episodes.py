"""Episodes drawn ahead: which agents wait for one, and the random numbers it is drawn from.

An episode is a pure function of (seed, agent, number, draw), so what an agent gets does not depend on what its
neighbours do, nor on when it is drawn, nor on the device. Where several processes share a run, agents are counted
through all of them, so it does not depend on how many those are either.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.runtime.kernels.decorators import device_function, lean_function
from batchnav.runtime.kernels.rng import uniform4

# Draw numbers of one episode: 0 is for scene and heading, 1 is free; a task's draws begin at FIRST_DRAW.
_SCENE_AND_HEADING = 0
FIRST_DRAW = 2
NO_AGENT = -1
"""A free place in the queue."""
_TWO_PI = np.float32(2.0 * math.pi)


class SamplingState(NamedTuple):
    """What episodes are drawn from. It lies in tensors, so that a CUDA graph of a step stays true when it changes."""

    seed: torch.Tensor
    """i64 [1]."""
    scene_ranges: torch.Tensor
    """i32 [N, 2]: the first scene that an agent draws from, and how many."""
    first_agent: torch.Tensor
    """i64 [1]: the first agent's number among those of all processes."""

    @classmethod
    def of(cls, seed: int, num_envs: int, num_scenes: int, device: torch.device, first_agent: int = 0) -> SamplingState:
        """Each agent draws from its own share of the scenes.

        Where there are fewer scenes than agents, neighbours share a scene, whose memory they read together.
        """
        shares = np.arange(num_envs + 1, dtype=np.int64) * num_scenes // num_envs
        ranges = np.stack([shares[:-1], np.maximum(1, np.diff(shares))], axis=1).astype(np.int32)
        seeds, firsts = (torch.full((1,), value, dtype=torch.int64, device=device) for value in (seed, first_agent))
        return cls(seeds, torch.from_numpy(ranges).to(device), firsts)


class SamplingQueue(NamedTuple):
    """The agents whose next episode is still to be drawn."""

    agents: torch.Tensor
    """i32 [N], in any order; NO_AGENT between them on the CPU, where each agent has its own place."""
    count: torch.Tensor  # type: ignore[assignment]  # hides what tuples have by this name
    """i32 [1]: how many of these places are in use."""

    @classmethod
    def empty(cls, n: int, device: torch.device) -> SamplingQueue:
        """Of `n` agents, none waiting."""
        i32: dict[str, Any] = {"dtype": torch.int32, "device": device}
        return cls(torch.zeros(n, **i32), torch.zeros(1, **i32))

    def put(self, agents: torch.Tensor) -> None:
        """Have these agents, i64, wait, and no others."""
        self.agents[: len(agents)] = agents.to(self.agents)
        self.count.fill_(len(agents))


@lean_function
def agent_number(i, sampling):
    """The agent's number among those of all processes: the counter of its random numbers."""
    return sampling.first_agent[0] + np.int64(i)


@device_function
def sample_scene(i, episode, sampling):
    """A scene out of the agent's range, and a start heading in [0, 2 pi)."""
    u, v, _, _ = uniform4(sampling.seed[0], agent_number(i, sampling), episode, _SCENE_AND_HEADING)
    first, count = sampling.scene_ranges[i, 0], sampling.scene_ranges[i, 1]
    offset = min(np.int32(u * np.float32(count)), np.int32(count - 1))
    return np.int32(first + offset), v * _TWO_PI
