"""Scenes as GLB files with a named node for each object: for Blender, trimesh, and `batchnav.load_scene`.

    node        named category_instance, with the extras `category` and `instance`; in the scene's frame, +Y up, metres
    mesh        a primitive for each material; vertices with equal position, UV and colour are stored once
    material    base colour factor and texture, unlit and two-sided, as sensors see them
    texture     PNG or JPEG, with the sampler's wrap modes and filters

Triangles and their appearance read back equal, grouped by object. Ids that vary within a triangle are those of its
centroid. Ids in a mesh of their own (`Scene.semantic`) are not exported.
"""

from __future__ import annotations

import io
import json
import math
import struct
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from batchnav.envs.config import NavConfig
from batchnav.errors import ArgumentError, MeshError
from batchnav.runtime.files import replacing
from batchnav.scene.blocks import pixels_of
from batchnav.scene.gltf import MAGNIFY, MINIFY, WRAP
from batchnav.scene.surface import PLAIN
from batchnav.sensors.camera import MAIN, CameraConfig
from batchnav.types import Surface, Texture, TriangleMesh

_FLOAT, _UNSIGNED, _BYTE = 5126, 5125, 5121
_VERTICES, _INDICES = 34962, 34963
"""Targets of buffer views."""
_UNLIT = "KHR_materials_unlit"
_LARGEST = 2**32 - 1
"""Largest size of a GLB file, bytes."""


def save_glb(mesh: TriangleMesh, path: str | Path, jpeg_quality: int | None = None) -> int:
    """Write a mesh with its surface and its objects. Returns the number of nodes. MeshError where writing fails.

    `jpeg_quality`: write textures as JPEG files of this quality, without alpha, which takes a tenth of the space; None:
    as PNG files, which read back equal.
    """
    path = Path(path)
    if path.suffix.lower() != ".glb":
        raise MeshError(f"{path}: found suffix {path.suffix!r}, expected .glb")
    file = _File(mesh, jpeg_quality)
    data = file.content()
    if len(data) > _LARGEST:
        raise MeshError(f"{path}: needs {len(data)} bytes, a GLB file has {_LARGEST} at most; export smaller textures")
    with replacing(path, MeshError) as part:
        part.write_bytes(data)
    return len(file.tree["nodes"])


