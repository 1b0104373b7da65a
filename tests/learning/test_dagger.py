"""DAgger on toys: the policy learns the expert's actions in the states that the mixture visits, and resumes exactly."""

import pytest
import torch
from networks import policy_config
from toys import Bandit, Point, RememberBit

from batchnav.errors import ConfigError
from batchnav.learning import DAgger, DAggerConfig
from batchnav.policy import ActorCritic

MEMORY = policy_config(base_width=4, visual_size=8, hidden_size=32, layers=1, embedding_size=8)
BLIND = policy_config(layers=0, hidden_size=32)


def make(env, expert, policy=BLIND, seed=0, **changes):
    torch.manual_seed(seed)
    network = ActorCritic(env.single_observation_space, env.single_action_space, policy)
    settings = {"num_envs": env.num_envs, "rollout_steps": 8, "optimizer": "adamw", "learning_rate": 1e-2, "epochs": 2}
    return DAgger(network, env, DAggerConfig(**settings | changes), seed, expert=expert)


def next_one(obs, begins):
    """An action that the bandit never rewards: nothing but the labels can teach it."""
    return (obs["observation"].argmax(-1) + 1) % 3


def test_the_mixture_falls_from_the_expert_to_the_policy():
    config = DAggerConfig(expert_until=0.4)
    assert [config.beta(x) for x in (0.0, 0.2, 0.4, 1.0)] == pytest.approx([1.0, 0.5, 0.0, 0.0])
    assert DAggerConfig(expert_until=0.0).beta(0.0) == 0.0
    learner = make(Bandit(), next_one)
    shares = []
    for progress in (0.0, 0.1, 0.2):
        stats, rollout = learner.update(progress).read(), learner.rollout
        shares.append((rollout.action == rollout.expert_action).float().mean().item())
        assert stats["loss/beta"] == pytest.approx(learner.config.beta(progress))
        if progress == 0.0:
            assert shares == [1.0] and stats["episode/return"] == 0.0
    assert 0.5 < shares[1] < 1.0
    assert rollout.prev_action[1:].equal(rollout.action)  # the memory reads what was executed


def test_a_policy_learns_the_experts_actions():
    learner = make(Bandit(), next_one)
    first, *_, last = [learner.update(0.01 + i / 30).read() for i in range(25)]
    assert last["loss/agreement"] > 0.9 > first["loss/agreement"] and last["episode/return"] < 0.1
    assert "loss/value_loss" not in last


def test_a_policy_with_memory_learns_an_expert_that_knows_more():
    """The expert knows the bit at the question, where the policy has to remember it."""
    env = RememberBit()
    learner = make(env, lambda obs, begins: env.bit, MEMORY, rollout_steps=18, epochs=4)
    best = max(learner.update(0.01 + i / 80).read()["episode/return"] for i in range(40))
    assert best > 0.95  # half by chance, and without memory


def test_continuous_actions():
    learner = make(Point(), lambda obs, begins: -obs["observation"])
    for i in range(40):
        stats = learner.update(0.01 + i / 100).read()
    assert stats["episode/return"] < 0.5  # the expert does the opposite of what is rewarded
    rollout = learner.rollout
    assert (rollout.action + rollout.obs["observation"][:-1]).abs().mean() < 0.3


def test_the_expert_hears_where_its_last_action_was_not_executed():
    heard = []

    def expert(obs, begins):
        heard.append(begins.clone())
        return torch.zeros(16, dtype=torch.int64)

    learner = make(RememberBit(16), expert, MEMORY)
    learner.update(1.0)  # the policy acts
    rollout = learner.rollout
    assert heard[0].all()
    for t in range(1, 8):
        assert heard[t].equal(rollout.start[t] | (rollout.action[t - 1] != 0))
    heard.clear()
    learner.update(0.0)  # the expert acts
    assert all(begins.equal(rollout.start[t]) for t, begins in enumerate(heard[1:], start=1))


def test_a_resumed_run_continues_to_the_bit_and_the_value_head_stays(tmp_path):
    straight = make(Bandit(16), next_one)
    critic = straight.policy.critic.weight.clone()
    straight.update(0.1)
    torch.save(straight.state_dict(), tmp_path / "state.pt")
    resumed = make(Bandit(16), next_one, seed=5)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for learner in (straight, resumed):
        learner.update(0.15)
    for found, expected in zip(resumed.policy.parameters(), straight.policy.parameters(), strict=True):
        assert found.equal(expected)
    assert straight.policy.critic.weight.equal(critic)


@pytest.mark.parametrize(
    ("expert", "settings", "message"),
    [
        (None, {}, "expert: found none"),
        (next_one, {"expert_until": 1.5}, "expert_until: found 1.5"),
    ],
)
def test_settings_that_do_not_fit(expert, settings, message):
    with pytest.raises(ConfigError, match=message):
        make(Bandit(), expert, **settings)
    with pytest.raises(ConfigError, match="expert: found none"):
        DAggerConfig(expert="").validate()
