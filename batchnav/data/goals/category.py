"""Goals that are objects of a category, as in ObjectNav: an agent may stop at a view point of any of them.

Episodes are sampled by the rules of published datasets (`rules.py`). Starts are spread over the walkable area: cells of
1 m take turns, as clusters of navmesh points do in Habitat's generator. Random numbers are counter-based (Philox) and
keyed by seed and category: equal seeds give equal episodes on every machine, and the episodes of a category do not
depend on the other categories.

View points are most of an ObjectNav file. `without_view_points` makes files without them: each episode's `info` has the
names of the rules and of the label map, and a hash of its scene's view points, which are made anew and checked.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.data.episodes import group_by_scene, rotation_of, scene_name, scene_rows
from batchnav.data.files import is_number
from batchnav.data.formats.dataset import EpisodeDataset
from batchnav.data.formats.objectnav import (
    FROM_FILE,
    FileGoal,
    ObjectNavEpisode,
    goals_key,
    header_of,
    shortest,
)
from batchnav.data.goals.kind import (
    FailedEpisode,
    Finding,
    GoalKind,
    ShownGoals,
    distance_mismatches,
    is_near,
    off_navmesh,
    too_far,
)
from batchnav.data.goals.rules import LABELS, RULES, EpisodeRules, LabelMap, Rules, labels_named, rules_named
from batchnav.data.goals.view_points import make_goals, with_goals
from batchnav.errors import EpisodeError, few, shortened
from batchnav.navmesh.navmesh import NavMesh
from batchnav.runtime.checks import check_int, check_seed
from batchnav.runtime.console import number_of
from batchnav.scene.bank import SceneBank
from batchnav.scene.goals import ObjectGoal, SceneGoals
from batchnav.scene.scene import Scene
from batchnav.tasks.episode_sampling import EpisodeTable, accept_detour

_POINTS_PER_SQUARE_METRE, _MOST_POINTS = 25, 200_000
"""Density and largest number of the navmesh points among which starts are chosen, as in Habitat's generator."""
_CELL = 1.0
"""Side of the cells that take turns, metres."""
_AT_ONCE = 64
"""Number of candidates per round, and of view points per search."""
_MOST_CANDIDATES = 1024
"""Number of candidates per episode after which a category has no more episodes."""
_DECIMALS = 5
"""Decimals of coordinates and distances, as in Habitat's files."""


_RULES, _LABELS, _HASH = "view_point_rules", "labels", "view_points_sha256"
"""Keys of an episode's `info`."""
_TOLERANCE = 0.02
"""Metres by which a distance may differ where the hash does: processors round differently at an object's outline."""
log = logging.getLogger(__name__)
WRONG_OBJECT, NEVER_SAW, PASSED, EARLY, OUT_OF_STEPS = (
    "wrong object", "never saw it", "saw and passed", "stopped early", "out of steps",
)  # fmt: skip
"""Names of failures."""


