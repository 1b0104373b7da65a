"""Maps of the large buildings in docs/concepts/environments.md, to one scale, each with a path that is a long detour.

    python docs/figures/buildings.py --out docs/images/buildings.png
    python docs/figures/buildings.py --scenes block:1 block:5 block:6 --out docs/images/blocks.png

Samples episodes in each building as training does, and plots the one whose shortest path exceeds the Euclidean distance
by most metres. Prints both lengths.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from PIL import Image

from batchnav.data.goals.point import generate_episodes
from batchnav.data.scenes.load import load_all
from batchnav.errors import BatchnavError
from batchnav.runtime.files import replacing
from batchnav.scene.scene import Scene
from batchnav.view.topdown import BLUE, PAPER, TopDownMap

GAP = 24
"""Pixels between maps."""


@dataclass(frozen=True)
class Options:
    """Scenes and scale of the figure."""

    out: Path
    """Output file, a PNG."""
    scenes: tuple[str, ...] = ("building:1", "building:9", "building:6")
    """Scenes from left to right."""
    episodes: int = 1000
    """Number of episodes sampled in each building."""
    pixels_per_metre: float = 12.0


def main(options: Options) -> None:
    scenes = load_all(options.scenes, appearance=False)
    maps = [draw(scene, options.episodes, options.pixels_per_metre) for scene in scenes]
    sheet = Image.new("RGB", (sum(m.width + GAP for m in maps) - GAP, max(m.height for m in maps)), PAPER)
    left = 0
    for plan in maps:
        sheet.paste(plan, (left, (sheet.height - plan.height) // 2))
        left += plan.width + GAP
    with replacing(options.out, BatchnavError) as part:
        sheet.quantize(dither=Image.Dither.NONE).save(part, "PNG", optimize=True)


def draw(scene: Scene, episodes: int, pixels_per_metre: float) -> Image.Image:
    """Map of a building with its longest detour."""
    start, goal, path = longest_detour(scene, episodes)
    length, straight = np.linalg.norm(np.diff(path, axis=0), axis=1).sum(), np.linalg.norm(goal - start)
    print(f"{scene.name}: {length:.1f} m to a goal {straight:.1f} m away")
    small = TopDownMap(scene.navmesh)
    size = round(max(small.size) / small.pixels_per_metre * pixels_per_metre)
    plan = TopDownMap(scene.navmesh, scene.mesh, size=size)
    plan.draw_path(path, BLUE)
    plan.draw_start(start, colour=BLUE)
    plan.draw_goal(goal)
    return plan.image


def longest_detour(scene: Scene, episodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start f32 [3], goal f32 [3] and shortest path f32 [K, 3] of the episode with the longest detour."""
    sampled = generate_episodes(scene, episodes)
    starts = np.array([episode.start_position for episode in sampled], np.float32)
    goals = np.array([episode.goals[0].position for episode in sampled], np.float32)
    excess = scene.navmesh.geodesic_distance(starts, goals) - np.linalg.norm(goals - starts, axis=1)
    most = int(excess.argmax())
    return starts[most], goals[most], scene.navmesh.shortest_path(starts[most], goals[most])


if __name__ == "__main__":
    try:
        main(tyro.cli(Options, description=__doc__))
    except BatchnavError as error:
        sys.exit(f"error: {error}")
