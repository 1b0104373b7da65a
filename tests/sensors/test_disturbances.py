"""Odometry that drifts and late observations: closed forms, environments, saved states and configurations."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numba import typeof
from numba import types as nb

from batchnav.agents.registry import make_expert, make_reference_agent
from batchnav.data.scenes.load import load_all
from batchnav.envs.config import NavConfig, config_of, with_options
from batchnav.envs.nav import NavEnv
from batchnav.errors import CheckpointError, ConfigError
from batchnav.mapping.state import SIDE
from batchnav.runtime.kernels.arrays import view
from batchnav.sensors import depth_odometry, disturbances
from batchnav.sensors.depth_odometry import View
from batchnav.sensors.disturbances import DisturbanceConfig, Latency, Odometry
from batchnav.sensors.pose import POSE_SENSORS
from batchnav.sim.bodies import FORWARD, LEFT, RIGHT, Bodies
from batchnav.tasks.pointnav import POINTGOAL, PointNavConfig

ROUNDING = 1e-4
SENSORS = ("depth", "waypoint", "gps", "compass", "heading")
STRAIGHT = [(0.25 * step, 0.0, 0.0) for step in range(17)]
TURNING = [(0.0, 0.0, 0.0), (0.5, 0.0, 0.0), (0.5, 0.0, 0.6), (0.9, 0.3, 0.6), (1.3, 0.5, -2.8)]
"""Paths of (metres ahead, metres to the left, radians to the left) from the start."""


def along(path, config, device="cpu", goal=(6.0, 2.0), n=64):
    """Observations by odometry of agents on a path, and the true ones."""
    bodies = Bodies.empty(n, torch.device(device))
    bodies.episode[:] = 3
    zero = torch.zeros(1, dtype=torch.int64, device=device)
    odometry = Odometry(bodies, config, SimpleNamespace(seed=zero, first_agent=zero))
    true_goal, found, expected = torch.zeros(n, 2, device=device), [], []
    for step, (x, y, yaw) in enumerate(path):
        bodies.position[:] = torch.tensor([-y, 0.0, -x])
        bodies.heading[:], bodies.steps[:] = yaw, step
        ahead, left = goal[0] - x, goal[1] - y
        bearing = math.remainder(math.atan2(left, ahead) - yaw, 2 * math.pi)
        true_goal[:] = torch.tensor([math.hypot(ahead, left), bearing])
        odometry.update()
        for rows, frame_bodies, shown in (
            (found, odometry.bodies, odometry.goal(true_goal)), (expected, bodies, true_goal)
        ):  # fmt: skip
            row = {"pointgoal": shown.cpu().clone()}
            for name, make in POSE_SENSORS.items():
                sensor = make()
                out = torch.zeros(n, *sensor.spec.shape, device=device)
                sensor.write(SimpleNamespace(odometry=frame_bodies), out)
                row[name] = out.cpu()
            rows.append(row)
    return found, expected


def test_without_errors_the_estimate_is_true(device):
    found, expected = along(TURNING, DisturbanceConfig(drift=(0.0, 1e-9)), device)
    for now, true in zip(found, expected, strict=True):
        for name in true:
            torch.testing.assert_close(now[name], true[name], atol=ROUNDING, rtol=ROUNDING)


def test_drift_makes_motions_longer_or_shorter(device):
    last = along(STRAIGHT, DisturbanceConfig(drift=(0.1, 0.1)), device)[0][-1]
    travelled = last["gps"][:, 0]
    longer = travelled > 4.0
    assert longer.any() and not longer.all()
    torch.testing.assert_close(travelled, torch.where(longer, 4.4, 3.6), atol=ROUNDING, rtol=0.0)
    torch.testing.assert_close(
        last["pointgoal"][:, 0], torch.hypot(6.0 - travelled, torch.tensor(2.0)), atol=ROUNDING, rtol=0.0
    )
    assert (last["compass"] == 0.0).all()


def test_errors_differ_by_episode_within_their_range():
    travelled = along(STRAIGHT, DisturbanceConfig(drift=(0.02, 0.1)), n=512)[0][-1]["gps"][:, 0]
    errors = (travelled / 4.0 - 1.0).abs()
    assert errors.min() > 0.02 - ROUNDING and errors.max() < 0.1 + ROUNDING
    assert errors.mean() == pytest.approx(0.06, abs=0.005)


def test_drift_turns_the_heading_per_metre(device):
    last = along(STRAIGHT, DisturbanceConfig(turn_drift_deg_per_m=(1.0, 1.0)), device)[0][-1]
    np.testing.assert_allclose(last["compass"].abs(), math.radians(4.0), rtol=1e-4)
    np.testing.assert_allclose(last["heading"], last["compass"], rtol=1e-4)
    assert (last["gps"][:, 1].abs() > 0.1).all()  # the estimated path is an arc


@pytest.mark.parametrize("latency", [(2, 2), (0, 3)])
def test_late_observations_are_those_of_steps_ago_in_the_same_episode(latency, device):
    n = 64
    bodies = Bodies.empty(n, torch.device(device))
    zero = torch.zeros(1, dtype=torch.int64, device=device)
    seeds = SimpleNamespace(seed=zero, first_agent=zero)
    late, out, seen = Latency((POINTGOAL,), bodies, DisturbanceConfig(latency=latency), seeds), {}, []
    for step in (*range(6), *range(4)):
        bodies.steps[:] = step
        bodies.episode.add_(int(step == 0))
        out["pointgoal"] = torch.zeros(n, 2, device=device)
        late.write(lambda tensors, value=float(step): tensors["pointgoal"].fill_(value), out)
        seen.append(out["pointgoal"][:, 0].cpu())
    seen = torch.stack(seen)
    if latency == (2, 2):
        assert seen[:, 0].tolist() == [0, 0, 0, 1, 2, 3, 0, 0, 0, 1] and (seen == seen[:, :1]).all()
        return
    steps_late = torch.stack([5 - seen[5], 3 - seen[9]])
    assert set(steps_late.flatten().tolist()) == {0, 1, 2, 3} and (steps_late[0] != steps_late[1]).any()
    assert torch.equal(seen[3], (3 - steps_late[0]).clamp(min=0))


def test_kernels_compile_for_the_gpu_without_float64(compile_ptx):
    """Types of the arguments are those of an environment's arrays."""
    n, device = 2, torch.device("cpu")
    bodies, seeds = Bodies.empty(n, device), SimpleNamespace(seed=torch.zeros(1, dtype=torch.int64))
    seeds.first_agent = seeds.seed
    odometry = Odometry(bodies, DisturbanceConfig(), seeds)
    of_pose, of_goal = (typeof(view(part)) for part in (odometry.track, torch.zeros(n, 2)))
    true = typeof(odometry.poses)
    assert ".f64" not in compile_ptx(disturbances.estimate_pose, true, typeof(odometry.errors), of_pose)
    assert ".f64" not in compile_ptx(disturbances.estimate_goal, of_goal, true, of_pose, of_goal)
    counters = *[typeof(view(bodies.steps))] * 2, *[typeof(view(seeds.seed))] * 2, *[nb.int32] * 2
    assert ".f64" not in compile_ptx(disturbances.find_rows, *counters, nb.int64[:, ::1])
    now = typeof(view(View(torch.zeros(n, 4, 4), bodies.position, bodies.heading, bodies.heading)))
    for lens in (nb.float32[::1], nb.float32[:, ::1]):
        steps = typeof(view(bodies.steps))
        assert ".f64" not in compile_ptx(depth_odometry.align, now, now, lens, steps, nb.float32, of_pose)