class CategoryGoals(GoalKind):
    """Any object of a category. The task's configuration has `rules` and `labels`, by which scenes get goals."""

    name, task, plays, title = "category", "objectnav", ("category",), "ObjectNav"
    format = "objectnav"
    needs_ids = failures_need_images = True
    failures = {  # noqa: RUF012
        WRONG_OBJECT: "it stopped at a view point of another goal: of another category, or another object",
        NEVER_SAW: "no image of the main camera showed the goal: an object of the category, or the object",
        PASSED: "it was at a view point of the goal, but made no successful stop there",
        EARLY: "it stopped, and had never been at a view point of the goal",
        OUT_OF_STEPS: "it did not stop, and had never been at a view point of the goal",
    }

    def with_goals(self, scenes: Sequence[Scene], config: Any, device: str | torch.device = "auto") -> list[Scene]:
        """The scenes; those without goals get them, made from their object ids."""
        missing = [scene for scene in scenes if scene.goals is None]
        made = iter(self.made_goals(missing, config.rules, config.labels, device) if missing else ())
        return [next(made) if scene.goals is None else scene for scene in scenes]

    def made_goals(self, scenes: Sequence[Scene], rules: str, labels: str, device: str | torch.device) -> list[Scene]:
        """The scenes with goals made by rules and labels."""
        return with_goals(scenes, rules, labels, device)

    def lacks_goals(self, dataset: EpisodeDataset) -> bool:
        """True where view points of the file are to be made anew."""
        return any(_RULES in episode.info for episode in dataset.episodes)

    def with_goals_of(
        self, dataset: EpisodeDataset, scenes: Sequence[Scene], device: str | torch.device = "auto"
    ) -> list[Scene]:
        """The scenes with the goals of a file; view points that it lacks are made anew.

        Goals of an episode's child categories count as goals of its category too. EpisodeError for unknown rules or
        labels, and where new view points differ from those of the file: the scene is another one.
        """
        by_scene, goals = group_by_scene(dataset.episodes), self._goals_in(dataset, scenes, device)
        return [
            scene._replace(goals=_with_children(found, by_scene.get(scene.name, ())))
            for scene, found in zip(scenes, goals, strict=True)
        ]

    def scene_goals(self, dataset: EpisodeDataset, scene_id: str) -> SceneGoals:
        """The goals of one scene in a file, as `Scene.goals` holds them, in the order of their object ids.

        Objects without a view point are left out. A scene that is not in the dataset has no goals.
        """
        prefix = goals_key(scene_id, "")
        found = [
            goal.as_goal(key.removeprefix(prefix))
            for key, goals in dataset.goals.items()
            for goal in goals
            if key.startswith(prefix) and len(goal.points)
        ]
        return SceneGoals(FROM_FILE, tuple(sorted(found, key=lambda goal: (goal.object_id, goal.category))))

    def completed(self, dataset: EpisodeDataset, scene_id: str, goals: SceneGoals) -> SceneGoals:
        """Goals that were made anew for a scene, as `scene_goals` returns them."""
        return goals

    def _goals_in(
        self, dataset: EpisodeDataset, scenes: Sequence[Scene], device: str | torch.device
    ) -> list[SceneGoals]:
        stored = {scene.name: self.scene_goals(dataset, scene.name) for scene in scenes}
        by_scene = group_by_scene(dataset.episodes)
        missing: dict[tuple[str, str], list[Scene]] = {}
        for scene in scenes:
            info = by_scene[scene.name][0].info if scene.name in by_scene else {}
            if not stored[scene.name].objects and _RULES in info:
                missing.setdefault(_names(info, scene.name), []).append(scene)
        for (rules, labels), some in missing.items():
            for scene, goals in zip(some, make_goals(some, rules, labels, device), strict=True):
                goals, episodes = self.completed(dataset, scene.name, goals), by_scene[scene.name]
                if view_point_hash(goals) != episodes[0].info.get(_HASH):
                    log.info("%s: some view points differ from those of the episode file", scene.name)
                    _check_distances(scene, goals, episodes)
                stored[scene.name] = goals
        return [stored[scene.name] for scene in scenes]

    def without_view_points(self, dataset: EpisodeDataset, rules: str, labels: str) -> EpisodeDataset:
        """A generated dataset without view points; `rules`, `labels`: names of those that made its goals."""
        scene_ids = group_by_scene(dataset.episodes)
        hashes = {scene_id: view_point_hash(self.scene_goals(dataset, scene_id)) for scene_id in scene_ids}
        bare = self._bare(dataset)
        episodes = [
            replace(e, info={**e.info, _RULES: rules, _LABELS: labels, _HASH: hashes[e.scene_id]}) for e in bare
        ]
        return bare.with_episodes(episodes)

    def _bare(self, dataset: EpisodeDataset) -> EpisodeDataset:
        goals = {key: [goal.without_view_points for goal in some] for key, some in dataset.goals.items()}
        return replace(dataset, goals=goals)

    def generate(self, scenes: Sequence[Scene], per_scene: int, seed: int, config: Any) -> EpisodeDataset:
        """Sample ObjectNav episodes in scenes with goals, by the rules of the task's configuration."""
        return generate_objectnav(scenes, per_scene, seed, config.rules, config.labels)

    def generate_file(
        self,
        scenes: Iterable[Scene],
        per_scene: int,
        seed: int,
        config: Any,
        device: str | torch.device = "auto",
        skip: Callable[[str], None] = lambda reason: None,
    ) -> EpisodeDataset:
        """Sample the episodes of a file; scenes without goals are skipped."""
        complete = self.with_goals(list(scenes), config, device)
        for scene in complete:
            if scene.goals is not None and not scene.goals.objects:
                skip(f"{scene.name}: found no object of a category with view points")
        return self.generate(complete, per_scene, seed, config)

    def unplayable(self, episodes: Sequence[Any], scene: Scene) -> Iterator[tuple[Any, str]]:
        """Episodes whose start is off the navmesh, or whose goal has no view point that can be reached."""
        starts = np.array([episode.start_position for episode in episodes], np.float32)
        snapped = scene.navmesh.snap(starts)
        islands = scene.navmesh.island(snapped)
        goals = scene.goals.objects if scene.goals else ()
        reached = {
            name: view_point_islands(scene, [g for g in goals if g.category == name]) for name in categories_in(goals)
        }
        for episode, start, place, island in zip(episodes, starts, snapped, islands.tolist(), strict=True):
            category = self.goal_name(episode)
            if problem := off_navmesh("start_position", start, place):
                yield episode, f"{episode.label}: {problem}"
            elif category not in reached:
                yield (
                    episode,
                    f"{episode.label}: found no view point of {category!r}, expected goals of that category",
                )
            elif island not in reached[category]:
                yield (
                    episode,
                    f"{episode.label}: found view points of {category!r} on other islands of the navmesh only, "
                    f"expected one on the start's island {island}",
                )

    def out_of_reach(self, episodes: Sequence[Any], scene: Scene, success_distance: float) -> Iterator[str]:
        """Episodes whose goal has no view point near the height of the navmesh on the start's island."""
        goals = scene.goals.objects if scene.goals else ()
        close = {
            name: view_point_islands(scene, [g for g in goals if g.category == name], success_distance)
            for name in categories_in(goals)
        }
        starts = np.array([episode.start_position for episode in episodes], np.float32).reshape(-1, 3)
        for episode, island in zip(episodes, scene.navmesh.island(scene.navmesh.snap(starts)).tolist(), strict=True):
            if island not in close.get(self.goal_name(episode), {island}):
                yield (
                    f"{episode.label}: all view points of {self.goal_name(episode)!r} are farther above or below the "
                    f"navmesh than the success distance of {success_distance:g} m, so no stop succeeds"
                )

    def findings(self, playable: Sequence[Any], episodes: Sequence[Any], scene: Scene) -> Iterator[Finding]:
        """Goals and view points of no use, and episodes whose stated distance is not that of the navmesh."""
        yield from (("warning", text) for text in unusable_goals(episodes, scene))
        for name in sorted({self.goal_name(episode) for episode in playable}):
            good = [episode for episode in playable if self.goal_name(episode) == name]
            if scene.goals is not None:
                starts = np.array([episode.start_position for episode in good])
                points = scene.goals.view_points(name).astype(np.float64)
                for text in distance_mismatches(good, nearest_view_points(scene.navmesh, starts, points).distance):
                    yield "warning", text

    def counts(self, episodes: Sequence[Any], scene: Scene) -> dict[str, list[int]]:
        """Numbers of episodes, goals and view points by category."""
        found = {}
        for name in sorted({self.goal_name(episode) for episode in episodes}):
            goals = [goal for goal in scene.goals.objects if goal.category == name] if scene.goals else []
            mine = sum(self.goal_name(episode) == name for episode in episodes)
            found[name] = [mine, len(goals), sum(len(goal.iou) for goal in goals)]
        return found

    def table(self, episodes: Sequence[Any], bank: SceneBank) -> EpisodeTable:
        """Starts of the episodes and numbers of their goals. EpisodeError for a goal that the task lacks."""
        number = {name: k for k, name in enumerate(bank.goal_categories)}
        rows = scene_rows(episodes, bank.names)
        for episode in episodes:
            if self.goal_name(episode) not in number:
                raise EpisodeError(
                    f"{episode.label}: field 'object_category': found {self.goal_name(episode)!r}, expected one of the "
                    f"task's: {few(tuple(number), 30)}; presets (--preset) have the categories of published datasets"
                )

        def tensor(values: list, dtype: torch.dtype) -> torch.Tensor:
            return torch.tensor(values, dtype=dtype, device=bank.device)

        start = tensor([episode.start_position for episode in episodes], torch.float32)
        return EpisodeTable(
            scene=tensor(rows, torch.int32), start=start,
            heading=tensor([episode.heading for episode in episodes], torch.float32), goal=start,
            category=tensor([number[self.goal_name(episode)] for episode in episodes], torch.int64),
            goal_image=tensor([self.image_number(episode) for episode in episodes], torch.int64),
        )  # fmt: skip

    def goal_name(self, episode: Any) -> str:
        """The category."""
        return episode.object_category

    def image_number(self, episode: Any) -> int:
        """Number of the image that shows the goal; 0 for none."""
        return 0

    def category(self, episode: Any) -> str:
        """The category."""
        return episode.object_category

    def failure(self, failed: FailedEpisode) -> str:
        """By where the agent stopped, what it saw, and whether it was at a view point."""
        goals, name = failed.scene.goals, self.goal_name(failed.episode)
        assert goals is not None
        if failed.stopped and failed.at(_view_points_of_others(goals, name, failed.goal_names))[-1]:
            return WRONG_OBJECT
        if not failed.saw_goal():
            return NEVER_SAW
        if failed.at(goals.view_points(name)).any():
            return PASSED
        return EARLY if failed.stopped else OUT_OF_STEPS

    def shown(self, episode: Any, scene: Scene) -> ShownGoals | None:
        """The nearest view point with its path, and all objects and view points of the goal."""
        start, name = np.array(episode.start_position, np.float32), self.goal_name(episode)
        objects = [goal for goal in scene.goals.objects if goal.category == name] if scene.goals else []
        if not objects:
            return None
        places = np.concatenate([goal.view_points for goal in objects])
        row = int(nearest_view_points(scene.navmesh, start[None].astype(np.float64), places.astype(np.float64)).row[0])
        centres = np.array([goal.position for goal in objects], np.float32)
        return ShownGoals(places[row], scene.navmesh.shortest_path(start, places[row]), centres, places)


