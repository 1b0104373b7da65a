"""Nodes of glTF files: the scene graph, transforms, and the objects that nodes are.

A node is an object where its extras, or those of a node above it, have `instance` (an integer from 0 on) or `category`
(a name): `batchnav.export.glb` writes such files. Without such extras, names of the form category_instance, as
"chair_12", say the same if their numbers differ and name at least two categories; other nodes are then no objects.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from batchnav.errors import MeshError
from batchnav.scene.surface import PLAIN
from batchnav.types import Surface

NAMED = re.compile(r"(?P<category>[A-Za-z][A-Za-z _-]*)_(?P<instance>[1-9][0-9]{0,8})", re.ASCII)
"""Name of a node that is an object."""


class ObjectNodes:
    """Collects the object and the category of the triangles of successive nodes."""

    def __init__(self) -> None:
        self._categories = {"": 0}
        self._nodes: list[tuple[int, int, int]] = []
        self._names: list[tuple[int, str]] = []
        """Instance and category by each node's name; 0 and "" for other names."""

    def add(self, extras: Any, name: str, num_faces: int) -> None:
        """Add the triangles of a node with these extras and this name."""
        named = NAMED.fullmatch(name)
        self._names.append((int(named["instance"]), named["category"]) if named else (0, ""))
        values = extras if isinstance(extras, dict) else {}
        instance, category = values.get("instance"), values.get("category")
        if isinstance(instance, bool) or not isinstance(instance, int) or not 0 <= instance < 2**31:
            instance = 0
        row = self._categories.setdefault(category if isinstance(category, str) else "", len(self._categories))
        self._nodes.append((instance, row, num_faces))

    def labelled(self, surface: Surface | None) -> Surface | None:
        """The surface of all triangles with object ids and categories, where a node has them."""
        instance, row, count = np.array(self._nodes, np.int32).reshape(-1, 3).T
        if not (instance.any() or row.any()):
            if not self._names_tell():
                return surface
            instance = np.array([number for number, _ in self._names], np.int32)
            row = np.array([self._categories.setdefault(name, len(self._categories)) for _, name in self._names])
        if surface is None:
            surface = Surface(np.zeros(count.sum(), np.int32), (PLAIN,))
        surface = surface._replace(object_id=np.repeat(instance, count))
        if not row.any():
            return surface
        names = sorted(self._categories)
        order = np.array([names.index(name) for name in self._categories], np.int32)
        return surface._replace(category=np.repeat(order[row], count), categories=tuple(names))

    def _names_tell(self) -> bool:
        """True where the names of nodes are those of objects: several categories, and a number for each node."""
        numbers = [number for number, name in self._names if name]
        return len({name for _, name in self._names} - {""}) > 1 and len(set(numbers)) == len(numbers)


def check_forest(children: list[list[int]]) -> None:
    """MeshError where a node has two parents or is its own ancestor; otherwise traversals end.

    `children`: the children of each node.
    """
    parents = [0] * len(children)
    for row in children:
        for child in row:
            parents[child] += 1
            if parents[child] > 1:
                raise MeshError(f"node {child} has two parents in the scene graph")
    reached = [i for i, number in enumerate(parents) if number == 0]
    for node in reached:  # grows during the loop
        reached += children[node]
    if len(reached) < len(children):
        node = min(set(range(len(children))) - set(reached))
        raise MeshError(f"node {node} is its own ancestor in the scene graph")


def node_matrix(node: dict) -> np.ndarray:
    """Transform f64 [4, 4] of a node, from its matrix, or its scale, rotation (x, y, z, w) and translation."""
    if "matrix" in node:
        return np.array(node["matrix"], np.float64).reshape(4, 4).T
    matrix = np.eye(4)
    if "rotation" in node:
        x, y, z, w = np.array(node["rotation"], np.float64) / np.linalg.norm(np.array(node["rotation"], np.float64))
        matrix[:3, :3] = [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    if "scale" in node:
        matrix[:3, :3] *= np.array(node["scale"], np.float64).reshape(3)
    if "translation" in node:
        matrix[:3, 3] = np.array(node["translation"], np.float64).reshape(3)
    return matrix
