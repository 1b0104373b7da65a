"""Simulator steps per second without rendering: random actions, geodesic distances by Detour's search.

    batchnav bench sim --device cuda --num-envs 1024 4096 16384 --tasks pointnav flee explore objectnav
    batchnav bench sim --device cuda --num-envs 16384 --noise 0 0.5 --actions moving forward

On CUDA the steps are captured in one graph and replayed, since launches from Python would measure the host. Actions:
"all" samples the four actions, so a quarter of the steps end an episode; "moving" leaves out stop, as in training,
where episodes last hundreds of steps; "forward" also leaves out turns, after which only actuation noise requires a
geodesic search. Measurements of several noise multipliers alternate.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import torch

from batchnav.bench.env import with_what_tasks_need
from batchnav.bench.options import SimOptions as Options
from batchnav.report.results import append_rows, figure, print_table, row
from batchnav.runtime.device import resolve_device, wait_for
from batchnav.runtime.kernels.graphs import WARM_UPS, Graphs
from batchnav.scene.bank import SceneBank
from batchnav.sim.bodies import FORWARD, LEFT, RIGHT, STOP, BodyConfig
from batchnav.sim.simulator import Simulator
from batchnav.tasks import TASKS

WARM_UP = 100
"""Steps before timing: kernels compile, and the ends of episodes spread over time."""
TIMED = 20
"""Last warm-up steps, from which the duration of a step is estimated."""
LEAST_STEPS = 10
"""Minimum number of steps per repeat."""
ACTIONS = {"all": (STOP, RIGHT + 1), "moving": (FORWARD, RIGHT + 1), "forward": (FORWARD, LEFT)}
"""Range of the sampled actions: the first, and the one after the last."""


def main(options: Options) -> None:
    """Measure and print; append the results to the file with `record`."""
    device = resolve_device(options.device)
    bank = packed(options, device)
    rows, scene = [], "+".join(Path(name).stem for name in options.scenes)
    for num_envs, task, actions in itertools.product(options.num_envs, options.tasks, options.actions):
        rates = measure(bank, task, num_envs, actions, options)
        params = {"scene": scene, "num_envs": num_envs, "actions": actions, "geodesic": "detour", "task": task}
        measured = [
            row("sim", "steps_per_second", rate, params | {"actuation_noise": noise}, device)
            for noise, rate in rates.items()
        ]
        for found in measured:  # at once: compiling a task's kernels takes a while
            noise = found["params"]["actuation_noise"]
            print(f"{num_envs} {task} {actions} noise {noise:g}: {figure(found['value'])} steps/s", flush=True)
        if options.record:
            append_rows("sim", measured)
        rows += measured
    print_table("sim", rows)


def packed(options: Options, device: torch.device) -> SceneBank:
    """The scenes, with goals if a task needs them."""
    kinds = [TASKS[name] for name in options.tasks]
    wanted = (kind.goal_categories(kind.Config()) for kind in kinds)
    categories = next((names for names in wanted if names is not None), None)
    scenes = with_what_tasks_need(options.scenes, kinds, False, device)
    return SceneBank.pack(scenes, device, goal_categories=categories)


def measure(bank: SceneBank, task: str, num_envs: int, actions: str, options: Options) -> dict[float, list[float]]:
    """Steps per second of each repeat, by noise multiplier."""
    made = {noise: stepper(bank, task, num_envs, actions, noise, options) for noise in options.noise}
    rates: dict[float, list[float]] = {noise: [] for noise in options.noise}
    for _ in range(WARM_UPS + 1 + options.repeats):
        for noise, (run, steps) in made.items():
            wait_for(bank.device)
            start = time.perf_counter()
            run()
            wait_for(bank.device)
            rates[noise].append(steps * num_envs / (time.perf_counter() - start))
    return {noise: found[-options.repeats :] for noise, found in rates.items()}


def stepper(
    bank: SceneBank, task: str, num_envs: int, actions: str, noise: float, options: Options
) -> tuple[Callable[[], None], int]:
    """A function that executes steps with random actions, and the number of its steps."""
    kind, body = TASKS[task], BodyConfig(actuation_noise=noise, controller="Proportional")
    sim = Simulator(bank, num_envs, body, lambda sim: kind(sim, kind.Config()))
    sim.reset()
    generator = torch.Generator(bank.device).manual_seed(0)
    shape = (WARM_UP + options.steps, num_envs)
    sampled = torch.randint(*ACTIONS[actions], shape, generator=generator, dtype=torch.int64, device=bank.device)
    for t in range(WARM_UP):
        if t == WARM_UP - TIMED:
            sim.settle()
            wait_for(bank.device)
            start = time.perf_counter()
        sim.step(sampled[t])
    sim.settle()
    wait_for(bank.device)
    per_step = (time.perf_counter() - start) / TIMED
    steps = min(options.steps, max(LEAST_STEPS, int(options.seconds / per_step)))

    def run():
        for t in range(WARM_UP, WARM_UP + steps):
            sim.step(sampled[t])
        sim.settle()

    return Graphs(bank.device, enabled=True).wrap(run), steps
