"""PointGoal episodes in Habitat's format: gzipped JSON, one object per episode.

The schema is habitat-lab's `NavigationEpisode`: positions in metres, rotations as quaternions [x, y, z, w]. Extra keys
would stop Habitat's loader, so whatever else is known of an episode goes into its `info`.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from batchnav.errors import EpisodeError
from batchnav.sim.state import EpisodeTable

if TYPE_CHECKING:
    from batchnav.scene.scene import Scene

ROTATION_TOLERANCE = 1e-3
"""How far a quaternion may be from unit length and from pure yaw: published files carry five decimals."""

MAX_SNAP_DISTANCE = 0.1
"""Metres in the plane between an episode's end and the navmesh: a baked navmesh moves its edges by up to two cells."""
MAX_SNAP_HEIGHT = 0.5
"""Metres of height between an episode's end and the navmesh, as in Habitat's `is_navigable`."""

OTHER_TASKS = {
    "object_category": "ObjectNav",
    "object_id": "ObjectNav",
    "view_points": "ObjectNav",
    "goals_by_category": "ObjectNav",
    "goal_image_id": "InstanceImageNav",
    "instruction": "vision-and-language navigation",
    "question": "embodied question answering",
    "rigid_objs": "rearrangement",
    "target_receptacles": "rearrangement",
}
"""Keys, of the file, an episode or a goal, that no PointNav episode has, and the task they belong to."""

Vector = tuple[float, float, float]


@dataclass(frozen=True)
class Goal:
    """Where to go, and within which radius that counts (None: the task's success distance)."""

    position: Vector
    radius: float | None = None


@dataclass(frozen=True)
class Episode:
    """One PointGoal episode."""

    episode_id: str
    scene_id: str
    start_position: Vector
    start_rotation: tuple[float, float, float, float]
    """Quaternion [x, y, z, w], a rotation about +Y."""
    goals: tuple[Goal, ...]
    info: dict[str, Any] = field(default_factory=dict)
    """Whatever else is known: `geodesic_distance` in metres, `difficulty` ..."""

    @property
    def heading(self) -> float:
        """Start heading in radians: 0 looks along -Z, growing to the left."""
        return heading_of(self.start_rotation)


def heading_of(rotation: Sequence[float]) -> float:
    """Heading in (-pi, pi] of a rotation about +Y given as a quaternion [x, y, z, w]; q and -q are one rotation."""
    _, y, _, w = rotation
    return 2.0 * math.atan2(y, w) if w > 0.0 or (w == 0.0 and y > 0.0) else 2.0 * math.atan2(-y, -w)


def rotation_of(heading: float) -> tuple[float, float, float, float]:
    """The quaternion [x, y, z, w] of a heading in radians: [0, sin(h / 2), 0, cos(h / 2)]."""
    return 0.0, math.sin(heading / 2.0), 0.0, math.cos(heading / 2.0)


def load_episodes(path: str | Path) -> list[Episode]:
    """Read a `.json.gz` file of PointNav episodes.

    Raises EpisodeError, naming file, episode and field: not gzip or JSON, cut short, a field that is missing, not
    finite or of the wrong length, a rotation that is not a unit quaternion about +Y, no goals, another task's episodes.
    """
    data = _read(Path(path))
    if not isinstance(data, dict) or not isinstance(data.get("episodes"), list):
        raise EpisodeError(f"{path}: found no list 'episodes', expected an episode file in Habitat's format")
    _refuse_other_tasks(data, f"{path}")
    if not data["episodes"]:
        raise EpisodeError(
            f"{path}: found no episodes, expected at least one "
            "(where the split keeps them in a folder 'content', load one of the files in there)"
        )
    return [_episode(item, f"{path}: episode {i}") for i, item in enumerate(data["episodes"])]


