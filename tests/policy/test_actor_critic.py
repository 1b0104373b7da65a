"""The actor-critic: memory that ends with episodes, sampling, input spaces."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from networks import policy_config, random_policy

from batchnav.config import from_dict, to_dict
from batchnav.errors import ConfigError
from batchnav.policy import ActorCritic
from batchnav.policy.actions import sample_categorical
from batchnav.policy.config import MEMORIES, PolicyConfig
from batchnav.policy.lstm import EpisodicLSTM
from batchnav.policy.memory import Memory, map_state
from batchnav.policy.observations import EPS, RunningNorm, log_distance

ROUNDING = 1e-5  # float32, the same sums in batches of another size
SMALL = policy_config(base_width=4, visual_size=12, hidden_size=16, layers=2, embedding_size=6, polar=("goal",))
SPACE = spaces.Dict({"depth": spaces.Box(0.0, 1.0, (1, 16, 16)), "goal": spaces.Box(-math.inf, math.inf, (2,))})


def make(config=SMALL, space=SPACE, num_actions=4):
    return random_policy(space, config, num_actions)


def sequence(T, B, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return {
        "obs": {
            "depth": torch.rand(T, B, 1, 16, 16, generator=generator),
            "goal": torch.randn(T, B, 2, generator=generator),
        },
        "prev_action": torch.randint(4, (T, B), generator=generator),
        "starts": torch.rand(T, B, generator=generator) < 0.3,
        "actions": torch.randint(4, (T, B), generator=generator),
    }


def close(a, b):
    torch.testing.assert_close(a, b, atol=ROUNDING, rtol=ROUNDING)


def test_lstm_without_starts_is_torchs():
    torch.manual_seed(0)
    lstm = EpisodicLSTM(5, 7, 2)
    with torch.no_grad():
        for parameter in lstm.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    x, state = torch.randn(6, 3, 5), torch.randn(2, 2, 3, 7)
    plain = torch.nn.LSTM(5, 7, 2)
    plain.load_state_dict(lstm.state_dict())
    expected, (h, c) = plain(x, (state[0], state[1]))
    y, after = lstm(x, torch.zeros(6, 3, dtype=torch.bool), state)
    close(y, expected)
    close(after, torch.stack([h, c]))


def test_lstm_resets_as_if_fragments_ran_alone():
    torch.manual_seed(0)
    lstm = EpisodicLSTM(5, 7, 2)
    x, state = torch.randn(9, 1, 5), torch.randn(2, 2, 1, 7)
    starts = torch.zeros(9, 1, dtype=torch.bool)
    starts[[3, 4, 7]] = True
    y, after = lstm(x, starts, state)
    no, zero = torch.zeros(9, 1, dtype=torch.bool), torch.zeros_like(state)
    fragments = [(0, 3, state), (3, 4, zero), (4, 7, zero), (7, 9, zero)]
    alone = [lstm(x[a:b], no[a:b], first) for a, b, first in fragments]
    close(y, torch.cat([output for output, _ in alone]))
    close(after, alone[-1][1])


def test_no_gradient_crosses_an_episode_start():
    lstm = EpisodicLSTM(2, 3, 1)
    x = torch.randn(4, 1, 2, requires_grad=True)
    starts = torch.tensor([[False], [False], [True], [False]])
    y, _ = lstm(x, starts, torch.zeros(2, 1, 1, 3))
    y[3].sum().backward()
    assert (x.grad[:2] == 0).all()
    assert (x.grad[2:] != 0).any(dim=2).all()


@pytest.mark.parametrize("change", [{"memory": "none"}, {"lstm": {"layers": 1}}, {"lstm": {"layers": 2}}])
def test_evaluate_sees_what_act_saw(change):
    policy = make(from_dict(PolicyConfig, to_dict(SMALL) | change))
    T, B = 7, 5
    s = sequence(T, B)
    state0 = map_state(torch.randn_like, policy.initial_state(B))
    state, acts = state0, []
    with torch.no_grad():
        for t in range(T):
            obs = {name: value[t] for name, value in s["obs"].items()}
            acts.append(policy.act(obs, s["prev_action"][t], s["starts"][t], state, torch.rand(B)))
            state = acts[-1].state
        actions = torch.stack([act.action for act in acts])
        seen = policy.evaluate(s["obs"], s["prev_action"], s["starts"], state0, actions)
    close(seen.log_prob, torch.stack([act.log_prob for act in acts]))
    close(seen.value, torch.stack([act.value for act in acts]))
    assert ((seen.entropy >= 0) & (seen.entropy <= math.log(4) + ROUNDING)).all()


def test_the_previous_action_is_read_except_at_a_start():
    policy, s = make(), sequence(1, 4)
    obs = {name: value[0] for name, value in s["obs"].items()}
    state = torch.randn(2, 2, 4, 16)
    for starting in (True, False):
        start = torch.full((4,), starting)
        values = [policy.value(obs, torch.full((4,), a), start, state) for a in (0, 3)]
        assert torch.equal(*values) == starting


def test_goal_is_read_in_polar_form():
    policy, s = make(), sequence(1, 4)
    obs = {name: value[0] for name, value in s["obs"].items()}
    turned = {**obs, "goal": obs["goal"] + torch.tensor([0.0, 2 * math.pi])}
    rest = (torch.zeros(4, dtype=torch.int64), torch.zeros(4, dtype=torch.bool), policy.initial_state(4))
    close(policy.value(obs, *rest), policy.value(turned, *rest))
    assert policy.embeddings["goal"].in_features == 3


def test_log_distance_resolves_near_and_far():
    policy, s = make(dataclasses.replace(SMALL, log_distance=True)), sequence(1, 4)
    read: list[torch.Tensor] = []
    policy.embeddings["goal"].register_forward_hook(lambda _, inputs, output: read.append(inputs[0][0]))
    r = torch.tensor([0.195, 0.205, 10.0, 10.01])
    goal = torch.stack([r, torch.full_like(r, 0.3)], 1)
    rest = (torch.zeros(4, dtype=torch.int64), torch.zeros(4, dtype=torch.bool), policy.initial_state(4))
    policy.value({name: value[0] for name, value in s["obs"].items()} | {"goal": goal}, *rest)
    near, far = (read[0][0] - read[0][1]).norm(), (read[0][2] - read[0][3]).norm()
    assert near > 10 * 0.01  # where success begins, a centimetre counts ten times as much as it does in metres
    assert near > 10 * far


def test_every_distance_can_be_read_by_its_logarithm():
    read = log_distance(torch.tensor([[-1e-6], [0.0], [500.0]]))  # the first is what rounding may leave of the second
    assert read.isfinite().all() and read.abs().max() < 10  # 500 m do not drown all else
    assert torch.equal(read[0], read[1])


def test_sampling_follows_the_probabilities():
    log_probs = torch.tensor([0.1, 0.0, 0.6, 0.3]).log().repeat(10_000, 1)
    uniforms = (torch.arange(10_000) + 0.5) / 10_000
    counts = torch.bincount(sample_categorical(log_probs, uniforms), minlength=4)
    assert (counts - torch.tensor([1000, 0, 6000, 3000])).abs().max() <= 1  # a border value may fall either way
    edges = torch.tensor([0.0, 1.0 - 2.0**-24])
    assert sample_categorical(torch.zeros(2, 4).log_softmax(-1), edges).tolist() == [0, 3]


def test_most_probable_action_without_uniforms():
    policy, s = make(), sequence(1, 8)
    obs = {name: value[0] for name, value in s["obs"].items()}
    rest = (s["prev_action"][0], s["starts"][0], policy.initial_state(8))
    best = policy.act(obs, *rest)
    for u in np.linspace(0, 0.999, 20):
        act = policy.act(obs, *rest, torch.full((8,), float(u)))
        assert (act.log_prob <= best.log_prob + ROUNDING).all()


def test_initial_heads():
    torch.manual_seed(0)
    policy = ActorCritic(SPACE, spaces.Discrete(4), SMALL)
    close(policy.actor.weight @ policy.actor.weight.T, 1e-4 * torch.eye(4))  # orthogonal rows of length 0.01
    close(policy.critic.weight.norm(dim=1), torch.tensor([0.1]))
    assert policy.actor.bias.abs().max() == 0 and policy.critic.bias.abs().max() == 0


def test_plain_observations_and_no_memory():
    config = policy_config(layers=0, hidden_size=8)
    policy = ActorCritic(spaces.Box(-1.0, 1.0, (4,)), spaces.Discrete(2), config)
    assert not hasattr(policy, "previous_action")
    state = policy.initial_state(3)
    act = policy.act(torch.rand(3, 4), torch.zeros(3).long(), torch.ones(3, dtype=torch.bool), state, torch.rand(3))
    assert act.action.shape == act.value.shape == (3,) and act.state == ()


def test_a_memory_without_a_method_is_named(monkeypatch):
    class Half(Memory):
        """A memory that defines its constructor only."""

        output_size = 8

        @classmethod
        def from_config(cls, input_size, config, settings=None):
            return cls()

    monkeypatch.setitem(MEMORIES, "half", Half)
    policy = ActorCritic(SPACE, spaces.Discrete(4), dataclasses.replace(SMALL, memory="half"))
    with pytest.raises(NotImplementedError, match="Half: found no method `initial_state`, expected one; define it"):
        policy.initial_state(3)
    with pytest.raises(NotImplementedError, match="Memory: found no method `from_config`"):
        Memory.from_config(4, SMALL)
    s = sequence(2, 3)
    with pytest.raises(NotImplementedError, match="Half: found no method `forward`"):
        policy.evaluate(s["obs"], s["prev_action"], s["starts"], (), s["actions"])


def test_blind_reads_no_image():
    policy = make(PolicyConfig(**{**vars(SMALL), "blind": True}))
    assert policy.encoder is None and list(policy.observation_shapes) == ["goal"]
    policy.value(
        {"goal": torch.rand(3, 2)}, torch.zeros(3).long(), torch.ones(3, dtype=torch.bool), policy.initial_state(3)
    )


@pytest.mark.parametrize(
    ("space", "actions", "config", "message"),
    [
        (spaces.Box(0, 1, (1, 1, 2, 2)), spaces.Discrete(2), {}, "'observation'.*expected floats"),
        (spaces.Box(0, 255, (5,), np.uint8), spaces.Discrete(2), {}, "'observation'.*bytes"),
        (spaces.Dict({"a": spaces.Discrete(3, start=1)}), spaces.Discrete(2), {}, "'a'.*integers from 1 to 3"),
        (spaces.Dict({"a": spaces.Discrete(10**6)}), spaces.Discrete(2), {}, "'a'.*integers from 0 to 999999"),
        (spaces.Box(-1, 5, (), np.int64), spaces.Discrete(2), {}, "integers from -1 to 5"),
        (spaces.Box(0, 9, (2,), np.int64), spaces.Discrete(2), {}, "'observation'.*integer"),
        (spaces.Dict({"a": spaces.MultiDiscrete([3, 3])}), spaces.Discrete(2), {}, "'a'.*integer"),
        (spaces.Box(0, 1, (4,)), spaces.Discrete(2), {"memory": "elephant"}, "memory: found 'elephant', expected one"),
        (spaces.Box(0, 9, (1, 32, 32), np.int32), spaces.Discrete(2), {}, "'observation'.*bytes"),
        (spaces.Box(0, 1, (3,)), spaces.Box(0, 1, (2,)), {}, "Discrete"),
        (spaces.Dict({"goal": spaces.Box(0, 1, (3,))}), spaces.Discrete(2), {"polar": ("goal",)}, "polar.*'goal'"),
        (spaces.Box(0, 1, (1, 64, 64)), spaces.Discrete(2), {"blind": True, "memory": "none"}, "blind"),
    ],
)
def test_spaces_that_do_not_fit(space, actions, config, message):
    with pytest.raises(ConfigError, match=message):
        ActorCritic(space, actions, PolicyConfig(**config))


def test_images_of_one_size_are_channels_of_one_and_bytes_are_scaled():
    space = spaces.Dict({
        "depth": spaces.Box(0, 1, (1, 32, 32)), "rgb": spaces.Box(0, 255, (3, 32, 32), np.uint8),
        "left_depth": spaces.Box(0, 1, (1, 16, 24)),
    })  # fmt: skip
    config = policy_config(base_width=4, visual_size=8, hidden_size=8)
    policy = ActorCritic(space, spaces.Discrete(3), config)
    assert policy.images == [("depth", "rgb"), ("left_depth",)]
    assert policy.encoder.stem.in_channels == 4 * 16  # no depth bins beside colour
    depth, left = torch.rand(2, 1, 32, 32), torch.rand(2, 1, 16, 24)
    rgb = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    first = (torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.bool), policy.initial_state(2))
    from_bytes = policy.act({"depth": depth, "rgb": rgb, "left_depth": left}, *first)
    from_floats = policy.act({"depth": depth, "rgb": rgb / 255, "left_depth": left}, *first)
    torch.testing.assert_close(from_bytes.log_prob, from_floats.log_prob)


# Running mean and variance of images

FEW = policy_config(base_width=4, visual_size=12, hidden_size=16, normalized=("rgb",))
IMAGES = spaces.Dict(
    {"rgb": spaces.Box(0, 255, (3, 16, 16), np.uint8), "depth": spaces.Box(0.0, 1.0, (1, 16, 16), np.float32)}
)


def rollouts(count, kind=torch.uint8):
    generator = torch.Generator().manual_seed(0)
    images = [torch.randint(40 * k, 100 + 50 * k, (4, 6, 3, 16, 16), generator=generator) for k in range(count)]
    return [image.to(torch.uint8) if kind == torch.uint8 else image / 255.0 for image in images]


@pytest.mark.parametrize("kind", [torch.uint8, torch.float32])
def test_mean_and_variance_of_all_rollouts(kind):
    norm, seen = RunningNorm(3), rollouts(4, kind)
    for images in seen:
        norm.update(images)
    values = torch.cat(seen).double() / (255.0 if kind == torch.uint8 else 1.0)
    torch.testing.assert_close(norm.mean.double(), values.mean((0, 1, 3, 4)), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(norm.var.double(), values.var((0, 1, 3, 4), correction=0), atol=1e-6, rtol=1e-4)
    found = norm(values.float()).double()
    torch.testing.assert_close(found.mean((0, 1, 3, 4)), torch.zeros(3).double(), atol=1e-4, rtol=0)
    torch.testing.assert_close(found.std((0, 1, 3, 4)), torch.ones(3).double(), atol=1e-3, rtol=0)


def test_parts_of_rollouts_in_several_processes_are_counted_as_one():
    whole, parts = RunningNorm(3), [RunningNorm(3), RunningNorm(3)]
    for images in rollouts(3):
        whole.update(images)
        told = []
        for half in images.chunk(2, dim=1):
            RunningNorm(3).update(half, lambda found, told=told: told.append(found) or found)
        for part, half in zip(parts, images.chunk(2, dim=1), strict=True):
            part.update(half, lambda found, told=told: (told[0] + told[1]) / 2)
    for part in parts:
        torch.testing.assert_close(part.mean, whole.mean)
        torch.testing.assert_close(part.var, whole.var)


def test_before_the_first_rollout_images_stay_as_they_are():
    image = torch.rand(2, 3, 8, 8)
    torch.testing.assert_close(RunningNorm(3)(image), image, atol=EPS, rtol=EPS)


def test_an_image_of_one_colour_stays_finite():
    norm = RunningNorm(3)
    norm.update(torch.full((2, 2, 3, 4, 4), 255, dtype=torch.uint8))
    assert norm.var.max() < 1e-6 and torch.isfinite(norm(torch.ones(1, 3, 4, 4))).all()


def test_a_policy_normalises_images_and_saves_the_statistics():
    torch.manual_seed(0)
    policy = ActorCritic(IMAGES, spaces.Discrete(4), FEW)
    obs = {"rgb": rollouts(1)[0], "depth": torch.rand(4, 6, 1, 16, 16)}
    read = [policy._prepare_image(name, obs[name]) for name in ("rgb", "depth")]
    torch.testing.assert_close(read[0], obs["rgb"] / 255.0, atol=EPS, rtol=EPS)
    policy.update_norms(obs)
    assert policy._prepare_image("rgb", obs["rgb"]).mean().abs() < 1e-4
    assert policy._prepare_image("depth", obs["depth"]) is obs["depth"]
    again = ActorCritic(IMAGES, spaces.Discrete(4), FEW)
    again.load_state_dict(policy.state_dict())
    torch.testing.assert_close(again.norms["rgb"].mean, policy.norms["rgb"].mean)
    assert not ActorCritic(IMAGES, spaces.Discrete(4), policy_config(base_width=4)).norms
