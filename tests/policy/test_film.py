"""FiLM: policies with an encoder that images of the goal modulate, beside those that read them as channels."""

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from networks import policy_config, random_policy
from torch.nn import functional as F

from batchnav.config import to_dict
from batchnav.errors import CheckpointError, ConfigError
from batchnav.policy import ENCODERS, ActorCritic, load_policy, save_policy
from batchnav.policy.encoder import FiLMEncoder, modulated
from batchnav.policy.weights import load_weights

ROUNDING = 2e-5  # float32, the same sums in batches of another size
SIDE = 32
RGB = spaces.Box(0, 255, (3, SIDE, SIDE), np.uint8)
SPACE = spaces.Dict([("rgb", RGB), ("imagegoal", RGB), ("gps", spaces.Box(-math.inf, math.inf, (2,)))])
EARLY = policy_config(base_width=4, visual_size=12, hidden_size=16, layers=1, embedding_size=6)
FILM = dataclasses.replace(EARLY, film=("imagegoal",))
FUSIONS = pytest.mark.parametrize("config", [EARLY, FILM], ids=["early", "film"])
BOTH_ENCODERS = pytest.mark.parametrize("encoder", ["se_resnet9", "simple_cnn"])


def make(config=FILM, space=SPACE):
    return random_policy(space, config)


def images(*size, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (*size, 3, SIDE, SIDE), generator=generator, dtype=torch.uint8)


def sequence(T, B, seed=1):
    """Steps of B agents, whose image of the goal changes where an episode starts."""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.rand(T, B, generator=generator) < 0.3
    starts[0] = True
    episode = starts.long().cumsum(0) - 1
    return {
        "obs": {
            "rgb": images(T, B, seed=seed), "gps": torch.randn(T, B, 2, generator=generator),
            "imagegoal": images(T, B, seed=seed + 1)[episode, torch.arange(B)],
        },
        "prev_action": torch.randint(4, (T, B), generator=generator), "starts": starts,
        "actions": torch.randint(4, (T, B), generator=generator),
    }  # fmt: skip


def evaluated(policy, s):
    B = s["starts"].shape[1]
    return policy.evaluate(s["obs"], s["prev_action"], s["starts"], policy.initial_state(B), s["actions"])


def first(B):
    return torch.zeros(B, dtype=torch.int64), torch.ones(B, dtype=torch.bool)


def close(a, b):
    torch.testing.assert_close(a, b, atol=ROUNDING, rtol=ROUNDING)


def every_image(self, condition):
    """`FiLMEncoder._film_of` without reuse."""
    return self.modulation(condition.flatten(0, 1))


@BOTH_ENCODERS
def test_without_scale_and_shift_the_encoder_is_unchanged(encoder):
    config = dataclasses.replace(EARLY, encoder=encoder)
    torch.manual_seed(0)
    network = ENCODERS[encoder]((3, 30, 44), config)
    image = torch.rand(2, 3, 30, 44)
    x, maps = image, []
    for stage in network.stages():
        x = stage(x)
        maps.append(x)
    assert tuple(x.shape[1] for x in maps) == network.channels
    none = [torch.zeros(2, 2 * c, *x.shape[2:]) for c, x in zip(network.channels, maps, strict=True)]
    close(network(image, none), network(image))
    assert torch.equal(modulated(network.stages(), image, none), maps[-1])


def test_scales_and_shifts_follow_from_the_goals_feature_map_pixel_by_pixel():
    torch.manual_seed(0)
    film = FiLMEncoder((3, SIDE, SIDE), 3, FILM)
    image, goal = torch.rand(1, 2, 3, SIDE, SIDE), torch.rand(1, 2, 3, SIDE, SIDE)
    x, y = image[0], goal[0]
    stages = zip(film.encoder.stages(), film.trunk.stages(), film.film, strict=True)
    for own, others, layer in stages:
        x, y = own(x), others(y)
        changes = torch.einsum("bchw,oc->bohw", y, layer.weight[:, :, 0, 0]) + layer.bias[:, None, None]
        c = x.shape[1]
        x = (1.0 + changes[:, :c]) * x + changes[:, c:]
    x = F.conv2d(x, film.encoder.compress.weight, film.encoder.compress.bias, padding=1)
    close(film(image, goal)[0], film.encoder.project(F.relu(x).flatten(1)))


@FUSIONS
@BOTH_ENCODERS
def test_the_goal_changes_the_action_and_is_learned_from(config, encoder):
    policy = make(dataclasses.replace(config, encoder=encoder))
    assert policy.images == [("rgb",) if config.film else ("rgb", "imagegoal")]
    assert policy.film == config.film
    s = sequence(4, 3)
    found = evaluated(policy, s)
    other = evaluated(policy, s | {"obs": s["obs"] | {"imagegoal": images(4, 3, seed=7)}})
    assert ((found.outputs - other.outputs).abs().amax(2) > 5 * ROUNDING).all()
    (found.log_prob.sum() + found.value.sum()).backward()
    unread = {name for name, p in policy.named_parameters() if not (p.grad != 0).any()}
    assert all("squeeze" in name or "excite" in name for name in unread)  # a single ReLU unit may be off


