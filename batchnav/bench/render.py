"""Frames per second of the renderers, and of installed peers: Embree on the CPU, Warp on CUDA.

    batchnav bench render --device cuda --num-agents 1024 4096 --sizes 64 128 --scenes house:121980 houses:64
    batchnav bench render --device cuda --renderers opengl --culling --no-peers
    batchnav bench render --renderers raycast --sensors depth rgb+depth --scenes house.glb --no-peers

Views are sampled from each scene's navigable space with any heading. All renderers render the same views. Repetitions
of different renderers alternate, so that a change of clock or load affects all of them. With the renderers of this
project, agents turn by 10 degrees between calls: a renderer may reuse the visibility of the last frame, but not its
image. The time of each rendering stage is measured separately, with a synchronisation after each stage.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import math
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from batchnav.bench.options import RenderOptions as Options
from batchnav.data.goals.view_points import with_goals
from batchnav.data.scenes.ids import scene_ids
from batchnav.data.scenes.load import load_all
from batchnav.errors import DeviceError
from batchnav.renderers.base import Renderer
from batchnav.renderers.choose import RENDERERS, random_views
from batchnav.renderers.opengl.renderer import OpenGLRenderer
from batchnav.report.results import append_rows, print_table, row, save_chart
from batchnav.runtime.device import resolve_device
from batchnav.runtime.parallel import num_threads
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene
from batchnav.sensors.by_name import camera_sensors
from batchnav.sensors.camera import MAIN, CameraConfig
from batchnav.sensors.depth import DepthConfig
from batchnav.sensors.frame import GivenImages, appearance_needed
from batchnav.sensors.sensor import Cameras, CameraSensor
from batchnav.tasks.objectnav import HM3D

HOUSES = "houses:"
"""Prefix of a batch of procedural houses."""
TURN = math.radians(10.0)
"""Turn of every agent between calls, radians."""
CULLING = ("frustum", "occlusion", "pixel")
"""Kinds of culling of the OpenGL renderer."""

Views = tuple[torch.Tensor, ...]
"""Scene, position and heading of each agent: the arguments of a renderer."""
Aim = Callable[[Views, int], Callable[[], None]]
"""Function of views and image side that returns a function which renders all views once."""
Peers = dict[tuple[str, str], Aim]
"""Peers by name and rendered sensors."""


def main(arguments: Options) -> None:
    """Measure and print; append the results to the file with `record`."""
    device = resolve_device(arguments.device)
    counts = arguments.num_agents or ((4096,) if device.type == "cuda" else (256,))
    rows = []
    for name in arguments.scenes:
        fields = appearance_needed(sensor for kind in arguments.sensors for sensor in made_of(kind).values())
        scenes, categories = load_all(scene_names(name), appearance=bool(fields)), None
        if "goal" in fields:
            scenes, categories = with_goals(scenes, device=device), HM3D
        bank = SceneBank.pack(scenes, device, fields, goal_categories=categories)
        others = peers(bank) if arguments.peers else {}
        triangles = sum(len(scene.mesh.faces) for scene in bank.scenes)
        for n in counts:
            views = random_views(bank, n, arguments.seed)
            for size in arguments.sizes:
                params = {"scene": Path(name).stem, "triangles": triangles}
                params |= {"num_agents": n, "height": size, "width": size}
                found = compare(bank, others, views, params, arguments)
                if arguments.record:
                    append_rows("render", found)  # at once: the next measurement may take long
                rows += found
    print_results(rows)
    if arguments.figure is not None:
        plot(rows, arguments.figure)


def print_results(rows: list[dict]) -> None:
    """Print OpenGL's stages, then the frames per second."""
    for metric in ("microseconds_per_frame", "frames_per_second"):
        print_table("render", [r for r in rows if r["metric"] == metric])


def scene_names(name: str) -> list[str]:
    """Scene ids of a batch: the first K houses for houses:K, else those of `scene_ids`."""
    count = name.removeprefix(HOUSES)
    is_batch = name.startswith(HOUSES) and count.isdecimal() and int(count) > 0
    return scene_ids([f"house:0-{int(count) - 1}" if is_batch else name])


