"""Mesh files with materials, made in code."""

import io
import json
import struct

import numpy as np
from PIL import Image

PICTURE = np.random.default_rng(3).integers(0, 256, (6, 10, 4), np.uint8)
"""RGBA."""
UV = np.float32([[0, 0], [1, 0], [1, 1], [0, 1]])
CORNERS = np.float32([[0, 1, 0], [1, 1, 0], [1, 0, 0], [0, 0, 0]])
"""Of a square from the front, as UV: the picture stands upright on it."""


def glb(tree: dict, binary: bytes = b"") -> bytes:
    """A GLB file of this JSON and binary chunk."""
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    binary += b"\0" * (-len(binary) % 4)
    chunks = struct.pack("<2I", len(text), 0x4E4F534A) + text + struct.pack("<2I", len(binary), 0x004E4942) + binary
    return struct.pack("<3I", 0x46546C67, 2, 12 + len(chunks)) + chunks


def picture(pixels=PICTURE, form="PNG", mode=None):
    """An image file."""
    image, data = Image.fromarray(pixels), io.BytesIO()
    (image.convert(mode) if mode else image).save(data, form)
    return data.getvalue()


def ktx2(colors, width=None, height=None, levels=1):
    """A KTX 2 file of Basis Universal (UASTC): blocks of 4x4 pixels of one colour each, from u8 [rows, columns, 4].

    Of a smaller level every second block is taken. Layout: KTX 2.0 and the Basis Universal UASTC specification, mode 8.
    """
    rows, columns = colors.shape[:2]
    basic = struct.pack("<2I4B4B8B", 0, 2 | 40 << 16, 166, 1, 2, 0, 3, 3, 0, 0, 16, *[0] * 7)
    sample = struct.pack("<H2B4B2I", 0, 127, 3, 0, 0, 0, 0, 0, 2**32 - 1)
    description = struct.pack("<I", 4 + len(basic) + len(sample)) + basic + sample
    parts = []
    for level in range(levels):
        chosen = colors[:: 2**level, :: 2**level].reshape(-1, 4)
        parts.append(b"".join((23 | int.from_bytes(c.tobytes(), "little") << 5).to_bytes(16, "little") for c in chosen))
    begin = 80 + 24 * levels
    data = -(-(begin + len(description)) // 16) * 16
    header = struct.pack("<9I", 0, 1, width or 4 * columns, height or 4 * rows, 0, 0, 1, levels, 0)
    header += struct.pack("<4I2Q", begin, len(description), 0, 0, 0, 0)
    index, end = b"", data + sum(map(len, parts))
    for part in parts:  # the largest level comes first in the index and last in the file
        end -= len(part)
        index += struct.pack("<3Q", end, len(part), len(part))
    whole = b"\xabKTX 20\xbb\r\n\x1a\n" + header + index + description
    return whole.ljust(data, b"\0") + b"".join(reversed(parts))


def triangle_tree(**changes) -> tuple[dict, bytes]:
    """glTF of one triangle; `changes` replace its top-level entries."""
    corners, indices = np.float32([[0, 0, 0], [1, 0, 0], [0, 1, 0]]), np.uint16([0, 1, 2])
    data = corners.tobytes() + indices.tobytes()
    tree = {
        "asset": {"version": "2.0"}, "scene": 0, "scenes": [{"nodes": [0]}], "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "indices": 1}]}],
        "accessors": [
            {"bufferView": 0, "componentType": 5126, "count": 3, "type": "VEC3"},
            {"bufferView": 1, "componentType": 5123, "count": 3, "type": "SCALAR"},
        ],
        "bufferViews": [
            {"buffer": 0, "byteOffset": 0, "byteLength": 36}, {"buffer": 0, "byteOffset": 36, "byteLength": 6},
        ],
        "buffers": [{"byteLength": len(data)}],
    }  # fmt: skip
    return {**tree, **changes}, data


def compressed(name):
    """A GLB that says that it is compressed with an extension, but holds nothing of the kind."""
    tree, data = triangle_tree()
    tree["extensionsRequired"] = tree["extensionsUsed"] = [name]
    if "draco" in name:
        tree["meshes"][0]["primitives"][0]["extensions"] = {name: {"bufferView": 0, "attributes": {"POSITION": 0}}}
    else:
        tree["bufferViews"][0]["extensions"] = {name: {"buffer": 0, "byteLength": 36, "byteStride": 12, "count": 3}}
    return glb(tree, data)


def written(tmp_path, name, data):
    """Write a file; returns its path."""
    path = tmp_path / name
    path.write_bytes(data)
    return path


class Gltf:
    """A square of one material. `tree` may be edited before `data` is asked for."""

    def __init__(self, image=None, material=None, **columns):
        self.binary, self.columns = b"", {"POSITION": CORNERS, "TEXCOORD_0": UV, **columns}
        self.tree = {
            "asset": {"version": "2.0"}, "scene": 0, "scenes": [{"nodes": [0]}], "nodes": [{"mesh": 0}],
            "accessors": [], "bufferViews": [],
        }  # fmt: skip
        attributes = {name: self._accessor(values) for name, values in self.columns.items() if values is not None}
        indices = self._accessor(np.uint16([[0], [3], [2], [0], [2], [1]]))
        self.primitive = {"attributes": attributes, "indices": indices, "material": 0}
        self.tree["meshes"] = [{"primitives": [self.primitive]}]
        self.base = {"baseColorTexture": {"index": 0}} if image is not None else {}
        self.tree["materials"] = [{"pbrMetallicRoughness": self.base, **(material or {})}]
        if image is not None:
            self.tree |= {"textures": [{"source": 0}], "images": [{"bufferView": self._view(image)}]}

    def _view(self, data):
        self.tree["bufferViews"].append({"buffer": 0, "byteOffset": len(self.binary), "byteLength": len(data)})
        self.binary += data + b"\0" * (-len(data) % 4)
        return len(self.tree["bufferViews"]) - 1

    def _accessor(self, values):
        kinds = {"i1": 5120, "u1": 5121, "i2": 5122, "u2": 5123, "u4": 5125, "f4": 5126}
        self.tree["accessors"].append({
            "bufferView": self._view(values.tobytes()), "componentType": kinds[values.dtype.str[1:]],
            "count": len(values), "type": ("SCALAR", "VEC2", "VEC3", "VEC4")[values.shape[1] - 1],
            "normalized": values.dtype.kind in "iu" and values.shape[1] > 1,
        })  # fmt: skip
        return len(self.tree["accessors"]) - 1

    def data(self):
        """The GLB file."""
        return glb({**self.tree, "buffers": [{"byteLength": len(self.binary)}]}, self.binary)


def by_corner(mesh, values):
    """Corners' values as a dict by the vertex's place."""
    places = mesh.vertices[mesh.faces]
    return {tuple(p): v.tolist() for p, v in zip(places.reshape(-1, 3), values.reshape(-1, values.shape[-1]))}  # noqa: B905