# Environments


@pytest.fixture(scope="module")
def houses():
    return load_all(("house:7",))


def make(houses, n=3, first_env=0, seed=0, **options):
    return NavEnv(
        houses, n, "cpu", seed, sensors=SENSORS, height=16, width=16, max_steps=60, first_env=first_env, **options
    )


def play(env, steps=30, seed=0):
    """Observations, rewards and ends of seeded actions, from a reset on."""
    turns = torch.Generator().manual_seed(seed)
    rows = [{name: value.clone() for name, value in env.reset()[0].items()}]
    for _ in range(steps):
        actions = torch.randint(FORWARD, RIGHT + 1, (8,), generator=turns)[: env.num_envs]
        observation, reward, terminated, truncated, _ = env.step(actions)
        rows.append({name: value.clone() for name, value in observation.items()})
        rows[-1] |= {"reward": reward.clone(), "done": (terminated | truncated).clone()}
    return rows


def test_images_and_rewards_are_those_of_the_true_pose_and_maps_those_of_the_estimate(houses):
    plain, drifted = play(make(houses)), play(make(houses, drift=(0.3, 0.3), turn_drift_deg_per_m=(3.0, 3.0)))
    for name in ("depth", "reward"):
        assert torch.equal(plain[-1][name], drifted[-1][name])
    for name in ("pointgoal", "waypoint", "gps", "compass", "heading"):
        torch.testing.assert_close(plain[0][name], drifted[0][name], atol=ROUNDING, rtol=0.0)
        assert (plain[-1][name] - drifted[-1][name]).abs().max() > 0.1


