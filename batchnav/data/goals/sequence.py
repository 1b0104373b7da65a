"""Sequences of goals, as in GOAT-Bench and MultiON: each subtask has a goal of a kind of its own.

The goals of a scene are categories, and single objects under names of their own (`data.sequences.instance_name`).
Episodes are sampled as in ObjectNav: the first goal and the start by its rules, the others in a random order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch

from batchnav.data.episodes import group_by_scene, scene_name, scene_rows
from batchnav.data.formats.dataset import EpisodeDataset
from batchnav.data.formats.instance_imagenav import IMAGE_GOALS, images_of_goal
from batchnav.data.formats.multion import CYLINDER_HEIGHT, CYLINDER_RADIUS, CYLINDERS, cylinders_of
from batchnav.data.formats.objectnav import FROM_FILE, ObjectNavEpisode, goals_key
from batchnav.data.goals.category import (
    EARLY,
    OUT_OF_STEPS,
    PASSED,
    CategoryGoals,
    categories_in,
    generate_objectnav,
    nearest_view_points,
    stable_hash,
    unusable_goals,
    view_point_islands,
)
from batchnav.data.goals.kind import FailedEpisode, Finding, ShownGoals, distance_mismatches, off_navmesh, too_far
from batchnav.data.sequences import CATEGORY, INSTANCE, POINT, SequenceEpisode, Subtask, instance_name
from batchnav.errors import EpisodeError, few
from batchnav.scene.bank import SceneBank
from batchnav.scene.goals import NO_IMAGES, SceneGoals
from batchnav.scene.scene import Scene
from batchnav.tasks.episode_sampling import EpisodeTable
from batchnav.tasks.sequence import SequenceTable
from batchnav.types import NUM_APPEARANCES
from batchnav.world.standing import StandingBody

NOT_BEGUN = "not begun"
"""Name of the failure of a subtask that never began."""


class SequenceGoals(CategoryGoals):
    """Several goals, one after another."""

    name, task, plays, title = "sequence", "sequence", ("sequence",), "goals in sequence"
    format = "goat"
    standing_categories = {NUM_APPEARANCES + k: name for k, name in enumerate(CYLINDERS)}  # noqa: RUF012
    failures_need_images = False
    failures = {  # noqa: RUF012
        **CategoryGoals.failures,
        NOT_BEGUN: "the episode ended before the subtask began",
    }

    def with_goals_of(
        self, dataset: EpisodeDataset, scenes: Sequence[Scene], device: str | torch.device = "auto"
    ) -> list[Scene]:
        """The scenes with the goals of a file; as they are for a file of places."""
        if not dataset.goals and not self.lacks_goals(dataset):
            return list(scenes)
        found = self._goals_in(dataset, scenes, device)
        return [scene._replace(goals=goals) for scene, goals in zip(scenes, found, strict=True)]

    def scene_goals(self, dataset: EpisodeDataset, scene_id: str) -> SceneGoals:
        """The goals of one scene in a file: its categories, and the objects that its subtasks ask for by an image."""
        prefix = goals_key(scene_id, "")
        mine = {key.removeprefix(prefix): some for key, some in dataset.goals.items() if key.startswith(prefix)}
        found = [goal.as_goal(name) for name, some in mine.items() for goal in some if len(goal.points)]
        return self._complete(dataset, scene_id, SceneGoals(FROM_FILE, tuple(found)))

    def completed(self, dataset: EpisodeDataset, scene_id: str, goals: SceneGoals) -> SceneGoals:
        """Goals that were made anew for a scene, as `scene_goals` returns them."""
        return self._complete(dataset, scene_id, goals)

    def _complete(self, dataset: EpisodeDataset, scene_id: str, goals: SceneGoals) -> SceneGoals:
        """The goals of a scene with child categories, and with the single objects that subtasks ask for."""
        subtasks = [subtask for e in dataset.episodes if e.scene_id == scene_id for subtask in e.subtasks]
        children = {(subtask.category, child) for subtask in subtasks for child in subtask.children_object_categories}
        wanted = {subtask.object_id for subtask in subtasks if subtask.object_id}
        images = self._images(dataset, scene_id)
        objects = {(goal.category, goal.object_id): goal for goal in goals.objects}
        for category, child in sorted(children):
            for goal in [goal for (name, _), goal in objects.items() if name == child]:
                objects.setdefault((category, goal.object_id), goal._replace(category=category))
        by_id = {str(goal.object_id): goal for goal in goals.objects}
        single = [
            goal._replace(category=instance_name(number), images=images.get(goal.object_id, NO_IMAGES))
            for number, goal in sorted(by_id.items())
            if number in wanted
        ]
        # The category of an object comes after its own name, so that goal masks show it: `SceneGoals.numbers`.
        return goals._replace(objects=(*single, *sorted(objects.values(), key=lambda goal: goal.object_id)))

    @staticmethod
    def _images(dataset: EpisodeDataset, scene_id: str) -> dict[int, np.ndarray]:
        """Cameras of the images of a scene's objects, by object id."""
        prefix, found = goals_key(scene_id, ""), {}
        for key, some in dataset.goals.items():
            for goal in some if key.startswith(prefix) else ():
                if goal.other.get(IMAGE_GOALS):
                    found[goal.number] = images_of_goal(goal, f"goals {key!r}")
        return found

    def generate(self, scenes: Sequence[Scene], per_scene: int, seed: int, config: Any) -> EpisodeDataset:
        """Sample sequences of categories: starts and first goals by ObjectNav's rules, then others in a random order.

        A category is asked for once in an episode, and has view points on the island of the start.
        """
        found = generate_objectnav(scenes, per_scene, seed, config.rules, config.labels)
        by_name, episodes = {scene.name: scene for scene in scenes}, []
        for scene_id, some in group_by_scene(found.episodes).items():
            scene = by_name[scene_id]
            reached, navmesh = _islands_of(scene), scene.navmesh
            starts = navmesh.island(np.array([episode.start_position for episode in some], np.float32))
            for episode, island in zip(some, starts.tolist(), strict=True):
                key = [stable_hash(seed, scene_name(scene_id)), int(episode.episode_id)]
                random = np.random.Generator(np.random.Philox(key=key))
                names = [name for name in reached if island in reached[name]]
                episodes.append(_sequence(episode, names, config.subtasks, random))
        return EpisodeDataset(episodes, self.name, found.goals, format=self.format)

    def unplayable(self, episodes: Sequence[Any], scene: Scene) -> Iterator[tuple[Any, str]]:
        """Episodes whose start is off the navmesh, or with a goal that cannot be reached from there."""
        navmesh, reached = scene.navmesh, _islands_of(scene)
        starts = np.array([episode.start_position for episode in episodes], np.float32).reshape(-1, 3)
        snapped = navmesh.snap(starts)
        for episode, start, place, island in zip(
            episodes, starts, snapped, navmesh.island(snapped).tolist(), strict=True
        ):
            problem = off_navmesh("start_position", start, place)
            for k, (subtask, goal) in enumerate(zip(episode.subtasks, episode.places, strict=True)):
                problem = problem or _problem_of(k, subtask, goal, island, reached, scene)
            if problem:
                yield episode, f"{episode.label}: {problem}"

    def out_of_reach(self, episodes: Sequence[Any], scene: Scene, success_distance: float) -> Iterator[str]:
        """Episodes with a place, or view points, too far above or below the navmesh for a right stop."""
        goals = scene.goals.objects if scene.goals else ()
        close = {
            name: view_point_islands(scene, [goal for goal in goals if goal.category == name], success_distance)
            for name in categories_in(goals)
        }
        for episode in episodes:
            points = np.array([goal.position for goal in episode.goals], np.float32).reshape(-1, 3)
            gap = (scene.navmesh.snap(points) - points)[:, 1]
            names = [subtask.goal_name for subtask in episode.subtasks if subtask.kind != POINT]
            far = [name for name in names if not close.get(name, {0})]
            if far or too_far(gap, success_distance).any():
                yield (
                    f"{episode.label}: {few(far) if far else 'a place'} is farther above or below the navmesh than the "
                    f"success distance of {success_distance:g} m, so no stop there is right"
                )

    def findings(self, playable: Sequence[Any], episodes: Sequence[Any], scene: Scene) -> Iterator[Finding]:
        """Goals and view points of no use, and episodes whose stated distance to their first goal is another one."""
        yield from (("warning", text) for text in unusable_goals(episodes, scene))
        for episode in playable:
            yield from (("warning", text) for text in distance_mismatches([episode], _first_distance(episode, scene)))

    def counts(self, episodes: Sequence[Any], scene: Scene) -> dict[str, list[int]]:
        """Numbers of subtasks, goals and view points by category."""
        names = [subtask.goal_name or "place" for episode in episodes for subtask in episode.subtasks]
        found = {}
        for name in sorted(set(names)):
            goals = [goal for goal in scene.goals.objects if goal.category == name] if scene.goals else []
            found[name] = [names.count(name), len(goals), sum(len(goal.iou) for goal in goals)]
        return found

    def table(self, episodes: Sequence[Any], bank: SceneBank) -> Any:
        """Starts of the episodes and their subtasks. EpisodeError for a goal that the bank lacks."""
        number = {name: k for k, name in enumerate(bank.goal_categories)}
        listed = [(e, subtask) for e in episodes for subtask in e.subtasks]
        for episode, subtask in listed:
            if subtask.kind != POINT and subtask.goal_name not in number:
                raise EpisodeError(
                    f"{episode.label}: field 'tasks': found {subtask.goal_name!r}, expected one of the task's goals: "
                    f"{few(tuple(number), 30)}; presets (--preset) have the categories of published datasets"
                )
        categories = tuple(sorted({subtask.category for _, subtask in listed}))
        rows = [
            (
                -1 if subtask.kind == POINT else number[subtask.goal_name],
                number.get(subtask.category, -1), categories.index(subtask.category),
                subtask.image if subtask.kind == INSTANCE else -1,
            )
            for _, subtask in listed
        ]  # fmt: skip
        counts = [len(episode.subtasks) for episode in episodes]
        first = np.cumsum([0, *counts[:-1]])
        places = [
            episode.start_position if goal is None else goal.position for episode in episodes for goal in episode.places
        ]

        def tensor(values: Any, dtype: torch.dtype) -> torch.Tensor:
            return torch.tensor(np.array(values), dtype=dtype, device=bank.device)

        start = tensor([episode.start_position for episode in episodes], torch.float32)
        heading = tensor([episode.heading for episode in episodes], torch.float32)
        scenes = tensor(scene_rows(episodes, bank.names), torch.int32)
        sequences = tensor(np.stack([first, counts], axis=1), torch.int32)
        return SequenceTable(
            EpisodeTable(scenes, start, heading, start), sequences, tensor(rows, torch.int32),
            tensor(places, torch.float32), categories,
        )  # fmt: skip

    def standing(self, episode: Any) -> list[StandingBody]:
        """MultiON's cylinders, those of distractors too."""
        return [
            StandingBody(goal.position, CYLINDER_RADIUS, CYLINDER_HEIGHT, NUM_APPEARANCES + CYLINDERS.index(name))
            for goal, name in cylinders_of(episode)
        ]

    def rules_of_stops(self, config: Any) -> Any:
        """Goals in the given order, and a wrong stop goes on."""
        return replace(config, order="given", wrong_stop="continue")

    def goal_name(self, episode: Any) -> str:
        """Name of the first goal."""
        return episode.goal_name

    def category(self, episode: Any) -> str:
        """None: an episode has several."""
        return ""

    def failure(self, failed: FailedEpisode) -> str:
        """Why the subtask of an episode with one subtask failed."""
        (subtask,), (place,) = failed.episode.subtasks, failed.episode.places
        if subtask.kind != POINT:
            return super().failure(failed)
        if failed.at(np.array([place.position], np.float32)).any():
            return PASSED
        return EARLY if failed.stopped else OUT_OF_STEPS

    def shown(self, episode: Any, scene: Scene) -> ShownGoals | None:
        """The first goal with its path, and the objects, view points and places of all goals."""
        names = {subtask.goal_name for subtask in episode.subtasks if subtask.kind != POINT}
        objects = [goal for goal in scene.goals.objects if goal.category in names] if scene.goals else []
        start, points = np.array(episode.start_position, np.float32), _points_of(episode, 0, scene)
        row = int(np.argmin(scene.navmesh.geodesic_distance(np.repeat(start[None], len(points), axis=0), points)))
        centres = np.array([goal.position for goal in objects], np.float32).reshape(-1, 3)
        places = [np.array([goal.position for goal in episode.goals], np.float32).reshape(-1, 3)]
        places += [goal.view_points for goal in objects]
        path = scene.navmesh.shortest_path(start, points[row])
        return ShownGoals(points[row], path, centres, np.concatenate(places))


