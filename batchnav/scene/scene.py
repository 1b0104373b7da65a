"""A scene: a mesh, the tree that rays search, and the navmesh that agents walk on."""

from __future__ import annotations

import functools
import hashlib
import logging
from pathlib import Path
from typing import NamedTuple

import numpy as np

from batchnav.errors import NavMeshError
from batchnav.navmesh import navmesh as navmesh_module
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.console.announce import number_of
from batchnav.runtime.files.cache import cache_folder
from batchnav.runtime.kernels.precompile import SCENE_KERNELS, precompile
from batchnav.scene.bvh import BVH, build_bvh
from batchnav.scene.mesh import check_mesh
from batchnav.types import TriangleMesh

log = logging.getLogger(__name__)


class Scene(NamedTuple):
    """One house, on the host; `SceneBank.pack` takes scenes to a device."""

    name: str
    mesh: TriangleMesh
    navmesh: NavMesh
    bvh: BVH

    def __repr__(self) -> str:
        """A line, and not pages of arrays."""
        triangles = number_of(len(self.mesh.faces), "triangle")
        return f"Scene({self.name!r}, {triangles}, {self.navmesh.area:.1f} m² to walk on)"

    @property
    def categories(self) -> tuple[str, ...]:
        """Names of what its triangles are, as `mesh.surface.category` counts them; row 0 is what has none."""
        surface = self.mesh.surface
        return ("",) if surface is None or surface.category is None else surface.categories


def make_scene(
    name: str, mesh: TriangleMesh, navmesh: NavMesh | None = None, settings: NavMeshSettings | None = None
) -> Scene:
    """A scene of a mesh in memory; without a navmesh, one is baked with `settings`, or the default ones, and cached."""
    mesh = check_mesh(mesh, name)
    return Scene(name, mesh, navmesh or bake_cached(mesh, name, settings or NavMeshSettings()), build_bvh(mesh))


def check_body(scene: Scene, agent_radius: float, agent_height: float) -> None:
    """Refuse a scene whose navmesh was baked for another body: agents would walk where it does not fit, or miss places.

    NavMeshError names the scene, what was found and expected, in metres. A navmesh whose file does not say what it was
    baked for (version 1) is taken, with a warning.
    """
    settings = NavMeshSettings(agent_radius=agent_radius, agent_height=agent_height)
    if scene.navmesh.settings is None:
        log.warning(
            "%s: its navmesh file does not say for which body it was baked; taken for one of %s",
            scene.name, _body(settings),
        )  # fmt: skip
    check_baked_for(scene.navmesh, scene.name, settings)


def check_baked_for(navmesh: NavMesh, name: str, settings: NavMeshSettings) -> None:
    """NavMeshError, which begins with `name`, where a navmesh says that it was baked for another body than `settings`.

    Radius and height decide; cell sizes and the rest are the navmesh's own.
    """
    found = navmesh.settings
    if found is not None and not is_baked_for(navmesh, settings):
        raise NavMeshError(
            f"{name}: found a navmesh that was baked for {_body(found)}, expected {_body(settings)} "
            f"(`batchnav navmesh bake` makes one)"
        )


def is_baked_for(navmesh: NavMesh, settings: NavMeshSettings) -> bool:
    """True if a navmesh was baked for the body of `settings`, or does not say for which (version 1 files)."""
    return navmesh.settings is None or _stored(navmesh.settings) == _stored(settings)


def _stored(settings: NavMeshSettings) -> tuple[np.float32, np.float32]:
    """Radius and height as a `.navmesh` file holds them."""
    return np.float32(settings.agent_radius), np.float32(settings.agent_height)


def _body(settings: NavMeshSettings) -> str:
    return f"agent_radius {settings.agent_radius:g} and agent_height {settings.agent_height:g}"


def bake_cached(mesh: TriangleMesh, name: str, settings: NavMeshSettings) -> NavMesh:
    """`NavMesh.bake`, kept on disk under a hash of the mesh, the settings and the baker's sources.

    NavMeshError, which begins with `name` and the body, where that finds no room, or the mesh is not one to bake.
    """
    digest = hashlib.sha256(f"{baker_version()} {settings} {mesh.vertices.shape}".encode())
    digest.update(mesh.vertices.tobytes() + mesh.faces.tobytes())
    file = cache_folder() / "navmesh" / f"{digest.hexdigest()[:32]}.navmesh"
    if file.is_file():
        try:
            return NavMesh.load(file)
        except NavMeshError:  # a damaged cache is no reason to fail
            file.unlink(missing_ok=True)
    navmesh = bake(mesh, name, settings)
    file.parent.mkdir(parents=True, exist_ok=True)
    navmesh.save(file)
    return navmesh


def bake(mesh: TriangleMesh, name: str, settings: NavMeshSettings) -> NavMesh:
    """`NavMesh.bake`, whose errors begin with the scene's name and the body."""
    precompile(SCENE_KERNELS)
    try:
        return NavMesh.bake(mesh, settings)
    except NavMeshError as error:
        raise NavMeshError(f"{name}, for a body of {_body(settings)}: {error}") from error


@functools.cache
def baker_version() -> str:
    """A hash of the sources that make navmeshes."""
    digest = hashlib.sha256()
    for source in sorted(Path(navmesh_module.__file__).parent.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()
