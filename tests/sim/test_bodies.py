"""Bodies on a square floor: sizes of steps and turns, tilt, velocity control, collisions, errors."""

import math

import numpy as np
import pytest
import torch
from worlds import slab

from batchnav.config import from_dict
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError, ConfigError
from batchnav.sim.bodies import FORWARD, LEFT, LOOK_DOWN, LOOK_UP, RIGHT, BodyConfig
from batchnav.tasks.episode_sampling import EpisodeTable
from batchnav.view.topdown import navigable_triangles

ROUNDING = 1e-4
"""Metres, radians."""
EAST, NORTH, WEST = -math.pi / 2, 0.0, math.pi / 2
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
TASKS = ("pointnav", "flee", "explore")
STAND = (-1.0, 0.0)
"""Velocity command of speed 0: a stop."""


@pytest.fixture(scope="module")
def room():
    """A floor of 6 m x 6 m, centred on the origin."""
    return slab("room", 6.0)


def make(room, heading, device="cpu", task="flee", n=1, start=(0.0, 0.0), goal=(2.0, 2.0), **options):
    """Environment of `n` agents that begin at `start` (x, z), metres, with a heading in radians."""
    places = room.navmesh.snap(np.array([[start[0], 0.0, start[1]], [goal[0], 0.0, goal[1]]], np.float32))
    start, goal = (torch.from_numpy(place).repeat(n, 1).to(device) for place in places)
    scene = torch.zeros(n, dtype=torch.int32, device=device)
    table = EpisodeTable(scene, start, torch.full((n,), heading, device=device), goal)
    env = NavEnv([room], n, device, task=task, sensors=options.pop("sensors", ()), episodes=table, **options)
    env.reset()
    return env


def act(env, actions):
    """Step all agents with the same actions. Returns the last reward and metrics."""
    for action in actions:
        row = torch.tensor(action, device=env.device)
        _, reward, _, _, info = env.step(row.expand(env.num_envs, *row.shape))
    return reward.cpu(), {name: value.cpu() for name, value in info["episode"].items()}


def pose(env):
    """x, z and heading of the first agent."""
    bodies = env.sim.bodies
    x, _, z = bodies.position[0].tolist()
    return x, z, float(bodies.heading[0])


@pytest.mark.parametrize(("step", "turn"), [(0.25, 10.0), (0.5, 30.0), (0.1, 45.0), (1.0, 90.0)])
def test_steps_and_turns_have_the_configured_size(room, step, turn):
    env = make(room, NORTH, forward_step=step, turn_angle_deg=turn)
    act(env, [FORWARD, LEFT, FORWARD, RIGHT, RIGHT])
    angle = math.radians(turn)
    expected = -step * math.sin(angle), -step * (1.0 + math.cos(angle)), -angle
    assert pose(env) == pytest.approx(expected, abs=ROUNDING)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("task", TASKS)
def test_velocity_control_moves_then_turns(room, device, task):
    """Integration as in habitat-sim: 0.2 m/s and 8 degrees/s for 1 s, ten times."""
    env = make(room, EAST, device, task, control="velocity")
    act(env, [(2 * 0.2 / 0.25 - 1, 0.8)] * 10)
    x, z, heading = 0.0, 0.0, EAST
    for _ in range(10):
        x, z = x - 0.2 * math.sin(heading), z - 0.2 * math.cos(heading)
        heading += math.radians(8.0)
    assert pose(env) == pytest.approx((x, z, heading), abs=ROUNDING)
    assert float(env.sim.bodies.path_length[0]) == pytest.approx(2.0, abs=ROUNDING)


def test_ranges_and_time_step_scale_speeds(room):
    velocity = {"lin_vel_range": [-0.5, 1.5], "ang_vel_range_deg": [-40.0, 20.0], "time_step": 0.5}
    env = make(room, NORTH, control="velocity", velocity=velocity)
    act(env, [(0.0, -1.0)])  # middle of the range: 0.5 m/s; -40 degrees/s
    assert pose(env) == pytest.approx((0.0, -0.25, math.radians(-20.0)), abs=ROUNDING)
    act(env, [(-1.0, 1.0)])  # backwards along the heading
    x, z = 0.25 * math.sin(math.radians(-20.0)), -0.25 + 0.25 * math.cos(math.radians(-20.0))
    assert pose(env) == pytest.approx((x, z, math.radians(-10.0)), abs=ROUNDING)


