"""A policy that predicts the goal's mask: labels for learning only, a toy that it masters, files without the label."""

import copy
import math

import pytest
import torch
from gymnasium import spaces
from networks import policy_config
from toys import Bandit, acts_alike

from batchnav.errors import ConfigError
from batchnav.learning import PPO, PPOConfig
from batchnav.learning.losses import POSITIVE_WEIGHT, mask_loss
from batchnav.policy import ActorCritic, load_policy, save_policy
from batchnav.policy.actor_critic import PRIOR, MaskHead
from batchnav.policy.config import PolicyConfig

CONFIG = policy_config(
    encoder="simple_cnn", base_width=8, mask_width=8, visual_size=16, hidden_size=16, layers=0, embedding_size=6,
    predicted_mask="goal_mask",
)  # fmt: skip
SIZE = 16


class FindSquare(Bandit):
    """Two squares, one bright and one dark, lie left and right; the goal's category says which one is asked for, and
    the reward is 1 for the action that names its side. An episode has one step.

    Neither the image nor the category tells the action, or the mask, alone.
    """

    def __init__(self, num_envs=64, with_label=True, seed=0):
        self.num_envs, self.device, self.with_label = num_envs, torch.device("cpu"), with_label
        boxes = [("depth", spaces.Box(0.0, 1.0, (1, SIZE, SIZE)))]
        if with_label:
            boxes.append(("goal_mask", spaces.Box(0, 255, (1, SIZE, SIZE), dtype="uint8")))
        boxes.append(("objectgoal", spaces.Box(0, 1, (), dtype="int64")))
        self.single_observation_space, self.single_action_space = spaces.Dict(boxes), spaces.Discrete(2)
        self.generator = torch.Generator().manual_seed(seed)

    @property
    def storage(self):
        return {"depth": torch.float32, "goal_mask": torch.uint8, "objectgoal": torch.int64}

    def _observe(self):
        n, generator = self.num_envs, self.generator
        category, bright_side = (torch.randint(2, (n,), generator=generator) for _ in range(2))
        row = torch.randint(1, 11, (n,), generator=generator)
        y, x = torch.arange(SIZE)[:, None], torch.arange(SIZE)
        squares = [
            (y >= row[:, None, None]) & (y < row[:, None, None] + 4) & (x >= left) & (x < left + 4) for left in (2, 10)
        ]
        bright = torch.where(bright_side[:, None, None] == 0, squares[0], squares[1])
        dark = torch.where(bright_side[:, None, None] == 0, squares[1], squares[0])
        image = 0.5 + 0.4 * bright.float() - 0.4 * dark.float()
        goal = torch.where(category[:, None, None] == 0, bright, dark)
        self.target = (bright_side + category) % 2
        obs = {"depth": image[:, None], "objectgoal": category}
        return obs | ({"goal_mask": 255 * goal[:, None].byte()} if self.with_label else {})


def make(config=CONFIG, env=None, **changes):
    env = env or FindSquare()
    torch.manual_seed(0)
    policy = ActorCritic(env.single_observation_space, env.single_action_space, config)
    ppo = PPOConfig(num_envs=64, rollout_steps=8, minibatches=4, optimizer="adamw", learning_rate=3e-3, **changes)
    return PPO(policy, env, ppo)


def test_the_head_learns_the_mask_beside_the_policy():
    learner = make()
    rows = [learner.update(0.0).read() for _ in range(80)]
    assert rows[0]["loss/mask_iou"] < 0.1 and rows[-1]["loss/mask_iou"] > 0.8
    assert rows[-1]["loss/mask_loss"] < 0.1 * rows[0]["loss/mask_loss"]
    assert rows[-1]["episode/return"] > 0.9


def test_it_acts_without_the_label(tmp_path):
    """A file names no label; the loaded policy acts in an environment without one as the trained policy does."""
    learner = make()
    learner.update(0.0)
    save_policy(learner.policy, tmp_path / "policy.safetensors")
    loaded = load_policy(tmp_path / "policy.safetensors")
    assert set(loaded.network.observation_shapes) == {"depth", "objectgoal"} and not loaded.network.label_shapes
    with_label, without = FindSquare(), FindSquare(with_label=False)
    assert acts_alike(learner.policy, loaded, with_label, without)
    other = ActorCritic(without.single_observation_space, without.single_action_space, CONFIG)
    other.load_state_dict(learner.policy.state_dict())