def save_episodes(episodes: Sequence[Episode], path: str | Path) -> None:
    """Write episodes as Habitat reads them: the same bytes for the same episodes, and the whole file or none."""
    path = Path(path)
    try:
        text = json.dumps({"episodes": [_plain(e) for e in episodes]}, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise EpisodeError(f"{path}: cannot be written: an episode holds what JSON cannot ({error})") from error
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
        os.replace(part, path)
    except OSError as error:
        raise EpisodeError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


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
        if len(episode.goals) != 1:
            raise EpisodeError(f"{_name(episode)}: field 'goals': found {len(episode.goals)}, expected 1")

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
    for scene_id in dict.fromkeys(e.scene_id for e in episodes):
        of_scene = [e for e in episodes if e.scene_id == scene_id]
        if scene_id not in scenes:
            raise EpisodeError(f"{_name(of_scene[0])}: field 'scene_id': found a scene that is not loaded")
        navmesh = scenes[scene_id].navmesh
        starts = np.array([e.start_position for e in of_scene], np.float32)
        goals = np.array([e.goals[0].position for e in of_scene], np.float32)
        for what, points in (("start_position", starts), ("goals[0].position", goals)):
            for episode, point, snapped in zip(of_scene, points, navmesh.snap(points), strict=True):
                gap = snapped - point
                if not (math.hypot(gap[0], gap[2]) <= MAX_SNAP_DISTANCE and abs(gap[1]) <= MAX_SNAP_HEIGHT):
                    raise EpisodeError(
                        f"{_name(episode)}: field {what!r}: found {[round(float(v), 3) for v in point]}, "
                        f"expected a point on the navmesh (its nearest is {[round(float(v), 3) for v in snapped]})"
                    )
        start_islands, goal_islands = navmesh.island(navmesh.snap(starts)), navmesh.island(navmesh.snap(goals))
        distances = navmesh.geodesic_distance(starts, goals)
        rows = zip(of_scene, start_islands, goal_islands, distances, strict=True)
        for episode, start_island, goal_island, distance in rows:
            if start_island != goal_island:
                raise EpisodeError(
                    f"{_name(episode)}: the goal lies on island {goal_island} of the navmesh, "
                    f"expected the start's island {start_island}"
                )
            if not np.isfinite(distance):
                raise EpisodeError(f"{_name(episode)}: found no path from start to goal")


def _read(path: Path) -> Any:
    """The JSON value of a gzip file, or EpisodeError."""
    try:
        packed = path.read_bytes()
    except OSError as error:
        raise EpisodeError(f"{path}: cannot be read ({error.strerror or error})") from error
    if packed[:2] != b"\x1f\x8b":
        found = "an empty file" if not packed else "no gzip header"
        raise EpisodeError(f"{path}: found {found}, expected gzipped JSON (.json.gz)")
    try:
        text = gzip.decompress(packed).decode("utf-8")
    except EOFError as error:
        raise EpisodeError(f"{path}: is cut short: the gzip stream ends too early") from error
    except (OSError, ValueError, zlib.error) as error:
        raise EpisodeError(f"{path}: is damaged ({error}), expected gzipped JSON") from error
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise EpisodeError(f"{path}: does not hold JSON ({error})") from error


def _episode(data: Any, where: str) -> Episode:
    """One episode from its JSON value; `where` begins the error messages."""
    if not isinstance(data, dict):
        raise EpisodeError(f"{where}: found {type(data).__name__}, expected an object")
    names = {}
    for name in ("episode_id", "scene_id"):
        value = data.get(name)
        # Some published files number their episodes with integers.
        if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
            raise EpisodeError(f"{where}: field {name!r}: found {_short(value)}, expected a name")
        names[name] = str(value)
    where = f"{where} (id {names['episode_id']!r}, scene {names['scene_id']!r})"
    _refuse_other_tasks(data, where)
    goals = data.get("goals")
    if not isinstance(goals, list) or not goals:
        raise EpisodeError(f"{where}: field 'goals': found {_short(goals)}, expected a list of at least one goal")
    info = data.get("info")
    if info is not None and not isinstance(info, dict):
        raise EpisodeError(f"{where}: field 'info': found {_short(info)}, expected an object")
    return Episode(
        **names,
        start_position=_numbers(data, "start_position", 3, where),
        start_rotation=_rotation(data, where),
        goals=tuple(_goal(goal, f"{where}: field 'goals[{i}]'") for i, goal in enumerate(goals)),
        info=info or {},
    )


def _goal(data: Any, where: str) -> Goal:
    if not isinstance(data, dict):
        raise EpisodeError(f"{where}: found {_short(data)}, expected an object")
    _refuse_other_tasks(data, where)
    radius = data.get("radius")
    if radius is not None and not (_is_number(radius) and radius > 0):
        raise EpisodeError(f"{where}: field 'radius': found {_short(radius)}, expected metres > 0, or null")
    return Goal(_numbers(data, "position", 3, where), None if radius is None else float(radius))


def _rotation(data: dict, where: str) -> tuple:
    """A unit quaternion about +Y."""
    rotation = _numbers(data, "start_rotation", 4, where)
    x, _, z, _ = rotation
    length = math.sqrt(sum(v * v for v in rotation))
    if abs(length - 1.0) > ROTATION_TOLERANCE:
        raise EpisodeError(
            f"{where}: field 'start_rotation': found a quaternion of length {length:.4g}, expected a unit quaternion"
        )
    if math.hypot(x, z) > ROTATION_TOLERANCE:
        raise EpisodeError(
            f"{where}: field 'start_rotation': found {list(rotation)}, "
            "expected [x, y, z, w] of a turn about +Y (x = z = 0)"
        )
    return rotation


def _numbers(data: dict, name: str, length: int, where: str) -> tuple:
    """A list of so many finite numbers, as floats."""
    value = data.get(name)
    if not isinstance(value, list) or len(value) != length or not all(map(_is_number, value)):
        found = "nothing" if name not in data else _short(value)
        raise EpisodeError(f"{where}: field {name!r}: found {found}, expected {length} finite numbers")
    return tuple(float(v) for v in value)


def _is_number(value: Any) -> bool:
    """A number that float32 can hold."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= 3e38


def _refuse_other_tasks(data: dict, where: str) -> None:
    for key, task in OTHER_TASKS.items():
        if key in data:
            raise EpisodeError(f"{where}: field {key!r}: found episodes of {task}, expected PointNav episodes")


def _plain(episode: Episode) -> dict:
    """An episode as JSON values, with every key that Habitat's own generator writes."""
    return {
        "episode_id": episode.episode_id,
        "scene_id": episode.scene_id,
        "scene_dataset_config": "default",
        "additional_obj_config_paths": [],
        "start_position": list(episode.start_position),
        "start_rotation": list(episode.start_rotation),
        "info": episode.info,
        "goals": [{"position": list(g.position), "radius": g.radius} for g in episode.goals],
        "start_room": None,
        "shortest_paths": None,
    }


def _name(episode: Episode) -> str:
    return f"episode {episode.episode_id!r} of scene {episode.scene_id!r}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
