"""Gazebo worlds and models (.world, .sdf) as one mesh, with an object for each model of the world.

Visuals are read, collision shapes are not. Meshes keep the axes of their files, as in Gazebo: the up axis of a COLLADA
file is ignored, glTF files are +Y up. The world's frame becomes that of a ROS map: (x, y, z) is (-y, z, -x) here.

An object's category is the name of the included model, else of the model itself, without a number at its end. Poses in
a saved <state> replace those of the models.
"""

from __future__ import annotations

import functools
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from batchnav.data.files import read_text
from batchnav.data.gazebo.models import ModelPath, model_file
from batchnav.data.gazebo.poses import Scope, matrix_of, name_of, numbers
from batchnav.data.gazebo.shapes import painted, shape_mesh
from batchnav.data.scenes.asset import Asset, Part
from batchnav.data.scenes.source import merge_meshes
from batchnav.errors import MeshError
from batchnav.scene.mesh import load_mesh
from batchnav.types import TriangleMesh

SUFFIXES = (".world", ".sdf")
_TO_WORLD = np.array([[0.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [-1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
"""From the axes of ROS to +Y up."""
_GLTF = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, -1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
"""From +Y up to +Z up."""
_NUMBER = re.compile(r"[_\-\s.]*\d+$")
_FRAMES = ("model", "include", "frame", "link", "joint")
_LIGHTS = ("sun",)
"""Models of Gazebo without visuals."""
_DEEPEST, _MOST_PARTS, _MOST_TRIANGLES, _LISTED = 16, 100_000, 2**25, 8
"""Largest depth of nested models, number of visuals and of models, triangles of a world, and names in a message."""


class LeftOut(NamedTuple):
    """Parts of a world that are left out."""

    reasons: Counter[str]
    """Number of parts by reason."""
    num_all: int
    """Number of all parts."""

    def __str__(self) -> str:
        """One line; empty where no part is left out."""
        if not self.reasons:
            return ""
        named = [f"{reason} ({count})" for reason, count in self.reasons.most_common(_LISTED)]
        more = f" and {len(self.reasons) - _LISTED} more" if len(self.reasons) > _LISTED else ""
        share = self.reasons.total() / self.num_all
        return f"left out {self.reasons.total()} of {self.num_all} parts ({share:.0%}): {', '.join(named)}{more}"


def read_world(path: Path, models: Sequence[Path] = ()) -> tuple[TriangleMesh, LeftOut]:
    """The mesh of a world, and what is left out of it.

    Args:
        path: a .world or .sdf file.
        models: folders of models; `models.ModelPath` says where models are searched too.

    MeshError for a file that is not SDF, or a world without a visual that can be read.
    """
    root = _parse(path)
    world = root.find("world")
    reader = _Reader(ModelPath(models, path))
    try:
        reader.read(root if world is None else world, path.parent)
    except MeshError as error:
        raise MeshError(f"{path}: {error}") from error
    left_out = LeftOut(reader.reasons, len(reader.meshes) + reader.reasons.total())
    if not reader.meshes:
        raise MeshError(f"{path}: found no visual that can be read, expected some; {str(left_out) or 'it has none'}")
    return merge_meshes(reader.meshes, str(path)), left_out


class _Item(NamedTuple):
    """A model of the world that is being read."""

    number: int
    """Object id, from 1 on."""
    category: str


class _Reader:
    """Collects the placed meshes of a world."""

    def __init__(self, models: ModelPath):
        self._models = models
        self.meshes: list[TriangleMesh] = []
        self.reasons: Counter[str] = Counter()
        self._triangles = self._models_read = 0
        self._load = functools.cache(lambda file: load_mesh(file, up="y"))  # in the axes of the file

    def read(self, world: ET.Element, folder: Path) -> None:
        """Read all models of a world, or of an SDF file without a world."""
        scope = Scope(child for child in world if child.tag in _FRAMES)
        states = {state.get("name"): state for state in world.findall("state/model")}
        number = 0
        for element in world:
            if element.tag not in ("model", "include"):
                continue
            number += 1
            name = name_of(element)
            item = _Item(number, _category(name))
            try:
                self._entity(element, _TO_WORLD, scope, folder, item, states.get(name))
            except (ValueError, RecursionError) as error:
                self.reasons[f"model {name[:60]!r}: {error}"] += 1

    def _entity(
        self, element: ET.Element, base: np.ndarray, scope: Scope, folder: Path, item: _Item,
        state: ET.Element | None = None, depth: int = 0,
    ) -> None:  # fmt: skip
        """Read a <model> or an <include> in a frame `base`; `folder` is that of its SDF file."""
        self._models_read += 1
        if self._models_read > _MOST_PARTS:
            raise MeshError(f"found more than {_MOST_PARTS} models, expected fewer")
        if depth > _DEEPEST:
            raise ValueError(f"models are nested deeper than {_DEEPEST}")
        model = element
        if element.tag == "include":
            uri = (element.findtext("uri") or "").strip()
            found = self._included(uri, folder)
            if found is None:
                return
            model, folder = found
            item = item._replace(category=_category(uri.rstrip("/").rpartition("/")[2]))
        # The pose of an include replaces that of the model in its file.
        own = element if element is model or element.find("pose") is not None else model
        placed = scope.pose(own) if own is element else matrix_of(own.find("pose"))
        if state is not None:
            placed = matrix_of(state.find("pose"))
            placed[:3, :3] *= numbers(state.findtext("scale") or "1 1 1", 3)
        self._model(model, base @ placed, folder, item, depth)

    def _included(self, uri: str, folder: Path) -> tuple[ET.Element, Path] | None:
        """The <model> of an included file and its folder; None, with a reason, where it cannot be read."""
        found = self._models.find(uri, folder)
        file = model_file(found) if found is not None and found.is_dir() else found
        if file is None:
            if uri.rpartition("/")[2] not in _LIGHTS:
                self.reasons[f"{uri[:80]} is not found"] += 1
            return None
        try:
            model = _parse(file).find("model")
        except MeshError as error:
            self.reasons[str(error)] += 1
            return None
        if model is None:
            return None  # a light or an actor
        return model, file.parent

    def _model(self, model: ET.Element, pose: np.ndarray, folder: Path, item: _Item, depth: int) -> None:
        """Read links and nested models of a <model> that stands at `pose`."""
        scope = Scope(child for child in model if child.tag in _FRAMES)
        for link in model.findall("link"):
            at = pose @ scope.pose(link)
            for visual in link.findall("visual"):
                own = visual.find("pose")
                is_elsewhere = own is not None and own.get("relative_to")
                place = pose @ scope.pose(visual) if is_elsewhere else at @ matrix_of(own)
                self._visual(visual, place, folder, item)
        for child in model:
            if child.tag in ("model", "include"):
                self._entity(child, pose, scope, folder, item, depth=depth + 1)

    def _visual(self, visual: ET.Element, place: np.ndarray, folder: Path, item: _Item) -> None:
        """Add the placed mesh of a visual, or the reason why it is left out."""
        geometry = visual.find("geometry")
        if geometry is None:
            return
        mesh, found = geometry.find("mesh"), None
        try:
            if mesh is not None:
                found, place = self._mesh_of(mesh, place, folder)
            else:
                found = shape_mesh(geometry)
            if found is None:
                kind = next((child.tag for child in geometry), "nothing")
                raise ValueError(f"geometry {kind[:40]!r} is not read")
            found = painted(found, visual)
        except (MeshError, ValueError) as error:
            self.reasons[str(error)] += 1
            return
        self._triangles += len(found.faces)
        if len(self.meshes) >= _MOST_PARTS or self._triangles > _MOST_TRIANGLES:
            raise MeshError(
                f"found more than {_MOST_PARTS} visuals or {_MOST_TRIANGLES} triangles, expected a smaller world"
            )
        part = Part(Asset(Path()), place[:3, :3], place[:3, 3], object_id=item.number, category=item.category)
        self.meshes.append(part.labelled(part.place(found)))

    def _mesh_of(self, mesh: ET.Element, place: np.ndarray, folder: Path) -> tuple[TriangleMesh, np.ndarray]:
        """The mesh of a file, and its place with the scale of the visual. MeshError, ValueError."""
        uri = (mesh.findtext("uri") or "").strip()
        if mesh.find("submesh") is not None:
            raise ValueError(f"a submesh of {uri[:80]} is not read")
        file = self._models.find(uri, folder)
        if file is None:
            raise ValueError(f"{uri[:80]} is not found")
        found = self._load(file)
        scale = np.diag([*numbers(mesh.findtext("scale") or "1 1 1", 3), 1.0])
        turn = _GLTF if file.suffix.lower() in (".glb", ".gltf") else np.eye(4)
        return found, place @ scale @ turn


def _parse(path: Path) -> ET.Element:
    """The root of an SDF file. MeshError for any other file."""
    try:
        root = ET.fromstring(read_text(path, MeshError))
    except (ET.ParseError, ValueError) as error:
        raise MeshError(f"{path}: is not an SDF file ({error})") from error
    if root.tag != "sdf":
        raise MeshError(f"{path}: found <{root.tag[:40]}>, expected <sdf>")
    return root


def _category(name: str) -> str:
    """A name without numbers at its end: "chair" for "chair_01_002"."""
    while _NUMBER.search(name) and _NUMBER.sub("", name):
        name = _NUMBER.sub("", name)
    return name
