"""ROS maps: an image of cells and a YAML file, as map_server (ROS 1) and Nav2 read and write them.

A map in memory has the values of nav_msgs/OccupancyGrid: 0 free, 100 occupied, -1 unknown; row 0 has the smallest y.

    YAML            image (a path from the YAML file's folder), mode, resolution (metres per cell), origin [x, y, yaw],
                    negate, occupied_thresh, free_thresh; without a mode it is trinary
    image           rows from the largest y down; colours are averaged. shade = pixel / 255, and the probability of
                    occupancy is 1 - shade, or shade where `negate` is set
    mode trinary    above occupied_thresh 100, below free_thresh 0, else -1; an alpha channel counts as a colour.
                    In images of map_saver (greys 0, 205, 254 and 255 only, of any image kind; their negatives where
                    `negate` is set) 205 is -1, whatever the threshold, and alpha does not count if it is opaque
    mode scale      the same, but 0 to 100 in proportion between the thresholds; -1 where alpha is not opaque
    mode raw        pixels up to 100 are values, higher ones -1
    origin          pose of the lower left corner of the image; yaw turns the map to the left about that corner

ROS frames have x forward, y left, z up: (x, y, z) of ROS is (-z, -x, y) here, and yaw is heading.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from PIL import Image

from batchnav.config import read_yaml
from batchnav.errors import ConfigError, MeshError, shortened
from batchnav.runtime.files import read_named_file, replacing
from batchnav.scene.images import FORMATS, open_image
from batchnav.types import Material, Surface

log = logging.getLogger(__name__)

FREE, OCCUPIED, UNKNOWN = 0, 100, -1
"""Values of cells."""
MODES = ("trinary", "scale", "raw")
SUFFIX = ".yaml"
_SHADES = {FREE: 254, OCCUPIED: 0, UNKNOWN: 205}
"""Pixels of a written map."""
_FREE_THRESH = 0.196
"""Threshold of a written map. Unknown cells (205) have a probability of 0.1961: with a threshold of 0.25, the default
of Nav2's map_saver, they would be read as free."""
_FORMATS = (*FORMATS, "PPM")
"""Image formats by Pillow's names; PPM includes PGM."""
_KEYS = {"image", "resolution", "origin"}
"""Keys by which a YAML file is recognised as a map."""
_MOST_CELLS = 2**26
"""Largest number of cells of a map."""
_AT_A_TIME = 2**20
"""Number of channel values that are read at a time, as floats."""
_FAR = 1e7
"""Largest coordinate of an origin, metres."""


class RosMap(NamedTuple):
    """An occupancy grid with its place in the world."""

    cells: np.ndarray
    """i8 [rows, columns]: probability of occupancy in per cent, -1 unknown. Rows grow along y, columns along x."""
    resolution: float
    """Side of a cell, metres."""
    origin: tuple[float, float, float]
    """x, y (metres) and yaw (radians) of the corner of cell (0, 0) in the frame of ROS."""
    occupied_thresh: float = 0.65
    free_thresh: float = _FREE_THRESH
    inflated_by: float = 0.0
    """Radius by which free space is shrunk, metres."""

    @property
    def is_free(self) -> np.ndarray:
        """bool [rows, columns]: True where a value is known and at most `free_thresh`."""
        return (self.cells >= 0) & (self.cells <= round(100 * self.free_thresh))

    @property
    def is_occupied(self) -> np.ndarray:
        """bool [rows, columns]: True where a value is at least `occupied_thresh`."""
        return self.cells >= round(100 * self.occupied_thresh)

    def to_world(self, points: np.ndarray) -> np.ndarray:
        """Positions f64 [N, 3] in the world (+Y up) of points f64 [N, 3]: column, row (in cells) and height, metres."""
        x0, y0, yaw = self.origin
        u, v = points[:, 0] * self.resolution, points[:, 1] * self.resolution
        x, y = x0 + math.cos(yaw) * u - math.sin(yaw) * v, y0 + math.sin(yaw) * u + math.cos(yaw) * v
        return np.stack([-y, points[:, 2], -x], axis=1)

    def centres(self, height: float) -> np.ndarray:
        """Centres f64 [rows, columns, 3] of all cells in the world, at y = `height`, metres."""
        rows, columns = self.cells.shape
        column, row = np.meshgrid(np.arange(columns) + 0.5, np.arange(rows) + 0.5)
        points = np.stack([column, row, np.full_like(row, height)], axis=-1)
        return self.to_world(points.reshape(-1, 3)).reshape(rows, columns, 3)


def is_ros_map(path: Path) -> bool:
    """True for a YAML file with the keys of a map."""
    if path.suffix.lower() != SUFFIX or not path.is_file():
        return False
    try:
        data = read_yaml(path)
    except ConfigError:
        return False
    return isinstance(data, dict) and data.keys() >= _KEYS


