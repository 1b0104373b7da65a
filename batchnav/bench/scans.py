"""Scans of real size: loading, disk, device memory, frames per second, training and view points.

    batchnav bench scans --count 6 --triangles 1.4e6 --textures 4x4096 --houses 1024
    batchnav bench scans --count 6 --stream 64/800 --updates 60
    batchnav bench scans --device cpu --count 1 --triangles 2e4 --textures 1x256

The scans are procedural houses, cut into small triangles, with noise and photo-like textures. They are made once, which
takes minutes, and stay in the cache folder. Each is loaded from its mesh file twice: as a new file, then again.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from batchnav.bench import train
from batchnav.bench.env import measure
from batchnav.bench.make_scans import make_scans
from batchnav.bench.options import EnvOptions, TrainOptions
from batchnav.bench.options import ScansOptions as Options
from batchnav.data.goals.rules import labels_named, rules_named
from batchnav.data.goals.view_points import search_goals
from batchnav.data.scenes.load import load_all, load_scene
from batchnav.data.scenes.prepared import save_prepared
from batchnav.envs.config import NavConfig
from batchnav.envs.nav import NavEnv, PointNavEnv
from batchnav.envs.observations import observation_sources
from batchnav.envs.stream import SceneStream
from batchnav.errors import ArgumentError
from batchnav.report.results import record, row
from batchnav.runtime.device import resolve_device, wait_for
from batchnav.runtime.distributed import Ranks
from batchnav.scene.bank import SceneBank
from batchnav.scene.resident import SceneSize
from batchnav.scene.scene import Scene
from batchnav.sensors.frame import appearance_needed

MINUTE = 60_000_000_000
"""Nanoseconds."""
RULES, LABELS = "hm3d_v2", "procedural"
"""Rules for view points, and the categories of goals."""


def main(options: Options) -> list[dict]:
    """Measure and print, part by part; append the results to the file with `record`. Returns the rows."""
    number, side = _parsed(options.textures)
    resident, total = _parsed_stream(options)
    files = make_scans(options.count, options.triangles, number, side)
    params = {
        "count": options.count, "triangles": int(options.triangles), "textures": options.textures,
        "num_envs": _num_envs(options), "policy": options.policy,
    }  # fmt: skip
    rows: list[dict] = []

    def keep(part: list[dict]) -> None:
        record("scans", part, append=options.record)
        rows.extend(part)

    if total:
        keep(_measure_streaming(files, resident, total, options, {**params, "stream": options.stream}))
    else:
        loading, scenes = _measure_loading(files, params)
        keep(loading)
        keep(_measure_memory(scenes, options, params))
        for part in _measure_environments(scenes, options, params):
            keep(part)
        keep(_measure_training(scenes, options, params))
        keep(_measure_goals(scenes[0], options, params))
    return rows


def _parsed(textures: str) -> tuple[int, int]:
    """Number and side of the textures. ArgumentError for another text than two numbers from 1 on."""
    found = re.fullmatch(r"([1-9]\d{0,2})x([1-9]\d{0,4})", textures)
    if not found or int(found[2]) > 16384:
        raise ArgumentError(f"textures: found {textures!r}, expected their number and side, such as 4x4096")
    return int(found[1]), int(found[2])


def _parsed_stream(options: Options) -> tuple[int, int]:
    """Numbers of resident scans and of all scans, 0 and 0 without streaming. ArgumentError for another text."""
    if not options.stream:
        return 0, 0
    found = re.fullmatch(r"(\d{1,5})/(\d{1,6})", options.stream)
    resident, total = map(int, found.groups()) if found else (0, 0)
    if not (2 <= resident < total and options.count <= total):
        raise ArgumentError(
            f"stream: found {options.stream!r}, expected the numbers of resident scans, at least 2, and of all scans, "
            f"more than that and at least {options.count}, such as 64/800"
        )
    return resident, total


def _measure_loading(files: Sequence[Path], params: dict) -> tuple[list[dict], list[Scene]]:
    """Seconds of loading each mesh file twice, and bytes on disk."""
    first, second, sizes, scenes = [], [], [], list[Scene]()
    load_scene(files[0])  # compiles
    for file in files:
        before = time.time_ns() - MINUTE
        os.utime(file, ns=(before, before))  # a new file to every cache
        first.append(timed(functools.partial(load_scene, file)))
        second.append(timed(functools.partial(load_scene, file)))
        scenes.append(load_scene(file))
        with tempfile.TemporaryDirectory() as folder:
            save_prepared(scenes[-1], Path(folder) / "a.scene", compact=True)
            sizes.append((file.stat().st_size, (Path(folder) / "a.scene").stat().st_size))
    of_mesh_files, prepared = zip(*sizes, strict=True)
    return [
        row("scans", "seconds", first, {"what": "load a mesh file, first time", **params}, "cpu"),
        row("scans", "seconds", second, {"what": "load a mesh file, second time", **params}, "cpu"),
        row("scans", "megabytes", [n / 1e6 for n in of_mesh_files], {"what": "mesh file", **params}, "cpu"),
        row("scans", "megabytes", [n / 1e6 for n in prepared], {"what": "prepared scene", **params}, "cpu"),
        row("scans", "ratio", sum(prepared) / sum(of_mesh_files), {"what": "prepared / mesh file", **params}, "cpu"),
    ], scenes  # fmt: skip


def _measure_memory(scenes: Sequence[Scene], options: Options, params: dict) -> list[dict]:
    """Bytes of a scan on the device, for each set of sensors."""
    rows = []
    for name in options.sensors:
        sources = observation_sources(NavConfig(sensors=tuple(name.split("+")))).values()
        sizes = [SceneSize.of(scene).with_appearance(appearance_needed(sources)).num_bytes / 1e6 for scene in scenes]
        rows.append(row("scans", "megabytes", sizes, {"what": f"device memory: {name}", **params}, "cpu"))
    return rows


def _measure_environments(scenes: Sequence[Scene], options: Options, params: dict) -> Iterator[list[dict]]:
    """Seconds to make an environment, and frames per second of its steps, for each set of sensors and image size."""
    device = resolve_device(options.device)
    of_steps = EnvOptions(seconds=options.seconds, repeats=options.repeats)
    for name, size in itertools.product(options.sensors, options.sizes):

        def make(name=name, size=size) -> NavEnv:
            env = NavEnv(scenes, _num_envs(options), device, sensors=name.split("+"), height=size, width=size)
            env.reset(seed=0)
            return env

        make()  # compiles
        start = time.perf_counter()
        env = make()
        wait_for(device)
        seconds, of_env = time.perf_counter() - start, f"{name} {size}x{size}"
        yield [
            row("scans", "seconds", seconds, {"what": f"make an environment: {of_env}", **params}, device),
            row("scans", "frames_per_second", measure(env, of_steps), {"what": f"step: {of_env}", **params}, device),
        ]


def _measure_training(scenes: Sequence[Scene], options: Options, params: dict) -> list[dict]:
    """Frames per second of training with depth."""
    device, size = resolve_device(options.device), options.sizes[0]
    rates, _ = _training(SceneBank.pack(scenes, device), options)
    return [row("scans", "frames_per_second", rates, {"what": f"train: depth {size}x{size}", **params}, device)]


def _training(scenes: SceneBank | SceneStream, options: Options) -> tuple[np.ndarray, list[float]]:
    """Frames per second of each timed update of training with depth; and the memory after half of them and all, MB."""
    device, size, num_envs = resolve_device(options.device), options.sizes[0], _num_envs(options)
    config = TrainOptions(
        device=options.device, policies=(options.policy,), sizes=(size,), num_envs=(num_envs,),
        updates=options.updates, minibatch_frames=8192, compile=device.type == "cuda",
    )  # fmt: skip
    env = PointNavEnv(scenes, num_envs, device, height=size, width=size, copy=False)
    policy = train.make_policy(env, options.policy, config)
    learner, seconds, memory = train.make_learner(env, policy, config, Ranks(device)), [], []
    for updates in (-(-options.updates // 2), options.updates // 2):
        seconds.append(train.time_updates(learner, updates)["loop"] if updates else np.empty(0))
        memory.append(_memory(device))
    env.close()
    return learner.frames_per_update / np.concatenate(seconds), memory


def _memory(device: torch.device) -> float:
    """Memory of this process that no file holds, plus the tensors on a GPU, MB."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    on_device = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    return ((int(found[1]) * 1024 if found else 0) + on_device) / 1e6