def compare(
    bank: SceneBank, others: dict[tuple[str, str], Aim], views: Views, params: dict, arguments: Options
) -> list[dict]:
    """Measure all renderers on the same views: rows of frames/s, and of time per frame in OpenGL's stages."""
    n, size, device = params["num_agents"], params["width"], bank.device
    ours = make(kinds(arguments), bank, n, size)
    runs = {
        (name, kind): turning(renderer, views, made_of(kind, size), bank)
        for name, renderer in ours.items()
        for kind in arguments.sensors
    }
    runs |= {key: aim(views, size) for key, aim in others.items() if key[1] in arguments.sensors}

    def describe(renderer: str, sensors: str) -> dict:
        threads = {"threads": 1 if renderer.startswith("Embree") else num_threads()} if device.type == "cpu" else {}
        return {"renderer": renderer, "sensors": sensors, **params, **threads}

    seconds = measure(runs, device, arguments.repeats)
    rows = [row("render", "frames_per_second", n / s, describe(*name), device) for name, s in seconds.items()]
    opengl = ours.get("opengl")
    if isinstance(opengl, OpenGLRenderer):
        parts = stages(opengl, turning(opengl, views), arguments.repeats)
        rows += [
            row("render", "microseconds_per_frame", 1e6 * s / n, describe("opengl", "depth") | {"stage": stage}, device)
            for stage, s in parts.items()
        ]
    for renderer in ours.values():
        if isinstance(renderer, OpenGLRenderer):
            renderer.release()
    return rows


def kinds(arguments: Options) -> dict[str, tuple[type[Renderer], dict[str, bool]]]:
    """Renderers of the project to measure, by name: class, and options that differ from the defaults."""
    found: dict[str, tuple[type[Renderer], dict[str, bool]]] = {n: (RENDERERS[n], {}) for n in arguments.renderers}
    if arguments.culling:
        found |= {f"opengl without {kind} culling": (OpenGLRenderer, {f"{kind}_culling": False}) for kind in CULLING}
        found["opengl without culling"] = OpenGLRenderer, {f"{kind}_culling": False for kind in CULLING}
    return found


def make(kinds: dict[str, tuple], bank: SceneBank, n: int, size: int) -> dict[str, Renderer]:
    """Renderers of the project that the machine supports, by name."""
    renderers = {}
    for name, (kind, options) in kinds.items():
        try:
            renderers[name] = kind(bank, n, size, size, **options)
        except DeviceError as error:
            print(f"{name}: skipped ({error})")
    return renderers


def made_of(kind: str, size: int = 64) -> dict[str, CameraSensor]:
    """Sensors of a set such as "rgb+depth", without depth, which renderers return in metres."""
    found = camera_sensors(kind.split("+"), {MAIN: CameraConfig(size, size)}, {"depth": DepthConfig()})
    return {name: sensor for name, sensor in found.items() if name != "depth"}


def turning(
    renderer: Renderer, views: Views, sensors: dict[str, CameraSensor] | None = None, bank: SceneBank | None = None
) -> Callable[[], None]:
    """A function that turns all agents by TURN and renders depth and the observations of `sensors`."""
    scene_id, position, heading = views
    seen = Cameras.level(scene_id, position, heading.clone())
    out = {
        name: torch.zeros(len(heading), *sensor.spec.shape, dtype=sensor.spec.dtype, device=heading.device)
        for name, sensor in (sensors or {}).items()
    }

    category = torch.arange(len(heading), dtype=torch.int64, device=heading.device) % len(HM3D)
    goals = SimpleNamespace(goal_category=category)  # read by goal masks

    def run():
        seen.heading.add_(TURN)
        if not out:
            renderer.render(*seen.poses)
            return
        frame = GivenImages(*renderer.visibility(*seen.poses), seen, bank.appearance, task=goals)
        for name, sensor in sensors.items():
            sensor.write(frame, out[name])

    return run


def peers(bank: SceneBank) -> Peers:
    """Installed peers, with acceleration structures for the bank's scenes."""
    if bank.device.type == "cpu" and bank.num_scenes == 1 and importlib.util.find_spec("embreex"):
        return {(f"Embree (embreex {_version('embreex')})", "depth"): embree(bank.scenes[0])}
    if bank.device.type == "cuda" and importlib.util.find_spec("warp"):
        from batchnav.bench.render_warp import warp_renderer

        return {
            (f"warp {_version('warp-lang')} {builder}", sensors): aim
            for builder in ("lbvh", "sah", "cubql")
            for sensors, aim in warp_renderer(bank, builder).items()
        }
    return {}


def embree(scene: Scene) -> Aim:
    """Embree on one scene, with a batch of rays for each view."""
    from embreex.mesh_construction import TriangleMesh
    from embreex.rtcore_scene import EmbreeScene

    tree = EmbreeScene()
    TriangleMesh(tree, scene.mesh.vertices[scene.mesh.faces])

    def aim(views: Views, size: int) -> Callable[[], None]:
        _, position, heading = (view.numpy() for view in views)
        rays = [
            (
                np.repeat(p[None], size * size, 0),
                _pixel_directions(h, size),
            )
            for p, h in zip(position, heading, strict=True)
        ]

        def run():
            for origins, directions in rays:
                tree.run(origins, directions, query="DISTANCE")

        return run

    return aim


