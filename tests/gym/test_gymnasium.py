"""Gymnasium's interface: environments by name, wrappers, checks."""

import subprocess
import sys
import types
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import FrameStackObservation, RecordEpisodeStatistics, RecordVideo, TransformReward
from gymnasium.wrappers import vector as vector_wrappers
from worlds import write_box, write_floor

import batchnav
from batchnav.envs.stream import SceneStream
from batchnav.errors import ArgumentError
from batchnav.gym import TASKS as NAMES
from batchnav.gym.envs import GymnasiumNav
from batchnav.scene.goals import ObjectGoal, SceneGoals
from batchnav.scene.resident import SceneSize
from batchnav.tasks import TASKS

N = 3
SMALL = {"height": 16, "width": 16, "device": "cpu", "max_steps": 6}
NAV, CARTPOLE = "batchnav/PointNav-v0", "batchnav/CartPole-v0"


@pytest.fixture(scope="module")
def floor(tmp_path_factory):
    """A floor whose middle is the view point of a chair with an image, for tasks that search for objects."""
    scene = batchnav.load_scene(write_floor(tmp_path_factory.mktemp("floor") / "floor.ply"))
    middle, zero = scene.navmesh.snap(scene.navmesh.bounds.mean(0, keepdims=True)), np.zeros(1, np.float32)
    camera = np.array([(0.0, 1.0, 0.0, 0.0, 0.0, 1.5)], np.float32)
    chair = ObjectGoal("chair", 1, "chair_1", (0.0, 0.0, 0.0), middle, zero, zero + 1, camera)
    return scene._replace(goals=SceneGoals("test", (chair,)))


@pytest.fixture
def make(floor):
    def call(name=NAV, num_envs=N, **options):
        nav = {} if name == CARTPOLE else {"scenes": [floor], **SMALL}
        return gymnasium.make_vec(name, num_envs=num_envs, **{"seed": 0, **nav, **options})

    return call


@pytest.fixture
def single(floor):
    def call(name=NAV, **options):
        nav = {} if name == CARTPOLE else {"scenes": [floor], **SMALL}
        return gymnasium.make(name, **{"seed": 0, **nav, **options})

    return call


@pytest.mark.parametrize("order", ["import batchnav, gymnasium", "import gymnasium, batchnav"])
def test_names_are_registered_in_either_order_of_imports(order):
    code = f"{order}; print(*(n for n in gymnasium.registry if n.startswith('batchnav/')))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert found == [*(f"batchnav/{name}-v0" for name in NAMES), CARTPOLE]


