"""Scenes by path and by scene id: `load_scene` for one, `load_scenes` for many, in parallel processes.

A scene id is parsed once (`ids.py`); the loader of a `SceneRef` is found here. A navmesh is baked for one body;
`settings` say for which.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import logging
import math
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from batchnav.data.files import SCENES_DIR
from batchnav.data.scenes.cached import load_source
from batchnav.data.scenes.generated import is_cached, load_generated
from batchnav.data.scenes.ids import (
    SCENE_SOURCES,
    DatasetRef,
    FileRef,
    GeneratedRef,
    SceneLoader,
    SceneRef,
    SourceRef,
    parse_scene_id,
    scene_ids,
)
from batchnav.data.scenes.islands import check_rule, select_islands
from batchnav.data.scenes.prepared import SUFFIX, baked_for, load_prepared
from batchnav.data.scenes.scene_dataset import DATASET_CONFIG, SceneDatasetConfig
from batchnav.data.scenes.source import SceneSource, file_source, scene_id_of, stage_source
from batchnav.errors import ArgumentError, MeshError, shortened
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.procedural import FAMILIES
from batchnav.runtime.files import as_path
from batchnav.runtime.kernels.precompile import ENVIRONMENT_KERNELS, SCENE_KERNELS, precompile
from batchnav.runtime.parallel import SCENES_PER_WORKER, in_parallel
from batchnav.scene.axes import Up
from batchnav.scene.images import AppearanceConfig
from batchnav.scene.mesh import SUFFIXES as MESH_SUFFIXES
from batchnav.scene.scene import Scene, for_body, is_baked_for, is_same_body, make_scene, say_body, with_rebaked

_log = logging.getLogger(__name__)

Result = TypeVar("Result")
Loader = Callable[[NavMeshSettings | None, AppearanceConfig | bool], Scene]
"""load(settings, appearance), both as in `load_scene`."""
Adjust = Callable[[SceneSource], SceneSource]
"""Changes the source of a mesh file, as `SceneSource.adjusted` does."""
_DATASETS = "download or link its dataset there (`batchnav data list`), or name another folder by --scenes-dir"
"""What to do about a missing scene of a dataset."""
_LONGEST_NAME = 200
"""Longest name of a scene that messages show whole."""
_KEPT = 1.0
"""Seconds for which a dataset's config that lacks a scene is not read again."""


def load_scene(
    path: str | Path,
    settings: NavMeshSettings | None = None,
    appearance: AppearanceConfig | bool = True,
    *,
    scenes_dir: str | Path | None = None,
    up: Up = "auto",
    scale: float = 1.0,
    flip: bool = False,
    two_sided: bool = False,
    islands: str = "all",
) -> Scene:
    """Load one scene: a mesh file with its navmesh, a prepared scene, or a scene id.

    Args:
        path: the path of a scene, or a scene id:

            - a mesh file, which an up-to-date NAME.scene in the same folder replaces, since it loads faster. A `.glb`
              below a folder `scene_datasets` is +Z up, like Habitat's stages; any other mesh file is +Y up;
            - a prepared scene (`.scene`, made by `batchnav data prepare`);
            - a Gazebo world (`.world`, `.sdf`, or another suffix with an SDF root), as `batchnav data import` reads it;
            - "FAMILY:SEED", a procedural scene such as "house:3"; `procedural/__init__.py` lists the families;
            - "CONFIG:NAME", a scene of the dataset that a `*.scene_dataset_config.json` file describes;
            - a name of a source in `batchnav.data.scenes.ids.SCENE_SOURCES`.

        settings: bake settings; a NAME.navmesh for another agent_radius or agent_height in the mesh's folder is
            refused, and the navmesh of a prepared scene is baked again. None: they are used unchanged. A mesh file
            without one gets a navmesh baked with these or the default settings. Baked navmeshes are cached.
        appearance: as in `load_mesh`; False to read geometry only.
        scenes_dir: folder of Habitat's scenes: paths are searched below it first, as Habitat's episodes name their
            scenes (a `.glb` is +Z up there), and the scene's name is its scene id. None: a path is that of a file,
            whose name without suffix names the scene; the scenes of a dataset are below `data/scene_datasets`.
        up: axis of a mesh file that points up, as in `load_mesh`; "auto" as described for `path`.
        scale: factor from a mesh file's unit to metres; 0.001 for millimetres.
        flip: reverse the winding of all triangles of a mesh file.
        two_sided: make floors of a mesh file walkable whose faces look down.
        islands: islands that are walkable: "all"; "largest"; "indoor", without roofs, yards and tops of furniture; or
            the number of an island (`data/scenes/islands.py`).

    A scene farther than 16 km from the origin is recentred: `scene.origin` is what was subtracted. Suspicious geometry
    is logged as a warning. Raises MeshError; NavMeshError; ArgumentError where `up`, `scale`, `flip` or `two_sided` is
    given for a scene that is not a mesh file.
    """
    as_path(path)  # refuses what is no path
    how: dict[str, Any] = {"up": up, "scale": scale, "flip": flip, "two_sided": two_sided, "islands": islands}
    return _load(parse_scene_id(str(path)), None if scenes_dir is None else Path(scenes_dir), settings, appearance, how)


