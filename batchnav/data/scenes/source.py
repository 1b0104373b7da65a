"""A scene before it is loaded: the mesh files of its parts, and its navmesh file."""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from batchnav.data.files import SCENES_DIR, read_json
from batchnav.data.scenes.annotations import (
    FULL_SIZE,
    annotate,
    annotation_file,
    ids_only,
    is_semantic,
    semantic_file,
)
from batchnav.data.scenes.asset import Asset, FileAxes, Part, asset_of, frame_of, stage_frame
from batchnav.data.scenes.checks import check_fit
from batchnav.data.scenes.islands import check_rule, describe_islands, select_islands
from batchnav.data.scenes.orientation import mesh_warnings, orientation_problem
from batchnav.errors import ArgumentError, MeshError, few
from batchnav.navmesh import file as navmesh_file
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.checks import check_number
from batchnav.scene.axes import Up, two_sided
from batchnav.scene.blocks import with_blocks
from batchnav.scene.formats import unsupported_format
from batchnav.scene.images import AppearanceConfig
from batchnav.scene.mesh import SUFFIXES, appearance_config, check_mesh, load_mesh
from batchnav.scene.ros_map import SUFFIX as MAP_SUFFIX
from batchnav.scene.ros_map import image_file, is_ros_map
from batchnav.scene.scene import Scene, bake_cached, check_baked_for, in_frame_of, is_baked_for, make_scene
from batchnav.scene.surface import merge_surfaces
from batchnav.types import Surface, TriangleMesh

log = logging.getLogger(__name__)

STAGE_CONFIG = ".stage_config.json"
"""End of the name of a file that describes a stage."""


