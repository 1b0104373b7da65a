"""Mesh files as one TriangleMesh: +Y up, metres, scene graph applied, geometries merged, optionally with surfaces.

Time and memory are linear in the file size, plus up to 4 million triangles from instances in glTF files.
"""

from __future__ import annotations

import io
import logging
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numba import prange

from batchnav.config import validate
from batchnav.errors import ArgumentError, MeshError
from batchnav.runtime.files import as_path, read_regular, replacing
from batchnav.runtime.kernels.decorators import lean_kernel
from batchnav.scene.axes import Up, check_up, recentred, rotation_of
from batchnav.scene.dae import read_dae, unit_problem, up_axis
from batchnav.scene.formats import point_cloud_error, unsupported_format
from batchnav.scene.gltf import read_gltf
from batchnav.scene.images import AppearanceConfig, Images
from batchnav.scene.obj import read_obj
from batchnav.scene.ply import read_ply
from batchnav.scene.ros_map import map_mesh, read_map
from batchnav.scene.surface import check_surface, faces_of, turned
from batchnav.scene.text_mesh import read_off
from batchnav.types import Surface, TriangleMesh

log = logging.getLogger(__name__)

SUFFIXES = (".glb", ".gltf", ".obj", ".ply", ".stl", ".off", ".dae", ".yaml")
"""Suffixes of mesh files; a `.yaml` is a ROS map, which becomes extruded walls."""
_FLAT = 1e-7
"""A triangle whose height is below this fraction of its longest edge is degenerate in float32."""


def load_mesh(
    path: str | Path, up: Up = "auto", appearance: AppearanceConfig | bool = True, flip: bool = False
) -> TriangleMesh:
    """Read a .glb, .gltf, .obj, .ply, .stl, .off or .dae file, or the .yaml file of a ROS map, as one TriangleMesh.

    Args:
        path: file.
        up: up axis of the file, "x", "y", "z", "-x", "-y" or "-z": "z" maps (x, y, z) to (x, z, -y), "-y" to
            (x, -y, -z); "auto" is "y", as glTF prescribes, and for .dae files the axis that they name.
        appearance: read surfaces (materials, textures, colours) too, with these settings; ignored for .stl and .off.
            False: no image is decoded. Invalid parts are skipped with a warning: without its texture a material keeps
            its colour. As in habitat-sim, surfaces are opaque and glTF textures use TEXCOORD_0 only. UVs that are not
            finite, or beyond 1e5, become (0, 0).
        flip: reverse the winding of all triangles, for meshes whose faces look outwards or down.

    A mesh farther than 16 km from the origin is recentred; `origin` is what was subtracted. Degenerate and non-finite
    triangles are dropped and counted in `num_dropped`. MeshError names the file and the problem: missing, truncated,
    unknown compression, indices out of range, empty, too far away for its precision.
    """
    path = as_path(path)
    check_up(up)
    config = appearance_config(appearance)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        kind = unsupported_format(suffix)
        more = f" (found {kind})" if kind else ""
        raise MeshError(f"{path}: found suffix {suffix!r}, expected one of {', '.join(SUFFIXES)}{more}")
    if path.is_dir():
        raise MeshError(f"{path}: is a folder, expected a mesh file")
    data = read_regular(path, MeshError)
    try:
        if not data:
            raise MeshError("is empty")
        vertices, faces, surface = _read(data, path, config)
        if len(vertices) and not len(faces):
            raise MeshError(point_cloud_error(len(vertices)))
    except MemoryError as error:
        raise MeshError(f"{path}: claims more data than memory holds") from error
    except MeshError as error:
        raise MeshError(f"{path}: {error}") from error
    if up == "auto" and suffix == ".dae":
        up = up_axis(data)
    if up not in ("auto", "y"):
        source, sign = np.nonzero(rotation_of(up))[1], rotation_of(up).sum(1)
        vertices = vertices[:, source] * sign
    mesh = TriangleMesh(vertices, faces, surface=surface)
    return check_mesh(flipped(mesh) if flip else mesh, str(path))


def flipped(mesh: TriangleMesh) -> TriangleMesh:
    """The mesh with the winding of all triangles reversed."""
    return mesh._replace(faces=mesh.faces[:, ::-1], surface=mesh.surface and turned(mesh.surface))


def appearance_config(appearance: AppearanceConfig | bool) -> AppearanceConfig | None:
    """Settings of an argument `appearance`; None: surfaces are not read."""
    if isinstance(appearance, bool):
        return AppearanceConfig() if appearance else None
    if not isinstance(appearance, AppearanceConfig):
        raise ArgumentError(f"appearance: found {appearance!r}, expected True, False or an AppearanceConfig")
    validate(appearance)
    return appearance


