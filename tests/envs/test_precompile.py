"""Precompilation of an environment's kernels."""

import json
import subprocess
import sys
from pathlib import Path

import numba
import pytest
import torch
from worlds import write_floor

from batchnav import load_scene
from batchnav.cli import main, measure
from batchnav.config import from_dict
from batchnav.data.formats import EpisodeDataset
from batchnav.data.goals.point import generate_episodes
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.distributed import Ranks
from batchnav.runtime.kernels import precompile as process
from batchnav.runtime.kernels.precompile import ENVIRONMENT_KERNELS, SCENE_KERNELS, SHORTEST_PATH_KERNELS, precompile
from batchnav.scene import scene
from batchnav.scene.mesh import load_mesh
from batchnav.training import environment
from batchnav.training.config import TrainingConfig

NEEDS = """
import torch
import batchnav
from batchnav.envs.config import NavConfig

def compiled(kernels):
    return [set(kernel.signatures) for kernel in kernels]
"""
OF_AN_ENVIRONMENT = f"""{NEEDS}
from batchnav.envs import precompile
from batchnav.renderers import raycast
from batchnav.tasks import episode_sampling, goal_task

kernels = (
    goal_task.advance.cpu, goal_task.score.cpu, goal_task.begin.cpu, episode_sampling.sample_one.cpu,
    raycast.depth_cpu,
)
precompile.main(NavConfig(), "cpu")
before = compiled(kernels)
env = batchnav.PointNavEnv(batchnav.load_scenes(["house:0"]), num_envs=2, device="cpu")
env.reset()
env.step(torch.ones(2, dtype=torch.int64))
"""
OF_SCENES = f"""{NEEDS}
from batchnav.procedural import make_house
from batchnav.navmesh.bake import detail, polygons, tile
from batchnav.scene import bvh, precompile

kernels = (
    polygons._build, polygons._link, detail._build, tile._measure, tile._build_tree, bvh._build, bvh._pack_triangles
)
precompile.main()
before = compiled(kernels)
house = make_house(3)
bvh.build_bvh(house)
batchnav.NavMesh.bake(house)
"""
OF_THE_ORACLE = f"""{NEEDS}
from batchnav.agents import precompile
from batchnav.agents.registry import make_reference_agent
from batchnav.agents.shortest_path import follow

kernels = [follow.cpu]
precompile.main(NavConfig(), "cpu")
before = compiled(kernels)
env = batchnav.PointNavEnv(batchnav.load_scenes(["house:0"]), num_envs=2, device="cpu")
observations, _ = env.reset()
make_reference_agent("shortest_path", env).act(observations, torch.ones(2, dtype=torch.bool))
"""


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
@pytest.mark.parametrize(
    "program", [OF_AN_ENVIRONMENT, OF_SCENES, OF_THE_ORACLE], ids=["environment", "scenes", "oracle"]
)
def test_programs_compile_what_a_house_needs(program):
    """In a process without other compiled kernels."""
    check = "assert all(before) and compiled(kernels) == before, (before, compiled(kernels))"
    found = subprocess.run([sys.executable, "-c", f"{program}{check}"], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


def test_baking_and_shortest_paths_are_precompiled_on_request(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(scene, "precompile", lambda *programs, **_: asked.extend(programs))
    monkeypatch.setattr(measure, "precompile", lambda *programs, **_: asked.extend(programs))
    scene.bake(load_mesh(write_floor(tmp_path / "floor.obj")), "floor", NavMeshSettings())
    assert asked == [SCENE_KERNELS]
    few = tmp_path / "few.json.gz"
    EpisodeDataset(generate_episodes(load_scene("house:0"), 2)).save(few)
    for agent, expected in (("forward", []), ("shortest_path", [SHORTEST_PATH_KERNELS])):
        asked.clear()
        main(["evaluate", agent, "--episodes", str(few), "--device", "cpu", "--out", str(tmp_path)])
        assert [program for program in asked if program != SCENE_KERNELS] == expected


@pytest.mark.parametrize("expert", ["", "shortest_path"])
def test_a_training_precompiles_its_environment_and_its_expert(monkeypatch, expert):
    class Asked(Exception):
        """Ends the test before scenes are made."""

    def ask(*programs, env_config, device):
        raise Asked(programs, env_config["task"]["name"], device)

    monkeypatch.setattr(environment, "precompile", ask)
    run = from_dict(TrainingConfig, {"imitation": {"expert": expert}})
    with pytest.raises(Asked) as asked:
        environment.make_environment(run, Ranks(torch.device("cpu")))
    experts = (SHORTEST_PATH_KERNELS,) if expert else ()
    assert asked.value.args == ((ENVIRONMENT_KERNELS, SCENE_KERNELS, *experts), "pointnav", torch.device("cpu"))


@pytest.fixture
def idle(monkeypatch, tmp_path):
    """A machine with an empty cache; the test replaces `Popen`."""
    for room in ("envs", "scene", "agents"):
        (tmp_path / room).mkdir()
    monkeypatch.setattr(process, "_started", {})
    monkeypatch.setattr(process, "versioned_cache_folder", lambda kind, module: tmp_path / module.split(".")[1])
    monkeypatch.setattr(process, "num_threads", lambda: 2)
    monkeypatch.setattr(process.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(process.config, "DISABLE_JIT", 0)
    monkeypatch.setattr(process.atexit, "register", lambda end: None)
    return tmp_path


@pytest.fixture
def started(monkeypatch, idle):
    """Started programs and their configurations."""
    started = []

    def start(command, **_):
        started.append((*json.loads(command[5]), json.loads(command[6]), command[7]))
        for path in json.loads(command[5]).values():
            Path(path).touch()  # as the program does at its end
        return Still()

    monkeypatch.setattr(process.subprocess, "Popen", start)
    return started


ENV = {"task": {"name": "flee"}, "sensors": ["rgb"]}


def test_a_program_is_started_once_in_a_process(started):
    precompile(ENVIRONMENT_KERNELS, env_config=ENV)
    precompile(ENVIRONMENT_KERNELS)
    assert started == [(ENVIRONMENT_KERNELS, ENV, "cpu")]


def test_a_program_is_started_once_for_a_task_its_sensors_and_a_device(monkeypatch, started):
    cuda = torch.device("cuda", 1)
    monkeypatch.setattr(process.torch, "empty", lambda size, dtype, device: None)
    others = [{**ENV, "sensors": ["depth"]}, {**ENV, "task": {"name": "explore"}}]
    for _ in range(2):
        for env in (ENV, *others):
            monkeypatch.setattr(process, "_started", {})
            precompile(ENVIRONMENT_KERNELS, env_config={**env, "seed": len(started)})
        monkeypatch.setattr(process, "_started", {})
        precompile(ENVIRONMENT_KERNELS, env_config=ENV, device=cuda)
    assert [(env["sensors"], env["task"]["name"], device) for _, env, device in started] == [
        (["rgb"], "flee", "cpu"), (["depth"], "flee", "cpu"), (["rgb"], "explore", "cpu"), (["rgb"], "flee", "cuda:1"),
    ]  # fmt: skip


def test_a_program_that_did_not_end_is_started_again(monkeypatch, idle, started):
    for _ in range(2):
        monkeypatch.setattr(process, "_started", {})
        precompile(SCENE_KERNELS)
        for path in idle.rglob("*.done"):
            path.unlink()
    assert started == 2 * [(SCENE_KERNELS, {}, "cpu")]


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        (1, []),
        (2, [(ENVIRONMENT_KERNELS, SCENE_KERNELS, SHORTEST_PATH_KERNELS, {}, "cpu")]),
        (3, [(ENVIRONMENT_KERNELS, SHORTEST_PATH_KERNELS, {}, "cpu"), (SCENE_KERNELS, {}, "cpu")]),
        (16, [(name, {}, "cpu") for name in (ENVIRONMENT_KERNELS, SCENE_KERNELS, SHORTEST_PATH_KERNELS)]),
    ],
)
def test_programs_share_the_other_cores(monkeypatch, started, cores, expected):
    monkeypatch.setattr(process, "num_threads", lambda: cores)
    precompile(ENVIRONMENT_KERNELS, SCENE_KERNELS, SHORTEST_PATH_KERNELS)
    assert started == expected


def test_with_a_gpu_and_no_device_only_scenes_are_made(monkeypatch, started):
    monkeypatch.setattr(process.torch.cuda, "is_available", lambda: True)
    precompile(ENVIRONMENT_KERNELS, SCENE_KERNELS, SHORTEST_PATH_KERNELS)
    assert started == [(SCENE_KERNELS, {}, "None")]


def test_background_processes_leave_a_file_when_they_end(monkeypatch, tmp_path):
    """Of a program that ends, and not of one that fails."""
    (tmp_path / "ends.py").write_text("import sys\nassert sys.argv[1:] == ['{}', 'cpu'], sys.argv")
    (tmp_path / "fails.py").write_text("raise SystemExit(1)")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(process, "_started", {})
    monkeypatch.setattr(process, "_done", lambda program, *_: tmp_path / program)
    precompile("ends", "fails", device=torch.device("cpu"))
    for each in process._started.values():
        each.wait(timeout=60)
    assert (tmp_path / "ends").exists() and not (tmp_path / "fails").exists()


class Still:
    """A process without effect."""

    def kill(self):
        """Nothing runs."""
