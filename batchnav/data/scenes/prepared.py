"""File format of prepared scenes: mesh, BVH and navmesh of one scene in one memory-mapped file.

The file is a safetensors file (a JSON header, then plain arrays) with these arrays:

    vertices f32 [V, 3]   faces i32 [F, 3]      the mesh
    nodes f32 [M, 16]     triangles f32 [F, 12] order i32 [F]     its BVH (scene/bvh.py)
    navmesh u8 [B]                              Habitat's `.navmesh` file

and the arrays of `types.Surface`, where the mesh has a surface; the metadata field "surface" holds materials, samplers
and category names:

    material i32 [F]      uv f32 [F, 3, 2]      color u8 [F, 3, 4]
    object_id i32 [F]     category i32 [F]      finish i32 [M, 4]
    tile i32 [F]          tile_uv f32 [F, 3, 2] tiles i32 [B, 3]    tile_ids i32 [T, 2]
    texture_0, texture_1 ... u8 [h, w, 4], or for textures in blocks i64 [R, 8] (scene/blocks.py)

A compact file, as `batchnav data prepare` writes it, has these arrays in place of `nodes`, `triangles`, `faces` and
`uv`, and integers in fewer bytes where they fit. It takes a third of the space, and more time to load:

    tree u8 [2 M]                               `scene.bvh.pack_tree`
    corners i32 [F, 3]                          rows of
    corner_vertex i32 [C] corner_uv f32 [C, 2]  vertex and UV of different corners

If ids have a mesh of their own (`Scene.semantic`), the file also has that mesh's arrays, without a navmesh, with names
that begin with "ids."; the metadata field "ids" is its "surface".

The metadata hold a checksum of each array, the version of the BVH's layout, where the navmesh comes from
(`Scene.navmesh_origin`; "mesh" if absent), a fingerprint of the scene's source (`fingerprint`), and "imported": "1" for
a scene of its own, also beside a mesh file of its name, which may be read with other axes or islands.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import logging
import os
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from batchnav.data.scenes.asset import axis_of
from batchnav.data.scenes.checks import check_mesh, scene_findings
from batchnav.data.scenes.islands import apply_rule, ceiling_above
from batchnav.data.scenes.source import SceneSource
from batchnav.errors import BatchnavError, MeshError, NavMeshError, printable, shortened
from batchnav.geometry import triangle
from batchnav.navmesh import file as navmesh_file
from batchnav.navmesh.islands import SMALL_ISLAND, list_islands, main_island
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.console import number_of
from batchnav.runtime.files import open_tensors, replacing, safetensors_bytes, tensor_errors
from batchnav.runtime.kernels.decorators import cpu_function
from batchnav.runtime.parallel import in_parallel
from batchnav.scene import bvh
from batchnav.scene.axes import recentred, used_vertices
from batchnav.scene.bvh import BVH, pack_tree, unpack_tree
from batchnav.scene.checks import check_faces, check_scene_arrays
from batchnav.scene.id_tiles import FIELDS as TILE_FIELDS
from batchnav.scene.images import AppearanceConfig
from batchnav.scene.mesh import SUFFIXES, appearance_config
from batchnav.scene.scene import NAVMESH_ORIGINS, Scene, baker_version, is_same_body
from batchnav.scene.surface import check_surface
from batchnav.types import FAR, Blocks, Material, Surface, Texture, TriangleMesh

SUFFIX = ".scene"
_KIND = "batchnav scene 2"
_ARRAYS = {
    "vertices": ("float32", 3), "faces": ("int32", 3), "nodes": ("float32", 16), "triangles": ("float32", 12),
    "order": ("int32", None), "navmesh": ("uint8", None),
}  # fmt: skip
"""Data type and row length of each array; None for one-dimensional arrays."""
_COMPACT = {
    "tree": ("uint8", None), "corners": ("int32", 3), "corner_vertex": ("int32", None), "corner_uv": ("float32", 2),
}  # fmt: skip
"""The same of the arrays of compact files."""
_NARROW = {"material", "object_id", "category", "tile"}
"""Arrays of integers that compact files hold in fewer bytes."""
_MOST_TRIES = 64
"""Number of corners of a vertex that are compared."""
_IDS = "ids."
"""Prefix of the names of arrays that belong to the mesh with the ids."""
_SURFACE = ("material", "uv", "color", "object_id", "category", "finish", *TILE_FIELDS)
"""Optional arrays of the surface."""
_TEXTURE = "texture_"


def save_prepared(
    scene: Scene,
    path: str | Path,
    made_from: str = "",
    durable: bool = True,
    compact: bool = False,
    notes: Sequence[tuple[str, str]] = (),
    imported: bool = False,
) -> None:
    """Write a prepared scene atomically; equal scenes give equal bytes. MeshError where writing fails.

    Args:
        scene: the scene.
        path: file to write.
        made_from: `fingerprint` of the scene's source.
        durable: as in `runtime.files.atomic.replacing`.
        compact: write a compact file, see above; else one that is mapped into memory.
        notes: warnings about the scene, each with the name of its logger, or "" for Python's warnings.
        imported: True for a scene of its own, False for one that is loaded by the name of its source.
    """
    surface, arrays = _mesh_arrays(scene, compact)
    arrays["navmesh"] = np.frombuffer(bytearray(navmesh_file.serialise(scene.navmesh.file)), np.uint8)
    ids = {}
    if scene.semantic is not None:
        ids["ids"], of_ids = _mesh_arrays(scene.semantic, compact)
        arrays |= {_IDS + name: array for name, array in of_ids.items()}
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    sums = {name: zlib.crc32(array.data) for name, array in arrays.items()}
    metadata = {
        "kind": _KIND, "name": printable(scene.name), "made_from": made_from, "dropped": str(scene.mesh.num_dropped),
        "sums": json.dumps(sums), "tree": _tree_version(), "surface": surface, "origin": json.dumps(scene.mesh.origin),
        "navmesh_origin": scene.navmesh_origin, **({"notes": json.dumps(notes)} if notes else {}),
        **({"imported": "1"} if imported else {}), **ids,
    }  # fmt: skip
    with replacing(Path(path), MeshError, durable=durable) as part:
        part.write_bytes(safetensors_bytes(arrays, metadata))


def load_prepared(path: str | Path, appearance: AppearanceConfig | bool = True) -> Scene:
    """A prepared scene, mapped into memory. MeshError where the file is damaged or of another kind.

    `appearance`: False to read no surface; True for the default settings; or settings, of which only `ids` has an
    effect (textures have the size at which they were prepared).
    """
    path, config = Path(path), appearance_config(appearance)
    try:
        # torch maps the file; NumPy's reader would copy it.
        with open_tensors(path, MeshError) as file:
            metadata = _metadata(file, path)
            has_ids = "ids" in metadata and config is not None and config.ids
            read = [
                name for name in sorted(file.keys())
                if (config and (has_ids or not name.startswith(_IDS))) or name in (*_ARRAYS, *_COMPACT)
            ]  # fmt: skip
            arrays = {name: file.get_tensor(name).numpy() for name in read}
        sums = json.loads(metadata["sums"])
        prefixes = ("", _IDS) if has_ids else ("",)
        expected = _ARRAYS | {_IDS + key: kind for key, kind in _ARRAYS.items() if has_ids and key != "navmesh"}
        compact = {prefix for prefix in prefixes if f"{prefix}tree" in arrays}
        for prefix in prefixes:
            for key in _COMPACT:
                if prefix + key in arrays:
                    expected[prefix + key] = _COMPACT[key]
            for key in ("nodes", "triangles") if prefix in compact else ():
                del expected[prefix + key]
            if prefix + "corners" in expected:
                del expected[prefix + "faces"]
        for key, (kind, width) in expected.items():
            array = arrays[key]
            if array.dtype != kind or array.shape[1:] != (() if width is None else (width,)):
                raise MeshError(f"{path}: array {key!r}: found {array.dtype} {list(array.shape)}, expected {kind}")
        for key, array in arrays.items():
            if zlib.crc32(np.ascontiguousarray(array).data) != sums[key]:
                raise MeshError(f"{path}: array {key!r} is damaged: its checksum differs; prepare the scene again")
        for prefix in prefixes:
            _expand_corners(arrays, prefix, str(path))
        name, dropped = metadata["name"], int(metadata["dropped"])
        notes = [(logger, text) for logger, text in json.loads(metadata.get("notes", "[]"))]
        if dropped < 0:
            raise ValueError(f"found {dropped} dropped triangles, expected 0 or more")
        surface = None if config is None else _surface_of(metadata["surface"], arrays)
        of_ids = {key.removeprefix(_IDS): array for key, array in arrays.items() if key.startswith(_IDS)}
        ids = _surface_of(metadata["ids"], of_ids) if has_ids else None
        x, y, z = map(float, json.loads(metadata.get("origin", "[0, 0, 0]")))
        if not np.isfinite([x, y, z]).all():
            raise ValueError(f"found origin ({x}, {y}, {z}), expected finite coordinates")
        baked_from: Any = metadata.get("navmesh_origin", "mesh")
        if baked_from not in NAVMESH_ORIGINS:
            raise ValueError(f"found navmesh_origin {shortened(baked_from)}, expected one of {NAVMESH_ORIGINS}")
    except tensor_errors() as error:
        raise MeshError(f"{path}: is not a prepared scene ({error}); prepare it again") from error
    for logger, text in notes:
        _repeat(str(logger), str(text))
    navmesh = NavMesh(navmesh_file.parse(arrays["navmesh"].tobytes(), str(path)))
    semantic = _scene_of(name, of_ids, ids, navmesh, str(path)) if has_ids else None
    scene = _scene_of(name, arrays, surface, navmesh, str(path))
    mesh = scene.mesh._replace(num_dropped=dropped, origin=(x, y, z))
    return scene._replace(mesh=mesh, semantic=semantic, navmesh_origin=baked_from)


def _mesh_arrays(scene: Scene, compact: bool) -> tuple[str, dict[str, np.ndarray]]:
    """A scene's surface as JSON text; and the arrays of mesh, BVH and surface."""
    surface, arrays = _surface_arrays(scene.mesh.surface)
    mesh, tree = scene.mesh, {"nodes": scene.bvh.nodes, "triangles": scene.bvh.triangles}
    arrays |= {"vertices": mesh.vertices, "faces": mesh.faces, "order": scene.bvh.order}
    if not compact:
        return surface, arrays | tree
    if "uv" in arrays:
        corners, vertex, uv = unique_corners(mesh.faces, arrays.pop("uv"))
        arrays |= {"corners": corners, "corner_vertex": vertex, "corner_uv": uv}
        del arrays["faces"]
    for name in _NARROW & arrays.keys():
        arrays[name] = _narrow(arrays[name])
    packed = pack_tree(scene.bvh) if len(mesh.faces) > 1 else np.empty(0, np.uint8)
    again = unpack_tree(packed, mesh, scene.bvh.order)
    same = again is not None and all(
        np.array_equal(one.view(np.int32), other.view(np.int32)) for one, other in zip(again, scene.bvh, strict=True)
    )
    return surface, arrays | ({"tree": packed} if same else tree)