def _view_points_of_others(goals: SceneGoals, category: str, categories: Sequence[str]) -> np.ndarray:
    """f32 [P, 3]: view points of objects of the task's other categories."""
    own = {goal.object_id for goal in goals.objects if goal.category == category}
    points = [goal.view_points for goal in goals.objects if goal.object_id not in own and goal.category in categories]
    return np.concatenate([np.zeros((0, 3), np.float32), *points])


class _Nearest(NamedTuple):
    """The geodesically nearest view point of each start."""

    distance: np.ndarray
    """f64 [N]: length of Detour's path, metres; inf where there is none."""
    row: np.ndarray
    """i64 [N]: row of the view points."""


def generate_objectnav(
    scenes: Sequence[Scene],
    per_scene: int,
    seed: int = 0,
    rules: str | Rules = "hm3d_v2",
    labels: str | LabelMap | None = None,
) -> EpisodeDataset:
    """Sample ObjectNav episodes in scenes with goals (`view_points.with_goals`), shared equally over the categories.

    A random category of each scene gets the first episode.

    Args:
        scenes: scenes with `goals`.
        per_scene: number of episodes per scene; fewer where its categories do not offer as many.
        seed: seed for sampling.
        rules: a preset of `rules.RULES`, or other rules.
        labels: the label map of the goals, which has the categories' ids; None: that of the rules.

    Raises EpisodeError where no scene offers an episode.
    """
    rules, per_scene, seed = rules_named(rules), check_int("per_scene", per_scene, 1, 2**24), check_seed(seed)
    episodes: list[ObjectNavEpisode] = []
    goals: dict[str, list[FileGoal]] = {}
    for scene in scenes:
        if scene.goals is None:
            raise EpisodeError(f"scene {scene.name!r}: found no goals, expected a scene of `with_goals`")
        turns = sorted(scene.goals.categories, key=lambda name: stable_hash(seed, scene_name(scene.name), name))
        streams = [category_episodes(scene, name, seed, rules.episodes) for name in turns]
        taken = list(itertools.islice(in_turn(streams), per_scene))
        order = sorted(range(len(taken)), key=lambda i: (taken[i].object_category, i))
        episodes += [replace(taken[i], episode_id=str(number)) for number, i in enumerate(order)]
        for goal in scene.goals.objects if taken else ():
            goals.setdefault(goals_key(scene.name, goal.category), []).append(FileGoal.of(goal))
    if not episodes:
        raise EpisodeError(
            f"ObjectNav: found no episodes in {number_of(len(scenes), 'scene')}, expected at least one; "
            f"use other scenes"
        )
    found = sorted({goal.object_category for some in goals.values() for goal in some if goal.object_category})
    ids = labels_named(rules.labels if labels is None else labels).ids or {name: i for i, name in enumerate(found)}
    return EpisodeDataset(episodes, "category", goals, header_of(ids, ids), "objectnav")


