"""Disturbances of odometry, time, depth, cameras and actions."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from batchnav.data.formats import EpisodeDataset, load_episodes
from batchnav.envs.config import NavConfig
from batchnav.evaluation.robustness import CONDITIONS, Condition, DisturbedAgent
from batchnav.runtime.bundled import find_episodes
from batchnav.sim.bodies import BodyConfig
from batchnav.tasks.pointnav import PointNavConfig
from batchnav.world.config import WorldConfig

BY_NAME = {condition.name: condition for condition in CONDITIONS}


class Watcher:
    """An agent that keeps its observations."""

    def reset(self, num_envs):
        self.seen = []

    def act(self, observations, episode_start):
        self.seen.append({name: value.clone() for name, value in observations.items()})
        return torch.zeros(len(episode_start), dtype=torch.int64)


def walk(condition, poses, goal=(6.0, 2.0), starts=(0,)):
    """What an agent observes on a path of (x ahead, y left, yaw); two agents that do the same."""
    bodies = SimpleNamespace(position=torch.zeros(2, 3), heading=torch.zeros(2))
    env = SimpleNamespace(device=torch.device("cpu"), sim=SimpleNamespace(bodies=bodies))
    watcher = Watcher()
    agent = DisturbedAgent(watcher, env, condition)
    agent.reset(2)
    for step, (x, y, yaw) in enumerate(poses):
        bodies.position[:] = torch.tensor([-y, 0.0, -x])
        bodies.heading[:] = yaw
        ahead, left = goal[0] - x, goal[1] - y
        bearing = math.remainder(math.atan2(left, ahead) - yaw, 2 * math.pi)
        observations = {
            "pointgoal": torch.tensor([[math.hypot(ahead, left), bearing]] * 2),
            "gps": torch.tensor([[x, -y]] * 2), "compass": torch.full((2, 1), yaw),
            "heading": torch.full((2, 1), yaw), "depth": torch.full((2, 1, 2, 2), float(step)),
        }  # fmt: skip
        agent.act(observations, torch.full((2,), step in starts))
    return watcher.seen


TURNING = [(0.0, 0.0, 0.0), (0.5, 0.0, 0.0), (0.5, 0.0, 0.6), (0.9, 0.3, 0.6), (1.3, 0.5, -2.8)]


def test_without_errors_the_observations_are_true():
    found, expected = walk(Condition("tiny", drift=1e-9), TURNING), walk(Condition("none"), TURNING)
    for now, true in zip(found, expected, strict=True):
        for name in true:
            torch.testing.assert_close(now[name], true[name], atol=1e-5, rtol=1e-5)


def test_drift_makes_motions_longer_or_shorter():
    straight = [(0.25 * step, 0.0, 0.0) for step in range(17)]
    last = walk(BY_NAME["drift 10%"], straight)[-1]
    travelled = last["gps"][:, 0]
    assert all(min(abs(value - 4.4), abs(value - 3.6)) < 1e-5 for value in travelled.tolist())
    torch.testing.assert_close(last["pointgoal"][:, 0], torch.hypot(6.0 - travelled, torch.tensor(2.0)))
    assert (last["compass"] == 0.0).all()


def test_drift_turns_the_heading_per_metre():
    straight = [(0.25 * step, 0.0, 0.0) for step in range(17)]
    last = walk(BY_NAME["drift 1°/m"], straight)[-1]
    np.testing.assert_allclose(last["compass"].abs(), math.radians(4.0), rtol=1e-5)
    np.testing.assert_allclose(last["heading"], last["compass"], rtol=1e-6)
    assert (last["gps"][:, 1].abs() > 0.1).all()  # the estimated path is an arc


def test_late_observations_are_those_of_steps_ago_in_the_same_episode():
    found = walk(BY_NAME["latency 2 steps"], TURNING * 2, starts=(0, 6))
    assert [int(seen["depth"][0, 0, 0, 0]) for seen in found] == [0, 0, 0, 1, 2, 3, 6, 6, 6, 7]


def test_conditions_apply_where_they_change_something():
    applies = lambda config: {name for name, condition in BY_NAME.items() if condition.applies(config)}  # noqa: E731
    plain = NavConfig()
    assert applies(plain) == set(BY_NAME)
    assert not any("drift" in name for name in applies(replace(plain, sensors=("depth", "waypoint"))))
    assert not any("drift" in name for name in applies(replace(plain, task=PointNavConfig(gps_compass=False))))
    assert not any("depth noise" in name for name in applies(replace(plain, sensors=("rgb",))))
    assert "1 to 6 people" not in applies(replace(plain, world=WorldConfig(people=(2, 2))))
    assert not any("camera" in name for name in applies(replace(plain, sensors=())))
    assert "slip (PyRobot noise)" not in applies(replace(plain, body=BodyConfig(control="velocity")))
    changed = BY_NAME["camera 2° down"].config(replace(plain, camera=replace(plain.camera, camera_pitch_deg=-15.0)))
    assert changed.camera.camera_pitch_deg == -17.0


@pytest.mark.slow
def test_evaluate_writes_table_and_picture(run, tmp_path):
    few = tmp_path / "few.json.gz"
    EpisodeDataset(load_episodes(find_episodes("val"))[:2]).save(few)
    shown = run("evaluate", "greedy", "--episodes", few, "--out", tmp_path, "--robustness")
    rows = json.loads((tmp_path / "robustness.json").read_text())["conditions"]
    assert next(iter(rows)) == "undisturbed" and {"drift 10%", "latency 3 steps", "slip (PyRobot noise)"} < set(rows)
    assert "1 to 6 people" in rows and not any("depth noise" in name for name in rows)  # the agent has no camera
    assert (tmp_path / "robustness.webp").stat().st_size > 1000
    assert rows["undisturbed"]["spl"]["mean"] <= 1.0
    assert "do not apply to this agent: Redwood depth noise, D435 depth noise" in " ".join(shown.split())