def test_names_are_registered_after_a_failed_import_attempt():
    code = (
        "import importlib.util, sys, batchnav; importlib.util.find_spec('gymnasium'); "
        "import gymnasium; print('batchnav/PointNav-v0' in gymnasium.registry); "
        "print(any('batchnav' in type(finder).__module__ for finder in sys.meta_path))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert found == ["True", "False"]


def test_every_task_has_a_name():
    assert set(NAMES.values()) == set(TASKS)


@pytest.mark.parametrize("name", [*(f"batchnav/{name}-v0" for name in NAMES), CARTPOLE])
@pytest.mark.parametrize("output", ["torch", "numpy"])
def test_vector_environments_follow_gymnasiums_interface(make, name, output):
    """Spaces, shapes, dtypes and copies; actions of all array types."""
    env = make(name, output=output)
    assert isinstance(env, gymnasium.vector.VectorEnv) and env.num_envs == N
    assert isinstance(env.metadata["autoreset_mode"], AutoresetMode)
    observation, info = env.reset(seed=5)
    array = np.ndarray if output == "numpy" else torch.Tensor

    def host(value):
        return {k: np.asarray(v) for k, v in value.items()} if isinstance(value, dict) else np.asarray(value)

    assert env.observation_space.contains(host(observation)) and info == {}
    sampled = env.action_space.sample()
    for actions in (sampled, sampled.tolist(), sampled.astype(np.int32), torch.from_numpy(sampled)):
        before, kept = observation, str(observation)
        observation, reward, terminated, truncated, info = env.step(actions)
        assert observation is not before and str(before) == kept
        assert isinstance(info, dict) and env.observation_space.contains(host(observation))
        for value in (reward, terminated, truncated):
            assert isinstance(value, array) and value.shape == (N,)
        assert str(terminated.dtype).endswith("bool") and str(reward.dtype).endswith("float32")
    same = make(name, output=output).reset(seed=5)[0]
    again = env.reset(seed=5)[0]
    for a, b in zip(*(x.values() if isinstance(x, dict) else [x] for x in (same, again)), strict=True):
        assert np.array_equal(np.asarray(a), np.asarray(b))
    env.close()
    with pytest.raises(ArgumentError, match="closed"):
        env.step(sampled)


@pytest.mark.parametrize("name", [NAV, CARTPOLE])
def test_gymnasiums_own_statistics_and_rewards(make, name):
    env = vector_wrappers.RecordEpisodeStatistics(make(name, output="numpy"))
    env = vector_wrappers.TransformReward(env, lambda reward: 2 * reward)
    env.reset(seed=1)
    total, steps, ended = np.zeros(N), np.zeros(N), 0
    for _ in range(40):
        _, reward, terminated, truncated, info = env.step(np.ones(N, int))
        total, steps = total + reward / 2, steps + 1
        over = terminated | truncated
        for i in over.nonzero()[0]:
            assert info["episode"]["l"][i] == steps[i] and info["episode"]["r"][i] == pytest.approx(total[i], abs=1e-4)
            assert info["_final_info"][i]
        ended += over.sum()
        total[over], steps[over] = 0, 0
    assert ended > N


def test_metrics_are_the_ended_episodes(make):
    env = make()
    env.reset()
    *_, info = env.step([0] * N)
    assert info["_final_info"].all() and info["final_info"]["_success"].all()
    assert set(info["final_info"]) >= {"success", "spl", "distance_to_goal"}


def test_next_step_begins_the_next_episode_one_step_later(make):
    """Equal episodes as with SAME_STEP; the last observation takes the place of the next episode's first."""
    same, later = make(final_observation=True), make(autoreset_mode="NEXT_STEP")
    first, _ = same.reset(seed=3)
    assert torch.equal(first["depth"], later.reset(seed=3)[0]["depth"])
    stop = [0, 1, 1]
    observation, reward, terminated, truncated, info = later.step(stop)
    expected, wanted, *_, final = same.step(stop)
    assert torch.equal(reward, wanted) and terminated.tolist() == [True, False, False]
    assert torch.equal(observation["pointgoal"][0], final["final_obs"]["pointgoal"][0])
    assert info["_success"].tolist() == [True, False, False]
    observation, reward, terminated, truncated, info = later.step([1, 2, 2])
    assert reward[0] == 0 and not (terminated | truncated).any() and not info["_success"].any()
    assert torch.equal(observation["depth"][0], expected["depth"][0])
    moved, *_ = later.step([1, 2, 2])
    assert not torch.equal(moved["pointgoal"][0], observation["pointgoal"][0])


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_reset_mask_begins_some_episodes(make, mode):
    env = make(autoreset_mode=mode)
    env.reset()
    before, *_ = env.step([1] * N)
    mask = np.array([False, True, False])
    after, _ = env.reset(options={"reset_mask": mask})
    changed = [not torch.equal(after["pointgoal"][i], before["pointgoal"][i]) for i in range(N)]
    assert changed == mask.tolist() and env.unwrapped.sim.bodies.steps.tolist() == [1, 0, 1]


def test_disabled_autoreset_waits_for_the_mask(make):
    env = make(autoreset_mode="DISABLED")
    env.reset()
    _, _, terminated, _, _ = env.step([0, 1, 1])
    assert terminated.tolist() == [True, False, False]
    env.reset(options={"reset_mask": terminated})
    assert env.unwrapped.sim.bodies.episode.tolist() == [1, 0, 0]
    assert not env.step([1] * N)[2].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reset_mask": np.zeros(N, bool)}, "reset_mask: found .* 0 of them set"),
        ({"reset_mask": np.ones(N)}, "reset_mask: found torch.float64"),
        ({"reset_mask": np.ones(N + 1, bool)}, "reset_mask: found .*4"),
        ({"mask": None}, "options: found 'mask'"),
    ],
)
def test_invalid_options_are_named(make, options, message):
    env = make()
    env.reset()
    with pytest.raises(ArgumentError, match=message):
        env.reset(options=options)
    with pytest.raises(ArgumentError, match="expected integers"):
        env.step(np.zeros(N))


@pytest.mark.parametrize("name", [NAV, CARTPOLE])
def test_gymnasiums_checker_finds_nothing(single, name):
    env = single(name, **({"render_mode": "rgb_array"} if name == NAV else {})).unwrapped
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*(infinity|is -inf|is inf|not.*normalized|render).*")
        check_env(env, skip_render_check=True)


def test_one_environment_with_gymnasiums_wrappers(single):
    env = TransformReward(FrameStackObservation(RecordEpisodeStatistics(single()), 4), lambda reward: 2.0 * reward)
    observation, _ = env.reset(seed=2)
    assert observation["depth"].shape == (4, 1, 16, 16) and env.observation_space.contains(observation)
    over, total, last = False, 0.0, observation["depth"][-1]
    while not over:
        observation, reward, terminated, truncated, info = env.step(1)
        over, total = terminated or truncated, total + reward / 2.0
        assert np.array_equal(observation["depth"][-2], last), "the frame before the last is the last step's"
        last = observation["depth"][-1]
    assert isinstance(reward, float) and info["episode"]["l"] == 6 and truncated
    assert info["episode"]["r"] == pytest.approx(total, abs=1e-4) and info["success"] == 0.0