def load_scenes(
    names: Iterable[str],
    settings: NavMeshSettings | None = None,
    appearance: AppearanceConfig | bool = True,
    *,
    scenes_dir: str | Path = SCENES_DIR,
    up: Up = "auto",
    scale: float = 1.0,
    flip: bool = False,
    two_sided: bool = False,
    islands: str = "all",
) -> list[Scene]:
    """Load scenes by name as a list of `Scene`s, with progress, in parallel processes if there are many to make.

    The first call also compiles the kernels of PointNav with depth in the background.

    Args:
        names: scene ids (see `load_scene`); "FAMILY:0-3,7" for procedural scenes by their seeds; or folders: the
            prepared scenes in a folder, or its mesh files where it has no prepared scenes.
        settings: as in `load_scene`.
        appearance: as in `load_scene`.
        scenes_dir: folder of Habitat's scenes, as in `load_scene`.
        up: as in `load_scene`, for all scenes.
        scale: as in `load_scene`.
        flip: as in `load_scene`.
        two_sided: as in `load_scene`.
        islands: as in `load_scene`.

    Raises MeshError, NavMeshError, ArgumentError.
    """
    precompile(ENVIRONMENT_KERNELS, SCENE_KERNELS)
    how: dict[str, Any] = {"up": up, "scale": scale, "flip": flip, "two_sided": two_sided, "islands": islands}
    return load_all(scene_ids(names), settings, appearance, scenes_dir, **how)


def load_all(
    ids: Iterable[str],
    settings: NavMeshSettings | None = None,
    appearance: AppearanceConfig | bool = True,
    scenes_dir: str | Path = SCENES_DIR,
    **options: Any,
) -> list[Scene]:
    """`load_scenes` for exact scene ids, such as those of episode files, without compiling kernels."""
    refs, how = [*map(parse_scene_id, ids)], {"up": "auto", "scale": 1.0, "flip": False, "two_sided": False}
    load = functools.partial(
        _load, scenes_dir=Path(scenes_dir), settings=settings, appearance=appearance,
        how={**how, "islands": "all", **options},
    )  # fmt: skip
    # Mapping a file of the cache, or a prepared scene, takes less time than starting a process.
    new = [ref for ref in refs if not _is_mapped(ref, settings, appearance is not False)]
    # Closing stops the processes: the traceback of an error would keep the generator alive.
    with contextlib.closing(
        in_parallel(functools.partial(_load_new, load), new, "scenes", SCENES_PER_WORKER)
    ) as results:
        made = {ref.scene_id: scene or load(ref) for ref, scene in zip(new, results, strict=True)}
    return [made.get(ref.scene_id) or load(ref) for ref in refs]