def test_commands_beyond_one_are_clipped(room):
    inside, beyond = make(room, NORTH, control="velocity"), make(room, NORTH, control="velocity")
    act(inside, [(1.0, -1.0), (-1.0, 1.0)])
    act(beyond, [(7.0, -math.inf), (-3.0, math.inf)])
    assert pose(inside) == pose(beyond)


@pytest.mark.parametrize("task", TASKS)
def test_speeds_below_both_minima_are_a_stop(room, task):
    almost = 2 * 0.024 / 0.25 - 1, 0.09  # 0.024 m/s, 0.9 deg/s
    for action, stops in ((almost, True), ((almost[0], 0.11), False), ((2 * 0.026 / 0.25 - 1, 0.0), False)):
        env = make(room, NORTH, task=task, control="velocity")
        before = env.sim.bodies.position.clone()
        _, metrics = act(env, [action])
        assert bool(env.sim.bodies.terminated[0]) == stops and float(metrics["steps"]) == 1
        if stops:
            assert float(metrics["path_length"]) == 0.0 and torch.equal(env.sim.bodies.position, before)


@pytest.mark.parametrize("device", DEVICES)
def test_pointnav_scores_velocity_control_as_discrete_steps(room, device):
    env = make(room, NORTH, device, "pointnav", goal=(0.0, -1.0), control="velocity")
    for _ in range(4):
        reward, metrics = act(env, [(1.0, 0.0)])
        assert float(reward) == pytest.approx(0.25 - 0.01, abs=ROUNDING)
    reward, metrics = act(env, [STAND])
    assert float(reward) == pytest.approx(2.5 - 0.01, abs=ROUNDING)
    assert metrics["success"] == 1.0 and float(metrics["spl"]) == pytest.approx(1.0, abs=ROUNDING)


@pytest.mark.parametrize("sliding", [True, False])
def test_walls_stop_the_body_or_let_it_slide(room, sliding):
    env = make(room, math.radians(-60.0), control="velocity", sliding=sliding, start=(2.7, 0.0))
    act(env, [(1.0, 0.0)] * 4)
    x, z, _ = pose(env)
    corners, _ = navigable_triangles(room.navmesh)
    assert x == pytest.approx(float(corners.reshape(-1, 3)[:, 0].max()), abs=1e-3 if sliding else 0.11)
    assert int(env.sim.bodies.collisions[0]) >= 3
    assert (z < -0.4) == sliding  # half of four steps of 0.25 m, along the wall


@pytest.mark.parametrize("device", DEVICES)
def test_look_actions_tilt_every_camera_up_to_a_limit(room, device):
    """Depth of the floor along the camera's axis is height / sin(downward angle)."""
    options = {"height": 9, "width": 9, "camera_height": 1.0, "camera_pitch_deg": -20.0, "hfov_deg": 20.0}
    env = make(room, NORTH, device, control="v1", max_tilt_deg=45.0, sensors=("depth",), **options)
    floor = float(env.sim.bodies.position[0, 1]) + 1.0 - 0.1  # the navmesh lies above the slab

    def depth():
        return 10.0 * float(env.observe()["depth"][0, 0, 4, 4])

    for action, tilt in ((LOOK_DOWN, -30.0), (LOOK_DOWN, -45.0), (LOOK_UP, -15.0), (LEFT, -15.0)):
        act(env, [action])
        assert float(env.sim.bodies.tilt[0]) == pytest.approx(math.radians(tilt), abs=ROUNDING)
        assert depth() == pytest.approx(floor / math.sin(math.radians(20.0 - tilt)), abs=1e-3)
    act(env, [LOOK_UP] * 3)
    assert float(env.sim.bodies.tilt[0]) == pytest.approx(math.radians(45.0), abs=ROUNDING)
    act(env, [0])  # the next episode begins level
    assert float(env.sim.bodies.tilt[0]) == 0.0


def test_look_actions_do_not_move_the_body(room):
    env = make(room, NORTH, control="v1")
    act(env, [FORWARD, LOOK_UP, LOOK_DOWN, FORWARD])
    assert pose(env) == pytest.approx((0.0, -0.5, 0.0), abs=ROUNDING)
    assert int(env.sim.bodies.collisions[0]) == 0 and int(env.sim.bodies.steps[0]) == 4


def test_a_resumed_run_continues_alike(room):
    generator = torch.Generator().manual_seed(1)
    actions = torch.rand(20, 4, 2, generator=generator) * 2 - 1
    env, other = (make(room, NORTH, task="explore", n=4, control="velocity") for _ in range(2))
    for action in actions[:10]:
        env.step(action)
    other.load_state_dict(env.state_dict())
    for action in actions[10:]:
        a, b = env.step(action), other.step(action)
        assert torch.equal(a[1], b[1]) and torch.equal(env.sim.bodies.position, other.sim.bodies.position)


