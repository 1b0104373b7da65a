"""Frames per second of `NavEnv.step`, as a Python loop sees it: simulator, rendering, observations and copied results.

    batchnav bench env --device cuda
    batchnav bench env --num-envs 1 16 --sensors depth rgb+depth depth+waypoint --scenes house:3
    batchnav bench env --device cuda --num-envs 4096 --sensors none depth lidar --people 6
    batchnav bench env --device cuda --num-envs 4096 --sensors depth+goal_mask --task sequence

The host limits steps of few agents: it launches the kernels and makes the results. Actions are sampled ahead, without
stop. A repeat ends with one synchronisation.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from batchnav.bench.options import EnvOptions as Options
from batchnav.data.goals.view_points import with_goals
from batchnav.data.scenes.ids import scene_ids
from batchnav.data.scenes.load import load_all
from batchnav.envs.config import NavConfig, with_options
from batchnav.envs.nav import NavEnv
from batchnav.envs.observations import observation_sources
from batchnav.report.results import append_rows, figure, print_table, row
from batchnav.runtime.device import resolve_device, wait_for
from batchnav.scene.scene import Scene
from batchnav.sensors.frame import appearance_needed
from batchnav.sim.bodies import FORWARD, RIGHT
from batchnav.tasks import TASKS
from batchnav.tasks.task import BatchTask

WARM_UP, TIMED = 100, 20
"""Steps before timing, in which kernels compile; and the last of them, which estimate the duration of a step."""
NUM_ACTIONS = 1024
"""Number of sampled actions of each agent, which repeat."""


def main(options: Options) -> None:
    """Measure and print; append the results to the file with `record`."""
    device, kind = resolve_device(options.device), TASKS[options.task]
    sets = [() if names == "none" else tuple(names.split("+")) for names in options.sensors]
    config = dataclasses.replace(NavConfig(), task=kind.Config())
    config = with_options(config, {"people": (options.people,) * 2, "agents_per_world": options.agents_per_world})
    sources = [s for names in sets for s in observation_sources(dataclasses.replace(config, sensors=names)).values()]
    scenes = with_what_tasks_need(options.scenes, (kind,), bool(appearance_needed(sources)), device)
    world = {name: getattr(options, name) for name in ("task", "people", "agents_per_world")}
    world = {name: value for name, value in world.items() if value != getattr(Options(), name)}
    rows, name = [], "+".join(Path(scene).stem for scene in options.scenes)
    for names, size, num_envs in itertools.product(sets, options.sizes, options.num_envs):
        env = NavEnv(scenes, num_envs, device, task=options.task, config=config, sensors=names, height=size, width=size)
        seen = "+".join(names) or "none"
        params = {"scene": name, "sensors": seen, "num_envs": num_envs, "height": size, "width": size, **world}
        found = row("env", "frames_per_second", measure(env, options), params, device)
        frames, time_us = figure(found["value"]), figure(1e6 * num_envs / found["value"])
        print(f"{num_envs} {params['sensors']} {size}x{size}: {frames} frames/s, {time_us} us a step", flush=True)
        if options.record:
            append_rows("env", [found])
        rows.append(found)
    print_table("env", rows)


def with_what_tasks_need(
    names: Sequence[str], tasks: Sequence[type[BatchTask]], appearance: bool, device: torch.device
) -> list[Scene]:
    """Scenes by name, with view points of their objects if a task has goals."""
    has_goals = any(task.goal_categories(task.Config()) is not None for task in tasks)
    scenes = load_all(scene_ids(names), appearance=appearance or has_goals)
    return list(with_goals(scenes, device=device)) if has_goals else scenes


def measure(env: NavEnv, options: Options) -> list[float]:
    """Frames per second of each repeat."""
    device, shape = env.device, (NUM_ACTIONS, env.num_envs)
    generator = torch.Generator(device).manual_seed(0)
    sampled = torch.randint(FORWARD, RIGHT + 1, shape, generator=generator, dtype=torch.int64, device=device)
    actions = itertools.cycle(sampled.unbind())
    env.reset(seed=0)

    def run(count: int) -> None:
        for action in itertools.islice(actions, count):
            env.step(action)

    run(WARM_UP - TIMED)
    count = max(1, int(options.seconds / (_seconds(run, TIMED, device) / TIMED)))
    return [count * env.num_envs / _seconds(run, count, device) for _ in range(options.repeats)]


def _seconds(run: Callable[[int], None], count: int, device: torch.device) -> float:
    """Duration of `count` steps."""
    wait_for(device)
    start = time.perf_counter()
    run(count)
    wait_for(device)
    return time.perf_counter() - start
