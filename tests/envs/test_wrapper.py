"""Wrappers of environments: their changes reach the learner."""

import dataclasses

import pytest
import torch
from networks import policy_config

from batchnav.data.config import ScenesConfig
from batchnav.data.scenes.load import load_scene
from batchnav.envs.config import NavConfig
from batchnav.envs.nav import PointNavEnv
from batchnav.envs.wrapper import Wrapper
from batchnav.learning import PPO, PPOConfig
from batchnav.policy import ActorCritic
from batchnav.runtime.distributed import Ranks
from batchnav.scene.bank import SceneBank
from batchnav.sensors.camera import CameraConfig
from batchnav.tasks.pointnav import PointNavConfig
from batchnav.training.config import TrainingConfig
from batchnav.training.environment import make_environment
from batchnav.types import VecEnv

N, STEPS, BONUS = 4, 5, 100.0
POLICY = policy_config(base_width=4, visual_size=8, hidden_size=8, layers=1, embedding_size=4)
SETTINGS = PPOConfig(num_envs=N, rollout_steps=STEPS, optimizer="adamw")


class Richer(Wrapper):
    """Adds a bonus to every reward."""

    def step(self, actions):
        observation, reward, *rest = self.env.step(actions)
        return observation, reward + BONUS, *rest


class RicherEnv(PointNavEnv):
    """The same bonus by inheritance."""

    def step(self, actions):
        observation, reward, *rest = super().step(actions)
        return observation, reward + BONUS, *rest


@pytest.fixture(scope="module")
def bank():
    return SceneBank.pack([load_scene("house:3")], "cpu")


def make(bank, kind=PointNavEnv, **options):
    return kind(bank, N, seed=0, height=16, width=16, **options)


def learner_in(env, graphs=False, ppo=SETTINGS):
    torch.manual_seed(0)
    return PPO(ActorCritic(env.single_observation_space, env.single_action_space, POLICY), env, ppo, graphs=graphs)


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("how", ["wrapped", "wrapped twice", "inherited"])
def test_an_added_reward_reaches_the_learner(bank, how, graphs):
    """Enough updates for recording and replaying CUDA graphs."""
    plain = learner_in(make(bank), graphs)
    env = make(bank, RicherEnv) if how == "inherited" else Richer(make(bank))
    env, bonus = (Richer(env), 2 * BONUS) if how == "wrapped twice" else (env, BONUS)
    rich = learner_in(env, graphs)
    for _ in range(4):
        plain.collect()
        rich.collect()
        assert torch.equal(rich.rollout.action, plain.rollout.action)
        torch.testing.assert_close(rich.rollout.reward, plain.rollout.reward + bonus)
    assert rich.update(0.0).read()["reward"] > 0.9 * bonus


def test_a_wrapper_forwards_all_calls(bank):
    env, plain = Wrapper(make(bank)), make(bank)
    for name in ("num_envs", "device", "storage", "capturable", "single_action_space", "single_observation_space"):
        assert getattr(env, name) == getattr(plain, name)
    members = {name for name in (*vars(VecEnv), *VecEnv.__annotations__) if not name.startswith("_")}
    assert all(hasattr(env, name) for name in members)
    first, expected = env.reset(seed=5)[0], plain.reset(seed=5)[0]
    assert all(torch.equal(first[name], expected[name]) for name in expected)
    saved, moves = env.state_dict(), torch.randint(1, 4, (6, N), generator=torch.Generator().manual_seed(1))

    def play(env):
        return [[value.clone() for value in (*step[0].values(), *step[1:4])] for step in map(env.step, moves)]

    seen = play(plain)
    for _ in range(2):
        assert all(torch.equal(a, b) for x, y in zip(play(env), seen, strict=True) for a, b in zip(x, y, strict=True))
        env.load_state_dict(saved)
    assert env.between_rollouts() == {}
    env.settle()
    out = {name: torch.zeros_like(value) for name, value in expected.items()}
    env.observe_into(out)
    assert env.step(moves[0])[0]["depth"] is out["depth"]
    env.close()


def small_run(**ppo):
    return TrainingConfig(
        env=NavConfig(camera=CameraConfig(16, 16), task=PointNavConfig(max_steps=3)),
        scenes=ScenesConfig(houses=1, first_house=3), policy=POLICY, device="cpu",
        ppo=dataclasses.replace(SETTINGS, **ppo),
    )  # fmt: skip


def test_pointnav_learns_with_bootstrap_at_time_outs():
    run = small_run(timeout_bootstrap=True)
    learner = learner_in(make_environment(run, Ranks(torch.device("cpu"))), ppo=run.ppo)
    stats = learner.update(0.0).read()
    assert stats["episode/count"] >= N and all(map(torch.isfinite, map(torch.as_tensor, stats.values())))
    rollout = learner.rollout
    cut = rollout.done & (rollout.action != 0)  # out of steps, and no stop
    assert cut.any() and (rollout.next_value[cut] != 0).all()
    assert (rollout.next_value[rollout.done & ~cut] == 0).all()
    without = small_run()
    learner = learner_in(make_environment(without, Ranks(torch.device("cpu"))), ppo=without.ppo)
    learner.update(0.0)
    assert (learner.rollout.next_value[learner.rollout.done] == 0).all()
