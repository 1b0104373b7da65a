"""`GoalKind`: everything that depends on the kind of an episode's goal.

A kind says how scenes get goals, how episodes are generated, checked, and turned into tensors, what pictures show, and
what failures are called. All other code asks the kind of the task (`batchnav.data.goals.kind_of`). A new kind is one
file with a subclass, and one line:

    from batchnav.data.goals import GOALS
    GOALS["landmark"] = LandmarkGoals()

`goal_kind = "landmark"` in a task's class names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from scipy.spatial import cKDTree

from batchnav.data.episodes import Episode
from batchnav.data.formats.dataset import EpisodeDataset
from batchnav.errors import EpisodeError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene
from batchnav.sim.simulator import MAX_SNAP_DISTANCE, MAX_SNAP_HEIGHT
from batchnav.tasks.episode_sampling import EpisodeTable
from batchnav.world.standing import StandingBody

DISTANCE_TOLERANCE = 0.01
"""Tolerance between an episode's stated geodesic distance and the navmesh's, metres, since files round distances."""
HEIGHT_TOLERANCE = 1e-3
"""Tolerance of a goal's height above the navmesh, metres."""
NO_POINTS = np.zeros((0, 3), np.float32)
Finding = tuple[Literal["error", "warning", "note"], str]
"""Level and text."""


class FailedEpisode(NamedTuple):
    """An episode in which an agent failed."""

    episode: Any
    scene: Scene
    """The scene, with its goals."""
    positions: np.ndarray
    """f32 [S, 3]: position of the agent when it chose each action, metres."""
    stopped: bool
    """True where the agent ended the episode."""
    success_distance: float
    """Metres."""
    goal_names: Sequence[str]
    """Names of all goals that the task may ask for (`SceneBank.goal_categories`)."""
    saw_goal: Callable[[], bool]
    """Whether an image of the main camera showed the goal, by rendering again from the agent's poses."""

    def at(self, points: np.ndarray) -> np.ndarray:
        """bool [S]: the agent is within the success distance of the nearest of points f32 [P, 3], along the navmesh."""
        return at_points(self.scene.navmesh, self.positions, points, self.success_distance)


class ShownGoals(NamedTuple):
    """Goals of one episode as pictures show them, metres."""

    nearest: np.ndarray
    """f32 [3]: the goal, or the view point, with the shortest geodesic distance from the start."""
    path: np.ndarray
    """f32 [K, 3]: the shortest path from the start to `nearest`."""
    objects: np.ndarray = NO_POINTS
    """f32 [G, 3]: centres of the objects that are goals; empty for goals that are places."""
    view_points: np.ndarray = NO_POINTS
    """f32 [P, 3]: view points of these objects."""


