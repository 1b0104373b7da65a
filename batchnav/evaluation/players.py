"""Agents to evaluate, each with the environment that it plays in: trained policies and reference agents."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from batchnav.agents import find_weights
from batchnav.agents.protocol import Agent
from batchnav.agents.registry import agent_config, make_reference_agent, reference_agent
from batchnav.envs.config import PRESETS, NavConfig, config_of, nav_config, warn_other_cameras
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError, CheckpointError
from batchnav.policy.weights import load_policy, policy_file
from batchnav.runtime.bundled import WEIGHTS
from batchnav.runtime.files import read_regular
from batchnav.tasks import TASKS

DEFAULT_TASK = "pointnav"
"""Task of reference agents where neither a policy nor an option names one."""
HASH_DIGITS = 16
"""Hex digits kept of a policy file's SHA-256."""


class Player(Protocol):
    """An agent to evaluate."""

    name: str
    """Name in tables and results."""
    config: NavConfig
    """Environment of its recordings: has the sensors whose images are shown."""
    changes: Mapping[str, Any]
    """Settings of `config` that differ from the agent's own environment, as `changed_settings`."""

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
        deterministic: take the most probable actions; False: sample them.
        seed: seed for action sampling.
    """

    def __init__(self, checkpoint: Path, device: torch.device, deterministic: bool = False, seed: int = 0):
        self.policy, self.checkpoint = load_policy(checkpoint, device), checkpoint
        self.deterministic, self.seed, self.info = deterministic, seed, self.policy.info
        self.name = policy_name(checkpoint)
        self.config = config_of(self.info)
        self.changes: Mapping[str, Any] = {}
        self._cameras = self.config.all_cameras  # of the last environment; a warning is logged once

    @property
    def env_config(self) -> NavConfig:
        """The environment of its recordings."""
        return self.config

    @property
    def sha256(self) -> str:
        """First `HASH_DIGITS` hex digits of the policy file's SHA-256."""
        return hashlib.sha256(read_regular(self.checkpoint, CheckpointError)).hexdigest()[:HASH_DIGITS]

    def make_agent(self, env: NavEnv) -> Agent:
        """The player itself, which acts in any environment with the policy's observations.

        Logs a warning for cameras that the policy was not trained with.
        """
        if env.config.all_cameras != self._cameras:
            self._cameras = env.config.all_cameras
            warn_other_cameras(self.name, self.info, env.config)
        return self

    def reset(self, num_envs: int) -> None:
        """Clear the memory for `num_envs` environments, and seed the sampling of actions."""
        self.policy.reset(num_envs, self.seed)

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Actions, i64 [N] or f32 [N, 2]."""
        return self.policy.act(observations, episode_start, deterministic=self.deterministic)


@dataclasses.dataclass
class ReferencePlayer:
    """A reference agent by its name in `REFERENCE_AGENTS`. The task of `config` must list it in `reference_agents`.

    Sensors and map settings of `config` apply to recordings of agents that act without images. Other agents replace
    them by their own. ArgumentError for an unknown name.
    """

    name: str
    config: NavConfig
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
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


def environment_of(task_name: str | None, preset: str | None = None) -> NavConfig:
    """Environment of agents without a policy: a preset, or the defaults of a task.

    A task of None is that of the preset, else `DEFAULT_TASK`. ConfigError for unknown names, and for a preset of
    another task.
    """
    if task_name is None and preset in PRESETS:
        task_name = PRESETS[preset].task_name
    return nav_config(preset, {}, task_name or DEFAULT_TASK)


def find_players(
    words: Sequence[str],
    device: torch.device,
    task_name: str | None = None,
    deterministic: bool = False,
    seed: int = 0,
    preset: str | None = None,
) -> dict[str, Player]:
    """The agents by their names in tables. Policies come first, since they determine the task.

    Args:
        words: policies (files, run folders, bundled names) and names of reference agents.
        device: device of the policies.
        task_name: task of the agents; None: that of the policies, `DEFAULT_TASK` where there is no policy.
        deterministic: take the policies' most probable actions; False: sample them.
        seed: seed for action sampling.
        preset: environment of the reference agents where there is no policy; None: the task's defaults.

    Raises:
        ArgumentError: the agents have different tasks or bodies, the policies have another task than `task_name`, there
            is a preset beside policies, or a reference agent cannot play the task.
        CheckpointError: a word is neither a policy nor a reference agent.
        ConfigError: unknown task or preset, or a preset of another task.
    """
    reference = [word for word in words if find_weights(word) is None]
    files = [policy_file(word) for word in words if word not in reference]
    policies = [PolicyPlayer(file, device, deterministic, seed) for file in files]
    players: dict[str, Player] = {player.name: player for player in policies}
    if len(players) < len(policies):
        raise ArgumentError(f"agents: found {', '.join(words)}, expected policies in folders of different names")
    if policies and preset is not None:
        raise ArgumentError(
            f"preset: found {preset} with the policy {policies[0].name}, expected reference agents alone: a policy "
            f"plays in the environment of its training; omit --preset"
        )
    config = policies[0].config if policies else environment_of(task_name, preset)
    if config.task_name != (task_name or config.task_name):
        raise ArgumentError(
            f"task: found {task_name}, expected {config.task_name}, the task of the policy {policies[0].name}; name a "
            f"policy of {task_name}, or omit --task"
        )
    task = TASKS[config.task_name]
    for name, player in players.items():
        if (player.config.task, player.config.body) != (config.task, config.body):
            raise ArgumentError(
                f"{name}: found another task or body than that of {next(iter(players))}, expected equal ones; evaluate "
                f"them separately"
            )
    for name in reference:
        if name not in task.reference_agents:
            raise ArgumentError(f"agent: found {name!r}, expected one of {', '.join(task.reference_agents)}")
        players[name] = ReferencePlayer(name, config)
    return players
