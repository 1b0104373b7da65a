"""glTF 2.0 files as triangles in the world frame, with all primitives merged and optionally with materials.

The reader trusts no value of a file. It checks sizes against the file before it decodes, traverses the scene graph
without recursion, and limits triangles and vertices to MOST_TRIANGLES + the file size in bytes each, so that a small
file with instances or shared accessors cannot exhaust memory.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import importlib.util
import json
import math
import re
import struct
import urllib.parse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from batchnav.errors import MeshError, printable
from batchnav.runtime.files import read_named_file
from batchnav.scene.formats import point_cloud_error
from batchnav.scene.images import AppearanceConfig, Images
from batchnav.scene.surface import PLAIN, Corners, corners_of, surface_of
from batchnav.types import Material, Surface, Texture

# Materials of glTF files: base colour factor and texture, with the texture's sampler and transform

_SPECULAR = "KHR_materials_pbrSpecularGlossiness"
_TRANSFORM = "KHR_texture_transform"
_SOURCES = ("EXT_texture_webp", "KHR_texture_basisu")
"""Extensions with an alternative image, which takes precedence."""
WRAP = {10497: "repeat", 33648: "mirror", 33071: "clamp"}
MAGNIFY = {9728: "nearest", 9729: "linear"}
MINIFY = {
    **MAGNIFY, 9984: "nearest_mipmap_nearest", 9985: "linear_mipmap_nearest", 9986: "nearest_mipmap_linear",
    9987: "linear_mipmap_linear",
}  # fmt: skip
"""Names of the codes of samplers."""
_BROKEN = (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError, MeshError, binascii.Error)


class MaterialUse(NamedTuple):
    """How a primitive uses a material: the material's row, and the transform of UVs."""

    row: int
    uv_matrix: np.ndarray | None = None
    """f64 [2, 3], applied to (u, v, 1); None: identity."""


