"""ObjectNav: closed forms of distance, success, SPL and reward; sampling; resuming; streaming; CPU against CUDA."""

import math

import numpy as np
import pytest
import torch
from labelled import labelled_scene
from numba import types as nb
from object_rooms import CATEGORIES, corridor, furnished, object_room, table, with_objects
from rooms import metrics_of, play
from torch.nn import functional as F

from batchnav.data.goals.view_points import with_goals
from batchnav.envs.config import PRESETS, NavConfig
from batchnav.envs.nav import NavEnv
from batchnav.envs.stream import SceneStream
from batchnav.errors import ArgumentError, CheckpointError, ConfigError, EpisodeError
from batchnav.observation import memory_of
from batchnav.scene.bank import SceneBank
from batchnav.scene.resident import SceneSize
from batchnav.scene.scene import Scene
from batchnav.sensors import goal_mask
from batchnav.sensors.camera import CameraConfig
from batchnav.sensors.detector import SCALE, Detector, DetectorNet, save_detector
from batchnav.sensors.goal_mask import DETECTORS
from batchnav.sim.bodies import FORWARD, LEFT, LOOK_DOWN, LOOK_UP, RIGHT, STOP
from batchnav.tasks.objectnav import ObjectNavConfig

N = 16
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
OPTIONS = {"task": "objectnav", "categories": CATEGORIES, "sensors": ()}
WEST = math.pi / 2
"""Heading along -x."""


@pytest.fixture(scope="module")
def room():
    return object_room()


def make(scenes, n=N, device="cpu", **options):
    return NavEnv([scenes] if isinstance(scenes, Scene) else scenes, n, device, **{**OPTIONS, **options})


@pytest.mark.parametrize("device", DEVICES)
def test_the_nearer_of_two_goals_counts(device):
    """Corridor with goals 2 m to the west and 4 m to the east: d0 = 2; walking to the eastern one has SPL 2 / 4."""
    scene = with_objects(corridor(), ("chair", 1, [(3.0, 0.5)]), ("chair", 2, [(9.0, 0.5)]))
    rows = [(5.0, 0.5, WEST, 0), (5.0, 0.5, -WEST, 0)]
    env = make(scene, 2, device, episodes=table(scene, rows, device), forward_step=0.25)
    env.reset()
    np.testing.assert_allclose(env.task.state.start_distance.cpu(), 2.0, atol=1e-4)
    for _ in range(8):
        env.step(torch.full((2,), FORWARD, device=env.device))
    assert env.task.metrics["distance_to_goal"].cpu() == pytest.approx([0.0, 2.0], abs=1e-3)
    *_, terminated, _, info = env.step(torch.tensor([STOP, FORWARD], device=env.device))
    assert terminated.tolist() == [True, False]
    assert float(info["episode"]["success"][0]) == 1.0 and float(info["episode"]["spl"][0]) == pytest.approx(1.0)
    assert float(info["episode"]["start_distance"][0]) == pytest.approx(2.0, abs=1e-4)
    for _ in range(7):
        env.step(torch.full((2,), LEFT, device=env.device).index_fill(0, torch.tensor([1], device=env.device), FORWARD))
    *_, info = env.step(torch.tensor([LEFT, STOP], device=env.device))
    assert float(info["episode"]["success"][1]) == 1.0
    assert float(info["episode"]["spl"][1]) == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("device", DEVICES)
def test_success_is_strictly_within_the_success_distance(device):
    scene = with_objects(corridor(), ("chair", 1, [(3.0, 0.5)]))
    rows = [(3.0, 0.5, 0.0, 0)] * 4
    for limit, away in ((0.1, (0.0999, 0.1001, 0.05, 0.05)), (0.125, (0.124, 0.125, 0.05, 0.05))):
        env = make(scene, 4, device, episodes=table(scene, rows, device), max_steps=1, success_distance=limit)
        env.reset()
        goal = env.task.goal_position[0].clone()
        assert float(goal[0]) == 3.0  # so that 3.125 m is exact
        env.sim.bodies.position.copy_(goal.expand(4, 3))
        env.sim.bodies.position[:, 0] += torch.tensor(away, device=env.device)
        *_, truncated, info = env.step(torch.tensor([STOP, STOP, STOP, LEFT], device=env.device))
        assert info["episode"]["success"].tolist() == [1.0, 0.0, 1.0, 0.0]  # the last: at the time limit
        assert truncated.tolist() == [False, False, False, True]


