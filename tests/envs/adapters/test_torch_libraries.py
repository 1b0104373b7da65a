"""Adapters to skrl, rsl_rl and TorchRL: ends of episodes, and copies of all results."""

import importlib

import gymnasium
import pytest
import torch
from gymnasium.vector import AutoresetMode

from batchnav.cartpole.env import CartPoleEnv
from batchnav.errors import ArgumentError
from tests.envs.adapters.counters import ours


@pytest.fixture
def skrl():
    pytest.importorskip("skrl")
    from batchnav.envs.adapters import skrl

    return skrl


@pytest.fixture
def rsl_rl():
    pytest.importorskip("rsl_rl")
    from batchnav.envs.adapters import rsl_rl

    return rsl_rl


@pytest.fixture
def torchrl():
    pytest.importorskip("torchrl")
    from batchnav.envs.adapters import torchrl

    return torchrl


def test_skrl(skrl):
    """Flat observations (count, then image), [N, 1] for the rest; metrics of ended episodes."""
    env = skrl.SkrlEnv(ours(2, 3))
    first, _ = env.reset()
    assert first.shape == (2, 13) and not first.any() and env.num_envs == 2 and env.state() is None
    steps = [env.step(torch.tensor([[1], [2]])) for _ in range(3)]
    assert [step[0][:, 0].tolist() for step in steps] == [[1, 1], [0, 2], [1, 0]]
    assert not first.any(), "an observation was written to"
    assert [step[1].tolist() for step in steps] == [[[1.0], [2.0]]] * 3
    assert [step[2].flatten().tolist() for step in steps] == [[False, False], [False, False], [False, True]]
    assert [step[3].flatten().tolist() for step in steps] == [[False, False], [True, False], [False, False]]
    assert steps[0][4] == {} and steps[2][4]["episode"]["return"] == 6.0
    env.render()
    env.close()


def test_environments_of_make_vec(skrl):
    """Accepts info with Gymnasium's names; refuses other autoreset modes."""
    env = skrl.SkrlEnv(gymnasium.make_vec("batchnav/CartPole-v0", num_envs=8, seed=0))
    env.reset()
    told = [env.step(torch.ones(8, 1, dtype=torch.int64))[4] for _ in range(12)]
    lengths = [info["episode"]["steps"] for info in told if info]
    assert lengths and all(8 <= length <= 12 for length in lengths)
    batched = ours(2, 3)
    batched.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    with pytest.raises(ArgumentError, match="found autoreset mode NEXT_STEP, expected SAME_STEP"):
        skrl.SkrlEnv(batched)


def test_rsl_rl(rsl_rl):
    env = rsl_rl.RslRlEnv(ours(2, 3), max_episode_length=3)
    assert env.num_actions == 3 and env.get_observations()["image"].dtype == torch.float32
    first = env.get_observations()
    actions = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.1, 0.9]])
    steps = [env.step(actions) for _ in range(3)]
    assert not first["count"].any(), "an observation was written to"
    assert [step[0]["count"].flatten().tolist() for step in steps] == [[1, 1], [0, 2], [1, 0]]
    assert steps[0][0]["image"].max() == pytest.approx(1 / 255)
    assert [step[2].tolist() for step in steps] == [[False, False], [True, False], [False, True]]
    assert [step[3]["time_outs"].tolist() for step in steps] == [[False, False], [True, False], [False, False]]
    assert [step[3]["log"]["return"].tolist() for step in steps] == [[], [2.0], [6.0]]
    assert env.episode_length_buf.tolist() == [1, 0]
    with pytest.raises(ArgumentError, match="init_at_random_ep_len"):
        env.episode_length_buf = torch.zeros(2)


def test_one_hot_actions_are_categorical(rsl_rl):
    """Compares with torch's Categorical."""
    torch.manual_seed(0)
    logits, other = torch.randn(2, 4, 3)
    made = rsl_rl.OneHotActions(3)
    made.update(logits)
    expected = torch.distributions.Categorical(logits=logits)
    drawn = made.sample()
    assert drawn.shape == (4, 3) and torch.equal(drawn.sum(1), torch.ones(4))
    torch.testing.assert_close(made.log_prob(drawn), expected.log_prob(drawn.argmax(1)))
    torch.testing.assert_close(made.entropy, expected.entropy())
    kl = torch.distributions.kl_divergence(expected, torch.distributions.Categorical(logits=other))
    torch.testing.assert_close(made.kl_divergence(made.params, (other,)), kl)
    assert made.input_dim == 3 and made.mean.shape == made.std.shape == (4, 3)
    assert torch.equal(made.deterministic_output(logits), made.as_deterministic_output_module()(logits))


