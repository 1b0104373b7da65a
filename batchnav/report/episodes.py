"""Episodes on the report page: floor plans, agents' trajectories on them, and filmstrips of sensor images."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from batchnav.evaluation.play import AgentMap, Images
from batchnav.evaluation.trajectories import Trajectory
from batchnav.observation import Spec
from batchnav.scene.scene import Scene
from batchnav.view.agent_map import map_picture, map_place
from batchnav.view.mosaic import colour, holds_ids
from batchnav.view.topdown import FLOOR_BAND, FOOT, TopDownMap

PLAN_SIZE = 520
"""Longer side of a floor plan, pixels."""
PLAN_COLOURS = 48
"""Number of colours of a floor plan; keeps the page small."""
MAX_PICTURES = 160
"""Maximum number of images in a filmstrip; longer episodes are subsampled evenly."""
STRIP_COLUMNS = 16
"""Images per row of a filmstrip."""
LARGEST_PICTURE = 128
"""Longer side of an image in a filmstrip, pixels; larger images are downscaled."""
QUALITY = 85
"""WebP quality of filmstrips, 0 to 100."""
SUBPIXELS = 16
"""Resolution of trajectories: units per pixel of the floor plan."""


class Plan(NamedTuple):
    """Floor plan of one storey of a scene."""

    map: TopDownMap
    source: str
    """The image as a data URI."""


class Plans:
    """Floor plans of scenes, with the goals of each category.

    Each storey is plotted once, on first use; plans are numbered in that order.
    """

    def __init__(self, scenes: Sequence[Scene]):
        self.scenes = scenes
        self.all: list[Plan] = []
        self._found: list[tuple[int, float]] = []

    def number(self, scene: int, height: float) -> int:
        """Number of the floor plan of the storey at `height` (y, metres) in a scene (row of the bank)."""
        for i, (k, y) in enumerate(self._found):
            if k == scene and abs(y - height) < FLOOR_BAND / 2:
                return i
        drawn = TopDownMap(self.scenes[scene].navmesh, self.scenes[scene].mesh, height, PLAN_SIZE)
        drawn.draw_scale_bar()
        self.all.append(Plan(drawn, data_uri(drawn.image.quantize(PLAN_COLOURS), "PNG", optimize=True)))
        self._found.append((scene, height))
        return len(self.all) - 1

    def to_page(self) -> list[dict[str, Any]]:
        """The floor plans as JSON for the page's script; `goals`: objects and view points by category."""
        return [
            {"source": plan.source, "size": plan.map.size, "foot": FOOT, "goals": self._goals(plan.map, *found)}
            for plan, found in zip(self.all, self._found, strict=True)
        ]

    def _goals(self, plan: TopDownMap, scene: int, height: float) -> dict[str, Any]:
        """Objects and view points of a storey by category; view points on the same pixel count once."""
        goals, found = self.scenes[scene].goals, {}
        for category in goals.categories if goals else ():
            objects = [goal for goal in goals.objects if goal.category == category] if goals else []
            points = np.concatenate([goal.view_points for goal in objects])
            level = [goal for goal in objects if (np.abs(goal.view_points[:, 1] - height) < FLOOR_BAND).any()]
            points = points[np.abs(points[:, 1] - height) < FLOOR_BAND]
            if len(points):
                centres = np.array([goal.position for goal in level], np.float32)
                pixels = np.unique(plan.to_pixels(points).round().clip(-32768, 32767).astype("<i2"), axis=0)
                packed = base64.b64encode(pixels.tobytes()).decode()
                found[category] = {"objects": places(plan, centres), "view_points": packed}
        return found


def packed_trajectory(plan: TopDownMap, trajectory: Trajectory) -> str:
    """A trajectory as base64 of little-endian int16 [S, 3]: column and row (1 / SUBPIXELS pixel), heading (degrees)."""
    places = plan.to_pixels(trajectory.positions) * SUBPIXELS
    degrees = np.rad2deg(trajectory.headings.astype(np.float64)) % 360.0
    numbers = np.concatenate([places, degrees[:, None]], axis=1).round()
    return base64.b64encode(numbers.clip(-32768, 32767).astype("<i2").tobytes()).decode()


def places(plan: TopDownMap, points: np.ndarray) -> list[list[float]]:
    """Columns and rows [K, 2] on a floor plan, pixels, of points f32 [K, 3]."""
    return np.round(plan.to_pixels(points), 1).tolist()


def placed_map(plan: TopDownMap, built: AgentMap) -> dict[str, Any]:
    """An agent's map as JSON for the page's script: image, corner and side; pixels of the floor plan."""
    column, row, side = map_place(plan, built)
    picture = data_uri(map_picture(built), "PNG", optimize=True)
    return {"source": picture, "x": round(column, 2), "y": round(row, 2), "side": round(side, 2)}


def shown_steps(steps: int) -> np.ndarray:
    """Step numbers that a filmstrip shows: evenly spaced, at most MAX_PICTURES."""
    return np.arange(0, steps, -(-steps // MAX_PICTURES))


def strips(seen: Mapping[str, Images], depth_ranges: Mapping[str, tuple[float, float]]) -> list[dict[str, Any]]:
    """One filmstrip for each sensor, with image size and depth range, as JSON for the page's script.

    Args:
        seen: images of the shown steps, by sensor.
        depth_ranges: metres at values 0 and 1, by depth sensor.
    """
    found = []
    for name, (spec, values) in seen.items():
        pictures = colour(values, spec)
        height, width = pictures.shape[1:3]
        kept = min(1.0, LARGEST_PICTURE / max(height, width))
        size = max(1, round(width * kept)), max(1, round(height * kept))
        found.append({
            "sensor": name, "width": size[0], "height": size[1], "columns": STRIP_COLUMNS, "count": len(pictures),
            "shape": f"{width}x{height}", "source": _strip(pictures, size, spec), "range": depth_ranges.get(name),
        })  # fmt: skip
    return found


def _strip(pictures: np.ndarray, size: tuple[int, int], spec: Spec) -> str:
    """Images u8 [S, H, W, 3] in rows of STRIP_COLUMNS, as a data URI."""
    rows = -(-len(pictures) // STRIP_COLUMNS)
    sheet = Image.new("RGB", (size[0] * min(len(pictures), STRIP_COLUMNS), size[1] * rows))
    how = Image.Resampling.NEAREST if holds_ids(spec) else Image.Resampling.BOX  # ids cannot be averaged
    for i, picture in enumerate(pictures):
        small = Image.fromarray(picture).resize(size, how)
        sheet.paste(small, (i % STRIP_COLUMNS * size[0], i // STRIP_COLUMNS * size[1]))
    return data_uri(sheet, "WEBP", quality=QUALITY)


def data_uri(image: Image.Image, kind: str, **options: Any) -> str:
    """An image as a data URI of the given PIL format."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"
