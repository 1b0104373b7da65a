"""Episodes as environments play them: their order, checks against the scenes, and the table for the simulator."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from batchnav.data.episodes.episode import AnyEpisode, Episode, Vector, group_by_scene
from batchnav.errors import EpisodeError, few, shortened
from batchnav.sim.positions import MAX_SNAP_DISTANCE, MAX_SNAP_HEIGHT
from batchnav.tasks.episode_sampling import EpisodeTable
from batchnav.types import FAR

if TYPE_CHECKING:
    from batchnav.scene.scene import Scene


def order_episodes(
    episodes: Sequence[Episode],
    shuffle: bool = False,
    grouped: bool = True,
    num_episode_sample: int = -1,
    rounds: int = 1,
    seed: int = 0,
) -> list[Episode]:
    """Episodes in the order of Habitat's iterator.

    Args:
        episodes: the episodes.
        shuffle: True for a random order; with `grouped`, of the scenes and of the episodes in each scene.
        grouped: True to keep the episodes of each scene together (`group_by_scene`).
        num_episode_sample: number of episodes to sample first, without replacement; -1 for all.
        rounds: number of repetitions (`cycle`), each with its own shuffle.
        seed: seed for sampling and shuffling.
    """
    if num_episode_sample > len(episodes):
        raise EpisodeError(f"num_episode_sample: found {num_episode_sample}, expected at most {len(episodes)}")
    rng = random.Random(seed)
    chosen = list(episodes) if num_episode_sample < 0 else rng.sample(list(episodes), num_episode_sample)
    ordered: list[Episode] = []
    for _ in range(rounds):
        if shuffle:
            rng.shuffle(chosen)
        ordered += [e for group in group_by_scene(chosen).values() for e in group] if grouped else chosen
    return ordered


def episode_table(episodes: Sequence[Episode], scene_names: Sequence[str], device: torch.device | str) -> EpisodeTable:
    """Episodes as tensors for the simulator.

    Args:
        episodes: at least one episode.
        scene_names: scene ids in the order of the bank's scenes.
        device: device of the tensors.

    Raises EpisodeError where an episode's scene is not in `scene_names`, or an episode has several goals.
    """
    if not episodes:
        raise EpisodeError("episodes: found none, expected at least one")
    rows = scene_rows(episodes, scene_names)
    for episode in episodes:
        if problem := _several_goals(episode):
            raise EpisodeError(f"{_name(episode)}: {problem}")

    def tensor(values, dtype):
        return torch.tensor(values, dtype=dtype, device=device)

    return EpisodeTable(
        scene=tensor(rows, torch.int32),
        start=tensor([e.start_position for e in episodes], torch.float32),
        heading=tensor([e.heading for e in episodes], torch.float32),
        goal=tensor([e.goals[0].position for e in episodes], torch.float32),
        goal_heading=tensor([e.goal_heading for e in episodes], torch.float32),
    )


def scene_rows(episodes: Sequence[Episode], scene_names: Sequence[str]) -> list[int]:
    """Row of each episode's scene in `scene_names`. EpisodeError where it is not among them."""
    index = {name: k for k, name in enumerate(scene_names)}
    for episode in episodes:
        if episode.scene_id not in index:
            raise EpisodeError(
                f"{_name(episode)}: field 'scene_id': found {shortened(episode.scene_id)}, which is not loaded, "
                f"expected one of the scenes: {few(scene_names)}"
            )
    return [index[episode.scene_id] for episode in episodes]


def check_episodes(episodes: Sequence[Episode], scenes: Mapping[str, Scene]) -> list[Episode]:
    """The episodes in the frames of their scenes, checked: start and goal are on the navmesh, and a path joins them.

    Args:
        episodes: the episodes.
        scenes: scenes by scene id.

    Raises EpisodeError for the first episode that cannot be played.
    """
    episodes = in_scene_frames(episodes, {name: scene.mesh.origin for name, scene in scenes.items()})
    for _, problem in unplayable_episodes(episodes, scenes):
        raise EpisodeError(problem)
    return episodes