def test_invalid_actions_are_refused(room):
    env = make(room, NORTH, n=3, control="velocity")
    assert env.single_action_space.shape == (2,) and env.action_space.shape == (3, 2)
    for bad, message in (
        (
            torch.tensor([[0.0, 0.0], [0.0, math.nan], [0.0, 0.0]]),
            r"found \[0\.0, nan\], expected numbers from -1 to 1",
        ),
        (torch.zeros(3), r"found torch\.float32 \[3\].*expected torch\.float32 \[3, 2\]"),
        (torch.zeros(3, dtype=torch.int64), r"expected torch\.float32 \[3, 2\]"),
        (torch.zeros(3, 3), r"found torch\.float32 \[3, 3\].*expected torch\.float32 \[3, 2\]"),
        ([["fast", "left"]] * 3, "expected an array of numbers"),
    ):
        with pytest.raises(ArgumentError, match=message):
            env.step(bad)
    env.step([[0.5, 0.0]] * 3)  # lists of floats are accepted
    tilting = make(room, NORTH, n=2, control="v1")
    assert tilting.single_action_space.n == 6
    with pytest.raises(ArgumentError, match=r"found 6, expected 0 \(stop\), .* 4 \(look up\) or 5 \(look down\)"):
        tilting.step(torch.tensor([0, 6]))
    with pytest.raises(ArgumentError, match=r"found 4, expected 0 \(stop\), 1 \(forward\), 2 \(left\) or 3 \(right\)"):
        make(room, NORTH, n=1).step(torch.tensor([4]))


@pytest.mark.cuda
def test_invalid_velocity_commands_are_reported_later_on_cuda(room):
    env = make(room, NORTH, "cuda", n=3, control="velocity")
    actions = torch.zeros(3, 2, device="cuda")
    actions[2, 0] = math.nan
    env.step(actions)
    torch.cuda.synchronize()
    assert env.sim.bodies.position.isfinite().all()
    with pytest.raises(ArgumentError, match="environment 2, expected numbers from -1 to 1"):
        env.between_rollouts()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"control": "v2"}, "control: found 'v2', expected one of 'v0', 'v1', 'velocity'"),
        ({"tilt_angle_deg": 0.0}, "tilt_angle_deg: found 0"), ({"max_tilt_deg": 91.0}, "max_tilt_deg: found 91"),
        ({"turn_angle_deg": math.nan}, "turn_angle_deg: found nan"), ({"forward_step": -1.0}, "forward_step: found -1"),
        ({"agent_radius": -0.1}, "agent_radius: found -0.1"),
        ({"control": "velocity", "actuation_noise": 0.5}, "actuation_noise: found 0.5 with control 'velocity'"),
        ({"velocity": {"lin_vel_range": [0.3, 0.3]}}, r"velocity\.lin_vel_range: found \[0\.3, 0\.3\]"),
        ({"velocity": {"lin_vel_range": [0.3]}}, r"lin_vel_range: found \[0\.3\]"),
        ({"velocity": {"lin_vel_range": [0.0, 30.0]}}, "within -10 and 10 with time_step 1"),
        ({"velocity": {"ang_vel_range_deg": [-10.0, math.nan]}}, "ang_vel_range_deg: found"),
        ({"velocity": {"time_step": 0.0}}, "time_step: found 0"),
    ],
)  # fmt: skip
def test_invalid_settings_of_a_body_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        from_dict(BodyConfig, settings)


@pytest.mark.cuda
@pytest.mark.parametrize("task", TASKS)
def test_velocity_control_on_cuda_equals_the_cpu(room, task):
    n, generator = 32, torch.Generator().manual_seed(3)
    actions = torch.rand(40, n, 2, generator=generator) * 2.4 - 1.2
    found = []
    for device in ("cpu", "cuda"):
        env = make(room, EAST, device, task, n, control="velocity", max_steps=30)
        rows = []
        for action in actions:
            _, reward, terminated, truncated, _ = env.step(action.to(device))
            kept = reward, terminated.float(), truncated.float(), env.sim.bodies.position.flatten()
            rows.append(torch.cat(kept).cpu().clone())
        found.append(torch.stack(rows))
    torch.testing.assert_close(*found, atol=1e-3, rtol=1e-3)