def measure(runs: dict[tuple, Callable], device: torch.device, repeats: int) -> dict[tuple, np.ndarray]:
    """Seconds per call of each renderer, f64 [repeats]; renderers alternate, and a repetition lasts at least 0.2 s."""
    calls: dict[tuple, int] = {}  # calls per repetition, by renderer and sensors
    seconds: dict[tuple, list[float]] = {name: [] for name in runs}
    for name, draw in runs.items():
        draw()
        calls[name] = max(1, math.ceil(0.2 / _timed(draw, 2, device)))
    for _ in range(repeats):
        for name, draw in runs.items():
            seconds[name].append(_timed(draw, calls[name], device))
    return {name: np.array(values) for name, values in seconds.items()}


def stages(renderer: OpenGLRenderer, draw: Callable[[], None], repeats: int) -> dict[str, np.ndarray]:
    """Seconds per call in each stage of the renderer, f64 [repeats], with a synchronisation after each stage."""
    spent: dict[str, list[float]] = {stage: [] for stage in renderer.STAGES}

    def wait():
        renderer.context.mgl.finish()
        if renderer.device.type == "cuda":
            torch.cuda.synchronize()

    def timed(method: Callable, stage: str) -> Callable:
        def run(*arguments):
            wait()
            start = time.perf_counter()
            method(*arguments)
            wait()
            spent[stage][-1] += time.perf_counter() - start

        return run

    for stage, names in renderer.STAGES.items():
        for name in names:
            setattr(renderer, name, timed(getattr(renderer, name), stage))
    for _ in range(repeats):
        for seconds in spent.values():
            seconds.append(0.0)
        draw()
    return {stage: np.array(seconds) for stage, seconds in spent.items()}


def plot(rows: list[dict], path: Path) -> None:
    """Plot frames/s against the number of agents: panels by scene, colours by renderer, line styles by image size."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    lines: dict[tuple, list[tuple[int, float]]] = {}
    for r in rows:
        if r["metric"] == "frames_per_second":
            scene, renderer, sensors, size = (r["params"][key] for key in ("scene", "renderer", "sensors", "width"))
            renderer += "" if sensors == "depth" else f", {sensors}"
            lines.setdefault((scene, renderer, size), []).append((r["params"]["num_agents"], r["value"]))
    scenes, renderers, sizes = (list(dict.fromkeys(values)) for values in zip(*lines, strict=True))
    colours = {renderer: f"C{i}" for i, renderer in enumerate(renderers)}
    dashes = dict(zip(sizes, itertools.cycle(("-", "--", ":", "-."))))

    counts = sorted({count for points in lines.values() for count, _ in points})

    columns = min(3, len(scenes))
    deep = -(-len(scenes) // columns)
    figure = Figure(figsize=(2 + 3.6 * columns, 0.4 + 3.2 * deep), layout="constrained")
    grid = figure.subplots(deep, columns, sharey=True, squeeze=False)
    panels = dict(zip(scenes, grid.ravel(), strict=False))
    for (scene, renderer, size), points in lines.items():
        style = {"color": colours[renderer], "linestyle": dashes[size], "linewidth": 1.4}
        panels[scene].loglog(*zip(*sorted(points), strict=True), marker="o", markersize=3, **style)
    for scene, axes in panels.items():
        axes.set(title=scene, xlabel="agents")
        axes.set_xticks(counts, [f"{count:,}" for count in counts])
        axes.minorticks_off()
        axes.grid(color="#E5E5E5", linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel("frames/s")
    for axes in grid.ravel()[len(scenes) :]:
        axes.set_visible(False)
    marks = [Line2D([], [], color=colour, label=renderer) for renderer, colour in colours.items()]
    marks += [Line2D([], [], color="grey", linestyle=dash, label=f"{size} x {size}") for size, dash in dashes.items()]
    figure.legend(handles=marks, loc="outside right upper", frameon=False)
    save_chart(figure, path)


def _timed(draw: Callable, calls: int, device: torch.device) -> float:
    """Seconds per call: CUDA events around all calls on the GPU, the wall clock on the CPU."""
    if device.type == "cpu":
        began = time.perf_counter()
        for _ in range(calls):
            draw()
        return (time.perf_counter() - began) / calls
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(calls):
        draw()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000 / calls


def _version(package: str) -> str:
    """Installed version of a package."""
    return importlib.metadata.version(package)


def _pixel_directions(heading: float, size: int) -> np.ndarray:
    """Ray directions f32 [size * size, 3] through the pixels of a square image of 90 degrees; forward component 1."""
    right = (2 * np.arange(size) + 1 - size)[None, :, None] / size
    s, c = np.sin(heading), np.cos(heading)
    directions = np.array([-s, 0, -c]) + right * np.array([c, 0, -s]) - right.reshape(size, 1, 1) * np.array([0, 1, 0])
    return directions.reshape(-1, 3).astype(np.float32)
