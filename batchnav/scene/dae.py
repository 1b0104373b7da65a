"""COLLADA files (.dae) with pycollada: triangles in metres, diffuse colours and textures.

Images are found as the file names them, or by their name in `../materials/textures`, where Gazebo's models keep them.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import math
import re
import urllib.parse
import xml.etree.ElementTree as ET
import zipfile
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from batchnav.errors import MeshError, shortened
from batchnav.scene.axes import Up
from batchnav.scene.gltf import MOST_TRIANGLES, PLACING
from batchnav.scene.images import Images
from batchnav.scene.surface import PLAIN, Corners, corners_of, surface_of
from batchnav.types import Material, Surface, Texture

_UP_AXIS = re.compile(rb"<up_axis>\s*([XYZ])_UP\s*</up_axis>")
_UNIT, _METER = re.compile(rb"<unit\b[^>]{0,1000}>"), re.compile(rb"""\bmeter\s{0,9}=\s{0,9}["']([^"']{0,99})["']""")
_AXES: dict[bytes, Up] = {b"X": "x", b"Y": "y", b"Z": "z"}
_TEXTURES = "../materials/textures/"
_MOST_ROUNDS = 32


def up_axis(data: bytes) -> Up:
    """The axis that points up in a COLLADA file; y where it names none."""
    found = _UP_AXIS.search(data)
    return _AXES[found[1]] if found else "y"


def unit_problem(data: bytes) -> str:
    """What is wrong with the unit of a COLLADA file, which then counts as 1 m; empty for a valid one, or none."""
    unit = _UNIT.search(data)
    if unit is None or _metres(data) is not None:
        return ""
    found = shortened(unit[0].decode("utf-8", "replace"))
    return f'found {found}, expected meter="NUMBER" above 0; its unit counts as 1 m (`scale` and `--scale` change it)'


def _metres(data: bytes) -> float | None:
    """Metres in the unit of a COLLADA file; None where it names none, or no number above 0."""
    unit = _UNIT.search(data)
    meter = unit and _METER.search(unit[0])
    try:
        value = float(meter[1]) if meter else 0.0
    except ValueError:
        return None
    return value if 0.0 < value < math.inf else None


def read_dae(data: bytes, images: Images | None = None) -> tuple[np.ndarray, np.ndarray, Surface | None]:
    """Vertices f64 [V, 3] in the file's axes, metres, faces i64 [F, 3], and with `images` the surface.

    MeshError for an invalid file, one that places more triangles than its size allows, or without the package
    pycollada.
    """
    if importlib.util.find_spec("collada") is None:
        raise MeshError("is a COLLADA file, which needs the package pycollada; install it, or convert the file to GLB")
    collada = importlib.import_module("collada")
    if zipfile.is_zipfile(io.BytesIO(data)):  # the package would unpack one of any size
        raise MeshError("is a ZIP archive, expected the XML of a COLLADA file; unpack it")
    try:
        _check_instances(data)
        document = collada.Collada(io.BytesIO(data), ignore=[collada.common.DaeError])
        if document.scene is None:
            raise MeshError("has no scene, expected a COLLADA file with a visual scene")
        _check_size(document.scene, collada.scene, MOST_TRIANGLES + len(data))
        found = _Reader(images, _metres(data) or 1.0).read(document)
    except (MemoryError, MeshError):
        raise
    except Exception as error:  # any exception of the parser on an invalid file
        raise MeshError(f"cannot be read as COLLADA ({type(error).__name__}: {str(error)[:200]})") from error
    if images is not None:
        images.warn()
    return found


def _check_instances(data: bytes) -> None:
    """MeshError for chains of more than _MOST_ROUNDS nodes with instances of later nodes, which are read again.

    A file without so many instances is not parsed for it.
    """
    plain = data.replace(b"\0", b"")  # in UTF-16 too
    if plain.count(b"instance_node") <= _MOST_ROUNDS and b"<!DOCTYPE" not in plain:
        return
    known: set[str | None] = set()
    for library in ET.fromstring(data).iter():
        if _name(library) not in ("library_nodes", "visual_scene"):
            continue
        waiting = [
            (node.get("id"), {str(each.get("url"))[1:] for each in node.iter() if _name(each) == "instance_node"})
            for node in library
        ]
        for _ in range(_MOST_ROUNDS):
            left = []
            for name, needed in waiting:
                if needed <= known:
                    known.add(name)
                else:
                    left.append((name, needed))
            if len(left) in (0, len(waiting)):  # all are read, or nodes are missing
                break
            waiting = left
        else:
            raise MeshError(f"has chains of more than {_MOST_ROUNDS} nodes that are instances of later nodes")


def _name(element: ET.Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _check_size(scene: Any, nodes: Any, limit: int) -> None:
    """MeshError where a scene has more than `limit` nodes, triangles or vertices, counted without placing them.

    `nodes`: the package's module of nodes.
    """
    counts: dict[int, tuple[int, int]] = {}

    def size(node: Any) -> tuple[int, int]:
        """Nodes and triangles, and vertices, below a node."""
        if id(node) not in counts:
            if isinstance(node, nodes.GeometryNode):
                below = list(map(_size, node.geometry.primitives))
            else:
                below = [size(node.node)] if isinstance(node, nodes.NodeNode) else list(map(size, _children(node)))
            faces, points = map(sum, zip((PLACING, 0), *below, strict=True))
            counts[id(node)] = faces, points
        return counts[id(node)]

    faces, points = map(sum, zip((0, 0), *map(size, scene.nodes), strict=True))
    if max(faces, points) > limit:
        raise MeshError(f"places more than {limit} triangles, vertices or nodes, the limit for its file size")


def _children(node: Any) -> list:
    return getattr(node, "children", [])


def _size(primitive: Any) -> tuple[int, int]:
    """Triangles, and vertices with normals, of a primitive. MeshError for polygons that do not fit its indices."""
    counts = getattr(primitive, "vcounts", None)
    if counts is not None and len(counts):
        total, smallest = counts.sum(dtype=np.int64), counts.min()
        if total > len(primitive.index) or smallest < 0:
            raise MeshError(
                f"has polygons of {smallest} corners and more, {total} in all, but {len(primitive.index)} indices"
            )
    arrays = [array for array in (primitive.vertex, primitive.normal) if array is not None]
    return len(primitive.index), sum(map(len, arrays))


class _Reader:
    """Collects the triangles of a document, and its materials. `unit`: metres in the file's unit."""

    def __init__(self, images: Images | None, unit: float):
        self._images, self._unit = images, unit
        self._rows: dict[Any, int] = {}
        self._materials: list[Material] = []
        self._textures: list[Texture] = []
        self._texture_rows: dict[str, int] = {}

    def read(self, document: Any) -> tuple[np.ndarray, np.ndarray, Surface | None]:
        """Vertices, faces and surface of all geometries of the document's scene."""
        vertices, faces, count = [np.empty((0, 3))], [np.empty((0, 3), np.int64)], 0
        looks: list[Corners] = []
        for geometry in document.scene.objects("geometry"):
            for primitive in geometry.primitives():
                triangles = primitive.triangleset() if hasattr(primitive, "triangleset") else primitive
                if getattr(triangles, "vertex", None) is None or np.ndim(triangles.vertex_index) != 2:
                    continue  # lines
                points, index = np.asarray(triangles.vertex, np.float64), np.asarray(triangles.vertex_index, np.int64)
                if not index.size or index.shape[1] != 3:
                    continue
                if not 0 <= index.min() <= index.max() < len(points):
                    raise MeshError(f"has a face with vertex index {index.max()}, expected 0 to {len(points) - 1}")
                vertices.append(points * self._unit)
                faces.append(index + count)
                count += len(points)
                if self._images is not None:
                    looks.append(self._look(triangles, len(index)))
        surface = surface_of(looks, self._materials, self._textures) if looks else None
        return np.concatenate(vertices), np.concatenate(faces), surface

    def _look(self, triangles: Any, count: int) -> Corners:
        """Material and UVs of a set of triangles."""
        row = self._row(triangles.material)
        look = corners_of(np.zeros((count, 3), np.int64), row, None, None)
        if self._materials[row].texture < 0 or not len(triangles.texcoordset):
            return look
        uv = np.asarray(triangles.texcoordset[0], np.float64)[np.asarray(triangles.texcoord_indexset[0])][..., :2]
        return look._replace(uv=(uv * (1.0, -1.0) + (0.0, 1.0)).astype(np.float32))  # (0, 0) is the bottom left

    def _row(self, material: Any) -> int:
        """Row of a material; white for none."""
        effect = getattr(material, "effect", None)
        key = id(effect) if effect is not None else None
        if key not in self._rows:
            self._rows[key] = len(self._materials)
            self._materials.append(PLAIN if effect is None else self._material(effect))
        return self._rows[key]

    def _material(self, effect: Any) -> Material:
        diffuse = effect.diffuse
        if diffuse is None:
            return PLAIN
        if hasattr(diffuse, "sampler"):
            return PLAIN._replace(texture=self._texture(str(diffuse.sampler.surface.image.path)))
        color = np.nan_to_num(np.asarray(diffuse, np.float64))[:3]
        red, green, blue = np.clip(color, 0.0, 1.0).tolist()
        return Material((red, green, blue, 1.0))

    def _texture(self, name: str) -> int:
        """Row of an image's texture; -1 where it cannot be read."""
        if self._images is None:
            return -1
        if name not in self._texture_rows:
            pixels = self._images.read(name, f"image {name[:60]!r}", lambda: self._bytes(name))
            self._texture_rows[name] = -1 if pixels is None else len(self._textures)
            if pixels is not None:
                self._textures.append(Texture(pixels))
        return self._texture_rows[name]

    def _bytes(self, name: str) -> bytes:
        """Content of an image file, by its path or in Gazebo's folder of textures."""
        assert self._images is not None
        path = urllib.parse.unquote(name).removeprefix("file://")
        try:
            return self._images.file(path)
        except MeshError:
            try:
                return self._images.file(_TEXTURES + PurePosixPath(path.replace("\\", "/")).name)
            except MeshError:
                pass
            raise
