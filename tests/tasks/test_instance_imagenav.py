"""Instance ImageNav: the image of the goal, success at its view points, sampling, resuming, fixed episodes."""

import math

import gymnasium
import numpy as np
import pytest
import torch
from object_rooms import IMAGES, furnished, imaged_room, table
from rooms import metrics_of

from batchnav.envs.config import PRESETS
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError, ConfigError, EpisodeError
from batchnav.scene.bank import SceneBank
from batchnav.sensors.scene_images import render
from batchnav.sim.bodies import FORWARD, LEFT, STOP

N = 8
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


@pytest.fixture(scope="module")
def room():
    return imaged_room()


def make(scene, n=N, device="cpu", **options):
    size = {"goal_height": 24, "goal_width": 32, "height": 16, "width": 16}
    return NavEnv([scene], n, device, **{"task": "instance_imagenav", "sensors": (), **size, **options})


def episodes(scene, rows, images, device="cpu"):
    """Episodes of (start x, start z, heading, instance), with the number of an image."""
    return table(scene, rows, device)._replace(goal_image=torch.tensor(images, device=device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("renderer", ["raycast", "opengl"])
def test_the_image_is_that_of_the_goals_own_camera(room, device, renderer, request):
    """Equal to an image rendered from the same pose, with its field of view; constant within an episode."""
    if renderer == "opengl":
        request.getfixturevalue("opengl")
    rows, images = [(3.0, 3.0, 0.0, 0), (3.0, 3.0, 0.0, 0), (3.0, 3.0, 0.0, 1)], [0, 1, 0]
    env = make(room, 3, device, episodes=episodes(room, rows, images, device), renderer=renderer)
    seen = env.reset()[0]["imagegoal"].clone()
    assert seen.shape == (3, 3, 24, 32) and seen.dtype == torch.uint8
    for i, (x, y, z, heading, pitch, hfov) in enumerate((*IMAGES[1], *IMAGES[2])):
        assert env.task.goal_camera[i].tolist() == pytest.approx([x, y, z, heading, pitch, hfov], abs=1e-6)
        if pitch == 0.0:  # `render` has level cameras
            size = {"height": 24, "width": 32, "hfov_deg": math.degrees(hfov), "device": device}
            expected = render(room, [x, y, z], heading, ("rgb",), renderer=renderer, **size)["rgb"][0]
            assert np.abs(seen[i].cpu().permute(1, 2, 0).numpy().astype(int) - expected).max() <= 2
    red, blue = seen[0].float().mean((1, 2)), seen[2].float().mean((1, 2))
    assert red[0] > red[2] + 20 and blue[2] > blue[0] + 20
    for _ in range(3):
        assert torch.equal(env.step(torch.full((3,), FORWARD, device=env.device))[0]["imagegoal"], seen)


@pytest.mark.parametrize("device", DEVICES)
def test_agents_observe_the_field_of_view_of_the_goals_camera(room, device):
    """In radians, of the image that the episode shows; in the first observation too, and by Gymnasium's name."""
    rows, images = [(3.0, 3.0, 0.0, 0), (3.0, 3.0, 0.0, 0), (3.0, 3.0, 0.0, 1)], [0, 1, 0]
    table = episodes(room, rows, images, device)
    expected = torch.tensor([[1.2], [1.6], [1.3]], device=device)
    env = make(room, 3, device, episodes=table, sensors=("rgb", "goal_hfov"))
    assert list(env.reset()[0]) == ["rgb", "goal_hfov", "imagegoal"]
    space = env.single_observation_space["goal_hfov"]
    assert (space.shape, space.dtype) == ((1,), np.float32)
    for _ in range(3):
        observation = env.step(torch.full((3,), FORWARD, device=env.device))[0]
        torch.testing.assert_close(observation["goal_hfov"], expected)
    size = {"goal_height": 24, "goal_width": 32, "height": 16, "width": 16}
    options = {"scenes": [room], "num_envs": 3, "device": device, "episodes": table, "sensors": ("goal_hfov",)}
    envs = gymnasium.make_vec("batchnav/InstanceImageNav-v0", **options, **size)
    torch.testing.assert_close(envs.reset()[0]["goal_hfov"], expected)


def test_the_field_of_view_follows_the_episode(room):
    """After a stop the next episode's image has a camera of its own."""
    rows, images = [(3.0, 3.0, 0.0, 0), (3.0, 3.0, 0.0, 1)], [1, 0]
    env = make(room, 1, episodes=episodes(room, rows, images), sensors=("goal_hfov",))
    assert env.reset()[0]["goal_hfov"].item() == pytest.approx(1.6)
    assert env.step(torch.tensor([STOP]))[0]["goal_hfov"].item() == pytest.approx(1.3)


def test_other_tasks_have_no_camera_of_the_goal(room):
    with pytest.raises(ConfigError, match="found 'goal_hfov' with a task without cameras of goal images, expected"):
        NavEnv([room], 1, task="imagenav", sensors=("rgb", "goal_hfov"), height=16, width=16)


@pytest.mark.parametrize("device", DEVICES)
def test_success_is_at_the_view_points_of_that_object(room, device):
    """The view point of the chair is (1.25, 2.0), that of the bed (4.25, 2.0)."""
    rows = [(1.25, 2.0, 0.0, 0), (4.25, 2.0, 0.0, 0), (4.25, 2.0, 0.0, 1)]
    env = make(room, 3, device, episodes=episodes(room, rows, [0, 0, 0], device))
    env.reset()
    *_, info = env.step(torch.full((3,), STOP, device=env.device))
    assert info["episode"]["success"].tolist() == [1.0, 0.0, 1.0]
    assert info["episode"]["distance_to_goal"][1].item() == pytest.approx(3.0, abs=0.2)


@pytest.mark.parametrize("device", DEVICES)
def test_objects_and_images_are_sampled(room, device):
    env = make(room, 256, device, sensors=())
    env.reset()
    state = env.task.state
    assert set(state.category.tolist()) == {0, 1}
    chairs = state.goal_image[state.category == 0]
    assert 0.3 < float(chairs.float().mean()) < 0.7 and set(chairs.tolist()) == {0, 1}
    assert set(state.goal_image[state.category == 1].tolist()) == {0}
    few = make(room, 4, device)
    few.reset()
    assert torch.equal(few.task.state.goal_image, state.goal_image[:4])


@pytest.mark.parametrize("device", DEVICES)
def test_the_walker_to_the_nearest_view_point_succeeds(room, device):
    env = make(room, device=device, turn_angle_deg=30.0)
    ended = metrics_of("shortest_path", env, 100)
    assert len(ended) >= N and ended.all()


def test_a_run_resumes(room):
    env, again = make(room, seed=1, max_steps=8), make(room, seed=2, max_steps=8)
    env.reset()
    again.reset()
    env.step(torch.full((N,), FORWARD))
    again.load_state_dict(env.state_dict())
    for action in (LEFT, FORWARD) * 8:
        (seen, reward, *_), (expected, wanted, *_) = (each.step(torch.full((N,), action)) for each in (again, env))
        assert torch.equal(reward, wanted) and torch.equal(seen["imagegoal"], expected["imagegoal"])


def test_bad_goals_and_episodes_are_refused(room):
    with pytest.raises(EpisodeError, match=r"goal_image\[0\]: found 2, expected the number of one of the goal's 2 im"):
        make(room, 1, episodes=episodes(room, [(3.0, 3.0, 0.0, 0)], [2]))
    bare = furnished()
    with pytest.raises(ArgumentError, match=r"found the goal 'chair_1' without images, .* Instance ImageNav files"):
        NavEnv(SceneBank.pack([bare], appearance=True, goal_categories=()), 1, task="instance_imagenav")
    with pytest.raises(ArgumentError, match="found a bank with goals of none, expected some"):
        NavEnv(SceneBank.pack([bare], appearance=True), 1, task="instance_imagenav")


def test_the_preset_is_as_published():
    config = PRESETS["instance_imagenav_hm3d"]
    body, camera = config.body, config.camera
    assert (camera.height, camera.width, camera.hfov_deg, camera.camera_height) == (640, 360, 42.0, 1.31)
    assert (body.agent_height, body.agent_radius, body.control, body.tilt_angle_deg) == (1.41, 0.17, "v1", 30.0)
    assert (config.task.max_steps, config.task.success_distance, config.task.goal_height) == (1000, 0.1, 512)
    assert set(config.sensors) == {"rgb", "depth", "gps", "compass"}
