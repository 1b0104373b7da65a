"""Prepared scenes: mesh, tree and navmesh of one scene in one file that is mapped into memory, not read.

The file is a safetensors file (a header of JSON, then plain arrays) with these arrays:

    vertices f32 [V, 3]   faces i32 [F, 3]      the mesh
    nodes f32 [M, 16]     triangles f32 [F, 12] order i32 [F]     its tree, see scene/bvh.py
    navmesh u8 [B]                              Habitat's `.navmesh` file

Its metadata hold a check sum of each array, the version of the tree's layout, and a fingerprint of what the scene was
made from: its files' sizes and dates, their places, and this package's sources that make navmeshes and trees.
"""

from __future__ import annotations

import functools
import hashlib
import json
import zlib
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from batchnav.data.source import SceneSource
from batchnav.errors import MeshError
from batchnav.geometry import triangle
from batchnav.navmesh import file as navmesh_file
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.files import replacing, safetensors_bytes
from batchnav.scene import bvh
from batchnav.scene.bvh import BVH
from batchnav.scene.checks import check_scene_arrays
from batchnav.scene.scene import Scene, baker_version, is_baked_for
from batchnav.types import TriangleMesh

SUFFIX = ".scene"
_KIND = "batchnav scene 1"
_ARRAYS = {
    "vertices": ("float32", 3), "faces": ("int32", 3), "nodes": ("float32", 16), "triangles": ("float32", 12),
    "order": ("int32", None), "navmesh": ("uint8", None),
}  # fmt: skip
"""Type and row length of each array; None: it has one dimension."""


def save_prepared(scene: Scene, path: str | Path, made_from: str = "") -> None:
    """Write a prepared scene: the whole file or none, the same bytes for the same scene. MeshError where it fails.

    `made_from` is a `fingerprint`.
    """
    arrays = {
        "vertices": scene.mesh.vertices, "faces": scene.mesh.faces, "nodes": scene.bvh.nodes,
        "triangles": scene.bvh.triangles, "order": scene.bvh.order,
        "navmesh": np.frombuffer(bytearray(navmesh_file.serialise(scene.navmesh.file)), np.uint8),
    }  # fmt: skip
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    sums = {name: zlib.crc32(array) for name, array in arrays.items()}
    metadata = {
        "kind": _KIND, "name": scene.name, "made_from": made_from, "dropped": str(scene.mesh.num_dropped),
        "sums": json.dumps(sums), "tree": _tree_version(),
    }  # fmt: skip
    with replacing(Path(path), MeshError) as part:
        part.write_bytes(safetensors_bytes(arrays, metadata))


def load_prepared(path: str | Path) -> Scene:
    """A prepared scene; its arrays are the file's pages. MeshError where the file is damaged or of another kind."""
    path = Path(path)
    if not path.is_file():  # a pipe would be waited for
        raise MeshError(f"{path}: cannot be read: found no such file")
    try:
        # torch maps the file; NumPy's reader would copy it.
        with safe_open(path, framework="pt") as file:
            metadata = _metadata(file, path)
            arrays = {name: file.get_tensor(name).numpy() for name in _ARRAYS}
        sums = json.loads(metadata["sums"])
        for key, (kind, width) in _ARRAYS.items():
            array = arrays[key]
            if array.dtype != kind or array.shape[1:] != (() if width is None else (width,)):
                raise MeshError(f"{path}: array {key!r}: found {array.dtype} {list(array.shape)}, expected {kind}")
            if zlib.crc32(array) != sums[key]:
                raise MeshError(f"{path}: array {key!r} is damaged: its check sum differs; prepare the scene again")
        name, dropped = metadata["name"], int(metadata["dropped"])
        if dropped < 0:
            raise ValueError(f"{dropped} triangles dropped")
    except OSError as error:
        raise MeshError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (SafetensorError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise MeshError(f"{path}: is not a prepared scene ({error}); prepare it again") from error
    mesh = TriangleMesh(arrays["vertices"], arrays["faces"], dropped)
    bvh = BVH(arrays["nodes"], arrays["triangles"], arrays["order"])
    check_scene_arrays(mesh, bvh, str(path))
    return Scene(name, mesh, NavMesh(navmesh_file.parse(arrays["navmesh"].tobytes(), str(path))), bvh)


def load_source(source: SceneSource, settings: NavMeshSettings | None = None) -> Scene:
    """A scene from its prepared file where that is up to date, else from its sources. MeshError, NavMeshError.

    With `settings`, for their body: where the prepared navmesh was baked for another, the sources are read, and one is
    baked; a navmesh file among them is refused (`SceneSource.load_navmesh`).
    """
    if made_from(source.prepared) == fingerprint(source):
        scene = load_prepared(source.prepared)._replace(name=source.name)
        if settings is None or is_baked_for(scene.navmesh, settings):
            return scene
    return source.load(settings)


def made_from(path: Path) -> str | None:
    """The fingerprint of what a prepared scene was made from; None where there is no such file."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            return _metadata(file, path).get("made_from")
    except (OSError, SafetensorError, MeshError):
        return None


def fingerprint(source: SceneSource) -> str:
    """What a scene would be made from: its files as they lie there, their places, and our own sources."""
    parts = [(part.asset, part.linear.tolist(), part.translation.tolist(), part.at_centre) for part in source.parts]
    digest = hashlib.sha256(f"{baker_version()} {_tree_version()} {parts}".encode())
    for file in source.files:
        state = file.stat() if file.is_file() else None
        digest.update(f"{file.name} {state and (state.st_size, state.st_mtime_ns)}\n".encode())
    return digest.hexdigest()


def _metadata(file, path: Path) -> dict[str, str]:
    metadata = file.metadata() or {}
    if metadata.get("kind") != _KIND:
        raise MeshError(f"{path}: found a file of kind {metadata.get('kind')!r}, expected {_KIND!r}; prepare it again")
    if metadata.get("tree") != _tree_version():
        raise MeshError(f"{path}: was prepared by another version of batchnav; prepare it again")
    return metadata


@functools.cache
def _tree_version() -> str:
    """A hash of the sources that say what the rows of a tree mean."""
    sources = [Path(module.__file__).read_bytes() for module in (bvh, triangle)]
    return hashlib.sha256(b"".join(sources)).hexdigest()[:16]
