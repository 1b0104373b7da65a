"""Records of ended CartPole episodes by block, and the info made from them."""

import numba
import pytest
import torch

from batchnav.cartpole.env import CartPoleEnv
from batchnav.cartpole.episodes import LastEpisodes, spread_cuda
from batchnav.cartpole.physics import START_RANGE
from batchnav.runtime.kernels.arrays import view


def test_all_episodes_may_end_in_one_step():
    env = CartPoleEnv(300, block=128)
    state = env.state_dict()
    state["state"][:], state["steps"][:] = torch.tensor([3.0, 0.0, 0.0, 0.0]), 6  # off the track
    env.load_state_dict(state)
    *_, terminated, _, info = env.step(torch.ones(300, dtype=torch.int64))
    assert terminated.all() and env.carts.count.tolist() == [128, 128, 44]
    assert (info["episode"]["steps"] == 7).all() and (info["final_obs"][:, 0] == 3.0).all()
    assert (env.carts.state.abs() <= START_RANGE).all() and (env.steps == 0).all()


def test_info_is_a_mapping_of_the_last_step():
    """Whenever it is read, and whether or not the steps before were."""
    env, other = CartPoleEnv(64, seed=3), CartPoleEnv(64, seed=3)
    actions = torch.ones(64, dtype=torch.int64)
    for t in range(30):
        *_, terminated, truncated, info = env.step(actions)
        *_, other_info = other.step(actions)
        assert sorted(other_info) == ["_episode", "_final_obs", "episode", "final_obs"] and len(other_info) == 4
        assert "episode" in other_info and "nothing" not in other_info
        if t % 7 == 0:
            both = terminated | truncated
            assert torch.equal(other_info["_episode"], both) and torch.equal(other_info["_final_obs"], both)
            for name in ("return", "steps"):
                assert torch.equal(other_info["episode"][name][both], info["episode"][name][both])
            assert torch.equal(other_info["final_obs"][both], info["final_obs"][both])
    assert not env.reset()[1]["_episode"].any()
    with pytest.raises(KeyError):
        info["nothing"]


def test_ptx(compile_ptx):
    carts, last = CartPoleEnv(2).kernel_carts, view(LastEpisodes.none(2, torch.device("cpu")))
    ptx = compile_ptx(spread_cuda, numba.typeof(carts), numba.typeof(last))
    assert ".f64" not in ptx and ptx.count("ld.global.v4") == 2 and ptx.count("st.global.v4") == 1