def in_scene_frames(episodes: Sequence[AnyEpisode], origins: Mapping[str, Vector]) -> list[AnyEpisode]:
    """The episodes with positions in the frames of their scenes, from which loading subtracted `scene.origin`.

    On an axis with an origin, a coordinate beyond `FAR` is one of the scene's file, and the origin is subtracted; a
    smaller one is in the scene's frame already. `origins`: `scene.origin` by scene id; episodes of other scenes stay as
    they are.
    """
    return [
        episode if episode.scene_id not in origins else _shifted(episode, origins[episode.scene_id])
        for episode in episodes
    ]


def is_georeferenced(episode: Episode) -> bool:
    """True where a position is farther than `FAR` from the origin."""
    points = (episode.start_position, *(goal.position for goal in episode.goals))
    return any(abs(value) > FAR for point in points for value in point)


def _shifted(episode: AnyEpisode, origin: Vector) -> AnyEpisode:
    """The episode with `origin` subtracted from coordinates beyond `FAR`."""
    if not any(origin):
        return episode

    def near(point: Vector) -> Vector:
        x, y, z = (v - o if o and abs(v) > FAR else v for v, o in zip(point, origin, strict=True))
        return x, y, z

    goals = tuple(replace(goal, position=near(goal.position)) for goal in episode.goals)
    return replace(episode, start_position=near(episode.start_position), goals=goals)


def unplayable_episodes(episodes: Sequence[Episode], scenes: Mapping[str, Scene]) -> Iterator[tuple[Episode, str]]:
    """Episodes that cannot be played, each with the reason; arguments as in `check_episodes`."""
    for scene_id, of_scene in group_by_scene(episodes).items():
        if scene_id not in scenes:
            yield from ((e, f"{_name(e)}: field 'scene_id': found a scene that is not loaded") for e in of_scene)
            continue
        navmesh = scenes[scene_id].navmesh
        starts = np.array([e.start_position for e in of_scene], np.float32)
        goals = np.array([e.goals[0].position for e in of_scene], np.float32)
        snapped = navmesh.snap(starts), navmesh.snap(goals)
        islands = navmesh.island(snapped[0]), navmesh.island(snapped[1])
        distances = navmesh.geodesic_distance(starts, goals)
        for i, episode in enumerate(of_scene):
            problem = _several_goals(episode) or off_navmesh("start_position", starts[i], snapped[0][i])
            problem = problem or off_navmesh("goals[0].position", goals[i], snapped[1][i])
            if not problem and islands[0][i] != islands[1][i]:
                problem = f"the goal lies on island {islands[1][i]} of the navmesh, "
                problem += f"expected the start's island {islands[0][i]}"
            if not problem and not np.isfinite(distances[i]):
                problem = "found no path from start to goal"
            if problem:
                yield episode, f"{_name(episode)}: {problem}"


def _several_goals(episode: Episode) -> str:
    """Error message for an episode with several goals; empty for one goal.

    In Habitat, the goal sensor shows the first of several goals but metrics use the nearest, so agents cannot know it.
    """
    if len(episode.goals) == 1:
        return ""
    return f"field 'goals': found {len(episode.goals)}, expected 1"


def is_near(points: np.ndarray, snapped: np.ndarray) -> np.ndarray:
    """bool [N]: True where the nearest points on the navmesh f32 [N, 3] are near enough to move points f32 [N, 3]."""
    gap = snapped - points
    return (np.hypot(gap[:, 0], gap[:, 2]) <= MAX_SNAP_DISTANCE) & (np.abs(gap[:, 1]) <= MAX_SNAP_HEIGHT)


def off_navmesh(field: str, point: np.ndarray, snapped: np.ndarray) -> str:
    """Error message for a point [3] far from `snapped` [3], its nearest point on the navmesh; empty for a near one."""
    if is_near(point[None], snapped[None])[0]:
        return ""
    found, nearest = ([round(float(v), 3) for v in p] for p in (point, snapped))
    there = f"its nearest is {nearest}" if np.isfinite(snapped).all() else "which has none near this one"
    return f"field {field!r}: found {found}, expected a point on the navmesh ({there})"


def _name(episode: Episode) -> str:
    return f"episode {episode.episode_id!r} of scene {episode.scene_id!r}"