@FUSIONS
def test_sequences_are_what_steps_are(config):
    T, B = 6, 5
    policy, s = make(config), sequence(T, B)
    state, outputs, values = policy.initial_state(B), [], []
    with torch.no_grad():
        for t in range(T):
            obs = {name: value[t] for name, value in s["obs"].items()}
            found, value, state = policy.step(obs, s["prev_action"][t], s["starts"][t], state)
            outputs.append(found)
            values.append(value)
    together = evaluated(policy, s)
    close(torch.stack(outputs), together.outputs.detach())
    close(torch.stack(values), together.value.detach())
    alone = [evaluated(policy, _agent(s, b)).outputs for b in range(B)]
    close(torch.cat(alone, dim=1), together.outputs)


def _agent(s, b):
    obs = {name: value[:, b : b + 1] for name, value in s["obs"].items()}
    return {name: obs if name == "obs" else value[:, b : b + 1] for name, value in s.items()}


def test_reuse_in_learning_is_recomputing_with_its_gradients(monkeypatch):
    policy, s = make(), sequence(8, 5)
    rows = []
    compute = FiLMEncoder.modulation
    monkeypatch.setattr(FiLMEncoder, "modulation", lambda self, x: rows.append(len(x)) or compute(self, x))
    found = evaluated(policy, s)
    assert rows == [int(s["starts"].sum())]  # once an episode
    (found.log_prob.sum() + found.value.sum()).backward()
    gradients = [p.grad.clone() for p in policy.parameters()]
    policy.zero_grad()
    monkeypatch.setattr(FiLMEncoder, "_film_of", every_image)
    expected = evaluated(policy, s)
    assert rows[1:] == [8 * 5]
    (expected.log_prob.sum() + expected.value.sum()).backward()
    close(found.outputs, expected.outputs)
    for gradient, p in zip(gradients, policy.parameters(), strict=True):
        torch.testing.assert_close(gradient, p.grad, atol=1e-3, rtol=1e-3)  # sums over pixels in another order


def test_reuse_in_acting_is_recomputing(monkeypatch):
    T, B = 8, 5
    policy, s = make(), sequence(T, B)
    rows = []
    compute = FiLMEncoder.modulation
    monkeypatch.setattr(FiLMEncoder, "modulation", lambda self, x: rows.append(len(x)) or compute(self, x))

    def steps():
        state, found = policy.initial_state(B), []
        for t in range(T):
            # some steps under inference mode, whose tensors no other mode may change
            with torch.no_grad(), torch.inference_mode(t % 3 == 1), torch.no_grad():
                obs = {name: value[t].clone() for name, value in s["obs"].items()}
                outputs, _, state = policy.step(obs, s["prev_action"][t], s["starts"][t], state)
                found.append(outputs.clone())
        return torch.stack(found)

    found = steps()
    starts = s["starts"].sum(1).tolist()
    assert rows == [n for n in starts if n]  # each goal once
    rows.clear()
    with torch.no_grad():
        policy.encoder.film[0].bias.add_(0.3)
    changed = steps()
    assert rows[0] == B and (changed - found).abs().max() > 0.01  # other weights: nothing is reused
    monkeypatch.setattr(FiLMEncoder, "_film_of", every_image)
    close(changed, steps())


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_weights_that_an_optimiser_changed_are_not_reused(optimizer, monkeypatch):
    from batchnav.learning import PPOConfig
    from batchnav.learning.optimizers import make_optimizer

    policy, obs = make(), {name: value[0] for name, value in sequence(1, 4)["obs"].items()}
    act = lambda: policy.step(obs, *first(4), policy.initial_state(4))[0].detach()  # noqa: E731
    with torch.no_grad():
        act()
    steps = make_optimizer(policy, PPOConfig(optimizer=optimizer), torch.tensor(0.01))
    sum(p.square().sum() for p in policy.parameters()).backward()
    steps.step()
    with torch.no_grad():
        found = act()
    monkeypatch.setattr(FiLMEncoder, "_film_of", every_image)
    close(found, act())


@FUSIONS
def test_a_policy_is_saved_and_read_back(config, tmp_path):
    policy, s = make(config), sequence(3, 2)
    save_policy(policy, tmp_path / "policy.safetensors")
    loaded = load_policy(tmp_path / "policy.safetensors").network
    assert to_dict(loaded.config) == to_dict(config)
    assert torch.equal(evaluated(loaded, s).outputs, evaluated(policy, s).outputs)
    fresh = make(config)
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.add_(0.1)
    load_weights(fresh, tmp_path / "policy.safetensors")
    assert torch.equal(evaluated(fresh, s).outputs, evaluated(policy, s).outputs)
    with pytest.raises(CheckpointError, match="film"):
        load_weights(make(FILM if config is EARLY else EARLY), tmp_path / "policy.safetensors")


