"""Scenes by path, and what a scene id means: a house by seed, a file, a scene of a data set.

A scene's navmesh belongs to a body: `settings` say for which it is to be.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from batchnav.data.episodes.episode_file import Episode
from batchnav.data.habitat.scene_dataset import DATASET_CONFIG, SceneDatasetConfig
from batchnav.data.parallel import in_parallel
from batchnav.data.prepared.scene_file import SUFFIX, load_prepared, load_source, save_prepared
from batchnav.data.source import SCENES_DIR, file_source, scene_id_of, stage_source
from batchnav.errors import MeshError
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.procedural import (
    make_block,
    make_building,
    make_hall,
    make_house,
    make_scan,
    with_pictures,
    without_pictures,
)
from batchnav.runtime.files.atomic import as_path
from batchnav.runtime.files.cache import versioned_cache_folder
from batchnav.runtime.kernels.precompile import ENVIRONMENT_KERNELS, SCENE_KERNELS, precompile
from batchnav.scene.images import AppearanceConfig
from batchnav.scene.mesh import SUFFIXES
from batchnav.scene.resident import SceneSize
from batchnav.scene.scene import Scene, bake, check_baked_for, make_scene
from batchnav.types import Surface

_MAKERS = {"house": make_house, "hall": make_hall, "building": make_building, "block": make_block}
GENERATED = ("house:", "hall:", "building:", "block:", "scan:")
"""Begin the ids of scenes that are made from a seed, which follows."""
RANGE = re.compile(rf"({'|'.join(GENERATED)})(\d{{1,6}})-(\d{{1,6}})", re.ASCII)
"""The first and the last seed of several of them."""
SCENES_PER_WORKER = 8
"""A process takes seconds to start, a house a fifth of one to make: fewer than this do not pay for one."""


def load_scene(
    path: str | Path, settings: NavMeshSettings | None = None, appearance: AppearanceConfig | bool = True
) -> Scene:
    """Read a mesh file and its navmesh: NAME.navmesh beside it, else one baked with `settings` and cached.

    Or make the scene of a name: "house:3", "hall:3", "building:3", "block:3", "scan:3", or whatever `find_scene` finds.
    Where NAME.scene beside it, which `batchnav data prepare` makes, is up to date, that is read instead, which is fast;
    its own path does too. Without `settings` a navmesh that is there is taken as it is, and one is baked with the
    default ones. With them, one that was baked for another agent_radius or agent_height is refused. A `.glb` below a
    folder `scene_datasets` is +Z up, as Habitat's stages are, any other +Y. `appearance` is as in `load_mesh`: what
    surfaces look like is read, too, but where depth alone is wanted. Raises MeshError, NavMeshError.
    """
    name, path = str(path), as_path(path)
    if name.startswith(GENERATED) or DATASET_CONFIG + ":" in name:
        return find_scene(name, settings=settings, appearance=appearance)
    if path.suffix == SUFFIX:
        scene = load_prepared(path, appearance is not False)
        if settings is not None:
            check_baked_for(scene.navmesh, str(path), settings)
        return scene
    return load_source(file_source(path), settings, appearance)._replace(name=path.stem)


def find_scene(
    scene_id: str,
    scenes_dir: str | Path = SCENES_DIR,
    settings: NavMeshSettings | None = None,
    appearance: AppearanceConfig | bool = True,
) -> Scene:
    """The scene of an id, named so; `settings` and `appearance` are as in `load_scene`. It is one of:

    - "house:SEED", a procedural house; "hall:SEED", a large room with windows (`houses.make_hall`);
      "building:SEED", a floor of a large building (`houses.make_building`); "block:SEED", one whose rooms stand in
      blocks among wide passages (`houses.make_block`); "scan:SEED", what a scanner would bring home
      (`houses.make_scan`);
    - "CONFIG:NAME", a scene of the data set that a `*.scene_dataset_config.json` file describes;
    - a scene of Habitat's: a path below `scenes_dir`, as its episodes have it (a `.glb` is +Z up there);
    - the path of a prepared scene, or of a mesh file of one's own (+Y up).

    Raises MeshError where it is none of these, NavMeshError where its navmesh was baked for another body.
    """
    return _find(scene_id, Path(scenes_dir), settings, appearance)._replace(name=scene_id)


def _find(
    scene_id: str, scenes_dir: Path, settings: NavMeshSettings | None, appearance: AppearanceConfig | bool
) -> Scene:
    if scene_id.startswith(GENERATED):
        return _generated(scene_id, settings, appearance is not False)
    config, colon, name = scene_id.rpartition(":")
    if colon and config.endswith(DATASET_CONFIG):
        file = Path(config) if os.path.isfile(config) else scenes_dir / scene_id_of(Path(config))
        return load_source(_config(file).source(name), settings, appearance)
    path, below = Path(scene_id), scenes_dir / scene_id
    is_stage = not path.is_absolute() and os.path.isfile(below)
    path = below if is_stage else path
    if not os.path.isfile(path):
        raise MeshError(
            f"scene {scene_id!r}: found no such file, here or in {scenes_dir} (an episode file's paths count from the "
            f"folder where `batchnav data episodes` was called), expected 'house:SEED', 'hall:SEED', "
            f"'building:SEED', 'block:SEED', 'scan:SEED', the path of a mesh file or of a prepared scene, "
            f"or 'CONFIG{DATASET_CONFIG}:NAME'"
        )
    if is_stage and path.suffix != SUFFIX:
        return load_source(stage_source(path), settings, appearance)
    return load_scene(path, settings, appearance)


@functools.cache
def _config(path: Path) -> SceneDatasetConfig:
    """Kept: to find a large data set's thousands of objects takes a while."""
    return SceneDatasetConfig(path)


