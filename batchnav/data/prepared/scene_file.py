"""File format of prepared scenes: mesh, BVH and navmesh of one scene in one memory-mapped file.

The file is a safetensors file (a JSON header, then plain arrays) with these arrays:

    vertices f32 [V, 3]   faces i32 [F, 3]      the mesh
    nodes f32 [M, 16]     triangles f32 [F, 12] order i32 [F]     its BVH (scene/bvh.py)
    navmesh u8 [B]                              Habitat's `.navmesh` file

and the arrays of `types.Surface`, where the mesh has a surface; the metadata field "surface" holds materials, samplers
and category names:

    material i32 [F]      uv f32 [F, 3, 2]      color u8 [F, 3, 4]
    object_id i32 [F]     category i32 [F]      finish i32 [M, 4]
    texture_0, texture_1 ... u8 [h, w, 4]

The metadata hold a checksum of each array, the version of the BVH's layout, and a fingerprint of the scene's source:
sizes, dates and places of its files, and the source code that bakes navmeshes and builds BVHs.
"""

from __future__ import annotations

import functools
import hashlib
import json
import zlib
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from batchnav.data.sources.scene_source import SceneSource
from batchnav.errors import MeshError
from batchnav.geometry import triangle
from batchnav.navmesh import file as navmesh_file
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.files.atomic import replacing, safetensors_bytes
from batchnav.scene import bvh
from batchnav.scene.bvh import BVH
from batchnav.scene.checks import check_scene_arrays
from batchnav.scene.images import AppearanceConfig
from batchnav.scene.scene import Scene, baker_version, is_baked_for
from batchnav.scene.surface import check_surface
from batchnav.types import Material, Surface, Texture, TriangleMesh

SUFFIX = ".scene"
_KIND = "batchnav scene 2"
_ARRAYS = {
    "vertices": ("float32", 3), "faces": ("int32", 3), "nodes": ("float32", 16), "triangles": ("float32", 12),
    "order": ("int32", None), "navmesh": ("uint8", None),
}  # fmt: skip
"""Data type and row length of each array; None for one-dimensional arrays."""
_SURFACE = ("material", "uv", "color", "object_id", "category", "finish")
"""Optional arrays of the surface."""
_TEXTURE = "texture_"


def save_prepared(scene: Scene, path: str | Path, made_from: str = "", durable: bool = True) -> None:
    """Write a prepared scene atomically; equal scenes give equal bytes. MeshError where writing fails.

    Args:
        scene: the scene.
        path: file to write.
        made_from: `fingerprint` of the scene's source.
        durable: as in `runtime.files.atomic.replacing`.
    """
    arrays = {
        "vertices": scene.mesh.vertices, "faces": scene.mesh.faces, "nodes": scene.bvh.nodes,
        "triangles": scene.bvh.triangles, "order": scene.bvh.order,
        "navmesh": np.frombuffer(bytearray(navmesh_file.serialise(scene.navmesh.file)), np.uint8),
    }  # fmt: skip
    surface, looks = _surface_arrays(scene.mesh.surface)
    arrays = {name: np.ascontiguousarray(array) for name, array in (arrays | looks).items()}
    sums = {name: zlib.crc32(array.data) for name, array in arrays.items()}
    metadata = {
        "kind": _KIND, "name": scene.name, "made_from": made_from, "dropped": str(scene.mesh.num_dropped),
        "sums": json.dumps(sums), "tree": _tree_version(), "surface": surface,
    }  # fmt: skip
    with replacing(Path(path), MeshError, durable=durable) as part:
        part.write_bytes(safetensors_bytes(arrays, metadata))