@dataclass(frozen=True)
class SceneSource:
    """One scene before it is loaded: placed mesh files and a navmesh file."""

    name: str
    """Scene id in episodes: `gibson/Adrian.glb`, `102344049` ..."""
    parts: tuple[Part, ...]
    """Placed mesh files; the stage is first."""
    navmesh: Path | None = None
    """Navmesh file; None to bake one with the default settings, which is cached."""
    missing: tuple[str, ...] = ()
    """Names of assets that the dataset lacks; the scene is loaded without them."""
    home: Path | None = None
    """Folder for the prepared scene; None for the folder of the scene's only mesh file."""
    surface: Surface | None = field(default=None, compare=False)
    """Surface of the scene's only mesh file, where that file holds triangles without a surface."""
    two_sided: bool = False
    """True where baking makes floors walkable whose faces look down."""
    islands: str = "all"
    """Rule for the islands to keep (`data/scenes/islands.py`)."""

    @property
    def prepared(self) -> Path:
        """Path of the scene that `batchnav data prepare` writes (`data/scenes/prepared.py`)."""
        if self.home is not None:
            return self.home / f"{self.name}.scene"
        return self.parts[0].asset.path.with_suffix(".scene")

    @property
    def frame(self) -> FileAxes | None:
        """Axes of the scene's only mesh file; None for several files, and for COLLADA, which names its axis itself."""
        asset = self.parts[0].asset
        is_known = len(self.parts) == 1 and (asset.path.suffix.lower() != ".dae" or asset.frame != FileAxes())
        return asset.frame if is_known else None

    @property
    def files(self) -> list[Path]:
        """All files that the scene depends on, without duplicates."""
        found = [part.asset.path for part in self.parts] + ([self.navmesh] if self.navmesh else [])
        assets = {asset for part in self.parts for asset in (part.asset, part.asset.of_ids)}
        found += [asset.path for asset in assets]
        found += filter(None, (asset.descriptor or annotation_file(asset.path) for asset in assets))
        found += filter(None, (image_file(asset.path) for asset in assets if asset.path.suffix.lower() == MAP_SUFFIX))
        return sorted(set(found))

    def load_mesh(self, appearance: AppearanceConfig | bool = True) -> TriangleMesh:
        """All parts as one mesh, +Y up, metres. MeshError where a file is missing or unusable."""

        @functools.cache  # an asset in many places is read once
        def load(asset: Asset) -> TriangleMesh:
            path, descriptor = asset.path, None if asset.semantic else asset.descriptor
            read = FULL_SIZE if appearance is not False and (descriptor or is_semantic(path)) else appearance
            # A frame other than the default replaces the axis that a file names itself.
            up: Up = "auto" if asset.frame == FileAxes() else "y"
            return annotate(load_mesh(path, up, read), path, descriptor)

        parts = [part.place(load(part.asset)) for part in self.parts]
        if appearance is not False:
            parts = [part.labelled(mesh) for part, mesh in zip(self.parts, parts, strict=True)]
            if self.surface is not None:
                parts = [mesh._replace(surface=self.surface) for mesh in parts]
        mesh = merge_meshes(parts, self.name)
        self._check_guess(mesh)
        return mesh

    def _check_guess(self, mesh: TriangleMesh) -> None:
        """MeshError where the layout of a dataset says that a mesh file is +Z up, and the mesh that it is +Y up."""
        if len(self.parts) > 1 or not self.parts[0].asset.guessed:
            return
        path, frame = self.parts[0].asset.path, self.parts[0].asset.frame
        stored = mesh._replace(vertices=mesh.vertices @ frame.rotation.astype(np.float32))
        if orientation_problem(mesh) and not orientation_problem(stored):
            raise MeshError(
                f"{path}: found a mesh that looks +Y up in a folder {SCENES_DIR.name}, whose .glb files are +Z up "
                "(Gibson, MP3D, HM3D), expected one of them: name the axis with `--up y` (`load_scene(up='y')`) or "
                f"`--up z`, or state it in {path.stem}{STAGE_CONFIG}"
            )

    def load_semantic_mesh(self, appearance: AppearanceConfig | bool = True) -> TriangleMesh | None:
        """The mesh with the ids, without colours; None where it is that of `load_mesh`, or `appearance` has no ids."""
        config = appearance_config(appearance)
        if config is None or not config.ids or not any(part.asset.semantic for part in self.parts):
            return None

        @functools.cache
        def load(asset: Asset, has_ids: bool) -> TriangleMesh:
            read = FULL_SIZE if has_ids else False
            return annotate(load_mesh(asset.path, appearance=read), asset.path, asset.descriptor)

        parts = [part._replace(asset=part.asset.of_ids) for part in self.parts]
        placed = [ids_only(part.labelled(part.place(load(part.asset, not part.object_id)))) for part in parts]
        return merge_meshes(placed, self.name)

    def load_navmesh(self, mesh: TriangleMesh, settings: NavMeshSettings | None = None) -> NavMesh:
        """The navmesh of the scene: its file, or a navmesh baked from `mesh`.

        Args:
            mesh: the scene's mesh.
            settings: bake settings; None: the file unchanged, or the default settings.

        Raises NavMeshError where no navmesh can be made, or the file was baked for another body than `settings`.
        """
        if self.navmesh:
            navmesh = in_frame_of(mesh, NavMesh(navmesh_file.read(self.navmesh)), str(self.navmesh))
            if settings is not None:
                check_baked_for(navmesh, str(self.navmesh), settings)
            return navmesh
        return bake_cached(self.mesh_to_bake(mesh), self.name, settings or NavMeshSettings())

    def without_misfit(self, settings: NavMeshSettings | None) -> SceneSource:
        """The source without its navmesh file where that is for another body than that of `settings`."""
        if self.navmesh is None or settings is None or is_baked_for(NavMesh.load(self.navmesh), settings):
            return self
        return replace(self, navmesh=None)

    def mesh_to_bake(self, mesh: TriangleMesh) -> TriangleMesh:
        """The mesh to bake a navmesh from: the scene's mesh, with floors that look down turned up if `two_sided`."""
        return two_sided(mesh) if self.two_sided else mesh

    def load(self, settings: NavMeshSettings | None = None, appearance: AppearanceConfig | bool = True) -> Scene:
        """The scene; arguments as in `load_navmesh` and `load_mesh`. MeshError, NavMeshError.

        Suspicious geometry is logged as a warning (`data/scenes/orientation.py`, `data/scenes/checks.py`).
        """
        mesh = self.load_mesh(appearance)
        for text in mesh_warnings(mesh, self.name, self.frame):
            log.warning("%s", text)
        scene, warnings = self.make(mesh, settings, appearance)
        for text in (*warnings, *(describe_islands(scene)[1] if self.islands == "all" else ())):
            log.warning("%s", text)
        return scene

    def make(
        self,
        mesh: TriangleMesh,
        settings: NavMeshSettings | None = None,
        appearance: AppearanceConfig | bool = True,
    ) -> tuple[Scene, list[str]]:
        """The scene of the loaded mesh, and warnings about a navmesh file that does not fit it. NavMeshError.

        Its large textures are kept in blocks (`scene/blocks.py`).
        """
        semantic, mesh = self.load_semantic_mesh(appearance), mesh._replace(surface=with_blocks(mesh.surface))
        scene = make_scene(self.name, mesh, self.load_navmesh(mesh, settings), semantic=semantic)
        if self.navmesh is None:
            scene = scene._replace(navmesh_origin="two_sided" if self.two_sided else "mesh")
        warnings = check_fit(scene, str(self.navmesh)) if self.navmesh else []
        return select_islands(scene, self.islands), warnings

    def adjusted(
        self,
        up: Up = "auto",
        scale: float = 1.0,
        flip: bool = False,
        two_sided: bool = False,
        islands: str = "all",
    ) -> SceneSource:
        """The source with another orientation and unit of its mesh file, and other islands.

        ArgumentError for a scene of several parts with another orientation or unit: its dataset states them.
        """
        check_rule(islands)
        scale, frame = check_number("scale", scale, 1e-9, 1e9), frame_of(up)
        parts = self.parts
        if frame is not None or scale != 1.0 or flip:
            if len(parts) != 1:
                raise ArgumentError(
                    f"up, scale, flip: found one of them for {self.name}, a scene of {len(parts)} parts whose dataset "
                    "states their orientation; expected a mesh file"
                )
            asset = parts[0].asset
            x, y, z = asset.scale
            asset = replace(
                asset,
                frame=frame or asset.frame,
                guessed=asset.guessed and frame is None,
                scale=(scale * x, scale * y, scale * z),
                flip=flip != asset.flip,
            )
            parts = (parts[0]._replace(asset=asset),)
        return replace(self, parts=parts, two_sided=two_sided, islands=islands)


