"""Results do not depend on PyTorch's default dtype, default device or inference mode when things are made."""

from contextlib import contextmanager

import pytest
import torch
from gymnasium import spaces
from networks import policy_config

from batchnav.cartpole.env import CartPoleEnv
from batchnav.cartpole.plain import PlainCartPole
from batchnav.cartpole.torch_env import TorchCartPoleEnv
from batchnav.data.scenes.load import load_scenes
from batchnav.envs.nav import NavEnv
from batchnav.learning import PPO, PPOConfig
from batchnav.mapping.predictor import OccupancyNet
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.config import MEMORIES, PolicyConfig
from batchnav.policy.encoder import ENCODERS
from batchnav.policy.pretrained import weights_follow

N = 3
SMALL = {"height": 16, "width": 16}
SENSORS = ("depth", "rgb", "semantic", "normals", "ego_map", "waypoint")
NETWORK = policy_config(hidden_size=16, visual_size=16, base_width=8, embedding_size=8, layers=1)


@contextmanager
def float64():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def meta():
    """A default device without data: a tensor made on it by accident ends in an error."""
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


SETTINGS = {"float64": float64, "device": meta, "inference": torch.inference_mode}
settings = pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)


@pytest.fixture(scope="module")
def scenes():
    return load_scenes(["house:0", "house:1"], appearance=True)


def nav(scenes):
    options = {"anticipation": "occupancy", "final_observation": True, "max_steps": 4}
    return NavEnv(scenes, N, "cpu", sensors=SENSORS, **SMALL, **options)


def play(env, begin=True, steps=12):
    """All that an environment returns while agents take changing actions; it also resets some of them."""
    seen = [env.reset(seed=3)[0]] if begin else []
    for step in range(steps):
        actions = (torch.arange(N, dtype=torch.int64, device="cpu") + step) % env.single_action_space.n
        observation, *rest, info = env.step(actions)
        seen += [observation, *rest, dict(info)]
    env.between_rollouts()
    return [*seen, env.state_dict()]


def assert_same(found, expected):
    torch.testing.assert_close(found, expected, rtol=0.0, atol=0.0, equal_nan=True)


@settings
def test_environments_are_the_same_under_any_setting(scenes, setting):
    env = nav(scenes)
    expected, later = play(env), play(env, begin=False)
    with setting():
        other = nav(scenes)
        assert_same(play(other), expected)
    assert_same(play(other, begin=False), later)  # made and played there, used here


@settings
@pytest.mark.parametrize("kind", [CartPoleEnv, PlainCartPole, TorchCartPoleEnv])
def test_carts_are_the_same_under_any_setting(setting, kind):
    def run(env, steps=60):
        return [
            [part.clone() for part in env.step(torch.ones(4, dtype=torch.int64, device="cpu"))[:3]]
            for _ in range(steps)
        ]

    env = kind(4, seed=1)
    env.reset()
    expected, later = run(env), run(env)
    with setting():
        other = kind(4, seed=1)
        other.reset()
        assert_same(run(other), expected)
    assert_same(run(other), later)


OBSERVATIONS = spaces.Dict({
    "depth": spaces.Box(0.0, 1.0, (1, 32, 32)), "rgb": spaces.Box(0, 255, (3, 16, 16), "uint8"),
    "pointgoal": spaces.Box(-100.0, 100.0, (2,)), "objectgoal": spaces.Discrete(6),
})  # fmt: skip


def policy_of(encoder="se_resnet9", memory="lstm", **options):
    torch.manual_seed(0)
    normalized = () if encoder == "frozen_resnet9" else ("rgb",)  # it normalises its images itself
    config = PolicyConfig(**{
        **vars(NETWORK), "encoder": encoder, "memory": memory, "normalized": normalized, **options
    })  # fmt: skip
    with weights_follow():
        return ActorCritic(OBSERVATIONS, spaces.Discrete(4), config)


def learn(policy):
    """Outputs and gradients of a network."""
    obs = {
        "depth": torch.full((2, N, 1, 32, 32), 0.5, dtype=torch.float32, device="cpu"),
        "rgb": torch.full((2, N, 3, 16, 16), 99, dtype=torch.uint8, device="cpu"),
        "pointgoal": torch.ones((2, N, 2), dtype=torch.float32, device="cpu"),
        "objectgoal": torch.ones((2, N), dtype=torch.int64, device="cpu"),
    }
    action = torch.ones(2, N, dtype=torch.int64, device="cpu")
    start = torch.zeros(2, N, dtype=torch.bool, device="cpu")
    for norm in policy.norms.values():
        norm.update(obs["rgb"])
    result = policy.evaluate(obs, action, start, policy.initial_state(N), action)
    (result.log_prob.sum() + result.value.sum() + result.entropy.sum()).backward()
    return [*result[:3], {name: p.grad for name, p in policy.named_parameters()}]


@settings
@pytest.mark.parametrize(
    ("encoder", "memory"), [*((e, "lstm") for e in ENCODERS), *(("se_resnet9", m) for m in MEMORIES)]
)
def test_networks_are_the_same_under_any_setting(setting, encoder, memory):
    expected = policy_of(encoder, memory)
    with setting():
        found = policy_of(encoder, memory)
    assert_same(found.state_dict(), expected.state_dict())
    expected = learn(expected)
    if setting is torch.inference_mode:
        assert_same(learn(found), expected)
    else:
        with setting():
            assert_same(learn(found), expected)


@settings
def test_training_is_the_same_under_any_setting(setting):
    def make():
        torch.manual_seed(0)
        env = CartPoleEnv(4, seed=0)
        config = PPOConfig(num_envs=4, rollout_steps=8, total_frames=64)
        policy = ActorCritic(
            env.single_observation_space, env.single_action_space, policy_config(hidden_size=8, layers=1)
        )
        return PPO(policy, env, config, compile=False)

    expected = make()
    for _ in range(2):
        expected.update(0.0)
    with setting():
        found = make()
        if setting is not torch.inference_mode:
            found.update(0.0)
    while found.frames < expected.frames:
        found.update(0.0)
    assert_same(found.policy.state_dict(), expected.policy.state_dict())


@settings
def test_occupancy_networks_are_made_in_float32(setting):
    with setting():
        parameters = list(OccupancyNet().parameters())
    assert {(p.dtype, p.device.type, p.is_inference()) for p in parameters} == {(torch.float32, "cpu", False)}
