"""Mesh files in, triangles out: +Y up, metres, scene graph applied, every geometry merged, textures left alone."""

from __future__ import annotations

import io
import logging
import warnings
from pathlib import Path
from typing import Literal

import numpy as np
import trimesh

from batchnav.errors import ArgumentError, MeshError
from batchnav.runtime.files import replacing
from batchnav.scene.gltf import check_gltf
from batchnav.types import TriangleMesh

SUFFIXES = (".glb", ".gltf", ".obj", ".ply", ".stl", ".off")
_FLAT = 1e-7
"""A triangle lower than this fraction of its longest edge is degenerate: float32 cannot tell it from a line."""


def load_mesh(path: str | Path, up: Literal["auto", "y", "z"] = "auto") -> TriangleMesh:
    """Read a .glb, .gltf, .obj, .ply, .stl or .off file as one TriangleMesh.

    `up` is the file's up axis: "z" turns (x, y, z) into (x, z, -y); "auto" is "y", what glTF prescribes.
    Degenerate and non-finite triangles are left out and counted in `num_dropped`. MeshError names the file and what is
    wrong: absent, truncated, compressed in a way that cannot be decoded, indices out of range, empty.
    """
    path = Path(path)
    if up not in ("auto", "y", "z"):
        raise ArgumentError(f"up: found {up!r}, expected 'auto', 'y' or 'z'")
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise MeshError(f"{path}: found suffix {suffix!r}, expected one of {', '.join(SUFFIXES)}")
    if path.is_dir():
        raise MeshError(f"{path}: is a folder, expected a mesh file")
    try:
        data = path.read_bytes()
        _check_file(data, suffix)
        vertices, faces = _merge(_read_scene(path, data, suffix))
    except OSError as error:
        raise MeshError(f"{path}: cannot be read ({error.strerror or error})") from error
    except MeshError as error:
        raise MeshError(f"{path}: {error}") from error
    if up == "z":
        vertices = np.stack([vertices[:, 0], vertices[:, 2], -vertices[:, 1]], axis=1)
    return check_mesh(TriangleMesh(vertices, faces), str(path))


def check_mesh(mesh: TriangleMesh, name: str) -> TriangleMesh:
    """The mesh as f32 [V, 3] and i32 [F, 3] without unusable triangles. MeshError naming `name` where none are left."""
    vertices, faces = np.asarray(mesh.vertices), np.asarray(mesh.faces)
    if vertices.ndim != 2 or vertices.shape[1] != 3 or faces.ndim != 2 or faces.shape[1] != 3:
        raise MeshError(
            f"{name}: found vertices {list(vertices.shape)} and faces {list(faces.shape)}, expected [V, 3] and [F, 3]"
        )
    if vertices.dtype.kind not in "fiu" or faces.dtype.kind not in "iu":
        raise MeshError(
            f"{name}: found {vertices.dtype} vertices and {faces.dtype} faces, expected numbers and integers"
        )
    if len(faces) == 0:
        raise MeshError(f"{name}: holds no triangles")
    if faces.min() < 0 or faces.max() >= len(vertices):
        worst = int(faces.min()) if faces.min() < 0 else int(faces.max())
        raise MeshError(f"{name}: has a face with vertex index {worst}, expected 0 to {len(vertices) - 1}")
    with np.errstate(over="ignore"):
        vertices = np.ascontiguousarray(vertices, np.float32)
    good = _usable(vertices, faces)
    num_dropped = int(mesh.num_dropped) + int(np.count_nonzero(~good))
    if not good.any():
        raise MeshError(f"{name}: all {len(faces)} triangles are degenerate or not finite")
    vertices = np.where(np.isfinite(vertices), vertices, np.float32(0.0))  # none of these is used any more
    return TriangleMesh(vertices, np.ascontiguousarray(faces[good], np.int32), num_dropped)


