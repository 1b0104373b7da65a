"""CartPole against Gymnasium's own, at its edges, and against itself."""

import dataclasses
import math
import platform

import gymnasium
import numba
import numpy as np
import pytest
import torch
from numba import types as nb

from batchnav.cartpole import physics, step
from batchnav.cartpole.env import CartPoleEnv
from batchnav.cartpole.episodes import LastEpisodes, spread_cuda
from batchnav.cartpole.physics import MAX_ANGLE, MAX_POSITION, MAX_STEPS, START_RANGE, WINDOW
from batchnav.cartpole.program import BACKENDS, CartPoleRun, train
from batchnav.errors import CheckpointError
from batchnav.policy.weights import load_policy
from batchnav.runtime.kernels.arrays import view

FLOAT32_STEP = 1e-6
"""Gymnasium computes in float64; float32 rounds values of up to 4 to 2.4e-7 a few times."""


@pytest.fixture
def reference():
    """Gymnasium's CartPole, without its time limit."""
    return gymnasium.make("CartPole-v1").unwrapped


def set_state(env, state, steps=0):
    """Put all environments into these states."""
    saved = env.state_dict()
    saved["state"] = torch.as_tensor(np.asarray(state, np.float32))
    saved["steps"][:] = torch.as_tensor(steps)
    env.load_state_dict(saved)


def compare_step(env, reference, actions):
    """One step of env and of Gymnasium from the same float32 states; what it has to fulfil."""
    before = env.carts.state.numpy().astype(np.float64)
    observation, reward, terminated, _, info = env.step(torch.as_tensor(actions))
    after = torch.where(info["_final_obs"][:, None], info["final_obs"], observation).numpy()
    for i in range(env.num_envs):
        reference.state, reference.steps_beyond_terminated = before[i], None
        expected, expected_reward, expected_end, _, _ = reference.step(int(actions[i]))
        exact = reference.state
        tolerance = FLOAT32_STEP * np.maximum(1.0, np.abs(exact) / 4)
        assert (np.abs(after[i] - exact) <= tolerance).all(), (before[i], actions[i], after[i], expected)
        assert reward[i] == expected_reward
        margin = min(abs(abs(exact[0]) - MAX_POSITION), abs(abs(exact[2]) - MAX_ANGLE))
        assert bool(terminated[i]) == expected_end or margin <= FLOAT32_STEP


def test_constants_are_gymnasiums(reference):
    assert (
        reference.gravity, reference.force_mag, reference.tau,
    ) == (physics.GRAVITY, physics.FORCE, physics.TIME_STEP)  # fmt: skip
    assert (
        reference.masscart, reference.masspole, reference.length,
    ) == (physics.CART_MASS, physics.POLE_MASS, physics.HALF_LENGTH)  # fmt: skip
    assert (reference.x_threshold, pytest.approx(reference.theta_threshold_radians)) == (MAX_POSITION, MAX_ANGLE)
    assert gymnasium.spec("CartPole-v1").max_episode_steps == MAX_STEPS
    env = CartPoleEnv(3)
    assert env.single_observation_space == reference.observation_space
    assert env.single_action_space == reference.action_space


@pytest.mark.plain
def test_steps_equal_gymnasiums(reference):
    """10,000 random steps: 40 environments, 250 steps."""
    env, random = CartPoleEnv(40, seed=1), np.random.default_rng(0)
    for _ in range(250):
        compare_step(env, reference, random.integers(0, 2, 40))


def test_edges_equal_gymnasiums(reference):
    """States on both sides of every threshold, fast ones, and the observation space's corners."""
    position = [p * MAX_POSITION for p in (0.0, 0.999, 0.99999, 1.0, 1.00001, 1.5)]
    angle = [a * MAX_ANGLE for a in (0.0, 0.98, 0.99999, 1.0, 1.00001, 2.0)]
    states = [
        [x * sx, v, a * sa, s]
        for x in position for a in angle for v in (-3.0, 0.0, 3.0) for s in (-4.0, 0.0, 4.0)
        for sx in (-1, 1) for sa in (-1, 1)
    ]  # fmt: skip
    env = CartPoleEnv(len(states))
    for action in (0, 1):
        set_state(env, states)
        compare_step(env, reference, np.full(len(states), action))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="looks for x86's instructions")
