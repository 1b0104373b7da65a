"""Gazebo worlds and models (.world, .sdf) as one mesh, with an object for each model of the world.

Visuals are read, collision shapes are not. Meshes keep the axes of their files, as in Gazebo: the up axis of a COLLADA
file is ignored, glTF files are +Y up. The world's frame becomes that of a ROS map: (x, y, z) is (-y, z, -x) here.

An object's category is the name of the included model, else of the model itself, without "_clone" or a number at its
end. Poses in a saved <state> replace those of the models.
"""

from __future__ import annotations

import functools
import os
import re
import urllib.parse
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from batchnav.data.files import read_xml
from batchnav.data.scenes.asset import Asset, Part
from batchnav.data.scenes.source import merge_meshes
from batchnav.errors import MeshError, printable, shortened
from batchnav.scene.mesh import SUFFIXES as MESH_SUFFIXES
from batchnav.scene.mesh import load_mesh
from batchnav.scene.surface import PLAIN
from batchnav.types import Material, Surface, TriangleMesh

# Files that SDF names: models on a path of folders, and the files of a model

VARIABLES = ("GAZEBO_MODEL_PATH", "GZ_SIM_RESOURCE_PATH", "IGN_GAZEBO_RESOURCE_PATH")
"""Environment variables with folders of models, as Gazebo reads them."""
_SCHEMES = ("model", "package")
_FUEL = re.compile(r"https?://[^/]+/[^/]+/[^/]+/models/(?P<name>[^/]+)(/(\d+|tip))?(/files/(?P<file>.+))?/?")
"""Address of a model, or of one of its files, on Gazebo's server Fuel."""


class ModelPath:
    """Folders in which models are searched, in order.

    The given folders come first, each followed by its folder `models` and the folder that contains it, of a folder
    `models` also the one above, since URIs name models from any; then those of `VARIABLES`, the world's folder, and the
    folder `models` next to it.

    Args:
        folders: folders that contain a folder for each model.
        world: the world's file.
    """

    def __init__(self, folders: Sequence[Path], world: Path):
        for folder in folders:
            if not folder.is_dir():
                raise MeshError(f"--models: found no folder {folder}, expected one with a folder for each model")
        named = [Path(word) for name in VARIABLES for word in os.environ.get(name, "").split(os.pathsep) if word]
        home = world.absolute().parent
        given = [place for folder in folders for place in (folder, folder / "models", folder.absolute().parent)]
        given += [folder.absolute().parent.parent for folder in folders if folder.absolute().name == "models"]
        self.folders = [*given, *named, home, home.parent / "models", home / "models"]

    def find(self, uri: str, folder: Path) -> Path | None:
        """The existing file or folder that a URI names; None where there is none.

        Args:
            uri: model://NAME/FILE, package://NAME/FILE, file://FILE, an address on Fuel, whose model is searched by
                its name, or a path from `folder`, within the searched folders and the one above `folder`.
            folder: folder of the SDF file that has the URI.
        """
        uri = urllib.parse.unquote(uri.strip())
        if (fuel := _FUEL.fullmatch(uri)) is not None:
            home = self._by_name(fuel["name"])
            return home and self.find(fuel["file"] or ".", home)
        scheme, mark, rest = uri.partition("://")
        if mark and scheme in _SCHEMES:
            roots = self.folders
        elif mark and scheme != "file":
            return None
        else:
            rest, roots = (rest if mark else uri), [folder, *self.folders]
        allowed = [os.path.abspath(root) for root in (*self.folders, folder.parent)]
        for root in roots:
            path = os.path.abspath(os.path.join(root, rest))
            if any(path == base or path.startswith(base + os.sep) for base in allowed) and os.path.exists(path):
                return Path(path)
        return None

    def _by_name(self, name: str) -> Path | None:
        """The folder of a model of Fuel: of this name, with spaces or underscores; its latest version if it has some.

        Fuel's own folders hold a folder for each version: `ground plane/2`.
        """
        plain = _plain(name)
        for root in self.folders:
            for found in _entries(root):
                if _plain(found.name) == plain and found.is_dir():
                    versions = [each for each in _entries(found) if each.name.isdecimal() and each.is_dir()]
                    return max(versions, key=lambda each: int(each.name), default=found)
        return None


def _entries(folder: Path) -> list[Path]:
    """The entries of a folder, sorted; none where it cannot be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _plain(name: str) -> str:
    """A model's name in lower case, with spaces for underscores."""
    return name.lower().replace("_", " ")


