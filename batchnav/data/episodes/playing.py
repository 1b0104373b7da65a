"""Episodes as environments play them: their order, checks against the scenes, and the table for the simulator."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from batchnav.data.episodes.episode import Episode, group_by_scene
from batchnav.errors import EpisodeError
from batchnav.sim.positions import MAX_SNAP_DISTANCE, MAX_SNAP_HEIGHT
from batchnav.tasks.episode_sampling import EpisodeTable

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
    """Episodes in the order in which Habitat's iterator hands them out.

    Args:
        episodes: any number of them.
        shuffle: in random order; with `grouped` the scenes, and the episodes of each.
        grouped: all episodes of a scene together (`group_by_scene`).
        num_episode_sample: so many of them, drawn without replacement first; -1 is all.
        rounds: go through them so many times (`cycle`), shuffled anew each time.
        seed: of what is random.
    """
    if num_episode_sample > len(episodes):
        raise EpisodeError(f"num_episode_sample: found {num_episode_sample}, expected at most {len(episodes)}")
    draw = random.Random(seed)
    chosen = list(episodes) if num_episode_sample < 0 else draw.sample(list(episodes), num_episode_sample)
    ordered: list[Episode] = []
    for _ in range(rounds):
        if shuffle:
            draw.shuffle(chosen)
        ordered += [e for group in group_by_scene(chosen).values() for e in group] if grouped else chosen
    return ordered


def episode_table(episodes: Sequence[Episode], scene_names: Sequence[str], device: torch.device | str) -> EpisodeTable:
    """Episodes as the simulator plays them; `scene_names[k]` is the scene id of the bank's scene k.

    EpisodeError where an episode's scene is not among the names, or it has several goals.
    """
    if not episodes:
        raise EpisodeError("episodes: found none, expected at least one")
    index = {name: k for k, name in enumerate(scene_names)}
    for episode in episodes:
        if episode.scene_id not in index:
            known = ", ".join(map(repr, list(index)[:5])) + (", ..." if len(index) > 5 else "")
            raise EpisodeError(
                f"{_name(episode)}: field 'scene_id': found a scene that is not loaded, expected one of {known}"
            )
        if problem := _several_goals(episode):
            raise EpisodeError(f"{_name(episode)}: {problem}")

    def tensor(values, dtype):
        return torch.tensor(values, dtype=dtype, device=device)

    return EpisodeTable(
        scene=tensor([index[e.scene_id] for e in episodes], torch.int32),
        start=tensor([e.start_position for e in episodes], torch.float32),
        heading=tensor([e.heading for e in episodes], torch.float32),
        goal=tensor([e.goals[0].position for e in episodes], torch.float32),
    )


def check_episodes(episodes: Sequence[Episode], scenes: Mapping[str, Scene]) -> None:
    """EpisodeError where an episode cannot be played: an end off the navmesh, a goal that no path reaches.

    Args:
        episodes: any number of them.
        scenes: by scene id.
    """
    for _, problem in unplayable_episodes(episodes, scenes):
        raise EpisodeError(problem)


def unplayable_episodes(episodes: Sequence[Episode], scenes: Mapping[str, Scene]) -> Iterator[tuple[Episode, str]]:
    """The episodes that cannot be played, and why not; arguments as of `check_episodes`."""
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
            problem = _several_goals(episode) or _off_navmesh("start_position", starts[i], snapped[0][i])
            problem = problem or _off_navmesh("goals[0].position", goals[i], snapped[1][i])
            if not problem and islands[0][i] != islands[1][i]:
                problem = f"the goal lies on island {islands[1][i]} of the navmesh, "
                problem += f"expected the start's island {islands[0][i]}"
            if not problem and not np.isfinite(distances[i]):
                problem = "found no path from start to goal"
            if problem:
                yield episode, f"{_name(episode)}: {problem}"


def _several_goals(episode: Episode) -> str:
    """What is wrong with an episode of several goals; empty where it has one.

    Habitat tells the agent where the first is and measures its distance to the nearest: no PointGoal task.
    """
    if len(episode.goals) == 1:
        return ""
    return f"field 'goals': found {len(episode.goals)}, expected 1, the point that the agent is to reach"


def _off_navmesh(field: str, point: np.ndarray, snapped: np.ndarray) -> str:
    """What is wrong with a point [3] whose nearest on the navmesh is `snapped` [3]; empty where it is on it."""
    gap = snapped - point
    if math.hypot(gap[0], gap[2]) <= MAX_SNAP_DISTANCE and abs(gap[1]) <= MAX_SNAP_HEIGHT:
        return ""
    found, nearest = ([round(float(v), 3) for v in p] for p in (point, snapped))
    return f"field {field!r}: found {found}, expected a point on the navmesh (its nearest is {nearest})"


def _name(episode: Episode) -> str:
    return f"episode {episode.episode_id!r} of scene {episode.scene_id!r}"