def map_scenes(
    function: Callable[[Scene], Result],
    names: Iterable[str],
    settings: NavMeshSettings | None = None,
    appearance: AppearanceConfig | bool = True,
) -> list[Result]:
    """`function` of each scene, in parallel processes; no scene is kept, but procedural ones stay in the cache.

    `function` is picklable; `names` are exact scene ids; other arguments as in `load_scene`.
    """
    work = functools.partial(_apply, function, settings, appearance)
    return list(in_parallel(work, names, "scenes", SCENES_PER_WORKER))


def _apply(
    function: Callable[[Scene], Result],
    settings: NavMeshSettings | None,
    appearance: AppearanceConfig | bool,
    name: str,
) -> Result:
    return function(load_scene(name, settings, appearance, scenes_dir=SCENES_DIR))


def _is_mapped(ref: SceneRef, settings: NavMeshSettings | None, appearance: bool) -> bool:
    """True where the scene is a file that is mapped into memory: a prepared scene, or one of the cache."""
    if isinstance(ref, GeneratedRef):
        return is_cached(ref, settings, appearance)
    if not (isinstance(ref, FileRef) and ref.is_prepared):
        return False
    found = None if settings is None else baked_for(ref.path)
    return found is None or settings is None or is_same_body(found, settings)


def _load_new(load: Callable[[SceneRef], Scene], ref: SceneRef) -> Scene | None:
    """`load`; but None for a procedural or prepared scene: the caller maps it, with new parts from the cache."""
    scene = load(ref)
    return None if isinstance(ref, GeneratedRef) or (isinstance(ref, FileRef) and ref.is_prepared) else scene


# From a parsed id to its loader.


def _load(
    ref: SceneRef,
    scenes_dir: Path | None,
    settings: NavMeshSettings | None,
    appearance: AppearanceConfig | bool,
    how: dict[str, Any],
) -> Scene:
    """The scene of a parsed id; arguments as in `load_scene`, of which `how` has those of mesh files and islands."""
    is_path = scenes_dir is None and isinstance(ref, FileRef)
    scene = _loader(ref, scenes_dir if is_path else scenes_dir or SCENES_DIR, **how)(settings, appearance)
    if not is_path:
        return scene._replace(name=ref.scene_id)
    assert isinstance(ref, FileRef)
    return scene if ref.is_prepared else scene._replace(name=ref.path.stem)


def _loader(ref: SceneRef, scenes_dir: Path | None, islands: str, **how: Any) -> Loader:
    """The loader of a scene with the options of `load_scene`; `how`: those of mesh files alone."""
    check_rule(islands)
    ref = _known_world(ref, scenes_dir)
    if isinstance(ref, FileRef) and not ref.is_prepared and ref.load is None:
        return _file(ref, scenes_dir, functools.partial(SceneSource.adjusted, islands=islands, **how))
    if how["up"] != "auto" or how["scale"] != 1.0 or how["flip"] or how["two_sided"]:
        raise ArgumentError(f"up, scale, flip, two_sided: found one of them for {ref.scene_id!r}, expected a mesh file")
    load = _resolve(ref, scenes_dir)
    return lambda settings, appearance: select_islands(load(settings, appearance), islands)


def _known_world(ref: SceneRef, scenes_dir: Path | None) -> SceneRef:
    """The reference itself; that of a file which is a Gazebo world by its content has its loader."""
    if not isinstance(ref, FileRef) or ref.load is not None or ref.path.suffix.lower() in (SUFFIX, *MESH_SUFFIXES):
        return ref
    file, _ = (ref.path, False) if scenes_dir is None else _existing(ref.path, scenes_dir)
    is_world = file is not None and importlib.import_module("batchnav.data.gazebo").is_world(file)
    return dataclasses.replace(ref, load=_load_world) if is_world else ref


