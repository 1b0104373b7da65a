"""Seeded runs with fixed actions, compared with stored results, so that a test detects every change of results.

python tests/test_golden.py       stores the current results (state the reason of the change in the changelog)
"""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from batchnav.cartpole.env import CartPoleEnv
from batchnav.data.scenes.load import load_scene
from batchnav.envs.nav import NavEnv, PointNavEnv
from batchnav.scene.goals import ObjectGoal, SceneGoals

KEPT = Path(__file__).parent / "golden"
N = 8
OBJECTS = (("bed", 186), ("bed", 197), ("chair", 206), ("sofa", 275))
"""Category and object id of the goals in house:7."""
STEPS = 80
ROUNDING = 1e-4
"""Absolute tolerance, in metres, radians or units of reward: processors contract products differently."""

ALLOWED = {"depth": 1e-3, "goal_mask": 1e-3, "ego_map": 5e-3, "waypoint": 0.03}
"""Fractions that may differ on other processors: pixels on silhouettes, and the map cells and waypoints they affect."""


def play(env, observations, actions, live=None):
    """Results of all steps by name, stacked over time, with the named observations. `live`: further tensors."""
    seen = []
    env.reset(seed=1)
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        row = {name: observation[name] if name else observation for name in observations}
        row |= {"reward": reward, "terminated": terminated, "truncated": truncated}
        row |= live or {}
        row |= {f"episode_{name}": value for name, value in info["episode"].items()}
        seen.append({name: value.clone() for name, value in row.items()})
    return {name or "observation": torch.stack([row[name] for row in seen]).numpy() for name in seen[0]}


def mostly_forward():
    """Random actions i64 [STEPS, N] with few stops."""
    generator = torch.Generator().manual_seed(2)
    probabilities = torch.tensor([0.02, 0.58, 0.2, 0.2]).expand(STEPS, 4)
    return torch.multinomial(probabilities, N, replacement=True, generator=generator)


def pointnav():
    """PointNav with a depth camera, in a house."""
    env = PointNavEnv([load_scene("house:7")], N, "cpu", height=16, width=16, max_steps=50)
    return play(env, ("pointgoal", "depth"), mostly_forward())


def goal_free(task):
    """Flee or Explore without a camera, in two houses; also the agents' positions."""
    env = NavEnv([load_scene("house:3"), load_scene("house:7")], N, "cpu", task=task, sensors=(), max_steps=50)
    return play(env, (), mostly_forward(), {"position": env.sim.bodies.position})


def mapping():
    """PointNav with waypoints and egocentric maps, in a house; the ten levels of the maps as u8."""
    sensors = ("depth", "ego_map", "waypoint")
    env = PointNavEnv([load_scene("house:7")], N, "cpu", height=32, width=32, max_steps=50, sensors=sensors)
    run = play(env, ("ego_map", "waypoint"), mostly_forward())
    return run | {"ego_map": (run["ego_map"] * 10).astype(np.uint8)}


def cartpole():
    """CartPole with random actions."""
    actions = torch.randint(0, 2, (STEPS, N), generator=torch.Generator().manual_seed(2))
    return play(CartPoleEnv(N, "cpu"), ("",), actions)


def objectnav():
    """ObjectNav with goal masks, in a house; view points are sampled points, since rendered ones depend on rounding."""
    house = load_scene("house:7")
    points = house.navmesh.sample(60, seed=3).reshape(4, 15, 3)
    objects = [
        ObjectGoal(category, number, category, (0.0, 0.0, 0.0), places, *np.zeros((2, 15), np.float32))
        for (category, number), places in zip(OBJECTS, points, strict=True)
    ]
    house = house._replace(goals=SceneGoals("test", tuple(objects)))
    options = {"sensors": ("goal_mask",), "height": 16, "width": 16, "max_steps": 50, "min_detour_ratio": 1.0}
    env = NavEnv([house], N, "cpu", task="objectnav", **options)
    return play(env, ("objectgoal", "goal_mask"), mostly_forward(), {"position": env.sim.bodies.position})


RUNS = {
    "pointnav": pointnav, "flee": partial(goal_free, "flee"), "explore": partial(goal_free, "explore"),
    "mapping": mapping, "objectnav": objectnav, "cartpole": cartpole,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_seeded_run_is_as_it_was(name):
    found = RUNS[name]()
    with np.load(KEPT / f"{name}.npz") as kept:
        assert found.keys() == set(kept.files)
        for part, expected in kept.items():
            if expected.dtype == bool:
                np.testing.assert_array_equal(found[part], expected, err_msg=part)
            elif part in ALLOWED:
                differs = np.abs(found[part] - expected.astype(np.float32)) > ROUNDING
                assert differs.mean() <= ALLOWED[part], part
            else:
                np.testing.assert_allclose(found[part], expected, atol=ROUNDING, rtol=ROUNDING, err_msg=part)
    assert found["terminated"].any() and (name == "cartpole" or found["truncated"].any())


if __name__ == "__main__":
    KEPT.mkdir(exist_ok=True)
    for name, run in RUNS.items():
        np.savez_compressed(KEPT / f"{name}.npz", **run())