class _File:
    """A glTF document in the making: its JSON, and the binary chunk."""

    def __init__(self, mesh: TriangleMesh, jpeg_quality: int | None = None):
        self.mesh, self._quality = mesh, jpeg_quality
        self.surface = mesh.surface or Surface(np.zeros(len(mesh.faces), np.int32), (PLAIN,))
        self.chunk = bytearray()
        self.tree: dict[str, Any] = {
            "asset": {"version": "2.0", "generator": "batchnav"}, "scene": 0, "scenes": [{}],
            "extensionsUsed": [_UNLIT], "nodes": [], "meshes": [], "accessors": [], "bufferViews": [],
            "materials": [self._material(row) for row in range(len(self.surface.materials))],
        }  # fmt: skip
        self._add_textures()
        for instance, category, faces in self._objects():
            self._add_node(instance, category, faces)
        self.tree["scenes"][0]["nodes"] = list(range(len(self.tree["nodes"])))
        self.tree["buffers"] = [{"byteLength": len(self.chunk)}]

    def content(self) -> bytes:
        """The bytes of the GLB file."""
        text = json.dumps(self.tree, separators=(",", ":"), allow_nan=False).encode()
        text += b" " * (-len(text) % 4)
        length = 12 + 8 + len(text) + 8 + len(self.chunk)
        head = struct.pack("<5I", 0x46546C67, 2, length & _LARGEST, len(text), 0x4E4F534A)
        return b"".join([head, text, struct.pack("<2I", len(self.chunk) & _LARGEST, 0x004E4942), self.chunk])

    def _objects(self) -> Iterator[tuple[int, str, np.ndarray]]:
        """Object id, category and face indices of each object, by object id."""
        surface, count = self.surface, len(self.mesh.faces)
        instance = np.zeros(count, np.int32) if surface.object_id is None else surface.object_id
        category = np.zeros(count, np.int32) if surface.category is None else surface.category
        order = np.lexsort((surface.material, category, instance))
        keys = np.stack([instance, category], axis=1)[order]
        for faces in np.split(order, np.flatnonzero((np.diff(keys, axis=0) != 0).any(1)) + 1):
            name = surface.categories[category[faces[0]]] if surface.category is not None else ""
            yield int(instance[faces[0]]), name, faces

    def _add_node(self, instance: int, category: str, faces: np.ndarray) -> None:
        """Add the node and the mesh of an object; `faces` are sorted by material."""
        rows = self.surface.material[faces]
        parts = np.split(faces, np.flatnonzero(np.diff(rows)) + 1)
        name = f"{category or 'object'}_{instance}"
        node = {"name": name, "mesh": len(self.tree["meshes"]), "extras": {"category": category, "instance": instance}}
        if any(self.mesh.origin):
            node["translation"] = list(self.mesh.origin)
        self.tree["nodes"].append(node)
        self.tree["meshes"].append({"name": name, "primitives": [self._primitive(part) for part in parts]})

    def _primitive(self, faces: np.ndarray) -> dict[str, Any]:
        """The primitive of triangles with one material."""
        surface, row = self.surface, int(self.surface.material[faces[0]])
        columns = {"POSITION": self.mesh.vertices[self.mesh.faces[faces]].reshape(-1, 3)}
        if surface.uv is not None and surface.materials[row].texture >= 0:
            columns["TEXCOORD_0"] = surface.uv[faces].reshape(-1, 2)
        if surface.color is not None and (surface.color[faces] != 255).any():
            columns["COLOR_0"] = surface.color[faces].reshape(-1, 4)
        rows = np.concatenate([np.ascontiguousarray(column).view(np.uint8) for column in columns.values()], axis=1)
        whole = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1])))[:, 0]
        _, kept, index = np.unique(whole, return_index=True, return_inverse=True)
        attributes = {name: self._accessor(column[kept], _VERTICES) for name, column in columns.items()}
        position = columns["POSITION"][kept]
        bounds = {"min": position.min(0).tolist(), "max": position.max(0).tolist()}
        self.tree["accessors"][attributes["POSITION"]] |= bounds
        indices = self._accessor(index.reshape(-1).astype(np.uint32), _INDICES)
        return {"attributes": attributes, "indices": indices, "material": row}

    def _accessor(self, values: np.ndarray, target: int) -> int:
        """Row of a new accessor of f32, u32 or normalized u8 values."""
        kind = {"f": _FLOAT, "u": _UNSIGNED if values.itemsize == 4 else _BYTE}[values.dtype.kind]
        width = 1 if values.ndim == 1 else values.shape[1]
        accessor = {
            "bufferView": self._view(np.ascontiguousarray(values).tobytes(), target), "componentType": kind,
            "count": len(values), "type": "SCALAR" if width == 1 else f"VEC{width}",
        }  # fmt: skip
        if kind == _BYTE:
            accessor["normalized"] = True
        self.tree["accessors"].append(accessor)
        return len(self.tree["accessors"]) - 1

    def _view(self, data: bytes, target: int | None = None) -> int:
        """Row of a new buffer view, aligned to 4 bytes."""
        view = {"buffer": 0, "byteOffset": len(self.chunk), "byteLength": len(data)}
        if target is not None:
            view["target"] = target
        self.chunk += data + b"\0" * (-len(data) % 4)
        self.tree["bufferViews"].append(view)
        return len(self.tree["bufferViews"]) - 1

    def _material(self, row: int) -> dict[str, Any]:
        material = self.surface.materials[row]
        base: dict[str, Any] = {"baseColorFactor": list(material.color), "metallicFactor": 0.0, "roughnessFactor": 1.0}
        if material.texture >= 0:
            base["baseColorTexture"] = {"index": material.texture}
        return {
            "name": f"material_{row}", "pbrMetallicRoughness": base, "doubleSided": True, "extensions": {_UNLIT: {}},
        }  # fmt: skip

    def _add_textures(self) -> None:
        """Add images, samplers and textures; pixels that several textures share are stored once."""
        if not self.surface.textures:
            return
        pictures: dict[int, int] = {}
        samplers: dict[tuple, int] = {}
        images: list[dict[str, Any]] = []
        textures: list[dict[str, int]] = []
        for texture in self.surface.textures:
            if id(texture.pixels) not in pictures:
                pictures[id(texture.pixels)] = len(images)
                data, kind = _image(pixels_of(texture), self._quality)
                images.append({"bufferView": self._view(data), "mimeType": kind})
            sampler = samplers.setdefault(texture[1:], len(samplers))
            textures.append({"source": pictures[id(texture.pixels)], "sampler": sampler})
        settings = [_sampler(Texture(np.empty(0), *key)) for key in samplers]
        self.tree |= {"images": images, "samplers": settings, "textures": textures}