@pytest.mark.parametrize("action", [nb.int64, nb.uint8])
def test_the_cpu_pushes_several_carts_at_once(action):
    """The code has a vector division, and a scalar one for the remaining carts."""
    types = action[::1], nb.float32[::1], nb.boolean[::1]
    push = numba.njit(action(*types))(lambda actions, state, failed: step.push_carts(actions, state, failed))
    assert "divps" in push.inspect_asm(types)


def test_sin_cos():
    sin_cos = numba.njit(lambda angle: physics.sin_cos(angle))
    for angle in np.linspace(-0.45, 0.45, 1001, dtype=np.float32):
        sine, cosine = sin_cos(angle)
        assert abs(sine - math.sin(angle)) < 3e-8 and abs(cosine - math.cos(angle)) < 7e-8  # half a float32 step


def test_time_limit_is_no_termination():
    env = CartPoleEnv(4)
    set_state(env, np.zeros((4, 4)), steps=MAX_STEPS - 2)
    *_, terminated, truncated, info = env.step(torch.tensor([0, 1, 0, 1]))
    assert not truncated.any() and not terminated.any() and not info["_episode"].any()
    observation, _, terminated, truncated, info = env.step(torch.tensor([0, 1, 0, 1]))
    assert truncated.all() and not terminated.any() and info["_episode"].all()
    assert (info["episode"]["steps"] == MAX_STEPS).all() and (info["episode"]["return"] == MAX_STEPS).all()
    assert (observation.abs() <= START_RANGE).all() and (info["final_obs"][:, 1].abs() > START_RANGE).all()


TIME_OUTS = (3, 130, 131, 299)
"""Carts of 300 in blocks of 128: each of the three blocks has at least one."""


