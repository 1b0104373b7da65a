"""Navmesh queries per second, and the duration of baking.

    batchnav bench navmesh --device cuda

Queries are batched: geodesic distances between random points of the largest island, and steps of 0.25 m from such
points in random directions. All arrays are on the device; nothing is copied. Baking runs on the CPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from batchnav.bench.options import NavmeshOptions as Options
from batchnav.data.scenes.ids import scene_ids
from batchnav.data.scenes.load import load_all
from batchnav.navmesh.navmesh import NavMesh
from batchnav.report.results import record, row
from batchnav.runtime.device import resolve_device
from batchnav.runtime.parallel import num_threads

FORWARD = 0.25
"""Length of a step, metres."""


def main(options: Options) -> None:
    """Measure and print; append the results to the file with `record`."""
    device, bakes, queries = resolve_device(options.device), [], []
    for scene in load_all(scene_ids(options.scenes), appearance=False):
        mesh, name = scene.mesh, Path(scene.name).stem
        params = {"scene": name, "triangles": len(mesh.faces), "threads": num_threads()}
        seconds = measure(partial(NavMesh.bake, mesh), options.repeats)
        bakes.append(row("navmesh", "bake_seconds", seconds, params, "cpu"))
    record("navmesh", bakes, append=options.record)

    navmesh = NavMesh.bake(mesh).to(device)
    starts, goals, ends = (
        torch.from_numpy(points).to(device) for points in sample_steps(navmesh.to("cpu"), options.batch)
    )
    for metric, query in (
        ("geodesics_per_second", lambda: navmesh.geodesic_distance(starts, goals)),
        ("steps_per_second", lambda: navmesh.try_step(starts, ends)),
    ):
        rates = options.batch / measure(query, options.repeats)
        params = {"scene": name, "batch": options.batch}
        queries.append(row("navmesh", metric, rates, params, device))
    record("navmesh", queries, append=options.record)


def sample_steps(navmesh: NavMesh, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Starts, goals and step ends, f32 [number, 3] each; starts and goals are on the largest island."""
    points = navmesh.sample(4 * number)
    island = navmesh.island(points)
    points = points[island == np.bincount(island).argmax()][: 2 * number]
    heading = np.random.default_rng(0).uniform(-np.pi, np.pi, number)
    ahead = np.stack([-np.sin(heading), np.zeros(number), -np.cos(heading)], 1)
    return points[:number], points[number:], (points[:number] + FORWARD * ahead).astype(np.float32)


def measure(call: Callable[[], object], repeats: int) -> np.ndarray:
    """Duration of each repeat, seconds, after a first call that compiles."""
    seconds = []
    for _ in range(1 + repeats):
        start = time.perf_counter()
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return np.array(seconds[1:])