def model_name(uri: str) -> str:
    """Name of the model that a URI includes, without a version."""
    fuel = _FUEL.fullmatch(urllib.parse.unquote(uri.strip()))
    return fuel["name"] if fuel else uri.strip().rstrip("/").rpartition("/")[2]


def model_file(folder: Path) -> Path | None:
    """The SDF file of a model's folder: that of the latest version in model.config, else model.sdf; None for none.

    A file that model.config names counts only within the folder.
    """
    config, plain = folder / "model.config", folder / "model.sdf"
    if config.is_file():
        try:
            rows = read_xml(config, MeshError).findall("sdf")
        except ET.ParseError:
            rows = []
        home = os.path.abspath(folder)
        files = {_version(row): Path(os.path.abspath(os.path.join(home, (row.text or "").strip()))) for row in rows}
        present = [
            version for version, file in files.items() if home in map(str, file.parents) and os.path.isfile(file)
        ]
        if present:
            return files[max(present)]
    return plain if plain.is_file() else None


def _version(row: ET.Element) -> tuple[int, ...]:
    words = row.get("version", "0")[:100].split(".")
    return tuple(int(word) for word in words if word.isascii() and word.isdigit())


# Geometries of SDF: boxes, cylinders, spheres and planes as meshes, and meshes of files


def shape_mesh(geometry: ET.Element) -> TriangleMesh | None:
    """The mesh of a simple shape, +Z up; None for other geometries. ValueError for invalid sizes."""
    for shape in geometry:
        make = _SHAPES.get(shape.tag)
        if make is not None:
            vertices, faces = make(shape)
            return TriangleMesh(np.asarray(vertices, np.float64), np.asarray(faces, np.int64))
    return None


def painted(mesh: TriangleMesh, visual: ET.Element) -> TriangleMesh:
    """The mesh with the diffuse colour of its visual, where it has no surface of its own."""
    if mesh.surface is not None:
        return mesh
    text, material = visual.findtext("material/diffuse"), PLAIN
    if text is not None:
        words = text.split(maxsplit=4)
        if len(words) in (3, 4):
            color = np.clip(numbers(text, len(words)), 0.0, 1.0).tolist()
            material = Material((color[0], color[1], color[2], 1.0))
    return mesh._replace(surface=Surface(np.zeros(len(mesh.faces), np.int32), (material,)))


def _positive(shape: ET.Element, name: str, count: int = 1) -> np.ndarray:
    """f64 [count]: sizes in metres. ValueError unless all are above 0."""
    values = numbers(shape.findtext(name), count)
    if (values <= 0).any():
        raise ValueError(f"<{name}>: found {shortened(shape.findtext(name))}, expected numbers above 0")
    return values


def _box(shape: ET.Element) -> tuple[np.ndarray, np.ndarray]:
    import trimesh

    solid = trimesh.creation.box(_positive(shape, "size", 3))
    return solid.vertices, solid.faces


def _cylinder(shape: ET.Element) -> tuple[np.ndarray, np.ndarray]:
    import trimesh

    solid = trimesh.creation.cylinder(_positive(shape, "radius")[0], _positive(shape, "length")[0], sections=32)
    return solid.vertices, solid.faces


def _capsule(shape: ET.Element) -> tuple[np.ndarray, np.ndarray]:
    import trimesh

    length = _positive(shape, "length")[0]
    solid = trimesh.creation.capsule(height=length, radius=_positive(shape, "radius")[0], count=(32, 32))
    solid.apply_translation((0, 0, -solid.bounds.mean(0)[2]))
    return solid.vertices, solid.faces


def _sphere(shape: ET.Element) -> tuple[np.ndarray, np.ndarray]:
    import trimesh

    solid = trimesh.creation.icosphere(subdivisions=3, radius=_positive(shape, "radius")[0])
    return solid.vertices, solid.faces


def _ellipsoid(shape: ET.Element) -> tuple[np.ndarray, np.ndarray]:
    import trimesh

    solid = trimesh.creation.icosphere(subdivisions=3)
    return solid.vertices * _positive(shape, "radii", 3), solid.faces


