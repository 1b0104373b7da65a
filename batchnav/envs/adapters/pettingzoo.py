"""Adapter to PettingZoo: the robots of one world as a parallel environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError
from batchnav.runtime.imports import needs_extra
from batchnav.sim.bodies import ACTION_SIZE, STOP

with needs_extra("adapters", "adapter to PettingZoo", "pettingzoo"):
    from pettingzoo import ParallelEnv


class PettingZooEnv(ParallelEnv):
    """The robots of one world, "robot_0" and on, each with observations, reward and end of its own.

        env = PettingZooEnv(NavEnv(scenes, num_envs=4, agents_per_world=4, autoreset_mode="Disabled", device="cpu"))

    Observations are NumPy arrays by name. A robot whose episode has ended is no longer in `agents`; it stands where it
    is until `reset` begins an episode of all. The entry `episode` of a robot's info holds the metrics of an episode
    that ended.

    ArgumentError for an environment with several worlds, or another autoreset mode.
    """

    metadata = {"name": "batchnav", "is_parallelizable": True, "render_modes": []}  # noqa: RUF012 (PettingZoo's form)
    render_mode = None

    def __init__(self, env: NavEnv):
        """Take ownership of `env`: the adapter closes it."""
        shared, mode = env.config.world.agents_per_world, env.metadata["autoreset_mode"]
        if shared != env.num_envs:
            raise ArgumentError(
                f"env: found {env.num_envs} robots, {shared} in a world, expected one world: num_envs=agents_per_world"
            )
        if mode != AutoresetMode.DISABLED:
            raise ArgumentError(f'env: found autoreset mode {mode.name}, expected autoreset_mode="Disabled"')
        self._env = env
        self.possible_agents = [f"robot_{i}" for i in range(env.num_envs)]
        self.agents: list[str] = []
        rest = np.full(ACTION_SIZE, 0.0, np.float32)
        self._rest: Any = np.int64(STOP) if env.config.body.is_discrete else rest

    def observation_space(self, agent: str) -> spaces.Space:
        """Space of a robot's observations."""
        return self._env.single_observation_space

    def action_space(self, agent: str) -> spaces.Space:
        """Space of a robot's actions."""
        return self._env.single_action_space

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict[str, Any], dict[str, dict]]:
        """Begin an episode of every robot: observations and infos by robot."""
        observation, _ = self._env.reset(seed=seed)
        self.agents = self.possible_agents[:]
        return self._of_each(observation), {name: {} for name in self.agents}

    def step(self, actions: Mapping[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        """Actions by robot -> observations, rewards, terminated, truncated and infos by robot."""
        whole = np.stack([
            np.asarray(actions[name]) if name in self.agents else self._rest for name in self.possible_agents
        ])  # fmt: skip
        observation, reward, terminated, truncated, info = self._env.step(whole)
        flags = {name: (bool(terminated[i]), bool(truncated[i])) for name, i in self._rows()}
        infos: dict[str, dict] = {name: {} for name in self.agents}
        for name, i in self._rows():
            if any(flags[name]):
                infos[name]["episode"] = {key: float(values[i]) for key, values in info["episode"].items()}
        result = (
            self._of_each(observation), {name: float(reward[i]) for name, i in self._rows()},
            {name: flags[name][0] for name in self.agents}, {name: flags[name][1] for name in self.agents}, infos,
        )  # fmt: skip
        self.agents = [name for name in self.agents if not any(flags[name])]
        return result

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _rows(self) -> list[tuple[str, int]]:
        """Names of the robots whose episode runs, with their rows."""
        return [(name, i) for i, name in enumerate(self.possible_agents) if name in self.agents]

    def _of_each(self, observation: Mapping[str, Any]) -> dict[str, dict[str, np.ndarray]]:
        """Observations of the robots whose episode runs, as arrays."""
        arrays = {name: np.asarray(values) for name, values in observation.items()}
        return {robot: {name: values[i].copy() for name, values in arrays.items()} for robot, i in self._rows()}