@pytest.fixture
def films(monkeypatch):
    """Arguments of Gymnasium's RecordVideo to MoviePy, which tests lack: (rate, images, path) each."""
    written = []

    def clip(frames, fps):
        return types.SimpleNamespace(write_videofile=lambda path, logger: written.append((fps, np.stack(frames), path)))

    for name in ("moviepy", "moviepy.video", "moviepy.video.io", "moviepy.video.io.ImageSequenceClip"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setattr(sys.modules["moviepy.video.io.ImageSequenceClip"], "ImageSequenceClip", clip, raising=False)
    return written


def test_a_video_of_one_environment(single, films, tmp_path):
    env = RecordVideo(single(render_mode="rgb_array"), str(tmp_path), episode_trigger=lambda episode: episode == 1)
    for _ in range(2):
        env.reset()
        for _ in range(6):
            env.step(1)
    env.close()
    ((rate, frames, path),) = films
    assert rate == 10 and path.endswith("episode-1.mp4") and len(frames) == 7
    assert not np.array_equal(frames[0], frames[-1])


def test_a_video_of_scenes_of_any_shape(make, floor, films, tmp_path):
    """Images of agents form one frame, so maps of a wide and of a deep scene have equal size."""
    narrow = batchnav.load_scene(write_box(tmp_path / "narrow.ply", (0.0, -0.1, 0.0), (9.0, 0.0, 3.0)))
    env = make(num_envs=2, scenes=[floor, narrow], render_mode="rgb_array")
    options = {"step_trigger": lambda step: step == 0, "video_length": 4}
    video = vector_wrappers.RecordVideo(env, str(tmp_path / "videos"), **options)
    video.reset()
    assert set(env.sim.bodies.scene.tolist()) == {0, 1}
    sizes = {picture.shape for picture in env.render()}
    for _ in range(5):
        video.step([1, 2])
    ((_, frames, _),) = films
    assert len(sizes) == 1 and frames.dtype == np.uint8 and len(frames) == 5


def test_rendered_frames(single, make):
    env = single(render_mode="rgb_array")
    env.reset(seed=0)
    first = env.render()
    env.step(1)
    second = env.render()
    assert first.dtype == np.uint8 and first.shape == second.shape and first.shape[2] == 3
    assert not np.array_equal(first, second)
    vector = make(render_mode="rgb_array")
    vector.reset()
    assert len(vector.render()) == N
    with pytest.raises(ArgumentError, match="render_mode: found 'human'"):
        make(render_mode="human")


def test_streamed_scenes_are_not_rendered(floor):
    """Maps would have to be made again for each loaded scene."""
    stream = SceneStream(["a"], lambda name: floor, SceneSize.of(floor), 1)
    with pytest.raises(ArgumentError, match="render_mode: found 'rgb_array' with a SceneStream"):
        GymnasiumNav(stream, N, render_mode="rgb_array", **SMALL)


def test_a_closed_environment_is_refused(single):
    for name in (NAV, CARTPOLE):
        env = single(name).unwrapped
        env.reset()
        env.close()
        for call in (env.reset, lambda env=env: env.step(1), env.render):
            with pytest.raises(ArgumentError, match="closed"):
                call()


def test_scenes_by_name():
    env = gymnasium.make_vec(NAV, num_envs=2, scenes=["house:3-4"], **SMALL)
    assert env.unwrapped.bank.names == ("house:3", "house:4")
    env.close()
    with pytest.raises(ArgumentError, match=r"expected a list of names, such as \['house:3'\]"):
        gymnasium.make_vec(NAV, num_envs=2, scenes="house:3")


def test_the_names_of_sensors_are_a_list():
    with pytest.raises(ArgumentError, match="sensors: found 'rgb', expected a list of names"):
        gymnasium.make_vec(NAV, num_envs=2, scenes=["house:3"], sensors="rgb", device="cpu")


def test_observations_of_a_single_environment_are_arrays(single):
    """Gymnasium's spaces take a number for no element of a Box without casting it."""
    env = single("batchnav/ObjectNav-v0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        observation, _ = env.reset(seed=0)
        env.step(1)
    assert {type(value) for value in observation.values()} == {np.ndarray} and observation["objectgoal"].shape == ()


def test_the_material_library_is_an_argument_of_the_environment(make):
    with pytest.raises(ArgumentError, match="material_library: found 5, expected a MaterialLibrary"):
        make(material_library=5)


def test_without_a_seed_runs_differ(floor):
    goals = [
        batchnav.PointNavEnv([floor], 2, seed=None, min_detour_ratio=1.0, **SMALL).reset()[0]["pointgoal"]
        for _ in range(2)
    ]
    assert not torch.equal(*goals)