@FUSIONS
@BOTH_ENCODERS
def test_products_in_bfloat16(config, encoder):
    policy, s = make(dataclasses.replace(config, encoder=encoder)), sequence(3, 2)
    expected = evaluated(policy, s)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = evaluated(policy, s)
        with torch.no_grad():
            obs = {name: value[0] for name, value in s["obs"].items()}
            alone = policy.step(obs, s["prev_action"][0], s["starts"][0], policy.initial_state(2))[0]
    assert found.outputs.dtype == torch.float32
    torch.testing.assert_close(found.outputs, expected.outputs, atol=0.3, rtol=0.1)  # bfloat16 has 8 bits
    torch.testing.assert_close(alone, found.outputs[0].detach(), atol=0.1, rtol=0.1)
    found.log_prob.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in policy.parameters())


def test_normalised_images_modulate():
    policy = make(dataclasses.replace(FILM, normalized=("rgb", "imagegoal")))
    s = sequence(3, 2)
    before = evaluated(policy, s).outputs.detach()
    policy.update_norms(s["obs"])
    close(policy.norms["imagegoal"].mean, (s["obs"]["imagegoal"] / 255).mean((0, 1, 3, 4)))
    assert (evaluated(policy, s).outputs - before).abs().max() > 0.01


def test_images_modulate_those_of_their_size():
    sizes = {"a": (1, SIDE), "b": (3, SIDE), "c": (1, SIDE), "d": (2, SIDE), "e": (1, 16), "f": (3, 16), "g": (1, 24)}
    space = spaces.Dict([(name, spaces.Box(0, 1, (c, side, side))) for name, (c, side) in sizes.items()])
    policy = make(dataclasses.replace(EARLY, film=("f", "d", "a")), space)
    assert policy.images == [("b", "c"), ("e",), ("g",)] and policy.film == ("a", "d", "f")
    large, (small, other) = policy.encoder, policy.more_encoders
    assert (large.encoder.stem.in_channels, large.trunk.stem.in_channels) == (4 * 16, 3 * 16)
    assert (small.encoder.stem.in_channels, small.trunk.stem.in_channels) == (11 * 16, 3 * 16)  # with depth bins
    assert not isinstance(other, FiLMEncoder)
    obs = {name: torch.rand(2, *box.shape) for name, box in space.spaces.items()}
    policy.step(obs, *first(2), policy.initial_state(2))


def test_blind_policies_have_no_film():
    policy = make(dataclasses.replace(FILM, blind=True))
    assert policy.encoder is None and policy.film == ()


@pytest.mark.parametrize(
    ("film", "sides", "encoder", "message"),
    [
        (("imagegaol",), (SIDE, SIDE), "simple_cnn", "film: found 'imagegaol', expected images among rgb, imagegoal"),
        (("gps",), (SIDE, SIDE), "simple_cnn", "film: found 'gps', expected images"),
        (("imagegoal",), (SIDE, 16), "simple_cnn", "film: found 'imagegoal' with.*imagegoal 16x16.*leave film empty"),
        (("imagegoal", "rgb"), (SIDE, SIDE), "simple_cnn", "film: found 'rgb' with no other image"),
        (("imagegoal",), (SIDE, SIDE), "plain", "film: found encoder 'plain', expected.*se_resnet9, simple_cnn"),
    ],
)
def test_film_that_does_not_fit(film, sides, encoder, message, monkeypatch):
    monkeypatch.setitem(ENCODERS, "plain", lambda shape, config: torch.nn.Flatten())
    boxes = {
        name: spaces.Box(0, 255, (3, side, side), np.uint8)
        for name, side in zip(("rgb", "imagegoal"), sides, strict=True)
    }
    space = spaces.Dict([*boxes.items(), ("gps", SPACE["gps"])])
    with pytest.raises(ConfigError, match=message):
        ActorCritic(space, spaces.Discrete(4), dataclasses.replace(EARLY, film=film, encoder=encoder))


def test_copies_and_other_batch_sizes_do_not_share():
    policy, s = make(), sequence(1, 6)
    obs = {name: value[0] for name, value in s["obs"].items()}
    with torch.no_grad():
        whole = policy.step(obs, *first(6), policy.initial_state(6))[0]
        twin = copy.deepcopy(policy)
        part = twin.step({n: v[:2] for n, v in obs.items()}, *first(2), twin.initial_state(2))[0]
        again = policy.step(obs, *first(6), policy.initial_state(6))[0]
    close(part, whole[:2])
    assert torch.equal(again, whole)
