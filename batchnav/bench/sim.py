"""Simulator steps per second without rendering: random actions, Detour's geodesic distances in the step.

    batchnav bench sim --device cuda --num-envs 1024 4096 16384 --tasks pointnav flee explore
    batchnav bench sim --device cuda --num-envs 16384 --noise 0 0.5 --actions moving forward

On CUDA the steps are recorded as one graph and replayed: launched from Python, one at a time, the host would be timed.
"all" draws from the four actions, so that a quarter of the steps end an episode and sample a new one; "moving" leaves
stop out, as in training, where episodes last hundreds of steps; "forward" leaves out turns as well, which without
actuation noise move nothing, so that no distance is searched for. Several multipliers of noise take turns.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from batchnav.data.scenes import find_scenes
from batchnav.procedural import BENCHMARK_HOUSE
from batchnav.report.results import append_rows, figure, print_table, row
from batchnav.runtime.device import resolve_device
from batchnav.runtime.kernels.graphs import WARM_UPS, Graphs
from batchnav.scene.bank import SceneBank
from batchnav.sim.bodies import FORWARD, LEFT, RIGHT, STOP, BodyConfig
from batchnav.sim.simulator import Simulator
from batchnav.tasks import TASKS

WARM_UP = 100
"""Steps before timing: kernels compile, episodes spread out."""
TIMED = 20
"""The last of these, from which it is known how long a step takes."""
LEAST_STEPS = 10
ACTIONS = {"all": (STOP, RIGHT + 1), "moving": (FORWARD, RIGHT + 1), "forward": (FORWARD, LEFT)}
"""The first action that is drawn, and the one after the last."""


@dataclass(frozen=True)
class Options:
    """What to measure."""

    scenes: tuple[str, ...] = (f"house:{BENCHMARK_HOUSE}",)
    """As `find_scene` names them, as the path of a mesh file."""
    device: str = "auto"
    num_envs: tuple[int, ...] = (256, 4096, 16384)
    tasks: tuple[str, ...] = ("pointnav",)
    """Names of `batchnav.tasks.TASKS`."""
    actions: tuple[Literal["all", "moving", "forward"], ...] = ("all", "moving")
    noise: tuple[float, ...] = (0.0,)
    """Actuation noise of LoCoBot under its proportional controller: multipliers."""
    steps: int = 200
    """Steps per repeat, fewer where they would take longer than `seconds`."""
    seconds: float = 0.5
    repeats: int = 7
    record: bool = False
    """Append the figures to eval/results/sim.jsonl."""


def main(options: Options) -> None:
    """Measure, print, and record where that was asked for."""
    device = resolve_device(options.device)
    bank = SceneBank.pack(find_scenes(options.scenes, appearance=False), device)
    rows, scene = [], "+".join(Path(name).stem for name in options.scenes)
    for num_envs, task, actions in itertools.product(options.num_envs, options.tasks, options.actions):
        rates = measure(bank, task, num_envs, actions, options)
        params = {"scene": scene, "num_envs": num_envs, "actions": actions, "geodesic": "detour", "task": task}
        measured = [
            row("sim", "steps_per_second", rate, params | {"actuation_noise": noise}, device)
            for noise, rate in rates.items()
        ]
        for found in measured:  # as it comes: kernels of a task take a while to compile
            noise = found["params"]["actuation_noise"]
            print(f"{num_envs} {task} {actions} noise {noise:g}: {figure(found['value'])} steps/s", flush=True)
        if options.record:
            append_rows("sim", measured)
        rows += measured
    print_table("sim", rows)


def measure(bank: SceneBank, task: str, num_envs: int, actions: str, options: Options) -> dict[float, list[float]]:
    """Steps per second of each repeat, by multiplier of the noise."""
    made = {noise: stepper(bank, task, num_envs, actions, noise, options) for noise in options.noise}
    rates: dict[float, list[float]] = {noise: [] for noise in options.noise}
    for _ in range(WARM_UPS + 1 + options.repeats):
        for noise, (run, steps) in made.items():
            _wait(bank.device)
            start = time.perf_counter()
            run()
            _wait(bank.device)
            rates[noise].append(steps * num_envs / (time.perf_counter() - start))
    return {noise: found[-options.repeats :] for noise, found in rates.items()}


def stepper(
    bank: SceneBank, task: str, num_envs: int, actions: str, noise: float, options: Options
) -> tuple[Callable[[], None], int]:
    """A function that makes steps with random actions of a kind, and how many."""
    kind, body = TASKS[task], BodyConfig(actuation_noise=noise, controller="Proportional")
    sim = Simulator(bank, num_envs, body, lambda sim: kind(sim, kind.Config()))
    sim.reset()
    generator = torch.Generator(bank.device).manual_seed(0)
    shape = (WARM_UP + options.steps, num_envs)
    drawn = torch.randint(*ACTIONS[actions], shape, generator=generator, device=bank.device)
    for t in range(WARM_UP):
        if t == WARM_UP - TIMED:
            sim.settle()
            _wait(bank.device)
            start = time.perf_counter()
        sim.step(drawn[t])
    sim.settle()
    _wait(bank.device)
    per_step = (time.perf_counter() - start) / TIMED
    steps = max(LEAST_STEPS, min(options.steps, int(options.seconds / per_step)))

    def run():
        for t in range(WARM_UP, WARM_UP + steps):
            sim.step(drawn[t])
        sim.settle()

    return Graphs(bank.device, enabled=True).wrap(run), steps


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
