"""The registry of observation sources: order, new sources, images and categories of goals."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from batchnav.config import bounded, from_dict, to_dict
from batchnav.data.scenes.load import load_scenes
from batchnav.envs import observations
from batchnav.envs.config import NavConfig
from batchnav.envs.nav import NavEnv
from batchnav.envs.observations import image_sources, observation_sources, specs_of
from batchnav.errors import ConfigError
from batchnav.observation import ObservationSource, Requirements, Spec, TaskObservation
from batchnav.sensors import SENSORS
from batchnav.sensors.noise import RedwoodNoise
from batchnav.sensors.sensor import CameraSensor
from batchnav.tasks import TASKS
from batchnav.tasks.pointnav import PointNav, PointNavConfig

N = 3
SMALL = {"height": 8, "width": 12}


@pytest.fixture(scope="module")
def scenes():
    return load_scenes(["house:0"], appearance=True)


@dataclass(frozen=True)
class FindConfig(PointNavConfig):
    """A task whose goal is a category and is shown as images."""


class Find(PointNav):
    Config = FindConfig

    def __init__(self, sim, config, episodes=None):
        super().__init__(sim, config, episodes)
        self.goal_position, self.goal_heading = self.state.goal, torch.linspace(-3.0, 3.0, sim.num_envs)
        self.observations = {"objectgoal": torch.arange(sim.num_envs) % 2}

    @staticmethod
    def goal_images(config):
        return {"imagegoal": "rgb", "goal_depth": "depth"}

    @staticmethod
    def sources(config):
        return (TaskObservation(Spec("objectgoal", (), torch.int64, 0.0, 20.0, torch.int64)),)


class Altitude(ObservationSource):
    """Height above the world's origin, smoothed over the episode, metres: keeps a tensor between steps."""

    def __init__(self):
        self.spec = Spec("altitude", (1,), torch.float32, -np.inf, np.inf, torch.float32)
        self.requires = Requirements()

    def memory(self, num_envs, device):
        return {"altitude": 4 * num_envs}

    def bind(self, frame):
        self.mean = torch.zeros(frame.num_envs, 1, device=frame.device)

    @property
    def state(self):
        return {"altitude_mean": self.mean}

    @property
    def ranges(self):
        return {"altitude_mean": (-1e3, 1e3)}

    def write(self, frame, out):
        fresh = (frame.bodies.steps == 0)[:, None]
        height = frame.bodies.position[:, 1:2]
        self.mean.copy_(torch.where(fresh, height, 0.5 * self.mean + 0.5 * height))
        out.copy_(self.mean)


class Near(CameraSensor):
    """A camera sensor with settings of its own: True for surfaces within a distance."""

    @dataclasses.dataclass(frozen=True)
    class Config:
        """Settings of the sensor `near`."""

        limit: float = bounded(1.0, 0.0, 100.0)
        """Distance, metres."""

    def __init__(self, camera, config):
        super().__init__(Spec("near", (1, camera.height, camera.width), torch.uint8, 0.0, 1.0, torch.uint8))
        self.limit = config.limit

    def write(self, frame, out):
        out.copy_((self.depth(frame) < self.limit)[:, None])


def test_a_registered_sensor_has_settings_in_its_section_and_as_options(scenes, monkeypatch):
    monkeypatch.setitem(SENSORS, "near", Near)
    config = from_dict(NavConfig, {"sensors": ["near"], "near": {"limit": 100.0}, "camera": SMALL})
    assert to_dict(config)["near"] == {"limit": 100.0} and "depth" not in to_dict(config)
    assert config == NavEnv(scenes, 1, "cpu", sensors=("near",), limit=100.0, **SMALL).config
    env = NavEnv(scenes, 1, "cpu", config=config)
    assert env.reset()[0]["near"].all()
    with pytest.raises(ConfigError, match=r"near\.limit: found 101"):
        from_dict(NavConfig, {"near": {"limit": 101.0}})


@pytest.mark.parametrize(
    ("sensors", "expected"),
    [
        (("depth", "waypoint"), ["depth", "waypoint", "pointgoal"]),
        (("waypoint", "depth", "ego_map"), ["depth", "ego_map", "waypoint", "pointgoal"]),
        (("rgb", "depth"), ["depth", "rgb", "pointgoal"]),
        (("gps", "depth", "compass"), ["depth", "compass", "gps", "pointgoal"]),
    ],
)
def test_observations_have_one_order_however_they_are_listed(scenes, sensors, expected):
    assert [spec.name for spec in specs_of(NavConfig(sensors=sensors))] == expected
    env = NavEnv(scenes, 1, "cpu", sensors=sensors, **SMALL)
    assert list(env.single_observation_space.spaces) == list(env.observation_space.spaces) == expected
    assert [spec.name for spec in env.specs] == expected