def _islands_of(scene: Scene) -> dict[str, set[int]]:
    """Islands of the navmesh with view points, by the goal's name."""
    goals = scene.goals.objects if scene.goals else ()
    return {
        name: view_point_islands(scene, [goal for goal in goals if goal.category == name])
        for name in categories_in(goals)
    }


def _problem_of(k: int, subtask: Subtask, goal: Any, island: int, reached: dict[str, set[int]], scene: Scene) -> str:
    """Why a subtask cannot be done from an island of the navmesh; "" where it can. `goal`: its place or None."""
    if goal is None:
        name = subtask.goal_name
        if name not in reached:
            return f"subtask {k}: found no view point of {name!r}, expected goals of that name in the scene"
        if island not in reached[name]:
            return (
                f"subtask {k}: found view points of {name!r} on other islands of the navmesh only, expected one on the "
                f"start's island {island}"
            )
        return ""
    point = np.array([goal.position], np.float32)
    snapped = scene.navmesh.snap(point)
    problem = off_navmesh(f"goals of subtask {k}", point[0], snapped[0])
    there = int(scene.navmesh.island(snapped)[0])
    if not problem and there != island:
        problem = f"subtask {k}: the goal lies on island {there} of the navmesh, expected the start's island {island}"
    return problem


def _points_of(episode: Any, k: int, scene: Scene) -> np.ndarray:
    """f32 [P, 3]: places at which the k-th subtask of an episode may end."""
    goal, subtask = episode.places[k], episode.subtasks[k]
    if goal is not None:
        return np.array([goal.position], np.float32)
    assert scene.goals is not None
    return scene.goals.view_points(subtask.goal_name)


def _first_distance(episode: Any, scene: Scene) -> np.ndarray:
    """f64 [1]: geodesic distance from the start to the first goal, metres."""
    start, points = np.array([episode.start_position]), _points_of(episode, 0, scene).astype(np.float64)
    return nearest_view_points(scene.navmesh, start, points).distance


def _sequence(
    episode: ObjectNavEpisode, names: Sequence[str], subtasks: Sequence[int], random: np.random.Generator
) -> SequenceEpisode:
    """A sequence that begins as an ObjectNav episode. `names`: categories that can be reached from its start."""
    others = [name for name in names if name != episode.object_category]
    number = int(random.integers(subtasks[0], subtasks[1] + 1))
    order = [episode.object_category, *(others[k] for k in random.permutation(len(others)))][:number]
    known = {each.name for each in fields(SequenceEpisode)} - {"goals", "subtasks"}
    given = {name: value for name, value in vars(episode).items() if name in known}
    return SequenceEpisode(**given, subtasks=tuple(Subtask(CATEGORY, name) for name in order))
