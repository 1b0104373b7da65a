"""`TaskConfig`, the base of all task configurations."""

from __future__ import annotations

from dataclasses import dataclass

from batchnav.config import bounded


@dataclass(frozen=True)
class TaskConfig:
    """Base of all task configurations. A subclass that overrides `validate` must call this one."""

    max_steps: int = bounded(500, 1, 2**31 - 1)
    """Steps after which an episode is truncated."""

    def validate(self) -> None:
        """ConfigError for settings that contradict each other, after the ranges of the fields are checked."""
