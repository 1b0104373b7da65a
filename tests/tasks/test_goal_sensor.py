"""PointNav with and without GPS and compass: only the goal sensor differs."""

import pytest
import torch

from batchnav.data.scenes.load import load_scene
from batchnav.envs.nav import NavEnv
from batchnav.scene.bank import SceneBank

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