class GltfMaterials:
    """Materials of a file's primitives, each read once. `document`: a `gltf._Document`."""

    def __init__(self, document, images: Images):
        self._document, self._images = document, images
        self._uses: dict[Any, MaterialUse] = {}
        self._textures: dict[int, int] = {}
        self.materials: list[Material] = []
        self.textures: list[Texture] = []

    def note(self, problem: str) -> None:
        """Record a problem for the warning about the file."""
        self._images.note(problem)

    def use(self, number: Any) -> MaterialUse:
        """Row and UV transform of material `number`; None: of white, for a primitive without a material."""
        key = number if number is None or isinstance(number, int) else str(number)
        if key not in self._uses:
            material, matrix = PLAIN, None
            if number is not None:
                try:
                    material, matrix = self._material(number)
                except _BROKEN as error:
                    self._images.note(f"material {_short(number)} ({_reason(error)})")
            self._uses[key] = MaterialUse(len(self.materials), matrix)
            self.materials.append(material)
        return self._uses[key]

    def _material(self, number: Any) -> tuple[Material, np.ndarray | None]:
        material = _row(self._document.tree.get("materials", []), number)
        base = material.get("pbrMetallicRoughness", {})
        specular = material.get("extensions", {}).get(_SPECULAR, {})
        factor = base.get("baseColorFactor", specular.get("diffuseFactor", [1.0] * 4))
        color = np.array(factor, np.float64)
        if color.shape != (4,) or not np.isfinite(color).all():
            self._images.note(f"material {number}'s colour ({_short(factor)})")
            color = np.ones(4)
        info = base.get("baseColorTexture", specular.get("diffuseTexture"))
        red, green, blue, alpha = np.clip(color, 0.0, 1.0).tolist()
        plain = Material((red, green, blue, alpha))
        if info is None:
            return plain, None
        try:
            texture, transform = self._texture(info["index"]), info.get("extensions", {}).get(_TRANSFORM)
            matrix = _uv_matrix(transform)
            uv_set = (transform or {}).get("texCoord", info.get("texCoord", 0))
        except _BROKEN as error:
            self._images.note(f"material {number}'s texture ({_reason(error)})")
            return plain, None
        if uv_set != 0:
            self._images.note(f"material {number}'s TEXCOORD_{_short(uv_set)} (TEXCOORD_0 is read, as in habitat-sim)")
        return (plain, None) if texture is None else (plain._replace(texture=texture), matrix)

    def _texture(self, number: Any) -> int | None:
        """Row of a texture; None if its image is invalid."""
        if number in self._textures:
            return self._textures[number]
        entry = _row(self._document.tree.get("textures", []), number)
        extensions = entry.get("extensions", {})
        source = entry.get("source")
        for name in _SOURCES:
            source = extensions.get(name, {}).get("source", source)
        if source is None:
            named = ", ".join(map(str, extensions)) or "no image"
            raise MeshError(f"found {named}, expected an image that can be read")
        pixels = self._images.read(self._key(source), f"image {source}", lambda: self._bytes(source))
        if pixels is None and source != entry.get("source") and "source" in entry:
            source = entry["source"]  # fallback for readers without the extension
            pixels = self._images.read(self._key(source), f"image {source}", lambda: self._bytes(source))
        if pixels is None:
            return None
        sampler = _row(self._document.tree.get("samplers", []), entry["sampler"]) if "sampler" in entry else {}
        wrap = _known(WRAP, sampler, "wrapS", 10497), _known(WRAP, sampler, "wrapT", 10497)
        magnify, minify = _known(MAGNIFY, sampler, "magFilter", 9729), _known(MINIFY, sampler, "minFilter", 9987)
        self._textures[number] = len(self.textures)
        self.textures.append(Texture(pixels, wrap, magnify, minify))
        return self._textures[number]

    def _key(self, number: Any) -> Any:
        """What an image is read from; images of one place are decoded once."""
        images = self._document.tree.get("images", [])
        image = images[number] if isinstance(number, int) and 0 <= number < len(images) else {}
        place = image.get("bufferView", image.get("uri")) if isinstance(image, dict) else None
        return ("at", place) if isinstance(place, (int, str)) else ("image", str(number))

    def _bytes(self, number: Any) -> bytes:
        """Content of an image file; its declared type is ignored."""
        try:
            image = _row(self._document.tree.get("images", []), number)
            if "bufferView" in image:
                return bytes(self._document.view(image["bufferView"]))
            uri = image["uri"]
            if uri.startswith("data:"):
                return base64.b64decode(uri.partition(",")[2])
            return self._images.file(urllib.parse.unquote(uri))
        except _BROKEN as error:
            raise MeshError(_reason(error)) from error


def _uv_matrix(transform: dict | None) -> np.ndarray | None:
    """Matrix of a KHR_texture_transform: scale, rotation, then translation."""
    if transform is None:
        return None
    angle = float(transform.get("rotation", 0.0))
    (sx, sy), (ox, oy) = (np.array(transform.get(n, d), np.float64) for n, d in (("scale", [1, 1]), ("offset", [0, 0])))
    cosine, sine = math.cos(angle), math.sin(angle)
    matrix = np.array([[cosine * sx, sine * sy, ox], [-sine * sx, cosine * sy, oy]])
    if not np.isfinite(matrix).all():
        raise ValueError(f"{_TRANSFORM} that is not finite")
    return matrix


def _known(names: dict[int, str], sampler: dict, field: str, default: int) -> str:
    """Setting of a sampler; the default for values unknown to glTF."""
    value = sampler.get(field, default)
    return names.get(value if isinstance(value, int) else default, names[default])