def _generated(scene_id: str, settings: NavMeshSettings | None, appearance: bool) -> Scene:
    """A scene from its seed, made once for a body and then kept in the cache."""
    kind, _, seed = scene_id.partition(":")
    if not (seed.isascii() and seed.isdigit()):
        raise MeshError(f"scene {scene_id!r}: found seed {seed!r}, expected a whole number, as in '{kind}:7'")
    places = _kept(scene_id, settings, appearance)
    for file in filter(Path.is_file, places):
        try:
            return _with_surface(load_prepared(file, appearance), with_pictures)
        except MeshError:  # a damaged cache is no reason to fail
            file.unlink(missing_ok=True)
    if kind == "scan":  # one walks where it was scanned, and sees the scan
        walked, mesh = make_scan(int(seed), appearance)
    else:
        walked = mesh = _MAKERS[kind](int(seed), appearance)
    scene = make_scene(scene_id, mesh, bake(walked, scene_id, settings or NavMeshSettings()))
    save_prepared(_with_surface(scene, without_pictures), places[-1], durable=False)  # what is lost is made again
    return scene


def _with_surface(scene: Scene, change: Callable[[Surface], Surface]) -> Scene:
    """The scene with its surface changed, where it has one."""
    surface = scene.mesh.surface
    return scene._replace(mesh=scene.mesh._replace(surface=surface and change(surface)))


def _kept(scene_id: str, settings: NavMeshSettings | None, appearance: bool) -> list[Path]:
    """Where the cache may have what is made from a seed, and last where it is put.

    KIND_SEED.scene, with a hash of settings but the default ones; where depth alone is wanted, else
    KIND_SEED_bare.scene: surfaces are half of the work.
    """
    settings = settings or NavMeshSettings()
    is_default = settings == NavMeshSettings()
    tag = "" if is_default else f"_{hashlib.sha256(str(settings).encode()).hexdigest()[:16]}"
    stem, folder = f"{scene_id.replace(':', '_')}{tag}", versioned_cache_folder("houses", __name__)
    return [folder / f"{stem}{end}{SUFFIX}" for end in ([""] if appearance else ["", "_bare"])]


def load_scenes(
    names: Iterable[str], settings: NavMeshSettings | None = None, appearance: AppearanceConfig | bool = True
) -> list[Scene]:
    """Scenes by name, in parallel processes where many are to be made, with progress.

    The first time, the kernels of PointNav with depth are compiled beside it (`runtime.kernels.precompile`).

    A name is a scene id (see `find_scene`), "house:FIRST-LAST" for houses by their seeds (likewise "hall:",
    "building:", "block:" and "scan:"), or a folder: the prepared scenes in it, or where there are none its mesh files.
    With `settings`, for their body, and with or without `appearance`, as `load_scene` does. MeshError, NavMeshError.
    """
    ids = scene_ids(names)
    precompile(ENVIRONMENT_KERNELS, SCENE_KERNELS)
    return find_scenes(ids, settings=settings, appearance=appearance)


