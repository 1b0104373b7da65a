"""Logging of a run's rows to Weights & Biases (optional package `wandb`)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from batchnav.errors import ConfigError
from batchnav.training.curves import flat


def find_wandb() -> ModuleType:
    """The module `wandb`. ConfigError if it is not installed."""
    try:
        return importlib.import_module("wandb")
    except ImportError as error:
        raise ConfigError(f"--wandb: package wandb not found ({error}); install it: pip install wandb") from error


def wandb_log(folder: Path, settings: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """A function that sends a row; its "frames" is the step. When training resumes in a folder, its W&B run continues.

    W&B reads project, entity and mode from its own environment variables.

    Args:
        folder: the run's folder.
        settings: the run's configuration as nested dicts.

    Raises:
        ConfigError: `wandb` is not installed.
    """
    path = folder.resolve()
    identifier = "".join(letter if letter.isalnum() else "-" for letter in str(path).strip("/"))[-120:]
    run = find_wandb().init(
        dir=str(path), id=identifier, name=path.name, resume="allow", config=settings, allow_val_change=True
    )
    return lambda row: run.log(flat(row), step=int(row["frames"]))