def _row(rows: Any, number: Any) -> dict:
    """Entry `number` of a list of the file. IndexError for an invalid index."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(rows):
        raise IndexError(f"index {_short(number)} of {len(rows)}")
    return rows[number]


def _short(value: Any) -> str:
    return str(value)[:40]


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, (MeshError, IndexError)) else f"{type(error).__name__}: {error}"


# Nodes of glTF files: the scene graph, transforms, and the objects that nodes are

NAMED = re.compile(r"(?P<category>[A-Za-z][A-Za-z _-]*)_(?P<instance>0{0,8}[1-9][0-9]{0,8})", re.ASCII)
"""Name of a node that is an object."""


class ObjectNodes:
    """Collects the object and the category of the triangles of successive nodes."""

    def __init__(self) -> None:
        self._categories = {"": 0}
        self._nodes: list[tuple[int, int, int]] = []
        self._names: list[tuple[int, str]] = []
        """Instance and category by each node's name; 0 and "" for other names."""

    def add(self, extras: Any, name: str, num_faces: int) -> None:
        """Add the triangles of a node with these extras and this name."""
        named = NAMED.fullmatch(name)
        self._names.append((int(named["instance"]), named["category"]) if named else (0, ""))
        values = extras if isinstance(extras, dict) else {}
        instance, category = values.get("instance"), values.get("category")
        if isinstance(instance, bool) or not isinstance(instance, int) or not 0 <= instance < 2**31:
            instance = 0
        row = self._categories.setdefault(category if isinstance(category, str) else "", len(self._categories))
        self._nodes.append((instance, row, num_faces))

    def labelled(self, surface: Surface | None) -> Surface | None:
        """The surface of all triangles with object ids and categories, where a node has them."""
        instance, row, count = np.array(self._nodes, np.int32).reshape(-1, 3).T
        if not (instance.any() or row.any()):
            numbers = self._numbers_of_names()
            if numbers is None:
                return surface
            instance = np.array(numbers, np.int32)
            row = np.array([self._categories.setdefault(name, len(self._categories)) for _, name in self._names])
        if surface is None:
            surface = Surface(np.zeros(count.sum(), np.int32), (PLAIN,))
        surface = surface._replace(object_id=np.repeat(instance, count))
        if not row.any():
            return surface
        names = sorted(self._categories)
        order = np.array([names.index(name) for name in self._categories], np.int32)
        return surface._replace(category=np.repeat(order[row], count), categories=tuple(names))

    def _numbers_of_names(self) -> list[int] | None:
        """Object id of each node by its name, 0 for no object; None unless the names have several categories.

        The ids are the numbers in the names where no two objects share one; else they count the objects in the order
        of the file. Nodes of equal names are parts of one object.
        """
        named = list(dict.fromkeys(pair for pair in self._names if pair[1]))
        if len({category for _, category in named}) < 2:
            return None
        if len({number for number, _ in named}) == len(named):
            return [number for number, _ in self._names]
        ids = {pair: i for i, pair in enumerate(named, 1)}
        return [ids.get(pair, 0) for pair in self._names]


def check_forest(children: list[list[int]]) -> None:
    """MeshError where a node has two parents or is its own ancestor; otherwise traversals end.

    `children`: the children of each node.
    """
    parents = [0] * len(children)
    for row in children:
        for child in row:
            parents[child] += 1
            if parents[child] > 1:
                raise MeshError(f"node {child} has two parents in the scene graph")
    reached = [i for i, number in enumerate(parents) if number == 0]
    for node in reached:  # grows during the loop
        reached += children[node]
    if len(reached) < len(children):
        node = min(set(range(len(children))) - set(reached))
        raise MeshError(f"node {node} is its own ancestor in the scene graph")