def _narrow(array: np.ndarray) -> np.ndarray:
    """Integers in as few bytes as their range needs."""
    low, high = int(array.min(initial=0)), int(array.max(initial=0))
    for kind in (np.uint8, np.int16):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return array.astype(kind)
    return array


def unique_corners(faces: np.ndarray, uv: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The different corners of triangles: rows i32 [F, 3], and of each row the vertex i32 [C] and the UV f32 [C, 2]."""
    bits, corners = np.ascontiguousarray(uv, np.float32).view(np.int32), np.empty(faces.shape, np.int32)
    first, following = np.full(int(faces.max()) + 1, -1, np.int32), np.empty(faces.size, np.int32)
    vertex, found = np.empty(faces.size, np.int32), np.empty((faces.size, 2), np.int32)
    count = _number_corners(faces, bits, first, following, corners, vertex, found)
    return corners, vertex[:count].copy(), found[:count].view(np.float32).copy()


@cpu_function
def _number_corners(faces, uv, first_out, following_out, corners_out, vertex_out, uv_out):
    """Number the different corners, and return how many there are.

    Args:
        faces: i32 [F, 3].
        uv: i32 [F, 3, 2]: bits of the UVs.
        first_out: scratch i32 [V], -1: first corner of each vertex.
        following_out: scratch i32 [3 F]: next corner of the same vertex, -1 for none.
        corners_out: i32 [F, 3]: rows of the corners.
        vertex_out: i32 [3 F]: vertex of each row.
        uv_out: i32 [3 F, 2]: UV of each row.
    """
    count = 0
    for face in range(len(faces)):
        for k in range(3):
            vertex, u, v = faces[face, k], uv[face, k, 0], uv[face, k, 1]
            row, tries = first_out[vertex], 0
            while row >= 0 and (uv_out[row, 0] != u or uv_out[row, 1] != v) and tries < _MOST_TRIES:
                row, tries = following_out[row], tries + 1
            if row < 0 or tries == _MOST_TRIES:
                row = np.int32(count)
                vertex_out[row], uv_out[row, 0], uv_out[row, 1] = vertex, u, v
                following_out[row], first_out[vertex] = first_out[vertex], row
                count += 1
            corners_out[face, k] = row
    return count


def _expand_corners(arrays: dict[str, np.ndarray], prefix: str, path: str) -> None:
    """Replace `corners` by `faces`, and by `uv` where that was read. MeshError for corners without a row."""
    if f"{prefix}corners" not in arrays:
        return
    corners, vertex = arrays.pop(f"{prefix}corners"), arrays.pop(f"{prefix}corner_vertex")
    uv = arrays.pop(f"{prefix}corner_uv", None)
    if not len(corners) or not 0 <= corners.min() <= corners.max() < len(vertex):
        raise MeshError(f"{path}: array {prefix}corners: found a row out of range, expected 0 to {len(vertex) - 1}")
    arrays[f"{prefix}faces"] = vertex[corners]
    if uv is not None:
        if len(uv) != len(vertex):
            raise MeshError(f"{path}: array {prefix}corner_uv: found {len(uv)} rows, expected {len(vertex)}")
        arrays[f"{prefix}uv"] = uv[corners]


def _repeat(logger: str, text: str) -> None:
    """Issue a warning that was issued when the scene was read from its source."""
    if logger:
        logging.getLogger(logger).warning("%s", text)
    else:
        warnings.warn(text, stacklevel=3)


def _scene_of(name: str, arrays: dict[str, np.ndarray], surface: Surface | None, navmesh: NavMesh, path: str) -> Scene:
    """A scene of checked arrays. MeshError, with `path`, for invalid ones."""
    surface = surface and check_surface(surface, len(arrays["faces"]), path)
    mesh = TriangleMesh(arrays["vertices"], arrays["faces"], surface=surface)
    if "tree" in arrays:
        check_faces(mesh, arrays["order"], path)
        found = unpack_tree(arrays["tree"], mesh, arrays["order"])
        if found is None:
            raise MeshError(f"{path}: tree: found bytes that are not a tree of {len(mesh.faces)} triangles")
        bvh = found
    else:
        bvh = BVH(arrays["nodes"], arrays["triangles"], arrays["order"])
        check_scene_arrays(mesh, bvh, path)
    if np.abs(mesh.vertices).max() > FAR and recentred(mesh.vertices, mesh.faces, mesh.origin, path)[1] != mesh.origin:
        raise MeshError(f"{path}: is far from the origin, where float32 is too coarse; prepare it again")
    return Scene(name, mesh, navmesh, bvh)


def _surface_arrays(surface: Surface | None) -> tuple[str, dict[str, np.ndarray]]:
    """A surface as JSON text and arrays. Pixels that several textures share are stored once."""
    if surface is None:
        return "null", {}
    arrays = {name: getattr(surface, name) for name in _SURFACE if getattr(surface, name) is not None}
    numbers: dict[int, int] = {}
    textures, sizes = [], dict[str, tuple[int, int]]()
    for texture in surface.textures:
        number, pixels = numbers.setdefault(id(texture.pixels), len(numbers)), texture.pixels
        if isinstance(pixels, Blocks):
            sizes[str(number)] = pixels.width, pixels.height
        arrays[f"{_TEXTURE}{number}"] = pixels.words if isinstance(pixels, Blocks) else pixels
        textures.append([number, list(texture.wrap), texture.magnify, texture.minify])
    materials = [[list(material.color), material.texture] for material in surface.materials]
    stored = {"materials": materials, "textures": textures, "categories": list(surface.categories)}
    return json.dumps(stored | ({"blocks": sizes} if sizes else {})), arrays


def _surface_of(text: str, arrays: dict[str, np.ndarray]) -> Surface | None:
    """The surface of JSON text and arrays. Fields are not validated here: `check_surface` does that."""
    stored = json.loads(text)
    if stored is None:
        return None
    images: dict[Any, Any] = {number: arrays[f"{_TEXTURE}{number}"] for number, *_ in stored["textures"]}
    for number, (width, height) in stored.get("blocks", {}).items():
        images[int(number)] = Blocks(int(width), int(height), images[int(number)])
    textures = [
        Texture(images[number], tuple(wrap), magnify, minify) for number, wrap, magnify, minify in stored["textures"]
    ]
    materials = [Material(tuple(color), texture) for color, texture in stored["materials"]]
    columns = {name: arrays[name] for name in _SURFACE if name in arrays}
    return Surface(
        materials=tuple(materials), textures=tuple(textures), categories=tuple(stored["categories"]), **columns
    )


def made_from(path: Path) -> str | None:
    """The source fingerprint in a prepared scene; None where there is no readable file."""
    return _field(path, "made_from")


def is_imported(path: Path) -> bool:
    """True for a prepared scene of its own, False for one that belongs to the mesh file beside it."""
    return _field(path, "imported") == "1"


def _field(path: Path, name: str) -> str | None:
    """A field of a prepared scene's metadata; None where it is absent, or there is no readable file."""
    if not path.is_file():
        return None
    try:
        with open_tensors(path, MeshError) as file:
            return _metadata(file, path).get(name)
    except MeshError:
        return None
    except tensor_errors():
        return None


def baked_for(path: Path) -> NavMeshSettings | None:
    """Bake settings of the navmesh in a prepared scene; None where it has none, or there is no readable file."""
    try:
        with open_tensors(path, MeshError) as file:
            _metadata(file, path)
            return navmesh_file.parse(file.get_tensor("navmesh").numpy().tobytes(), str(path)).settings
    except (MeshError, NavMeshError):
        return None
    except tensor_errors():
        return None


def fingerprint(source: SceneSource) -> str:
    """Hash of everything that a scene is made from.

    That is: paths, sizes and modification times of its files, their placement, rules (`two_sided`, `islands`), and the
    source code that bakes navmeshes and defines the layout of BVHs.
    """
    parts = [
        (part.asset, part.linear.tolist(), part.translation.tolist(), part.at_centre, part.object_id, part.category)
        for part in source.parts
    ]
    how = source.two_sided, source.islands
    digest = hashlib.sha256(f"{baker_version()} {_tree_version()} {parts} {how}".encode())
    for file in source.files:
        state = file.stat() if file.is_file() else None
        digest.update(os.fsencode(f"{file.name} {state and (state.st_size, state.st_mtime_ns)}\n"))
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
    """Hash of the source code that builds BVHs and defines their rows."""
    sources = [Path(str(module.__file__)).read_bytes() for module in (bvh, triangle)]
    return hashlib.sha256(b"".join(sources)).hexdigest()[:16]


# Preparation of scenes in parallel: load, bake the navmesh, build the BVH, write one file each


class Outcome(NamedTuple):
    """Result of preparing one scene."""

    name: str
    path: Path
    """Path of the prepared scene."""
    problem: str = ""
    """Error message; empty on success."""
    fresh: bool = False
    """True where an up-to-date file was there already."""
    missing: tuple[str, ...] = ()
    """Names of assets that the dataset lacks; the scene is prepared without them."""
    up: str = "y"
    """Axis of the first mesh file that points up; "" for none of the six."""
    summary: str = ""
    """Size, floor and ceiling of the scene in one line."""
    warnings: tuple[str, ...] = ()
    """Warnings about the scene, as `batchnav data validate` gives them."""

    @property
    def z_up(self) -> bool:
        """True where the first mesh file was read as +Z up."""
        return self.up == "z"


def prepare(
    sources: Sequence[SceneSource],
    out: Path | None = None,
    describe: bool = False,
    settings: NavMeshSettings | None = None,
) -> list[Outcome]:
    """Prepare scenes in parallel processes, with progress; up-to-date files are kept.

    Args:
        sources: the scenes. A scene without a navmesh file gets a baked navmesh.
        out: folder for prepared scenes and their navmeshes; None for the paths where `load_scene` and `load_dataset`
            look for prepared scenes.
        describe: True to summarise each scene, which also loads the up-to-date ones.
        settings: bake settings; navmesh files for another body are left out. None: the default ones.

    Returns one outcome per scene, in order. An unusable scene does not stop the others.
    """
    work = functools.partial(_prepare_one, out=out, describe=describe, settings=settings)
    return list(in_parallel(work, sources, "preparing"))


def _prepare_one(source: SceneSource, out: Path | None, describe: bool, settings: NavMeshSettings | None) -> Outcome:
    path = source.prepared if out is None else out / f"{_file_name(source.name)}{SUFFIX}"
    outcome = Outcome(source.name, path, missing=source.missing, up=axis_of(source.parts[0].asset.frame))
    navmesh = None if out is None else path.with_suffix(".navmesh")
    warnings: list[str] = []
    scene = None
    try:
        wanted = fingerprint(source)
        source = source.without_misfit(settings)
        fresh = made_from(path) == wanted and (navmesh is None or (navmesh.is_file() and is_imported(path)))
        if fresh and (settings is not None or source.navmesh is None):
            body = baked_for(path)
            fresh = body is not None and is_same_body(body, settings or NavMeshSettings())
        if not fresh:
            mesh = source.load_mesh()
            warnings += [finding.text for finding in check_mesh(mesh, source.name, source.frame)]
            scene, misfits = dataclasses.replace(source, islands="all").make(mesh, settings)
            scene, lines = apply_rule(scene, source.islands)
            warnings += [f"{source.name}: {line}" for line in lines]
            warnings += misfits
            if navmesh is not None:  # written first: a prepared scene implies a complete navmesh
                scene.navmesh.save(navmesh)
            save_prepared(scene, path, wanted, compact=True, imported=out is not None)
        if not describe:
            return outcome._replace(fresh=fresh, warnings=tuple(warnings))
        scene = scene or load_prepared(path, appearance=False)
        findings = scene_findings(scene, source.name, source.frame)
        found = [finding.text for finding in findings if finding.level == "warning"]
        warnings = list(dict.fromkeys([*warnings, *found]))
        return outcome._replace(fresh=fresh, summary=summarise(scene), warnings=tuple(warnings))
    except BatchnavError as error:
        return outcome._replace(problem=str(error), warnings=tuple(warnings))


def summarise(scene: Scene) -> str:
    """Size, walkable area, height of the floor, share of it below a ceiling, and islands, in one line."""
    used = used_vertices(len(scene.mesh.vertices), scene.mesh.faces)
    x, y, z = np.ptp(scene.mesh.vertices[used], axis=0)
    islands, covered = list_islands(scene.navmesh.data), ceiling_above(scene)
    main = main_island(scene.navmesh.data) if islands else None
    floor = "no floor" if main is None else (
        f"floor at y = {main.height:.2f} m, ceiling above {covered[main.number]:.0%} of it"
    )  # fmt: skip
    playable = sum(island.is_playable for island in islands)
    count = f"{number_of(len(islands), 'island')}, {playable} of radius {SMALL_ISLAND:g} m or more"
    return f"{x:.2f} x {y:.2f} x {z:.2f} m (x, y, z), {scene.navmesh.area:.1f} m² walkable, {floor}, {count}"


def _file_name(name: str) -> str:
    """File name for a scene, without suffix."""
    stem = Path(name).name
    for suffix in (*SUFFIXES, ".basis"):
        stem = stem.removesuffix(suffix)
    return stem
