"""The training benchmark with tiny sizes: its values are consistent, and it writes its figure."""

import dataclasses

import pytest
import torch
from networks import policy_config

from batchnav.bench import train as speed_train
from batchnav.errors import DivergenceError
from batchnav.runtime.distributed import Ranks

N, STEPS = 8, 4
ALONE = Ranks(torch.device("cpu"))
OPTIONS = speed_train.Options(
    device="cpu", policies=("tiny",), sizes=(16,), num_envs=(N,), houses=1, rollout_steps=STEPS, minibatch_frames=16,
    updates=1, compile=False,
)  # fmt: skip


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    small = policy_config(base_width=4, visual_size=8, hidden_size=16, layers=1, embedding_size=8)
    monkeypatch.setitem(speed_train.POLICIES, "tiny", small)


def test_figures_and_picture(tmp_path):
    whole, policy = speed_train.main(OPTIONS)
    assert (whole["params"]["part"], policy["params"]["part"]) == ("whole", "policy")
    assert whole["params"]["minibatches"] == N * STEPS // 16
    assert 0.0 < whole["p5"] <= whole["value"] <= whole["p95"] and whole["repeats"] == OPTIONS.updates
    parts = whole["microseconds_per_frame"]
    assert set(parts) == set(speed_train.PARTS)
    assert sum(parts.values()) == pytest.approx(1e6 / whole["value"], rel=1e-6)  # seconds of one update
    assert whole["share_of_policy_only"] == pytest.approx(whole["value"] / policy["value"], rel=1e-6)
    speed_train.plot([whole], tmp_path / "train.webp")
    assert (tmp_path / "train.webp").stat().st_size > 1000


def test_the_policy_alone_sees_the_observations_that_were_recorded():
    env = speed_train.environments(OPTIONS, ALONE)(N, 16)
    learner = speed_train.make_learner(env, speed_train.make_policy(env, "tiny", OPTIONS), OPTIONS, ALONE)
    learner.update(1.0)
    seen = learner.rollout.obs["depth"].clone()
    learner.replace_env(speed_train.Still(learner.env))
    learner.update(1.0)
    assert torch.equal(learner.rollout.obs["depth"][1:], seen[1:])
    assert seen.any()


def test_every_number_of_environments_begins_with_the_first_weights(monkeypatch):
    seen = []

    def measure(learner, name, options):
        seen.append(learner.policy.critic.weight.detach().clone())
        learner.update(0.5)
        assert not torch.equal(learner.policy.critic.weight, seen[0])
        return []

    monkeypatch.setattr(speed_train, "measure", measure)
    speed_train.main(dataclasses.replace(OPTIONS, num_envs=(N, 2 * N)))
    assert len(seen) == 2 and torch.equal(*seen)


def test_what_diverged_is_not_measured(monkeypatch):
    make_policy = speed_train.make_policy

    def diverged(*arguments):
        policy = make_policy(*arguments)
        torch.nn.init.constant_(policy.critic.bias, torch.nan)
        return policy

    monkeypatch.setattr(speed_train, "make_policy", diverged)
    with pytest.raises(DivergenceError, match="update 1 has the loss nan"):
        speed_train.main(OPTIONS)