def _plane(shape: ET.Element) -> tuple[np.ndarray, np.ndarray]:
    x, y = _positive(shape, "size", 2) / 2
    normal = numbers(shape.findtext("normal") or "0 0 1", 3)
    if not np.linalg.norm(normal) > 1e-9:
        raise ValueError(f"<normal>: found {shortened(shape.findtext('normal'))}, expected a direction")
    normal = normal / np.linalg.norm(normal)
    side = np.cross((0.0, 1.0, 0.0), normal)
    side = side / np.linalg.norm(side) if np.linalg.norm(side) > 1e-6 else np.array((1.0, 0.0, 0.0))
    across = np.cross(normal, side)
    corners = np.array([side * u + across * v for u, v in ((-x, -y), (x, -y), (x, y), (-x, y))])
    return corners, np.array([(0, 1, 2), (0, 2, 3)])


def level_top(mesh: TriangleMesh) -> TriangleMesh | None:
    """A level plane itself, or the top of a flat box that lies level; None for others."""
    height = np.ptp(mesh.vertices[:, 1])
    if height < _LEVEL and len(mesh.vertices) == 4:
        return mesh
    at_top = mesh.vertices[:, 1] > mesh.vertices[:, 1].max() - _LEVEL
    if height > _FLAT or at_top.sum() != 4:
        return None
    top = mesh.vertices[at_top]
    x, _, z = (top - top.mean(0)).T
    corners = top[np.argsort(np.arctan2(x, z))]  # faces up
    surface = mesh.surface
    if surface is not None:
        rows = {name: getattr(surface, name) for name in ("material", "object_id", "category")}
        surface = surface._replace(**{name: row[:2] for name, row in rows.items() if row is not None})
    return mesh._replace(vertices=corners, faces=np.array([(0, 1, 2), (0, 2, 3)], mesh.faces.dtype), surface=surface)


def cut_at(plane: TriangleMesh, low: np.ndarray, high: np.ndarray) -> TriangleMesh:
    """The part of a plane between `low` and `high` [3] along x and z; the plane itself if all or nothing is between.

    Method: Sutherland and Hodgman, CACM 17(1), 1974.
    """
    corners = list(plane.vertices.astype(np.float64))
    for axis in (0, 2):
        for sign, limit in ((1.0, high[axis]), (-1.0, -low[axis])):
            kept = []
            for a, b in zip(corners, [*corners[1:], *corners[:1]], strict=True):
                over, after = sign * a[axis] - limit, sign * b[axis] - limit
                if over <= 0:
                    kept.append(a)
                if over * after < 0:
                    kept.append(a + (b - a) * (over / (over - after)))
            corners = kept
    if len(corners) < 3 or np.array_equal(corners, plane.vertices):
        return plane
    faces = np.array([(0, k, k + 1) for k in range(1, len(corners) - 1)], plane.faces.dtype)

    def rows(row: np.ndarray | None) -> np.ndarray | None:
        return None if row is None else np.repeat(row[:1], len(faces))

    surface = plane.surface
    if surface is not None:
        material = np.repeat(surface.material[:1], len(faces))
        surface = surface._replace(
            material=material, object_id=rows(surface.object_id), category=rows(surface.category)
        )
    return plane._replace(vertices=np.array(corners, plane.vertices.dtype), faces=faces, surface=surface)


_SHAPES: dict[str, Callable[[ET.Element], tuple[np.ndarray, np.ndarray]]] = {
    "box": _box, "cylinder": _cylinder, "capsule": _capsule, "sphere": _sphere, "ellipsoid": _ellipsoid,
    "plane": _plane,
}  # fmt: skip


# Poses of SDF: position and rotation of an element in the frame that it names

_OWN = ("", "__model__", "__root__", "world")
"""Names of a scope's own frame."""
_LONGEST_CHAIN = 100
"""Largest number of frames from one to its scope's."""


