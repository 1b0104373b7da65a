"""Learning with an image of the goal, as channels of the encoder (early fusion) and as its modulation (FiLM)."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from networks import policy_config
from toys import Toy

from batchnav.learning import PPO, PPOConfig
from batchnav.policy import ActorCritic
from batchnav.policy.encoder import FiLMEncoder

SIDE, STEPS = 16, 4
FUSIONS = pytest.mark.parametrize("film", [(), ("imagegoal",)], ids=["early", "film"])


class Match(Toy):
    """The reward is 1 for action 1 where the agent sees the image of the goal, and for action 0 elsewhere."""

    def __init__(self, num_envs=64, kinds=2):
        self.num_envs, self.kinds, self.device = num_envs, kinds, torch.device("cpu")
        image = spaces.Box(0, 255, (3, SIDE, SIDE), np.uint8)
        self.single_observation_space = spaces.Dict([("rgb", image), ("imagegoal", image)])
        self.single_action_space = spaces.Discrete(2)
        self.generator = torch.Generator()
        coarse = torch.randint(0, 256, (kinds, 3, 4, 4), generator=self.generator.manual_seed(5), dtype=torch.uint8)
        self.images = coarse.repeat_interleave(SIDE // 4, 2).repeat_interleave(SIDE // 4, 3)

    @property
    def storage(self):
        return {"rgb": torch.uint8, "imagegoal": torch.uint8}

    def _sample(self):
        return torch.randint(self.kinds, (self.num_envs,), generator=self.generator)

    def _observe(self):
        self.seen = self._sample()
        return {"rgb": self.images[self.seen], "imagegoal": self.images[self.goal]}

    def reset(self, *, seed=None, options=None):
        self.generator.manual_seed(seed)
        self.goal, self.time = self._sample(), torch.arange(self.num_envs) % STEPS
        return self._observe(), {}

    def step(self, actions):
        reward = (actions == (self.seen == self.goal).long()).float()
        self.time = (self.time + 1) % STEPS
        ended = self.time == 0
        self.goal = torch.where(ended, self._sample(), self.goal)
        info = {"episode": {"return": reward}, "_episode": ended}
        return self._observe(), reward, ended, torch.zeros_like(ended), info

    def state_dict(self):
        return {name: getattr(self, name).clone() for name in ("goal", "time", "seen")} | {
            "generator": self.generator.get_state()
        }

    def load_state_dict(self, state):
        self.generator.set_state(state["generator"])
        self.goal, self.time, self.seen = (state[name].clone() for name in ("goal", "time", "seen"))


def make(film, seed=0, **ppo):
    torch.manual_seed(seed)
    env = Match()
    config = policy_config(encoder="simple_cnn", base_width=4, visual_size=16, hidden_size=16, layers=1, film=film)
    settings = {"num_envs": 64, "rollout_steps": 8, "epochs": 2, "minibatches": 2, "optimizer": "adamw"}
    policy = ActorCritic(env.single_observation_space, env.single_action_space, config)
    return PPO(policy, env, PPOConfig(**settings | {"learning_rate": 4e-3, "gamma": 0.5} | ppo), seed=seed)


@FUSIONS
def test_it_learns_whether_the_goal_is_seen(film):
    learner = make(film)
    for _ in range(40):
        reward = learner.update(0.3).reward
    assert reward > 0.9  # 0.5 for a policy that does not compare the two images


@FUSIONS
@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_a_resumed_run_continues_to_the_bit(film, optimizer, tmp_path):
    straight = make(film, optimizer=optimizer)
    for _ in range(2):
        straight.update(0.0)
    torch.save(straight.state_dict(), tmp_path / "state.pt")
    resumed = make(film, seed=5, optimizer=optimizer)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for learner in (straight, resumed):
        learner.update(0.1)
    for name, weight in straight.policy.state_dict().items():
        assert torch.equal(weight, resumed.policy.state_dict()[name]), name


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_goals_are_read_once_an_episode_and_as_learning_reads_them(optimizer, monkeypatch):
    rows, compute = [], FiLMEncoder.modulation
    monkeypatch.setattr(FiLMEncoder, "modulation", lambda self, x: rows.append(len(x)) or compute(self, x))
    learner = make(("imagegoal",), optimizer=optimizer, epochs=1, minibatches=1)
    for _ in range(2):  # in the second rollout the weights are others
        rows.clear()
        stats = learner.update(0.0).read()
        images = learner.rollout.obs["imagegoal"]
        new = (images[1:] != images[:-1]).flatten(2).any(2).sum(1)
        assert rows == [64, *(n for n in new.tolist() if n), 64 + int(new[:-1].sum())]
        assert stats["loss/approx_kl"] == pytest.approx(0.0, abs=1e-6) and stats["loss/clip_fraction"] == 0.0
