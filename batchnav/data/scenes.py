"""Scenes by path and by scene id: one or many, in parallel processes.

Each scene id is parsed (`scene_ref.py`), resolved (`resolve.py`) and loaded. A navmesh is baked for one body;
`settings` say for which.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from batchnav.data.episodes.episode import Episode
from batchnav.data.folders import SCENES_DIR
from batchnav.data.generated import is_cached
from batchnav.data.objectnav.view_points import goals_of_scene
from batchnav.data.parallel import SCENES_PER_WORKER, in_parallel
from batchnav.data.resolve import Loader, located, resolve
from batchnav.data.scene_ref import FileRef, GeneratedRef, SceneRef, parse_scene_id, scene_ids
from batchnav.data.sources.islands import check_rule, keep_islands
from batchnav.data.sources.scene_source import SceneSource
from batchnav.errors import ArgumentError
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.files import as_path
from batchnav.runtime.kernels.precompile import ENVIRONMENT_KERNELS, SCENE_KERNELS, precompile
from batchnav.scene.axes import Up
from batchnav.scene.images import AppearanceConfig
from batchnav.scene.resident import SceneSize
from batchnav.scene.scene import Scene


def load_scene(
    path: str | Path,
    settings: NavMeshSettings | None = None,
    appearance: AppearanceConfig | bool = True,
    *,
    up: Up = "auto",
    scale: float = 1.0,
    flip: bool = False,
    two_sided: bool = False,
    islands: str = "all",
) -> Scene:
    """Load one scene: a mesh file with its navmesh, a prepared scene, or a scene id.

    Args:
        path: a mesh file, a prepared scene (`.scene`, made by `batchnav data prepare`), or a scene id (see
            `find_scene`), such as "house:3". A `.glb` below a folder `scene_datasets` is +Z up, like Habitat's stages;
            any other mesh file is +Y up. An up-to-date NAME.scene in the same folder is read in place of the mesh file,
            which is faster.
        settings: bake settings; a navmesh file for another agent_radius or agent_height is refused. None: a
            NAME.navmesh in the same folder is used unchanged. A mesh file without one gets a navmesh baked with these
            or the default settings, which is cached.
        appearance: as in `load_mesh`; False to read geometry only.
        up: axis of a mesh file that points up, as in `load_mesh`; "auto" as described for `path`.
        scale: factor from a mesh file's unit to metres; 0.001 for millimetres.
        flip: reverse the winding of all triangles of a mesh file.
        two_sided: make floors of a mesh file walkable whose faces look down.
        islands: islands that are walkable: "all"; "largest"; "indoor", those below a ceiling, without roofs and yards;
            or the number of an island (`data/sources/islands.py`).

    A scene farther than 16 km from the origin is recentred: `scene.origin` is what was subtracted. Suspicious geometry
    is logged as a warning. Raises MeshError; NavMeshError; ArgumentError where `up`, `scale`, `flip` or `two_sided` is
    given for a scene that is not a mesh file.
    """
    name, path = str(path), as_path(path)
    ref = parse_scene_id(name)
    how: dict[str, Any] = {"up": up, "scale": scale, "flip": flip, "two_sided": two_sided, "islands": islands}
    scene = _loader(ref, None if isinstance(ref, FileRef) else SCENES_DIR, **how)(settings, appearance)
    if isinstance(ref, FileRef):
        return scene if ref.is_prepared else scene._replace(name=path.stem)
    return scene._replace(name=name)


def _loader(ref: SceneRef, scenes_dir: Path | None, islands: str, **how: Any) -> Loader:
    """The loader of a scene with the options of `load_scene`; `how`: those of mesh files alone."""
    check_rule(islands)
    if isinstance(ref, FileRef) and not ref.is_prepared:
        return resolve(ref, scenes_dir, functools.partial(SceneSource.adjusted, islands=islands, **how))
    if how["up"] != "auto" or how["scale"] != 1.0 or how["flip"] or how["two_sided"]:
        raise ArgumentError(f"up, scale, flip, two_sided: found one of them for {ref.scene_id!r}, expected a mesh file")
    load = resolve(ref, scenes_dir)
    return lambda settings, appearance: keep_islands(load(settings, appearance), islands)


def find_scene(
    scene_id: str,
    scenes_dir: str | Path = SCENES_DIR,
    settings: NavMeshSettings | None = None,
    appearance: AppearanceConfig | bool = True,
    *,
    up: Up = "auto",
    scale: float = 1.0,
    flip: bool = False,
    two_sided: bool = False,
    islands: str = "all",
) -> Scene:
    """Load the scene of a scene id; the scene's name is the id.

    Args:
        scene_id: one of

            - "FAMILY:SEED", a procedural scene; `procedural/__init__.py` lists the families, such as house and hall;
            - "CONFIG:NAME", a scene of the dataset that a `*.scene_dataset_config.json` file describes;
            - a path below `scenes_dir`, as Habitat's episodes name their scenes (a `.glb` is +Z up there);
            - the path of a prepared scene, or of another mesh file (+Y up).

        scenes_dir: folder of Habitat's scenes.
        settings: as in `load_scene`.
        appearance: as in `load_scene`.
        up: as in `load_scene`.
        scale: as in `load_scene`.
        flip: as in `load_scene`.
        two_sided: as in `load_scene`.
        islands: as in `load_scene`.

    Raises MeshError for any other id, NavMeshError where its navmesh was baked for another body.
    """
    how: dict[str, Any] = {"up": up, "scale": scale, "flip": flip, "two_sided": two_sided, "islands": islands}
    load = _loader(parse_scene_id(scene_id), Path(scenes_dir), **how)
    return load(settings, appearance)._replace(name=scene_id)


def load_scenes(
    names: Iterable[str],
    settings: NavMeshSettings | None = None,
    appearance: AppearanceConfig | bool = True,
    *,
    up: Up = "auto",
    scale: float = 1.0,
    flip: bool = False,
    two_sided: bool = False,
    islands: str = "all",
) -> list[Scene]:
    """Load scenes by name as a list of `Scene`s, with progress, in parallel processes if there are many to make.

    The first call also compiles the kernels of PointNav with depth in the background.

    Args:
        names: scene ids (see `find_scene`); "FAMILY:0-3,7" for procedural scenes by their seeds; or folders: the
            prepared scenes in a folder, or its mesh files where it has no prepared scenes.
        settings: as in `load_scene`.
        appearance: as in `load_scene`.
        up: as in `load_scene`, for all scenes.
        scale: as in `load_scene`.
        flip: as in `load_scene`.
        two_sided: as in `load_scene`.
        islands: as in `load_scene`.

    Raises MeshError, NavMeshError, ArgumentError.
    """
    ids = scene_ids(names)
    precompile(ENVIRONMENT_KERNELS, SCENE_KERNELS)
    how: dict[str, Any] = {"up": up, "scale": scale, "flip": flip, "two_sided": two_sided, "islands": islands}
    return find_scenes(ids, settings=settings, appearance=appearance, **how)


def find_scenes(
    scene_ids: Iterable[str],
    scenes_dir: str | Path = SCENES_DIR,
    settings: NavMeshSettings | None = None,
    appearance: AppearanceConfig | bool = True,
    **options: Any,
) -> list[Scene]:
    """`find_scene` for each id, with progress; in parallel processes where there are many to make."""
    ids = list(scene_ids)
    how: dict[str, Any] = {"scenes_dir": scenes_dir, "settings": settings, "appearance": appearance, **options}
    # Mapping a file of the cache, or a prepared scene, takes less time than starting a process.
    new = [name for name in ids if not _is_mapped(name, settings, appearance is not False)]
    # Closing stops the processes: the traceback of an error would keep the generator alive.
    with contextlib.closing(
        in_parallel(functools.partial(_find_new, **how), new, "scenes", SCENES_PER_WORKER)
    ) as results:
        made = {name: scene or find_scene(name, **how) for name, scene in zip(new, results, strict=True)}
    return [made.get(name) or find_scene(name, **how) for name in ids]


def _is_mapped(scene_id: str, settings: NavMeshSettings | None, appearance: bool) -> bool:
    """True where the scene is a file that is mapped into memory: a prepared scene, or one of the cache."""
    ref = parse_scene_id(scene_id)
    if isinstance(ref, GeneratedRef):
        return is_cached(ref, settings, appearance)
    return isinstance(ref, FileRef) and ref.is_prepared


def _find_new(scene_id: str, **how) -> Scene | None:
    """`find_scene`; but None for a procedural scene, which is then in the cache, from where the caller maps it."""
    scene = find_scene(scene_id, **how)
    return None if isinstance(parse_scene_id(scene_id), GeneratedRef) else scene


def measure_scenes(
    scene_ids: Iterable[str],
    scenes_dir: str | Path = SCENES_DIR,
    settings: NavMeshSettings | None = None,
    appearance: AppearanceConfig | bool = True,
    goals: GoalRules | None = None,
) -> list[SceneSize]:
    """The memory that each scene needs. Loads each scene once and keeps none; procedural ones stay in the cache.

    Arguments: as in `find_scenes` and `find_with_goals`.
    """
    how: dict[str, Any] = {"goals": goals, "scenes_dir": scenes_dir, "settings": settings, "appearance": appearance}
    return list(in_parallel(functools.partial(_measure, **how), scene_ids, "scenes", SCENES_PER_WORKER))


def _measure(scene_id: str, **how) -> SceneSize:
    return SceneSize.of(find_with_goals(scene_id, **how))


class GoalRules(NamedTuple):
    """How ObjectNav's goals of a scene are made: arguments of `objectnav.view_points.make_goals`."""

    rules: str
    labels: str


def find_with_goals(scene_id: str, goals: GoalRules | None, **how) -> Scene:
    """`find_scene`, with goals for ObjectNav if `goals` is given: made on the CPU once, then read from the cache."""
    scene = find_scene(scene_id, **how)
    return scene if goals is None else scene._replace(goals=goals_of_scene(scene, *goals, "cpu"))


def played_scene(episode: Episode, scenes_dir: str | Path = SCENES_DIR) -> str:
    """Scene id of an episode for `find_scene`; the episode file's own folder is searched last."""
    return located(episode.scene, Path(scenes_dir), episode.folder)


def find_played(
    episodes: Iterable[Episode],
    scenes_dir: str | Path = SCENES_DIR,
    settings: NavMeshSettings | None = None,
    appearance: AppearanceConfig | bool = True,
) -> list[Scene]:
    """The scenes of these episodes, in the order of their scene ids; each scene's name is its scene id.

    Other arguments: as in `find_scene`.
    """
    ids = {episode.scene_id: played_scene(episode, scenes_dir) for episode in episodes}
    found = find_scenes([ids[name] for name in sorted(ids)], scenes_dir, settings, appearance)
    return [scene._replace(name=name) for scene, name in zip(found, sorted(ids), strict=True)]