def category_episodes(
    scene: Scene, category: str, seed: int = 0, rules: EpisodeRules | None = None
) -> Iterator[ObjectNavEpisode]:
    """The episodes of one category in a scene with goals, one after another, until no more are found.

    Each has the id "0": datasets number the episodes of a scene.
    """
    rules, goals = rules or EpisodeRules(), scene.goals
    assert goals is not None
    objects = [goal for goal in goals.objects if goal.category == category]
    points = np.concatenate([goal.view_points for goal in objects]).astype(np.float64)
    owner = np.repeat([goal.object_id for goal in objects], [len(goal.view_points) for goal in objects])
    starts = _Starts(scene.navmesh, rules.min_island_radius)
    waited = 0
    for number in itertools.count():
        rng = _stream(seed, category, number)
        turns = np.arange(_AT_ONCE) + number * _AT_ONCE
        start, (straight, yaw) = starts.choose(turns, rng), rng.random((2, _AT_ONCE))
        nearest = nearest_view_points(scene.navmesh, start, points, rules.furthest)
        for i in range(_AT_ONCE):
            view_point = points[nearest.row[i]]
            euclidean, distance = math.dist(start[i], view_point), nearest.distance[i]
            kept = _is_kept(distance, euclidean, straight[i], rules)
            if not kept or not _is_level(scene.navmesh, start[i], points, view_point, rules):
                waited += 1
                continue
            waited = 0
            info = {
                "geodesic_distance": round(float(distance), _DECIMALS),
                "euclidean_distance": round(euclidean, _DECIMALS),
                "closest_goal_object_id": int(owner[nearest.row[i]]),
            }
            x, y, z = start[i].tolist()
            rotation = np.array(rotation_of(2.0 * math.pi * (yaw[i] - 0.5)), np.float32)
            a, b, c, d = shortest(rotation).tolist()
            yield ObjectNavEpisode("0", scene.name, (x, y, z), (a, b, c, d), info=info, object_category=category)
        if waited >= _MOST_CANDIDATES:
            return


