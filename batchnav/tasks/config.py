"""What the settings of every task have in common."""

from __future__ import annotations

from dataclasses import dataclass

from batchnav.config import in_range


@dataclass(frozen=True)
class TaskConfig:
    """The settings of a task. A task's own are a subclass of this; `validate` is to call the one here."""

    max_steps: int = 500
    """Then an episode is truncated."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        in_range(self, "max_steps", 1, 2**31 - 1)