def test_stopping_behind_a_wall_fails():
    """A chair and a wall 0.3 m from it: half a metre away, stops succeed in front of the chair only."""
    things = ("chair", [-0.3, 0.0, -0.3], [0.3, 0.8, 0.3]), ("wall", [-4.0, 0.0, 0.6], [3.0, 2.5, 0.65])
    scene = with_goals([labelled_scene(things)], device="cpu")[0]
    env = make(scene, 2, episodes=table(scene, [(0.0, -0.8, 0.0, 0), (0.0, 0.8, 0.0, 0)]))
    env.reset()
    assert float(env.task.state.start_distance[0]) < 0.1 < 2.0 < float(env.task.state.start_distance[1])
    *_, info = env.step(torch.full((2,), STOP))
    assert info["episode"]["success"].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("device", DEVICES)
def test_rewards_add_up(room, device):
    env = make(room, device=device, slack_reward=-0.001, control="v1")
    env.reset()
    first, total, before = env.task.state.distance.clone(), torch.zeros(N, device=env.device), None
    generator = torch.Generator().manual_seed(3)
    for _ in range(40):
        before = env.task.state.distance.clone()
        action = torch.randint(FORWARD, LOOK_DOWN + 1, (N,), generator=generator).to(env.device)
        _, reward, *_ = env.step(action)
        total += reward
        still = (action != FORWARD) & (reward != 0)
        assert torch.equal(env.task.state.distance[still], before[still])
        assert (reward[still] == np.float32(-0.001)).all()
    torch.testing.assert_close(total, first - env.task.state.distance - 0.04, atol=1e-4, rtol=0.0)
    *_, info = env.step(torch.full((N,), STOP, device=env.device))
    success = info["episode"]["success"]
    torch.testing.assert_close(info["episode"]["return"], total - 0.001 + 2.5 * success, atol=1e-4, rtol=0.0)


