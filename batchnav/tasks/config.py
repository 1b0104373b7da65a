"""`TaskConfig`, the base of all task configurations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from batchnav.config import bounded


class SuccessRule(NamedTuple):
    """When an episode counts as a success. Documentation and descriptions read it; the task's kernels apply it."""

    distance: float
    """Metres below which the agent must be from the target; geodesic, between positions on the navmesh."""
    target: str
    """Place that the distance leads to."""
    max_angle_deg: float = 180.0
    """Largest angle between the agent's heading and that of the target, degrees; 180: any heading."""
    stop: bool = True
    """True where the agent must choose the action stop there; False where being there suffices."""


@dataclass(frozen=True)
class TaskConfig:
    """Base of all task configurations. A subclass that overrides `validate` must call this one."""

    max_steps: int = bounded(500, 1, 2**31 - 1)
    """Steps after which an episode is truncated."""

    @property
    def success_rule(self) -> SuccessRule | None:
        """The rule of success; None for a task without one."""
        return None

    def validate(self) -> None:
        """ConfigError for settings that contradict each other, after the ranges of the fields are checked."""
