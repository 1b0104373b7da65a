"""Configuration of an environment's world: who is in it besides one robot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from batchnav.config import bounded, shortened
from batchnav.errors import ConfigError
from batchnav.types import MAX_BODIES


@dataclass(frozen=True)
class WorldConfig:
    """People and robots of a world. Defaults: one robot alone; sizes and speeds of people as in Social-HM3D."""

    people: tuple[int, ...] = bounded((0, 0), 0, MAX_BODIES)
    """Smallest and largest number of people of an episode, drawn uniformly; fixed episodes with people have their
    own number. (0, 0): none."""
    agents_per_world: int = bounded(1, 1, 64)
    """Number of robots that share a world. They see and block each other; each has a goal of its own."""
    person_radius: float = bounded(0.3, 0.05, 1.0)
    """Radius of a person, metres."""
    person_height: float = bounded(1.7, 0.5, 2.5)
    """Height of a person, metres."""
    person_speed: tuple[float, ...] = bounded((0.8, 1.2), 0.0, 5.0)
    """Lowest and highest speed of a person, m/s. Each person has a speed of its own."""
    reacts_to_robot: float = bounded(0.0, 0.0, 1.0)
    """Share of the avoidance of a robot that people take on. 0: they walk as if no robot were there."""
    at_last_waypoint: Literal["stand", "turn_back", "new_goals"] = "new_goals"
    """What a person does at the second of its two waypoints: stand, go back and forth between the two, or walk to new
    ones."""
    slide_along_people: bool = False
    """Slide along people. False: they stop a robot that touches them."""
    step_time: float = bounded(0.25, 0.01, 5.0)
    """Duration of a step of discrete actions, seconds: 1 m/s with forward steps of 0.25 m. A step of velocity control
    has its own duration, `velocity.time_step`."""

    def validate(self) -> None:
        """ConfigError where a range is not one."""
        for name in ("people", "person_speed"):
            _check_pair(name, getattr(self, name))

    @property
    def is_empty(self) -> bool:
        """True for one robot alone."""
        return not self.people[1] and self.agents_per_world == 1


def _check_pair(name: str, value: Any) -> None:
    if len(value) != 2 or not value[0] <= value[1]:
        raise ConfigError(f"{name}: found {shortened(list(value))}, expected the smallest and the largest value")
