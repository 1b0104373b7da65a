"""Simulator steps per second without rendering: random actions, Detour's geodesic distances in the step.

    batchnav bench sim --device cuda --num-envs 1024 4096 16384 --tasks pointnav flee explore

On CUDA the steps are recorded as one graph and replayed: launched from Python, one at a time, the host would be timed.
"all" draws from the four actions, so that a quarter of the steps end an episode and sample a new one; "moving" leaves
stop out, as in training, where episodes last hundreds of steps.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from batchnav.data.scenes import find_scenes
from batchnav.houses import BENCHMARK_HOUSE
from batchnav.runs.results import record, row
from batchnav.runtime.device import resolve_device
from batchnav.runtime.graphs import WARM_UPS, Graphs
from batchnav.scene.bank import SceneBank
from batchnav.sim.bodies import NUM_ACTIONS, BodyConfig
from batchnav.sim.simulator import Simulator
from batchnav.tasks import TASKS

WARM_UP = 100
"""Steps before timing: kernels compile, episodes spread out."""


@dataclass(frozen=True)
class Options:
    """What to measure."""

    scenes: tuple[str, ...] = (f"house:{BENCHMARK_HOUSE}",)
    """As `find_scene` names them, as the path of a mesh file."""
    device: str = "auto"
    num_envs: tuple[int, ...] = (256, 4096, 16384)
    tasks: tuple[str, ...] = ("pointnav",)
    """Names of `batchnav.tasks.TASKS`."""
    steps: int = 200
    """Steps per repeat."""
    repeats: int = 7
    record: bool = False
    """Append the figures to eval/results/sim.jsonl."""


def main(options: Options) -> None:
    """Measure, print, and record where that was asked for."""
    device = resolve_device(options.device)
    bank = SceneBank.pack(find_scenes(options.scenes, appearance=False), device)
    rows, scene = [], "+".join(Path(name).stem for name in options.scenes)
    for num_envs, task, actions in itertools.product(options.num_envs, options.tasks, ("all", "moving")):
        rates = measure(bank, task, num_envs, 0 if actions == "all" else 1, options)
        params = {"scene": scene, "num_envs": num_envs, "actions": actions, "geodesic": "detour", "task": task}
        rows.append(row("sim", "steps_per_second", rates, params, device))
    record("sim", rows, append=options.record)


def measure(bank: SceneBank, task: str, num_envs: int, first_action: int, options: Options) -> list[float]:
    """Steps per second of each repeat, actions drawn from [first_action, 4)."""
    kind = TASKS[task]
    sim = Simulator(bank, num_envs, BodyConfig(), lambda sim: kind(sim, kind.Config()))
    sim.reset()
    generator = torch.Generator(bank.device).manual_seed(0)
    shape = (WARM_UP + options.steps, num_envs)
    actions = torch.randint(first_action, NUM_ACTIONS, shape, generator=generator, device=bank.device)
    for t in range(WARM_UP):
        sim.step(actions[t])
    sim.settle()

    def steps():
        for t in range(WARM_UP, WARM_UP + options.steps):
            sim.step(actions[t])
        sim.settle()

    steps, rates = Graphs(bank.device, enabled=True).wrap(steps), []
    for _ in range(WARM_UPS + 1 + options.repeats):
        _wait(bank.device)
        start = time.perf_counter()
        steps()
        _wait(bank.device)
        rates.append(options.steps * num_envs / (time.perf_counter() - start))
    return rates[-options.repeats :]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
