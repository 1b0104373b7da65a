"""GPS, compass and heading: closed forms, and consistency with the static goal."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numba import types as nb

from batchnav.data.scenes.load import load_scene
from batchnav.envs.config import NavConfig
from batchnav.envs.nav import NavEnv
from batchnav.envs.observations import specs_of
from batchnav.errors import ConfigError
from batchnav.scene.bank import SceneBank
from batchnav.sensors.pose import POSE_SENSORS, BodyPoses, read_goal, read_pose
from batchnav.sim.bodies import Bodies

ROUNDING = 1e-5
STARTS = [(0.0, (1.0, 2.0)), (math.pi / 2, (0.0, 0.0)), (-2.5, (-3.0, 1.0)), (3.0, (0.5, -9.0))]
MOVES = [((0.0, -2.0), 0.4), ((-1.0, 0.0), -3.0), ((0.3, 0.7), 3.0), ((0.0, 0.0), 6.5)]
"""Moves in x and z in metres, and turns to the left in radians."""


def told(device):
    n = len(STARTS)
    bodies = Bodies.empty(n, torch.device(device))
    start = np.array([(x, 0.5, z) for _, (x, z) in STARTS], np.float32)
    step = np.array([(x, 0.1, z) for (x, z), _ in MOVES], np.float32)
    headings, turns = np.float32([h for h, _ in STARTS]), np.float32([t for _, t in MOVES])
    for tensor, value in (
        (bodies.start, start), (bodies.position, start + step), (bodies.start_heading, headings),
        (bodies.heading, headings + turns),
    ):  # fmt: skip
        tensor.copy_(torch.from_numpy(value))
    found = {}
    for name, make in POSE_SENSORS.items():
        sensor = make()
        out = torch.full((n, *sensor.spec.shape), 9.0, device=device)
        sensor.write(SimpleNamespace(odometry=bodies), out)
        found[name] = out.cpu().numpy()
    return found


def test_closed_forms(device):
    found = told(device)
    assert found.keys() == POSE_SENSORS.keys()
    expected = []
    for (heading, _), ((dx, dz), _) in zip(STARTS, MOVES, strict=True):
        ahead, right = (-math.sin(heading), -math.cos(heading)), (math.cos(heading), -math.sin(heading))
        expected.append((dx * ahead[0] + dz * ahead[1], dx * right[0] + dz * right[1]))
    np.testing.assert_allclose(found["gps"], expected, atol=ROUNDING)
    np.testing.assert_allclose(found["gps"][:2], [(2.0, 0.0), (1.0, 0.0)], atol=ROUNDING)
    turned = [0.4, -3.0, 3.0, 6.5 - 2 * math.pi]
    np.testing.assert_allclose(found["compass"][:, 0], turned, atol=ROUNDING)
    now = [0.4, math.pi / 2 - 3.0, 0.5, 9.5 - 2 * math.pi]
    now[3] -= 2 * math.pi if now[3] > math.pi else 0.0
    np.testing.assert_allclose(found["heading"][:, 0], now, atol=ROUNDING)


def test_static_goal_with_gps_and_compass_gives_the_relative_goal(device):
    bank = SceneBank.pack([load_scene("house:3")], device)
    names = ("gps", "compass", "heading")
    follows, stays = (
        NavEnv(bank, 8, sensors=names, max_steps=9, seed=2, gps_compass=known, actuation_noise=0.5)
        for known in (True, False)
    )
    for env in (follows, stays):
        observation, _ = env.reset()
        assert not observation["gps"].any() and not observation["compass"].any()
        assert env.single_observation_space["gps"].shape == (2,)
        assert env.specs == specs_of(NavConfig(sensors=names))
    for action in torch.randint(1, 4, (20, 8), generator=torch.Generator().manual_seed(0)):
        (now, *_), (then, *_) = (env.step(action.to(env.device)) for env in (follows, stays))
        assert torch.equal(now["gps"], then["gps"])
        rho, angle = then["pointgoal"].unbind(1)
        ahead, left = rho * torch.cos(angle) - then["gps"][:, 0], rho * torch.sin(angle) + then["gps"][:, 1]
        compass = then["compass"][:, 0]
        expected = torch.hypot(ahead, left), torch.atan2(left, ahead) - compass
        torch.testing.assert_close(now["pointgoal"][:, 0], expected[0], atol=1e-4, rtol=0.0)
        off = now["pointgoal"][:, 1] - expected[1]
        assert torch.hypot(torch.sin(off), torch.cos(off) - 1.0).max() < 1e-2
        facing = then["heading"][:, 0] - stays.sim.bodies.start_heading - compass
        torch.testing.assert_close(torch.cos(facing), torch.ones_like(facing), atol=1e-4, rtol=0.0)


def test_kernels_compile_for_cuda_and_write_to_the_output(compile_ptx):
    poses = nb.NamedTuple((nb.float32[:, ::1], nb.float32[::1]) * 2, BodyPoses)
    assert ".f64" not in compile_ptx(read_pose, nb.int32, poses, nb.float32[:, ::1])
    points = nb.float32[:, ::1]
    assert "st.global.f32" in compile_ptx(read_goal, points, nb.float32[::1], points, points)
    bodies, (sensor,) = Bodies.empty(3, torch.device("cpu")), [POSE_SENSORS["heading"]()]
    for turned in (0.5, 1.0):
        bodies.heading.fill_(turned)
        out = torch.zeros(3, 1)
        sensor.write(SimpleNamespace(odometry=bodies), out)
        assert (out == turned).all()


def test_unknown_names_are_refused_with_all_names():
    with pytest.raises(ConfigError, match=r"found 'compas', expected some of depth.*compass, gps, heading"):
        specs_of(NavConfig(sensors=("gps", "compas")))


def test_true_goal_is_the_goals_place_in_any_task_with_goals(device):
    env = NavEnv(SceneBank.pack([load_scene("house:3")], device), 8, sensors=("true_goal",), max_steps=9, seed=2)
    env.reset()
    actions = torch.randint(1, 4, (12, 8), generator=torch.Generator().manual_seed(0)).to(env.device)
    for action in actions:
        now, *_ = env.step(action)
        torch.testing.assert_close(now["true_goal"], now["pointgoal"], atol=ROUNDING, rtol=0.0)
    bank = SceneBank.pack([load_scene("house:3")], device, appearance=True)
    env = NavEnv(bank, 8, task="imagenav", sensors=("rgb", "true_goal"), seed=2)
    env.reset()
    for action in actions:
        now, *_ = env.step(action)
        bodies, away = env.sim.bodies, env.task.goal_position - env.sim.bodies.position
        rho, bearing = now["true_goal"].unbind(1)
        towards = bodies.heading + bearing  # heading 0 looks along -Z, and grows to the left
        found = torch.stack([-rho * torch.sin(towards), -rho * torch.cos(towards)], 1)
        torch.testing.assert_close(found, away[:, ::2], atol=1e-4, rtol=0.0)  # rounding at 10 m
    with pytest.raises(ConfigError, match="sensors: found 'true_goal' with a task without goals"):
        NavEnv(bank, 2, task="explore", sensors=("true_goal",))
