"""A scene: a mesh, the tree that rays search, and the navmesh that agents walk on."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import NamedTuple

from batchnav.errors import NavMeshError
from batchnav.navmesh import navmesh as navmesh_module
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.cache import cache_folder
from batchnav.scene.bvh import BVH, build_bvh
from batchnav.scene.mesh import check_mesh
from batchnav.types import TriangleMesh


class Scene(NamedTuple):
    """One house, on the host; `SceneBank.pack` takes scenes to a device."""

    name: str
    mesh: TriangleMesh
    navmesh: NavMesh
    bvh: BVH


def make_scene(name: str, mesh: TriangleMesh, navmesh: NavMesh | None = None) -> Scene:
    """A scene of a mesh in memory; without a navmesh, one is baked with the default settings (and cached)."""
    mesh = check_mesh(mesh, name)
    return Scene(name, mesh, navmesh or bake_cached(mesh, NavMeshSettings()), build_bvh(mesh))


def bake_cached(mesh: TriangleMesh, settings: NavMeshSettings) -> NavMesh:
    """`NavMesh.bake`, kept on disk under a hash of the mesh, the settings and the baker's sources."""
    digest = hashlib.sha256(f"{baker_version()} {settings} {mesh.vertices.shape}".encode())
    digest.update(mesh.vertices.tobytes() + mesh.faces.tobytes())
    file = cache_folder() / "navmesh" / f"{digest.hexdigest()[:32]}.navmesh"
    if file.is_file():
        try:
            return NavMesh.load(file)
        except NavMeshError:  # a damaged cache is no reason to fail
            file.unlink(missing_ok=True)
    navmesh = NavMesh.bake(mesh, settings)
    file.parent.mkdir(parents=True, exist_ok=True)
    navmesh.save(file)
    return navmesh


@functools.cache
def baker_version() -> str:
    """A hash of the sources that make navmeshes."""
    digest = hashlib.sha256()
    for source in sorted(Path(navmesh_module.__file__).parent.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()