def _sampler(texture: Texture) -> dict[str, int]:
    """The glTF sampler of a texture's settings."""
    codes = [{name: code for code, name in table.items()} for table in (WRAP, WRAP, MAGNIFY, MINIFY)]
    values = (*texture.wrap, texture.magnify, texture.minify)
    names = ("wrapS", "wrapT", "magFilter", "minFilter")
    return {name: code[value] for name, code, value in zip(names, codes, values, strict=True)}


def _image(pixels: np.ndarray, jpeg_quality: int | None) -> tuple[bytes, str]:
    """An image file of RGBA pixels, without alpha where all are opaque, and its type."""
    opaque = jpeg_quality is not None or bool((pixels[..., 3] == 255).all())
    data, image = io.BytesIO(), Image.fromarray(np.ascontiguousarray(pixels[..., :3] if opaque else pixels))
    if jpeg_quality is None:
        image.save(data, "PNG")
    else:
        image.save(data, "JPEG", quality=jpeg_quality)
    return data.getvalue(), "image/png" if jpeg_quality is None else "image/jpeg"


# URDF of an agent's body: a cylinder that stands on the floor, and a link for each camera.
#
# Links and axes are those of ROS: base_link is on the floor at the agent's position, x forward, y left, z up. A
# camera's NAME_link looks along its x; NAME_optical_frame has z forward, x right, y down (REP 103). The main camera's
# NAME is "camera".

_OPTICAL = (-math.pi / 2, 0.0, -math.pi / 2)
"""Roll, pitch and yaw of an optical frame in its camera's frame, radians."""


def body_urdf(config: NavConfig) -> str:
    """The URDF of the body and the cameras of a configuration."""
    body, robot = config.body, ET.Element("robot", name="batchnav_body")
    base = ET.SubElement(robot, "link", name="base_link")
    for kind in ("visual", "collision"):
        part = ET.SubElement(base, kind)
        ET.SubElement(part, "origin", xyz=_listed(0.0, 0.0, body.agent_height / 2), rpy=_listed(0.0, 0.0, 0.0))
        cylinder = {"radius": _listed(body.agent_radius), "length": _listed(body.agent_height)}
        ET.SubElement(ET.SubElement(part, "geometry"), "cylinder", cylinder)
    for name, camera in config.all_cameras.items():
        _add_camera(robot, "camera" if name == MAIN else name, camera)
    ET.indent(robot)
    return '<?xml version="1.0"?>\n' + ET.tostring(robot, encoding="unicode") + "\n"


def save_urdf(config: NavConfig, path: str | Path) -> None:
    """Write `body_urdf` to a file. ArgumentError where that fails."""
    path = Path(path)
    if path.suffix.lower() != ".urdf":
        raise ArgumentError(f"{path}: found suffix {path.suffix!r}, expected .urdf")
    with replacing(path, ArgumentError) as part:
        part.write_text(body_urdf(config), encoding="utf-8")


def _add_camera(robot: ET.Element, name: str, camera: CameraConfig) -> None:
    """Add a camera's link, its optical frame, and their joints."""
    heading, pitch = math.radians(camera.camera_heading_deg), math.radians(camera.camera_pitch_deg)
    place = camera.camera_forward, camera.camera_left, camera.camera_height
    frames = (
        ("base_link", f"{name}_link", place, (0.0, -pitch, heading)),  # a positive pitch of URDF looks down
        (f"{name}_link", f"{name}_optical_frame", (0.0, 0.0, 0.0), _OPTICAL),
    )
    for parent, child, xyz, rpy in frames:
        ET.SubElement(robot, "link", name=child)
        joint = ET.SubElement(robot, "joint", name=f"{child}_joint", type="fixed")
        ET.SubElement(joint, "parent", link=parent)
        ET.SubElement(joint, "child", link=child)
        ET.SubElement(joint, "origin", xyz=_listed(*xyz), rpy=_listed(*rpy))


def _listed(*values: float) -> str:
    return " ".join(f"{value + 0.0:.9g}" for value in values)
