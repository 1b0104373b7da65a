"""Scene: mesh, BVH for ray casting, and navmesh for agents."""

from __future__ import annotations

import functools
import hashlib
import logging
import multiprocessing
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np

from batchnav.errors import NavMeshError
from batchnav.navmesh import navmesh as navmesh_module
from batchnav.navmesh.data import surface
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.cache import cache_folder, link_shared, warn_not_kept
from batchnav.runtime.console import announce, number_of
from batchnav.runtime.kernels.precompile import SCENE_KERNELS, precompile
from batchnav.scene.axes import COARSEST, NO_ORIGIN, two_sided, with_origin
from batchnav.scene.bvh import BVH, build_bvh
from batchnav.scene.goals import SceneGoals
from batchnav.scene.mesh import check_mesh
from batchnav.types import FAR, TriangleMesh

log = logging.getLogger(__name__)
_WARNED: set[tuple[str, str]] = set()
"""Scenes and fields of ids that a warning has named."""
_SAID: set[str] = set()
"""Bodies whose navmeshes a line has named."""
NavMeshOrigin = Literal["file", "mesh", "two_sided", "family"]
"""Where a navmesh comes from: a file; a bake of the scene's mesh, with floors that face up, or up and down; or the
generator of a procedural scene."""
NAVMESH_ORIGINS: tuple[str, ...] = get_args(NavMeshOrigin)


class Scene(NamedTuple):
    """One scene on the host; `SceneBank.pack` copies scenes to a device."""

    name: str
    """Scene id, or the path of the file."""
    mesh: TriangleMesh
    """Triangles that cameras see, with their appearance."""
    navmesh: NavMesh
    """Surface that agents can walk on, on the CPU."""
    bvh: BVH
    """Bounding volume hierarchy of the triangles, for ray casting."""
    semantic: Scene | None = None
    """The same scene with the mesh that has the ids, in datasets with a separate mesh for ids, such as HM3D."""
    goals: SceneGoals | None = None
    """Goals of ObjectNav and Instance ImageNav (`batchnav.with_goals`); None: none were made for this scene."""
    navmesh_origin: NavMeshOrigin = "file"
    """Where `navmesh` comes from. A file's is used as it is; others are baked again for another body."""

    def __repr__(self) -> str:
        """One line instead of the arrays."""
        triangles = number_of(len(self.mesh.faces), "triangle")
        return f"Scene({self.name!r}, {triangles}, {self.navmesh.area:.1f} m² walkable)"

    @property
    def origin(self) -> np.ndarray:
        """f64 [3]: position of the scene's frame in its file's coordinates, metres; 0 unless those are far away.

        A point p of the scene is at `origin + p` in the file.
        """
        return np.array(self.mesh.origin, np.float64)

    @property
    def categories(self) -> tuple[str, ...]:
        """Category names by the numbers in `mesh.surface.category`; number 0 is no category."""
        surface = (self.semantic or self).mesh.surface
        return ("",) if surface is None or surface.category is None else surface.categories


def warn_of_no_ids(scenes: Iterable[Scene], fields: Collection[str]) -> None:
    """Log a warning, once for each scene and field, about scenes without the ids that sensors read."""
    for field, what in (("category", "categories"), ("object_id", "object ids")):
        if field not in fields:
            continue
        for scene in scenes:
            surface = (scene.semantic or scene).mesh.surface
            ids = None if surface is None else getattr(surface, field)
            if (ids is None or not ids.any()) and (scene.name, field) not in _WARNED:
                _WARNED.add((scene.name, field))
                stem = Path(scene.name).name.split(".")[0]
                log.warning(
                    "%s: found no %s, so its ids are 0; expected %s.semantic.glb with %s.semantic.txt (HM3D), or "
                    "%s_semantic.ply with %s.scn (Gibson) or %s.house (Matterport3D), in the folder of the mesh, or a "
                    "stage config with semantic_asset", scene.name, what, *[stem] * 5,
                )  # fmt: skip


