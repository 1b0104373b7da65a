"""Mesh files with materials, made here."""

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