def nearest_view_points(navmesh: NavMesh, starts: np.ndarray, points: np.ndarray, furthest: float = np.inf) -> _Nearest:
    """The view point with the shortest path from each start.

    A path is at least as long as the straight line, so most view points need no search.

    Args:
        navmesh: of the scene.
        starts: f64 [N, 3], metres.
        points: f64 [V, 3], view points.
        furthest: straight distance beyond which there is no search, metres.
    """
    far = np.linalg.norm(points[None] - starts[:, None], axis=2)
    far[navmesh.island(starts)[:, None] != navmesh.island(points)[None]] = np.inf
    far[far > furthest] = np.inf
    order = np.argsort(far, axis=1, kind="stable")
    best, index = np.full(len(starts), np.inf), order[:, 0].copy()
    for begin in range(0, len(points), _AT_ONCE):
        near = order[:, begin : begin + _AT_ONCE]
        bound = np.take_along_axis(far, near, 1)
        rows, columns = np.nonzero((bound < best[:, None] + 1e-4) & np.isfinite(bound))
        if not len(rows):
            break
        length = np.full(near.shape, np.inf)
        length[rows, columns] = navmesh.geodesic_distance(starts[rows], points[near[rows, columns]])
        column = length.argmin(1)
        shortest_now = length[np.arange(len(starts)), column]
        better = shortest_now < best
        best[better], index[better] = shortest_now[better], near[better, column[better]]
    return _Nearest(best, index)


