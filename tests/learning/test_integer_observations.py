"""Integer observations, such as a category to find: embedded by the policy, kept as integers in the rollout."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from networks import policy_config
from toys import Toy

from batchnav.errors import ArgumentError, ConfigError
from batchnav.learning import PPO, PPOConfig
from batchnav.policy import ActorCritic, PolicyAgent, load_policy, save_policy
from batchnav.policy.observations import embed_rows
from batchnav.policy.weights import load_weights

PERMUTATION = torch.tensor([2, 0, 3, 1])


class Categories(Toy):
    """Contextual bandit, one step an episode: each category has one rewarded action."""

    def __init__(self, space, dtype, num_envs=64):
        self.num_envs, self.device, self.dtype = num_envs, torch.device("cpu"), dtype
        self.single_observation_space = spaces.Dict({"category": space})
        self.single_action_space = spaces.Discrete(len(PERMUTATION))
        self.storage_dtype, self.shape = dtype, space.shape
        self.generator = torch.Generator()

    @property
    def storage(self):
        return {"category": self.storage_dtype}

    def _observe(self):
        self.category = torch.randint(len(PERMUTATION), (self.num_envs,), generator=self.generator)
        return {"category": self.category.to(self.dtype).view(self.num_envs, *self.shape)}

    def reset(self, *, seed=None, options=None):
        self.generator.manual_seed(seed)
        return self._observe(), {}

    def step(self, actions):
        reward = (actions == PERMUTATION[self.category]).float()
        ended = torch.ones(self.num_envs, dtype=torch.bool)
        return self._observe(), reward, ended, ~ended, {"episode": {"return": reward}, "_episode": ended}


CONFIG = policy_config(layers=0, hidden_size=32, embedding_size=8)
SETTINGS = PPOConfig(num_envs=64, rollout_steps=8, epochs=2, minibatches=2, optimizer="adamw", learning_rate=1e-2)
KINDS = [
    (spaces.Discrete(4), torch.int64),
    (spaces.Box(0, 3, (), np.int32), torch.int32),
    (spaces.Box(0, 3, (1,), np.int64), torch.int64),
    (spaces.Box(0, 3, (1,), np.uint8), torch.uint8),
]


def make(env, config=CONFIG):
    torch.manual_seed(0)
    return PPO(ActorCritic(env.single_observation_space, env.single_action_space, config), env, SETTINGS)


@pytest.mark.parametrize(("space", "dtype"), KINDS, ids=str)
def test_categories_are_learned(space, dtype):
    learner = make(Categories(space, dtype))
    assert learner.rollout.obs["category"].dtype == dtype
    for i in range(40):
        stats = learner.update(0.01 + i / 100).read()
    assert stats["episode/return"] > 0.9


@pytest.mark.parametrize(("space", "dtype"), KINDS, ids=str)
def test_a_minibatch_has_the_integers_of_its_environments(space, dtype):
    learner = make(Categories(space, dtype))
    learner.collect()
    envs = torch.tensor([5, 0, 62])
    assert learner.rollout.take_obs("category", envs).equal(learner.rollout.obs["category"][:-1][:, envs])


def test_integers_are_not_kept_as_floats():
    env = Categories(*KINDS[0])
    env.storage_dtype = torch.bfloat16  # exact up to 256 only
    with pytest.raises(ConfigError, match=r"storage\['category'\]: found torch.bfloat16, expected integers"):
        make(env)


@pytest.mark.parametrize(("space", "dtype"), KINDS, ids=str)
def test_saved_and_played(tmp_path, space, dtype):
    policy = make(Categories(space, dtype)).policy
    save_policy(policy, tmp_path / "policy.safetensors")
    agents = [PolicyAgent(policy), load_policy(tmp_path / "policy.safetensors")]
    assert agents[1].network.num_categories == {"category": 4}
    category = torch.tensor([0, 3, 1]).to(dtype).view(3, *space.shape)
    for agent in agents:
        agent.reset(3)
    assert agents[0].act({"category": category}).equal(agents[1].act({"category": category}))
    with pytest.raises(ArgumentError, match=r"integers out of range for agents \[1\], expected 0 to 3"):
        agents[0].act({"category": torch.tensor([0, 4, 1]).view(3, *space.shape)})
    with pytest.raises(ArgumentError, match=r"'category'.*found torch.float32, expected integers"):
        agents[0].act({"category": category.float()})


def test_a_category_can_be_added_to_a_policy(tmp_path):
    """The larger network begins with the actions of the smaller one."""
    goal = spaces.Box(-1.0, 1.0, (3,))
    less = ActorCritic(spaces.Dict({"goal": goal}), spaces.Discrete(4), CONFIG)
    save_policy(less, tmp_path / "less.safetensors")
    more = ActorCritic(spaces.Dict({"category": spaces.Discrete(4), "goal": goal}), spaces.Discrete(4), CONFIG)
    load_weights(more, tmp_path / "less.safetensors")
    obs = {"goal": torch.randn(5, 3)}
    rest = torch.zeros(5, dtype=torch.int64), torch.ones(5, dtype=torch.bool), ()
    found = more.act({**obs, "category": torch.arange(5) % 4}, *rest)
    torch.testing.assert_close(found.log_prob, less.act(obs, *rest).log_prob)


def test_rows_and_their_gradient():
    embedding = torch.nn.Embedding(5, 3)
    index = torch.tensor([[4, 0], [2, 2]])
    rows = embed_rows(embedding, index)
    assert rows.equal(embedding(index))
    rows.sum().backward()
    assert embedding.weight.grad[:, 0].tolist() == [1.0, 0.0, 2.0, 0.0, 1.0]
    assert not embed_rows(embedding, torch.tensor([8])).any()
