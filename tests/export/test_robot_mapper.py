"""The mapper of one robot beside the maps of an environment."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from batchnav.data.scenes.load import load_scene
from batchnav.envs.config import NavConfig
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError
from batchnav.export import RobotMapper
from batchnav.tasks.explore import ExploreConfig
from batchnav.tasks.objectnav import ObjectNavConfig
from batchnav.tasks.pointnav import PointNavConfig
from docs.figures.robot import FOLDER, record

BOTH = frozenset({"ego_map", "waypoint"})
CONFIG = NavConfig(sensors=("depth", "waypoint", "ego_map"))


def ros_pose(env: NavEnv) -> tuple[float, float, float]:
    x, _, z = env.sim.bodies.position[0].tolist()
    return -z, -x, float(env.sim.bodies.heading[0])


def test_in_the_environments_frame_maps_and_waypoints_are_equal():
    """Poses in the frame of the scene give the environment's own map, with collisions, over two episodes."""
    env = NavEnv([load_scene("house:3")], 1, "cpu", seed=3, config=CONFIG)
    mapper, draw, collisions = RobotMapper(BOTH, env.config), np.random.default_rng(0), 0
    for _ in range(2):
        seen, _ = env.reset()
        mapper.reset()
        before = 0
        for _ in range(60):
            count = int(env.sim.bodies.collisions[0])
            depth = seen["depth"][0, 0].numpy() * env.config.depth.max_depth
            found = mapper.observe(depth, ros_pose(env), seen["pointgoal"][0].numpy(), count > before)
            before = count
            np.testing.assert_allclose(found["waypoint"], seen["waypoint"].numpy(), atol=1e-4)
            assert np.mean(found["ego_map"] != seen["ego_map"].numpy()) < 0.005
            seen, *_ = env.step(env.sim.bodies.scene.new_tensor([draw.choice([1, 1, 1, 2, 3])]).long())
        collisions += before
    assert collisions > 0
    env.close()


def test_bad_measurements_are_refused():
    mapper = RobotMapper(BOTH, CONFIG)
    depth, goal = np.ones((64, 64), np.float32), np.float32([1.0, 0.0])
    with pytest.raises(ArgumentError, match=r"depth: found float32 \[32, 64\], expected floats \[64, 64\]"):
        mapper.observe(depth[:32], (0.0, 0.0, 0.0), goal)
    with pytest.raises(ArgumentError, match=r"depth: found uint16"):
        mapper.observe(depth.astype(np.uint16), (0.0, 0.0, 0.0), goal)
    with pytest.raises(ArgumentError, match="goal: found None, expected the observation pointgoal"):
        mapper.observe(depth, (0.0, 0.0, 0.0))
    with pytest.raises(ArgumentError, match=r"goal: found \[inf, 0\.0\], expected finite"):
        mapper.observe(depth, (0.0, 0.0, 0.0), np.float32([np.inf, 0.0]))
    with pytest.raises(ArgumentError, match="pose"):
        mapper.observe(depth, (0.0, float("nan"), 0.0), goal)
    with pytest.raises(ArgumentError, match="pose: found 2 numbers, expected x, y and yaw"):
        mapper.observe(depth, (0.0, 0.0), goal)
    with pytest.raises(ArgumentError, match="found the sensors ego_map of the task objectnav"):
        RobotMapper(frozenset({"ego_map"}), replace(CONFIG, task=ObjectNavConfig()))
    with pytest.raises(ArgumentError, match="found the sensor waypoint in a task without GPS and compass"):
        RobotMapper(BOTH, replace(CONFIG, task=PointNavConfig(gps_compass=False)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ('{"format": "batchnav deployment 1"}', "found no inputs with names or no environment"),
        ('{"format": "batchnav deployment 1", "inputs": [1], "environment": {}}', "found no inputs with names"),
        ('{"format": "batchnav deployment 1", "inputs": [], "environment": {}}', "found a policy without a map"),
    ],
)
def test_files_that_describe_no_policy_are_refused(tmp_path, text, message):
    if text is not None:
        (tmp_path / "policy.json").write_text(text)
    with pytest.raises(ArgumentError, match=message):
        RobotMapper.load(tmp_path / "policy.json")


def test_a_task_without_goal_has_a_map():
    mapper = RobotMapper(frozenset({"ego_map"}), NavConfig(sensors=("depth", "ego_map"), task=ExploreConfig()))
    depth = np.full((64, 64), np.nan, np.float32)
    mapper.reset()
    assert mapper.observe(depth, (0.0, 0.0, 0.0))["ego_map"].shape == (1, 1, 48, 48)


# The recorded observation of docs/howto/deploy_on_a_robot.md is the simulator's

MOST_BYTES = 100_000


@pytest.mark.slow
def test_the_simulator_records_it_again():
    depth, rgb, numbers = record()
    kept = json.loads((FOLDER / "numbers.json").read_text())
    difference = np.abs(np.asarray(Image.open(FOLDER / "depth.png")).astype(int) - depth)
    assert (difference > 1).mean() < 0.005  # millimetres; silhouettes may differ between machines
    assert (np.asarray(Image.open(FOLDER / "rgb.png")) != rgb).mean() < 0.005
    assert kept.keys() == numbers.keys() and kept["scene"] == numbers["scene"]
    for name in ("pose", "goal", "pointgoal", "waypoint", "probabilities", "value"):
        np.testing.assert_allclose(kept[name], numbers[name], atol=1e-3, err_msg=name)
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < MOST_BYTES