class _Starts:
    """Places where episodes may begin, in cells that take turns."""

    def __init__(self, navmesh: NavMesh, min_island_radius: float):
        number = min(round(navmesh.area * _POINTS_PER_SQUARE_METRE) + 1, _MOST_POINTS)
        points = np.round(navmesh.sample(number, seed=0).astype(np.float64), _DECIMALS)
        self._points = points[navmesh.island_radius(points) >= min_island_radius]
        cells = np.floor(self._points / _CELL).astype(np.int64)
        _, self._cell, self._size = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
        self._rows = np.argsort(self._cell.reshape(-1), kind="stable")
        self._first = np.cumsum(self._size) - self._size

    def choose(self, turns: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Places f64 [n, 3] for some turns i64 [n]: a random one of each turn's cell.

        The cells of one round of turns come in the order of a multiplicative permutation.
        """
        if not len(self._size):
            raise EpisodeError("ObjectNav: found no island that is large enough, expected one for start positions")
        cell = turns * _coprime(len(self._size)) % len(self._size)
        member = (rng.random(len(turns)) * self._size[cell]).astype(np.int64)
        return self._points[self._rows[self._first[cell] + member]]


def _coprime(number: int) -> int:
    """A step near the golden section that visits each of `number` cells once."""
    step = max(round(number * 0.6180339887), 1)
    while math.gcd(step, number) > 1:
        step += 1
    return step


def _is_kept(distance: float, euclidean: float, u: float, rules: EpisodeRules) -> bool:
    """True for a distance in the limits and a path that is not too straight."""
    if not rules.closest <= distance <= rules.furthest or euclidean <= 0.0:
        return False
    if not rules.some_straight:
        return distance / euclidean >= rules.min_detour_ratio
    plain = accept_detour.py_func  # of float64 scalars: the same result, and no compilation
    return bool(plain(np.float64(distance), np.float64(euclidean), np.float64(u), rules.min_detour_ratio))


def _is_level(
    navmesh: NavMesh, start: np.ndarray, points: np.ndarray, view_point: np.ndarray, rules: EpisodeRules
) -> bool:
    """True where the start has the height of a view point, and the path stays at its height."""
    if np.abs(points[:, 1] - start[1]).min() > rules.max_height:
        return False
    if math.isinf(rules.max_path_height):
        return True
    corners = navmesh.shortest_path(start, view_point)
    return bool(np.ptp(corners[:, 1]) <= rules.max_path_height)


def _stream(seed: int, category: str, number: int) -> np.random.Generator:
    """Random numbers of a round of candidates."""
    key = [seed & (2**64 - 1), stable_hash(category)]
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, number]))


def stable_hash(*parts: int | str) -> int:
    """A number of 64 bits that depends on all parts, equal on every machine."""
    return int.from_bytes(hashlib.sha256("\n".join(map(str, parts)).encode()).digest()[:8], "little")


def in_turn(streams: Sequence[Iterator[ObjectNavEpisode]]) -> Iterator[ObjectNavEpisode]:
    """One episode of each stream after another; streams that end drop out."""
    running = list(streams)
    while running:
        for stream in tuple(running):
            episode = next(stream, None)
            if episode is None:
                running.remove(stream)
            else:
                yield episode


def _with_children(goals: SceneGoals, episodes: Sequence[ObjectNavEpisode]) -> SceneGoals:
    """The goals of a scene, where those of an episode's child categories count as goals of its category too."""
    children = {(e.object_category, child) for e in episodes for child in e.goal_categories[1:]}
    known = {(goal.category, goal.object_id) for goal in goals.objects}
    further = [
        goal._replace(category=category)
        for category, child in sorted(children)
        for goal in goals.objects
        if goal.category == child and (category, goal.object_id) not in known
    ]
    return goals._replace(objects=(*goals.objects, *further))


def _names(info: dict[str, Any], scene_id: str) -> tuple[str, str]:
    """Names of the rules and of the label map in an episode's `info`. EpisodeError for unknown ones."""
    for key, known in ((_RULES, RULES), (_LABELS, LABELS)):
        if not isinstance(info.get(key), str) or info[key] not in known:
            raise EpisodeError(
                f"episodes of scene {scene_id!r}: field 'info': {key}: found {shortened(info.get(key))}, expected one "
                f"of {', '.join(known)}"
            )
    return info[_RULES], info[_LABELS]


def view_point_hash(goals: SceneGoals) -> str:
    """Hash of the objects of a scene and of the places of their view points."""
    digest = hashlib.sha256()
    for goal in goals.objects:
        digest.update(f"{goal.category} {goal.object_id} {len(goal.view_points)}\n".encode())
        order = np.lexsort(goal.view_points.T)
        digest.update(np.ascontiguousarray(goal.view_points[order]).tobytes())
    return digest.hexdigest()[:16]


def _check_distances(scene: Scene, goals: SceneGoals, episodes: Sequence[ObjectNavEpisode]) -> None:
    """EpisodeError for an episode whose distance to the nearest view point is not that of the file."""
    for episode in episodes:
        points = goals.view_points(episode.goal_name).astype(np.float64)
        start, stored = np.array([episode.start_position]), episode.info.get("geodesic_distance")
        expected = stored if is_number(stored) else np.nan
        found = float(nearest_view_points(scene.navmesh, start, points).distance[0]) if len(points) else np.inf
        if not abs(found - expected) <= _TOLERANCE:  # also for a distance that is not a number
            where = f"episode {episode.episode_id!r} of scene {scene.name!r}"
            raise EpisodeError(
                f"{where}: found {found:.3f} m to the nearest view point of {episode.goal_name!r}, expected "
                f"{expected:.3f} m as in the file; the scene, its body or the rules have changed"
            )


def unusable_goals(episodes: Sequence[Any], scene: Scene) -> Iterator[str]:
    """One line for each category with view points off the navmesh, and for each with goals that no start reaches."""
    goals = scene.goals.objects if scene.goals else ()
    _, starts = _on_navmesh(scene, np.array([episode.start_position for episode in episodes], np.float32))
    for category in categories_in(goals):
        mine = [goal for goal in goals if goal.category == category]
        points = np.concatenate([goal.view_points for goal in mine])
        near, _ = _on_navmesh(scene, points)
        where = f"scene {scene.name!r}: category {category!r}"
        if not near.all():
            first = np.round(points[~near][0].astype(float), 3).tolist()
            off, count = int((~near).sum()), number_of(len(points), "view point")
            yield f"{where}: {off} of {count} are off the navmesh, such as {first}"
        apart = [goal.name for goal in mine if not view_point_islands(scene, [goal]) & set(starts.tolist())]
        if apart:
            count = number_of(len(mine), "goal")
            yield f"{where}: {len(apart)} of {count} cannot be reached from any start, such as {apart[0]!r}"


def categories_in(goals: Iterable[ObjectGoal]) -> list[str]:
    """Categories of goals, sorted."""
    return sorted({goal.category for goal in goals})


def view_point_islands(scene: Scene, goals: Iterable[ObjectGoal], success_distance: float = math.inf) -> set[int]:
    """Islands of the navmesh on which goals have view points, within the success distance of its height."""
    points = np.concatenate([goal.view_points for goal in goals])
    _, islands = _on_navmesh(scene, points)
    if math.isfinite(success_distance):
        islands = islands[~too_far((scene.navmesh.snap(points) - points)[:, 1], success_distance)]
    return set(islands[islands >= 0].tolist())


def _on_navmesh(scene: Scene, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """bool [N]: the navmesh is near enough to points f32 [N, 3] to move them onto it; i32 [N]: its islands there."""
    snapped = scene.navmesh.snap(points)
    return is_near(points, snapped), scene.navmesh.island(snapped)
