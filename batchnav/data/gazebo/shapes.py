"""Geometries of SDF: boxes, cylinders, spheres and planes as meshes, and meshes of files."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable

import numpy as np

from batchnav.data.gazebo.poses import numbers
from batchnav.scene.surface import PLAIN
from batchnav.types import Material, Surface, TriangleMesh


def shape_mesh(geometry: ET.Element) -> TriangleMesh | None:
    """The mesh of a simple shape, +Z up; None for other geometries. ValueError for invalid sizes."""
    for shape in geometry:
        make = _SHAPES.get(shape.tag)
        if make is not None:
            vertices, faces = make(shape)
            return TriangleMesh(np.asarray(vertices, np.float64), np.asarray(faces, np.int64))
    return None


def painted(mesh: TriangleMesh, visual: ET.Element) -> TriangleMesh:
    """The mesh with the diffuse colour of its visual, where it has no surface of its own."""
    if mesh.surface is not None:
        return mesh
    text, material = visual.findtext("material/diffuse"), PLAIN
    if text is not None:
        color = np.clip(numbers(text, len(text.split())), 0.0, 1.0).tolist()
        if len(color) in (3, 4):
            material = Material((color[0], color[1], color[2], 1.0))
    return mesh._replace(surface=Surface(np.zeros(len(mesh.faces), np.int32), (material,)))


def _positive(shape: ET.Element, name: str, count: int = 1) -> np.ndarray:
    """f64 [count]: sizes in metres. ValueError unless all are above 0."""
    values = numbers(shape.findtext(name), count)
    if (values <= 0).any():
        raise ValueError(f"<{name}>: found {shape.findtext(name)!r}, expected numbers above 0")
    return values


def _box(shape: ET.Element) -> tuple[np.ndarray, np.ndarray]:
    import trimesh

    solid = trimesh.creation.box(_positive(shape, "size", 3))
    return solid.vertices, solid.faces


def _cylinder(shape: ET.Element) -> tuple[np.ndarray, np.ndarray]:
    import trimesh

    solid = trimesh.creation.cylinder(_positive(shape, "radius")[0], _positive(shape, "length")[0], sections=32)
    return solid.vertices, solid.faces


def _capsule(shape: ET.Element) -> tuple[np.ndarray, np.ndarray]:
    import trimesh

    length = _positive(shape, "length")[0]
    solid = trimesh.creation.capsule(height=length, radius=_positive(shape, "radius")[0], count=(32, 32))
    solid.apply_translation((0, 0, -solid.bounds.mean(0)[2]))
    return solid.vertices, solid.faces


def _sphere(shape: ET.Element) -> tuple[np.ndarray, np.ndarray]:
    import trimesh

    solid = trimesh.creation.icosphere(subdivisions=3, radius=_positive(shape, "radius")[0])
    return solid.vertices, solid.faces


def _ellipsoid(shape: ET.Element) -> tuple[np.ndarray, np.ndarray]:
    import trimesh

    solid = trimesh.creation.icosphere(subdivisions=3)
    return solid.vertices * _positive(shape, "radii", 3), solid.faces


def _plane(shape: ET.Element) -> tuple[np.ndarray, np.ndarray]:
    x, y = _positive(shape, "size", 2) / 2
    normal = numbers(shape.findtext("normal") or "0 0 1", 3)
    if not np.linalg.norm(normal) > 1e-9:
        raise ValueError(f"<normal>: found {shape.findtext('normal')!r}, expected a direction")
    normal = normal / np.linalg.norm(normal)
    side = np.cross((0.0, 1.0, 0.0), normal)
    side = side / np.linalg.norm(side) if np.linalg.norm(side) > 1e-6 else np.array((1.0, 0.0, 0.0))
    across = np.cross(normal, side)
    corners = np.array([side * u + across * v for u, v in ((-x, -y), (x, -y), (x, y), (-x, y))])
    return corners, np.array([(0, 1, 2), (0, 2, 3)])


_SHAPES: dict[str, Callable[[ET.Element], tuple[np.ndarray, np.ndarray]]] = {
    "box": _box, "cylinder": _cylinder, "capsule": _capsule, "sphere": _sphere, "ellipsoid": _ellipsoid,
    "plane": _plane,
}  # fmt: skip
