"""Where a scene comes from: the mesh files it is made of, each with its place, and its navmesh file.

Frames are habitat-sim's. An asset's `up` and `front` say which of its directions become +Y and -Z; then it is scaled,
turned and moved. Where a config says nothing, an object is +Y up, and a stage too unless it is a bare `.glb`: those of
Gibson, MP3D and HM3D are +Z up with +Y to the front.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from batchnav.data.files import is_number, read_json, short
from batchnav.data.habitat.annotations import annotate, annotation_file
from batchnav.errors import MeshError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.scene.images import AppearanceConfig
from batchnav.scene.mesh import check_mesh, load_mesh
from batchnav.scene.scene import Scene, bake_cached, check_baked_for, make_scene
from batchnav.scene.surface import PLAIN, merge_surfaces, turned
from batchnav.types import Surface, TriangleMesh

SCENES_DIR = Path("data/scene_datasets")
"""Habitat's folder of scenes, below which an episode's scene id is a path."""
STAGE_CONFIG = ".stage_config.json"

Vector = tuple[float, float, float]


@dataclass(frozen=True)
class Frame:
    """Which directions of an asset are up and front."""

    up: Vector = (0.0, 1.0, 0.0)
    front: Vector = (0.0, 0.0, -1.0)

    @property
    def rotation(self) -> np.ndarray:
        """f64 [3, 3]: asset coordinates to +Y up, -Z front; front's part along up does not count."""
        up = np.array(self.up)
        back = -np.array(self.front) + up * (up @ self.front)
        back /= np.linalg.norm(back)
        return np.stack([np.cross(up, back), up, back])


Z_UP = Frame((0.0, 0.0, 1.0), (0.0, 1.0, 0.0))


@dataclass(frozen=True)
class Asset:
    """A mesh file as a stage or object config describes it."""

    path: Path
    frame: Frame = Frame()
    scale: Vector = (1.0, 1.0, 1.0)
    """Along the axes of Habitat's frame."""
    centre: Vector | None = None
    """The object's centre of mass, before scaling; None: the middle of its bounding box."""


class Part(NamedTuple):
    """An asset at its place in a scene."""

    asset: Asset
    linear: np.ndarray = np.eye(3)
    """f64 [3, 3]: turns and scales the asset, which its own frame and scale have been applied to."""
    translation: np.ndarray = np.zeros(3)
    """f64 [3], metres: where the pivot goes."""
    at_centre: bool = False
    """Whether the pivot is the asset's centre instead of its origin."""
    object_id: int = 0
    """Of the thing that the asset is in this place, from 1 on; 0: not known."""
    category: str = ""
    """Of that thing; "": not known."""

    def place(self, mesh: TriangleMesh) -> TriangleMesh:
        """The asset's mesh in the scene's frame."""
        points = mesh.vertices @ self.asset.frame.rotation.T
        if self.at_centre:
            points -= (points.min(0) + points.max(0)) / 2 if self.asset.centre is None else self.asset.centre
        linear = self.linear * self.asset.scale
        faces, surface = mesh.faces, mesh.surface
        if np.linalg.det(linear) < 0:  # a mirrored part keeps its front
            faces, surface = faces[:, ::-1], surface and turned(surface)
        return TriangleMesh(points @ linear.T + self.translation, faces, mesh.num_dropped, surface)

    def named(self, mesh: TriangleMesh) -> TriangleMesh:
        """The mesh with what thing it is, where that is known."""
        if not self.object_id:
            return mesh
        count = len(mesh.faces)
        surface = mesh.surface or Surface(np.zeros(count, np.int32), (PLAIN,))
        categories = ("", self.category) if self.category else ("",)
        return mesh._replace(
            surface=surface._replace(
                object_id=np.full(count, self.object_id, np.int32),
                category=np.full(count, len(categories) - 1, np.int32), categories=categories,
            )
        )  # fmt: skip


