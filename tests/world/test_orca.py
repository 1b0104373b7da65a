"""ORCA: velocities of random scenes against RVO2, the reference implementation, through pyrvo."""

import numpy as np
import pytest
import torch

from batchnav.runtime.kernels.arrays import view
from batchnav.sim.bodies import Bodies
from batchnav.types import MovingBodies
from batchnav.world.orca import HORIZON, PLANE_ROWS
from batchnav.world.people import CORNERS, HURRY, SIGHT, WALK_ROW, WAYPOINTS, People, Rules, choose_velocities

SCENES, BODIES = 1000, 8
STEP = 0.25


@pytest.fixture(scope="module")
def scenes():
    """Random places, velocities, radii and goals; bodies do not overlap at the start in 9 of 10 scenes."""
    rng = np.random.default_rng(0)
    shape = SCENES, BODIES
    place = rng.uniform(-3.5, 3.5, (*shape, 2))
    return {
        "place": place.astype(np.float32),
        "velocity": rng.normal(0.0, 0.6, (*shape, 2)).astype(np.float32),
        "radius": rng.uniform(0.2, 0.4, shape).astype(np.float32),
        "speed": rng.uniform(0.5, 1.5, shape).astype(np.float32),
        "goal": rng.uniform(-20.0, 20.0, (*shape, 2)).astype(np.float32),
    }


def on_floor(pairs):
    """Pairs (x, z) as points."""
    return np.stack([pairs[..., 0], np.zeros_like(pairs[..., 0]), pairs[..., 1]], axis=-1)


def chosen_by_us(scenes):
    """Velocities f32 [SCENES, BODIES, 2] of `choose_velocities`."""
    total = SCENES * BODIES
    path = np.zeros((SCENES, BODIES, CORNERS, 3), np.float32)
    path[:, :, 0] = on_floor(scenes["goal"])
    given = {
        "count": np.full(SCENES, BODIES, np.int32), "position": on_floor(scenes["place"]), "path": path,
        "velocity": scenes["velocity"], "radius": scenes["radius"], "speed": scenes["speed"],
        "corners": np.ones((SCENES, BODIES), np.int32), "new_velocity": np.zeros_like(scenes["velocity"]),
        "waypoint": np.zeros((SCENES, BODIES, WAYPOINTS, 3), np.float32),
        "robot_position": np.zeros((SCENES, 3), np.float32),
    }  # fmt: skip
    whole = {"shape", "appearance", "leg", "draws", "corner", "slow"}
    arrays = {
        name: given.get(name, np.zeros((SCENES, BODIES), np.int32 if name in whole else np.float32))
        for name in People._fields
    }
    people = People(*(
        np.ascontiguousarray(array.reshape(-1, WALK_ROW[name]) if name in WALK_ROW else array.reshape(-1))
        for name, array in arrays.items()
    ))  # fmt: skip
    f32 = np.float32
    rules = Rules(
        f32(STEP), f32(0.0), f32(0.1), False, True, np.int64(BODIES), np.int64(0), np.int64(1), np.int32(0),
        np.int32(8), f32(0.3), f32(1.7), f32(0.8), f32(1.2),
    )  # fmt: skip
    planes = np.zeros((total, PLANE_ROWS, 4), np.float32)
    robots = view(Bodies.empty(SCENES, torch.device("cpu")))
    choose_velocities(total, robots, people, rules, planes, people)
    return people.new_velocity.reshape(SCENES, BODIES, 2)


def chosen_by_rvo2(scenes):
    """Velocities of RVO2's simulator after one step."""
    pyrvo = pytest.importorskip("pyrvo")
    found = np.zeros((SCENES, BODIES, 2))
    for k in range(SCENES):
        sim = pyrvo.RVOSimulator()
        sim.set_time_step(STEP)
        away = scenes["goal"][k] - scenes["place"][k]
        preferred = away / np.linalg.norm(away, axis=1, keepdims=True) * scenes["speed"][k][:, None]
        for i in range(BODIES):
            speed, radius = float(scenes["speed"][k, i]) * float(HURRY), float(scenes["radius"][k, i])
            sim.set_agent_defaults(float(SIGHT), BODIES, float(HORIZON), 1.0, radius, speed, [0.0, 0.0])
            sim.add_agent(list(map(float, scenes["place"][k, i])))
            sim.set_agent_velocity(i, list(map(float, scenes["velocity"][k, i])))
            sim.set_agent_pref_velocity(i, list(map(float, preferred[i])))
        sim.do_step()
        for i in range(BODIES):
            velocity = sim.get_agent_velocity(i)
            found[k, i] = velocity.x, velocity.y
    return found


def test_velocities_are_those_of_rvo2(scenes):
    gap = np.abs(chosen_by_us(scenes) - chosen_by_rvo2(scenes)).max(axis=2)
    # Where two half-planes leave one velocity almost parallel edges, float32 decides which corner is the best.
    assert (gap <= 1e-3).mean() > 0.999, np.sort(gap.ravel())[-20:]
    assert np.median(gap) < 1e-6


def test_fields_of_moving_bodies_come_first():
    assert People._fields[: len(MovingBodies._fields)] == MovingBodies._fields