def load_prepared(path: str | Path, appearance: bool = True) -> Scene:
    """A prepared scene, mapped into memory. MeshError where the file is damaged or of another kind.

    Without `appearance` the surface is not read.
    """
    path = Path(path)
    if not path.is_file():  # reading a pipe would block
        raise MeshError(f"{path}: cannot be read: found no such file")
    try:
        # torch maps the file; NumPy's reader would copy it.
        with safe_open(path, framework="pt") as file:
            metadata = _metadata(file, path)
            found = [name for name in file.keys() if appearance or name in _ARRAYS]  # noqa: SIM118 - no mapping
            arrays = {name: file.get_tensor(name).numpy() for name in {*_ARRAYS, *found}}
        sums = json.loads(metadata["sums"])
        for key, (kind, width) in _ARRAYS.items():
            array = arrays[key]
            if array.dtype != kind or array.shape[1:] != (() if width is None else (width,)):
                raise MeshError(f"{path}: array {key!r}: found {array.dtype} {list(array.shape)}, expected {kind}")
        for key, array in arrays.items():
            if zlib.crc32(np.ascontiguousarray(array).data) != sums[key]:
                raise MeshError(f"{path}: array {key!r} is damaged: its checksum differs; prepare the scene again")
        name, dropped = metadata["name"], int(metadata["dropped"])
        if dropped < 0:
            raise ValueError(f"{dropped} triangles dropped")
        surface = _surface_of(metadata["surface"], arrays) if appearance else None
    except OSError as error:
        raise MeshError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (SafetensorError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise MeshError(f"{path}: is not a prepared scene ({error}); prepare it again") from error
    surface = surface and check_surface(surface, len(arrays["faces"]), str(path))
    mesh = TriangleMesh(arrays["vertices"], arrays["faces"], dropped, surface)
    bvh = BVH(arrays["nodes"], arrays["triangles"], arrays["order"])
    check_scene_arrays(mesh, bvh, str(path))
    return Scene(name, mesh, NavMesh(navmesh_file.parse(arrays["navmesh"].tobytes(), str(path))), bvh)


def _surface_arrays(surface: Surface | None) -> tuple[str, dict[str, np.ndarray]]:
    """A surface as JSON text and arrays. Pixels that several textures share are stored once."""
    if surface is None:
        return "null", {}
    arrays = {name: getattr(surface, name) for name in _SURFACE if getattr(surface, name) is not None}
    pictures: dict[int, int] = {}
    textures = []
    for texture in surface.textures:
        number = pictures.setdefault(id(texture.pixels), len(pictures))
        arrays[f"{_TEXTURE}{number}"] = texture.pixels
        textures.append([number, list(texture.wrap), texture.magnify, texture.minify])
    materials = [[list(material.color), material.texture] for material in surface.materials]
    return json.dumps({"materials": materials, "textures": textures, "categories": list(surface.categories)}), arrays


def _surface_of(text: str, arrays: dict[str, np.ndarray]) -> Surface | None:
    """The surface of JSON text and arrays. Fields are not validated here: `check_surface` does that."""
    stored = json.loads(text)
    if stored is None:
        return None
    textures = [
        Texture(arrays[f"{_TEXTURE}{number}"], tuple(wrap), magnify, minify)
        for number, wrap, magnify, minify in stored["textures"]
    ]
    materials = [Material(tuple(color), texture) for color, texture in stored["materials"]]
    columns = {name: arrays[name] for name in _SURFACE if name in arrays}
    return Surface(
        materials=tuple(materials), textures=tuple(textures), categories=tuple(stored["categories"]), **columns
    )


def load_source(
    source: SceneSource, settings: NavMeshSettings | None = None, appearance: AppearanceConfig | bool = True
) -> Scene:
    """A scene from its prepared file where that is up to date, otherwise from its source files.

    A prepared scene whose navmesh was baked for another body than that of `settings` is not used: the source files are
    read and a navmesh is baked. A navmesh file for another body is refused (`SceneSource.load_navmesh`). MeshError,
    NavMeshError.
    """
    if made_from(source.prepared) == fingerprint(source):
        scene = load_prepared(source.prepared, appearance is not False)._replace(name=source.name)
        if settings is None or is_baked_for(scene.navmesh, settings):
            return scene
    return source.load(settings, appearance)


def made_from(path: Path) -> str | None:
    """The source fingerprint in a prepared scene; None where there is no readable file."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            return _metadata(file, path).get("made_from")
    except (OSError, SafetensorError, MeshError):
        return None


def fingerprint(source: SceneSource) -> str:
    """Hash of everything a scene is made from: sizes, dates and places of its files, and the baking source code."""
    parts = [
        (part.asset, part.linear.tolist(), part.translation.tolist(), part.at_centre, part.object_id, part.category)
        for part in source.parts
    ]
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
    """Hash of the source code that defines the layout of BVH rows."""
    sources = [Path(str(module.__file__)).read_bytes() for module in (bvh, triangle)]
    return hashlib.sha256(b"".join(sources)).hexdigest()[:16]
