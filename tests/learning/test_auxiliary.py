"""Auxiliary losses: they train what the memory reads, learn from labels that no policy reads, and change no action."""

import math

import pytest
import torch
from gymnasium import spaces
from networks import policy_config
from toys import Bandit, acts_alike

from batchnav.errors import CheckpointError, ConfigError
from batchnav.learning import PPO, PPOConfig
from batchnav.policy import AUXILIARY, ActorCritic, load_policy, save_policy
from batchnav.policy.auxiliary import Auxiliary, Steps
from batchnav.policy.weights import load_weights

PLACE = {"auxiliary": ["place"], "place": {"label": "place", "coef": 0.5}}
WITH = policy_config(hidden_size=16, layers=1, embedding_size=6, **PLACE)
WITHOUT = policy_config(hidden_size=16, layers=1, embedding_size=6)


class Placed(Bandit):
    """A bandit whose observation also says where the goal is: 1 m away and ahead, to the left or to the right."""

    def __init__(self, num_envs=64, with_label=True, shape=(2,), seed=0):
        super().__init__(num_envs, 3, seed)
        label = {"place": spaces.Box(-math.pi, math.pi, shape)} if with_label else {}
        self.with_label = with_label
        self.single_observation_space = spaces.Dict({"hint": self.single_observation_space, **label})

    def _observe(self):
        hint = super()._observe()
        angle = (self.target.float() - 1.0) * (0.5 * math.pi)
        place = torch.stack([torch.ones_like(angle), angle], dim=-1)
        return {"hint": hint, **({"place": place} if self.with_label else {})}


def make(config=WITH, env=None):
    env = env or Placed()
    torch.manual_seed(0)
    policy = ActorCritic(env.single_observation_space, env.single_action_space, config)
    ppo = PPOConfig(num_envs=64, rollout_steps=8, minibatches=4, optimizer="adamw", learning_rate=3e-3)
    return PPO(policy, env, ppo)


def test_it_is_learned_beside_the_policy():
    learner = make()
    rows = [learner.update(0.0).read() for _ in range(120)]
    assert rows[0]["loss/place_cosine"] < 0.5 and rows[-1]["loss/place_cosine"] > 0.99
    assert rows[-1]["loss/place_loss"] < 0.05 * rows[0]["loss/place_loss"]
    assert rows[-1]["episode/return"] > 0.9


def test_it_acts_without_the_label(tmp_path):
    learner = make()
    learner.update(0.0)
    save_policy(learner.policy, tmp_path / "policy.safetensors")
    loaded = load_policy(tmp_path / "policy.safetensors")
    assert set(loaded.network.observation_shapes) == {"hint"} and not loaded.network.label_shapes
    assert acts_alike(learner.policy, loaded, Placed(), Placed(with_label=False))


def test_the_label_is_no_input_and_trains_what_the_memory_reads():
    learner = make()
    learner.collect()
    rollout, envs = learner.rollout, torch.arange(8)
    args = rollout.prev_action[:8, envs], rollout.start[:8, envs], learner.policy.body.take(rollout.state0, envs)
    obs = {name: rollout.take_obs(name, envs) for name in rollout.obs}
    seen = learner.policy.evaluate(obs, *args, rollout.action[:, envs])
    other = learner.policy.evaluate(obs | {"place": obs["place"] + 1.0}, *args, rollout.action[:, envs])
    assert seen.outputs.equal(other.outputs) and seen.value.equal(other.value)
    loss, scalars = seen.auxiliary
    assert not loss.equal(other.auxiliary[0]) and loss.item() == pytest.approx(0.5 * scalars["place_loss"].item())
    named = dict(learner.policy.named_parameters())
    gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    reached = {name.split(".")[0] for name, gradient in zip(named, gradients, strict=True) if gradient is not None}
    assert {"auxiliary", "body", "embeddings"} <= reached and not {"actor", "critic"} & reached


def test_the_place_by_hand():
    place = make().policy.auxiliary["place"]
    goal = torch.tensor([[[math.e - 1.0, 0.0], [0.0, math.pi / 2]]])
    place.linear = torch.nn.Identity()
    memory = torch.tensor([[[1.0, 0.5, 0.0], [0.0, 1.0, 1.0]]])
    loss, scalars = place.loss(Steps(memory, {"place": goal}, torch.zeros(1, 2), torch.zeros(1, 2)))
    assert loss.item() == pytest.approx((0.5**2 + 1.0**2) / 6)
    assert scalars["cosine"].item() == pytest.approx((1.0 + math.sqrt(0.5)) / 2)


def test_several_are_summed_with_their_coefficients(monkeypatch):
    class One(Auxiliary):
        def loss(self, steps):
            return 0.0 * steps.memory.sum() + 1.0, {}

    monkeypatch.setattr(AUXILIARY, "data", dict(AUXILIARY.data))
    AUXILIARY["one"], AUXILIARY["again"] = One, One
    learner = make(policy_config(
        hidden_size=16, layers=1, embedding_size=6, auxiliary=["one", "again"], one={"coef": 2.0}, again={"coef": 5.0},
    ), Placed(with_label=False))  # fmt: skip
    learner.collect()
    rollout = learner.rollout
    state = learner.policy.body.take(rollout.state0, torch.arange(64))
    obs = {name: rows[:8] for name, rows in rollout.obs.items()}
    seen = learner.policy.evaluate(obs, rollout.prev_action[:8], rollout.start[:8], state, rollout.action)
    loss, scalars = seen.auxiliary
    assert loss.item() == 7.0 and {name: value.item() for name, value in scalars.items()} == {
        "one_loss": 1.0, "again_loss": 1.0,
    }  # fmt: skip


def test_weights_begin_with_or_without_it(tmp_path):
    for config, name in ((WITH, "with"), (WITHOUT, "without")):
        save_policy(make(config, Placed(with_label=config is WITH)).policy, tmp_path / f"{name}.safetensors")
    env = Placed()
    env.reset(seed=1)
    for config, name in ((WITH, "without"), (WITHOUT, "with"), (WITH, "with")):
        space = Placed(with_label=config is WITH).single_observation_space
        policy = ActorCritic(space, env.single_action_space, config)
        new = policy.state_dict()
        load_weights(policy, tmp_path / f"{name}.safetensors")
        saved = load_policy(tmp_path / f"{name}.safetensors").network.state_dict()
        for key, value in policy.state_dict().items():
            assert value.equal(saved.get(key, new[key])), key
    other = ActorCritic(Placed().single_observation_space, env.single_action_space, policy_config(
        hidden_size=8, layers=1, embedding_size=6, **PLACE,
    ))  # fmt: skip
    with pytest.raises(CheckpointError, match="hidden_size"):
        load_weights(other, tmp_path / "without.safetensors")


def test_a_label_that_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="place: found no observation 'place' to learn from, expected it"):
        make(env=Placed(with_label=False))
    with pytest.raises(ConfigError, match=r"auxiliary place: observation 'place' has shape \[3\], expected \[2\]"):
        make(env=Placed(shape=(3,)))
    with pytest.raises(ConfigError, match="auxiliary: found 'plaice', expected one of place"):
        make(policy_config(auxiliary=["plaice"]))
