"""`HabitatAgent` with the goals of ImageNav, Instance ImageNav and ObjectNav: Habitat's observations, equal actions."""

import numpy as np
import pytest
import torch
from networks import policy_config

from batchnav.config import to_dict
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError
from batchnav.habitat import HabitatAgent
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.agent import PolicyAgent
from tests.tasks.object_rooms import CATEGORIES, furnished

CAMERA = (1.25, 1.2, 2.5, 0.0, -0.4, 1.2)
TASKS = {
    "imagenav": {"sensors": ("rgb",)},
    "instance_imagenav": {"sensors": ("rgb", "gps", "compass", "goal_hfov"), "goal_height": 24, "goal_width": 24},
    "objectnav": {"sensors": ("depth", "goal_mask", "gps", "compass"), "categories": CATEGORIES, "control": "v1"},
}
NAMES = {"imagenav": "imagegoal", "instance_imagenav": "instance_imagegoal", "objectnav": "objectgoal"}
"""Habitat's name of the goal's observation by task."""


def habitats(observation, task):
    """The first environment's observation as Habitat's sensors give it: channels last, integers as arrays of one."""
    found = {}
    for name, value in observation.items():
        array = value[0].numpy()
        if name == "goal_hfov":
            name, array = "instance_imagegoal_hfov", np.degrees(array.astype(float))
        found[NAMES[task] if name in ("imagegoal", "objectgoal") else name] = (
            np.moveaxis(array, 0, -1) if array.ndim == 3 else np.atleast_1d(array)
        )
    return found


@pytest.fixture(scope="module")
def rooms():
    """The furnished room; for Instance ImageNav with an image of each object."""
    room, image = furnished(), np.array([CAMERA], np.float32)
    objects = tuple(goal._replace(images=image) for goal in room.goals.objects)
    pictured = room._replace(goals=room.goals._replace(objects=objects).instances)
    return {"imagenav": room, "objectnav": room, "instance_imagenav": pictured}


@pytest.mark.parametrize("task", TASKS)
def test_the_agent_acts_as_the_policy_in_the_environment(rooms, task):
    env = NavEnv([rooms[task]], 1, "cpu", task=task, seed=2, height=24, width=24, **TASKS[task])
    torch.manual_seed(0)
    config = policy_config(base_width=4, visual_size=8, hidden_size=8)
    network = ActorCritic(env.single_observation_space, env.single_action_space, config)
    policy, agent = (PolicyAgent(network, {"env": to_dict(env.config)}) for _ in range(2))
    agent = HabitatAgent(agent, seed=5)
    for _ in range(2):
        observation, _ = env.reset(seed=2)
        policy.reset(1, 5)
        agent.reset()
        for _ in range(12):
            action = policy.act(observation)
            assert agent.act(habitats(observation, task)) == {"action": int(action)}
            observation, *_ = env.step(action.clamp(min=1))  # stopping would begin another episode
    seen = habitats(observation, task)
    del seen[NAMES[task]]
    with pytest.raises(ArgumentError, match=f"expected also '{NAMES[task]}'"):
        agent.act(seen)