@dataclass(frozen=True)
class SceneSource:
    """One scene of a data set, before it is loaded."""

    name: str
    """What episodes call it: `gibson/Adrian.glb`, `102344049` ..."""
    parts: tuple[Part, ...]
    """The stage first."""
    navmesh: Path | None = None
    """None: one is baked with the default settings, and cached."""
    missing: tuple[str, ...] = ()
    """Assets that the scene names and the data set does not have; the scene is loaded without them."""
    home: Path | None = None
    """Folder for the prepared scene; None: beside the scene's only mesh file."""
    surface: Surface | None = field(default=None, compare=False)
    """Of the scene's only mesh file, where that holds triangles alone."""

    @property
    def prepared(self) -> Path:
        """Where `batchnav data prepare` puts the scene, see data/prepared/scene_file.py."""
        if self.home is not None:
            return self.home / f"{self.name}.scene"
        return self.parts[0].asset.path.with_suffix(".scene")

    @property
    def files(self) -> list[Path]:
        """Every file that the scene depends on, each once."""
        found = [part.asset.path for part in self.parts] + ([self.navmesh] if self.navmesh else [])
        found += filter(None, map(annotation_file, {part.asset.path for part in self.parts}))
        return sorted(set(found))

    def load_mesh(self, appearance: AppearanceConfig | bool = True) -> TriangleMesh:
        """All parts as one mesh, +Y up, metres, with or without `appearance`. MeshError where a file cannot be used."""

        @functools.cache  # a chair that stands in forty places is read once
        def load(path: Path) -> TriangleMesh:
            return annotate(load_mesh(path, appearance=appearance), path)

        parts = [part.place(load(part.asset.path)) for part in self.parts]
        if appearance is not False:
            parts = [part.named(mesh) for part, mesh in zip(self.parts, parts, strict=True)]
            if self.surface is not None:
                parts = [mesh._replace(surface=self.surface) for mesh in parts]
        return merge_meshes(parts, self.name)

    def load_navmesh(self, mesh: TriangleMesh, settings: NavMeshSettings | None = None) -> NavMesh:
        """The scene's navmesh: its file's, else one baked from its mesh with `settings`, or the default ones.

        NavMeshError where there is none to have, or the file's was baked for another body than that of `settings`.
        """
        if self.navmesh:
            navmesh = NavMesh.load(self.navmesh)
            if settings is not None:
                check_baked_for(navmesh, str(self.navmesh), settings)
            return navmesh
        return bake_cached(mesh, self.name, settings or NavMeshSettings())

    def load(self, settings: NavMeshSettings | None = None, appearance: AppearanceConfig | bool = True) -> Scene:
        """The scene with its navmesh, see `load_navmesh`. MeshError, NavMeshError."""
        mesh = self.load_mesh(appearance)
        return make_scene(self.name, mesh, self.load_navmesh(mesh, settings))


def merge_meshes(meshes: Sequence[TriangleMesh], name: str) -> TriangleMesh:
    """Several meshes as one, checked. MeshError naming `name` where they hold no triangle that can be used."""
    if not meshes:
        raise MeshError(f"{name}: holds no meshes")
    first = np.cumsum([0] + [len(mesh.vertices) for mesh in meshes[:-1]])
    merged = TriangleMesh(
        np.concatenate([mesh.vertices for mesh in meshes]),
        np.concatenate([mesh.faces + offset for mesh, offset in zip(meshes, first, strict=True)]),
        sum(mesh.num_dropped for mesh in meshes),
        merge_surfaces(meshes),
    )
    return check_mesh(merged, name)


def stage_source(path: Path, name: str | None = None) -> SceneSource:
    """A stage file of Habitat: its frame from NAME.stage_config.json beside it, its navmesh from NAME.navmesh.

    Without a config a `.glb` is +Z up, as in Gibson, MP3D and HM3D.
    """
    config = path.with_suffix(STAGE_CONFIG)
    asset = read_asset(config) if config.is_file() else Asset(path, stage_frame(path))
    return SceneSource(name or scene_id_of(path), (Part(asset),), _existing(path.with_suffix(".navmesh")))


