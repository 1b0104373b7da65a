"""Frames per second of the renderers, and of their peers where those are installed (Embree on the CPU, Warp on CUDA).

    python eval/speed_render.py --device cuda --num-agents 1024 4096 --sizes 64 128 --scenes aws_small_house

Views are drawn from each scene's navigable space with any heading. All renderers see the same views and are timed in
turn, repetition by repetition, so that a change of clock or load meets all of them.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from record import record, row

import batchnav.device as devices
from batchnav.data.scenes import load_scene
from batchnav.render.raycast import RaycastRenderer
from batchnav.render.reference import pixel_directions
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene

ASSETS = Path(__file__).resolve().parents[1] / "assets" / "scenes"
CAMERA_HEIGHT = 1.25


@dataclass
class Arguments:
    """What to measure."""

    device: str = "auto"
    num_agents: tuple[int, ...] = ()
    """Views per call; default 4096 on CUDA, 256 on the CPU."""
    sizes: tuple[int, ...] = (64,)
    """Square images of these sides."""
    scenes: tuple[str, ...] = ("aws_small_house",)
    """Mesh files, or names of bundled scenes."""
    repeats: int = 7
    peers: bool = True
    seed: int = 0


def main(arguments: Arguments) -> None:
    device = devices.resolve_device(arguments.device)
    counts = arguments.num_agents or ((4096,) if device.type == "cuda" else (256,))
    rows = []
    for name in arguments.scenes:
        scene = load_scene(bundled(name))
        bank = SceneBank.pack([scene], device)
        for n in counts:
            position, heading = views(scene, n, arguments.seed)
            for size in arguments.sizes:
                runs = {"raycast": ours(bank, position, heading, size)}
                if arguments.peers:
                    runs |= peers(scene, position, heading, size, device)
                for renderer, seconds in measure(runs, device, arguments.repeats).items():
                    params = {"renderer": renderer, "scene": scene.name, "triangles": len(scene.mesh.faces)}
                    params |= {"num_agents": n, "height": size, "width": size}
                    if device.type == "cpu":
                        params["threads"] = 1 if renderer.startswith("Embree") else devices.num_threads()
                    rows.append(row("render", "frames_per_second", n / seconds, params, device))
    record("render", rows)


def bundled(name: str) -> Path:
    """A path as given, or the bundled scene of that name."""
    inside = ASSETS / name / f"{name}.glb"
    return inside if inside.is_file() else Path(name)


def views(scene: Scene, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Camera positions f32 [n, 3] over navigable points, headings f32 [n]."""
    position = np.asarray(scene.navmesh.sample(n, seed=seed), np.float32) + np.float32([0, CAMERA_HEIGHT, 0])
    return position, np.random.default_rng(seed).uniform(-math.pi, math.pi, n).astype(np.float32)


def ours(bank: SceneBank, position: np.ndarray, heading: np.ndarray, size: int) -> Callable[[], None]:
    renderer = RaycastRenderer(bank, len(heading), size, size)
    scene_id = torch.zeros(len(heading), dtype=torch.int32, device=bank.device)
    pose = torch.from_numpy(position).to(bank.device), torch.from_numpy(heading).to(bank.device)
    return lambda: renderer.render(scene_id, *pose)


def peers(scene: Scene, position: np.ndarray, heading: np.ndarray, size: int, device: torch.device) -> dict:
    """Other renderers that are installed, on the same views: a function that draws all of them once, by name."""
    if device.type == "cpu" and importlib.util.find_spec("embreex"):
        return {f"Embree (embreex {_version('embreex')})": embree(scene, position, heading, size)}
    if device.type == "cuda" and importlib.util.find_spec("warp"):
        from speed_render_warp import warp_renderer

        return {
            f"warp {_version('warp-lang')} {builder}": warp_renderer(scene, position, heading, size, device, builder)
            for builder in ("lbvh", "sah", "cubql")
        }
    return {}


def embree(scene: Scene, position: np.ndarray, heading: np.ndarray, size: int) -> Callable[[], None]:
    from embreex.mesh_construction import TriangleMesh
    from embreex.rtcore_scene import EmbreeScene

    tree = EmbreeScene()
    TriangleMesh(tree, scene.mesh.vertices[scene.mesh.faces])
    rays = [
        (np.repeat(p[None], size * size, 0), pixel_directions(h, size, size, 90.0).reshape(-1, 3).astype(np.float32))
        for p, h in zip(position, heading, strict=True)
    ]

    def draw():
        for origins, directions in rays:
            tree.run(origins, directions, query="DISTANCE")

    return draw


def measure(runs: dict[str, Callable], device: torch.device, repeats: int) -> dict[str, np.ndarray]:
    """Seconds per call of each renderer, f64 [repeats], taken in turn; each repetition lasts at least 0.2 s."""
    calls, seconds = {}, {name: [] for name in runs}
    for name, draw in runs.items():
        draw()
        calls[name] = max(1, math.ceil(0.2 / _timed(draw, 2, device)))
    for _ in range(repeats):
        for name, draw in runs.items():
            seconds[name].append(_timed(draw, calls[name], device))
    return {name: np.array(values) for name, values in seconds.items()}


def _timed(draw: Callable, calls: int, device: torch.device) -> float:
    """Seconds per call: CUDA events around all calls on the GPU, the wall clock on the CPU."""
    if device.type == "cpu":
        start = time.perf_counter()
        for _ in range(calls):
            draw()
        return (time.perf_counter() - start) / calls
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(calls):
        draw()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000 / calls


def _version(package: str) -> str:
    return importlib.metadata.version(package)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
