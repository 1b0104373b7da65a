"""What is compiled ahead is what an environment needs."""

import json

import pytest
import torch

from batchnav import NavEnv, PointNavEnv, load_scenes
from batchnav.config import from_dict, to_dict
from batchnav.envs import ahead
from batchnav.envs.config import NavConfig, with_options
from batchnav.render.raycast import packet
from batchnav.runtime import ahead as process
from batchnav.sensors.camera import CameraConfig
from batchnav.tasks import pairs, pointnav

KERNELS = (
    pointnav.advance_cpu, pointnav.judge_cpu, pointnav.begin_cpu, pairs.draw_cpu, packet.depth_cpu,
)  # fmt: skip


def test_the_room_needs_the_kernels_that_a_house_needs():
    ahead.main(NavConfig())
    compiled = [set(kernel.signatures) for kernel in KERNELS]
    assert all(compiled)
    env = PointNavEnv(load_scenes(["house:0"]), num_envs=2, device="cpu")
    env.reset()
    env.step(torch.ones(2, dtype=torch.int64))
    assert [set(kernel.signatures) for kernel in KERNELS] == compiled


def test_further_cameras_noise_and_speeds_are_compiled_ahead(monkeypatch):
    """All of an environment's configuration reaches the process, as JSON."""
    played = []
    monkeypatch.setattr(ahead, "NavEnv", lambda *args, **kwargs: played.append(NavEnv(*args, **kwargs)) or played[0])
    config = NavConfig(sensors=("left_depth",), cameras={"left": CameraConfig(height=8, width=8)})
    config = with_options(config, {"control": "velocity", "depth_noise": 1.0})
    ahead.main(from_dict(NavConfig, json.loads(json.dumps(to_dict(config)))))
    assert played[0].config == config and played[0].sim.bodies.position.isfinite().all()
    assert played[0].single_observation_space["left_depth"].shape == (1, 8, 8)


@pytest.fixture
def idle(monkeypatch, tmp_path):
    """A machine on which a process would be started: what does so in `Popen`'s place is the test's to say."""
    (tmp_path / "tasks").mkdir()  # as numba makes it before it compiles anything
    monkeypatch.setattr(process, "_started", [])
    monkeypatch.setattr(process, "made_by", lambda kind, module: tmp_path)
    monkeypatch.setattr(process, "num_threads", lambda: 2)
    monkeypatch.setattr(process.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(process.config, "DISABLE_JIT", 0)
    monkeypatch.setattr(process.atexit, "register", lambda end: None)
    return tmp_path


def test_a_process_is_started_once_and_only_for_an_empty_cache(monkeypatch, idle):
    started = []
    monkeypatch.setattr(process.subprocess, "Popen", lambda command, **_: started.append(command) or Still())
    env = {"task": {"name": "flee"}, "sensors": ["rgb"]}
    process.compile_ahead(env)
    process.compile_ahead()
    process.wait_for_compilation()
    assert process._started[0].waited
    assert [command[5:] for command in started] == [["batchnav.envs.ahead", json.dumps(env)]]
    monkeypatch.setattr(process, "_started", [])
    (idle / "tasks" / "draw_cpu.nbi").touch()
    process.compile_ahead()
    assert len(started) == 1


def test_the_process_imports_what_this_one_would(monkeypatch, idle, tmp_path):
    """And not what lies in the folder that it is started in."""
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        (folder / "played.py").write_text("import pathlib; (pathlib.Path(__file__).parent / 'ran').touch()")
    monkeypatch.chdir(here)
    monkeypatch.setattr(process, "PROGRAM", "played")
    monkeypatch.setattr(process.sys, "path", [str(there), *filter(None, process.sys.path)])
    process.compile_ahead()
    assert process._started[0].wait(900) == 0
    assert (there / "ran").exists() and not (here / "ran").exists()


def test_where_no_process_can_be_started_nothing_is_awaited(monkeypatch, idle):
    def refuse(*_, **__):
        raise OSError("Resource temporarily unavailable")

    monkeypatch.setattr(process.subprocess, "Popen", refuse)
    process.compile_ahead()
    monkeypatch.setattr(process.sys, "executable", "")  # Python inside another program
    monkeypatch.setattr(process.subprocess, "Popen", lambda *_, **__: pytest.fail("found a process of no program"))
    process.compile_ahead()
    process.wait_for_compilation()
    assert not process._started


def test_a_process_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(process, "_started", [Hanging()])
    process.wait_for_compilation()
    assert process._started[0].killed


class Still:
    """A process that ends when it is waited for."""

    waited = False

    def poll(self):
        return 0 if self.waited else None

    def wait(self, timeout):
        self.waited = True

    def kill(self):
        """Nothing runs."""


class Hanging(Still):
    """A process that never ends by itself."""

    killed = False

    def wait(self, timeout):
        raise process.subprocess.TimeoutExpired("batchnav.envs.ahead", timeout)

    def kill(self):
        self.killed = True