def check_mesh(mesh: TriangleMesh, name: str) -> TriangleMesh:
    """The mesh as f32 [V, 3] and i32 [F, 3] without degenerate triangles, near the origin (`frames.recentred`).

    MeshError, with `name`, if no triangle is left.
    """
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
    vertices, origin = recentred(vertices, faces, mesh.origin, name)
    with np.errstate(over="ignore"):
        vertices = np.ascontiguousarray(vertices, np.float32)
    faces, good = np.ascontiguousarray(faces, np.int32), np.empty(len(faces), np.bool_)
    _find_usable(vertices, faces, good)
    num_dropped = int(np.count_nonzero(~good))
    if num_dropped == len(faces):
        raise MeshError(f"{name}: all {len(faces)} triangles are degenerate or not finite")
    finite = np.isfinite(vertices)
    if not finite.all():
        vertices = np.where(finite, vertices, np.float32(0.0))  # unused vertices
    surface = mesh.surface and check_surface(mesh.surface, len(faces), name)
    if num_dropped:
        faces, surface = faces[good], surface and faces_of(surface, good)
    return TriangleMesh(vertices, faces, int(mesh.num_dropped) + num_dropped, surface, origin)


def save_mesh(mesh: TriangleMesh, path: str | Path) -> None:
    """Write a .glb or .ply file (geometry only) atomically."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in (".glb", ".ply"):
        raise MeshError(f"{path}: found suffix {suffix!r}, expected .glb or .ply")
    import trimesh  # takes a second; processes that make houses do not need it

    plain = trimesh.Trimesh(mesh.vertices, mesh.faces, process=False)
    data: Any = trimesh.Scene(plain).export(file_type="glb") if suffix == ".glb" else plain.export(file_type="ply")
    with replacing(path, MeshError) as part:
        part.write_bytes(data)


def _read(
    data: bytes, path: Path, appearance: AppearanceConfig | None
) -> tuple[np.ndarray, np.ndarray, Surface | None]:
    """Vertices f64 [V, 3], faces i64 [F, 3] and, with `appearance`, the surface of a file."""
    suffix = path.suffix.lower()
    if suffix == ".yaml":
        return _read_map(path, appearance is not None)
    if suffix in (".glb", ".gltf"):
        return read_gltf(data, path, appearance)
    if suffix == ".off":
        return *read_off(data), None
    if suffix == ".stl":
        return *_read_stl(data), None
    images = None if appearance is None else Images(path, appearance, len(data))
    if suffix == ".dae":
        if problem := unit_problem(data):
            log.warning("%s: %s", path, problem)
        return read_dae(data, images)
    found = read_ply(data, images) if suffix == ".ply" else read_obj(data, images)
    if images is not None:
        images.warn()
    return found


def _read_map(path: Path, appearance: bool) -> tuple[np.ndarray, np.ndarray, Surface | None]:
    """Extruded walls of a ROS map."""
    grid = read_map(path)
    if grid.inflated_by > 0.0:
        log.warning(
            "%s: its free space is shrunk by %g m for a robot; a navmesh shrinks it again; expected a raw map "
            "(`batchnav navmesh map --raw`)", path, grid.inflated_by,
        )  # fmt: skip
    vertices, faces, surface = map_mesh(grid)
    return vertices, faces, surface if appearance else None


def _read_stl(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """All triangles of an STL file."""
    import trimesh

    logger = logging.getLogger("trimesh")
    level = logger.level
    try:
        logger.setLevel(logging.CRITICAL)  # its messages are raised below, with the file's name
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scene = trimesh.load_scene(io.BytesIO(data), file_type="stl", process=False)
        vertices, faces, count = [np.empty((0, 3))], [np.empty((0, 3), np.int64)], 0
        for geometry in scene.geometry.values():
            vertices.append(np.asarray(geometry.vertices, np.float64))
            faces.append(np.asarray(geometry.faces, np.int64) + count)
            count += len(vertices[-1])
        return np.concatenate(vertices), np.concatenate(faces)
    except MemoryError:
        raise
    except Exception as error:  # any exception of the parser on an invalid file
        raise MeshError(f"cannot be read as STL ({type(error).__name__}: {error})") from error
    finally:
        logger.setLevel(level)


@lean_kernel
def _find_usable(vertices, faces, good_out):
    """Write bool [F]: True for finite triangles that are not degenerate."""
    for i in prange(len(faces)):
        a, b, c = faces[i, 0], faces[i, 1], faces[i, 2]
        ax, ay, az = np.float64(vertices[a, 0]), np.float64(vertices[a, 1]), np.float64(vertices[a, 2])
        ux, uy, uz = vertices[b, 0] - ax, vertices[b, 1] - ay, vertices[b, 2] - az
        vx, vy, vz = vertices[c, 0] - ax, vertices[c, 1] - ay, vertices[c, 2] - az
        wx, wy, wz = vx - ux, vy - uy, vz - uz
        x, y, z = uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx
        area = math.sqrt(x * x + y * y + z * z)  # twice the area of the triangle
        longest = max(ux * ux + uy * uy + uz * uz, max(vx * vx + vy * vy + vz * vz, wx * wx + wy * wy + wz * wz))
        good_out[i] = math.isfinite(area) and area > _FLAT * longest