def mesh_source(path: Path, frame: Frame | None = None) -> SceneSource:
    """A mesh file of one's own: +Y up unless `frame` says otherwise, its navmesh from NAME.navmesh beside it."""
    return SceneSource(str(path), (Part(Asset(path, frame or Frame())),), _existing(path.with_suffix(".navmesh")))


def file_source(path: Path) -> SceneSource:
    """A mesh file by itself: a stage of Habitat's where it lies below a folder `scene_datasets`, else one's own."""
    if not path.name:
        raise MeshError(f"{path}: is a folder, expected a mesh file")
    return stage_source(path) if SCENES_DIR.name in path.parts else mesh_source(path)


def stage_frame(path: Path) -> Frame:
    """The frame of a stage whose config names none."""
    return Z_UP if path.suffix.lower() == ".glb" else Frame()


def scene_id_of(path: Path) -> str:
    """A scene's name in episode files: its path below Habitat's folder `scene_datasets`."""
    return path.as_posix().rpartition(f"{SCENES_DIR.name}/")[2]


def read_asset(config: Path, is_stage: bool = True, defaults: dict | None = None) -> Asset:
    """The asset of a `.stage_config.json` or `.object_config.json` file. MeshError names file and field."""
    data = read_json(config, MeshError)
    if not isinstance(data, dict):
        raise MeshError(f"{config}: found {type(data).__name__}, expected an object")
    return asset_of({**(defaults or {}), **data}, config.parent, str(config), is_stage)


def asset_of(attributes: dict, folder: Path, where: str, is_stage: bool) -> Asset:
    """An asset from its attributes; paths are relative to `folder`, `where` begins the error messages."""
    name = attributes.get("render_asset")
    if not isinstance(name, str) or not name or "\0" in name:
        raise MeshError(f"{where}: field 'render_asset': found {short(name)}, expected the path of a mesh file")
    path = folder / name
    frame = _frame(attributes, where, stage_frame(path) if is_stage else Frame())
    centre = vector(attributes, "COM", where) if "COM" in attributes else None
    return Asset(path, frame, vector(attributes, "scale", where, (1.0, 1.0, 1.0)), centre)


def _frame(attributes: dict, where: str, default: Frame) -> Frame:
    """The frame that `up` and `front` say; an `up` alone keeps the default's front where that is at a right angle."""
    found = {name: unit(vector(attributes, name, where)) for name in ("up", "front") if name in attributes}
    up = found.get("up", default.up)
    level = [
        front for front in (default.front, (0.0, 0.0, -1.0), (0.0, 1.0, 0.0)) if up and abs(np.dot(up, front)) < 0.5
    ]
    front = found.get("front", level[0] if level else None)
    if up is None or front is None or abs(np.dot(up, front)) > 0.999:
        expected = "directions at a right angle"
        raise MeshError(f"{where}: fields 'up' and 'front': found {short(up)} and {short(front)}, expected {expected}")
    return Frame(up, front)


def vector(data: dict, field: str, where: str, default: tuple[float, ...] | None = None, length: int = 3) -> tuple:
    """A field's `length` numbers, `default` where it is absent. MeshError otherwise."""
    value = data.get(field, default)
    if not isinstance(value, (list, tuple)) or len(value) != length or not all(map(is_number, value)):
        raise MeshError(f"{where}: field {field!r}: found {short(value)}, expected {length} finite numbers")
    return tuple(float(v) for v in value)


def unit(values: tuple[float, ...]) -> tuple | None:
    """A vector scaled to length 1; None where it has no direction."""
    length = math.hypot(*values)
    return tuple(v / length for v in values) if 1e-12 < length < math.inf else None


def _existing(path: Path) -> Path | None:
    return path if path.is_file() else None
