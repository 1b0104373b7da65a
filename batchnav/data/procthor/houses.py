"""ProcTHOR houses: furnished meshes from the houses' JSON and the sizes of their assets.

The JSON has Unity's frame: left-handed, +Y up, metres, degrees clockwise from above. Mirroring z gives this project's
frame. Walls have no thickness: the two rooms at a wall have one wall each, in the same place. A hole names both walls,
or one: then it goes through all walls in that place. Its corners are metres along the first wall from that wall's first
corner, and metres up; houses of the older generator have a bounding box of them instead of a polygon. A closed door
fills its hole;
windows are panes. Each object is a box of its asset's size, centred at the object's position, since asset files are not
part of the houses. Walls, floors and ceilings have the colours of their materials (data/procthor/appearance.py);
objects have one colour per asset.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from batchnav.data.files import is_number, read_json, read_text
from batchnav.data.procthor.appearance import HouseMaterials, category_of
from batchnav.errors import MeshError, shortened
from batchnav.procedural.solids import Solids
from batchnav.scene.mesh import check_mesh
from batchnav.types import TriangleMesh

_EPSILON, _SAME_PLACE = 1e-6, 0.01
"""Shortest length of a wall's piece; largest distance of two walls that stand in one place, metres."""
_FIELDS = "rooms, walls, doors and objects"
_MAX_DEPTH = 20
"""Largest nesting depth of objects that lie on objects."""
_MOST_CORNERS, _MOST_HOLES = 500, 100
"""Largest number of corners per room and of holes per wall: time grows with the cube of the first and the square of the
second."""

Sizes = Mapping[str, Sequence[float]]
"""Size in x, y, z by asset id, metres."""
Quad = np.ndarray
"""Corners of a rectangle, f64 [4, 3]."""


def read_houses(path: str | Path) -> list[Any]:
    """The houses of a `.json` file (one house or a list) or a `.jsonl` file (one house per line); gzipped or not.

    `make_procthor_house` checks each. In the place of a line that is not JSON stands a text that says so. Raises
    MeshError for files that hold no house.
    """
    path = Path(path)
    if ".jsonl" in path.suffixes:
        houses = [_read_line(line) for line in read_text(path, MeshError).splitlines() if line.strip()]
    else:
        value = read_json(path, MeshError)
        houses = value if isinstance(value, list) else [value]
    if not any(map(_is_house, houses)):
        found = shortened(houses[0]) if houses else "none"
        raise MeshError(f"{path}: found {found}, expected houses with {_FIELDS}")
    return houses


