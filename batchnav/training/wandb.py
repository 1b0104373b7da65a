"""A run's rows for Weights & Biases, where that is installed."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from batchnav.errors import ConfigError
from batchnav.training.curves import flat


def find_wandb() -> ModuleType:
    """The library. ConfigError where it is not installed."""
    try:
        return importlib.import_module("wandb")
    except ImportError as error:
        raise ConfigError(f"--wandb: found no such package ({error}), expected it: pip install wandb") from error


def wandb_log(folder: Path, settings: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """What sends a row ("frames" is its step). A folder is one run there too, however often it is resumed.

    ConfigError where the library is not installed. Project, entity and mode are its own environment variables.
    """
    place = folder.resolve()
    identifier = "".join(letter if letter.isalnum() else "-" for letter in str(place).strip("/"))[-120:]
    run = find_wandb().init(
        dir=str(place), id=identifier, name=place.name, resume="allow", config=settings, allow_val_change=True
    )
    return lambda row: run.log(flat(row), step=int(row["frames"]))