def _measure_streaming(files: Sequence[Path], resident: int, total: int, options: Options, params: dict) -> list[dict]:
    """Training with `resident` scans that stay in memory, and with as many that others replace during training."""
    device = resolve_device(options.device)
    with tempfile.TemporaryDirectory(dir=files[0].parent) as folder:
        prepared = [Path(folder) / f"{k}.scene" for k in range(total)]
        for file, path in zip(files, prepared, strict=False):
            save_prepared(load_scene(file), path, compact=True)
        for k in range(len(files), total):
            os.link(prepared[k % len(files)], prepared[k])
        load = functools.partial(load_scene, appearance=False)
        scenes = [load(path) for path in prepared[: len(files)]]
        seconds = [timed(functools.partial(load, path)) for path in prepared[: len(files)]]
        stay, _ = _training(SceneBank.pack([scenes[k % len(scenes)] for k in range(resident)], device), options)
        sizes = [SceneSize.of(scene) for scene in scenes]
        sizes = [sizes[k % len(sizes)] for k in range(total)]
        streamed, memory = _training(SceneStream(list(map(str, prepared)), load, sizes, resident), options)
    share = float(np.median(streamed) / np.median(stay))
    return [
        row("scans", "seconds", seconds, {"what": "load a prepared scan, depth", **params}, "cpu"),
        row("scans", "frames_per_second", stay, {"what": f"train: {resident} scans that stay", **params}, device),
        row("scans", "frames_per_second", streamed, {"what": "train: streamed scans", **params}, device),
        row("scans", "ratio", share, {"what": "train: streamed / scans that stay", **params}, device),
        row("scans", "megabytes", memory[0], {"what": "memory after half of the updates", **params}, device),
        row("scans", "megabytes", memory[1], {"what": "memory after all updates", **params}, device),
    ]  # fmt: skip


