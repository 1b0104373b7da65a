"""Moving bodies in recordings, trajectories and the images that are rendered again along them."""

import numpy as np
import torch
from frames import room_scene
from moving_bodies import made

from batchnav.agents.registry import make_reference_agent
from batchnav.envs.nav import NavEnv
from batchnav.evaluation.play import present, record
from batchnav.evaluation.trajectories import PoseCameras, TrajectoryRecorder, images_along
from batchnav.scene.bank import SceneBank

STEPS = 6


class Turning:
    """Turns to the left, and moves a person at every step."""

    def __init__(self, bodies):
        self.bodies = bodies

    def reset(self, num_envs):
        pass

    def act(self, observations, episode_start):
        self.bodies.position[:, 0, 0] += 0.2
        return torch.full((len(episode_start),), 2, dtype=torch.int64)


def crowded():
    """Two agents in a room with a person each, and a second one in the first world."""
    bank = SceneBank.pack([room_scene()], "cpu")
    env = NavEnv(bank, 2, sensors=("depth",), height=12, width=12, max_steps=STEPS, turn_angle_deg=60.0)
    bodies = made(position=np.tile(np.float32([[-1, 0, -1.5], [1.5, 0, 0]]), (2, 1, 1)), count=[2, 1])
    env.show_bodies(bodies)
    return env, Turning(bodies)


def test_recordings_hold_the_bodies_of_each_agents_world():
    env, agent = crowded()
    first, second = record(agent, env, seed=1)
    assert first.seen.position.shape == (STEPS, 2, 3) and first.seen.count.tolist() == [2] * STEPS
    assert present(first.seen, 0).tolist() == [0, 1] and present(second.seen, 0).tolist() == [0]
    np.testing.assert_allclose(np.diff(first.seen.position[:, 0, 0]), 0.2, atol=1e-6)
    np.testing.assert_array_equal(first.seen.position[:, 1, 0], np.float32(1.5))


def test_images_along_a_trajectory_show_the_bodies_of_its_steps():
    env, agent = crowded()
    (film, _) = record(agent, env, seed=1)
    recorder = TrajectoryRecorder(agent, env)
    agent.bodies.position[:, 0, 0] = -1.0
    observation, _ = env.reset(seed=1)
    recorder.reset(2)
    start = torch.ones(2, dtype=torch.bool)
    for _ in range(STEPS):
        observation, *_, info = env.step(recorder.act(observation, start))
        start = info["_episode"].clone()
    trajectory, _ = recorder.trajectories(2)
    np.testing.assert_array_equal(trajectory.seen.position, film.seen.position)
    cameras = PoseCameras(env.bank, env.config, at_once=4)
    with_people, without, again = images_along(
        cameras, np.zeros(3, np.int32), [trajectory, trajectory._replace(seen=None), trajectory.rows(np.arange(2))]
    )
    expected = film.images["depth"].values
    np.testing.assert_array_equal(with_people["depth"].values, expected)
    np.testing.assert_array_equal(again["depth"].values, expected[:2])
    assert (without["depth"].values != expected).any()


def test_a_world_without_bodies_records_none():
    env = NavEnv([room_scene()], 1, "cpu", sensors=("depth",), height=12, width=12, max_steps=2)
    (film,) = record(make_reference_agent("forward", env), env)
    assert film.seen is None