def make_scene(
    name: str,
    mesh: TriangleMesh,
    navmesh: NavMesh | None = None,
    settings: NavMeshSettings | None = None,
    semantic: TriangleMesh | None = None,
) -> Scene:
    """A scene from a mesh in memory. A mesh far from the origin is recentred, and its navmesh with it.

    Args:
        name: name of the scene.
        mesh: what depth and colour sensors see, +Y up, metres.
        navmesh: the navmesh; None to bake one, which is cached.
        settings: bake settings; None: the defaults.
        semantic: what sensors of ids see; None: `mesh`.
    """
    mesh = check_mesh(mesh, name)
    origin: NavMeshOrigin = "mesh" if navmesh is None else "file"
    navmesh = navmesh and in_frame_of(mesh, navmesh, name)
    navmesh = navmesh or bake_cached(mesh, name, settings or NavMeshSettings())
    ids = None
    if semantic is not None:
        semantic = with_origin(check_mesh(semantic, name), mesh.origin)
        ids = Scene(name, semantic, navmesh, build_bvh(semantic))
    return Scene(name, mesh, navmesh, build_bvh(mesh), ids, navmesh_origin=origin)


def in_frame_of(mesh: TriangleMesh, navmesh: NavMesh, name: str) -> NavMesh:
    """The navmesh of a file, moved with its mesh where that was recentred.

    A navmesh with coordinates beyond `FAR` is in the frame of the mesh file; others are in the mesh's frame already.
    NavMeshError where the file stores its coordinates in too coarse steps.
    """
    farthest = np.abs(navmesh.bounds).max(0)
    is_far = (np.array(mesh.origin) != 0) & (farthest > FAR)
    if mesh.origin == NO_ORIGIN or not is_far.any():
        return navmesh
    step = float(np.spacing(np.float32(farthest[is_far].max())))
    if step > COARSEST:
        raise NavMeshError(
            f"{name}: found coordinates up to {farthest.max():.9g} m in steps of {step:.2g} m (float32), expected "
            f"{COARSEST:g} m or less: delete it, then a navmesh is baked near the origin"
        )
    return navmesh.moved(np.where(is_far, -np.array(mesh.origin), 0.0))


def check_body(scene: Scene, agent_radius: float, agent_height: float) -> None:
    """Raise NavMeshError where a scene's navmesh was baked for another agent radius or height.

    A navmesh file of version 1 has no settings; it passes with a warning.
    """
    settings = NavMeshSettings(agent_radius=agent_radius, agent_height=agent_height)
    if scene.navmesh.settings is None:
        log.warning(
            "%s: its navmesh file (version 1) has no bake settings; assumed to be baked for %s",
            scene.name, _body(settings),
        )  # fmt: skip
    check_baked_for(scene.navmesh, scene.name, settings)


def check_baked_for(navmesh: NavMesh, name: str, settings: NavMeshSettings) -> None:
    """Raise NavMeshError where a navmesh was baked for another agent radius or height than those in `settings`.

    Other settings may differ. The message begins with `name`.
    """
    found = navmesh.settings
    if found is not None and not is_baked_for(navmesh, settings):
        raise NavMeshError(
            f"{name}: found a navmesh that was baked for {_body(found)}, expected {_body(settings)}; "
            f"bake one with `batchnav navmesh bake`, or delete the navmesh file, then one is baked"
        )


def for_body(scene: Scene, settings: NavMeshSettings) -> Scene:
    """The scene with a navmesh for the radius and height in `settings`: its own, or one baked from its mesh and cached.

    Islands that the scene's own navmesh leaves out stay left out. NavMeshError where its navmesh is not baked again:
    that of a file, or one that goals were made on.
    """
    if is_baked_for(scene.navmesh, settings):
        return scene
    if scene.navmesh_origin not in ("mesh", "two_sided") or scene.goals is not None:
        check_baked_for(scene.navmesh, scene.name, settings)
    say_body(scene.name, settings)
    return with_rebaked(scene, bake_cached(mesh_to_bake(scene), scene.name, settings), settings)


