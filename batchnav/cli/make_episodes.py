"""`batchnav data make-episodes`: fixed episodes of any task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import Positional

from batchnav.cli.console import show
from batchnav.cli.interrupts import interrupted_with
from batchnav.errors import EpisodeError, few
from batchnav.runtime.checks import check_int, check_seed
from batchnav.runtime.files import check_target

if TYPE_CHECKING:
    from batchnav.data.episodes import AnyEpisode
    from batchnav.data.scenes.datasets import Dataset
    from batchnav.navmesh.settings import NavMeshSettings
    from batchnav.scene.scene import Scene


def make_episodes(
    scenes: Positional[tuple[str, ...]],
    /,
    out: Path,
    task: str = "pointnav",
    per_scene: int = 100,
    seed: int = 0,
    split: str = "train",
    content: bool = False,
    islands: str = "indoor",
    preset: str | None = None,
    rules: str | None = None,
    labels: str | None = None,
    device: str = "auto",
) -> None:
    """Generate episodes with the rules of Habitat's generators.

    Args:
        scenes: scene files, folders of prepared scenes, dataset folders or configs, house:7 or house:0-3,7.
        out: the .json.gz file to write.
        task: pointnav; imagenav, in three levels of distance; objectnav or instance_imagenav, for scenes with object
            ids and categories; flee or explore, with starts alone; or a task of your own.
        per_scene: number of episodes per scene.
        seed: seed of the episodes.
        split: split of datasets.
        content: write one file per scene into a folder `content` next to OUT, as Habitat does.
        islands: islands that episodes take place on: all; largest; indoor, without roofs and yards where a large island
            has a ceiling; or the number of an island.
        preset: environment whose body the navmesh is for, such as objectnav_hm3d; default: navmeshes as they are.
        rules: rules of ObjectNav's view points and episodes: hm3d_v2, hssd, ovon or procthor; default: the
            preset's, or hm3d_v2.
        labels: mapping from the scenes' labels to ObjectNav's categories: hm3d, mp3d, hssd, procthor, procedural or
            all; default: the preset's, or hm3d.
        device: device that renders objects, for objectnav and instance_imagenav: auto, cpu or cuda.
    """
    from batchnav.data.formats import FORMATS
    from batchnav.data.formats.dataset import check_content
    from batchnav.data.goals import kind_of
    from batchnav.data.scenes.islands import check_rule
    from batchnav.envs.config import nav_config
    from batchnav.runtime.console import next_command, number_of

    check_rule(islands)
    check_int("per_scene", per_scene, 1, 2**24)
    check_seed(seed)
    check_target(out, EpisodeError)
    given = {name: value for name, value in (("rules", rules), ("labels", labels)) if value is not None}
    config = nav_config(preset, given, task)
    kind = kind_of(task)
    if not out.name.endswith(suffix := FORMATS[kind.format].suffix):
        raise EpisodeError(f"{out}: found another suffix, expected {suffix}")
    if not (content and out.exists()):
        check_content(out)  # raises before episodes are generated
    settings = config.body.navmesh if preset else None
    with interrupted_with(lambda: f"{out} was not written"):
        configs = _configs(scenes, split)
        loaded = (scene for name in scenes for scene in _scenes(name, split, settings, kind.needs_ids))
        dataset = kind.generate_file(
            _kept(loaded, islands), per_scene, seed, config.task, device, lambda reason: show(f"skipped: {reason}")
        )
        if not dataset:
            raise EpisodeError(f"{out}: found no episodes in {few(scenes)}, expected at least one; use other scenes")
        episodes = _with_configs(dataset.episodes, configs)
        dataset.with_episodes(episodes).save(out, content)
    show(f"{out}: {number_of(len(episodes), 'episode')} in {number_of(len({e.scene_id for e in episodes}), 'scene')}")
    played_as = ("--task", task) if preset is None else ("--preset", preset)
    evaluate = "batchnav", "evaluate", "shortest_path", *played_as, "--episodes", out
    show(next_command("evaluate an agent on them", *evaluate))


def _kept(scenes: Iterable[Scene], islands: str) -> Iterable[Scene]:
    """The scenes with some of their islands; prints what is left out."""
    from batchnav.data.scenes.islands import keep_islands
    from batchnav.runtime.console import number_of

    for scene in scenes:
        try:
            kept = keep_islands(scene, islands)
        except EpisodeError as error:
            show(f"skipped: {error}")
            continue
        if kept is not scene:
            number, area = scene.navmesh.num_islands - kept.navmesh.num_islands, scene.navmesh.area - kept.navmesh.area
            show(f"{scene.name}: left out {number_of(number, 'island')} of {area:.1f} m²; --islands all keeps them")
        yield kept


def _scenes(name: str, split: str, settings: NavMeshSettings | None, appearance: bool) -> list[Scene]:
    """The scenes of a name: a scene, or those of a range, folder or dataset; arguments as in `load_scene`."""
    from batchnav.data.scenes.ids import prepared_in, scene_ids
    from batchnav.data.scenes.load import load_all

    dataset = _dataset(name, split)
    if dataset is not None:
        return dataset.load_scenes(settings=settings, appearance=appearance)
    prepared = prepared_in(Path(name))
    return load_all(map(str, prepared) if prepared else scene_ids([name]), settings, appearance)


def _dataset(name: str, split: str) -> Dataset | None:
    """The dataset of a folder or a config; None for other names and for folders of prepared scenes."""
    from batchnav.data.scenes.datasets import load_dataset
    from batchnav.data.scenes.ids import prepared_in
    from batchnav.data.scenes.scene_dataset import DATASET_CONFIG

    path = Path(name)
    if prepared_in(path) or not (path.is_dir() or name.endswith(DATASET_CONFIG)):
        return None
    return load_dataset(path, split)


def _configs(names: Iterable[str], split: str) -> dict[str, str]:
    """Path of the config of each scene that the config of a dataset describes; episodes need it to find the scene."""
    datasets = [dataset for name in names if (dataset := _dataset(name, split)) is not None]
    return {scene: str(data.config.path) for data in datasets if data.config for scene in data.scene_names}


def _with_configs(episodes: Sequence[AnyEpisode], configs: Mapping[str, str]) -> list[AnyEpisode]:
    return [
        replace(episode, scene_dataset_config=configs.get(episode.scene_id, episode.scene_dataset_config))
        for episode in episodes
    ]
