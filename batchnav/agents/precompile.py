"""Compile the kernels of the shortest-path follower: python -m batchnav.agents.precompile '{}' cpu

The arguments are a `NavConfig` in JSON, and "cpu" or "cuda". `runtime.kernels.precompile` runs this program in another
process, while `batchnav evaluate` plays the agents that are listed before the follower, and before a training whose
expert it is.
"""

from __future__ import annotations

import json
import sys

import torch

from batchnav.agents.registry import agent_config, make_reference_agent
from batchnav.config import from_dict
from batchnav.envs.config import NavConfig
from batchnav.envs.nav import NavEnv
from batchnav.envs.precompile import empty_room

AGENT = "shortest_path"


def main(config: NavConfig, device: str) -> None:
    """Take the follower's first step in an empty room."""
    room, config = empty_room(config.body.navmesh), agent_config(AGENT, config)
    env = NavEnv([room], num_envs=1, device=device, task=config.task_name, config=config)
    observations, _ = env.reset()
    agent = make_reference_agent(AGENT, env)
    agent.reset(1)
    agent.act(observations, torch.ones(1, dtype=torch.bool, device=env.device))


if __name__ == "__main__":
    main(from_dict(NavConfig, json.loads(sys.argv[1])), sys.argv[2])
