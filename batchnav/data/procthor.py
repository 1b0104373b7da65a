"""ProcTHOR houses: furnished meshes from the houses' JSON and the sizes of their assets.

The JSON has Unity's frame: left-handed, +Y up, metres, degrees clockwise from above. Mirroring z gives this project's
frame. Walls have no thickness: the two rooms at a wall have one wall each, in the same place. A hole names both walls,
or one: then it goes through all walls in that place. Its corners are metres along the first wall from that wall's first
corner, and metres up; houses of the older generator have a bounding box of them instead of a polygon. A closed door
fills its hole;
windows are panes. Each object is a box of its asset's size, centred at the object's position, since asset files are not
part of the houses. Walls, floors and ceilings have the colours of their materials (data/procthor.py);
objects have one colour per asset.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from batchnav.data.files import is_number, read_json, read_text
from batchnav.data.scenes.source import SceneSource, mesh_source
from batchnav.errors import MeshError, few, shortened
from batchnav.procedural.materials.finishes import Finish
from batchnav.procedural.materials.surface import make_surface
from batchnav.procedural.materials.textures import FIRST, TEXTURE_FAMILIES, Color, hsv
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import Group, Run, Solids
from batchnav.scene.mesh import check_mesh, save_mesh
from batchnav.types import Surface, TriangleMesh

# Appearance of ProcTHOR houses: materials from their names and colours, categories from asset ids.
#
# A material is a Unity name and, for paint, a colour; texture images are not part of the houses. Words in the name
# select the most similar texture of the library, and a colour. Each asset has one muted colour in all places.

_FAMILY_WORDS = (
    ("brick", "tiles"), ("tile", "tiles"), ("marble", "stone"), ("granite", "stone"), ("concrete", "plain"),
    ("wicker", "wicker"), ("carpet", "carpet"), ("wood", "planks"), ("plank", "planks"), ("floor", "planks"),
    ("cabinet", "planks"), ("counter", "planks"),
)  # fmt: skip
"""Words in material names, each with a family of textures; the first match counts."""
_COLORS: tuple[tuple[str, Color], ...] = (
    ("pureblack", (0.12, 0.12, 0.12)), ("darkwood", (0.36, 0.24, 0.17)), ("lightwood", (0.80, 0.66, 0.48)),
    ("mediumwood", (0.62, 0.45, 0.30)), ("offwhite", (0.93, 0.91, 0.86)), ("white", (0.94, 0.93, 0.91)),
    ("black", (0.14, 0.13, 0.13)), ("dark", (0.36, 0.25, 0.19)), ("pale", (0.84, 0.74, 0.60)),
    ("cream", (0.92, 0.86, 0.73)), ("eggshell", (0.92, 0.89, 0.82)), ("beige", (0.85, 0.77, 0.65)),
    ("yellow", (0.90, 0.80, 0.48)), ("orange", (0.80, 0.50, 0.26)), ("pink", (0.87, 0.67, 0.65)),
    ("robinegg", (0.55, 0.78, 0.78)), ("red", (0.60, 0.28, 0.22)), ("green", (0.45, 0.58, 0.42)),
    ("blue", (0.40, 0.52, 0.66)), ("grey", (0.58, 0.57, 0.55)), ("gray", (0.58, 0.57, 0.55)),
    ("tan", (0.75, 0.63, 0.48)), ("brown", (0.47, 0.33, 0.23)), ("brick", (0.62, 0.36, 0.29)),
    ("drywall", (0.88, 0.86, 0.82)), ("marble", (0.88, 0.86, 0.83)), ("granite", (0.70, 0.68, 0.66)),
    ("concrete", (0.68, 0.67, 0.64)), ("tile", (0.85, 0.84, 0.82)), ("wood", (0.66, 0.49, 0.33)),
)  # fmt: skip
"""Words in material names, each with a colour; the first match counts."""
_UNNAMED: Color = (0.82, 0.79, 0.74)
_CEILING: Color = (0.95, 0.94, 0.92)
"""Colours of walls and floors, and of ceilings, whose material gives no colour."""
_CATEGORIES = (
    ("walldecor", "picture"), ("painting", "picture"), ("toiletpaper", "toilet_paper"), ("tvstand", "cabinet"),
    ("desklamp", "lighting"), ("floorlamp", "lighting"), ("lamp", "lighting"), ("chair", "chair"), ("sofa", "sofa"),
    ("bathtub", "bathtub"), ("showercurtain", "curtain"), ("shower", "shower"), ("television", "tv_monitor"),
    ("desktop", "tv_monitor"), ("laptop", "laptop"), ("table", "table"), ("desk", "desk"), ("houseplant", "plant"),
    ("plant", "plant"), ("toilet", "toilet"), ("fridge", "refrigerator"), ("dresser", "chest_of_drawers"),
    ("shelving", "shelving"), ("stool", "stool"), ("ottoman", "stool"), ("countertop", "counter"), ("sink", "sink"),
    ("washing", "washing_machine"), ("pillow", "cushion"), ("towel", "towel"), ("mug", "cup"), ("cup", "cup"),
    ("winebottle", "bottle"), ("spraybottle", "bottle"), ("soapbottle", "bottle"), ("bottle", "bottle"),
    ("basketball", "toy"), ("teddy", "toy"), ("bowl", "bowl"), ("vase", "vase"), ("plate", "plate"), ("book", "book"),
    ("garbagebag", "garbage_bag"), ("garbage", "trash_can"), ("bin", "trash_can"), ("dogbed", "dog_bed"),
    ("bed", "bed"), ("cart", "cart"), ("box", "box"), ("mirror", "mirror"), ("clothes", "clothes"),
)  # fmt: skip
"""Words in asset ids without underscores, each with a category of procedural houses; the first match counts."""


def category_of(asset: str) -> str:
    """The category of an asset: a word of `_CATEGORIES`, otherwise the first words of the id ("alarm_clock")."""
    plain = asset.lower().replace("_", "").removeprefix("robothor")
    for word, category in _CATEGORIES:
        if word in plain:
            return category
    words = re.split(r"[^A-Za-z_]", asset.removeprefix("RoboTHOR_"))[0].strip("_")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", words).lower() or "object"


class HouseMaterials:
    """The materials of one house: each has a name for `Solids.material`, and a `Finish` (texture and colour)."""

    def __init__(self) -> None:
        self._finishes: dict[str, Finish] = {}

    def wall(self, wall: dict) -> str:
        """Material of a wall."""
        return self._material(wall.get("material"), _UNNAMED, "plain")

    def floor(self, room: dict) -> str:
        """Material of a room's floor."""
        return self._material(room.get("floorMaterial"), _UNNAMED, "planks")

    def ceiling(self, house: dict) -> str:
        """Material of all ceilings."""
        parameters = house.get("proceduralParameters")
        material = parameters.get("ceilingMaterial") if isinstance(parameters, dict) else None
        return self._material(material, _CEILING, "plain")

    def asset(self, asset: str) -> str:
        """Material of an object, by its asset id."""
        rng = RandomStream(zlib.crc32(asset.encode("utf-8", "surrogatepass")))
        color = hsv(rng.uniform(0.0, 1.0), rng.uniform(0.05, 0.45), rng.uniform(0.3, 0.85))
        if category_of(asset) == "plant":
            color = hsv(rng.uniform(0.22, 0.36), rng.uniform(0.3, 0.6), rng.uniform(0.35, 0.65))
        return self._added(f"asset {asset}", Finish(color))

    def surface(self, record: Sequence[Run | Group], vertices: np.ndarray, faces: np.ndarray) -> Surface:
        """The surface of a house.

        Args:
            record: `Solids.record` of the house.
            vertices: f64 [V, 3], metres.
            faces: i32 [F, 3].
        """
        names = sorted({group.category for group in record if isinstance(group, Group)} - {""})
        shape = vertices, faces, np.ones(len(faces), bool)
        return make_surface(RandomStream(0), self._finishes.__getitem__, record, shape, ("", *names))

    def _material(self, material: Any, default: Color, family: str) -> str:
        """A material from JSON: a name, or an object with a name and, for paint, a colour. Returns its new name.

        Args:
            material: the JSON value.
            default: colour where neither the value nor a word in its name gives one.
            family: family of textures where no word in the name gives one.
        """
        fields = material if isinstance(material, dict) else {"name": material}
        name, color = fields.get("name"), fields.get("color")
        name = name if isinstance(name, str) else ""
        plain = re.sub(r"[^a-z]", "", name.lower())
        if isinstance(color, dict) and all(is_number(color.get(c)) and 0 <= color[c] <= 1 for c in "rgb"):
            tint = color["r"], color["g"], color["b"]
        else:
            tint = next((known for word, known in _COLORS if word in plain), default)
        family = next((known for word, known in _FAMILY_WORDS if word in plain), family)
        number = zlib.crc32(name.encode("utf-8", "surrogatepass")) % TEXTURE_FAMILIES[family].size
        return self._added(f"material {name} {tint} {family}", Finish(tint, FIRST[family] + number))

    def _added(self, name: str, finish: Finish) -> str:
        """Store a material; returns its name."""
        self._finishes[name] = finish
        return name


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