def test_turning_and_looking_leave_the_distance_unchanged(room):
    env = make(room, control="v1")
    env.reset()
    before = env.task.state.distance.clone()
    rewards, _ = play(env, (LEFT, RIGHT, LOOK_UP, LOOK_DOWN, LOOK_DOWN))
    assert torch.equal(env.task.state.distance, before) and (rewards == np.float32(-0.001)).all()
    assert float(env.sim.bodies.tilt[0]) == pytest.approx(-math.radians(30.0), abs=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_the_walker_to_the_nearest_view_point_succeeds(room, device):
    env = make(room, device=device, turn_angle_deg=30.0)
    ended = metrics_of("shortest_path", env, 250)
    assert len(ended) >= 2 * N and ended.all()


def test_episodes_of_a_category_do_not_depend_on_the_others(room):
    """Removing a category leaves the other's episodes; renumbering the categories changes numbers only."""

    def sampled(scene, categories):
        env = make(scene, 64, categories=categories, seed=5)
        env.reset()
        names = [env.task.categories[k] for k in env.task.goal_category.tolist()]
        state = env.task.state
        return names, torch.cat([env.sim.bodies.position, state.goal, state.start_distance[:, None]], dim=1)

    names, episodes = sampled(room, CATEGORIES)
    chairs = torch.tensor([name == "chair" for name in names])
    assert 16 <= int(chairs.sum()) <= 48
    other_names, permuted = sampled(room, CATEGORIES[::-1])
    assert other_names == names and torch.equal(permuted, episodes)
    alone = room._replace(goals=room.goals._replace(objects=room.goals.objects[:2]))
    found, of_chairs = sampled(alone, CATEGORIES)
    assert set(found) == {"chair"} and torch.equal(of_chairs[chairs], episodes[chairs])


def test_sampled_episodes_keep_their_limits(room):
    env = make(room, 256, closest_goal=2.0, furthest_goal=5.0)
    env.reset()
    distance, state = env.task.state.start_distance.numpy(), env.task.state
    assert distance.min() >= 2.0 and distance.max() <= 5.0
    for i in range(0, 256, 16):
        points = room.goals.view_points(env.task.categories[int(state.category[i])])
        starts = np.repeat(env.sim.bodies.position[i : i + 1].numpy(), len(points), axis=0)
        exact = room.navmesh.geodesic_distance(starts, points)
        assert distance[i] == pytest.approx(exact.min(), abs=1e-4)
        np.testing.assert_allclose(state.goal[i].numpy(), points[exact.argmin()], atol=1e-5)


def test_a_category_without_starts_is_not_asked_for(room):
    """A bed whose view points leave no start within the limits is skipped; without any category there is an error."""
    scene = with_objects(
        corridor(5.0), ("chair", 1, [(0.5, 0.5)]), ("bed", 2, [(x, 0.5) for x in np.arange(0.5, 5.0, 0.5)])
    )
    env = make(scene, 8)
    env.reset()
    assert env.task.goal_category.tolist() == [0] * 8
    with pytest.raises(EpisodeError, match=r"corridor.*goal of chair, bed"):
        make(scene, 8, closest_goal=20.0).reset()


def test_a_success_may_need_the_object_in_view():
    scene = with_objects(corridor(), ("chair", 1, [(3.0, 0.5)]))
    rows = [(3.05, 0.5, heading, 0) for heading in (0.0, 0.5, -0.5, 0.6, 3.0)]
    env = make(scene, 5, episodes=table(scene, rows), success_angle_deg=math.degrees(0.55))
    env.reset()
    *_, info = env.step(torch.full((5,), STOP))
    assert info["episode"]["success"].tolist() == [1.0, 1.0, 1.0, 0.0, 0.0]


def test_a_resumed_run_continues_alike(room):
    env, other = make(room), make(room, seed=9)
    env.reset()
    actions = torch.randint(0, 4, (60, N), generator=torch.Generator().manual_seed(1))
    for action in actions[:20]:
        env.step(action)
    state = env.state_dict()
    other.load_state_dict(state)
    for action in actions[20:]:
        mine, theirs = env.step(action), other.step(action)
        assert torch.equal(mine[0]["objectgoal"], theirs[0]["objectgoal"]) and torch.equal(mine[1], theirs[1])
    with pytest.raises(CheckpointError, match="category"):
        other.load_state_dict({**state, "category": torch.full((N,), 2)})


@pytest.mark.parametrize("device", DEVICES)
def test_streamed_scenes_bring_their_goals(device):
    """Three corridors take turns in two slots; distances are those of the scene that an agent is in."""
    scenes = {
        name: with_objects(corridor(length), ("chair", 1, [(0.5, 0.5)]), ("bed", 2, [(x, 0.5) for x in beds]))
        for name, length, beds in (("a", 6.0, (5.0,)), ("b", 9.0, (8.0, 7.0)), ("c", 12.0, (11.0,)))
    }
    size = SceneSize.largest(map(SceneSize.of, scenes.values()))
    stream = SceneStream(list(scenes), lambda name: scenes[name]._replace(name=name), size, 2)
    env = make(stream, 4, device, max_steps=5, turn_angle_deg=30.0)
    env.reset()
    seen = set()
    for step in range(60):
        env.step(torch.full((4,), FORWARD if step % 3 else LEFT, device=env.device))
        env.between_rollouts()
        if step % 5 == 4:
            env.settle()
            for i, slot in enumerate(env.sim.bodies.scene.tolist()):
                scene = scenes[env.bank.names[slot]]
                points = scene.goals.view_points(CATEGORIES[int(env.task.goal_category[i])])
                start = env.sim.bodies.start[i].cpu().numpy()
                exact = min(scene.navmesh.geodesic_distance(start, point) for point in points)
                assert float(env.task.state.start_distance[i]) == pytest.approx(exact, abs=1e-4)
                assert float(env.task.state.distance[i]) == pytest.approx(exact, abs=0.35)  # agents have moved
                seen.add(env.bank.names[slot])
    assert seen == set(scenes)
    env.close()


@pytest.mark.parametrize("size", [(16, 16), (5, 7)])
@pytest.mark.parametrize("device", DEVICES)
def test_goal_masks_show_the_goals_pixels(device, size):
    scene = furnished()
    rows = [(1.25, 3.0, 0.0, 0), (1.25, 3.0, 0.0, 1), (4.25, 3.0, 0.0, 1), (3.0, 5.0, 0.0, 0)]
    sensors = ("instance", "goal_mask")
    height, width = size
    env = make(scene, 4, device, episodes=table(scene, rows, device), sensors=sensors, height=height, width=width)
    observation, _ = env.reset()
    expected = torch.where(observation["instance"] == observation["objectgoal"].view(-1, 1, 1, 1) + 1, 255, 0)
    assert torch.equal(observation["goal_mask"], expected.to(torch.uint8))
    assert [bool(mask.any()) for mask in observation["goal_mask"]] == [True, False, True, True]


MASKS = {"task": "objectnav", "categories": CATEGORIES, "sensors": ("goal_mask", "left_goal_mask"), "height": 16}
SIDEWAYS = NavConfig(cameras={"left": CameraConfig(16, 16, camera_heading_deg=90.0)}, task=ObjectNavConfig())
NO_ERRORS = dict.fromkeys(("missed", "confused", "blobs", "border", "late", "scores"), 0.0)


def with_masks(device="cpu", config=SIDEWAYS, **options):
    return make(furnished(), N, device, config=config, seed=1, **{**MASKS, "width": 16, **options})


def turns(env, number=9):
    """Observations while all agents turn to the left."""
    env.reset()
    return [
        {name: image.clone() for name, image in env.step(torch.full((N,), LEFT, device=env.device))[0].items()}
        for _ in range(number)
    ]


@pytest.mark.parametrize("device", DEVICES)
def test_detectors_miss_objects_on_every_camera(device):
    nothing = {f"mask_{name}": value for name, value in NO_ERRORS.items()}
    exact, same = turns(with_masks(device)), turns(with_masks(device, mask_noise=1.0, **nothing))
    missed = turns(with_masks(device, mask_noise=1.0, **{**nothing, "mask_missed": 0.5}))
    for name in ("goal_mask", "left_goal_mask"):
        true, less = (torch.stack([seen[name] for seen in found]) for found in (exact, missed))
        assert true.any() and torch.equal(true, torch.stack([seen[name] for seen in same]))
        assert (less <= true).all() and 0.2 < less.float().sum() / true.float().sum() < 0.8
    sizes = [memory_of(with_masks(mask_noise=noise).sources.values(), N, torch.device("cpu")) for noise in (0.0, 1.0)]
    assert sizes == [0, 2 * (2 * 4 + 2) * N * 16 * 16]  # two images of ids and two masks a camera


def test_late_masks_resume(tmp_path):
    settings = {"mask_noise": 1.0, "mask_late": 0.5, "sensors": ("goal_mask", "ego_map", "left_goal_mask")}
    env, other = with_masks(**settings), with_masks(**settings)
    turns(env, 5)
    other.reset()
    state = env.state_dict()
    assert {"late_goal_mask", "late_left_goal_mask"} <= {*state}
    other.load_state_dict(state)
    for _ in range(4):
        found, expected = (each.step(torch.full((N,), LEFT))[0] for each in (other, env))
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        assert torch.equal(env.observe_again()["goal_mask"], expected["goal_mask"])  # a second time, the same


def test_a_detector_sees_colour_and_category_once_a_step(monkeypatch):
    seen = []

    def detect(rgb, category):
        seen.append((rgb.clone(), category.clone()))
        return rgb[:, :1] > 100

    monkeypatch.setitem(DETECTORS, "bright", detect)
    env = with_masks(
        sensors=("rgb", "goal_mask", "ego_map"), detector="bright", config=NavConfig(task=ObjectNavConfig())
    )
    observation, _ = env.reset()
    ((rgb, category),) = seen
    assert torch.equal(rgb, observation["rgb"]) and torch.equal(category, observation["objectgoal"])
    assert torch.equal(observation["goal_mask"], (rgb[:, :1] > 100).byte() * 255)
    assert not env.capturable and with_masks().capturable
    monkeypatch.setitem(DETECTORS, "bright", lambda rgb, category: rgb)
    with pytest.raises(ArgumentError, match=r"detector 'bright': found torch.uint8 \[16, 3, 16, 16\], expected"):
        env.step(torch.full((N,), LEFT))


@pytest.mark.parametrize("device", DEVICES)
def test_weights_see_colour_and_depth_at_twice_the_resolution(device, tmp_path, monkeypatch):
    """Maps read depth as it is, and the same masks."""
    torch.manual_seed(0)
    save_detector(tmp_path / "objects.safetensors", DetectorNet(["oven", *CATEGORIES[::-1]]))
    seen = []

    def masks(detector, views, number):
        seen.append((views, number))
        return F.avg_pool2d((views.depth[:, None] < 2.0).float(), SCALE)

    monkeypatch.setattr(Detector, "masks", masks)
    options = {"sensors": ("goal_mask", "rgb", "ego_map"), "detector": str(tmp_path / "objects.safetensors")}
    env = with_masks(device, config=NavConfig(task=ObjectNavConfig()), **options)
    observation, _ = env.reset()
    ((views, number),) = seen
    assert torch.equal(number, len(CATEGORIES) - observation["objectgoal"])
    height, width = observation["rgb"].shape[2:]
    assert views.rgb.shape == (N, 3, 2 * height, 2 * width) and views.depth.shape == (N, 2 * height, 2 * width)
    mean = F.avg_pool2d(views.rgb.float(), SCALE)
    assert (mean - observation["rgb"].float()).abs().mean() < 10.0
    torch.testing.assert_close(views.height, torch.full_like(views.height, env.config.camera.camera_height))
    shares = F.avg_pool2d((views.depth[:, None] < 2.0).float(), SCALE)
    assert torch.equal(observation["goal_mask"], (shares * 255).round().byte()) and observation["goal_mask"].any()
    monkeypatch.undo()
    assert env.step(torch.full((N,), LEFT, device=env.device))[0]["goal_mask"].shape == (N, 1, height, width)
    save_detector(tmp_path / "objects.safetensors", DetectorNet(["oven"]))
    with pytest.raises(ConfigError, match=r"found oven, expected .* among its categories, as the task asks for"):
        with_masks(device, **options)
    with pytest.raises(ConfigError, match=r"found 'none', expected one of DETECTORS: .* or weights of"):
        with_masks(device, detector="none")


@pytest.mark.cuda
def test_cpu_and_cuda_play_alike(room):
    envs = [make(room, 64, device, control="v1", turn_angle_deg=30.0) for device in ("cpu", "cuda")]
    for env in envs:
        env.reset()
    actions = torch.randint(0, 6, (80, 64), generator=torch.Generator().manual_seed(1))
    for action in actions:
        mine, theirs = (env.step(action.to(env.device)) for env in envs)
        assert torch.equal(mine[0]["objectgoal"], theirs[0]["objectgoal"].cpu())
        torch.testing.assert_close(mine[1], theirs[1].cpu(), atol=1e-4, rtol=1e-4)
        assert torch.equal(mine[2], theirs[2].cpu())
        for name, value in mine[4]["episode"].items():
            torch.testing.assert_close(value, theirs[4]["episode"][name].cpu(), atol=1e-3, rtol=1e-4, msg=name)


def test_bad_input_is_refused(room):
    with pytest.raises(ArgumentError, match="found no goals"):
        SceneBank.pack([room._replace(goals=None)], goal_categories=CATEGORIES)
    with pytest.raises(ArgumentError, match="bank with goals of none, expected chair, bed"):
        NavEnv(SceneBank.pack([room]), 2, **OPTIONS)
    with pytest.raises(ConfigError, match=r"goal_mask.*objectnav"):
        NavEnv([room], 2, "cpu", sensors=("goal_mask",))
    with pytest.raises(EpisodeError, match=r"category\[1\]: found 1 \('bed'\)"):
        alone = room._replace(goals=room.goals._replace(objects=room.goals.objects[:2]))
        make(alone, 2, episodes=table(room, [(1.0, 2.0, 0.0, 0), (1.0, 2.0, 0.0, 1)]))
    with pytest.raises(ConfigError, match="categories"):
        make(room, 2, categories=("chair", "chair"))


@pytest.mark.parametrize("name", [name for name, config in PRESETS.items() if config.task_name == "objectnav"])
def test_presets_are_complete(name):
    config = PRESETS[name]
    assert config.task.max_steps == 500 and config.body.turn_angle_deg == 30.0 and config.body.forward_step == 0.25
    assert config.task.success_distance == (0.25 if name == "ovon" else 0.1)
    assert {"gps", "compass"} < set(config.sensors)
    if name != "objectnav_houses":
        assert config.body.control == "v1" and not config.body.sliding and config.body.tilt_angle_deg == 30.0


def test_mask_kernels_compile_for_the_gpu(compile_ptx):
    ints, longs, quads = nb.Array(nb.int32, 1, "C"), nb.Array(nb.int64, 1, "C"), nb.Array(nb.int32, 2, "C")
    assert ".f64" not in compile_ptx(
        goal_mask.mask_pixels, nb.int32[:, :, ::1], ints, longs, nb.Array(nb.uint8, 4, "C")
    )
    ptx = compile_ptx(goal_mask._mask4_cuda, quads, ints, longs, nb.int64, ints)
    assert ".f64" not in ptx and "ld.global.v4" in ptx