def test_goal_and_waypoint_of_an_agent_come_from_one_estimate(houses):
    env = make(houses, drift=(0.4, 0.4), sliding=False)
    env.reset()
    start = {name: env.last_observation[name].clone() for name in ("pointgoal", "compass")}
    for _ in range(12):
        observation = env.step(torch.full((3,), FORWARD))[0]
    (x, right), rho = observation["gps"].unbind(1), start["pointgoal"]
    goal = torch.stack([rho[:, 0] * torch.cos(rho[:, 1]), -rho[:, 0] * torch.sin(rho[:, 1])], 1)
    left = goal - torch.stack([x, right], 1)
    torch.testing.assert_close(observation["pointgoal"][:, 0], left.norm(dim=1), atol=1e-3, rtol=0.0)
    origin, size = env.mapper.map_state.origin_and_resolution[:, :2], env.mapper.map_state.origin_and_resolution[:, 2:]
    traversed = env.mapper.map_state.layers.is_traversed.view(3, SIDE, SIDE)
    places = [((bodies.position[:, ::2] - origin) / size).long() for bodies in (env.frame.odometry, env.sim.bodies)]
    estimated, true = (traversed[range(3), at[:, 1], at[:, 0]] for at in places)
    assert estimated.all() and not true.all()


def errors_of_pose(env, steps=40):
    """Errors of the estimated position, metres, of map planners on their way."""
    planner = make_reference_agent("map_planner", env)
    planner.reset(env.num_envs)
    observation, start = env.reset()[0], torch.ones(env.num_envs, dtype=torch.bool)
    for _ in range(steps):
        actions = planner.act(observation, start)
        observation, _, terminated, truncated, _ = env.step(actions.clamp(min=FORWARD))
        start = terminated | truncated
    return (env.frame.odometry.position - env.sim.bodies.position).norm(dim=1), env


def test_localisation_corrects_the_estimate_by_depth(houses):
    options = {"drift": (0.1, 0.1), "turn_drift_deg_per_m": (0.5, 0.5)}
    options |= {"config": with_options(NavConfig(sensors=SENSORS), {"height": 48, "width": 48})}
    raw, _ = errors_of_pose(NavEnv(houses, 4, "cpu", **options))
    corrected, env = errors_of_pose(NavEnv(houses, 4, "cpu", localisation=True, **options))
    assert raw.mean() > 0.2 and corrected.mean() < 0.2 * raw.mean()
    other = NavEnv(houses, 4, "cpu", 5, localisation=True, **options)
    other.load_state_dict(env.state_dict())
    for _ in range(3):
        found, expected = (each.step(torch.full((4,), FORWARD))[0] for each in (other, env))
        assert torch.equal(found["gps"], expected["gps"])


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"sensors": ("depth",)}, "map.localisation: found True with sensors depth"),
        ({"sensors": ("waypoint", "lidar"), "map_sensor": "lidar"}, "expected depth, and goals that are points"),
        ({"sensors": ("waypoint",), "task": "objectnav"}, "expected depth, and goals that are points"),
    ],
)
def test_localisation_needs_depth_and_a_map(houses, options, expected):
    with pytest.raises(ConfigError, match=expected):
        NavEnv(houses, 1, "cpu", localisation=True, **options)