def _resolve(ref: SceneRef, scenes_dir: Path | None) -> Loader:
    """The loader of a scene, whose file is searched below `scenes_dir` first. MeshError where there is none."""
    if isinstance(ref, FileRef):
        return _file(ref, scenes_dir, None)
    if isinstance(ref, SourceRef):
        return functools.partial(ref.load, ref.scene_id)
    return _generated(ref) if isinstance(ref, GeneratedRef) else _of_dataset(ref, scenes_dir)


def _generated(ref: GeneratedRef) -> Loader:
    return lambda settings, appearance: load_generated(ref, settings, appearance is not False)


def _of_dataset(ref: DatasetRef, scenes_dir: Path | None) -> Loader:
    """A scene that its dataset's config describes; else, as Habitat does, the file that the scene id names."""
    config, _ = _existing(ref.config, scenes_dir)
    if config is not None and (found := _config(config, ref.name)).has(ref.name):
        return functools.partial(load_source, found.source(ref.name))
    file, _ = _existing(Path(ref.name), scenes_dir)
    if file is None and config is not None:
        file, _ = _existing(Path(ref.name), config.parent)
    if file is None:
        what = f"no file {ref.config}" if config is None else f"no scene {shortened(ref.name)} in {config}"
        raise MeshError(
            f"scene {_shown(ref.name)}: found {what}, and no file of this name here{_or_in(scenes_dir)}, "
            f"expected one of them; {_DATASETS}"
        )
    why = "is missing" if config is None else "does not list it"
    _log.warning("%s: loaded by its path, since the dataset's config %s %s", file, ref.config, why)
    return _by_path(file, is_stage=True)


def _file(ref: FileRef, scenes_dir: Path | None, adjust: Adjust | None) -> Loader:
    if scenes_dir is None:
        return _by_path(ref.path, adjust=adjust, own=ref.load)
    file, is_below = _existing(ref.path, scenes_dir)
    if file is None and ref.path.suffix and len(ref.path.parts) > 1:
        raise MeshError(
            f"scene {_shown(ref.scene_id)}: found no such file here{_or_in(scenes_dir)} (paths in an episode file "
            f"count from the current folder or the file's own), expected a mesh file or a prepared scene; {_DATASETS}"
        )
    if file is None:
        generated = ", ".join(f"'{family}:SEED'" for family in FAMILIES)
        raise MeshError(
            f"scene {shortened(ref.scene_id)}: found no such file here{_or_in(scenes_dir)} (paths in an episode file "
            f"count from the current folder or the file's own), expected {generated}, the path of a mesh file or of "
            f"a prepared scene, or 'CONFIG{DATASET_CONFIG}:NAME'"
        )
    return _by_path(file, is_below and not ref.path.is_absolute(), adjust, ref.load)


def _by_path(
    file: Path, is_stage: bool = False, adjust: Adjust | None = None, own: SceneLoader | None = None
) -> Loader:
    """The loader of a file; `is_stage`: with the conventions of Habitat's stages; `own`: that of `SCENE_SOURCES`."""
    if own is not None:
        return functools.partial(own, str(file))
    if file.suffix == SUFFIX:
        return functools.partial(_load_prepared, file)
    return functools.partial(load_source, (adjust or _same)((stage_source if is_stage else file_source)(file)))


def _existing(path: Path, scenes_dir: Path | None) -> tuple[Path | None, bool]:
    """The file that a scene id names, and whether it lies below `scenes_dir`; None where there is none.

    A name without a file is also tried with "/" for each backslash, as it was written on Windows, and below
    `scenes_dir` without what precedes the folder `scene_datasets`.
    """
    name = str(path)
    slashed = name.replace("\\", "/")
    below = [] if scenes_dir is None else [scenes_dir / each for each in (name, slashed, scene_id_of(Path(slashed)))]
    places = [(below[0], True)] if below else []
    places += [(path, False), *((place, True) for place in below[1:]), (Path(slashed), False)]
    return next(((place, is_below) for place, is_below in places if os.path.isfile(place)), (None, False))


