"""Kickstarting: the policy comes to act as its teacher, as long as that counts, and learns by itself afterwards."""

import pytest
import torch
from toys import Bandit, Point

from batchnav.agents.registry import make_reference_agent, make_teacher
from batchnav.config import from_dict
from batchnav.errors import ConfigError
from batchnav.policy import ActorCritic
from batchnav.policy.config import PolicyConfig
from batchnav.ppo import Kickstart, Learner
from batchnav.ppo.config import KickstartConfig, PPOConfig
from batchnav.sim.bodies import STOP
from batchnav.training.config import TrainingConfig
from batchnav.training.loop import make_learner

POLICY = PolicyConfig(lstm_layers=0, hidden_size=32)
PPO = PPOConfig(num_envs=64, rollout_steps=8, epochs=2, minibatches=2, optimizer="adamw", learning_rate=1e-2)
RUN = {
    "env": {"camera": {"height": 16, "width": 16}, "sensors": ["depth", "waypoint"]},
    "scenes": {"houses": 1},
    "policy": {"base_width": 4, "visual_size": 16, "hidden_size": 16, "lstm_layers": 1, "embedding_size": 8},
    "ppo": {"num_envs": 8, "rollout_steps": 8},
    "imitation": {"teacher": "planner"},
    "device": "cpu",
}


def make(env, teacher, **settings):
    torch.manual_seed(0)
    policy = ActorCritic(env.single_observation_space, env.single_action_space, POLICY)
    return Learner(policy, env, PPO, kickstart=teacher and Kickstart(teacher, KickstartConfig(**settings)))


def next_one(obs, start):
    """An action that the bandit never rewards."""
    return (obs["observation"].argmax(-1) + 1) % 3


def test_the_coefficient_falls_to_nothing():
    kickstart = Kickstart(next_one, KickstartConfig(coef=0.5, share=0.2))
    assert [kickstart.coef(x) for x in (0.0, 0.1, 0.2, 0.9)] == pytest.approx([0.5, 0.25, 0.0, 0.0])
    kept = Kickstart(next_one, KickstartConfig(coef=0.5, share=2.0))
    assert [kept.coef(x) for x in (0.0, 0.5, 1.0)] == pytest.approx([0.5, 0.375, 0.25])


def test_a_policy_acts_as_its_teacher_and_then_as_it_is_rewarded():
    learner = make(Bandit(), next_one, coef=1.0, share=0.5)
    for i in range(20):
        taught = learner.update(0.01 + i / 60).read()
    assert taught["episode/return"] < 0.1  # a third by chance
    for i in range(100):
        alone = learner.update(0.5 + i / 250).read()
    assert alone["episode/return"] > 0.9


def test_a_teacher_of_numbers_is_imitated():
    learner = make(Point(), lambda obs, start: -obs["observation"], coef=5.0, share=1.0)
    for i in range(40):
        stats = learner.update(0.01 + i / 100).read()
    rollout = learner.rollout
    with torch.no_grad():
        found = learner.policy.act(rollout.get_obs(0), rollout.prev_action[0], rollout.start[0], learner.state).action
    assert (found + rollout.get_obs(0)["observation"]).abs().mean() < 0.2
    assert stats["episode/return"] < 0.5  # what it imitates is the opposite of what pays


def test_a_teacher_that_no_longer_counts_changes_nothing():
    with_one, without = make(Bandit(), next_one, share=0.2), make(Bandit(), None)
    for learner in (with_one, without):
        for progress in (0.2, 0.5):
            learner.update(progress)
    for found, expected in zip(with_one.policy.parameters(), without.policy.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0.0, atol=0.0)


def test_a_run_is_taught_what_the_planner_does():
    learner = make_learner(from_dict(TrainingConfig, RUN))
    learner.update(0.0)
    rollout, planner = learner.rollout, make_teacher("planner", learner.env)
    for t in range(rollout.num_steps):
        assert learner.taught[t].equal(planner.act(rollout.get_obs(t), rollout.start[t]))
    assert len(learner.taught.unique()) > 1


def test_a_teacher_stops_before_it_need():
    """A policy that tells distances to 2 mm, and stops where it did, is near enough to the goal."""
    env = make_learner(from_dict(TrainingConfig, RUN)).env
    teacher, planner = make_teacher("planner", env), make_reference_agent("planner", env)
    for metres, stops in ((0.196, (True, True)), (0.199, (False, True)), (0.201, (False, False))):
        seen = {name: torch.tensor([[metres, 0.0]]).repeat(8, 1) for name in ("pointgoal", "waypoint")}
        found = [
            bool((agent.act(seen, torch.zeros(8, dtype=torch.bool)) == STOP).all()) for agent in (teacher, planner)
        ]
        assert tuple(found) == stops, metres


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": {"sensors": ["depth"]}}, "found 'planner' with sensors depth, expected 'waypoint' among them"),
        ({"env": {"task": {"name": "flee"}}}, "found 'planner' with the task flee"),
        (
            {"imitation": {"teacher": "oracle"}},
            r"imitation\.teacher: found 'oracle', expected one of '', 'greedy', 'planner'",
        ),
        ({"imitation": {"teacher": "planner", "share": 0.0}}, r"imitation\.share: found 0.0"),
        ({"env": {"body": {"control": "velocity"}}}, r"with velocity control"),
    ],
)
def test_what_cannot_teach_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        from_dict(TrainingConfig, {**RUN, **changes})
