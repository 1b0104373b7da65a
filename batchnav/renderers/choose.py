"""Selection of a renderer by name or by speed."""

from __future__ import annotations

import logging
import math
import time

import numpy as np
import torch

from batchnav.errors import ArgumentError, DeviceError
from batchnav.renderers.base import Renderer
from batchnav.renderers.opengl.renderer import OpenGLRenderer
from batchnav.renderers.raycast import RaycastRenderer
from batchnav.scene.bank import SceneBank

RENDERERS: dict[str, type[Renderer]] = {"raycast": RaycastRenderer, "opengl": OpenGLRenderer}
"""Renderers by name."""
CAMERA_HEIGHT = 1.25
"""Height above the navmesh of the cameras in timed batches, metres."""
_WARM_UP, _BATCHES = 2, 5
"""Number of batches before timing, and of timed batches."""
_log = logging.getLogger(__name__)


def make_renderer(name: str, bank: SceneBank, num_agents: int, **options) -> Renderer:
    """A renderer by name: "raycast", "opengl", or "auto" for the faster one. Options: see `Renderer`.

    ArgumentError for another name, and for any name but "raycast" with a bank whose scenes are streamed.
    """
    if name != "raycast" and not bank.scenes:
        raise ArgumentError(f"renderer: found {name!r} with scene streaming, expected 'raycast'")
    if name == "auto":
        return fastest_renderer(bank, num_agents, **options)
    if name not in RENDERERS:
        raise ArgumentError(f"renderer: found {name!r}, expected one of {', '.join((*RENDERERS, 'auto'))}")
    return RENDERERS[name](bank, num_agents, **options)


def fastest_renderer(bank: SceneBank, num_agents: int, **options) -> Renderer:
    """The renderer with the highest speed on a few batches of random views of the bank's scenes.

    Logs the speeds, or why a renderer is not available, to the logger "batchnav.renderers.choose".
    """
    views = random_views(bank, num_agents)
    speeds, renderers = {}, {}
    for name, kind in RENDERERS.items():
        try:
            renderers[name] = kind(bank, num_agents, **options)
        except DeviceError as error:
            _log.info("renderer %s: not available (%s)", name, error)
            continue
        speeds[name] = num_agents / _seconds(renderers[name], views)
    best = max(speeds, key=lambda name: speeds[name])
    figures = ", ".join(f"{name} {speed:,.0f} frames/s" for name, speed in speeds.items())
    _log.info("renderer: %s (%s)", best, figures)
    for name, renderer in renderers.items():
        if name != best and isinstance(renderer, OpenGLRenderer):
            renderer.release()
    return renderers[best]


def random_views(bank: SceneBank, n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random arguments of `render`: agents distributed over the scenes, above the navmeshes, with random headings."""
    scene_index = np.arange(n, dtype=np.int32) % bank.num_scenes
    position = np.empty((n, 3), np.float32)
    for k, scene in enumerate(bank.scenes[:n]):
        position[scene_index == k] = scene.navmesh.sample(int((scene_index == k).sum()), seed=seed)
    position[:, 1] += CAMERA_HEIGHT
    heading = np.random.default_rng(seed).uniform(-math.pi, math.pi, n).astype(np.float32)
    scenes, positions, headings = (
        torch.from_numpy(array).to(bank.device) for array in (scene_index, position, heading)
    )
    return scenes, positions, headings


def _seconds(renderer: Renderer, views: tuple) -> float:
    """Median time of a batch after warm-up, seconds."""
    times = []
    for _ in range(_WARM_UP + _BATCHES):
        start = time.perf_counter()
        renderer.render(*views)
        if views[0].device.type == "cuda":
            torch.cuda.synchronize(views[0].device)
        times.append(time.perf_counter() - start)
    return float(np.median(times[_WARM_UP:]))