def _shown(name: str) -> str:
    """The name of a scene for a message: whole, unless it is longer than names of datasets are."""
    return repr(name) if len(name) <= _LONGEST_NAME else shortened(name)


def _or_in(scenes_dir: Path | None) -> str:
    return "" if scenes_dir is None else f" or in {scenes_dir}"


def located(scene_id: str, scenes_dir: Path, folder: str) -> str:
    """The scene id, with its file in `folder` where only that one exists: an episode file's own folder.

    Paths in a file that `batchnav data make-episodes` wrote count from the folder where the command was called.
    """
    ref = parse_scene_id(scene_id)
    if isinstance(ref, (GeneratedRef, SourceRef)) or not folder:
        return scene_id
    path = ref.path if isinstance(ref, FileRef) else ref.config
    if path.is_absolute() or _existing(path, scenes_dir)[0] is not None:
        return scene_id
    file, _ = _existing(Path(folder) / path, None)
    if file is None:
        return scene_id
    return f"{file}:{ref.name}" if isinstance(ref, DatasetRef) else str(file)


def missing_scene(scene_id: str, scenes_dir: str | Path) -> str:
    """The error message for a scene whose file is missing; empty for one that is there."""
    ref, folder = parse_scene_id(scene_id), Path(scenes_dir)
    try:
        if isinstance(ref, FileRef) and _existing(ref.path, folder)[0] is None:
            _file(ref, folder, None)
        elif isinstance(ref, DatasetRef) and _existing(ref.config, folder)[0] is None:
            _of_dataset(ref, folder)
    except MeshError as error:
        return str(error)
    return ""


def _same(source: SceneSource) -> SceneSource:
    return source


def _load_prepared(path: Path, settings: NavMeshSettings | None, appearance: AppearanceConfig | bool) -> Scene:
    """A prepared scene. NavMeshError where its navmesh is that of a file for another body than that of `settings`."""
    scene = load_prepared(path, appearance)
    return scene if settings is None else for_body(scene._replace(name=str(path)), settings)._replace(name=scene.name)


def scene_for_body(scene: Scene, settings: NavMeshSettings) -> Scene:
    """`for_body`, also for procedural scenes, whose generator makes the mesh that navmeshes are baked from."""
    if scene.navmesh_origin == "family" and scene.goals is None and not is_baked_for(scene.navmesh, settings):
        ref = parse_scene_id(scene.name)
        if isinstance(ref, GeneratedRef):
            say_body(scene.name, settings)
            made = load_generated(ref, settings, scene.mesh.surface is not None)
            return with_rebaked(scene, made.navmesh, settings)
    return for_body(scene, settings)


def _load_world(path: str, settings: NavMeshSettings | None, appearance: AppearanceConfig | bool) -> Scene:
    """A Gazebo world, whose models are searched as `gazebo.ModelPath` does. Parts that are left out are logged."""
    mesh, left_out = importlib.import_module("batchnav.data.gazebo").read_world(Path(path))  # it builds on this package
    for line in filter(None, (*left_out.notes, str(left_out))):
        _log.warning("%s: %s", path, line)
    return make_scene(path, mesh if appearance is not False else mesh._replace(surface=None), settings=settings)


SCENE_SOURCES.update(dict.fromkeys((".world", ".sdf"), _load_world))


_configs: dict[Path, tuple[float, SceneDatasetConfig]] = {}
"""Configs of datasets, each with the time at which it was read: a search for thousands of objects takes time."""


def _config(path: Path, name: str) -> SceneDatasetConfig:
    """The config of a dataset. It is read again where it lacks the scene: files may have been added since."""
    read, config = _configs.get(path, (-math.inf, None))
    if config is None or (not config.has(name) and time.monotonic() - read > _KEPT):
        config = SceneDatasetConfig(path)
        _configs[path] = time.monotonic(), config
    return config