def node_matrix(node: dict) -> np.ndarray:
    """Transform f64 [4, 4] of a node, from its matrix, or its scale, rotation (x, y, z, w) and translation."""
    if "matrix" in node:
        return np.array(node["matrix"], np.float64).reshape(4, 4).T
    matrix = np.eye(4)
    if "rotation" in node:
        x, y, z, w = np.array(node["rotation"], np.float64) / np.linalg.norm(np.array(node["rotation"], np.float64))
        matrix[:3, :3] = [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    if "scale" in node:
        matrix[:3, :3] *= np.array(node["scale"], np.float64).reshape(3)
    if "translation" in node:
        matrix[:3, 3] = np.array(node["translation"], np.float64).reshape(3)
    return matrix


MOST_TRIANGLES = 2**22
PLACING = 16
"""Number of triangles that each instance of a mesh counts as, in addition to its own, towards the limit."""
_GLB_MAGIC, _JSON_CHUNK, _BINARY_CHUNK = 0x46546C67, 0x4E4F534A, 0x004E4942
_MESHOPT = ("EXT_meshopt_compression", "KHR_meshopt_compression")
_DRACO = "KHR_draco_mesh_compression"
_INSTANCING = "EXT_mesh_gpu_instancing"
_READ = {_DRACO, _INSTANCING, "KHR_mesh_quantization", *_MESHOPT}
"""Extensions that change geometry; they are supported, or rejected by name where a file uses them."""
_NO_GEOMETRY = re.compile(
    r"(KHR|EXT|MSFT|ADOBE|FB|GODOT|VRMC|AGI|MPEG)_(materials?|textures?|lights?|xmp|animation|audio|image)",
    re.IGNORECASE,
)
"""Extensions that do not change geometry."""
_COMPONENT = {5120: "i1", 5121: "u1", 5122: "<i2", 5123: "<u2", 5125: "<u4", 5126: "<f4"}
_WIDTH = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT2": 4, "MAT3": 9, "MAT4": 16}
_WIDTHS = {"indices": (1,), "ROTATION": (4,), "TEXCOORD_0": (2,), "COLOR_0": (3, 4)}
"""Numbers of columns of attributes other than 3-vectors."""
_POINTS, _TRIANGLES, _STRIP, _FAN = 0, 4, 5, 6


def read_gltf(
    data: bytes, path: Path, appearance: AppearanceConfig | None = None
) -> tuple[np.ndarray, np.ndarray, Surface | None]:
    """Vertices f64 [V, 3] and faces i64 [F, 3] of a .glb or .gltf file in its world frame; surface with `appearance`.

    Raises MeshError where a size or an index is invalid, nodes do not form a forest, a buffer is outside the file's
    data root (`runtime/files.py`), or the compression is not supported. Warns about unsupported features
    that may change geometry: extensions, skins, morph targets.
    """
    try:
        with np.errstate(all="ignore"):  # non-finite triangles are dropped later
            images = None if appearance is None else Images(path, appearance, len(data))
            found = _Document(data, path, images).triangles()
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise MeshError(f"is not valid glTF ({type(error).__name__}: {error})") from error
    if images is not None:
        images.warn()
    return found


class _Document:
    """A glTF file: its JSON, and its buffers, loaded on demand."""

    def __init__(self, data: bytes, path: Path, images: Images | None):
        self.path, self.limit = path, MOST_TRIANGLES + len(data)
        self.tree, self.binary = _chunks(data) if path.suffix.lower() == ".glb" else (_parse(data), None)
        self.views, self.accessors = self._list("bufferViews"), self._list("accessors")
        self.buffers: dict[int, bytes] = {}
        self.meshes: dict[int, tuple[np.ndarray, np.ndarray, Corners | None]] = {}
        self.deformed = self.num_points = 0
        self.materials = None if images is None else GltfMaterials(self, images)
        self.required = set(map(str, self._list("extensionsRequired")))
        for view in self.views:
            compression = next((name for name in _MESHOPT if name in view.get("extensions", {})), None)
            if compression and not self._has_fallback(view, compression):
                raise MeshError(f"is compressed with {compression}, which cannot be decoded; save it uncompressed")
        unknown = [n for n in self._list("extensionsUsed") if n not in _READ and not _NO_GEOMETRY.match(str(n))]
        if unknown:
            named = ", ".join(printable(str(name)[:60]) for name in unknown[:5])
            warnings.warn(f"{path}: uses glTF extensions that are not read: {named}; its geometry may differ",
                          stacklevel=2)  # fmt: skip

    def _list(self, name: str) -> list:
        value = self.tree.get(name, [])
        if not isinstance(value, list):
            raise TypeError(f"{name} is not a list")
        return value

    def _has_fallback(self, view: dict, compression: str) -> bool:
        """True where a file with optional compression stores the uncompressed bytes of a buffer view too."""
        buffers = self._list("buffers")
        number = _index(view.get("buffer", 0), buffers)
        marked = buffers[number].get("extensions", {}).get(compression, {}).get("fallback")
        is_stored = "uri" in buffers[number] or (number == 0 and self.binary is not None)
        return compression not in self.required and is_stored and not (marked and "uri" not in buffers[number])

    def _is_stored(self, number: Any) -> bool:
        """True where an accessor has values of its own, and not only those of a compressed primitive."""
        return bool({"bufferView", "sparse"} & self.accessors[_index(number, self.accessors)].keys())

    def triangles(self) -> tuple[np.ndarray, np.ndarray, Surface | None]:
        """Vertices f64 [V, 3], faces i64 [F, 3] and surface of the whole scene, in its world frame."""
        vertices, faces, count, total = [np.empty((0, 3))], [np.empty((0, 3), np.int64)], 0, 0
        looks: list[Corners] = []
        objects = ObjectNodes()
        for mesh, matrix, extras, name in self._placed():
            points, triangles, look = self._mesh(mesh)
            total += len(triangles) + PLACING
            if max(total, count + len(points)) > self.limit:
                raise MeshError(f"places more than {self.limit} triangles or vertices, the limit for its file size")
            if np.linalg.det(matrix[:3, :3]) < 0:  # reverse corners of mirrored parts, to keep the front outside
                triangles, look = triangles[:, ::-1], look and look.turned()
            vertices.append(points @ matrix[:3, :3].T + matrix[:3, 3])
            faces.append(triangles + count)
            count += len(points)
            if look is not None:
                looks.append(look)
                objects.add(extras, name, len(triangles))
        if self.deformed:
            warnings.warn(f"{self.path}: {self.deformed} of its nodes have skins or morph targets, which are not read; "
                          "their meshes are as they are stored", stacklevel=2)  # fmt: skip
        if self.num_points and not any(map(len, faces)):
            raise MeshError(point_cloud_error(self.num_points))
        surface = None
        if self.materials is not None:
            surface = surface_of(looks, self.materials.materials, self.materials.textures)
            surface = objects.labelled(surface)
        return np.concatenate(vertices), np.concatenate(faces), surface

    def _placed(self) -> Iterator[tuple[int, np.ndarray, Any, str]]:
        """Each mesh in the scene, its transform f64 [4, 4] to the world, extras and name; parents before children.

        A node without extras has those of its parent; one whose name is no object's has its parent's name.
        """
        nodes, scenes = self._list("nodes"), self._list("scenes")
        children = [[_index(child, nodes) for child in node.get("children", [])] for node in nodes]
        check_forest(children)
        if scenes:
            roots = scenes[_index(self.tree.get("scene", 0), scenes)].get("nodes", [])
        else:
            roots = sorted(set(range(len(nodes))) - {child for row in children for child in row})
        waiting = [(_index(root, nodes), np.eye(4), None, "") for root in reversed(roots)]
        if len({root for root, *_ in waiting}) < len(roots):
            raise MeshError("names a root node of its scene twice")
        while waiting:
            number, parent, extras, name = waiting.pop()
            node = nodes[number]
            world, extras = parent @ node_matrix(node), node.get("extras", extras)
            name = node["name"] if NAMED.fullmatch(str(node.get("name", ""))) else name
            waiting += [(child, world, extras, name) for child in reversed(children[number])]
            if "mesh" not in node:
                continue
            mesh = _index(node["mesh"], self._list("meshes"))
            self.deformed += "skin" in node or any(node.get("weights", self.tree["meshes"][mesh].get("weights", ())))
            instances = node.get("extensions", {}).get(_INSTANCING)
            for place in self._instances(instances) if instances else [np.eye(4)]:
                yield mesh, world @ place, extras, name

    def _instances(self, extension: dict) -> Iterator[np.ndarray]:
        """Transform f64 [4, 4] of each instance of a node's mesh."""
        names = {"TRANSLATION": "translation", "ROTATION": "rotation", "SCALE": "scale"}
        columns = {
            names[key]: self.accessor(value, key) for key, value in extension["attributes"].items() if key in names
        }
        if len({len(column) for column in columns.values()}) != 1:
            raise MeshError(f"has {_INSTANCING} with columns of unequal length, or none")
        for row in zip(*columns.values(), strict=True):
            yield node_matrix(dict(zip(columns, row, strict=True)))

    def _mesh(self, number: int) -> tuple[np.ndarray, np.ndarray, Corners | None]:
        """Vertices f64 [V, 3], faces i64 [F, 3] and appearance of a mesh's primitives, cached."""
        if number not in self.meshes:
            vertices, faces, count = [np.empty((0, 3))], [np.empty((0, 3), np.int64)], 0
            looks: list[Corners] = []
            for primitive in self.tree["meshes"][number]["primitives"]:
                if (mode := primitive.get("mode", _TRIANGLES)) < _TRIANGLES:  # points and lines
                    if mode == _POINTS:
                        self.num_points += self.count(primitive["attributes"]["POSITION"])
                    continue
                points, triangles, decoded = self._primitive(primitive)
                if len(triangles) and not 0 <= triangles.min() <= triangles.max() < len(points):
                    worst = triangles.min() if triangles.min() < 0 else triangles.max()
                    raise MeshError(f"has a face with vertex index {worst}, expected 0 to {len(points) - 1}")
                vertices.append(points)
                faces.append(triangles + count)
                count += len(points)
                if self.materials is not None:
                    looks.append(_look(self, self.materials, primitive, triangles, len(points), decoded))
                if max(count, sum(map(len, faces))) > self.limit:
                    raise MeshError(f"holds more than {self.limit} triangles or vertices, the limit for its file size")
            look = None if self.materials is None else Corners.merged(looks)
            self.meshes[number] = np.concatenate(vertices), np.concatenate(faces), look
        return self.meshes[number]

    def _primitive(self, primitive: dict) -> tuple[np.ndarray, np.ndarray, Any]:
        """Vertices, faces, and the decoded Draco primitive, if any."""
        draco = primitive.get("extensions", {}).get(_DRACO)
        parts = [*primitive["attributes"].values(), *([primitive["indices"]] if "indices" in primitive else [])]
        stored = "POSITION" in primitive["attributes"] and all(map(self._is_stored, parts))
        if draco is not None and (_DRACO in self.required or not stored):
            if importlib.util.find_spec("DracoPy") is None:
                raise MeshError(
                    f"is compressed with {_DRACO}, which needs the package DracoPy; install it, or save uncompressed"
                )
            try:
                decoded = importlib.import_module("DracoPy").decode(bytes(self.view(draco["bufferView"])))
            except Exception as error:  # any exception of the decoder
                raise MeshError(f"has {_DRACO} data that cannot be decoded ({error})") from error
            return np.asarray(decoded.points, np.float64), np.asarray(decoded.faces, np.int64), decoded
        points = self.accessor(primitive["attributes"]["POSITION"], "POSITION")
        order = np.arange(len(points))
        if "indices" in primitive:
            order = self.accessor(primitive["indices"], "indices")[:, 0].astype(np.int64)
        return points, _faces(order, primitive.get("mode", _TRIANGLES)), None

    def count(self, number: Any) -> int:
        """Number of elements of an accessor, which are not read."""
        return _size(self.accessors[_index(number, self.accessors)]["count"])

    def accessor(self, number: Any, name: str) -> np.ndarray:
        """Values f64 [count, width] of an accessor; errors contain `name`."""
        accessor = self.accessors[_index(number, self.accessors)]
        kind, width = np.dtype(_COMPONENT[accessor["componentType"]]), _WIDTH[accessor["type"]]
        if width not in _WIDTHS.get(name, (3,)):
            widths = " or ".join(map(str, _WIDTHS.get(name, (3,))))
            raise MeshError(f"stores {name} as {accessor['type']}, expected {widths} numbers per element")
        if accessor.get("normalized") and kind.kind == "f":
            raise MeshError(f"stores {name} as normalized {kind}, expected integers where values are normalized")
        count = _size(accessor["count"])
        if not {"bufferView", "sparse"} & accessor.keys():
            raise MeshError(f"stores {name} in an empty accessor, expected a buffer view or sparse values")
        if count > self.limit:
            raise MeshError(f"has a {name} accessor of {count} elements, expected at most {self.limit} for its size")
        values = np.zeros((count, width))  # where there is no buffer view
        if "bufferView" in accessor:
            values = self._rows(accessor, count, kind, width, name).astype(np.float64)
        if "sparse" in accessor:
            if not {"count", "indices", "values"} <= accessor["sparse"].keys():
                raise MeshError(f"has a sparse {name} accessor without count, indices or values")
            self._put_sparse(accessor["sparse"], kind, name, values)
        if (accessor.get("normalized") or name == "COLOR_0") and kind.kind in "iu":
            values = np.maximum(values / np.iinfo(kind).max, -1.0)
        return values

    def _rows(self, place: dict, count: int, kind: np.dtype, width: int, name: str) -> np.ndarray:
        """Elements [count, width] of a buffer view, from `byteOffset` of `place` on; errors contain `name`."""
        view, size = self.view(place["bufferView"]), kind.itemsize * width
        stride = _size(self.views[place["bufferView"]].get("byteStride", size))
        if stride < size:
            raise MeshError(f"has a {name} accessor of stride {stride}, expected {size} or more")
        begin = _size(place.get("byteOffset", 0))
        needed = begin + (count - 1) * stride + size if count else 0
        if needed > len(view):
            raise MeshError(f"has a {name} accessor of {needed} bytes in a buffer view of {len(view)}")
        if not count:
            return np.empty((0, width), kind)
        return np.ndarray((count, width), kind, view, begin, (stride, kind.itemsize))

    def _put_sparse(self, sparse: dict, kind: np.dtype, name: str, values_out: np.ndarray) -> None:
        """Replace the elements f64 [count, width] that a sparse accessor lists."""
        count, where = _size(sparse["count"]), sparse["indices"]
        if count > len(values_out):
            raise MeshError(f"has a sparse {name} accessor with {count} of {len(values_out)} elements")
        index = np.dtype(_COMPONENT[where["componentType"]])
        if index.kind != "u":
            raise MeshError(f"has a sparse {name} accessor with indices of {index}, expected unsigned integers")
        rows = self._rows(where, count, index, 1, f"sparse {name}")[:, 0].astype(np.int64)
        if count and rows.max() >= len(values_out):
            raise MeshError(f"has a sparse {name} accessor with index {rows.max()} of {len(values_out)}")
        values_out[rows] = self._rows(sparse["values"], count, kind, values_out.shape[1], f"sparse {name}")

    def view(self, number: Any) -> memoryview:
        """Bytes of a buffer view."""
        view = self.views[_index(number, self.views)]
        buffer = self._buffer(_index(view.get("buffer", 0), self._list("buffers")))
        begin, length = _size(view.get("byteOffset", 0)), _size(view["byteLength"])
        if begin + length > len(buffer):
            raise MeshError(f"is truncated: a buffer view ends at byte {begin + length} of {len(buffer)}")
        return memoryview(buffer)[begin : begin + length]

    def _buffer(self, number: int) -> bytes:
        """Bytes of a buffer: the GLB's binary chunk, a data URI, or a file in the data root."""
        if number not in self.buffers:
            uri = self.tree["buffers"][number].get("uri")
            if uri is None:
                if self.binary is None or number:
                    raise MeshError(f"buffer {number} has no data")
                self.buffers[number] = self.binary
            elif uri.startswith("data:"):
                self.buffers[number] = base64.b64decode(uri.partition(",")[2])
            else:
                try:
                    self.buffers[number] = read_named_file(self.path, urllib.parse.unquote(uri), MeshError)
                except MeshError as error:
                    raise MeshError(f"buffer {number} {error}") from error
        return self.buffers[number]


def _look(
    document: _Document, materials: GltfMaterials, primitive: dict, faces: np.ndarray, num_points: int, decoded: Any
) -> Corners:
    """Material, UVs and colours of a primitive's triangles; invalid attributes are skipped and noted."""
    row, matrix = materials.use(primitive.get("material"))
    found: dict[str, np.ndarray | None] = {"TEXCOORD_0": None, "COLOR_0": None}
    for name, kept in zip(found, ("tex_coord", "colors"), strict=True):
        if name not in primitive["attributes"]:
            continue
        try:
            values = getattr(decoded, kept, None)
            count = document.count(primitive["attributes"][name]) if values is None else len(values)
            if count != num_points:
                raise MeshError(f"has {count} {name} for {num_points} vertices")
            if values is None:
                values = document.accessor(primitive["attributes"][name], name)
            elif np.asarray(values).dtype == np.uint8:
                values = np.asarray(values) / 255.0
            found[name] = np.asarray(values, np.float64)
        except (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError, MeshError) as error:
            materials.note(f"attribute {name} ({type(error).__name__}: {error})")
    uv = found["TEXCOORD_0"]
    if matrix is not None:
        uv = (np.zeros((num_points, 2)) if uv is None else uv) @ matrix[:, :2].T + matrix[:, 2]
    return corners_of(faces, row, uv, found["COLOR_0"])


def _chunks(data: bytes) -> tuple[dict, bytes | None]:
    """JSON chunk and binary chunk of a GLB file."""
    if len(data) < 20:
        raise MeshError(f"is truncated: {len(data)} bytes, expected a GLB header of 20")
    magic, version, length, json_length, kind = struct.unpack_from("<5I", data)
    if magic != _GLB_MAGIC or kind != _JSON_CHUNK:
        raise MeshError("is not a GLB file, expected one of version 2")
    if version != 2:
        raise MeshError(f"is a GLB file of version {version}, expected version 2")
    if length > len(data) or 20 + json_length > length:
        raise MeshError(f"is truncated: {len(data)} bytes, expected {max(length, 20 + json_length)}")
    tree, begin = _parse(data[20 : 20 + json_length]), 20 + json_length
    if length < begin + 8:
        return tree, None
    size, kind = struct.unpack_from("<2I", data, begin)
    if kind != _BINARY_CHUNK or begin + 8 + size > length:
        raise MeshError(f"is truncated: {length} bytes, expected a binary chunk of {size} from {begin + 8} on")
    return tree, data[begin + 8 : begin + 8 + size]


def _parse(text: bytes) -> dict:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MeshError(f"has invalid JSON ({error})") from error
    if not isinstance(tree, dict):
        raise MeshError(f"has JSON of type {type(tree).__name__}, expected an object")
    return tree


def _size(value: Any) -> int:
    """A count of bytes or elements, checked. ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
        raise ValueError(f"found {str(value)[:20]}, expected a whole number")
    return value


def _index(value: Any, rows: list) -> int:
    """An index of `rows`, checked. IndexError or ValueError for anything else."""
    if _size(value) >= len(rows):
        raise IndexError(f"index {value} of {len(rows)}")
    return value


def _faces(order: np.ndarray, mode: int) -> np.ndarray:
    """Faces i64 [F, 3] of a triangle list, strip or fan with vertices i64 [n]."""
    if mode == _TRIANGLES:
        return order[: len(order) // 3 * 3].reshape(-1, 3)
    number = max(len(order) - 2, 0)
    first = np.arange(number)
    if mode == _STRIP:  # every second triangle is reversed
        odd = first % 2
        return np.stack([order[first], order[first + 1 + odd], order[first + 2 - odd]], axis=1)
    if mode == _FAN:
        return np.stack([order[first + 1], order[first + 2], np.broadcast_to(order[:1], number)], axis=1)
    raise MeshError(f"has a primitive of mode {mode}, expected 0 to 6")