class Scope:
    """The frames of a world or a model: links, joints, models and frames by name.

    Args:
        elements: elements with names and poses.
    """

    def __init__(self, elements: Iterable[ET.Element]):
        self._elements = {name_of(element): element for element in elements}
        self._open: set[str] = set()
        self._frames: dict[str, np.ndarray] = {}

    def pose(self, element: ET.Element) -> np.ndarray:
        """f64 [4, 4]: an element's pose in the scope's frame. ValueError for an unknown frame or one in itself."""
        pose = element.find("pose")
        base = "" if pose is None else pose.get("relative_to", "")
        if not base and element.tag == "frame":
            base = element.get("attached_to", "")
        if not base and element.tag == "joint":
            base = (element.findtext("child") or "").strip()
        return self.frame(base) @ matrix_of(pose)

    def frame(self, name: str) -> np.ndarray:
        """f64 [4, 4]: a frame in the scope's frame."""
        if name in _OWN:
            return np.eye(4)
        if name in self._frames:
            return self._frames[name]
        if name not in self._elements or name in self._open:
            raise ValueError(f"frame {name[:60]!r} {'is its own base' if name in self._open else 'is unknown'}")
        if len(self._open) >= _LONGEST_CHAIN:
            raise ValueError(f"frame {name[:60]!r} is more than {_LONGEST_CHAIN} frames away from its scope")
        self._open.add(name)
        try:
            self._frames[name] = self.pose(self._elements[name])
        finally:
            self._open.discard(name)
        return self._frames[name]


def name_of(element: ET.Element) -> str:
    """Name of an element: its attribute, or the child <name> of an <include>."""
    return element.get("name") or (element.findtext("name") or "").strip()


def matrix_of(pose: ET.Element | None) -> np.ndarray:
    """f64 [4, 4] of a <pose>: x y z, then roll pitch yaw (radians, or degrees) or a quaternion x y z w."""
    matrix = np.eye(4)
    text = "" if pose is None or pose.text is None else pose.text.strip()
    if pose is None or not text:
        return matrix
    is_quaternion = pose.get("rotation_format") == "quat_xyzw"
    values = numbers(text, 7 if is_quaternion else 6)
    matrix[:3, 3] = values[:3]
    if is_quaternion:
        matrix[:3, :3] = Rotation.from_quat(values[3:]).as_matrix()
    else:
        degrees = pose.get("degrees", "false").strip().lower() in ("true", "1")
        matrix[:3, :3] = Rotation.from_euler("xyz", values[3:], degrees=degrees).as_matrix()
    return matrix


def numbers(text: str | None, count: int) -> np.ndarray:
    """f64 [count]: finite numbers of a text. ValueError for anything else."""
    values = np.array([float(word) for word in (text or "").split()])
    if len(values) != count or not np.isfinite(values).all() or np.abs(values).max(initial=0.0) > 1e9:
        raise ValueError(f"found {(text or '')[:60]!r}, expected {count} numbers")
    return values


