"""Noise of goal masks: rates, correlation in time, scores, late masks, seeds and cameras; detectors in their place."""

import numpy as np
import pytest
import torch
from numba import types as nb

from batchnav.envs.config import NavConfig, with_options
from batchnav.errors import ArgumentError, ConfigError
from batchnav.runtime.kernels.arrays import view
from batchnav.sensors import mask_noise
from batchnav.sensors.goal_mask import DETECTORS, GoalMaskConfig, as_mask
from batchnav.sensors.mask_noise import MaskNoiseConfig, SeenObjects
from batchnav.sensors.sensor import NoiseCounters

N, SIDE, STEPS = 400, 16, 24
ONLY = {"mask_missed": 0.0, "mask_confused": 0.0, "mask_blobs": 0.0, "mask_border": 0.0, "mask_late": 0.0}
EXACT = {"mask_noise": 1.0, "mask_scores": 0.0, **ONLY}
"""Settings without an error, for tests that add one."""


def detected(device="cpu", steps=STEPS, seed=0, first=0, camera=0, shown=None, **rates):
    """Masks u8 [steps, N, SIDE, SIDE]. Half an image shows an object of the goal, a quarter one of another category."""
    rates = MaskNoiseConfig(**EXACT | rates).noise
    counters = (torch.full((1,), value, dtype=torch.int64, device=device) for value in (seed, first))
    episode, step = torch.zeros(2, N, dtype=torch.int32, device=device)
    noise = NoiseCounters(*counters, episode, step, camera)
    goal = torch.zeros(N, 1, SIDE, SIDE, dtype=torch.int32, device=device)
    goal[:, :, :, : SIDE // 2], goal[:, :, : SIDE // 2, SIDE // 2 :] = 2, 1
    wanted, mask = torch.ones(N, dtype=torch.int64, device=device), torch.zeros_like(goal, dtype=torch.uint8)
    late = torch.zeros(N if rates.late else 0, 2, SIDE, SIDE, dtype=torch.uint8, device=device)
    found = []
    for k in range(steps):
        step.fill_(k)
        if shown is not None:
            goal.copy_(shown[k])
        seen = SeenObjects(goal, 10 * goal, wanted)
        mask_noise.detect((N, SIDE, SIDE), view(noise), view(seen), rates, view(late), view(mask))
        found.append(mask[:, 0].cpu().clone())
    return torch.stack(found)


def goal_share(masks):
    """Share of views [steps, N] in which the object of the goal is seen, as bool."""
    return (masks[:, :, :, : SIDE // 2] > 0).flatten(2).all(2)


def test_without_errors_the_mask_is_the_true_one(device):
    masks = detected(device, steps=2)
    assert (masks[..., : SIDE // 2] == 255).all() and not masks[..., SIDE // 2 :].any()
    assert MaskNoiseConfig().noise is None and GoalMaskConfig().is_exact


@pytest.mark.parametrize("rate", [0.2, 0.7])
def test_objects_are_missed_in_runs_of_steps(rate):
    seen = goal_share(detected(steps=80, mask_missed=rate)).numpy()
    assert seen.mean() == pytest.approx(1.0 - rate, abs=0.03)
    runs = seen.reshape(-1, mask_noise.RUN, N)
    assert (runs == runs[:, :1]).all()
    of_episodes = seen.mean(0)  # each object has its own rate in an episode
    assert of_episodes.std() > 1.3 * (rate * (1 - rate) / len(runs)) ** 0.5


def test_other_objects_are_confused_for_whole_episodes():
    masks = detected(steps=80, mask_confused=0.1)
    confused = (masks[..., : SIDE // 2, SIDE // 2 :] > 0).flatten(2)
    assert (confused.all(2) == confused.any(2)).all()  # whole instances
    views = confused.all(2).numpy()
    assert views.mean() == pytest.approx(0.1, abs=0.03)
    assert views.any(0).mean() == pytest.approx(0.2, abs=0.05)
    assert not (masks[..., SIDE // 2 :, SIDE // 2 :]).any()  # surfaces that are no objects


def test_blobs_have_their_rate_and_stay_small():
    masks = detected(shown=torch.zeros(STEPS, 1, 1, 1, 1, dtype=torch.int32), mask_blobs=0.3) > 0
    pixels = masks.flatten(2).sum(2)
    assert (pixels > 0).float().mean() == pytest.approx(0.3, abs=0.05)
    assert pixels.max() <= np.pi * (0.15 * SIDE + 1) ** 2


def test_borders_are_ragged_and_centred():
    masks = detected(steps=4, mask_border=1.0) > 0
    columns = masks[..., SIDE // 2 :, :].float().mean((0, 1, 2))  # beside no other object
    assert columns[0] == 1.0 and columns[-1] == 0.0
    assert columns.sum() == pytest.approx(SIDE / 2, abs=0.2) and 0.1 < columns[SIDE // 2] < 0.6


def test_late_masks_are_those_of_the_step_before():
    shown = torch.arange(STEPS, dtype=torch.int32).view(-1, 1, 1, 1, 1) % 2 * 2  # the goal in odd steps alone
    assert (detected(shown=shown, mask_late=0.0)[1::2] == 255).all()
    late = detected(shown=shown, mask_late=0.25)
    is_late = (late > 0).flatten(2).all(2) != (torch.arange(STEPS) % 2 == 1)[:, None]
    assert not is_late[0].any() and is_late[1:].float().mean() == pytest.approx(0.25, abs=0.03)
    always = detected(shown=shown, mask_late=1.0)
    assert (always[2::2] == 255).all() and not always[1::2].any()


def test_false_scores_are_lower_than_true_ones_and_none_is_zero():
    masks = detected(steps=80, mask_scores=0.5, mask_confused=0.5).float()
    true, false = masks[..., : SIDE // 2], masks[..., : SIDE // 2, SIDE // 2 :]
    assert true.mean() / 255 == pytest.approx(1 - 0.5 / 3, abs=0.01) and true.min() >= 127
    assert false[false > 0].mean() / 255 == pytest.approx(1 - 0.5 * 2 / 3, abs=0.02)
    assert (
        detected(steps=8, mask_scores=1.0).min(-1).values.max() == 0 < detected(steps=8, mask_scores=1.0)[..., 0].min()
    )


def test_noise_differs_by_seed_agent_and_camera():
    rates = {"mask_missed": 0.5, "mask_border": 1.0, "mask_blobs": 0.5}
    kept = detected(**rates)
    assert torch.equal(kept, detected(**rates))
    assert torch.equal(kept[:, 1:], detected(first=1, **rates)[:, :-1])
    for other in ({"seed": 1}, {"camera": 1}):
        seen = [goal_share(masks).float().flatten() for masks in (kept, detected(**other, **rates))]
        assert abs(np.corrcoef(seen)[0, 1]) < 0.1


def test_settings_out_of_range_are_named():
    for name, value in (("mask_missed", 1.5), ("mask_confused", 0.6), ("mask_noise", -1.0), ("detector", "unknown")):
        with pytest.raises(ConfigError, match=name):
            with_options(NavConfig(), {name: value})
    assert MaskNoiseConfig(mask_noise=10.0).noise.confused == 0.2 and MaskNoiseConfig(mask_noise=10.0).noise.missed == 1


def test_masks_of_a_detector_are_checked(monkeypatch):
    monkeypatch.setitem(DETECTORS, "red", lambda rgb, category: rgb[:, :1] > 128)
    with pytest.raises(ConfigError, match="mask_noise: found 1 with the detector 'red'"):
        with_options(NavConfig(), {"detector": "red", "mask_noise": 1.0})
    shape = (2, 1, 3, 3)
    half = torch.full(shape, 0.5)
    assert (as_mask("red", half, shape) == 128).all() and (as_mask("red", half > 0, shape) == 255).all()
    assert not as_mask("red", half * float("nan"), shape).any()
    for wrong in (half[:1], np.zeros(shape), half.long()):
        with pytest.raises(ArgumentError, match="detector 'red': found"):
            as_mask("red", wrong, shape)


def test_the_noise_compiles_for_the_gpu(compile_ptx):
    longs, ints, images = nb.int64[::1], nb.int32[::1], nb.Array(nb.int32, 4, "C")
    counters = nb.NamedTuple((longs, longs, ints, ints, nb.int64), NoiseCounters)
    seen = nb.NamedTuple((images, images, longs), SeenObjects)
    rates = nb.NamedUniTuple(nb.float32, 6, mask_noise.MaskNoise)
    bytes_ = nb.Array(nb.uint8, 4, "C")
    assert ".f64" not in compile_ptx(mask_noise.detect, counters, seen, rates, bytes_, bytes_)
