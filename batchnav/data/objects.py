"""Checks of a furniture folder: the size, orientation and floor contact of each model, and a contact sheet.

Orientation and floor contact follow from statics: a thing stands where its centre lies above its base, the convex hull
of its lowest parts. A thing that would stand upside down, but not as it is, is upside down.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw
from scipy.spatial import ConvexHull, QhullError

from batchnav.procedural import Furniture
from batchnav.procedural.furniture.models import (
    LARGE_THING,
    MOST_TRIANGLES,
    SMALL_THING,
    Model,
    fits_of,
    slots_of,
    words_of,
)
from batchnav.scene.blocks import pixels_of

_UNITS = {"centimetres": 0.01, "millimetres": 0.001}
"""Scales of units that files are mistaken for metres in."""
_RESCALED = 1.25
"""Change of size, as a factor or its inverse, up to which no problem is reported."""
_CONTACT, _OFF_FLOOR = 0.02, 0.02
"""Height of the parts that touch the floor, and largest distance of the lowest point from y = 0 in the file, metres."""
_SLACK = 0.03
"""Distance by which the centre may lie outside the base, metres."""
_BACKED = ("sofa", "chair", "dining chair", "office chair", "desk chair", "armchair", "bed", "toilet", "couch")
"""Categories whose highest part is at the back."""
_TABLES = ("table", "coffee table", "dining table", "side table", "desk")
"""Categories with a board on legs."""
_BACK = 0.2
"""Share of the depth by which a back lies off the middle."""
_POINTS, _CELL, _FOOT = 90_000, 132, 30
"""Points that are drawn of each model; pixels of a cell of the contact sheet, and of its text."""
_LEFT, _DOWN = np.radians(-35.0), np.radians(25.0)
"""Angles of the view of the contact sheet."""


class Report(NamedTuple):
    """What is known about a model."""

    model: Model
    places: str
    """Where it is placed."""
    problems: tuple[str, ...]


def reports(furniture: Furniture) -> Iterator[Report]:
    """A report on each model."""
    for model in furniture.models:
        slots = [fit.slot for fit in fits_of(model)]
        if SMALL_THING in slots:
            places = "on tables and floors"
        elif LARGE_THING in slots:
            places = "along walls"
        else:
            places = ", ".join(dict.fromkeys(slot.categories[0] if slot.piece else "on furniture" for slot in slots))
        yield Report(model, places, tuple(_problems(model)))


def _problems(model: Model) -> Iterator[str]:
    """What looks wrong about a model, and what to write in `sizes.yaml`."""
    size_problem = _size_problem(model)
    if size_problem:
        yield size_problem
    if abs(model.low) > _OFF_FLOOR:
        yield f"its lowest point is at y = {model.low:.2f} m, expected 0: it is placed on the floor"
    if not size_problem or "scaled" in size_problem:
        yield from _pose_problems(model)
    if len(model.faces) > MOST_TRIANGLES:
        yield f"{len(model.faces)} triangles, expected at most {MOST_TRIANGLES}"


def _size_problem(model: Model) -> str:
    """The unit or the axis that explains an implausible size; else the scale that it gets; "" for a plausible size."""
    slots, size = slots_of(model.category) or [SMALL_THING, LARGE_THING], np.array(model.size)
    if _is_plausible(slots, size):
        return ""
    low, high = fits_of(model)[0].scale
    scale = (low + high) / 2
    if 1.0 / _RESCALED <= scale <= _RESCALED and _is_plausible(slots, scale * size):
        return ""
    found = " x ".join(f"{side:.3g}" for side in size)
    for unit, factor in _UNITS.items():
        if _is_plausible(slots, factor * size):
            return f"{found} m looks like {unit}: write scale: {factor}"
    if _is_plausible(slots, size[[0, 2, 1]]):
        return f"{found} m (width, depth, height) looks like +Z up: write up: z, front: -y"
    return f"{found} m is no size for its category: it is scaled by {scale:.2f}"


def _is_plausible(slots: list, size: np.ndarray) -> bool:
    scales = [slot.scales(size.tolist()) for slot in slots]
    return any(low <= 1.0 <= high for low, high in scales)


def _pose_problems(model: Model) -> Iterator[str]:
    """Upside down, without floor contact, or with its back to the front."""
    points, _ = _sampled(model, 8000)
    centre, height = points.mean(0), model.size[2]
    stands = _stands(points, centre)
    if not stands and words_of(model.category) not in _UNSTEADY:
        over = points * (1.0, -1.0, 1.0) + (0.0, height, 0.0)
        if _stands(over, over.mean(0)):
            yield "is upside down: it would stand the other way up; write up: -y"
        else:
            yield "has no floor contact that holds it: its centre is not above its lowest parts"
    elif words_of(model.category) in _TABLES:
        low, top = (_level_share(model, side) for side in (0.0, height))
        if low > 0.5 and top < 0.25:
            yield "is upside down: its board lies on the floor; write up: -y"
    if words_of(model.category) in _BACKED:
        back = points[points[:, 1] > 0.85 * height].mean(0)
        x, z = back[0] / model.size[0], back[2] / model.size[1]
        if z > _BACK and z > abs(x):
            yield "its back is at -Z, where its front should be: write front: z"
        elif abs(x) > _BACK and abs(x) > abs(z) and words_of(model.category) != "sofa":
            yield f"its back is at {'-X' if x > 0 else '+X'}: write front: {'x' if x > 0 else '-x'}"


_UNSTEADY = (
    "picture", "painting", "poster", "rug", "carpet", "sink", "washbasin", "tv", "tv monitor", "television", "lamp",
    "floor lamp", "table lamp", "plant", "potted plant",
)  # fmt: skip
"""Categories that hang on walls or lie flat, or whose centre may lie beside their foot."""


def _stands(points: np.ndarray, centre: np.ndarray) -> bool:
    """True where the centre lies above the convex hull of the lowest points."""
    base = points[points[:, 1] < points[:, 1].min() + _CONTACT][:, [0, 2]]
    try:
        planes = ConvexHull(base).equations
    except (QhullError, ValueError):  # fewer than three points, or on one line
        return False
    return bool((planes[:, :2] @ centre[[0, 2]] + planes[:, 2] < _SLACK).all())


def _level_share(model: Model, height: float) -> float:
    """Share of the footprint that level triangles within 5 cm of a height cover."""
    a, b, c = (model.vertices[model.faces[:, i]] for i in range(3))
    area = np.abs(np.cross(b - a, c - a)[:, 1]) / 2
    near = np.abs((a + b + c)[:, 1] / 3 - height) < 0.05
    return float(area[near].sum()) / (model.size[0] * model.size[1]) / 2.0


def _sampled(model: Model, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Points f64 [count, 3] on a model, evenly by area, with the corners added; and the triangle of each."""
    rng = np.random.default_rng(0)
    corners = model.vertices[model.faces]
    a, b, c = corners[:, 0], corners[:, 1], corners[:, 2]
    area = np.cumsum(np.linalg.norm(np.cross(b - a, c - a), axis=1))
    chosen = np.searchsorted(area, rng.random(count) * area[-1]).clip(max=len(area) - 1)
    u, v = rng.random((2, count, 1))
    flip = u + v > 1.0
    u, v = np.where(flip, 1.0 - u, u), np.where(flip, 1.0 - v, v)
    return a[chosen] + u * (b - a)[chosen] + v * (c - a)[chosen], chosen