class GoalKind:
    """One kind of goals. The base holds the defaults: goals are not objects of the scene."""

    name: str = ""
    """Name in `GOALS`, in `Task.goal_kind` and in `EpisodeDataset.kind`."""
    task: str = ""
    """Task that plays files of this kind where no other is named."""
    title: str = "its own kind"
    """Tasks whose files have such goals, for messages."""
    plays: tuple[str, ...] = ()
    """Kinds of files that tasks with this kind of goal can play."""
    format: str = "pointnav"
    """Format of generated datasets: a name in `batchnav.data.formats.FORMATS`."""
    needs_ids: bool = False
    """True where goals are made from the object ids of scenes, which are then loaded with appearance."""
    failures: Mapping[str, str] = {}
    """What each kind of failure says about the agent, by its name; empty: failures are not told apart."""
    failures_need_images: bool = False
    """True where `failure` asks what the agent saw."""
    standing_categories: Mapping[int, str] = {}
    """Categories of the bodies of `standing` by appearance, which semantic images show."""
    habitat_names: Mapping[str, str] = {}
    """Habitat's names of the task's observations, where they differ from batchnav's."""

    # Goals of scenes.

    def with_goals(self, scenes: Sequence[Scene], config: Any, device: str | torch.device = "auto") -> list[Scene]:
        """The scenes with the goals that a task needs. `config`: the task's; `device` renders objects."""
        return list(scenes)

    def lacks_goals(self, dataset: EpisodeDataset) -> bool:
        """True where goals of a file must be made from its scenes, which then need object ids."""
        return False

    def with_goals_of(
        self, dataset: EpisodeDataset, scenes: Sequence[Scene], device: str | torch.device = "auto"
    ) -> list[Scene]:
        """The scenes with the goals that a file states. EpisodeError where they do not fit the scenes."""
        return list(scenes)

    # Episodes.

    def generate(self, scenes: Sequence[Scene], per_scene: int, seed: int, config: Any) -> EpisodeDataset:
        """Sample episodes in scenes of `with_goals`. EpisodeError where no scene offers an episode.

        Args:
            scenes: the scenes.
            per_scene: number of episodes per scene.
            seed: seed for sampling.
            config: the task's configuration.
        """
        raise NotImplementedError

    def generate_published(self, scenes: Sequence[Scene], per_scene: int, seed: int, config: Any) -> EpisodeDataset:
        """`generate` by the rules of published files, where these differ from the task's configuration."""
        return self.generate(scenes, per_scene, seed, config)

    def generate_file(
        self,
        scenes: Iterable[Scene],
        per_scene: int,
        seed: int,
        config: Any,
        device: str | torch.device = "auto",
        skip: Callable[[str], None] = lambda reason: None,
    ) -> EpisodeDataset:
        """Sample the episodes of a file by the rules of published ones; `skip` is told why a scene is left out."""
        episodes: list[Any] = []
        for scene in scenes:
            try:
                complete = self.with_goals([scene], config, device)
                episodes += self.generate_published(complete, per_scene, seed, config).episodes
            except EpisodeError as error:
                skip(str(error))
        return EpisodeDataset(episodes, self.plays[0], format=self.format)

    def unplayable(self, episodes: Sequence[Any], scene: Scene) -> Iterator[tuple[Any, str]]:
        """Episodes of one scene that cannot be played, each with the reason. Positions are in the scene's frame."""
        raise NotImplementedError

    def out_of_reach(self, episodes: Sequence[Any], scene: Scene, success_distance: float) -> Iterator[str]:
        """One line for each playable episode in which no stop succeeds: its goal is too far above or below the navmesh.

        `success_distance`: metres; paths to a goal are at least as long as its height above the navmesh.
        """
        return iter(())

    def findings(self, playable: Sequence[Any], episodes: Sequence[Any], scene: Scene) -> Iterator[Finding]:
        """Findings about the episodes of one scene and its goals: stated distances, goals of no use.

        `playable`: those of the episodes that can be played.
        """
        return iter(())

    def counts(self, episodes: Sequence[Any], scene: Scene) -> dict[str, list[int]]:
        """Numbers of episodes, goals and view points in one scene, by the goal's name; empty: not reported."""
        return {}

    def table(self, episodes: Sequence[Any], bank: SceneBank) -> EpisodeTable:
        """The episodes as tensors for the task. EpisodeError for a scene or a goal that the bank does not have."""
        raise NotImplementedError

    def standing(self, episode: Any) -> Sequence[StandingBody]:
        """Bodies that stand in an episode, which sensors see and which stop nobody."""
        return ()

    def rules_of_stops(self, config: Any) -> Any:
        """The task's configuration with rules by which stops alone lead through all goals of an episode in order."""
        return config

    def goal_name(self, episode: Any) -> str:
        """Name of the episode's goal among those of the bank; "" for a place."""
        return ""

    def category(self, episode: Any) -> str:
        """Category of the goal, by which tables group episodes; "" for none."""
        return ""

    # What reports and pictures show.

    def failure(self, failed: FailedEpisode) -> str:
        """The kind of a failure: a key of `failures`."""
        raise NotImplementedError

    def shown(self, episode: Any, scene: Scene) -> ShownGoals | None:
        """The goals of an episode in the frame of its scene; None where it has none."""
        return None


def at_points(navmesh: NavMesh, positions: np.ndarray, points: np.ndarray, limit: float) -> np.ndarray:
    """bool [S]: the geodesic distance of positions f32 [S, 3] to the nearest of points f32 [P, 3] is below `limit`."""
    found = np.zeros(len(positions), bool)
    if len(points):
        gap, nearest = cKDTree(points).query(positions, distance_upper_bound=limit)
        rows = np.flatnonzero(np.isfinite(gap))
        if len(rows):
            found[rows] = navmesh.geodesic_distance(positions[rows], points[nearest[rows]]) < limit
    return found


def distance_mismatches(episodes: Sequence[Episode], distances: np.ndarray) -> list[str]:
    """One line for each episode whose stated geodesic distance differs from `distances` f32 [N], metres."""
    lines = []
    for episode, distance in zip(episodes, distances, strict=True):
        stated = episode.info.get("geodesic_distance")
        if isinstance(stated, (int, float)) and not abs(stated - distance) <= DISTANCE_TOLERANCE:
            lines.append(
                f"{episode.label}: its file states a geodesic distance of {stated:.3f} m, found {distance:.3f} m on "
                "the navmesh"
            )
    return lines


def is_near(points: np.ndarray, snapped: np.ndarray) -> np.ndarray:
    """bool [N]: True where the nearest points on the navmesh f32 [N, 3] are near enough to move points f32 [N, 3]."""
    gap = snapped - points
    return (np.hypot(gap[:, 0], gap[:, 2]) <= MAX_SNAP_DISTANCE) & (np.abs(gap[:, 1]) <= MAX_SNAP_HEIGHT)


def off_navmesh(field: str, point: np.ndarray, snapped: np.ndarray) -> str:
    """Error message for a point [3] far from `snapped` [3], its nearest point on the navmesh; empty for a near one."""
    if is_near(point[None], snapped[None])[0]:
        return ""
    found, nearest = ([round(float(v), 3) for v in p] for p in (point, snapped))
    there = f"the nearest one is {nearest}" if np.isfinite(snapped).all() else "there is none near"
    return f"field {field!r}: found {found}, expected a point on the navmesh; {there}"


def too_far(gap: np.ndarray, success_distance: float) -> np.ndarray:
    """bool [N]: heights f32 [N] of goals above the navmesh, metres, at which no stop succeeds."""
    return np.abs(gap) > success_distance + HEIGHT_TOLERANCE