def _read_line(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"a line that is not JSON ({error})"


def _is_house(value: Any) -> bool:
    return isinstance(value, dict) and {"rooms", "walls"} <= value.keys()


def read_sizes(path: str | Path) -> Sizes:
    """Asset sizes from `asset_bbox.json`. MeshError for other contents."""
    data = read_json(Path(path), MeshError)
    if not isinstance(data, dict):
        raise MeshError(f"{path}: found {type(data).__name__}, expected sizes [x, y, z] by asset id")
    for name, size in data.items():
        if not isinstance(size, list) or len(size) != 3 or not all(is_number(v) and v >= 0 for v in size):
            raise MeshError(f"{path}: asset {name!r}: found {shortened(size)}, expected three sizes in metres")
    return data


def make_procthor_house(house: dict, sizes: Sizes, name: str = "house") -> tuple[TriangleMesh, list[str]]:
    """The mesh of a house, and the ids of assets that `sizes` lacks; their objects are left out.

    Raises MeshError with `name` and the part where the JSON is not a house.
    """
    solids, materials = Solids(detail=1), HouseMaterials()
    if not _is_house(house):
        raise MeshError(f"{name}: found {shortened(house)}, expected {_FIELDS}")
    try:
        _add_walls(solids, materials, house)
        height = max(corner["y"] for wall in house["walls"] for corner in wall["polygon"])
        ceiling = materials.ceiling(house)
        for room in house["rooms"]:
            outline = np.array([[corner["x"], corner["z"]] for corner in room["floorPolygon"]], np.float64)
            _add_floor_and_ceiling(solids, outline, height, materials.floor(room), ceiling)
        unknown = _add_objects(solids, materials, house.get("objects", []), sizes)
        vertices, faces = solids.arrays()
    except MeshError as error:
        raise MeshError(f"{name}: {error}") from error
    except KeyError as error:
        raise MeshError(f"{name}: is not a ProcTHOR house (it lacks the field {error})") from error
    except (TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise MeshError(f"{name}: is not a ProcTHOR house ({type(error).__name__}: {error})") from error
    mirrored, turned = vertices * np.array([1.0, 1.0, -1.0], np.float32), faces[:, ::-1]
    surface = materials.surface(solids.record, mirrored, turned) if len(faces) else None
    return check_mesh(TriangleMesh(mirrored, turned, surface=surface), name), sorted(unknown)


def _add_walls(solids: Solids, materials: HouseMaterials, house: dict) -> None:
    walls = {wall["id"]: wall for wall in house["walls"]}
    holes: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for number, door in enumerate(house.get("doors", [])):
        if door.get("openable") and not door.get("openness"):
            continue
        named = [wall for wall in (door.get("wall0"), door.get("wall1")) if wall in walls]
        if not named:
            found = [door.get("wall0"), door.get("wall1")]
            raise MeshError(f"door {number}: found walls {shortened(found)}, expected ids of the house's walls")
        first = _ends(walls[named[0]])
        along = (first[1] - first[0]) / np.linalg.norm(first[1] - first[0])
        low, high = (first[0] + along * at[0] + np.array([0.0, at[1], 0.0]) for at in _hole(door, number))
        for wall in named if len(named) == 2 else [name for name in walls if _contains(walls[name], (low, high))]:
            holes.setdefault(wall, []).append((low, high))
    for name, wall in walls.items():
        if not wall.get("empty"):  # an empty wall joins two rooms
            with solids.object("wall", "house"):
                solids.material = materials.wall(wall)
                for quad in _cut(wall, holes.get(name, [])):
                    solids.add(quad, np.array([[0, 2, 1], [0, 3, 2]]))  # faces the room, which lies to the right


def _hole(door: dict, number: int) -> list[np.ndarray]:
    """Two opposite corners of a door's hole: metres along its first wall, and metres up."""
    box = door.get("boundingBox")
    corners = door["holePolygon"][:2] if "holePolygon" in door else box and [box["min"], box["max"]]
    if not corners or len(corners) != 2:
        raise MeshError(f"door {number}: found no holePolygon of two corners and no boundingBox, expected one of them")
    return [np.array([corner["x"], corner["y"]], np.float64) for corner in corners]


def _contains(wall: dict, hole: tuple[np.ndarray, np.ndarray]) -> bool:
    """True where a wall stands in the place of a hole."""
    start, end = _ends(wall)
    way = end - start
    share = [float((corner - start) @ way / (way @ way)) for corner in hole]
    off = [np.hypot(*(start + way * at - corner)[[0, 2]]) for at, corner in zip(share, hole, strict=True)]
    return max(off) < _SAME_PLACE and min(share) < 1.0 and max(share) > 0.0


def _ends(wall: dict) -> np.ndarray:
    """f64 [2, 3]: the first two corners of a wall, on the floor."""
    ends = np.array([[corner["x"], 0.0, corner["z"]] for corner in wall["polygon"][:2]], np.float64)
    if not np.isfinite(ends).all() or np.linalg.norm(ends[1] - ends[0]) < _EPSILON:
        raise MeshError(f"wall {wall['id']!r}: found ends {ends.tolist()}, expected two different points")
    return ends


def _cut(wall: dict, holes: list[tuple[np.ndarray, np.ndarray]]) -> Iterator[Quad]:
    """A wall without its holes, as upright rectangles: strips between the edges of the holes."""
    start, end = _ends(wall)
    top = max(corner["y"] for corner in wall["polygon"])
    length = float(np.linalg.norm(end - start))
    along = (end - start) / length
    boxes = []
    if len(holes) > _MOST_HOLES:
        raise MeshError(f"wall {wall['id']!r}: found {len(holes)} holes, expected at most {_MOST_HOLES}")
    for low, high in holes:
        left, right = sorted(float((corner - start) @ along) for corner in (low, high))
        boxes.append((max(left, 0.0), min(right, length), max(low[1], 0.0), min(high[1], top)))
    edges = sorted({0.0, length, *(box[0] for box in boxes), *(box[1] for box in boxes)})
    for left, right in itertools.pairwise(edges):
        middle, bottom = (left + right) / 2, 0.0
        inside = sorted((box[2], box[3]) for box in boxes if box[0] < middle < box[1])
        for low, high in [*inside, (top, top)]:
            if low - bottom > _EPSILON and right - left > _EPSILON:
                corners = [(left, bottom), (right, bottom), (right, low), (left, low)]
                yield np.array([start + along * u + np.array([0.0, v, 0.0]) for u, v in corners])
            bottom = max(bottom, high)


def _add_floor_and_ceiling(solids: Solids, outline: np.ndarray, height: float, floor: str, ceiling: str) -> None:
    """Add the floor and the ceiling of a room.

    Args:
        solids: receives the triangles.
        outline: f64 [N, 2], (x, z) of the room's corners, metres.
        height: of the ceiling, metres.
        floor: material of the floor.
        ceiling: material of the ceiling.
    """
    triangles = triangulate(outline)
    for category, material, y, faces in (
        ("floor", floor, 0.0, triangles[:, ::-1]), ("ceiling", ceiling, height, triangles),
    ):  # fmt: skip
        with solids.object(category, "house"):
            solids.material = material
            solids.add(np.stack([outline[:, 0], np.full(len(outline), y), outline[:, 1]], axis=1), faces)


def triangulate(outline: np.ndarray) -> np.ndarray:
    """Triangles i32 [N - 2, 3], counter-clockwise, of a simple polygon f64 [N, 2]; by ear clipping.

    Meisters, "Polygons have ears" (American Mathematical Monthly 1975). MeshError where the polygon is not simple.
    """
    if not 3 <= len(outline) <= _MOST_CORNERS or not np.isfinite(outline).all():
        raise MeshError(f"polygon: found {len(outline)} corners, expected 3 to {_MOST_CORNERS} finite ones")
    left, triangles = list(range(len(outline))), []
    x, y = outline.T
    if (x * np.roll(y, -1) - np.roll(x, -1) * y).sum() < 0:
        left.reverse()
    while len(left) > 2:
        for i in range(len(left)):
            ear = left[i - 1], left[i], left[(i + 1) % len(left)]
            area = _area(*outline[list(ear)])
            others = outline[[j for j in left if j not in ear]]
            if area > 0 and not _inside(others, *outline[list(ear)]).any():
                triangles.append(ear)
            elif area != 0:  # a corner on a straight edge has no triangle
                continue
            del left[i]
            break
        else:
            raise MeshError("polygon: found one whose edges cross, expected a simple one")
    return np.array(triangles, np.int32).reshape(-1, 3)


def _area(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Twice the signed area of a triangle; `c` may be points [..., 2]."""
    return (b[0] - a[0]) * (c[..., 1] - a[1]) - (b[1] - a[1]) * (c[..., 0] - a[0])


def _inside(points: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """bool [N]: True for points in a counter-clockwise triangle or on its edges, except its corners."""
    corner = (points[:, None] == np.stack([a, b, c])).all(2).any(1)
    return (_area(a, b, points) >= 0) & (_area(b, c, points) >= 0) & (_area(c, a, points) >= 0) & ~corner


def _add_objects(solids: Solids, materials: HouseMaterials, objects: Any, sizes: Sizes, depth: int = 0) -> set[str]:
    """Add boxes for objects and the objects on them. Returns the ids of assets of unknown size."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"objects are nested deeper than {_MAX_DEPTH}")
    unknown = set()
    for item in objects:
        size, asset = sizes.get(item["assetId"]), str(item["assetId"])
        if size is None:
            unknown.add(asset)
        else:
            box = Solids(detail=1)
            half = np.array(size) / 2
            box.box(-half, half)
            corners, faces = box.arrays()
            position = [float(item["position"][axis]) for axis in "xyz"]
            angle = np.deg2rad(float(item["rotation"]["y"]))
            cos, sin = np.cos(angle), np.sin(angle)
            turn = np.array([[cos, 0.0, sin], [0.0, 1.0, 0.0], [-sin, 0.0, cos]])
            with solids.object(category_of(asset), "house"):
                solids.material = materials.asset(asset)
                solids.add(corners @ turn.T + position, faces)
        unknown |= _add_objects(solids, materials, item.get("children", []), sizes, depth + 1)
    return unknown