def contact_sheet(furniture: Furniture, problems: dict[str, tuple[str, ...]], columns: int = 10) -> Image.Image:
    """A picture of all models, each on a floor with a grid of one metre; names of those with problems are red."""
    rows = -(-len(furniture.models) // columns)
    sheet = Image.new("RGB", (min(columns, len(furniture.models)) * _CELL, rows * (_CELL + _FOOT)), (255, 255, 255))
    draw = ImageDraw.Draw(sheet)
    for i, model in enumerate(furniture.models):
        x, y = i % columns * _CELL, i // columns * (_CELL + _FOOT)
        sheet.paste(_picture(model, furniture), (x, y))
        color = (190, 0, 0) if problems.get(model.name) else (40, 40, 40)
        w, d, h = model.size
        category, _, name = model.name.partition("/")
        draw.text((x + 3, y + _CELL), f"{category}: {name}"[:22], fill=color)
        draw.text((x + 3, y + _CELL + 13), f"{w:.2f} x {d:.2f} x {h:.2f}", fill=(110, 110, 110))
    return sheet


def _picture(model: Model, furniture: Furniture) -> Image.Image:
    """A model from the front, left and above, in parallel projection; the nearest of many points shows in a pixel."""
    points, chosen = _sampled(model, _POINTS)
    largest = max(model.size)
    reach = max(1.0, np.ceil(largest / 2 + 0.2))
    image = np.full((_CELL, _CELL, 3), 250, np.uint8)
    scale = 0.46 * _CELL / max(0.75 * largest, 0.2)
    lines = np.arange(-reach, reach + 1)
    along = np.linspace(-reach, reach, 400)
    grid = np.concatenate([
        np.stack(np.broadcast_arrays(lines[:, None], 0.0, along[None]), -1).reshape(-1, 3),
        np.stack(np.broadcast_arrays(along[None], 0.0, lines[:, None]), -1).reshape(-1, 3),
    ])  # fmt: skip
    grid_color = np.full((len(grid), 3), 205.0)
    everything = np.concatenate([grid, points])
    color = np.concatenate([grid_color, _colors(model, furniture, points, chosen)])
    sin, cos = np.sin(_LEFT), np.cos(_LEFT)
    x, away = everything[:, 0] * cos - everything[:, 2] * sin, -(everything[:, 0] * sin + everything[:, 2] * cos)
    y = everything[:, 1] - model.size[2] / 2
    up, depth = y * np.cos(_DOWN) + away * np.sin(_DOWN), away * np.cos(_DOWN) - y * np.sin(_DOWN)
    column, row = (x * scale + _CELL / 2).astype(int), (_CELL / 2 - up * scale).astype(int)
    seen = (column >= 0) & (column < _CELL) & (row >= 0) & (row < _CELL)
    order = np.flatnonzero(seen)[np.argsort(-depth[seen], kind="stable")]
    image[row[order], column[order]] = color[order]  # the nearest is written last
    return Image.fromarray(image)


def _colors(model: Model, furniture: Furniture, points: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """f64 [n, 3]: the shaded colour of each point; textures count by their mean."""
    a, b, c = (model.vertices[model.faces[:, i]] for i in range(3))
    normal = np.cross(b - a, c - a)
    normal /= np.maximum(np.linalg.norm(normal, axis=1), 1e-12)[:, None]
    light = 0.7 + 0.3 * np.abs(normal @ np.array([0.3, 0.85, 0.43]))
    base = np.full((1, 3), 0.75)
    material = np.zeros(len(model.faces), int)
    if model.look is not None:
        means = {m.texture: 1.0 for m in model.look.materials if m.texture < 0}
        for row in {m.texture for m in model.look.materials if m.texture >= 0}:
            means[row] = pixels_of(furniture.textures[row])[:, :, :3].mean((0, 1)) / 255.0
        base = np.array([np.array(m.color[:3]) * means[m.texture] for m in model.look.materials])
        material = model.look.material
    return 245.0 * base[material[chosen]] * light[chosen][:, None]


def save_sheet(image: Image.Image, path: Path) -> None:
    """Write a contact sheet as PNG with at most 256 colours."""
    image.quantize(255).save(path, optimize=True)
