"""PointNav with and without GPS and compass: what the goal sensor says, and that nothing else changes."""

import pytest
import torch

from batchnav.data.scenes import find_scene
from batchnav.envs.nav import NavEnv
from batchnav.scene.bank import SceneBank

N = 8


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_without_gps_and_compass_the_goal_is_told_as_it_lay_at_the_start(device):
    bank = SceneBank.pack([find_scene("house:3")], device)
    follows, stays = (NavEnv(bank, N, sensors=(), max_steps=9, seed=2, gps_compass=known) for known in (True, False))
    told = stays.reset()[0]["pointgoal"].clone()
    assert torch.equal(told, follows.reset()[0]["pointgoal"])
    differed = False
    for action in torch.randint(1, 4, (20, N), generator=torch.Generator().manual_seed(0)):
        now, expected = (env.step(action.to(env.device)) for env in (follows, stays))
        assert torch.equal(now[1], expected[1]) and torch.equal(now[3], expected[3])
        ended = expected[3]
        told[ended] = now[0]["pointgoal"][ended]  # of the next episode's start
        assert torch.equal(expected[0]["pointgoal"], told)
        differed |= not torch.equal(now[0]["pointgoal"], told)
    assert differed
    other = NavEnv(bank, N, sensors=(), max_steps=9, gps_compass=False)
    other.load_state_dict(stays.state_dict())
    assert torch.equal(other.observe()["pointgoal"], told)
