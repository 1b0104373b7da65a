"""Compile the oracle's kernels: python -m batchnav.agents.precompile '{}'

The argument is a `NavConfig` in JSON. `runtime.ahead` starts it beside what is played before the oracle.
"""

from __future__ import annotations

import dataclasses
import json
import sys

import torch

from batchnav.agents.registry import make_reference_agent
from batchnav.config import from_dict
from batchnav.envs.config import NavConfig
from batchnav.envs.nav import NavEnv
from batchnav.envs.precompile import empty_room


def main(config: NavConfig) -> None:
    """The oracle's first step in an empty room; it looks at nothing."""
    room, config = empty_room(config.body.navmesh), dataclasses.replace(config, sensors=())
    env = NavEnv([room], num_envs=1, device="cpu", task=config.task_name, config=config)
    observations, _ = env.reset()
    agent = make_reference_agent("oracle", env)
    agent.reset(1)
    agent.act(observations, torch.ones(1, dtype=torch.bool))


if __name__ == "__main__":
    main(from_dict(NavConfig, json.loads(sys.argv[1])))
