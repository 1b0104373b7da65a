"""ONNX policies beside the policies themselves."""

import itertools
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
STEPS = 500
"""Steps of a comparison with sampled observations."""
RESETS = 0.02
"""Share of steps at which an agent's episode starts, in the middle of the batch."""
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
        self._damage = itertools.cycle([np.nan, np.inf, -np.inf])

    def begin(self, num_envs: int) -> None:
        network = self.policy.network
        self.state = network.initial_state(num_envs)
        self.action = torch.zeros(num_envs, *network.actions.shape, dtype=network.actions.dtype)
        self.kept = {
            value.name: np.zeros([num_envs if size == "batch" else size for size in value.shape], TYPES[value.type])
            for value in self.session.get_inputs()
            if value.name.startswith("state")
        }

    def spoil(self, start: torch.Tensor) -> None:
        """Damage the state where an episode starts, which begins from zeros whatever the state holds."""
        for name, values in self.kept.items():
            values = self.kept[name] = values.copy()
            rows = np.moveaxis(values, self.policy.network.body.agent_dim, 0)
            rows[start.numpy()] = next(self._damage) if values.dtype.kind == "f" else 7

    @torch.no_grad()
    def step(self, seen: dict[str, torch.Tensor], start: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
        """Compare one step; returns the action that torch samples."""
        network = self.policy.network
        outputs, value, self.state = network.step(seen, self.action, start, self.state)
        self.spoil(start)
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


def play_sampled(policy: PolicyAgent, path, steps: int = STEPS, batches: tuple[int, ...] = (7, 1)) -> None:
    """Compare steps with sampled observations; episodes start at any step. One agent takes a fifth of the steps."""
    network, both = policy.network, Beside(policy, path)
    types = {value.name: TYPES[value.type] for value in both.session.get_inputs()}
    generator = torch.Generator().manual_seed(1)

    def sample(name: str, num_envs: int) -> torch.Tensor:
        shape = num_envs, *network.observation_shapes[name]
        if name in network.num_categories:
            return torch.randint(network.num_categories[name], shape, generator=generator)
        if types[name] == "uint8":
            return torch.randint(256, shape, generator=generator, dtype=torch.uint8)
        if len(shape) == 4:
            return torch.rand(shape, generator=generator)
        found = 3.0 * torch.randn(shape, generator=generator)
        return found.abs() if name in network.config.polar else found

    for num_envs in batches:
        both.begin(num_envs)
        start, seen, resets = torch.ones(num_envs, dtype=torch.bool), {}, 0
        for _ in range(steps if num_envs > 1 else max(steps // 5, 50)):
            last, seen = seen, {name: sample(name, num_envs) for name in network.observation_shapes}
            for name in {*network.film, "imagegoal"} & last.keys():  # they change where an episode starts
                seen[name] = torch.where(start[:, None, None, None], seen[name], last[name])
            both.step(seen, start, torch.rand(num_envs, *network.actions.shape, generator=generator))
            start = torch.rand(num_envs, generator=generator) < RESETS
            resets += int(start.sum())
        assert resets > 0 or num_envs == 1


def play_beside(policy: PolicyAgent, path, steps: int, num_envs: int = 2) -> None:
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