def save_mesh(mesh: TriangleMesh, path: str | Path) -> None:
    """Write a .glb or .ply file (geometry only); the file appears whole or not at all."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in (".glb", ".ply"):
        raise MeshError(f"{path}: found suffix {suffix!r}, expected .glb or .ply")
    plain = trimesh.Trimesh(mesh.vertices, mesh.faces, process=False)
    data = trimesh.Scene(plain).export(file_type="glb") if suffix == ".glb" else plain.export(file_type="ply")
    with replacing(path, MeshError, make_folder=False) as part:
        part.write_bytes(data)


def _check_file(data: bytes, suffix: str) -> None:
    if not data:
        raise MeshError("is empty")
    if suffix in (".glb", ".gltf"):
        check_gltf(data, binary=suffix == ".glb")
    if suffix == ".ply":
        _check_ply(data)


def _check_ply(data: bytes) -> None:
    """What trimesh would let pass: text that ends before the header's counts are met."""
    header, found, body = data.partition(b"end_header")
    if not data.startswith(b"ply") or not found:
        raise MeshError("is not a PLY file, or its header is truncated")
    words = [line.split() for line in header.splitlines()]
    if [b"format", b"ascii"] in (w[:2] for w in words):
        try:
            expected = sum(int(w[2]) for w in words if len(w) == 3 and w[0] == b"element")
        except ValueError as error:
            raise MeshError(f"has a PLY element without a count ({error})") from error
        rows = sum(1 for line in body.splitlines() if line.strip())
        if rows < expected:
            raise MeshError(f"is truncated: {rows} rows, its header says {expected}")


def _read_scene(path: Path, data: bytes, suffix: str) -> trimesh.Scene:
    """trimesh's scene, textures neither opened nor decoded."""
    logger, resolver = logging.getLogger("trimesh"), trimesh.resolvers.FilePathResolver(str(path))
    level = logger.level
    try:
        logger.setLevel(logging.CRITICAL)  # what it logs is raised below, with the file's name
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return trimesh.load_scene(
                io.BytesIO(data), file_type=suffix[1:], resolver=resolver, process=False, skip_materials=True
            )
    except MemoryError as error:
        raise MeshError("claims more data than memory holds") from error
    except Exception as error:  # whatever a broken file makes a parser stumble over
        raise MeshError(f"cannot be read as {suffix[1:].upper()} ({type(error).__name__}: {error})") from error
    finally:
        logger.setLevel(level)


def _merge(scene: trimesh.Scene) -> tuple[np.ndarray, np.ndarray]:
    """All triangles of a scene graph in its world frame: float64 [V, 3], int64 [F, 3]."""
    vertices, faces, count = [np.empty((0, 3))], [np.empty((0, 3), np.int64)], 0
    for node in scene.graph.nodes_geometry:
        transform, name = scene.graph[node]
        geometry = scene.geometry[name]
        if not isinstance(geometry, trimesh.Trimesh):
            continue
        points, triangles = np.asarray(geometry.vertices), np.asarray(geometry.faces)
        if len(triangles) and not 0 <= triangles.min() <= triangles.max() < len(points):
            worst = triangles.min() if triangles.min() < 0 else triangles.max()
            raise MeshError(f"has a face with vertex index {worst}, expected 0 to {len(points) - 1}")
        if np.linalg.det(transform[:3, :3]) < 0:  # a mirrored part keeps its front outside
            triangles = triangles[:, ::-1]
        with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is dropped later
            vertices.append(points @ transform[:3, :3].T + transform[:3, 3])
        faces.append(triangles + count)
        count += len(points)
    return np.concatenate(vertices), np.concatenate(faces)


def _usable(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """bool [F]: finite triangles that have an area."""
    a, b, c = (vertices[faces[:, i]].astype(np.float64) for i in range(3))
    with np.errstate(invalid="ignore", over="ignore"):
        area = np.linalg.norm(np.cross(b - a, c - a), axis=1)  # twice the triangle's
        longest = np.maximum(np.maximum(((b - a) ** 2).sum(1), ((c - a) ** 2).sum(1)), ((c - b) ** 2).sum(1))
        return np.isfinite(area) & (area > _FLAT * longest)
