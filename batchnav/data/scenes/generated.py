"""Procedural scenes: made once for each body, then kept in the cache as prepared scenes."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path

from batchnav.data.scenes.ids import GeneratedRef
from batchnav.data.scenes.prepared import SUFFIX, load_prepared, save_prepared
from batchnav.errors import MeshError
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.procedural import (
    Furniture,
    Pictures,
    content_of,
    pictures_content,
    read_furniture,
    read_pictures,
    replace_textures,
    restore_textures,
    with_lights,
    with_pictures,
)
from batchnav.runtime.cache import versioned_cache_folder, warn_not_kept
from batchnav.scene.scene import Scene, bake, make_scene
from batchnav.types import Surface, TriangleMesh


def load_generated(ref: GeneratedRef, settings: NavMeshSettings | None, appearance: bool) -> Scene:
    """A procedural scene from the cache. If the cache does not have it, it is made and stored there."""
    files = _cache_files(ref, settings, appearance)
    models = _models(ref) if appearance or not any(map(Path.is_file, files)) else None
    pictures = read_pictures(ref.pictures) if appearance and ref.pictures else None
    textures = (*(models.textures if models else ()), *(pictures.textures if pictures else ()))
    restore = functools.partial(restore_textures, further=textures)
    for file in filter(Path.is_file, files):
        try:
            return _with_surface(load_prepared(file, appearance), restore)
        except MeshError:  # a damaged file is made again
            file.unlink(missing_ok=True)
    to_bake, visible = ref.family.meshes(ref.seed, appearance, models or _models(ref), ref.more_kinds)
    visible = _finished(visible, ref, pictures)
    scene = make_scene(ref.scene_id, visible, bake(to_bake, ref.scene_id, settings or NavMeshSettings()))
    scene = scene._replace(navmesh_origin="family")
    kept = _with_surface(scene, functools.partial(replace_textures, further=textures))
    try:
        save_prepared(kept, files[-1], durable=False)  # a lost file is made again
    except MeshError as error:
        warn_not_kept(error)
    return scene


def _finished(mesh: TriangleMesh, ref: GeneratedRef, pictures: Pictures | None) -> TriangleMesh:
    """The mesh with the lights and pictures that the scene's id asks for."""
    lit = with_lights(mesh, ref.seed) if ref.lights else mesh
    return lit if pictures is None else with_pictures(lit, ref.seed, pictures)


def _models(ref: GeneratedRef) -> Furniture | None:
    """The models of a scene; None for a scene with our own furniture alone."""
    return None if ref.furniture is None else read_furniture(ref.furniture, ref.materials)


def is_cached(ref: GeneratedRef, settings: NavMeshSettings | None, appearance: bool) -> bool:
    """True where the cache has the scene."""
    return any(map(Path.is_file, _cache_files(ref, settings, appearance)))


def _with_surface(scene: Scene, change: Callable[[Surface], Surface]) -> Scene:
    """The scene with its surface changed, where it has one."""
    surface = scene.mesh.surface
    return scene._replace(mesh=scene.mesh._replace(surface=surface and change(surface)))


def _cache_files(ref: GeneratedRef, settings: NavMeshSettings | None, appearance: bool) -> list[Path]:
    """Files of the cache that may hold the scene; the last is where a new one is written.

    A file's name is FAMILY_SEED.scene; with other settings than the defaults it also has a hash of them, with furniture
    a hash of the folder's content, and with more kinds the word "more"; with pictures a hash of theirs, and with random
    lights the word "lit". A scene made without `appearance` is FAMILY_SEED_bare.scene: its surface takes half of the
    time to make a scene.
    """
    settings = settings or NavMeshSettings()
    is_default = settings == NavMeshSettings()
    tag = "" if is_default else f"_{hashlib.sha256(str(settings).encode()).hexdigest()[:16]}"
    if ref.furniture is not None:
        content = f"{content_of(ref.furniture.absolute())} {ref.materials}"
        tag += f"_{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    if ref.more_kinds:
        tag += "_more"
    stem, folder = f"{ref.family.name}_{ref.seed}{tag}", versioned_cache_folder("houses", __name__)
    look = "" if ref.pictures is None else f"_{pictures_content(ref.pictures.absolute())[:16]}"
    look += "_lit" if ref.lights else ""
    return [folder / f"{stem}{end}{SUFFIX}" for end in ([look] if appearance else ["", "_bare"])]