def mesh_to_bake(scene: Scene) -> TriangleMesh:
    """The mesh of a scene from a file as it is baked: with floors that look down turned up where they are walkable."""
    return two_sided(scene.mesh) if scene.navmesh_origin == "two_sided" else scene.mesh


def say_body(name: str, settings: NavMeshSettings) -> None:
    """Print a line that navmeshes are baked for another body, once per process and body; `name`: the first scene."""
    body = _body(settings)
    if body not in _SAID and multiprocessing.current_process().name == "MainProcess":
        _SAID.add(body)
        announce(f"{name}: its navmesh is for another body: baked again for {body}, as those of further scenes; cached")


def with_rebaked(scene: Scene, navmesh: NavMesh, settings: NavMeshSettings) -> Scene:
    """The scene with the islands of a navmesh that its own navmesh has too. NavMeshError where no island is left."""
    corners, owner = surface(navmesh.data)
    known = scene.navmesh.is_navigable(corners.mean(1), max_y_delta=settings.agent_max_climb + settings.cell_height)
    kept = np.unique(navmesh.data.polygon_island[owner[known]]).tolist()
    if not kept:
        raise NavMeshError(
            f"{scene.name}, for {_body(settings)}: found no floor where its navmesh has one, expected some"
        )
    navmesh = navmesh.keep(kept)
    return scene._replace(navmesh=navmesh, semantic=scene.semantic and scene.semantic._replace(navmesh=navmesh))


def is_baked_for(navmesh: NavMesh, settings: NavMeshSettings) -> bool:
    """True if a navmesh was baked for the radius and height in `settings`, or has no settings (version 1 files)."""
    return navmesh.settings is None or is_same_body(navmesh.settings, settings)


def is_same_body(first: NavMeshSettings, second: NavMeshSettings) -> bool:
    """True if both settings have the same radius and height."""
    return _stored(first) == _stored(second)


def _stored(settings: NavMeshSettings) -> tuple[np.float32, np.float32]:
    """Radius and height in the precision of a `.navmesh` file."""
    return np.float32(settings.agent_radius), np.float32(settings.agent_height)


def _body(settings: NavMeshSettings) -> str:
    return f"agent_radius {settings.agent_radius:g} and agent_height {settings.agent_height:g}"


def bake_cached(mesh: TriangleMesh, name: str, settings: NavMeshSettings) -> NavMesh:
    """`NavMesh.bake` with a disk cache, keyed by a hash of the mesh, the settings and the baker's sources.

    NavMeshError as `bake`.
    """
    digest = hashlib.sha256(f"{baker_version()} {settings} {mesh.vertices.shape}".encode())
    digest.update(mesh.vertices.tobytes() + mesh.faces.tobytes())
    file = cache_folder() / "navmesh" / f"{digest.hexdigest()[:32]}.navmesh"
    link_shared(file)
    if file.is_file():
        try:
            return NavMesh.load(file)
        except NavMeshError:  # the cached file is damaged: bake again
            file.unlink(missing_ok=True)
    navmesh = bake(mesh, name, settings)
    try:
        navmesh.save(file)
    except NavMeshError as error:
        warn_not_kept(error)
    return navmesh


def bake(mesh: TriangleMesh, name: str, settings: NavMeshSettings) -> NavMesh:
    """`NavMesh.bake`; error messages begin with the scene's name, agent radius and height."""
    precompile(SCENE_KERNELS)
    try:
        return NavMesh.bake(mesh, settings)
    except NavMeshError as error:
        raise NavMeshError(f"{name}, for {_body(settings)}: {error}") from error


@functools.cache
def baker_version() -> str:
    """Hash of the sources of the navmesh package."""
    digest = hashlib.sha256()
    for source in sorted(Path(navmesh_module.__file__).parent.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()
