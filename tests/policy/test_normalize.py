"""Running mean and variance of images."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from networks import policy_config

from batchnav.policy import ActorCritic
from batchnav.policy.normalize import EPS, RunningNorm

SMALL = policy_config(base_width=4, visual_size=12, hidden_size=16, normalized=("rgb",))
SPACE = spaces.Dict(
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
    policy = ActorCritic(SPACE, spaces.Discrete(4), SMALL)
    obs = {"rgb": rollouts(1)[0], "depth": torch.rand(4, 6, 1, 16, 16)}
    read = [policy._prepare_image(name, obs[name]) for name in ("rgb", "depth")]
    torch.testing.assert_close(read[0], obs["rgb"] / 255.0, atol=EPS, rtol=EPS)
    policy.update_norms(obs)
    assert policy._prepare_image("rgb", obs["rgb"]).mean().abs() < 1e-4
    assert policy._prepare_image("depth", obs["depth"]) is obs["depth"]
    again = ActorCritic(SPACE, spaces.Discrete(4), SMALL)
    again.load_state_dict(policy.state_dict())
    torch.testing.assert_close(again.norms["rgb"].mean, policy.norms["rgb"].mean)
    assert not ActorCritic(SPACE, spaces.Discrete(4), policy_config(base_width=4)).norms