def _measure_goals(scene: Scene, options: Options, params: dict) -> list[dict]:
    """Seconds to find the view points of a scan's first objects, and of the objects of houses."""
    device, rules, labels = resolve_device(options.device), rules_named(RULES), labels_named(LABELS)

    def search(objects: int) -> int:
        assert scene.mesh.surface is not None and scene.mesh.surface.object_id is not None
        ids = scene.mesh.surface.object_id
        known = np.unique(ids[ids > 0])[:objects]
        surface = scene.mesh.surface._replace(object_id=np.where(np.isin(ids, known), ids, 0).astype(np.int32))
        some = scene._replace(mesh=scene.mesh._replace(surface=surface))
        return len(next(search_goals([some], rules.view_points, labels, device)))

    search(1)  # compiles
    seconds = {f"{options.objects} objects": timed(lambda: search(options.objects))}
    if options.houses:
        houses = load_all([f"house:{seed}" for seed in range(options.houses)])
        every = functools.partial(search_goals, houses, rules.view_points, labels, device)
        seconds[f"{options.houses} houses"] = timed(lambda: list(every()))
    return [
        row("scans", "seconds", value, {"what": f"view points of {what}", **params}, device)
        for what, value in seconds.items()
    ]


def _num_envs(options: Options) -> int:
    return options.num_envs or (4096 if resolve_device(options.device).type == "cuda" else 64)


def timed(call: Callable[[], object]) -> float:
    """Duration of a call, seconds."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
