"""Actuation noise: moments of PyRobot's tables, seeds, collisions, errors, and no noise by default."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from worlds import boxes

from batchnav.envs.nav import NavEnv
from batchnav.errors import ConfigError
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import make_scene
from batchnav.sim.bodies import CUT_OFF, FORWARD, LEFT, MEANS_AND_VARIANCES, RIGHT, STOP
from batchnav.tasks.episode_sampling import EpisodeTable

N = 20_000
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
CENTRE, HEADING = (6.0, 6.0), 0.7
"""Start of the agents: x and z, metres; heading, radians."""
ROUNDING = 1e-5
KEPT_VARIANCE = stats.truncnorm(-CUT_OFF, CUT_OFF).var()
"""Variance that truncation at 3 standard deviations leaves: 0.97334."""


@pytest.fixture(scope="module")
def floor():
    return make_scene("floor", boxes(((0.0, -0.2, 0.0), (12.0, 0.0, 12.0))))


def make(scene, n=N, place=CENTRE, heading=HEADING, device="cpu", seed=0, **options):
    """Environment whose agents all begin at one pose."""
    point = scene.navmesh.snap(np.array([[place[0], 0.0, place[1]]], np.float32))
    start = torch.from_numpy(point).repeat(n, 1).to(device)
    headings = torch.full((n,), heading, device=device)
    table = EpisodeTable(torch.zeros(n, dtype=torch.int32, device=device), start, headings, start)
    env = NavEnv(
        SceneBank.pack([scene], device), n, task="flee", sensors=(), episodes=table, seed=seed, max_steps=9, **options
    )
    env.reset()
    return env


def act(env, action):
    """Motion of every agent in its frame before the step, f64 [N, 3]: ahead, to the right, and turn to the left."""
    bodies = env.sim.bodies
    before, heading = bodies.position.double().clone(), bodies.heading.double().clone()
    env.step(torch.full((env.num_envs,), action, device=env.device))
    dx, _, dz = (bodies.position.double() - before).unbind(1)
    turned = bodies.heading.double() - heading
    sine, cosine = torch.sin(heading), torch.cos(heading)
    parts = -dx * sine - dz * cosine, dx * cosine - dz * sine, torch.atan2(torch.sin(turned), torch.cos(turned))
    return torch.stack(parts, dim=1).cpu().numpy()


def expected(robot, controller, action, times, asked):
    """SciPy distributions of the three noise variables of an action with commanded length or angle `asked`."""
    values = np.array(MEANS_AND_VARIANCES[robot, controller]).reshape(2, 3, 2)[0 if action == FORWARD else 1]
    found = []
    for part, (mean, variance) in enumerate(values):
        deviation = max(math.sqrt(variance), 1e-9)
        lowest = -CUT_OFF
        if part == (0 if action == FORWARD else 2):
            lowest = max(lowest, (-0.95 * asked - mean) / deviation)
        found.append(stats.truncnorm(lowest, CUT_OFF, times * mean, times * deviation))
    return found


@pytest.mark.parametrize(("robot", "controller"), MEANS_AND_VARIANCES)
@pytest.mark.parametrize(("action", "degrees"), [(FORWARD, 10.0), (LEFT, 30.0), (RIGHT, 10.0)])
def test_motions_have_the_moments_of_the_tables(floor, robot, controller, action, degrees):
    env = make(
        floor, robot=robot, controller=controller, actuation_noise=0.5, turn_angle_deg=degrees, forward_step=0.25
    )
    noise = act(env, action)
    turn = math.radians(degrees)
    noise -= [0.25, 0.0, 0.0] if action == FORWARD else [0.0, 0.0, turn if action == LEFT else -turn]
    if action == RIGHT:
        noise[:, 2] *= -1.0
    for part, distribution in enumerate(expected(robot, controller, action, 0.5, 0.25 if action == FORWARD else turn)):
        mean, deviation = distribution.mean(), distribution.std()
        assert noise[:, part].mean() == pytest.approx(mean, abs=5 * deviation / N**0.5 + ROUNDING)
        assert noise[:, part].std() == pytest.approx(deviation, abs=5 * deviation / (2 * N) ** 0.5 + ROUNDING)
        if deviation > 1e-3:
            assert stats.kstest(noise[:, part], distribution.cdf).pvalue > 1e-4
    correlation = np.corrcoef(noise, rowvar=False) - np.eye(3)
    assert np.nanmax(abs(correlation)) < 5 / N**0.5 or controller == "Movebase"


def test_published_moments():
    """Noise of the robot of the 2020 Habitat challenge with multiplier 1, from an independent computation."""
    for action, asked, numbers in (
        (FORWARD, 0.25, ((0.017, 0.0825), (0.042, 0.1496), (0.031, 0.1591))),
        (LEFT, math.radians(30.0), ((0.001, 0.0312), (0.005, 0.0624), (0.043, 0.1286))),
    ):
        for distribution, (mean, deviation) in zip(
            expected("LoCoBot", "Proportional", action, 1.0, asked), numbers, strict=True
        ):
            assert (distribution.mean(), distribution.std()) == pytest.approx((mean, deviation), abs=1e-4)
    assert pytest.approx(0.97334, abs=1e-5) == KEPT_VARIANCE
    turn = expected("LoCoBot", "Proportional", LEFT, 1.0, math.radians(10.0))[2]
    assert (turn.mean(), turn.std()) == pytest.approx((0.0577, 0.1156), abs=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_the_same_seed_gives_the_same_run(floor, device):
    noise = {"actuation_noise": 1.0, "controller": "Proportional"}
    first, again, other = (make(floor, 64, device=device, seed=seed, **noise) for seed in (3, 3, 4))
    beyond = make(floor, 32, device=device, seed=3, first_env=32, **noise)
    for action in (FORWARD, LEFT, FORWARD, RIGHT):
        a, b, c, d = (act(env, action) for env in (first, again, other, beyond))
        assert np.array_equal(a, b) and not np.array_equal(a, c)
        assert np.array_equal(a[32:], d)  # agent numbers continue across processes
        assert len(np.unique(a[:, 0])) > 60
    resumed = make(floor, 64, device=device, seed=9, **noise)
    resumed.load_state_dict(first.state_dict())
    assert np.array_equal(act(resumed, FORWARD), act(first, FORWARD))
    act(first, STOP)
    assert not np.array_equal(act(first, FORWARD), a)  # another episode


@pytest.mark.cuda
def test_cuda_moves_as_the_cpu_does(floor):
    envs = [make(floor, 256, device=device, seed=1, actuation_noise=0.5) for device in ("cpu", "cuda")]
    for action in (FORWARD, LEFT, FORWARD, RIGHT, FORWARD):
        a, b = (act(env, action) for env in envs)
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_a_noisy_turn_may_collide_and_adds_to_the_path_length(floor):
    env = make(floor, 500, place=(0.1, 6.0), heading=math.pi / 2, actuation_noise=1.0, controller="Proportional")
    act(env, LEFT)  # the west wall is 5 cm ahead
    bodies = env.sim.bodies
    assert 20 < bodies.collisions.sum() < 480
    assert bodies.path_length.min() > 0.0 and bodies.path_length.mean() < 0.2
    act(env, STOP)
    assert not env.sim.bodies.path_length.any()


def test_a_multiplier_of_zero_is_exact(floor):
    exact, noiseless = make(floor, 8), make(floor, 8, actuation_noise=0.0, robot="LoCoBot-Lite", controller="Movebase")
    for action in (FORWARD, LEFT, FORWARD):
        assert np.array_equal(act(exact, action), act(noiseless, action))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"actuation_noise": -0.1}, "actuation_noise: found -0.1, expected 0 to 10"),
        ({"actuation_noise": float("nan")}, "actuation_noise: found nan"),
        ({"robot": "Spot"}, "robot: found 'Spot', expected one of 'LoCoBot', 'LoCoBot-Lite'"),
        ({"controller": "proportional"}, "controller: found 'proportional', expected one of 'ILQR'"),
    ],
)
def test_invalid_noise_settings_are_refused(floor, options, message):
    with pytest.raises(ConfigError, match=message):
        make(floor, 1, **options)