def merge_meshes(meshes: Sequence[TriangleMesh], name: str) -> TriangleMesh:
    """Several meshes as one checked mesh. MeshError with `name` where no usable triangle is left."""
    if not meshes:
        raise MeshError(f"{name}: holds no meshes")
    first = np.cumsum([0] + [len(mesh.vertices) for mesh in meshes[:-1]])
    origin = meshes[0].origin
    shifts = [np.subtract(mesh.origin, origin) for mesh in meshes]
    merged = TriangleMesh(
        np.concatenate(
            [
                mesh.vertices + shift if shift.any() else mesh.vertices
                for mesh, shift in zip(meshes, shifts, strict=True)
            ]
        ),
        np.concatenate([mesh.faces + offset for mesh, offset in zip(meshes, first, strict=True)]),
        sum(mesh.num_dropped for mesh in meshes),
        merge_surfaces(meshes),
        origin,
    )
    return check_mesh(merged, name)


def stage_source(path: Path, name: str | None = None) -> SceneSource:
    """The source of a stage file of Habitat.

    Its frame comes from NAME.stage_config.json and its navmesh from NAME.navmesh in the same folder. Without a config a
    `.glb` is +Z up, as in Gibson, MP3D and HM3D.
    """
    config = path.with_suffix(STAGE_CONFIG)
    frame = stage_frame(path)
    guess = Asset(path, frame, semantic=semantic_file(path), guessed=frame != FileAxes())
    asset = read_asset(config) if config.is_file() else guess
    return SceneSource(name or scene_id_of(path), (Part(asset),), _existing(path.with_suffix(".navmesh")))


