"""Agents to evaluate, each with the environment that it plays in: trained policies and reference agents."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Protocol

import torch

from batchnav.agents.protocol import Agent
from batchnav.agents.registry import agent_config, agent_name, make_reference_agent, reference_agent
from batchnav.envs.config import NavConfig, config_of
from batchnav.envs.nav import NavEnv
from batchnav.errors import CheckpointError
from batchnav.policy.weights import load_policy
from batchnav.runtime.files.bundled import WEIGHTS
from batchnav.runtime.files.reading import read_regular

HASH_DIGITS = 16
"""Hex digits kept of a policy file's SHA-256."""


class Player(Protocol):
    """An agent to evaluate."""

    name: str
    """Name in tables and results."""
    config: NavConfig
    """Environment of its recordings: has the sensors whose images are shown."""

    @property
    def env_config(self) -> NavConfig:
        """Environment of its evaluation: has no image sensors where the agent reads none, so nothing is rendered."""
        ...

    def make_agent(self, env: NavEnv) -> Agent:
        """The agent for an environment."""
        ...


class PolicyPlayer:
    """A trained policy, in the environment that its file states.

    Args:
        checkpoint: policy file, named in tables by `policy_name`.
        device: device of the network.
        sample: True to sample actions, False to take the most probable ones.
        seed: seed for action sampling.
    """

    def __init__(self, checkpoint: Path, device: torch.device, sample: bool = True, seed: int = 0):
        self.policy, self.checkpoint = load_policy(checkpoint, device), checkpoint
        self.sample, self.seed, self.info = sample, seed, self.policy.info
        self.name = policy_name(checkpoint)
        self.config = config_of(self.info)

    @property
    def env_config(self) -> NavConfig:
        """The environment of its recordings."""
        return self.config

    @property
    def sha256(self) -> str:
        """First `HASH_DIGITS` hex digits of the policy file's SHA-256."""
        return hashlib.sha256(read_regular(self.checkpoint, CheckpointError)).hexdigest()[:HASH_DIGITS]

    def make_agent(self, env: NavEnv) -> Agent:
        """The player itself, which acts in any environment with the policy's observations."""
        return self

    def reset(self, num_envs: int) -> None:
        """Clear the memory for `num_envs` environments, and seed the sampling of actions."""
        self.policy.reset(num_envs, self.seed)

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Actions, i64 [N] or f32 [N, 2]."""
        return self.policy.act(observations, episode_start, deterministic=not self.sample)


@dataclasses.dataclass
class ReferencePlayer:
    """A reference agent by its name in `REFERENCE_AGENTS`. The task of `config` must list it in `reference_agents`.

    Sensors and map settings of `config` apply to recordings of agents that act without images. Other agents replace
    them by their own. ArgumentError for an unknown name.
    """

    name: str
    config: NavConfig

    def __post_init__(self):
        self.name = agent_name(self.name)
        if reference_agent(self.name).needs_images:
            self.config = agent_config(self.name, self.config)

    @property
    def env_config(self) -> NavConfig:
        """Environment that `agent_config` gives."""
        return agent_config(self.name, self.config)

    def make_agent(self, env: NavEnv) -> Agent:
        """A new agent for the environment."""
        return make_reference_agent(self.name, env)


def policy_name(checkpoint: Path) -> str:
    """Name of a policy in tables: that of its folder, or of its file where the file is not `policy.safetensors`."""
    return checkpoint.resolve().parent.name if checkpoint.name == WEIGHTS else checkpoint.stem
