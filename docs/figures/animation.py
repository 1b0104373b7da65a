"""README's animation: an agent in unseen houses, with its observations and its path on the map.

    python docs/figures/animation.py --out docs/images/agents.webp

Plays episodes that are evenly spaced in the file, each once, as evaluation does; each row shows one episode. The agent
gets the observations that it was trained on. The pictures show the same views larger, in colour, depth and semantics.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from PIL import Image, ImageDraw, ImageFont, ImageOps

from batchnav.errors import BatchnavError
from batchnav.evaluation.play import Recording
from batchnav.evaluation.players import PolicyPlayer
from batchnav.evaluation.run import Evaluation
from batchnav.runtime.files import replacing
from batchnav.scene.appearance import COLOR_FIELDS
from batchnav.scene.scene import Scene
from batchnav.sensors.scene_images import render
from batchnav.view.topdown import BLUE, INK, ORANGE, PAPER, TopDownMap
from batchnav.view.video import caption, colour_depth, colour_ids

ASSETS = Path(__file__).resolve().parents[2] / "assets"
SENSORS = ("rgb", "depth", "semantic")
APPEARANCE = frozenset({*COLOR_FIELDS, "category"})
"""Appearance fields of the scenes that these sensors read."""
FAR = 10.0
"""Depth of the last colour, metres: the agent's maximum depth."""
GAP, LINE = 4, 18
"""Gap between pictures and height of a line of text, pixels."""
HOLD = 12
"""Number of times that the last frame is repeated."""


@dataclass(frozen=True)
class Options:
    """Policy, episodes and size of the animation."""

    out: Path
    """Output file, an animated WebP."""
    checkpoint: Path = ASSETS / "policies" / "pointnav_h200" / "policy.safetensors"
    episodes: Path = ASSETS / "episodes" / "val.json.gz"
    count: int = 3
    """Number of episodes, one per row."""
    side: int = 176
    """Width and height of a picture, pixels."""
    frames_per_second: float = 5.0
    """Frames per second; every second step of an episode is a frame."""
    seed: int = 0
    """Seed for action sampling."""


def main(options: Options) -> None:
    player = PolicyPlayer(options.checkpoint, torch.device("cpu"), seed=options.seed)
    evaluation = Evaluation(options.episodes, torch.device("cpu"), player.config.body, appearance=APPEARANCE)
    recordings = evaluation.record(player, evaluation.evenly_spaced(options.count))
    camera_height = player.config.camera.camera_height
    rows = [film(r, evaluation.bank.scenes[r.scene], camera_height, options.side) for r in recordings]
    steps = range(0, max(map(len, rows)) + HOLD, 2)
    frames = [stacked([row[min(i, len(row) - 1)] for row in rows]) for i in steps]
    with replacing(options.out, BatchnavError) as part:
        duration = round(1000 / options.frames_per_second)
        frames[0].save(
            part, "WEBP", save_all=True, append_images=frames[1:], duration=duration, loop=0, quality=35, method=4
        )


def film(recording: Recording, scene: Scene, camera_height: float, side: int) -> list[Image.Image]:
    """One frame per step: the views, and the map with the path up to that step."""
    eyes = recording.positions + np.float32([0.0, camera_height, 0.0])
    seen = render(scene, eyes, recording.headings, SENSORS, side, side)
    views = np.concatenate([seen["rgb"], colour_depth(seen["depth"], FAR), colour_ids(seen["semantic"])], axis=2)
    plan = TopDownMap(scene.navmesh, scene.mesh, float(recording.positions[0, 1]), size=2 * side)
    plan.draw_path(scene.navmesh.shortest_path(recording.positions[0], recording.goal), ORANGE, width=4.0, dash=9.0)
    plan.draw_goal(recording.goal, recording.goal_radius)
    return [frame(views[step], plan.copy(), recording, step) for step in range(len(views))]


def frame(views: np.ndarray, plan: TopDownMap, recording: Recording, step: int) -> Image.Image:
    """Row of the animation at one step: a line of text above the views u8 [S, 3 S, 3] and the map."""
    side = len(views)
    plan.draw_path(recording.positions[: step + 1], BLUE, width=4.0)
    plan.draw_start(recording.positions[step], float(recording.headings[step]), BLUE)
    box = (round(1.5 * side), side)
    sheet = Image.new("RGB", (3 * (side + GAP) + box[0], LINE + side), PAPER)
    text = caption(recording, step)
    ImageDraw.Draw(sheet).text((2, LINE // 2), text, fill=INK, font=ImageFont.load_default(12), anchor="lm")
    for k in range(len(SENSORS)):
        sheet.paste(Image.fromarray(views[:, k * side : (k + 1) * side]), (k * (side + GAP), LINE))
    sheet.paste(ImageOps.pad(plan.image, box, color=PAPER), (3 * (side + GAP), LINE))
    return sheet


def stacked(rows: list[Image.Image]) -> Image.Image:
    """Stack the rows vertically."""
    sheet = Image.new("RGB", (rows[0].width, sum(row.height + GAP for row in rows) - GAP), PAPER)
    for k, row in enumerate(rows):
        sheet.paste(row, (0, k * (row.height + GAP)))
    return sheet


if __name__ == "__main__":
    try:
        main(tyro.cli(Options, description=__doc__))
    except BatchnavError as error:
        sys.exit(f"error: {error}")