def read_map(path: Path) -> RosMap:
    """The map of a YAML file. MeshError, whose message does not name the file, for an invalid one."""
    data = _fields(path)
    mode = data.get("mode", "trinary")
    if mode not in MODES:
        raise MeshError(f"field 'mode': found {shortened(mode)}, expected one of {', '.join(MODES)}")
    resolution, origin = _number(data, "resolution", 1e-4, 1e4), _origin(data)
    occupied, free = _number(data, "occupied_thresh", 0.0, 1.0), _number(data, "free_thresh", 0.0, 1.0)
    if free >= occupied:
        raise MeshError(f"field 'free_thresh': found {free:g}, expected less than occupied_thresh, {occupied:g}")
    negate = data.get("negate")
    if not isinstance(negate, int) or negate not in (0, 1):  # also False and True
        raise MeshError(f"field 'negate': found {shortened(negate)}, expected 0 or 1")
    inflated_by = _number({"inflated_by": 0.0, **data}, "inflated_by", 0.0, 1e4)
    pixels, white = _image(data, path)
    rows = max(1, _AT_A_TIME // pixels[0].size)
    parts = [slice(k, k + rows) for k in range(0, len(pixels), rows)]
    unknown = _joined(_unknown(pixels[part] / white, bool(negate)) for part in parts) if mode == "trinary" else None
    if unknown is not None and pixels.shape[2] in (2, 4) and (pixels[..., -1] == white).all():
        pixels = pixels[..., :-1]
    cells = np.concatenate([_cells(pixels[part] / white, mode, bool(negate), occupied, free) for part in parts])
    if unknown is not None and (lost := unknown & (cells == FREE)).any():
        shade = 255 - _SHADES[UNKNOWN] if negate else _SHADES[UNKNOWN]
        log.warning(
            "%s: %d pixels of %d, map_saver's value for unknown cells, are below free_thresh %g; they count as "
            "unknown, expected free_thresh %g", path, lost.sum(), shade, free, _FREE_THRESH,
        )  # fmt: skip
        cells[lost] = UNKNOWN
    return RosMap(cells[::-1], resolution, origin, occupied, free, inflated_by)


def image_file(path: Path) -> Path | None:
    """Path of the image that a map's YAML file names; None where it names none."""
    try:
        name = _fields(path).get("image")
    except MeshError:
        return None
    return path.parent / name if isinstance(name, str) else None


def write_map(grid: RosMap, path: str | Path, comment: str = "") -> None:
    """Write a map in mode trinary: the YAML file `path`, and NAME.pgm in the same folder. MeshError where that fails.

    `comment`: lines for the head of the YAML file.
    """
    path = Path(path)
    if path.suffix.lower() != SUFFIX:
        raise MeshError(f"{path}: found suffix {path.suffix!r}, expected {SUFFIX}")
    shades = np.full(grid.cells.shape, _SHADES[UNKNOWN], np.uint8)
    shades[grid.is_free], shades[grid.is_occupied] = _SHADES[FREE], _SHADES[OCCUPIED]
    picture = path.with_suffix(".pgm")
    fields = {
        "image": picture.name, "mode": "trinary", "resolution": float(grid.resolution),
        "origin": [round(float(value), 9) for value in grid.origin], "negate": 0, "occupied_thresh": 0.65,
        "free_thresh": _FREE_THRESH, "inflated_by": float(grid.inflated_by),
    }  # fmt: skip
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    with replacing(picture, MeshError) as part_of_picture, replacing(path, MeshError) as part:
        Image.fromarray(np.ascontiguousarray(shades[::-1])).save(part_of_picture, format="PPM")
        part.write_text(head + yaml.safe_dump(fields, sort_keys=False, default_flow_style=None))


def _fields(path: Path) -> dict[str, Any]:
    try:
        data = read_yaml(path)
    except ConfigError as error:
        raise MeshError(str(error).removeprefix(f"{path}: ")) from error
    if not isinstance(data, dict):
        raise MeshError(f"found {shortened(data)}, expected the fields of a ROS map: image, resolution, origin ...")
    return data


def _number(data: dict, field: str, low: float, high: float) -> float:
    """A field's number; YAML reads 5e-2 as text."""
    value = data.get(field)
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not low <= number <= high:
        raise MeshError(f"field {field!r}: found {shortened(value)}, expected a number from {low:g} to {high:g}")
    return number


def _origin(data: dict) -> tuple[float, float, float]:
    value = data.get("origin")
    if not isinstance(value, list) or len(value) != 3:
        raise MeshError(f"field 'origin': found {shortened(value)}, expected [x, y, yaw] in metres and radians")
    x, y, yaw = (_number({"origin": number}, "origin", -_FAR, _FAR) for number in value)
    return x, y, yaw


def _joined(parts: Iterable[np.ndarray | None]) -> np.ndarray | None:
    """The rows of all parts; None where a part is None. Later parts are not made then."""
    found = []
    for part in parts:
        if part is None:
            return None
        found.append(part)
    return np.concatenate(found)


def _image(data: dict, path: Path) -> tuple[np.ndarray, float]:
    """The image that a map names. An absolute path must lie in the map's data root, as a relative one."""
    name = data.get("image")
    if not isinstance(name, str) or not name:
        raise MeshError(f"field 'image': found {shortened(name)}, expected the path of an image from the map's folder")
    relative = os.path.relpath(name, path.absolute().parent) if os.path.isabs(name) else name
    try:
        return _open(read_named_file(path, relative, MeshError))
    except MeshError as error:
        raise MeshError(f"image {name[:60]!r}: {error}") from error


def _open(data: bytes) -> tuple[np.ndarray, float]:
    """Channels of an image, integers [rows, columns, channels], and the value of white.

    Channels are grey or RGB, and alpha where the image has it.
    """
    image = open_image(data, _FORMATS)
    if image.width * image.height > _MOST_CELLS:
        raise MeshError(f"has {image.width} x {image.height} pixels, expected at most {_MOST_CELLS}")
    tiles = getattr(image, "tile", ())
    head = int(tiles[0].offset) if tiles else 0
    try:
        if image.mode in ("P", "PA") or "transparency" in image.info:
            image = image.convert("RGBA" if image.mode == "PA" or "transparency" in image.info else "RGB")
        elif image.mode not in ("L", "LA", "RGB", "RGBA", "I", "I;16", "I;16B"):
            image = image.convert("L")
        white = 65535.0 if image.mode.startswith("I") else 255.0
        pixels = np.asarray(image)
    except MemoryError:
        raise
    except Exception as error:
        if image.format == "PPM":
            found = f"{image.width} x {image.height} pixels in its header and {len(data) - head} bytes after it"
            raise MeshError(f"found {found}, expected {image.width * image.height} pixels ({error})") from error
        raise MeshError(f"cannot be decoded ({type(error).__name__}: {error})") from error
    return pixels.reshape(*pixels.shape[:2], -1), white


def _unknown(pixels: np.ndarray, negate: bool) -> np.ndarray | None:
    """bool [rows, columns]: unknown cells of an image that has only the greys of map_saver; None for other images.

    Colours must be equal; 255, with which editors paint free space, is allowed; alpha does not count.
    """
    greys = np.round((pixels[..., :-1] if pixels.shape[2] in (2, 4) else pixels) * 255.0)
    shades = 255.0 - greys if negate else greys
    if not (shades == shades[..., :1]).all() or not np.isin(shades, [*_SHADES.values(), 255]).all():
        return None
    return shades[..., 0] == _SHADES[UNKNOWN]


def _cells(pixels: np.ndarray, mode: str, negate: bool, occupied: float, free: float) -> np.ndarray:
    """Values i8 [rows, columns] of pixels f64 [rows, columns, channels], in the rules of Nav2's map_io."""
    has_alpha = pixels.shape[2] in (2, 4)
    colours = pixels[..., :-1] if has_alpha else pixels
    shade = colours.mean(-1)
    if mode == "raw":
        values = np.round(shade * 255.0)
        return np.where(values <= OCCUPIED, values, UNKNOWN).astype(np.int8)
    if has_alpha and mode == "trinary":  # an alpha channel is averaged with red, green and blue
        shade = (shade * 3.0 + pixels[..., -1]) / 4.0
    probability = shade if negate else 1.0 - shade
    between = np.full(shade.shape, float(UNKNOWN))
    if mode == "scale":
        between = np.rint(100.0 * (probability - free) / (occupied - free))
    cells = np.where(probability > occupied, OCCUPIED, np.where(probability < free, FREE, between))
    if has_alpha and mode == "scale":
        cells = np.where(pixels[..., -1] < 1.0, UNKNOWN, cells)
    return cells.astype(np.int8)


# Extruded walls: the mesh of a ROS map

WALL_HEIGHT = 2.5
"""Height of walls and ceiling above the floor (y = 0), metres."""
MOST_QUADS = 2**21
"""Largest number of quads of a map."""
_MATERIALS = {"floor": 0.55, "ceiling": 0.95, "wall": 0.8}
"""Category and grey of the surfaces."""


def map_mesh(grid: RosMap) -> tuple[np.ndarray, np.ndarray, Surface]:
    """Vertices f64 [V, 3], faces i64 [F, 3] and surface (categories floor, ceiling, wall) of a map.

    MeshError where no cell is free, or the map has too many edges.
    """
    free = grid.is_free
    if not free.any():
        occupied, known = int(grid.is_occupied.sum()), int((grid.cells >= 0).sum())
        raise MeshError(
            f"found no free cell ({occupied} occupied, {free.size - known} unknown of {free.size}), expected some; "
            "check negate, free_thresh and mode"
        )
    sides = [(axis, step) for axis in (0, 1) for step in (-1, 1)]
    num_walls = sum(_num_runs(_edges(free, *side)) for side in sides)
    if num_walls > MOST_QUADS:  # before work that takes a hundred bytes for each
        count = num_walls + 2 * _num_runs(free)
        raise MeshError(f"has {count} walls and pieces of floor, expected at most {MOST_QUADS}; remove its noise")
    floor = _rectangles(free)
    walls = [_walls(free, *side) for side in sides]
    if (count := 2 * len(floor) + sum(map(len, walls))) > MOST_QUADS:
        raise MeshError(f"has {count} walls and pieces of floor, expected at most {MOST_QUADS}; remove its noise")
    left, right, low, high = floor.T.astype(np.float64)
    places = (left, low), (right, low), (right, high), (left, high)
    corners = [np.stack([u, v, np.zeros(len(floor))], axis=1) for u, v in places]
    below = np.stack(corners, axis=1)
    quads = np.concatenate([below, below[:, ::-1] + (0.0, 0.0, WALL_HEIGHT), *walls])
    vertices, rows = np.unique(quads.reshape(-1, 3), axis=0, return_inverse=True)
    faces = rows.reshape(-1, 4)[:, [0, 1, 2, 0, 2, 3]].reshape(-1, 3)
    counts = [len(floor), len(floor), sum(map(len, walls))]
    kind = np.repeat(np.arange(3, dtype=np.int32), 2 * np.array(counts))
    materials = tuple(Material((grey, grey, grey, 1.0)) for grey in _MATERIALS.values())
    surface = Surface(kind, materials, category=kind + np.int32(1), categories=("", *_MATERIALS))
    return grid.to_world(vertices), faces, surface


def _runs(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, first column and end column of each run of True in the rows of a mask."""
    padded = np.zeros((mask.shape[0], mask.shape[1] + 2), np.int8)
    padded[:, 1:-1] = mask
    change = np.diff(padded, axis=1)
    row, first = np.nonzero(change == 1)
    return row, first, np.nonzero(change == -1)[1]


def _num_runs(mask: np.ndarray) -> int:
    """Number of runs of True in the rows of a mask."""
    return int(np.count_nonzero(mask[:, 1:] & ~mask[:, :-1]) + np.count_nonzero(mask[:, 0]))


def _rectangles(mask: np.ndarray) -> np.ndarray:
    """i64 [R, 4]: first and end column, first and end row of disjoint rectangles that cover a mask.

    Equal runs of successive rows form a rectangle.
    """
    row, first, end = _runs(mask)
    order = np.lexsort((row, end, first))
    row, first, end = row[order], first[order], end[order]
    begins = np.ones(len(row), bool)
    begins[1:] = (np.diff(first) != 0) | (np.diff(end) != 0) | (np.diff(row) != 1)
    start = np.flatnonzero(begins)
    last = np.append(start[1:], len(row)) - 1
    return np.stack([first[start], end[start], row[start], row[last] + 1], axis=1)


def _edges(free: np.ndarray, axis: int, step: int) -> np.ndarray:
    """Mask with a row for each line of cells: True where a free cell ends towards `step`; arguments as in `_walls`."""
    grid = free if axis == 0 else free.T
    neighbour = np.zeros_like(grid)
    if step > 0:
        neighbour[:, :-1] = grid[:, 1:]
    else:
        neighbour[:, 1:] = grid[:, :-1]
    return (grid & ~neighbour).T


def _walls(free: np.ndarray, axis: int, step: int) -> np.ndarray:
    """f64 [W, 4, 3]: quads (column, row, height) on the edges where free cells end.

    Args:
        free: bool [rows, columns].
        axis: 0 for edges between columns, 1 for edges between rows.
        step: direction from a free cell to its neighbour.
    """
    line, first, end = _runs(_edges(free, axis, step))
    line = line + (step > 0)
    ends = (first, end) if (step > 0) == (axis == 1) else (end, first)
    bottom = np.stack([np.stack([line, at], axis=1) for at in ends], axis=1).astype(np.float64)
    if axis == 1:
        bottom = bottom[..., ::-1]
    low = np.dstack([bottom, np.zeros(bottom.shape[:2])])
    high = np.dstack([bottom[:, ::-1], np.full(bottom.shape[:2], WALL_HEIGHT)])
    return np.concatenate([low, high], axis=1)