def test_a_registered_source_is_observed_saved_and_resumed(scenes, monkeypatch):
    """A new source needs its class and a line in the registry."""
    monkeypatch.setitem(observations.SOURCES, "altitude", lambda config: Altitude())
    make = lambda: NavEnv(scenes, N, "cpu", sensors=("altitude",), max_steps=6, **SMALL)  # noqa: E731
    env, again = make(), make()
    assert list(env.single_observation_space.spaces) == ["altitude", "pointgoal"]
    env.reset(seed=1)
    for _ in range(4):
        env.step([1] * N)
    again.reset(seed=2)
    again.load_state_dict(env.state_dict())
    for _ in range(4):
        found, expected = (each.step([1] * N)[0]["altitude"] for each in (again, env))
        assert torch.equal(found, expected)


def test_images_of_the_goal_are_what_the_agent_observes_there(scenes, monkeypatch):
    """Bit for bit, with noise and sampled cameras; rendered once per episode, saved and resumed."""
    monkeypatch.setitem(TASKS, "find", Find)
    options = {
        "depth_noise": 1.0, "rgb_noise": "gaussian", "camera_height_range": (0.5, 1.5), "hfov_range_deg": (60.0, 100.0),
        "max_steps": 4, "sensors": ("rgb", "depth"), "task": "find", **SMALL,
    }  # fmt: skip
    env = NavEnv(scenes, N, "cpu", **options)
    assert [spec.name for spec in env.specs] == ["depth", "rgb", "imagegoal", "goal_depth", "objectgoal"]
    first, _ = env.reset(seed=4)
    moved, *_ = env.step([1] * N)
    for name in ("imagegoal", "goal_depth"):
        assert torch.equal(first[name], moved[name]) and first[name].float().std() > 0
    other = NavEnv(scenes, N, "cpu", **options)
    other.reset(seed=9)
    other.load_state_dict(env.state_dict())
    assert torch.equal(other.observe()["imagegoal"], first["imagegoal"])
    env.reset(seed=4)
    bodies = env.sim.bodies
    bodies.position.copy_(env.task.goal_position)
    bodies.heading.copy_(env.task.goal_heading)
    there = env.observe()
    assert torch.equal(there["rgb"], first["imagegoal"]) and torch.equal(there["depth"], first["goal_depth"])
    for _ in range(4):
        later, *_ = env.step([1] * N)
    assert not torch.equal(later["imagegoal"], first["imagegoal"])


def test_a_category_is_an_observation_of_integers(scenes, monkeypatch):
    monkeypatch.setitem(TASKS, "find", Find)
    env = NavEnv(scenes, N, "cpu", task="find", output="numpy", **SMALL)
    observation, _ = env.reset(seed=0)
    box = env.single_observation_space["objectgoal"]
    assert box.dtype == np.int64 and box.shape == () and box.high == 20
    assert observation["objectgoal"].dtype == np.int64 and observation["objectgoal"].tolist() == [0, 1, 0]
    assert env.storage["objectgoal"] == torch.int64
    assert env.observation_space.contains(observation)


def test_images_alone_need_no_agent():
    config = NavConfig(sensors=("depth", "waypoint", "gps"))
    assert list(image_sources(config)) == ["depth"]
    needs = {name: source.requires for name, source in observation_sources(config).items()}
    assert needs["waypoint"].map and not needs["gps"].map and needs["depth"].camera == ""


def test_depth_noise_is_computed_once_per_moment(scenes, monkeypatch):
    """Sensor and map read the same measurement."""
    calls, measure = [], RedwoodNoise.measure
    monkeypatch.setattr(RedwoodNoise, "measure", lambda self, *images: calls.append(1) or measure(self, *images))
    options = {"depth_noise": 1.0, "seed": 2, **SMALL}
    both = NavEnv(scenes, N, "cpu", sensors=("depth", "ego_map"), **options)
    observation, _ = both.reset()
    assert len(calls) == 1
    for name in ("depth", "ego_map"):
        alone, _ = NavEnv(scenes, N, "cpu", sensors=(name,), **options).reset()
        assert torch.equal(alone[name], observation[name])
