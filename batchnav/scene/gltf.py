"""What has to hold of a glTF file before its geometry is decoded.

Nothing compressed in a way that would be misread, no truncated or lying sizes: trimesh reads placeholders of zeros in
such cases, or allocates what a header claims.
"""

from __future__ import annotations

import importlib.util
import json
import struct

from batchnav.errors import MeshError

_GLB_MAGIC, _JSON_CHUNK = 0x46546C67, 0x4E4F534A
_MESHOPT = ("EXT_meshopt_compression", "KHR_meshopt_compression")
_DRACO = "KHR_draco_mesh_compression"
_COMPONENT_BYTES = {5120: 1, 5121: 1, 5122: 2, 5123: 2, 5125: 4, 5126: 4}
_COMPONENTS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT2": 4, "MAT3": 9, "MAT4": 16}


def check_gltf(data: bytes, binary: bool) -> None:
    """MeshError where the geometry of a .glb (`binary`) or .gltf file could not be decoded faithfully."""
    tree = _glb_json(data) if binary else _parse(data)
    try:
        _check_tree(tree)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise MeshError(f"is not valid glTF ({type(error).__name__}: {error})") from error


def _glb_json(data: bytes) -> dict:
    if len(data) < 20:
        raise MeshError(f"is truncated: {len(data)} bytes, expected a GLB header of 20")
    magic, version, length, json_length, kind = struct.unpack_from("<5I", data)
    if magic != _GLB_MAGIC or kind != _JSON_CHUNK or version != 2:
        raise MeshError("is not a GLB file of version 2")
    if length > len(data) or 20 + json_length > length:
        raise MeshError(f"is truncated: {len(data)} bytes, expected {max(length, 20 + json_length)}")
    return _parse(data[20 : 20 + json_length])


def _parse(text: bytes) -> dict:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MeshError(f"holds no valid JSON ({error})") from error
    if not isinstance(tree, dict):
        raise MeshError(f"holds JSON of type {type(tree).__name__}, expected an object")
    return tree


def _check_tree(tree: dict) -> None:
    views, accessors = tree.get("bufferViews", []), tree.get("accessors", [])
    for view in views:
        compression = next((name for name in _MESHOPT if name in view.get("extensions", {})), None)
        if compression:
            raise MeshError(f"is compressed with {compression}, which cannot be decoded; save it uncompressed")
    for mesh in tree.get("meshes", []):
        for primitive in mesh["primitives"]:
            draco = _DRACO in primitive.get("extensions", {})
            if draco and importlib.util.find_spec("DracoPy") is None:
                raise MeshError(
                    f"is compressed with {_DRACO}, which needs the package DracoPy; or save it uncompressed"
                )
            if primitive.get("mode", 4) >= 4 and not draco:
                _check_accessor(accessors[primitive["attributes"]["POSITION"]], views, "POSITION")
                if "indices" in primitive:
                    _check_accessor(accessors[primitive["indices"]], views, "indices")
    for accessor in accessors:
        if "bufferView" not in accessor and accessor["count"] > 2**27:
            raise MeshError(f"has an accessor of {accessor['count']} elements and no data")
    _check_nodes(tree.get("nodes", []))


def _check_accessor(accessor: dict, views: list, name: str) -> None:
    if "sparse" in accessor or "bufferView" not in accessor:
        raise MeshError(f"stores {name} in a sparse or empty accessor, which is not supported")
    if name == "POSITION" and accessor.get("normalized"):
        raise MeshError("stores POSITION as normalized integers (KHR_mesh_quantization), which is not supported")
    view, count = views[accessor["bufferView"]], accessor["count"]
    size = _COMPONENT_BYTES[accessor["componentType"]] * _COMPONENTS[accessor["type"]]
    stride = view.get("byteStride", size)
    needed = accessor.get("byteOffset", 0) + (count - 1) * stride + size if count else 0
    if count < 0 or needed > view["byteLength"]:
        raise MeshError(f"has a {name} accessor of {needed} bytes in a buffer view of {view['byteLength']}")


def _check_nodes(nodes: list) -> None:
    """The scene graph is a forest: a node has one parent, so that walking it ends."""
    parent = [-1] * len(nodes)
    for i, node in enumerate(nodes):
        for child in node.get("children", []):
            if parent[child] >= 0:
                raise MeshError(f"node {child} has two parents in the scene graph")
            parent[child] = i
    for i in range(len(nodes)):
        steps, up = 0, i
        while up >= 0 and steps <= len(nodes):
            steps, up = steps + 1, parent[up]
        if up >= 0:
            raise MeshError(f"node {i} is its own ancestor in the scene graph")
