"""The formulas of tasks against values computed by hand: those of their docstrings, and further ones."""

import doctest

import numpy as np
import pytest
import torch

from batchnav.data.scenes.load import load_scene
from batchnav.envs.nav import NavEnv
from batchnav.scene.bank import SceneBank
from batchnav.sim.bodies import collided
from batchnav.tasks import formulas
from batchnav.tasks.episode_sampling import accept_detour
from batchnav.tasks.formulas import path_efficiency, soft_spl, spl, step_reward

F = np.float32
ROUNDING = 1e-6
"""Relative error of a few float32 operations."""


def test_worked_numbers_of_the_docstrings():
    tests = [
        doctest.DocTestParser().get_doctest(function.__doc__, vars(formulas).copy(), name, formulas.__file__, 0)
        for name, function in vars(formulas).items()
        if name in ("spl", "soft_spl", "step_reward")
    ]
    results = [doctest.DocTestRunner().run(test) for test in tests]
    assert [result.failed for result in results] == [0, 0, 0] and all(result.attempted > 1 for result in results)


def test_a_path_of_no_length_is_the_shortest():
    assert path_efficiency(F(0.0), F(0.0)) == spl(True, F(0.0), F(0.0)) == 1.0


def test_soft_spl_counts_progress_without_success():
    # Half of the distance is left, after a path as long as the shortest: (1 - 2/4) * 4 / max(4, 4).
    assert soft_spl(F(2.0), F(4.0), F(4.0)) == pytest.approx(0.5, rel=ROUNDING)
    # Further away than at the start: never below 0.
    assert soft_spl(F(6.0), F(4.0), F(4.0)) == 0.0
    assert soft_spl(F(np.inf), F(4.0), F(4.0)) == 0.0


def test_a_step_to_or_from_an_infinite_distance_has_no_progress():
    assert step_reward(F(2.0), F(np.inf), F(0.0), F(-0.01), F(2.5)) == pytest.approx(-0.01, rel=ROUNDING)
    assert step_reward(F(np.inf), F(2.0), F(0.0), F(-0.01), F(2.5)) == pytest.approx(-0.01, rel=ROUNDING)


def test_a_step_collides_when_it_is_shorter_than_commanded():
    full = F(0.25) * F(0.25)
    assert not collided(full, full)
    assert not collided(full - F(0.9e-5), full)
    assert collided(full - F(1.1e-5), full)
    assert not collided(F(0.0), F(0.0))  # turning


def test_easy_episodes_are_rejected_as_in_habitat():
    # A straight path has ratio 1, of which 20 * 0.02^2 = 0.8% are kept; of ratio 1.0999, 28.8%.
    assert accept_detour(F(1.2), F(1.0), F(0.99), F(1.1))
    u = np.linspace(0, 1, 10001, dtype=np.float32)
    assert np.mean([accept_detour(F(1.0), F(1.0), v, F(1.1)) for v in u]) == pytest.approx(0.008, abs=2e-4)
    assert np.mean([accept_detour(F(1.0999), F(1.0), v, F(1.1)) for v in u]) == pytest.approx(0.288, abs=2e-3)


# PointNav with and without GPS and compass: only the goal sensor differs

N = 8


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_without_gps_and_compass_the_goal_is_relative_to_the_start(device):
    bank = SceneBank.pack([load_scene("house:3")], device)
    current, fixed = (NavEnv(bank, N, sensors=(), max_steps=9, seed=2, gps_compass=value) for value in (True, False))
    start_goal = fixed.reset()[0]["pointgoal"].clone()
    assert torch.equal(start_goal, current.reset()[0]["pointgoal"])
    differed = False
    for action in torch.randint(1, 4, (20, N), generator=torch.Generator().manual_seed(0)):
        now, expected = (env.step(action.to(env.device)) for env in (current, fixed))
        assert torch.equal(now[1], expected[1]) and torch.equal(now[3], expected[3])
        ended = expected[3]
        start_goal[ended] = now[0]["pointgoal"][ended]  # at the start of the next episode
        assert torch.equal(expected[0]["pointgoal"], start_goal)
        differed |= not torch.equal(now[0]["pointgoal"], start_goal)
    assert differed
    other = NavEnv(bank, N, sensors=(), max_steps=9, gps_compass=False)
    other.load_state_dict(fixed.state_dict())
    assert torch.equal(other.observe()["pointgoal"], start_goal)