def test_an_agent_has_the_same_errors_in_any_batch(houses):
    options = {"drift": (0.0, 0.2), "latency": (0, 2)}
    whole, part = play(make(houses, 4, **options), 8), play(make(houses, 1, **options), 8)
    assert torch.equal(whole[0]["gps"][:1], part[0]["gps"])
    assert not torch.equal(whole[-1]["gps"][0], whole[-1]["gps"][1])


def test_late_environments_observe_what_others_did(houses):
    plain, late = play(make(houses)), play(make(houses, latency=(2, 2)))
    for name in ("depth", "pointgoal", "waypoint"):
        assert torch.equal(late[2][name], plain[0][name]) and torch.equal(late[9][name], plain[7][name])
    assert torch.equal(late[9]["reward"], plain[9]["reward"])


def test_experts_of_late_policies_know_the_present(houses):
    plain, late = make(houses), make(houses, latency=(3, 3))
    for env in (plain, late):
        play(env, 7)
    experts = [make_expert("map_planner", env) for env in (plain, late)]
    start = torch.zeros(3, dtype=torch.bool)
    for expert in experts:
        expert.reset(3)
    actions = [expert.act(env.last_observation, start) for expert, env in zip(experts, (plain, late), strict=True)]
    assert torch.equal(*actions)


def test_experts_stop_nearer_to_the_goal_where_odometry_drifts(houses):
    exact, drifting = (make_expert("greedy", make(houses, **drift)) for drift in ({}, {"drift": (0.0, 0.01)}))
    assert exact.radius == pytest.approx(0.197) and drifting.radius == pytest.approx(0.1275)


def test_disturbed_environments_continue_from_saved_states(houses):
    options = {"drift": (0.0, 0.1), "turn_drift_deg_per_m": (0.0, 1.0), "latency": (0, 2)}
    env, other = make(houses, **options), make(houses, seed=5, **options)
    play(env, 9)
    state = env.state_dict()
    other.load_state_dict(state)
    again = other.observe_again()
    assert set(again) == {"depth", "gps", "compass", "heading", "pointgoal"}
    for name, value in again.items():
        assert torch.equal(value, env.last_observation[name])
    for _ in range(5):
        found, expected = (each.step(torch.full((3,), LEFT))[0] for each in (other, env))
        for name in expected:
            assert torch.equal(found[name], expected[name]), name
    for name in ("odometry_position", "late_depth"):
        with pytest.raises(CheckpointError, match=name):
            other.load_state_dict({**state, name: torch.full_like(state[name], math.inf)})
    with pytest.raises(CheckpointError, match="late_depth"):
        other.load_state_dict({name: value for name, value in state.items() if name != "late_depth"})


def test_policies_are_evaluated_without_the_disturbances_of_their_training():
    info = {"env": {"disturbances": {"drift": [0.0, 0.03], "latency": [0, 1]}}}
    assert config_of(info) == NavConfig()


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"drift": (-0.1, 0.0)}, "drift"),
        ({"drift": (0.1, 0.0)}, "drift: found .*expected the smallest and the largest value"),
        ({"drift": (0.1,)}, "drift"),
        ({"drift": (0.0, 3.0)}, "drift"),
        ({"turn_drift_deg_per_m": (0.0, 400.0)}, "turn_drift_deg_per_m"),
        ({"latency": (0, 10**6)}, "latency"),
        ({"latency": (0, 1.5)}, "latency"),
    ],
)
def test_absurd_ranges_are_refused(options, expected):
    with pytest.raises(ConfigError, match=expected):
        with_options(NavConfig(), options)


def test_drift_needs_an_observation_of_the_pose(houses):
    blind = NavConfig(task=PointNavConfig(gps_compass=False))
    with pytest.raises(ConfigError, match="found drift with sensors depth, expected one that reads the pose"):
        NavEnv(houses, 1, "cpu", config=blind, drift=(0.0, 0.1))