def test_torchrl_rollouts(torchrl):
    """ "next" ends an episode and the following root begins one; flags; TorchRL's own check of specs."""
    from torchrl.envs.utils import check_env_specs

    env = torchrl.TorchRLEnv(ours(2, 3))
    check_env_specs(env)
    rollout = env.rollout(6, break_when_any_done=False)
    assert rollout["count"][..., 0].tolist() == [[0, 1, 0, 1, 0, 1], [0, 1, 2, 0, 1, 2]]
    assert rollout["next", "count"][..., 0].tolist() == [[1, 2, 1, 2, 1, 2], [1, 2, 3, 1, 2, 3]]
    assert rollout["next", "image"].dtype == torch.uint8 and rollout["next", "image"][1, 2].unique() == 3
    ends = {name: rollout["next", name][..., 0].long().tolist() for name in ("done", "terminated", "truncated")}
    assert ends["truncated"] == [[0, 1, 0, 1, 0, 1], [0] * 6] and ends["terminated"] == [[0] * 6, [0, 0, 1, 0, 0, 1]]
    assert ends["done"] == [[0, 1, 0, 1, 0, 1], [0, 0, 1, 0, 0, 1]]
    assert torch.equal(rollout["next", "reward"][..., 0], rollout["action"].float())
    env.close()


def test_torchrl_without_final_observations(torchrl):
    """The first observation of the next episode takes the place of the last one, without bootstrapping."""
    env = torchrl.TorchRLEnv(ours(2, 3, final=False))
    rollout = env.rollout(3, break_when_any_done=False)
    assert rollout["next", "count"][..., 0].tolist() == [[1, 0, 1], [1, 2, 0]]
    assert rollout["next", "terminated"][..., 0].long().tolist() == [[0, 1, 0], [0, 0, 1]]
    state = env.reset(rollout[:, -1].empty().set("_reset", torch.tensor([[True], [False]])))
    assert state["count"][:, 0].tolist() == [0, 0]  # one in mid-episode, one whose episode just ended


def test_torchrl_cuts_some_episodes_short(torchrl):
    """`StepCounter` ends each episode after two steps; environments that reset only together say so."""
    from torchrl.envs import StepCounter, TransformedEnv

    rollout = TransformedEnv(torchrl.TorchRLEnv(ours(1, 4)), StepCounter(2)).rollout(5, break_when_any_done=False)
    assert rollout["next", "count"][..., 0].tolist() == [[1, 1, 1, 1, 1], [1, 2, 1, 2, 1]]
    carts = torchrl.TorchRLEnv(CartPoleEnv(2))
    state = carts.reset()
    carts.step(state.clone().set("action", torch.ones(2, dtype=torch.int64)))
    with pytest.raises(ArgumentError, match="'reset_mask', expected none; reset begins all episodes"):
        carts.reset(state.empty().set("_reset", torch.tensor([[True], [False]])))


def test_torchrl_resets_all_with_a_full_mask(torchrl):
    """Also within episodes; returned observations of a new episode stay valid."""
    env = torchrl.TorchRLEnv(ours(2, 4))
    every, step = torch.ones(2, 1, dtype=torch.bool), {"action": torch.ones(2, dtype=torch.int64)}
    first = env.reset()
    for steps in (1, 3):
        for _ in range(steps):
            state = env.step(first.clone().update(step))
        assert (state["next", "count"] > 0).all()
        assert not env.reset(first.empty().set("_reset", every))["count"].any()
        assert env.env.env.get_attr("steps") == (0, 0)
    for _ in range(4):
        env.step(first.clone().update(step))
    assert not env.reset(first.empty().set("_reset", every))["count"].any()


def test_torchrl_seeds(torchrl):
    env, twin = torchrl.TorchRLEnv(CartPoleEnv(4)), CartPoleEnv(4)
    env.set_seed(5)
    assert torch.equal(env.reset()["observation"], twin.reset(seed=5)[0])


every_adapter = pytest.mark.parametrize(
    ("library", "name", "options"),
    [
        ("skrl", "SkrlEnv", {}), ("rsl_rl", "RslRlEnv", {"max_episode_length": 3}), ("torchrl", "TorchRLEnv", {}),
        ("stable_baselines3", "SB3VecEnv", {}),
    ],
)  # fmt: skip


@every_adapter
def test_arrays_are_refused(library, name, options):
    """The libraries convert or keep tensors themselves."""
    pytest.importorskip(library)
    adapter = getattr(importlib.import_module(f"batchnav.envs.adapters.{library}"), name)
    env = gymnasium.make_vec("batchnav/CartPole-v0", num_envs=2, output="numpy")
    with pytest.raises(ArgumentError, match=r"found ndarray as an observation, .*output=\"torch\""):
        adapter(env, **options).reset()


@every_adapter
def test_continuous_actions_are_refused(library, name, options):
    """Continuous actions would be read as indices. TorchRL and Stable-Baselines3 take them."""
    pytest.importorskip(library)
    adapter = getattr(importlib.import_module(f"batchnav.envs.adapters.{library}"), name)
    env = ours(2, 3)
    env.single_action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    if library in ("torchrl", "stable_baselines3"):
        adapter(env, **options)
        env.single_action_space, found = gymnasium.spaces.Discrete(3, start=1), "Discrete"
    else:
        found = "Box"
    with pytest.raises(ArgumentError, match=rf"found action space {found}.*, expected Discrete\(n\) starting at 0"):
        adapter(env, **options)
