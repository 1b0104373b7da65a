"""Imitation: a policy learns an expert's actions while the coefficient is high, and from reward afterwards."""

import math

import pytest
import torch
from networks import policy_config
from toys import Bandit, Point

from batchnav.agents.registry import make_expert, make_reference_agent
from batchnav.config import from_dict
from batchnav.errors import ConfigError
from batchnav.learning import PPO, ImitationConfig, PPOConfig, imitation_loss
from batchnav.policy import ActorCritic
from batchnav.sim.bodies import STOP
from batchnav.training.config import TrainingConfig
from batchnav.training.loop import make_learner

POLICY = policy_config(layers=0, hidden_size=32)
SETTINGS = PPOConfig(num_envs=64, rollout_steps=8, epochs=2, minibatches=2, optimizer="adamw", learning_rate=1e-2)
RUN = {
    "env": {"camera": {"height": 16, "width": 16}, "sensors": ["depth", "waypoint"]},
    "scenes": {"houses": 1},
    "policy": {
        "se_resnet9": {"base_width": 4},
        "visual_size": 16,
        "hidden_size": 16,
        "lstm": {"layers": 1},
        "embedding_size": 8,
    },
    "ppo": {"num_envs": 8, "rollout_steps": 8},
    "imitation": {"expert": "map_planner"},
    "device": "cpu",
}


def make(env, expert, **settings):
    torch.manual_seed(0)
    policy = ActorCritic(env.single_observation_space, env.single_action_space, POLICY)
    return PPO(policy, env, SETTINGS, expert=expert, imitation=ImitationConfig(**settings))


def next_one(obs, start):
    """An action that the bandit never rewards."""
    return (obs["observation"].argmax(-1) + 1) % 3


def test_coefficient():
    linear = ImitationConfig(coef=0.5)
    assert [linear.coef_at(x) for x in (0.0, 0.5, 1.0, 1.1)] == pytest.approx([0.5, 0.25, 0.0, 0.0])
    constant = ImitationConfig(coef=0.5, schedule="constant")
    assert [constant.coef_at(x) for x in (0.0, 0.5, 1.0)] == [0.5] * 3


def test_schedules_have_a_length_of_their_own():
    learner = make(Bandit(), next_one, coef=0.5)
    assert learner.schedules(0.5) == {"learning rate": learner.learning_rate(0.5), "imitation coefficient": 0.25}
    twice = PPOConfig(total_frames=200, schedule_frames=100)
    assert [twice.progress(frames) for frames in (0, 50, 100, 150)] == [0.0, 0.5, 1.0, 1.0]
    assert PPOConfig(total_frames=200).progress(150) == 0.75


def test_imitation_loss_is_the_mean_negative_log_probability():
    log_prob = torch.tensor([0.5, 0.25]).log().requires_grad_()
    loss = imitation_loss(log_prob)
    assert loss.item() == pytest.approx((math.log(2.0) + math.log(4.0)) / 2.0)
    loss.backward()
    assert log_prob.grad.tolist() == [-0.5, -0.5]


def test_a_policy_learns_the_experts_actions_and_then_from_reward():
    learner = make(Bandit(), next_one, coef=1.0)
    for i in range(20):
        imitating = learner.update(0.01 + i / 30).read()
    assert imitating["episode/return"] < 0.1  # a third by chance
    learner.imitation = ImitationConfig(coef=0.0)
    for i in range(100):
        alone = learner.update(0.5 + i / 250).read()
    assert alone["episode/return"] > 0.9


def test_continuous_actions_of_an_expert_are_imitated():
    learner = make(Point(), lambda obs, start: -obs["observation"], coef=5.0)
    for i in range(40):
        stats = learner.update(0.01 + i / 100).read()
    rollout = learner.rollout
    with torch.no_grad():
        found = learner.policy.act(rollout.get_obs(0), rollout.prev_action[0], rollout.start[0], learner.state).action
    assert (found + rollout.get_obs(0)["observation"]).abs().mean() < 0.2
    assert stats["episode/return"] < 0.5  # the expert does the opposite of what is rewarded


def test_a_coefficient_of_zero_changes_nothing():
    with_expert, without = make(Bandit(), next_one, coef=0.0), make(Bandit(), None)
    for learner in (with_expert, without):
        for progress in (0.2, 0.5):
            learner.update(progress)
    for found, expected in zip(with_expert.policy.parameters(), without.policy.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0.0, atol=0.0)


def test_a_run_imitates_the_planner():
    learner = make_learner(from_dict(TrainingConfig, RUN))
    learner.update(0.0)
    rollout, planner = learner.rollout, make_expert("map_planner", learner.env)
    for t in range(rollout.num_steps):
        assert rollout.expert_action[t].equal(planner.act(rollout.get_obs(t), rollout.start[t]))
    assert len(rollout.expert_action.unique()) > 1


def test_an_expert_stops_inside_the_success_distance():
    """A policy that resolves distances to 2 mm and stops where the expert stops is within the success distance."""
    env = make_learner(from_dict(TrainingConfig, RUN)).env
    expert, planner = make_expert("map_planner", env), make_reference_agent("map_planner", env)
    for metres, stops in ((0.196, (True, True)), (0.199, (False, True)), (0.201, (False, False))):
        seen = {name: torch.tensor([[metres, 0.0]]).repeat(8, 1) for name in ("pointgoal", "waypoint")}
        found = [bool((agent.act(seen, torch.zeros(8, dtype=torch.bool)) == STOP).all()) for agent in (expert, planner)]
        assert tuple(found) == stops, metres


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": {"sensors": ["depth"]}}, "found 'map_planner' with sensors depth, expected 'waypoint' among them"),
        ({"env": {"task": {"name": "flee"}}}, "found 'map_planner' with the task flee"),
        ({"imitation": {"expert": "no_agent"}}, r"imitation\.expert: found 'no_agent'"),
        ({"imitation": {"expert": "map_planner", "coef": -1.0}}, r"imitation\.coef: found -1.0"),
        (
            {"imitation": {"expert": "map_planner", "schedule": "cosine"}},
            r"imitation\.schedule: found 'cosine', expected one",
        ),
        ({"env": {"body": {"control": "velocity"}}}, r"with velocity control"),
    ],
)
def test_experts_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        from_dict(TrainingConfig, {**RUN, **changes})