def check_time_outs(device):
    """The flags of time-outs stand for one step, whether the next one has others in the block or none."""
    env = CartPoleEnv(300, device=device, block=128)
    steps = torch.zeros(300)
    steps[[*TIME_OUTS]] = MAX_STEPS - 1
    steps[5] = MAX_STEPS - 2
    set_state(env, np.zeros((300, 4)), steps=steps)
    for late in (TIME_OUTS, (5,), (), ()):
        *_, terminated, truncated, info = env.step(torch.ones(300, dtype=torch.int64, device=device))
        assert tuple(truncated.nonzero().flatten().tolist()) == late and not terminated.any()
        assert torch.equal(info["_episode"], truncated)
        assert env.carts.timed_out.tolist() == [int(any(i // 128 == b for i in late)) for b in range(3)]


def test_time_outs_are_noted_for_one_step():
    check_time_outs("cpu")


@pytest.mark.cuda
def test_cuda_time_outs_are_noted_for_one_step():
    check_time_outs("cuda")


def test_a_reset_takes_time_outs_back():
    env = CartPoleEnv(4)
    set_state(env, np.zeros((4, 4)), steps=MAX_STEPS - 1)
    assert env.step(torch.ones(4, dtype=torch.int64))[3].all()
    env.reset()
    assert not env.carts.truncated.any() and not env.carts.timed_out.any()


def test_failure_at_the_limit_is_both():
    """The flags are independent, as in Gymnasium's TimeLimit."""
    env = CartPoleEnv(1)
    set_state(env, [[MAX_POSITION, 3.0, 0.0, 0.0]], steps=MAX_STEPS - 1)
    *_, terminated, truncated, info = env.step(torch.tensor([1]))
    assert terminated.item() and truncated.item() and info["_episode"].item()


@pytest.mark.plain
@pytest.mark.parametrize("clock", [0, 2**15 - 30, 2**16 - 30])  # the 16 bits kept of an episode's beginning turn over
def test_same_step_autoreset(clock):
    env = CartPoleEnv(64, seed=3)
    env.load_state_dict({**env.state_dict(), "clock": torch.tensor(clock)})
    lengths, episodes = torch.zeros(64), torch.zeros(64)
    for _ in range(60):
        observation, _, terminated, truncated, info = env.step(torch.ones(64, dtype=torch.int64))
        lengths += 1
        ended = info["_episode"]
        assert torch.equal(ended, terminated | truncated)
        assert torch.equal(info["episode"]["steps"][ended], lengths[ended])
        assert (observation[ended].abs() <= START_RANGE).all()
        assert (info["final_obs"][ended][:, 2].abs() > MAX_ANGLE).all()
        assert torch.equal(env.steps == 0, ended)
        lengths[ended] = 0
        episodes += ended
    assert episodes.min() >= 4


def test_no_episode_is_shorter_than_a_window():
    """All sequences of seven pushes from extreme starts survive, so no two episodes start in the same window."""
    corners = torch.cartesian_prod(*[torch.tensor([-START_RANGE, 0.0, START_RANGE])] * 4)
    pushes = torch.cartesian_prod(*[torch.tensor([0, 1])] * (WINDOW - 1))
    env = CartPoleEnv(len(corners) * len(pushes))
    set_state(env, corners.repeat_interleave(len(pushes), 0))
    for row in pushes.T:
        *_, info = env.step(row.repeat(len(corners)))
        assert not info["_episode"].any()
    assert env.step(pushes.T[0].repeat(len(corners)))[4]["_episode"].any()


def test_starts_do_not_repeat():
    """Those of 300 steps and some resets: one environment's starts, all different."""
    env = CartPoleEnv(50, seed=1)
    starts = [env.carts.state[:, 0].clone()]
    for t in range(300):
        observation, *_, info = env.step(torch.full((50,), t // 40 % 2))
        starts.append(torch.where(info["_episode"], observation[:, 0], torch.nan))
        if t % 50 == 3:
            starts.append(env.reset()[0][:, 0].clone())
    for column in torch.stack(starts).T:
        values = column[~column.isnan()]
        assert len(values) > 20 and len(values.unique()) == len(values)


def test_one_start_in_a_window():
    """Loaded states that fail at once get the same start, if they do so in one window; in the next, another one."""
    env, found = CartPoleEnv(1), []
    env.step(torch.tensor([0]))
    for _ in range(WINDOW):
        set_state(env, [[3.0, 0.0, 0.0, 0.0]])
        found.append(env.step(torch.tensor([0]))[0].clone())
    assert all(torch.equal(found[0], start) for start in found[:-2])
    assert torch.equal(found[-2], found[-1]) and not torch.equal(found[0], found[-1])


def test_starts_are_uniform():
    """Each of the four values on its own: mean 0, variance (0.1)^2 / 12, no correlation between them."""
    env = CartPoleEnv(100_000, seed=9)
    first = env.carts.state.clone()
    second, _ = env.reset()
    values = torch.cat([first, second], 1).double() / START_RANGE
    assert values.min() >= -1 and values.max() < 1
    assert values.mean(0).abs().max() < 5 * (1 / 3 / 100_000) ** 0.5  # five standard errors
    assert (values.T.cov() * 3 - torch.eye(8)).abs().max() < 0.03
    assert CartPoleEnv(100_000, seed=10).carts.state.sub(first).abs().min() < START_RANGE
    assert not torch.equal(CartPoleEnv(100_000, seed=10).carts.state, first)


def run(env, steps=40):
    """Fixed pseudo-random actions; all observations."""
    generator = torch.Generator().manual_seed(0)
    return torch.stack([
        env.step(torch.randint(0, 2, (env.num_envs,), generator=generator))[0].clone() for _ in range(steps)
    ])  # fmt: skip


GOLDEN_START = [0.011295986, -0.00314135, -0.042676833, -0.01591385]
GOLDEN_ENDS = [
    [8, 3],
    [9, 2],
    [17, 3],
    [19, 2],
    [23, 1],
    [27, 3],
    [29, 2],
    [37, 3],
    [38, 2],
    [43, 1],
    [47, 0],
    [47, 2],
    [47, 3],
    [55, 3],
    [57, 2],
]
"""[step, environment] of every episode's end."""
GOLDEN_ANGLES = [-0.0194316, 0.1253876, -0.0540961, -0.0088066]


def test_golden_run():
    """A seeded run with fixed actions, written down once: flags exact, floats to 1e-4."""
    env = CartPoleEnv(4, seed=42)
    torch.testing.assert_close(
        env.carts.state[0], torch.tensor(GOLDEN_START), atol=1e-7, rtol=0, msg="the generator's numbers changed"
    )
    ends = torch.stack([env.step(torch.tensor([t % 2, t // 2 % 2, 1, 0]))[4]["_episode"].clone() for t in range(60)])
    assert ends.nonzero().tolist() == GOLDEN_ENDS
    torch.testing.assert_close(env.carts.state[:, 2], torch.tensor(GOLDEN_ANGLES), atol=1e-4, rtol=0)


def test_same_run_whatever_the_threads():
    expected = run(CartPoleEnv(5000, seed=5))
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        assert torch.equal(run(CartPoleEnv(5000, seed=5)), expected)
    finally:
        numba.set_num_threads(threads)


def test_same_run_whatever_the_blocks():
    """Observations, and the info that the blocks' lists become; the last block is never full."""
    actions = torch.randint(0, 2, (40, 1301), generator=torch.Generator().manual_seed(0))
    env = CartPoleEnv(1301, seed=5)
    others = [CartPoleEnv(1301, seed=5, block=block) for block in (1, 8, 100, 1024)]
    for row in actions:
        observation, *_, info = env.step(row)
        for other in others:
            found, *_, other_info = other.step(row)
            assert torch.equal(found, observation) and torch.equal(other_info["_episode"], info["_episode"])
            assert torch.equal(other_info["final_obs"], info["final_obs"])
            assert torch.equal(other_info["episode"]["steps"], info["episode"]["steps"])


def test_an_environment_does_not_depend_on_its_neighbours():
    assert torch.equal(run_seventh(8), run_seventh(1300))


def run_seventh(num_envs):
    """Environment 7's observations under constant actions."""
    env = CartPoleEnv(num_envs, seed=5)
    return torch.stack([env.step(torch.ones(num_envs, dtype=torch.int64))[0][7].clone() for _ in range(30)])


def test_reset_with_seed_starts_over_and_without_goes_on():
    env = CartPoleEnv(8, seed=1)
    first = run(env)
    env.reset(seed=1)
    assert torch.equal(run(env), first)
    fresh = env.reset()[0].clone()
    assert not torch.equal(fresh, env.reset(seed=1)[0])


@pytest.mark.parametrize("steps", [40, 43])  # to the end of a window, and into one
def test_resume_is_exact(steps):
    env, other = CartPoleEnv(32, seed=1), CartPoleEnv(32, seed=99, block=7)
    run(env, steps)
    other.load_state_dict(env.state_dict())
    assert torch.equal(run(env), run(other))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda s: s.pop("steps"), "steps"),
        (lambda s: s.update(state=s["state"][:3]), "state"),
        (lambda s: s.update(clock=s["clock"].int()), "clock"),
        (lambda s: s.update(seed=3), "seed"),
    ],
)
def test_bad_resume_state(change, named):
    env = CartPoleEnv(8)
    state = env.state_dict()
    change(state)
    with pytest.raises(CheckpointError, match=named):
        env.load_state_dict(state)


# Records of ended CartPole episodes by block, and the info made from them


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


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_training_writes_the_policy_and_its_curve(backend, tmp_path):
    learner = dataclasses.replace(CartPoleRun().ppo, num_envs=4, rollout_steps=8, minibatches=1, total_frames=64)
    score = train(CartPoleRun(device="cpu", ppo=learner), backend, tmp_path)
    lines = [line.split(",") for line in (tmp_path / "curve.csv").read_text().splitlines()]
    assert lines[0] == ["frames", "seconds", "mean_return"] and len(lines) == 3
    assert lines[-1][::2] == ["64", f"{score:.1f}"] and 0.0 < float(lines[1][1]) < float(lines[2][1])
    assert load_policy(tmp_path).info["mean_return"] == score
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
