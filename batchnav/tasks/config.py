"""`TaskConfig`, the base of all task configurations."""

from __future__ import annotations

from dataclasses import dataclass

from batchnav.config import in_range


@dataclass(frozen=True)
class TaskConfig:
    """Base of all task configurations. A subclass that overrides `validate` must call this one."""

    max_steps: int = 500
    """Steps after which an episode is truncated."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        in_range(self, "max_steps", 1, 2**31 - 1)
