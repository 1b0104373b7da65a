"""Simulator with PointNav: kernels compile for the GPU, CUDA against CPU, checks of episode tables."""

import numpy as np
import pytest
import torch
from numba import typeof
from numba import types as nb

from batchnav.data.scenes.load import load_scene
from batchnav.errors import ArgumentError, CheckpointError, EpisodeError
from batchnav.scene.bank import SceneBank
from batchnav.sensors import camera
from batchnav.sensors.camera import CameraConfig, Mount
from batchnav.sensors.sensor import NoiseCounters
from batchnav.sim.simulator import MAX_SNAP_HEIGHT, check_positions, snap
from batchnav.tasks.episode_sampling import EpisodeTable
from batchnav.tasks.pointnav import PointNavConfig, pointnav_simulator

N = 32
SCENE = "house:3"


@pytest.fixture(scope="module")
def scene():
    return load_scene(SCENE)


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("scene", 1, r"episodes\.scene\[1\]: found 1, expected 0 to 0"), ("scene", -(10**6), "found -1000000"),
        ("start", float("nan"), r"episodes\.start\[1\]: found \[nan, nan, nan\], expected numbers from"),
        ("heading", float("inf"), r"episodes\.heading"), ("goal", float("inf"), r"episodes\.goal"),
        ("start", 500.0, r"episodes\.start\[1\]: found \[500.*expected a point on the navmesh of scene 'house:3'"),
        ("goal", -500.0, r"episodes\.goal\[1\]: found \[-500.*expected a point on the navmesh of scene 'house:3'"),
    ],
)  # fmt: skip
def test_invalid_tables_are_refused(scene, field, value, error):
    points = torch.from_numpy(scene.navmesh.sample(4, 0))
    table = EpisodeTable(torch.zeros(2, dtype=torch.int32), points[:2].clone(), torch.zeros(2), points[2:].clone())
    bank = SceneBank.pack([scene], "cpu")
    pointnav_simulator(bank, 2, episodes=table).reset()
    getattr(table, field)[1] = value
    with pytest.raises(EpisodeError, match=error):
        pointnav_simulator(bank, 2, episodes=table)
    with pytest.raises(ArgumentError, match=r"episodes\.goal"):
        pointnav_simulator(bank, 2, episodes=table._replace(goal=points[:1]))


@pytest.mark.parametrize("field", ["start", "goal"])
def test_positions_of_a_table_are_near_the_navmesh(scene, field):
    points = torch.from_numpy(scene.navmesh.sample(4, 0))
    table = EpisodeTable(torch.zeros(2, dtype=torch.int32), points[:2].clone(), torch.zeros(2), points[2:].clone())
    bank = SceneBank.pack([scene], "cpu")
    getattr(table, field)[1, 1] += MAX_SNAP_HEIGHT - 0.01  # points slightly above the floor are accepted
    pointnav_simulator(bank, 2, episodes=table).reset()
    getattr(table, field)[1, 1] += 0.02
    with pytest.raises(EpisodeError, match=rf"episodes\.{field}\[1\]: found .*, expected a point on the navmesh"):
        pointnav_simulator(bank, 2, episodes=table)


def test_only_agents_that_began_an_episode_are_queued(scene):
    sim = pointnav_simulator(SceneBank.pack([scene], "cpu"), 3)
    sim.reset()
    for actions in ([1, 1, 1], [1, 0, 1]):
        sim.step(torch.tensor(actions))
        queued = sim.queue.agents
        assert queued[queued >= 0].tolist() == [i for i, action in enumerate(actions) if action == 0]


@pytest.mark.cuda
def test_cuda_steps_as_the_cpu_does(scene):
    sims = [
        pointnav_simulator(SceneBank.pack([scene], device), N, PointNavConfig(max_steps=40))
        for device in ("cpu", "cuda")
    ]
    for sim in sims:
        sim.reset()
    on_cpu, on_gpu = sims
    generator = torch.Generator().manual_seed(0)
    agreeing = 0.0
    for _ in range(100):
        # Each step starts from the same state, so that rounding errors do not accumulate.
        for one, other in ((on_gpu.bodies, on_cpu.bodies), (on_gpu.task.state, on_cpu.task.state)):
            for mine, theirs in zip(one, other, strict=True):
                mine.copy_(theirs)
        actions = torch.randint(0, 4, (N,), generator=generator)
        on_gpu.step(actions.cuda())
        on_cpu.step(actions)
        assert torch.equal(on_gpu.bodies.done.cpu(), on_cpu.bodies.done)
        found, expected = on_gpu.task, on_cpu.task
        close = (found.reward.cpu() - expected.reward).abs() < 1e-3
        close &= (found.observations["pointgoal"].cpu() - expected.observations["pointgoal"]).abs().amax(1) < 1e-3
        agreeing += float(close.float().mean()) / 100
    # Rounding decides the polygon of an agent on an edge, and the rejection of a candidate on a limit.
    assert agreeing > 0.995


@pytest.mark.cuda
def test_cuda_step_does_not_synchronise(scene):
    sim = pointnav_simulator(SceneBank.pack([scene], "cuda"), N)
    sim.reset()
    actions = torch.randint(0, 4, (20, N), device="cuda")
    sim.step(actions[0])
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for t in range(20):
            sim.step(actions[t])
    finally:
        torch.cuda.set_sync_debug_mode("default")


# Positions of bodies and cameras: kernels compile for the GPU, and positions off the navmesh are refused


@pytest.fixture(scope="module")
def bank():
    return SceneBank.pack([load_scene("house:3")])


def test_kernels_compile_for_the_gpu(bank, compile_ptx):
    points, floats = nb.Array(nb.float32, 2, "C"), nb.Array(nb.float32, 1, "C")
    scenes = nb.Array(nb.int32, 1, "C")
    assert ".entry" in compile_ptx(snap, typeof(bank.navmesh_view), scenes, points, points)
    mount = typeof(Mount.of(CameraConfig()))
    counters = nb.NamedTuple((nb.int64[::1],) * 2 + (nb.int32[::1],) * 2 + (nb.int64,), NoiseCounters)
    ptx = compile_ptx(camera.place_camera, points, floats, floats, counters, mount, points, *[floats] * 3)
    assert ".entry" in ptx and ".f64" not in ptx


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_a_position_off_the_navmesh_is_refused(device):
    scene = load_scene("house:3")
    bank = SceneBank.pack([scene], device)
    points = torch.from_numpy(scene.navmesh.sample(5, seed=0))
    scenes = torch.zeros(5, dtype=torch.int32)
    check_positions("position", bank, scenes, points, CheckpointError)
    points[3] += torch.from_numpy(np.float32([0.0, 5.0, 0.0]))
    with pytest.raises(CheckpointError, match=r"position\[3\].*'house:3'"):
        check_positions("position", bank, scenes, points, CheckpointError)
