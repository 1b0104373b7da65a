"""Mesh files as parts of a scene: orientation, scale and place.

Frames are habitat-sim's. An asset's `up` and `front` are the directions that become +Y and -Z; then the asset is
scaled, rotated and translated. Objects and stages are +Y up by default; but a `.glb` stage (Gibson, MP3D, HM3D) is +Z
up with +Y to the front.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np

from batchnav.data.files import is_number
from batchnav.data.scenes.annotations import is_semantic, semantic_file
from batchnav.errors import MeshError, shortened
from batchnav.runtime.checks import check_number
from batchnav.scene.axes import Up, check_up, rotation_of
from batchnav.scene.id_tiles import without_tiles
from batchnav.scene.surface import PLAIN, turned
from batchnav.types import Surface, TriangleMesh

Vector = tuple[float, float, float]
_STEM = "%%CONFIG_NAME_AS_ASSET_FILENAME%%"
"""Placeholder in the fields of a stage: the name of its mesh file without suffix."""


@dataclass(frozen=True)
class FileAxes:
    """The directions of an asset that point up and to the front."""

    up: Vector = (0.0, 1.0, 0.0)
    front: Vector = (0.0, 0.0, -1.0)

    @property
    def rotation(self) -> np.ndarray:
        """f64 [3, 3]: rotation from asset coordinates to +Y up, -Z front; the part of `front` along `up` is ignored."""
        up = np.array(self.up)
        back = -np.array(self.front) + up * (up @ self.front)
        back /= np.linalg.norm(back)
        return np.stack([np.cross(up, back), up, back])


Z_UP = FileAxes((0.0, 0.0, 1.0), (0.0, 1.0, 0.0))


def frame_of(up: Up) -> FileAxes | None:
    """The frame of a mesh file whose axis `up` points up, as `load_mesh` turns it; None for "auto"."""
    check_up(up)
    if up == "auto":
        return None
    _, to_up, to_back = rotation_of(up).tolist()
    return FileAxes(tuple(to_up), tuple(-value + 0.0 for value in to_back))


def axis_of(frame: FileAxes) -> str:
    """The axis that points up in a frame, such as "y" or "-z"; "" where `up` is along no axis."""
    axes = [up for up in get_args(Up) if up != "auto"]
    return next((up for up in axes if rotation_of(up)[1].tolist() == list(frame.up)), "")


@dataclass(frozen=True)
class Asset:
    """A mesh file with the orientation and scale of a stage or object config."""

    path: Path
    frame: FileAxes = FileAxes()
    scale: Vector = (1.0, 1.0, 1.0)
    """Scale along the axes of Habitat's frame."""
    centre: Vector | None = None
    """Centre of mass of the object, before scaling; None for the middle of its bounding box."""
    flip: bool = False
    """Reverse the winding of all triangles."""
    semantic: Path | None = None
    """Mesh file with the ids; None: they are in the same file."""
    semantic_frame: FileAxes | None = None
    """Orientation of the mesh file with the ids; None: `frame`."""
    descriptor: Path | None = None
    """Annotation file; None: the one that belongs to the mesh file with the ids by name."""
    guessed: bool = False
    """True where `frame` is that of the dataset's layout, and neither a config nor a user states it."""

    @property
    def of_ids(self) -> Asset:
        """The mesh file with the ids, as an asset."""
        if self.semantic is None:
            return self
        return replace(self, path=self.semantic, frame=self.semantic_frame or self.frame, semantic=None)


def oriented_asset(path: Path, up: Up = "auto", scale: float = 1.0, flip: bool = False) -> Asset:
    """A mesh file outside of datasets: `up` is +Y for "auto"; `scale` is the factor to metres.

    ArgumentError for a scale that is not above 0.
    """
    scale = check_number("scale", scale, 1e-9, 1e9)
    return Asset(path, frame_of(up) or FileAxes(), (scale, scale, scale), flip=flip)


class Part(NamedTuple):
    """An asset placed in a scene."""

    asset: Asset
    linear: np.ndarray = np.eye(3)
    """f64 [3, 3]: rotation and scale, applied after the asset's own frame and scale."""
    translation: np.ndarray = np.zeros(3)
    """f64 [3]: position of the pivot, metres."""
    at_centre: bool = False
    """True where the pivot is the asset's centre, False where it is its origin."""
    object_id: int = 0
    """Number of the object in the scene, from 1 on; 0 for unknown."""
    category: str = ""
    """Category of the object; "" for unknown."""

    def place(self, mesh: TriangleMesh) -> TriangleMesh:
        """The mesh of the asset, transformed to the scene's frame."""
        points = mesh.vertices @ self.asset.frame.rotation.T
        origin = np.array(mesh.origin) @ self.asset.frame.rotation.T
        if self.at_centre:
            points -= (points.min(0) + points.max(0)) / 2 if self.asset.centre is None else self.asset.centre - origin
            origin = np.zeros(3)
        linear = self.linear * self.asset.scale
        faces, surface = mesh.faces, mesh.surface
        if np.linalg.det(linear) < 0:  # a mirrored part keeps its front faces
            faces, surface = faces[:, ::-1], surface and turned(surface)
        if self.asset.flip:
            faces, surface = faces[:, ::-1], surface and turned(surface)
        x, y, z = (linear @ origin + 0.0).tolist()
        return TriangleMesh(points @ linear.T + self.translation, faces, mesh.num_dropped, surface, (x, y, z))

    def labelled(self, mesh: TriangleMesh) -> TriangleMesh:
        """The mesh with the part's object id and category on all triangles; unchanged where the id is unknown."""
        if not self.object_id:
            return mesh
        count = len(mesh.faces)
        surface = mesh.surface or Surface(np.zeros(count, np.int32), (PLAIN,))
        categories = ("", self.category) if self.category else ("",)
        return mesh._replace(
            surface=without_tiles(surface)._replace(
                object_id=np.full(count, self.object_id, np.int32),
                category=np.full(count, len(categories) - 1, np.int32), categories=categories,
            )
        )  # fmt: skip


