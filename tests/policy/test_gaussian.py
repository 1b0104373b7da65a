"""Actions that are numbers: the head beside torch.distributions, memory, files, and a learner that masters a toy."""

import json
import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from networks import policy_config
from safetensors.torch import load_file, safe_open, save_file
from torch.distributions import Normal

from batchnav.errors import CheckpointError, ConfigError
from batchnav.policy import ActorCritic, load_policy, save_policy
from batchnav.policy.actions import MAX_LOG_STD, MIN_LOG_STD, Gaussian
from batchnav.policy.weights import load_weights

SIZE = 3
SPACE = spaces.Box(-1.0, 1.0, (5,))
ACTIONS = spaces.Box(-1.0, 1.0, (SIZE,), np.float32)
CONFIG = policy_config(hidden_size=16, layers=1, embedding_size=6)


@pytest.fixture
def policy():
    torch.manual_seed(0)
    policy = ActorCritic(SPACE, ACTIONS, CONFIG)
    with torch.no_grad():
        policy.actor.weight.mul_(100)
    return policy


def expected(outputs):
    """The distribution that the outputs mean."""
    mean, log_std = outputs.double().chunk(2, dim=-1)
    return Normal(mean.tanh(), log_std.clamp(MIN_LOG_STD, MAX_LOG_STD).exp())


def test_log_probability_and_entropy_are_torchs():
    torch.manual_seed(1)
    outputs, actions = torch.randn(7, 4, 2 * SIZE) * 4, torch.randn(7, 4, SIZE)
    log_prob, entropy = Gaussian(SIZE).evaluate(outputs, actions)
    torch.testing.assert_close(log_prob.double(), expected(outputs).log_prob(actions).sum(-1), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(entropy.double(), expected(outputs).entropy().sum(-1), rtol=1e-5, atol=1e-5)


def test_gradients_are_torchs():
    torch.manual_seed(2)
    outputs, actions = torch.randn(50, 2 * SIZE, dtype=torch.float64), torch.randn(50, SIZE)
    ours, theirs = outputs.clone().requires_grad_(), outputs.clone().requires_grad_()
    log_prob, entropy = Gaussian(SIZE).evaluate(ours, actions)
    (log_prob.sum() + 2 * entropy.sum()).backward()
    of = expected(theirs)
    (of.log_prob(actions).sum() + 2 * of.entropy().sum()).backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_actions_follow_the_distribution():
    outputs = torch.tensor([0.3, -1.0, 2.0, 0.5, -2.0, 9.0]).expand(100_000, -1)
    uniforms = torch.rand(100_000, SIZE, generator=torch.Generator().manual_seed(3))
    actions, log_prob = Gaussian(SIZE).sample(outputs, uniforms)
    of = expected(outputs)
    torch.testing.assert_close(of.cdf(actions).float(), uniforms, atol=1e-4, rtol=0.0)
    assert (actions.double().mean(0) - of.mean[0]).abs().max() < 5 * float(of.stddev.max()) / 100_000**0.5
    torch.testing.assert_close(log_prob, Gaussian(SIZE).evaluate(outputs, actions)[0])
    edges = torch.tensor([[0.0] * SIZE, [1.0 - 2.0**-24] * SIZE])
    assert Gaussian(SIZE).sample(outputs[:2], edges)[0].isfinite().all()


def test_the_most_probable_action_is_the_mean():
    outputs = torch.randn(9, 2 * SIZE)
    actions, log_prob = Gaussian(SIZE).sample(outputs, None)
    torch.testing.assert_close(actions.double(), expected(outputs).mean)
    for shift in (-0.1, 0.1):
        assert (Gaussian(SIZE).evaluate(outputs, actions + shift)[0] < log_prob).all()


def test_a_new_policy_samples_with_mean_0_and_deviation_1():
    torch.manual_seed(0)
    policy = ActorCritic(SPACE, ACTIONS, CONFIG)
    rest = torch.zeros(4, SIZE), torch.ones(4, dtype=torch.bool), policy.initial_state(4)
    act = policy.act(torch.rand(4, 5), *rest)
    assert act.action.abs().max() < 0.02
    torch.testing.assert_close(act.log_prob, torch.full((4,), -SIZE * 0.5 * math.log(2 * math.pi)), atol=0.1, rtol=0.0)


def test_evaluate_sees_what_act_saw(policy):
    T, B = 6, 4
    torch.manual_seed(4)
    obs, starts, state = torch.randn(T, B, 5), torch.rand(T, B) < 0.3, policy.initial_state(B)
    previous, acts = torch.zeros(T + 1, B, SIZE), []
    with torch.no_grad():
        for t in range(T):
            acts.append(policy.act(obs[t], previous[t], starts[t], state, torch.rand(B, SIZE)))
            state, previous[t + 1] = acts[-1].state, acts[-1].action
        seen = policy.evaluate(obs, previous[:T], starts, policy.initial_state(B), previous[1:])
    torch.testing.assert_close(seen.log_prob, torch.stack([act.log_prob for act in acts]), rtol=1e-4, atol=1e-4)


def test_the_previous_action_is_read_except_at_a_start(policy):
    obs, state = torch.randn(4, 5), torch.randn(2, 1, 4, 16)
    for starting in (True, False):
        start = torch.full((4,), starting)
        values = [policy.value(obs, torch.full((4, SIZE), a), start, state) for a in (0.5, -2.0)]
        assert torch.equal(*values) == starting


def test_a_file_gives_the_policy_back(policy, tmp_path):
    path = tmp_path / "policy.safetensors"
    save_policy(policy, path, {"frames": 3})
    agent = load_policy(path)
    assert agent.network.action_space == ACTIONS and agent.info == {"frames": 3}
    agent.reset(2)
    obs = torch.randn(2, 5)
    first = agent.act(obs, deterministic=True)
    assert first.shape == (2, SIZE) and first.dtype == torch.float32
    rest = torch.zeros(2, SIZE), torch.ones(2, dtype=torch.bool), policy.initial_state(2)
    torch.testing.assert_close(first, policy.act(obs, *rest).action)
    agent.reset(2, seed=5)
    drawn = agent.act(obs)
    assert not torch.equal(drawn, first)
    agent.reset(2, seed=5)
    assert torch.equal(agent.act(obs), drawn)
    load_weights(ActorCritic(SPACE, ACTIONS, CONFIG), path)
    with pytest.raises(CheckpointError, match=r"action_space: found Box\(.*, expected Discrete\(4\)"):
        load_weights(ActorCritic(SPACE, spaces.Discrete(4), CONFIG), path)


@pytest.mark.parametrize("size", ["0", "true", json.dumps("three"), str(10**6), "2"])
def test_a_file_with_another_number_of_actions_is_refused(policy, tmp_path, size):
    path = tmp_path / "policy.safetensors"
    save_policy(policy, path)
    with safe_open(path, framework="pt") as file:
        metadata = {**file.metadata(), "action_size": size}
    save_file(load_file(path), path, metadata)
    with pytest.raises(CheckpointError):
        load_policy(path)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0.0, 1.0, (2,)), spaces.Box(-2.0, 2.0, (2,)), spaces.Box(-1.0, 1.0, (2, 2)),
        spaces.Box(-1.0, 1.0, (2,), np.float64), spaces.Box(-math.inf, math.inf, (2,)), spaces.MultiDiscrete([2, 2]),
    ],
)  # fmt: skip
def test_unknown_action_spaces_are_refused(space):
    with pytest.raises(ConfigError, match=r"expected Discrete\(n\) starting at 0 or Box\(-1, 1, \(n,\), float32\)"):
        ActorCritic(SPACE, space, CONFIG)
