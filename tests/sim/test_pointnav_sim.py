"""The simulator's kernels: they compile for the GPU, and give there what they give on the CPU."""

import re

import numpy as np
import pytest
import torch
from numba import typeof

from batchnav.config import PointNavConfig
from batchnav.data.scenes import find_scene
from batchnav.errors import ArgumentError, EpisodeError
from batchnav.scene.bank import SceneBank
from batchnav.sim import step
from batchnav.sim.pointnav import PointNavSim
from batchnav.sim.state import EpisodeTable

N = 32
SCENE = "house:3"


@pytest.fixture(scope="module")
def scene():
    return find_scene(SCENE)


def test_kernels_compile_for_the_gpu(scene, compile_ptx):
    sim = PointNavSim(SceneBank.pack([scene], "cpu"), N, PointNavConfig())
    state, upcoming, result, seed, ranges, table = sim._views
    walked, scratch = sim._walked, sim._scratch
    nav, actions = sim.bank.navmesh_view, np.zeros(N, np.int64)
    kernels = {
        step.advance_cuda: (actions, nav, sim.task, state, walked, scratch, result),
        step.judge_cuda: (nav, sim.task, walked, state, scratch, result),
        step.begin_cuda: (True, sim.task, upcoming, state, result),
        step.draw_cuda: (nav, sim.task, seed, ranges, table, state, scratch, upcoming, result),
    }
    for kernel, arguments in kernels.items():
        ptx = compile_ptx(kernel, *map(typeof, arguments))
        assert ".entry" in ptx and (kernel is step.begin_cuda or "ld.global.v4" in ptx)
        # Sine and cosine of huge angles reduce them by one product of doubles; all else is float32.
        assert not re.search(r"\b(ld|st|add|sub|fma|div|sqrt)[.\w]*\.f64", ptx)


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("scene", 1, r"episodes\.scene\[1\]: found 1, expected 0 to 0"), ("scene", -(10**6), "found -1000000"),
        ("start", float("nan"), r"episodes\.start\[1\]: found \[nan, nan, nan\], expected finite"),
        ("heading", float("inf"), r"episodes\.heading"), ("goal", float("inf"), r"episodes\.goal"),
    ],
)  # fmt: skip
def test_a_table_is_checked_before_kernels_read_it(scene, field, value, error):
    points = torch.from_numpy(scene.navmesh.sample(4, 0))
    table = EpisodeTable(torch.zeros(2, dtype=torch.int32), points[:2].clone(), torch.zeros(2), points[2:].clone())
    bank = SceneBank.pack([scene], "cpu")
    PointNavSim(bank, 2, PointNavConfig(), episodes=table)
    with pytest.raises(ArgumentError, match=r"episodes\.goal"):
        PointNavSim(bank, 2, PointNavConfig(), episodes=table._replace(goal=points[:1]))
    getattr(table, field)[1] = value
    with pytest.raises(EpisodeError, match=error):
        PointNavSim(bank, 2, PointNavConfig(), episodes=table)


@pytest.mark.cuda
def test_cuda_steps_as_the_cpu_does(scene):
    sims = [PointNavSim(SceneBank.pack([scene], device), N, PointNavConfig(max_steps=40)) for device in ("cpu", "cuda")]
    for sim in sims:
        sim.reset()
    on_cpu, on_gpu = sims
    generator = torch.Generator().manual_seed(0)
    same = 0.0
    for _ in range(100):
        # From the same state, so that rounding does not add up.
        for mine, theirs in zip(on_gpu.state, on_cpu.state, strict=True):
            mine.copy_(theirs)
        actions = torch.randint(0, 4, (N,), generator=generator)
        found, expected = on_gpu.step(actions.cuda()), on_cpu.step(actions)
        assert torch.equal(found.done.cpu(), expected.done)
        close = (found.reward.cpu() - expected.reward).abs() < 1e-3
        close &= (found.pointgoal.cpu() - expected.pointgoal).abs().amax(1) < 1e-3
        same += float(close.float().mean()) / 100
    # An agent on an edge may be found on either side of it; a candidate on the edge of a rule kept or refused.
    assert same > 0.995


@pytest.mark.cuda
def test_cuda_step_does_not_wait(scene):
    sim = PointNavSim(SceneBank.pack([scene], "cuda"), N, PointNavConfig())
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
