"""ONNX policies beside the policies themselves."""

from dataclasses import replace

import numpy as np
import onnxruntime
import torch
from networks import policy_config

from batchnav.config import to_dict
from batchnav.data.goals.view_points import with_goals
from batchnav.data.scenes.load import load_scene
from batchnav.envs.config import NavConfig, config_of
from batchnav.envs.nav import NavEnv
from batchnav.envs.observations import goal_categories_of, space_of, specs_of
from batchnav.export.onnx_policy import read_description
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.agent import PolicyAgent
from batchnav.policy.config import PolicyConfig
from batchnav.sensors.camera import CameraConfig

TOLERANCE = 1e-4
"""Largest difference of outputs: both compute in float32, in another order."""
STEPS = 200
"""Steps of a comparison: three episodes of each agent or more, since they have at most 60 steps."""
TYPES = {"tensor(float)": "float32", "tensor(uint8)": "uint8", "tensor(int64)": "int64", "tensor(bool)": "bool"}
"""NumPy's names of ONNX Runtime's types."""
SMALL = policy_config(base_width=8, visual_size=32, hidden_size=32, polar=("pointgoal", "waypoint"))
ENV = NavConfig(camera=CameraConfig(height=32, width=32))


def randomized(network: ActorCritic, scale: float = 0.1) -> ActorCritic:
    """A network whose outputs depend on all inputs: a new one has nearly uniform actions and branches of zeros."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator))
    return network


def policy(env: NavConfig = ENV, config: PolicyConfig = SMALL, **info) -> PolicyAgent:
    network = ActorCritic(space_of(specs_of(env)), env.body.action_space, config)
    network.update_norms({name: torch.rand(2, 2, *network.observation_shapes[name]) for name in config.normalized})
    return PolicyAgent(randomized(network), {"env": to_dict(env), **info})


def session_of(path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


class Beside:
    """An ONNX policy that steps with the recurrent state of its own outputs, and the policy in torch."""

    def __init__(self, policy: PolicyAgent, path):
        self.policy, self.session = policy, session_of(path)
        self.names = [value.name for value in self.session.get_inputs()]
        self.outputs = [value.name for value in self.session.get_outputs()]

    def begin(self, num_envs: int) -> None:
        network = self.policy.network
        self.state = network.initial_state(num_envs)
        self.action = torch.zeros(num_envs, *network.actions.shape, dtype=network.actions.dtype)
        self.kept = {
            # an episode begins from zeros, whatever the state holds
            value.name: np.full(
                [num_envs if size == "batch" else size for size in value.shape],
                np.nan if TYPES[value.type].startswith("float") else 7,
                TYPES[value.type],
            )
            for value in self.session.get_inputs()
            if value.name.startswith("state")
        }

    @torch.no_grad()
    def step(self, seen: dict[str, torch.Tensor], start: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
        """Compare one step; returns the action that torch samples."""
        network = self.policy.network
        outputs, value, self.state = network.step(seen, self.action, start, self.state)
        inputs = {name: value.numpy() for name, value in seen.items()} | self.kept
        inputs |= {"previous_action": self.action.numpy(), "episode_start": start.numpy()}
        found = dict(
            zip(self.outputs, self.session.run(None, {name: inputs[name] for name in self.names}), strict=True)
        )
        expected = {**network.actions.distribution(outputs), "value": value}
        for name, tensor in expected.items():
            np.testing.assert_allclose(found[name], tensor.numpy(), atol=TOLERANCE, rtol=TOLERANCE, err_msg=name)
        self.kept = {name: found[f"next_{name}"] for name in self.kept}
        self.action, _ = network.actions.sample(outputs, uniforms)
        return self.action


def play_beside(policy: PolicyAgent, path, steps: int = STEPS, num_envs: int = 2) -> None:
    """Play in a house; every step is compared, over ends of episodes."""
    config = NavConfig() if "env" not in policy.info else read_env(path)
    scene = load_scene("house:3")
    scenes = [scene] if goal_categories_of(config) is None else with_goals([scene])
    config = replace(config, task=short(config.task))
    env = NavEnv(scenes, num_envs, "cpu", seed=1, task=config.task_name, config=config)
    both, generator = Beside(policy, path), torch.Generator().manual_seed(1)
    both.begin(num_envs)
    seen, _ = env.reset()
    start = torch.ones(num_envs, dtype=torch.bool)
    ends = 0
    for _ in range(steps):
        uniforms = torch.rand(num_envs, *policy.network.actions.shape, generator=generator)
        read = {name: seen[name].clone() for name in policy.network.observation_shapes}
        seen, _, terminated, truncated, _ = env.step(both.step(read, start, uniforms))
        start = terminated | truncated
        ends += int(start.sum())
    assert ends > 2
    env.close()


def short(task):
    return replace(task, max_steps=60)


def read_env(path) -> NavConfig:
    return config_of({"env": read_description(path.with_suffix(".json"))["environment"]})
