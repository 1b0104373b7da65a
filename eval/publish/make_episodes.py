"""Make the fixed episodes of assets/episodes: for each file, 10 episodes in each of 20 unseen scenes of one family.

    python eval/publish/make_episodes.py
    python eval/publish/make_episodes.py --procthor data/scene_datasets

The episodes of a scene are the first that `PointNavEnv` samples there with seed 0, by Habitat's rules: islands of
radius 1.5 m or more, one storey, geodesic distance 1 to 30 m, most of the nearly straight paths rejected. Episodes are
not selected by difficulty. In houses the mean ratio of geodesic to Euclidean distance is above 1.3. The scenes are
those of the split's first seeds that have episodes; files other than `test` use validation seeds.

`wide_val` and `wide_test` have episodes in the same houses for the body of the Habitat challenges of 2020 and 2021,
with radius 0.18 m and height 0.88 m. This body is too wide for some starts and goals of `val` and `test`.

Flee and Explore have no goal and share the files `starts_val` and `starts_test`, whose starts are uniform over the same
islands. The goal in these files is the point with the longest path; Flee's shortest-path follower and the maps of
reports use it.

`objectnav_procthor` has episodes in houses of ProcTHOR, which are no part of this project: with --procthor FOLDER the
program makes this file alone, from FOLDER/procthor, which `batchnav data import` wrote. The categories are the six that
the houses share with HM3D.

`instance_imagenav_val` has 20 episodes in each of 10 houses, with objects of ObjectNav's categories. The file has the
cameras of the images that the episodes show.

`sequence_val` and `sequence_test` have 5 episodes in each house, which ask for three to six of ObjectNav's categories.

`socialnav_val` and `socialnav_test` have the same kind of episodes in houses as `val` and `test`, with 1 to 6 people
in each: their starts and waypoints. `socialnav_building` and `socialnav_hall` have them on corridor floors and in
open-plan rooms. `follow_val` has the starts of `val` and one person in each episode.

`imagenav_val` and `imagenav_test` have three levels of distance in equal parts (`data.goals.pose.LEVELS`), also
with straight paths.

Files made again from the same sources may differ in the last digits of coordinates, since processors round differently.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from batchnav.data.episodes import Episode
from batchnav.data.formats import EpisodeDataset
from batchnav.data.goals import GOALS
from batchnav.data.goals.category import CategoryGoals
from batchnav.data.goals.point import generate_episodes, generate_imagenav, generate_starts
from batchnav.data.people import with_people
from batchnav.data.play import check_episodes
from batchnav.data.scenes.load import load_scene
from batchnav.envs.config import PRESETS, NavConfig
from batchnav.errors import EpisodeError
from batchnav.procedural import EPISODE_FAMILIES, FAMILIES, SPLITS
from batchnav.runtime.bundled import EPISODES
from batchnav.scene.scene import Scene
from batchnav.tasks import TASKS

NUM_SCENES = 20
"""Scenes of a file."""
EPISODES_PER_SCENE = 10
RULES, LABELS = "hm3d_v2", "hm3d"
"""Rules and categories of files with objects as goals."""
OBJECT_FILES = (
    ("objectnav_val", "category", "house", "val", 20), ("objectnav_test", "category", "house", "test", 20),
    ("objectnav_building", "category", "building", "val", 10),
    ("instance_imagenav_val", "instance", "house", "val", 10), ("sequence_val", "sequence", "house", "val", 20),
    ("sequence_test", "sequence", "house", "test", 20),
)  # fmt: skip
"""Name, kind of goals, scene family, split and number of scenes of these files; each has NUM_EPISODES, or half as many
sequences."""
SOCIAL_FILES = (
    ("socialnav_val", "house", "val", "socialnav_houses"), ("socialnav_test", "house", "test", "socialnav_houses"),
    ("socialnav_building", "building", "val", "socialnav_houses"),
    ("socialnav_hall", "hall", "val", "socialnav_houses"), ("follow_val", "house", "val", "follow_houses"),
)  # fmt: skip
"""Name, scene family, split and preset of the files with people."""
NUM_EPISODES = 200
PROCTHOR, PROCTHOR_EPISODES = "procthor/houses_210_*.scene", 100
"""Imported houses of ProcTHOR, and the number of episodes in NUM_SCENES of them."""


def main(procthor: Path | None = None) -> None:
    """Make all files.

    Args:
        procthor: folder that contains the folder of ProcTHOR's imported houses; default: without ProcTHOR.
    """
    if procthor is not None:
        names = sorted(path.relative_to(procthor).as_posix() for path in procthor.glob(PROCTHOR))
        scenes = (load_scene(name, scenes_dir=procthor)._replace(name=name) for name in names)
        write_searches("objectnav_procthor.json.gz", "category", scenes, NUM_SCENES, PROCTHOR_EPISODES)
        return
    for name, family in EPISODE_FAMILIES.items():
        seeds = family.splits[family.episode_files[name]]
        write(f"{name}.json.gz", (load_scene(f"{family.name}:{seed}") for seed in seeds), generate_episodes)
    navmesh = PRESETS["challenge_2020"].body.navmesh
    for split in ("val", "test"):
        houses = (load_scene(f"house:{seed}", settings=navmesh, appearance=False) for seed in SPLITS[split])
        write(f"wide_{split}.json.gz", houses, generate_episodes)
        houses = (load_scene(f"house:{seed}", appearance=False) for seed in SPLITS[split])
        write(f"starts_{split}.json.gz", houses, generate_starts)
        houses = (load_scene(f"house:{seed}", appearance=False) for seed in SPLITS[split])
        write(f"imagenav_{split}.json.gz", houses, generate_imagenav)
    write_social()
    for name, kind, family, split, num_scenes in OBJECT_FILES:
        seeds = FAMILIES[family].splits[split]
        scenes = (load_scene(f"{family}:{seed}") for seed in seeds)
        number = NUM_EPISODES // 2 if kind == "sequence" else NUM_EPISODES
        write_searches(f"{name}.json.gz", kind, scenes, num_scenes, number)


def write_social() -> None:
    """Write the files with people."""
    for name, family, split, preset in SOCIAL_FILES:
        config = PRESETS[preset]

        def generate(scene: Scene, number: int, config: NavConfig = config) -> list[Episode]:
            return with_people(generate_episodes(scene, number), scene, config.world, config.body)

        seeds = FAMILIES[family].splits[split]
        write(f"{name}.json.gz", (load_scene(f"{family}:{seed}", appearance=False) for seed in seeds), generate)


def write_searches(
    name: str, kind: str, candidates: Iterable[Scene], num_scenes: int, num_episodes: int = NUM_EPISODES
) -> None:
    """Write the file of the first candidates that have episodes with goals of a kind, and print its distances."""
    parts: list[Any] = []
    objects, number = cast(CategoryGoals, GOALS[kind]), num_episodes // num_scenes
    config = TASKS[objects.task].Config()
    for scene in candidates:
        try:
            with_goals = objects.with_goals([scene], config)
            parts.append(objects.generate(with_goals, number, 0, config))
        except EpisodeError as error:
            print(f"skipped: {scene.name}: {error}")
            continue
        if len(parts) == num_scenes:
            break
    episodes = [episode for part in parts for episode in part.episodes]
    goals = {key: some for part in parts for key, some in part.goals.items()}
    dataset = dataclasses.replace(parts[0], episodes=episodes, goals=goals)
    objects.without_view_points(dataset, RULES, LABELS).save(EPISODES / name, content=False)
    _print_distances(name, len(parts), episodes, [e.info["euclidean_distance"] for e in episodes])


def write(name: str, candidates: Iterable[Scene], generate: Callable[[Scene, int], list[Episode]]) -> None:
    """Write the file of the first NUM_SCENES candidates that have episodes, and print its distances."""
    scenes, episodes = [], []
    for scene in candidates:
        try:
            episodes += generate(scene, EPISODES_PER_SCENE)
        except EpisodeError as error:
            print(f"skipped: {error}")
            continue
        scenes.append(scene)
        if len(scenes) == NUM_SCENES:
            break
    check_episodes(episodes, {scene.name: scene for scene in scenes})
    EpisodeDataset(episodes).save(EPISODES / name)
    straight = [math.dist(e.start_position, e.goals[0].position) for e in episodes]
    _print_distances(name, len(scenes), episodes, straight)


def _print_distances(name: str, num_scenes: int, episodes: Sequence[Episode], straight: Sequence[float]) -> None:
    """Print a table of the distances of a file."""
    distance = np.array([e.info["geodesic_distance"] for e in episodes])
    table = Table(title=f"{name}: {len(episodes)} episodes in {num_scenes} scenes")
    for title in ("", "mean", "min", "median", "max"):
        table.add_column(title, justify="right" if title else "left")
    for title, values in (("geodesic distance (m)", distance), ("geodesic / Euclidean", distance / np.array(straight))):
        table.add_row(title, *(f"{f(values):.2f}" for f in (np.mean, np.min, np.median, np.max)))
    Console().print(table)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
