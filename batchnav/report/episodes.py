"""What a page shows of episodes: a plan of each storey, the ways on it, and strips of what was seen."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from batchnav.evaluation.play import Images
from batchnav.evaluation.trajectories import Walk
from batchnav.scene.scene import Scene
from batchnav.types import Spec
from batchnav.view.mosaic import colour, holds_ids
from batchnav.view.topdown import FLOOR_BAND, FOOT, TopDownMap

PLAN_SIZE = 520
"""Pixels of a plan's longer side."""
PLAN_COLOURS = 48
"""Of a plan, which keeps its file small."""
MAX_PICTURES = 160
"""In a strip; of longer episodes every second step is shown, or third ..."""
STRIP_COLUMNS = 16
LARGEST_PICTURE = 128
"""Pixels of a picture's longer side; larger ones are shrunk."""
QUALITY = 85
"""Of WebP."""
SUBPIXELS = 16
"""Steps between two pixels of a plan in which places are told."""


class Plan(NamedTuple):
    """A storey of a scene from above."""

    map: TopDownMap
    source: str
    """The picture as a data URI."""


class Plans:
    """The plans of scenes, each storey drawn once, numbered in the order in which they were asked for."""

    def __init__(self, scenes: Sequence[Scene]):
        self.scenes = scenes
        self.all: list[Plan] = []
        self._found: list[tuple[int, float]] = []

    def number(self, scene: int, height: float) -> int:
        """The plan of the storey at this height."""
        for i, (k, y) in enumerate(self._found):
            if k == scene and abs(y - height) < FLOOR_BAND / 2:
                return i
        drawn = TopDownMap(self.scenes[scene].navmesh, self.scenes[scene].mesh, height, PLAN_SIZE)
        drawn.draw_scale_bar()
        self.all.append(Plan(drawn, data_uri(drawn.image.quantize(PLAN_COLOURS), "PNG", optimize=True)))
        self._found.append((scene, height))
        return len(self.all) - 1

    def to_page(self) -> list[dict[str, Any]]:
        """What the page's script reads of them."""
        return [{"source": plan.source, "size": plan.map.size, "foot": FOOT} for plan in self.all]


def packed_walk(plan: TopDownMap, walk: Walk) -> str:
    """A way as base64 of int16 [S, 3], little-endian: column and row in SUBPIXELS of the plan, heading in degrees."""
    places = plan.to_pixels(walk.positions) * SUBPIXELS
    degrees = np.rad2deg(walk.headings.astype(np.float64)) % 360.0
    numbers = np.concatenate([places, degrees[:, None]], axis=1).round()
    return base64.b64encode(numbers.clip(-32768, 32767).astype("<i2").tobytes()).decode()


def places(plan: TopDownMap, points: np.ndarray) -> list[list[float]]:
    """Points f32 [K, 3] in a plan's pixels."""
    return np.round(plan.to_pixels(points), 1).tolist()


def shown_steps(steps: int) -> np.ndarray:
    """The steps of an episode that a strip shows: MAX_PICTURES at most, evenly spaced."""
    return np.arange(0, steps, -(-steps // MAX_PICTURES))


def strips(seen: Mapping[str, Images], depth_ranges: Mapping[str, tuple[float, float]]) -> list[dict[str, Any]]:
    """What sensors saw at some steps, each as one strip of pictures with their shape and scale.

    Args:
        seen: by sensor, of the steps that are shown.
        depth_ranges: the metres that 0 and 1 stand for, by depth sensor.
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
    """Pictures u8 [S, H, W, 3] in rows of STRIP_COLUMNS, as a data URI."""
    rows = -(-len(pictures) // STRIP_COLUMNS)
    sheet = Image.new("RGB", (size[0] * min(len(pictures), STRIP_COLUMNS), size[1] * rows))
    how = Image.Resampling.NEAREST if holds_ids(spec) else Image.Resampling.BOX  # between ids there is nothing
    for i, picture in enumerate(pictures):
        small = Image.fromarray(picture).resize(size, how)
        sheet.paste(small, (i % STRIP_COLUMNS * size[0], i // STRIP_COLUMNS * size[1]))
    return data_uri(sheet, "WEBP", quality=QUALITY)


def data_uri(image: Image.Image, kind: str, **options: Any) -> str:
    """A picture as text that a page can hold."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"