SUFFIXES = (".world", ".sdf")
_TO_WORLD = np.array([[0.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [-1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
"""From the axes of ROS to +Y up."""
_GLTF = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, -1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
"""From +Y up to +Z up."""
_FRAMES = ("model", "include", "frame", "link", "joint")
_LIGHTS, _GROUND = ("sun",), "ground plane"
"""Models of Gazebo without visuals, and its ground, by their plain names."""
_GROUND_MODEL = ET.fromstring(
    '<model name="ground_plane"><link name="link"><visual name="visual"><geometry><plane><size>100 100</size></plane>'
    "</geometry></visual></link></model>"
)
"""Gazebo's ground, for worlds whose models lack it."""
_DEEPEST, _MOST_PARTS, _MOST_TRIANGLES, _LISTED = 16, 100_000, 2**24, 8
"""Largest depth of nested models, number of visuals and of models, triangles of a world, and names in a message."""
_LEVEL, _FLAT, _GROUND_SIDE = 0.01, 1.0, 50.0
"""Largest height of a level plane and of a box that is a ground, and least side of a ground, metres."""
_NARROW, _MARGIN = 4.0, 5.0
"""Side of the other models' bounds below which they are no building, and margin of ground around those, metres."""
_LONGEST, _GAP = 200, 200.0
"""Largest number of characters of a category, and of a reason; gap to all other models, metres, beyond which models are
left out."""


_NOT_FOUND = "is not found"
"""End of the reason of a missing model or file."""
_HINT = f"name folders of models by --models or {VARIABLES[0]}"
"""What to do about a missing model."""


_PREFACE = re.compile(rb"(?:\xef\xbb\xbf)?(?:\s|<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>]*>)*", re.DOTALL)
"""What may precede the root of an XML file."""
_START = 65_536
"""Bytes of a file among which its root is searched."""


def is_world(path: Path) -> bool:
    """True for a world: a file with one of the SUFFIXES, or another file with an SDF root, such as `house.model`."""
    suffix = path.suffix.lower()
    if suffix in SUFFIXES or suffix in MESH_SUFFIXES or not path.is_file():
        return suffix in SUFFIXES
    try:
        with path.open("rb") as file:
            start = file.read(_START)
    except OSError:
        return False
    preface = _PREFACE.match(start)
    return re.match(rb"<sdf[\s>]", start[preface.end() :] if preface else start) is not None


class LeftOut(NamedTuple):
    """Parts of a world that are left out."""

    reasons: Counter[str]
    """Number of parts by reason."""
    num_all: int
    """Number of all parts."""
    notes: tuple[str, ...] = ()
    """What else was changed, one line each."""

    def __str__(self) -> str:
        """One line; empty where no part is left out."""
        if not self.reasons:
            return ""
        named = [f"{reason} ({count})" for reason, count in self.reasons.most_common(_LISTED)]
        more = f" and {len(self.reasons) - _LISTED} more" if len(self.reasons) > _LISTED else ""
        share = self.reasons.total() / self.num_all
        hint = f"; {_HINT}" if any(reason.endswith(_NOT_FOUND) for reason in self.reasons) else ""
        return f"left out {self.reasons.total()} of {self.num_all} parts ({share:.0%}): {', '.join(named)}{more}{hint}"


def read_world(path: Path, models: Sequence[Path] = ()) -> tuple[TriangleMesh, LeftOut]:
    """The mesh of a world, and what is left out of it.

    Args:
        path: a .world or .sdf file.
        models: folders of models; `models.ModelPath` says where models are searched too.

    MeshError for a file that is not SDF, or a world without a visual that can be read.
    """
    root = _parse(path)
    world = root.find("world")
    reader = _Reader(ModelPath(models, path))
    try:
        reader.read(root if world is None else world, path.parent)
        reader.without_far_models()
        reader.cut_grounds()
    except MeshError as error:
        raise MeshError(f"{path}: {error}") from error
    left_out = LeftOut(reader.reasons, len(reader.meshes) + reader.reasons.total(), tuple(reader.notes))
    if not reader.meshes or (left_out.reasons and reader.has_grounds_only):
        what = "a ground alone, expected models" if reader.meshes else "no visual that can be read, expected some"
        raise MeshError(f"{path}: found {what}; {str(left_out) or 'it has none'}")
    return merge_meshes(reader.meshes, str(path)), left_out


class _Item(NamedTuple):
    """A model of the world that is being read."""

    number: int
    """Object id, from 1 on."""
    category: str


class _Reader:
    """Collects the placed meshes of a world."""

    def __init__(self, models: ModelPath):
        self._models = models
        self.meshes: list[TriangleMesh] = []
        self.reasons: Counter[str] = Counter()
        self.notes: list[str] = []
        self._is_plane: list[bool] = []  # or box, whose top is one
        self._names: list[str] = []
        self._triangles = self._models_read = 0
        self._load = functools.cache(lambda file: load_mesh(file, up="y"))  # in the axes of the file
        self._parse = functools.cache(_parse)

    @property
    def has_grounds_only(self) -> bool:
        """True where all meshes are grounds."""
        tops = [
            level_top(mesh) if is_plane else None for mesh, is_plane in zip(self.meshes, self._is_plane, strict=True)
        ]
        return all(top is not None and _is_ground(top) for top in tops)

    def leave_out(self, reason: str) -> None:
        """Count a part that is left out."""
        self.reasons[printable(reason)[:_LONGEST]] += 1

    def without_far_models(self) -> None:
        """Leave out models beyond a wide gap: no building is that wide, and no float32 precise enough for all.

        Of the models on both sides of a gap, seen along an axis, those are kept that cover more ground; large planes do
        not count.
        """
        ends = [(mesh.vertices.min(0), mesh.vertices.max(0)) for mesh in self.meshes]
        low, high = np.array(ends, np.float64).reshape(-1, 2, 3).transpose(1, 0, 2)
        x, y, z = (high - low).T
        grounds = np.array(self._is_plane, bool) & (np.minimum(x, z) >= _GROUND_SIDE) & (y <= _FLAT)
        size = np.where(grounds, 0.0, x * z + 1e-6)
        near, count = np.arange(len(low)), -1
        while len(near) != count:
            count = len(near)
            for axis in range(3):
                near = near[_largest_group(low[near, axis], high[near, axis], size[near])]
        if len(near) == len(low):
            return
        kept_low, kept_high = low[near].min(0), high[near].max(0)
        for k in sorted(set(range(len(low))) - set(near.tolist())):
            metres = np.linalg.norm(np.maximum(0.0, np.maximum(kept_low - high[k], low[k] - kept_high)))
            where = f"{metres / 1000.0:.0f} km" if metres >= 1000.0 else f"{metres:.0f} m"
            self.leave_out(f"{self._names[k][:60]!r} stands {where} from the other models")
        self.meshes, self._names = [self.meshes[k] for k in near], [self._names[k] for k in near]
        self._is_plane = [self._is_plane[k] for k in near]

    def cut_grounds(self) -> None:
        """Cut large planes at the bounds of all else, seen from above: a ground of 100 m surrounds a building.

        Of a flat box its top is left. Bounds that are too narrow for a building, as those of a table, get a margin.
        """
        planes = {k: level_top(self.meshes[k]) for k, is_plane in enumerate(self._is_plane) if is_plane}
        grounds = {k: plane for k, plane in planes.items() if plane is not None and _is_ground(plane)}
        others = [mesh.vertices for k, mesh in enumerate(self.meshes) if k not in grounds]
        if not others:
            return
        low, high = np.min([each.min(0) for each in others], 0), np.max([each.max(0) for each in others], 0)
        bounds = "the bounds of the other models"
        if min((high - low)[[0, 2]]) < _NARROW:
            low, high, bounds = low - _MARGIN, high + _MARGIN, f"{_MARGIN:g} m around the other models"
        for k, plane in grounds.items():
            part = cut_at(plane, low, high)
            if part is plane:
                continue
            (x, z), (to_x, to_z) = (np.ptp(mesh.vertices, axis=0)[[0, 2]] for mesh in (self.meshes[k], part))
            name, change = printable(self._names[k])[:60], f"from {x:.1f} x {z:.1f} m to {to_x:.1f} x {to_z:.1f} m"
            self.notes.append(f"ground {name!r}: cut {change}, {bounds}")
            self.meshes[k] = part

    def read(self, world: ET.Element, folder: Path) -> None:
        """Read all models of a world, or of an SDF file without a world."""
        scope = Scope(child for child in world if child.tag in _FRAMES)
        states = {state.get("name"): state for state in world.findall("state/model")}
        number = 0
        for element in world:
            if element.tag not in ("model", "include"):
                continue
            number += 1
            name = name_of(element)
            item = _Item(number, _category(name))
            try:
                self._entity(element, _TO_WORLD, scope, folder, item, states.get(name))
            except (ValueError, RecursionError) as error:
                self.leave_out(f"model {name[:60]!r}: {error}")

    def _entity(
        self, element: ET.Element, base: np.ndarray, scope: Scope, folder: Path, item: _Item,
        state: ET.Element | None = None, depth: int = 0,
    ) -> None:  # fmt: skip
        """Read a <model> or an <include> in a frame `base`; `folder` is that of its SDF file."""
        self._models_read += 1
        if self._models_read > _MOST_PARTS:
            raise MeshError(f"found more than {_MOST_PARTS} models, expected fewer")
        if depth > _DEEPEST:
            raise ValueError(f"models are nested deeper than {_DEEPEST}")
        model = element
        if element.tag == "include":
            uri = (element.findtext("uri") or "").strip()
            found = self._included(uri, folder)
            if found is None:
                return
            model, folder = found
            item = item._replace(category=_category(model_name(uri)))
        # The pose of an include replaces that of the model in its file.
        own = element if element is model or element.find("pose") is not None else model
        placed = scope.pose(own) if own is element else matrix_of(own.find("pose"))
        if state is not None:
            placed = matrix_of(state.find("pose"))
            placed[:3, :3] *= numbers(state.findtext("scale") or "1 1 1", 3)
        self._model(model, base @ placed, folder, item, depth)

    def _included(self, uri: str, folder: Path) -> tuple[ET.Element, Path] | None:
        """The <model> of an included file and its folder; None, with a reason, where it cannot be read."""
        found = self._models.find(uri, folder)
        file = model_file(found) if found is not None and found.is_dir() else found
        if file is None:
            name = _plain(model_name(uri))
            if name == _GROUND:
                return _GROUND_MODEL, folder
            if name not in _LIGHTS:
                self.leave_out(f"{uri[:80]} {_NOT_FOUND}")
            return None
        try:
            model = self._parse(file).find("model")
        except MeshError as error:
            self.leave_out(str(error))
            return None
        if model is None:
            return None  # a light or an actor
        return model, file.parent

    def _model(self, model: ET.Element, pose: np.ndarray, folder: Path, item: _Item, depth: int) -> None:
        """Read links and nested models of a <model> that stands at `pose`."""
        scope = Scope(child for child in model if child.tag in _FRAMES)
        for link in model.findall("link"):
            at = pose @ scope.pose(link)
            for visual in link.findall("visual"):
                own = visual.find("pose")
                is_elsewhere = own is not None and own.get("relative_to")
                place = pose @ scope.pose(visual) if is_elsewhere else at @ matrix_of(own)
                self._visual(visual, place, folder, item)
        for child in model:
            if child.tag in ("model", "include"):
                self._entity(child, pose, scope, folder, item, depth=depth + 1)

    def _visual(self, visual: ET.Element, place: np.ndarray, folder: Path, item: _Item) -> None:
        """Add the placed mesh of a visual, or the reason why it is left out."""
        geometry = visual.find("geometry")
        if geometry is None:
            return
        mesh, found = geometry.find("mesh"), None
        try:
            if mesh is not None:
                found, place = self._mesh_of(mesh, place, folder)
            else:
                found = shape_mesh(geometry)
            if found is None:
                kind = next((child.tag for child in geometry), "nothing")
                raise ValueError(f"geometry {kind[:40]!r} is not read")
            found = painted(found, visual)
        except (MeshError, ValueError) as error:
            self.leave_out(str(error))
            return
        self._triangles += len(found.faces)
        if len(self.meshes) >= _MOST_PARTS or self._triangles > _MOST_TRIANGLES:
            raise MeshError(
                f"found more than {_MOST_PARTS} visuals or {_MOST_TRIANGLES} triangles, expected a smaller world"
            )
        part = Part(Asset(Path()), place[:3, :3], place[:3, 3], object_id=item.number, category=item.category)
        self.meshes.append(part.labelled(part.place(found)))
        self._names.append(item.category)
        self._is_plane.append(geometry.find("plane") is not None or geometry.find("box") is not None)

    def _mesh_of(self, mesh: ET.Element, place: np.ndarray, folder: Path) -> tuple[TriangleMesh, np.ndarray]:
        """The mesh of a file, and its place with the scale of the visual. MeshError, ValueError."""
        uri = (mesh.findtext("uri") or "").strip()
        if mesh.find("submesh") is not None:
            raise ValueError(f"a submesh of {uri[:80]} is not read")
        file = self._models.find(uri, folder)
        if file is None:
            raise ValueError(f"{uri[:80]} {_NOT_FOUND}")
        found = self._load(file)
        scale = np.diag([*numbers(mesh.findtext("scale") or "1 1 1", 3), 1.0])
        turn = _GLTF if file.suffix.lower() in (".glb", ".gltf") else np.eye(4)
        return found, place @ scale @ turn


def _largest_group(low: np.ndarray, high: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Rows of the intervals from `low` to `high` in the largest group, by total `size`, without a gap of `_GAP`."""
    order = np.argsort(low, kind="stable")
    reach = np.maximum.accumulate(high[order])
    group = np.cumsum(np.append(0, low[order][1:] > reach[:-1] + _GAP)) if len(order) else order
    largest = np.bincount(group, size[order]).argmax() if len(order) else 0
    return np.sort(order[group == largest])


def _is_ground(plane: TriangleMesh) -> bool:
    """True for a plane that is large along both sides."""
    x, _, z = np.ptp(plane.vertices, axis=0)
    return bool(min(x, z) >= _GROUND_SIDE)


def _parse(path: Path) -> ET.Element:
    """The root of an SDF file. MeshError for any other file."""
    try:
        root = read_xml(path, MeshError)
    except (ET.ParseError, ValueError) as error:
        raise MeshError(f"{path}: is not an SDF file ({error})") from error
    if root.tag != "sdf":
        raise MeshError(f"{path}: found <{root.tag[:40]}>, expected <sdf>")
    return root


def _category(name: str) -> str:
    """A name without numbers at its end, or Gazebo's "_clone" of copies: "chair" for "chair_01_clone_2".

    At most `_LONGEST` characters.
    """
    name = name[:_LONGEST]
    while True:
        cut = name.rstrip("0123456789")
        cut = name.removesuffix("_clone") if cut == name else cut
        if cut == name or not (cut := cut.rstrip("_-. \t\n")):
            return name
        name = cut