def scene_ids(names: Iterable[str]) -> list[str]:
    """Scene ids, where "house:FIRST-LAST" stands for houses by their seeds, and a folder for the scenes in it.

    MeshError for a range or a folder that holds none.
    """
    ids: list[str] = []
    if isinstance(names, (str, Path)) or not isinstance(names, Iterable):
        raise MeshError(f"names: found {str(names)!r}, expected a list of names, as [{str(names)!r}]")
    for name in map(str, names):
        seeds = RANGE.fullmatch(name)
        if seeds:
            kind, first, last = seeds.groups()
            found = [f"{kind}{seed}" for seed in range(int(first), int(last) + 1)]
        else:
            found = [str(file) for file in scenes_in(Path(name))] if os.path.isdir(name) else [str(name)]
        if not found:
            what = "a range without seeds" if seeds else f"a folder without prepared scenes (*{SUFFIX}) or mesh files"
            raise MeshError(f"{name}: found {what}, expected some")
        ids += found
    return ids


def prepared_in(folder: Path) -> list[Path]:
    """The prepared scenes in a folder, but for those that only stand in for meshes beside them."""
    return [file for file in sorted(folder.glob(f"*{SUFFIX}")) if not file.with_suffix(".glb").is_file()]


def scenes_in(folder: Path) -> list[Path]:
    """The prepared scenes in a folder, or where there are none its mesh files."""
    return prepared_in(folder) or sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES)


def find_scenes(
    scene_ids: Iterable[str],
    scenes_dir: str | Path = SCENES_DIR,
    settings: NavMeshSettings | None = None,
    appearance: AppearanceConfig | bool = True,
) -> list[Scene]:
    """`find_scene` for each id, in parallel processes where many are to be made, with progress."""
    ids = list(scene_ids)
    how: dict[str, Any] = {"scenes_dir": scenes_dir, "settings": settings, "appearance": appearance}
    find = functools.partial(_find_new, **how)
    # A house from the cache, or a prepared scene, is mapped before a process has started.
    looks = appearance is not False
    mapped = (
        name.endswith(SUFFIX) or (name.startswith(GENERATED) and any(map(Path.is_file, _kept(name, settings, looks))))
        for name in ids
    )
    new = [name for name, is_there in zip(ids, mapped, strict=True) if not is_there]
    # Closed: an error's traceback would keep it, and the work going.
    with contextlib.closing(in_parallel(find, new, "scenes", SCENES_PER_WORKER)) as results:
        made = {name: scene or find_scene(name, **how) for name, scene in zip(new, results, strict=True)}
    return [made.get(name) or find_scene(name, **how) for name in ids]


def _find_new(scene_id: str, **how) -> Scene | None:
    """`find_scene`, but None for a house: it is in the cache now, and mapped from there takes no memory twice."""
    scene = find_scene(scene_id, **how)
    return None if scene_id.startswith(GENERATED) else scene


def measure_scenes(
    scene_ids: Iterable[str],
    scenes_dir: str | Path = SCENES_DIR,
    settings: NavMeshSettings | None = None,
    appearance: AppearanceConfig | bool = True,
) -> list[SceneSize]:
    """What each scene takes: loaded once (and kept in the cache where it is a house), none kept in memory."""
    measure = functools.partial(_measure, scenes_dir=scenes_dir, settings=settings, appearance=appearance)
    return list(in_parallel(measure, scene_ids, "scenes", SCENES_PER_WORKER))


def _measure(scene_id: str, **how) -> SceneSize:
    return SceneSize.of(find_scene(scene_id, **how))


def find_played(
    episodes: Iterable[Episode],
    scenes_dir: str | Path = SCENES_DIR,
    settings: NavMeshSettings | None = None,
    appearance: AppearanceConfig | bool = True,
) -> list[Scene]:
    """The scenes that episodes play in, each named as they name it, in order of name."""
    ids = {episode.scene_id: episode.scene for episode in episodes}
    found = find_scenes([ids[name] for name in sorted(ids)], scenes_dir, settings, appearance)
    return [scene._replace(name=name) for scene, name in zip(found, sorted(ids), strict=True)]