def test_the_label_is_not_an_input():
    learner = make()
    learner.collect()
    rollout, policy = learner.rollout, learner.policy
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        obs, start = rollout.get_obs(0), rollout.start[0]
        outputs = [
            policy.step(obs | {"goal_mask": mask}, rollout.prev_action[0], start, ())[0]
            for mask in (torch.zeros_like(obs["goal_mask"]), torch.full_like(obs["goal_mask"], 255))
        ]
        assert outputs[0].equal(outputs[1])
        policy.mask_head.logits.bias.add_(3.0)
        assert not policy.step(obs, rollout.prev_action[0], start, ())[0].equal(outputs[0])  # its prediction is


def test_losses_train_disjoint_weights():
    """The mask loss trains the head alone, and PPO everything else."""
    learner = make()
    learner.collect()
    rollout, envs = learner.rollout, torch.arange(8)
    with torch.no_grad():
        for parameter in learner.policy.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    obs = {name: rollout.take_obs(name, envs) for name in rollout.obs}
    seen = learner.policy.evaluate(
        obs, rollout.prev_action[:8, envs], rollout.start[:8, envs], (), rollout.action[:, envs]
    )
    assert seen.mask_logits.shape == (8, 8, 1, SIZE, SIZE)
    named = dict(learner.policy.named_parameters())
    for loss, of_head in ((mask_loss(seen.mask_logits, obs["goal_mask"])[0], True), (seen.log_prob.sum(), False)):
        gradients = torch.autograd.grad(loss, list(named.values()), retain_graph=True, allow_unused=True)
        for name, gradient in zip(named, gradients, strict=True):
            if name.startswith("mask_head") != of_head:
                assert gradient is None, name
            elif of_head:
                assert gradient.abs().sum() > 0, name


def test_the_loss_and_iou_by_hand():
    logits = torch.tensor([[2.0, -1.0], [0.5, -3.0]])
    found, stats = mask_loss(logits, torch.tensor([[255, 255], [0, 0]], dtype=torch.uint8))
    terms = [POSITIVE_WEIGHT * math.log1p(math.exp(-2.0)), POSITIVE_WEIGHT * math.log1p(math.exp(1.0))]
    terms += [math.log1p(math.exp(0.5)), math.log1p(math.exp(-3.0))]
    assert found.item() == pytest.approx(sum(terms) / 4, rel=1e-6) and stats["mask_loss"].equal(found)
    assert stats["mask_iou"].item() == pytest.approx(1 / 3)  # one of the two shown, one of the others
    assert mask_loss(logits, torch.tensor([[1.0, 1.0], [0.0, 0.0]]))[0].equal(found)
    assert mask_loss(torch.full((4,), -1.0), torch.zeros(4))[1]["mask_iou"].item() == 0.0


def test_the_head_reads_whole_images_of_any_size():
    torch.manual_seed(0)
    head = MaskHead(2, (5,), 8)
    image, category = torch.rand(3, 2, 18, 22), torch.tensor([0, 2, 4])
    found = head(image, [category])
    assert found.shape == (3, 1, 18, 22)
    torch.testing.assert_close(torch.sigmoid(found).mean(), torch.tensor(PRIOR), rtol=0.5, atol=0.0)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    first, other = head(image, [category]), head(image, [torch.tensor([1, 2, 4])])
    assert first[1:].equal(other[1:]) and not first[0].equal(other[0])  # the goal's category matters
    before = head(image, [category])
    image[0, 0, 0, 0] += 1.0
    assert (head(image, [category])[0, 0, -1, -1] - before[0, 0, -1, -1]).abs() > 0  # the farthest pixel


def test_learning_continues_bit_for_bit():
    learner, again = make(), make()
    learner.update(0.1)
    again.load_state_dict(copy.deepcopy(learner.state_dict()))
    one, two = learner.update(0.5), again.update(0.5)
    assert all(a.equal(b) for a, b in zip(one.losses.values(), two.losses.values(), strict=True))


def test_what_does_not_fit_is_refused():
    env = FindSquare(with_label=False)
    with pytest.raises(ConfigError, match="predicted_mask: found no observation 'goal_mask' to learn from"):
        make(env=env)
    blind = PolicyConfig(predicted_mask="goal_mask", blind=True)
    with pytest.raises(ConfigError, match="'goal_mask' for a policy that reads no images"):
        ActorCritic(env.single_observation_space, env.single_action_space, blind)
    boxes = {"depth": spaces.Box(0.0, 1.0, (1, 32, 32)), "goal_mask": spaces.Box(0, 255, (1, 16, 16), dtype="uint8")}
    with pytest.raises(ConfigError, match=r"found goal_mask \[1, 16, 16\], expected \[1, 32, 32\]"):
        ActorCritic(spaces.Dict(boxes), spaces.Discrete(2), CONFIG)