def mesh_source(path: Path, frame: FileAxes | None = None) -> SceneSource:
    """The source of a mesh file outside of datasets, +Y up unless `frame` is given.

    Its navmesh is NAME.navmesh in the same folder, if that exists.
    """
    asset = Asset(path, frame or FileAxes(), semantic=semantic_file(path))
    return SceneSource(str(path), (Part(asset),), _existing(path.with_suffix(".navmesh")))


def file_source(path: Path) -> SceneSource:
    """The source of a mesh file: a stage of Habitat if a folder of its path is `scene_datasets`, else any mesh file."""
    if not path.name:
        raise MeshError(f"{path}: is a folder, expected a mesh file")
    return stage_source(path) if SCENES_DIR.name in path.parts else mesh_source(path)


def scene_id_of(path: Path) -> str:
    """The scene id in episode files: the path below Habitat's folder `scene_datasets`."""
    return path.as_posix().rpartition(f"{SCENES_DIR.name}/")[2]


def read_asset(config: Path, is_stage: bool = True, defaults: dict | None = None) -> Asset:
    """The asset that a `.stage_config.json` or `.object_config.json` file describes. MeshError names file and field."""
    data = read_json(config, MeshError)
    if not isinstance(data, dict):
        raise MeshError(f"{config}: found {type(data).__name__}, expected an object")
    return asset_of({**(defaults or {}), **data}, config.parent, str(config), is_stage)


def _existing(path: Path) -> Path | None:
    return path if path.is_file() else None


# The mesh files in a folder, one for each scene

_log = logging.getLogger(__name__)


def mesh_files_in(folder: Path, known: Collection[str] = ()) -> list[Path]:
    """The mesh files in a folder, one for each scene, by name (see `one_per_scene`).

    Logs a warning about files of formats that are not read, apart from suffixes that the caller knows, and about
    several mesh files of one scene.
    """
    present = [file for file in sorted(folder.iterdir()) if not is_hidden(file)]
    others = [file for file in present if file.suffix.lower() not in known]
    unread = [file.name for file in others if unsupported_format(file.suffix) and file.is_file()]
    if unread:
        kind = unsupported_format(Path(unread[0]).suffix)
        _log.warning("%s: left out %s: %s", folder, few(unread), kind)
    files = [file for file in present if file.suffix.lower() in SUFFIXES]
    files = [file for file in files if file.suffix.lower() != MAP_SUFFIX or is_ros_map(file)]
    kept = one_per_scene(files)
    copies = [f.name for f in files if f not in kept and not is_semantic(f) and not _with_basis(f).is_file()]
    if copies:
        _log.warning("%s: left out %s: a mesh file of the same name counts as the scene", folder, few(copies))
    return kept


def one_per_scene(files: Iterable[Path]) -> list[Path]:
    """The mesh files without those that belong to the scene of another one.

    Of files with one name (X.basis.glb, X.glb, X.obj) the first in the order of `SUFFIXES` counts, a `.basis.glb`
    before all. X.semantic.glb and X_semantic.ply are left out where there is a file X of another kind.
    """
    files = list(files)
    best: dict[Path, Path] = {}
    for file in sorted(files, key=_rank):
        best.setdefault(_scene(file), file)
    return [file for file in files if best[_scene(file)] == file]


def is_hidden(file: Path) -> bool:
    """True for names that begin with a dot, such as `._scan.glb`, which macOS writes to other file systems."""
    return file.name.startswith(".")


def _scene(file: Path) -> Path:
    """Path of the scene that a mesh file belongs to, without suffixes."""
    stem = file.stem.removesuffix(".semantic" if file.suffix == ".glb" else "_semantic").removesuffix(".basis")
    return file.with_name(stem)


def _with_basis(file: Path) -> Path:
    """The compressed file of the same scene, as in HM3D."""
    return file.with_name(f"{file.stem}.basis.glb")


def _rank(file: Path) -> tuple[bool, bool, int]:
    """Order of preference among files of one scene."""
    return is_semantic(file), not file.name.endswith(".basis.glb"), SUFFIXES.index(file.suffix.lower())