# ProcTHOR houses as mesh files with surfaces, ready to be prepared

_LISTED = 5
"""Largest number of assets that a message names."""


class Missing(NamedTuple):
    """Houses that cannot be read, and objects of ProcTHOR houses that are left out, since their sizes are unknown."""

    assets: tuple[str, ...]
    """Ids of their assets, the most frequent first."""
    num_objects: int
    """Number of objects that are left out."""
    num_all: int
    """Number of all objects."""
    houses: tuple[str, ...] = ()
    """Why houses are left out, one text each."""
    num_houses: int = 0
    """Number of all houses."""

    def __str__(self) -> str:
        """A line for houses and one for objects; empty where nothing is left out."""
        return "\n".join(filter(None, (self._houses(), self._objects())))

    def _houses(self) -> str:
        if not self.houses:
            return ""
        return f"left out {len(self.houses)} of {self.num_houses} houses: {few(self.houses, _LISTED, '; ')}"

    def _objects(self) -> str:
        if not self.assets:
            return ""
        left_out = f"{self.num_objects} of {self.num_all} objects ({self.num_objects / self.num_all:.0%})"
        return f"left out {left_out}, unknown size: {few(self.assets, _LISTED)}"


def import_houses(path: Path, sizes: Path, out: Path) -> tuple[list[SceneSource], Missing]:
    """Write ProcTHOR houses as mesh files OUT/NAME_0000.ply ...

    Args:
        path: file of houses (see `read_houses`).
        sizes: file of asset sizes (see `read_sizes`).
        out: folder for the mesh files.

    Returns the scenes, and the objects of unknown size. Mesh files hold triangles only; surfaces are part of the
    returned sources, and of the prepared scenes made from them. A house that cannot be read is left out. MeshError
    where none can, and where there is no file of sizes.
    """
    if not os.path.isfile(sizes):
        raise MeshError(
            f"{sizes}: found no such file, expected the sizes of ProcTHOR's assets in metres, {{asset id: [x, y, z]}}; "
            "name the file with --sizes FILE"
        )
    known, unknown, sources = read_sizes(sizes), set(), []
    assets: Counter[str] = Counter()
    stem, houses, bad = path.name.partition(".")[0], read_houses(path), []
    for i, house in enumerate(houses):
        target = out / f"{stem}_{i:04d}.ply"
        try:
            mesh, without = make_procthor_house(house, known, f"house {i}")
        except MeshError as error:
            bad.append(str(error))
            continue
        save_mesh(mesh, target)
        unknown.update(without)
        assets.update(_assets(house.get("objects", [])))
        sources.append(dataclasses.replace(mesh_source(target), surface=mesh.surface))
    if not sources:
        raise MeshError(f"{path}: found no usable house of {len(houses)}: {few(bad, _LISTED, '; ')}")
    missing = tuple(asset for asset, _ in assets.most_common() if asset in unknown)
    left_out = sum(assets[asset] for asset in missing)
    return sources, Missing(missing, left_out, assets.total(), tuple(bad), len(houses))


def _assets(objects: list[dict]) -> Iterator[str]:
    """The asset of each object, and of the objects on it."""
    for item in objects:
        yield str(item["assetId"])
        yield from _assets(item.get("children", []))
