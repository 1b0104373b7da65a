"""Generation of ObjectNav episodes by the rules of published datasets (`rules.py`).

Starts are spread over the walkable area: cells of 1 m take turns, as clusters of navmesh points do in Habitat's
generator. Random numbers are counter-based (Philox) and keyed by seed and category: equal seeds give equal episodes on
every machine, and the episodes of a category do not depend on the other categories.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from batchnav.data.episodes.episode import rotation_of, scene_name
from batchnav.data.objectnav.categories import LabelMap, labels_named
from batchnav.data.objectnav.episode import FileGoal, ObjectNavDataset, ObjectNavEpisode, goals_key, shortest
from batchnav.data.objectnav.rules import EpisodeRules, Rules, rules_named
from batchnav.errors import EpisodeError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.runtime.checks import check_int, check_seed
from batchnav.runtime.console import number_of
from batchnav.scene.scene import Scene
from batchnav.tasks.episode_sampling import keep_detour

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
) -> ObjectNavDataset:
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
        turns = sorted(scene.goals.categories, key=lambda name: _hash(seed, scene_name(scene.name), name))
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
    return ObjectNavDataset(episodes, goals, ids, ids)


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
    if not rules.keep_some_straight:
        return distance / euclidean >= rules.min_detour_ratio
    plain = keep_detour.py_func  # of float64 scalars: the same result, and no compilation
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
    key = [seed & (2**64 - 1), _hash(category)]
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, number]))


def _hash(*parts: int | str) -> int:
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
