"""Several processes that train one policy, by gloo on the CPU: the same run as one process has, and no rank waits for
ever for one that is gone."""

import pytest
import torch
from ranks import results_of

from batchnav.config import PolicyConfig, PPOConfig
from batchnav.data.scenes import find_scenes
from batchnav.envs.nav import PointNavEnv
from batchnav.policy import ActorCritic
from batchnav.ppo import Learner
from batchnav.ppo.stats import merged
from batchnav.runtime.distributed import Ranks

N = 32
"""Environments in all."""
STEPS = 8
UPDATES = 6
POLICY = PolicyConfig(base_width=4, visual_size=8, hidden_size=16, lstm_layers=1, embedding_size=8)
HOUSES = [f"house:{i}" for i in range(6)]
ROUNDING = {"rtol": 1e-4, "atol": 1e-6}
"""Between the losses of one process and of several: sums over minibatches are rounded in another order."""


class Together(Learner):
    """One process that learns from the minibatches that two have: environments i and i + N / 2 in the same one."""

    def _draw_minibatches(self):
        half = self.config.num_envs // 2
        order = torch.randperm(half, generator=self.generator).view(self.config.minibatches, -1)
        return torch.cat([order, order + half], dim=1)


def make(ranks, kind=Learner, num_envs=N, seed=0, **ppo):
    n = num_envs // ranks.world_size
    env = PointNavEnv(
        find_scenes(ranks.share(HOUSES)), n, "cpu", height=16, width=16, max_steps=12, first_env=ranks.rank * n
    )
    torch.manual_seed(seed + ranks.rank)  # rank 0's weights count
    network = ActorCritic(env.single_observation_space, env.single_action_space, POLICY)
    with torch.no_grad():
        network.actor.bias[0] -= 2.0  # stop seldom
    settings = {"num_envs": n, "rollout_steps": STEPS, "minibatches": 2, "epochs": 2, "normalize_advantage": True}
    return kind(network, env, PPOConfig(**settings | {"learning_rate": 1e-3} | ppo), seed=7, ranks=ranks)


def updates(learner, count=UPDATES):
    """Every statistic but the times, as of all ranks."""
    rows = []
    for i in range(count):
        row = merged(learner.ranks.exchange(learner.update(i / UPDATES).read()))
        rows.append({name: value for name, value in row.items() if not name.startswith("seconds")})
    return rows


def weights(learner):
    return torch.cat([p.detach().flatten() for p in learner.policy.parameters()])


def train(ranks, optimizer):
    learner = make(ranks, optimizer=optimizer)
    return updates(learner), weights(learner)


def numbers(rows):
    return torch.tensor([list(row.values()) for row in rows], dtype=torch.float64)


@pytest.mark.parametrize("optimizer", ["lamb", "adamw"])
def test_two_ranks_learn_as_one_process_does(tmp_path, optimizer):
    alone = make(Ranks(torch.device("cpu")), Together, optimizer=optimizer)
    expected = updates(alone)
    (rows, first), (others, second) = results_of(train, 2, tmp_path / "log", optimizer)
    assert rows == others and torch.equal(first, second)
    assert [list(row) for row in rows] == [list(row) for row in expected]
    torch.testing.assert_close(numbers(rows), numbers(expected), equal_nan=True, **ROUNDING)
    assert rows[-1]["frames"] == UPDATES * N * STEPS and rows[0]["episode/count"] == expected[0]["episode/count"]
    assert sum(row["episode/count"] for row in rows) > N
    if optimizer == "lamb":
        again, bits = results_of(train, 2, tmp_path / "log", optimizer)[0]
        torch.testing.assert_close(numbers(again), numbers(rows), rtol=0.0, atol=0.0, equal_nan=True)
        assert torch.equal(bits, first)
