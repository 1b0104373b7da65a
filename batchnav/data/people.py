"""People of episodes: Social-HM3D's and Social-MP3D's fields in an episode's `info`.

human_num                       number of people
human_0_waypoint_1_position     where person 0 walks to first, then `waypoint_2`; the person then stands
human_0_waypoint_0_position     where it starts, or `human_0_start_position`; without either, at the first waypoint
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence
from typing import Any

from batchnav.data.episodes import Episode, episode_table
from batchnav.data.files import is_number
from batchnav.data.goals.point import shortest_floats
from batchnav.errors import EpisodeError, shortened
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene
from batchnav.sim.bodies import BodyConfig
from batchnav.sim.simulator import Simulator
from batchnav.tasks.pointnav import PointNav, PointNavConfig
from batchnav.types import MAX_BODIES
from batchnav.world.config import WorldConfig
from batchnav.world.people import WAYPOINTS
from batchnav.world.world import Walker, World

COUNT = "human_num"
"""Key of the number of people; an episode without it does not state its people."""
_STARTS = ("human_{}_start_position", "human_{}_waypoint_0_position")
_WAYPOINT = "human_{}_waypoint_{}_position"


def people_in(episode: Episode) -> tuple[Walker, ...] | None:
    """The people of an episode; None where it does not state them. EpisodeError for fields that are no people."""
    if COUNT not in episode.info:
        return None
    count = episode.info[COUNT]
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MAX_BODIES:
        raise EpisodeError(
            f"{episode.label}: field 'info.{COUNT}': found {shortened(count)}, expected 0 to {MAX_BODIES} people"
        )
    return tuple(_person(episode, k) for k in range(count))


def _person(episode: Episode, k: int) -> Walker:
    """Person k of an episode."""
    names = [_WAYPOINT.format(k, w + 1) for w in range(WAYPOINTS)]
    waypoints = tuple(_point(episode, name) for name in names if name in episode.info)
    if not waypoints:
        raise EpisodeError(f"{episode.label}: field 'info': found no {names[0]!r}, expected a waypoint of each person")
    start = next((name.format(k) for name in _STARTS if name.format(k) in episode.info), None)
    return Walker(waypoints[0] if start is None else _point(episode, start), waypoints)


def _point(episode: Episode, name: str) -> tuple[float, float, float]:
    value = episode.info[name]
    if not isinstance(value, (list, tuple)) or len(value) != 3 or not all(map(is_number, value)):
        raise EpisodeError(f"{episode.label}: field 'info.{name}': found {shortened(value)}, expected three numbers")
    x, y, z = map(float, value)
    return x, y, z


def with_people(
    episodes: Sequence[Episode], scene: Scene, config: WorldConfig, body: BodyConfig | None = None, seed: int = 0
) -> list[Episode]:
    """Episodes of one scene with people that are drawn as an environment draws them: starts and two waypoints.

    Args:
        episodes: PointNav episodes.
        scene: their scene.
        config: number and size of the people.
        body: the robot's size; None: the default.
        seed: seed of the people, who differ from scene to scene.
    """
    body, bank = body or BodyConfig(), SceneBank.pack([scene], "cpu")
    table = episode_table(episodes, [scene.name], "cpu")
    sim = Simulator(
        bank, len(episodes), body, lambda sim: PointNav(sim, PointNavConfig(), table),
        seed + zlib.crc32(scene.name.encode("utf-8", "surrogatepass")),
        make_world=lambda sim: World(bank, sim.bodies, sim.sampling, body, config),
    )  # fmt: skip
    sim.reset()
    bodies, walk = sim.world.bodies, sim.world.walk
    return [
        dataclasses.replace(
            episode, info=episode.info | _fields(bodies.position[row, :count], walk.waypoint[row, :count])
        )
        for row, (episode, count) in enumerate(zip(episodes, bodies.count.tolist(), strict=True))
    ]


def _fields(starts: Any, waypoints: Any) -> dict[str, Any]:
    """Fields of an episode's `info` for people with starts f32 [P, 3] and waypoints f32 [P, WAYPOINTS, 3]."""
    found: dict[str, Any] = {COUNT: len(starts)}
    for k in range(len(starts)):
        found[_STARTS[0].format(k)] = list(shortest_floats(starts[k]))
        for w in range(WAYPOINTS):
            found[_WAYPOINT.format(k, w + 1)] = list(shortest_floats(waypoints[k, w]))
    return found
