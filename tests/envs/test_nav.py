"""NavEnv: non-contiguous actions, final observations, scenes without episodes, and refused arguments."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import trimesh
from worlds import as_mesh, slab

from batchnav.config import from_dict
from batchnav.data.scenes.load import load_scene, load_scenes
from batchnav.envs.config import NavConfig
from batchnav.envs.nav import NavEnv, PointNavEnv
from batchnav.envs.stream import SceneStream
from batchnav.errors import ArgumentError, ConfigError, NavMeshError, NoEpisodesError
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.distributed import Ranks
from batchnav.scene.bank import SceneBank
from batchnav.scene.resident import SceneSize
from batchnav.scene.scene import make_scene
from batchnav.tasks import TASKS
from batchnav.tasks.goal_task import advance
from batchnav.tasks.pointnav import PointNav, PointNavConfig
from batchnav.training.config import TrainingConfig
from batchnav.training.environment import make_environment

N = 6
SMALL = {"height": 8, "width": 8}


@dataclass(frozen=True)
class ShortConfig(PointNavConfig):
    """Configuration of another task."""

    max_steps: int = 3
    patience: float = 1.0


class Short(PointNav):
    """Another task."""

    Config = ShortConfig


@pytest.fixture(scope="module")
def bank():
    return SceneBank.pack([load_scene("house:3"), load_scene("house:4")], "cpu", appearance=True)


def step_of(env, actions):
    """Copies of all results of a step."""
    observation, reward, terminated, truncated, info = env.step(actions)
    named = {**observation, **info["episode"], "reward": reward, "terminated": terminated, "truncated": truncated}
    return {name: value.clone() for name, value in named.items()}


def test_actions_with_gaps_compile_nothing_and_are_the_same(bank):
    wide = torch.randint(1, 4, (12, 2 * N), generator=torch.Generator().manual_seed(0))
    straight, gaps = NavEnv(bank, N, seed=1, **SMALL), NavEnv(bank, N, seed=1, **SMALL)
    straight.reset()
    gaps.reset()
    straight.step(wide[0, ::2].contiguous())
    gaps.step(wide[0, ::2].contiguous())
    signatures = list(advance.cpu.signatures)
    for row in wide[1:]:
        assert not row[::2].is_contiguous()
        expected, found = step_of(straight, row[::2].contiguous()), step_of(gaps, row[::2])
        assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert torch.equal(gaps.step(wide.T[::2, 3])[1], straight.step(wide[3, ::2].contiguous())[1])
    assert list(advance.cpu.signatures) == signatures


@pytest.mark.parametrize("sensors", [("depth",), ("depth", "normals"), ()])
def test_the_final_observation_is_what_was_seen_before_the_reset(bank, sensors):
    """An environment with longer episodes makes the same observation, and continues."""
    short = NavEnv(bank, N, seed=2, sensors=sensors, final_observation=True, max_steps=3, **SMALL)
    longer = NavEnv(bank, N, seed=2, sensors=sensors, max_steps=50, **SMALL)
    first = {name: value.clone() for name, value in short.reset()[0].items()}
    longer.reset()
    for number, action in enumerate(torch.randint(1, 4, (3, N), generator=torch.Generator().manual_seed(3)), start=1):
        observation, *_, info = short.step(action)
        expected = longer.step(action)[0]
        assert info["_final_obs"].tolist() == [number == 3] * N
        assert set(info["final_obs"]) == {*sensors, "pointgoal"}
        for name, value in info["final_obs"].items():
            assert torch.equal(value, expected[name])
            assert value.data_ptr() != observation[name].data_ptr()
    assert all(not torch.equal(observation[name], info["final_obs"][name]) for name in first)


def test_sensors_of_the_configuration(bank):
    assert NavEnv(bank, N, sensors=["normals", "gps"], **SMALL).config.sensors == ("normals", "gps")
    assert NavEnv(bank, N, **SMALL).config.sensors == ("depth",)


def test_final_observations_are_optional(bank):
    env = NavEnv(bank, N, **SMALL)
    env.reset()
    assert set(env.step(torch.full((N,), 1))[-1]) == {"episode", "_episode"}


def test_a_scene_without_episodes_is_refused_at_once():
    """At any position in the bank, and with any number of agents."""
    scenes = [slab("wide", 8.0), slab("narrow", 1.6), slab("broad", 9.0)]
    for num_envs in (1, 7):
        with pytest.raises(NoEpisodesError, match="'narrow': no episode found in 1000 tries"):
            NavEnv(scenes, num_envs, "cpu", **SMALL)


def test_the_error_names_all_scenes_without_episodes():
    scenes = [slab("narrow", 1.6), slab("wide", 8.0), slab("small", 1.5), slab("tight", 1.7)]
    with pytest.raises(NoEpisodesError, match="scenes 'narrow', 'small', 'tight': no episode found") as error:
        NavEnv(scenes, 4, "cpu", **SMALL)
    assert error.value.scenes == ("narrow", "small", "tight")


def test_training_leaves_out_scenes_without_episodes(caplog, tmp_path):
    """The environment is the one of the other scenes. Without any other scene the error names all."""
    sizes = {"wide": 8.0, "narrow": 1.6, "broad": 9.0, "small": 1.5}
    paths = {name: str(tmp_path / f"{name}.glb") for name in sizes}
    for name, size in sizes.items():
        trimesh.creation.box((size, 0.2, size)).export(paths[name])

    def make(*names):
        scenes = {"houses": 0, "sources": [paths[name] for name in names]}
        run = {"env": {"camera": SMALL}, "scenes": scenes, "ppo": {"num_envs": 3, "minibatches": 1}, "device": "cpu"}
        env = make_environment(from_dict(TrainingConfig, run), Ranks(torch.device("cpu")))
        return env.bank.names, env.reset(seed=1)[0]["pointgoal"]

    names, goals = make(*sizes)
    assert [Path(name).stem for name in names] == ["wide", "broad"]
    (record,) = (r.getMessage() for r in caplog.records if "left out" in r.getMessage())
    assert "narrow" in record and "small" in record
    assert torch.equal(goals, make("wide", "broad")[1])
    with pytest.raises(NoEpisodesError, match=r"narrow.*small.*no episode found"):
        make("narrow", "small")


def test_a_streamed_scene_without_episodes_is_left_out(caplog):
    """One warning names it; no agent is sent there, at the start or later; the other scenes are visited."""
    scenes = {scene.name: scene for scene in [*(slab(f"wide{k}", 8.0 + k) for k in range(4)), slab("narrow", 1.6)]}
    sizes = list(map(SceneSize.of, scenes.values()))
    for seed, of_slots in ((0, sizes), (1, sizes), (0, SceneSize.largest(sizes)), (1, SceneSize.largest(sizes))):
        caplog.clear()
        stream = SceneStream(list(scenes), scenes.__getitem__, of_slots, 2, seed)
        env, visited = PointNavEnv(stream, 2, "cpu", max_steps=2, **SMALL), set()
        env.reset()
        for _ in range(30):
            env.between_rollouts()
            for _ in range(2):
                env.step(torch.full((2,), 2))
            visited.update(env.bank.names[k] for k in env.sim.bodies.scene.tolist())
        env.close()
        assert visited == {*scenes} - {"narrow"}
        assert [r.getMessage() for r in caplog.records if "narrow" in r.getMessage()] == [
            "left out of training: scene 'narrow': " + env.task.no_episode_message
        ]


def test_a_slot_whose_scenes_have_no_episodes_stays_empty():
    """The group that it was for takes a spare one. Then no slot is left that a scene with episodes fits."""
    scenes = {scene.name: scene for scene in [slab(f"wide{k}", 8.0 + 4 * k) for k in range(4)]}
    scenes |= {scene.name: scene for scene in [slab(f"narrow{k}", 1.6) for k in range(3)]}
    env = PointNavEnv(
        SceneStream(list(scenes), scenes.__getitem__, list(map(SceneSize.of, scenes.values())), 3), 2, "cpu", **SMALL
    )
    env.reset()
    assert all(env.bank.names[k].startswith("wide") for k in env.sim.bodies.scene.tolist())
    with pytest.raises(NoEpisodesError, match="scenes 'narrow0', 'narrow1', 'narrow2': no episode found"):
        env.between_rollouts()


def test_a_stream_without_any_episodes_is_refused():
    scenes = {name: slab(name, 1.6) for name in ("narrow", "small", "tight")}
    capacity = SceneSize.largest(map(SceneSize.of, scenes.values()))
    with pytest.raises(NoEpisodesError, match="no episode found"):
        PointNavEnv(SceneStream(list(scenes), scenes.__getitem__, capacity, 2), 2, "cpu", **SMALL)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_envs": True}, ArgumentError, "num_envs: found True, expected an integer"),
        ({"num_envs": "6"}, ArgumentError, "num_envs: found '6'"),
        ({"num_envs": -1}, ArgumentError, "num_envs: found -1"),
        ({"height": "16"}, ConfigError, "height: found '16', expected int"),
        ({"height": True}, ConfigError, "height: found True, expected int"),
        ({"hfov_deg": None}, ConfigError, "hfov_deg: found None, expected float"),
        ({"sliding": 1}, ConfigError, "sliding: found 1, expected bool"),
        ({"task": "objectgoal"}, ConfigError, "task: found 'objectgoal', expected one of pointnav"),
        ({"renderer": "vulkan"}, ArgumentError, "renderer: found 'vulkan', expected one of raycast"),
        ({"task_": 1}, ConfigError, "option 'task_' is unknown, expected one of"),
        ({"agent_radius": 0.2}, NavMeshError, "house:3: found a navmesh that was baked for agent_radius 0.1"),
        ({"agent_height": 1.0}, NavMeshError, "expected agent_radius 0.1 and agent_height 1"),
    ],
)
def test_invalid_arguments_are_named(bank, options, error, message):
    with pytest.raises(error, match=message):
        NavEnv(bank, **{"num_envs": N, **options})


@pytest.mark.parametrize("scenes", [[], [None], ["house:3"]])
def test_scenes_are_scenes(scenes):
    with pytest.raises(ArgumentError, match="scenes"):
        NavEnv(scenes, N, "cpu")


def test_a_body_has_the_navmesh_that_was_baked_for_it():
    """A baked navmesh is baked again for another body; that of a file is refused."""
    mesh = as_mesh(trimesh.creation.box((8.0, 0.2, 8.0)))
    scene = make_scene("slab", mesh, settings=NavMeshSettings(agent_radius=0.3, agent_height=1.0))
    env = NavEnv([scene], 1, "cpu", **SMALL)
    assert env.bank.scenes[0].navmesh.settings == NavMeshSettings() and scene.navmesh.settings.agent_radius == 0.3
    assert env.bank.scenes[0].navmesh.area == make_scene("slab", mesh).navmesh.area > scene.navmesh.area
    NavEnv([scene], 1, "cpu", agent_radius=0.3, agent_height=1.0, **SMALL).reset()
    given = make_scene("slab", mesh, scene.navmesh)
    with pytest.raises(NavMeshError, match=r"slab: found a navmesh that was baked for agent_radius 0\.3"):
        NavEnv([given], 1, "cpu", **SMALL)


def test_a_procedural_scene_fits_the_body_of_its_environment():
    (house,) = load_scenes(["house:3"])
    (wide,) = load_scenes(["house:3"], settings=NavMeshSettings(agent_radius=0.25))
    env = NavEnv([house], 1, "cpu", agent_radius=0.25, **SMALL)
    assert env.bank.scenes[0].navmesh.area == wide.navmesh.area < house.navmesh.area


def test_streamed_scenes_have_their_appearance():
    """Normals of streamed scenes equal those of the scenes alone."""
    scenes = {scene.name: scene for scene in (slab(f"wide{k}", 8.0 + k) for k in range(4))}
    capacity = SceneSize.largest(map(SceneSize.of, scenes.values()))
    stream = SceneStream(list(scenes), scenes.__getitem__, capacity, 3, 0)
    env = NavEnv(stream, 4, "cpu", sensors=("normals",), max_steps=2, camera_pitch_deg=-60.0, **SMALL)
    env.reset()
    visited = set()
    up = torch.tensor([0.0, 0.5, 3**0.5 / 2]).view(3, 1, 1)
    for _ in range(20):
        env.between_rollouts()
        for _ in range(2):
            seen = env.step(torch.full((4,), 2))[0]["normals"]
            visited |= {env.bank.names[k] for k in env.sim.bodies.scene}
            on_floor = seen.abs().sum(1, keepdim=True) > 0
            assert on_floor.any()
            torch.testing.assert_close(seen, torch.where(on_floor, up, 0.0).expand_as(seen), rtol=0.0, atol=1e-5)
    assert visited == set(scenes)
    env.close()


def test_a_task_brings_its_own_settings(bank, monkeypatch):
    monkeypatch.setitem(TASKS, "short", Short)
    env = NavEnv(bank, N, task="short", patience=2.5, **SMALL)
    assert isinstance(env.task, Short) and env.config.task == ShortConfig(patience=2.5) and env.task.max_steps == 3
    assert NavEnv(bank, N, task="short", config=NavConfig(task=ShortConfig(max_steps=2))).task.max_steps == 2
    with pytest.raises(ConfigError, match="config: found PointNavConfig, expected ShortConfig for the ta"):
        NavEnv(bank, N, task="short", config="bps_depth64")
    with pytest.raises(ConfigError, match="option 'patience' is unknown"):
        NavEnv(bank, N, patience=2.5)


@pytest.mark.cuda
def test_environments_keep_their_device():
    """Independent of the current device, which does not change."""
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    sensors = ("depth", "rgb", "semantic", "instance", "normals", "gps", "compass")
    noise = {"depth_noise": 1.0, "rgb_noise": "gaussian"}
    seen = []
    for there, here in ((0, 0), (0, 1), (1, 0)):
        bank = SceneBank.pack([load_scene("house:3"), load_scene("house:4")], f"cuda:{there}", appearance=True)
        torch.cuda.set_device(here)
        env = NavEnv(bank, N, seed=2, sensors=sensors, height=64, width=64, **noise)
        torch.cuda.set_device(here)
        steps = [{name: value.cpu() for name, value in env.reset()[0].items()}]
        for k in range(20):
            steps.append(
                {name: v.cpu() for name, v in step_of(env, torch.full((N,), 1 + k % 3, device=bank.device)).items()}
            )
        assert torch.cuda.current_device() == here
        seen.append(steps)
    torch.cuda.set_device(0)
    for other in seen[1:]:
        for a, b in zip(seen[0], other, strict=True):
            assert all(torch.equal(a[name], b[name]) for name in a)