def stage_frame(path: Path) -> FileAxes:
    """The default frame of a stage: +Z up for a `.glb`, +Y up otherwise."""
    return Z_UP if path.suffix.lower() == ".glb" else FileAxes()


def asset_of(attributes: dict, folder: Path, where: str, is_stage: bool) -> Asset:
    """An asset from the attributes of a config.

    Args:
        attributes: fields of the config.
        folder: base of relative paths.
        where: start of error messages.
        is_stage: True for a stage, False for an object; their default frames differ.
    """
    name = attributes.get("render_asset")
    if not isinstance(name, str) or not name or "\0" in name:
        raise MeshError(f"{where}: field 'render_asset': found {shortened(name)}, expected the path of a mesh file")
    path = folder / name
    frame = _frame(attributes, where, stage_frame(path) if is_stage else FileAxes())
    centre = vector(attributes, "COM", where) if "COM" in attributes else None
    asset = Asset(path, frame, vector(attributes, "scale", where, (1.0, 1.0, 1.0)), centre)
    return with_ids(asset, attributes, folder, where) if is_stage else asset


def with_ids(asset: Asset, attributes: dict, folder: Path, where: str) -> Asset:
    """A stage's asset with its mesh file of ids and its annotation file.

    The fields `semantic_asset` and `semantic_descriptor_filename` (or `house_filename`) name them; otherwise they are
    found by the mesh file's name. Names of missing files are ignored, as in habitat-sim.
    """
    mesh = _named_file(attributes, ("semantic_asset",), asset.path, folder, where)
    semantic = semantic_file(asset.path) if mesh is None else mesh
    keys = ("semantic_descriptor_filename", "house_filename")
    descriptor = _named_file(attributes, keys, asset.path, folder, where)
    frame = None
    if "semantic_up" in attributes or "semantic_front" in attributes:
        axes = {name: attributes[f"semantic_{name}"] for name in ("up", "front") if f"semantic_{name}" in attributes}
        frame = _frame(axes, where, asset.frame)
    if semantic == asset.path:
        return replace(asset, descriptor=descriptor)
    return with_descriptor(replace(asset, semantic=semantic, semantic_frame=frame), descriptor)


def with_descriptor(asset: Asset, descriptor: Path | None) -> Asset:
    """The asset with an annotation file; unchanged for None.

    A `.txt` file lists the colours that stand for ids; an asset without a mesh file of such colours is unchanged.
    """
    lists_colors = descriptor is not None and descriptor.suffix == ".txt"
    if lists_colors and asset.semantic is None and not is_semantic(asset.path):
        return asset
    return replace(asset, descriptor=descriptor or asset.descriptor)


def _named_file(attributes: dict, keys: tuple[str, ...], mesh: Path, folder: Path, where: str) -> Path | None:
    """The existing file that one of these fields names; None where there is none."""
    for key in keys:
        name = attributes.get(key, "")
        if not isinstance(name, str) or "\0" in name:
            raise MeshError(f"{where}: field {key!r}: found {shortened(name)}, expected the path of a file")
        for stem in dict.fromkeys((mesh.stem, mesh.stem.removesuffix(".basis"))):
            file = folder / name.replace(_STEM, stem)
            if name and os.path.isfile(file):
                return file
    return None


def _frame(attributes: dict, where: str, default: FileAxes) -> FileAxes:
    """The frame of the fields `up` and `front`. The default front is used where only `up` is given."""
    found = {name: unit(vector(attributes, name, where)) for name in ("up", "front") if name in attributes}
    up = found.get("up", default.up)
    level = [
        front for front in (default.front, (0.0, 0.0, -1.0), (0.0, 1.0, 0.0)) if up and abs(np.dot(up, front)) < 0.5
    ]
    front = found.get("front", level[0] if level else None)
    if up is None or front is None or abs(np.dot(up, front)) > 0.999:
        expected = "directions at a right angle"
        raise MeshError(
            f"{where}: fields 'up' and 'front': found {shortened(up)} and {shortened(front)}, expected {expected}"
        )
    return FileAxes(up, front)


def vector(data: dict, field: str, where: str, default: tuple[float, ...] | None = None, length: int = 3) -> tuple:
    """The `length` numbers of a field, or `default` where the field is absent. MeshError for other values."""
    value = data.get(field, default)
    if not isinstance(value, (list, tuple)) or len(value) != length or not all(map(is_number, value)):
        raise MeshError(f"{where}: field {field!r}: found {shortened(value)}, expected {length} finite numbers")
    return tuple(float(v) for v in value)


def unit(values: tuple[float, ...]) -> tuple | None:
    """A vector scaled to length 1; None for a zero or infinite vector."""
    length = math.hypot(*values)
    return tuple(v / length for v in values) if 1e-12 < length < math.inf else None
