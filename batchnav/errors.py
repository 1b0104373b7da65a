"""Errors that batchnav raises: each names the file or argument, what was found, and what was expected."""

import reprlib
from typing import Any

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 2, 80, 80, 40


def shortened(value: Any) -> str:
    """A value as one short line for a message, for any length, depth or cycle of the value."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python writes no number of more than 4,300 digits
        return f"a {type(value).__name__} that is too long to be shown"


class BatchnavError(Exception):
    """Base of every error that batchnav raises on purpose."""

    of_all_ranks = False
    """Where several processes train together: whether all of them raise it at once, each with the same words."""


class MeshError(BatchnavError):
    """A mesh or scene file that cannot be used."""


class NavMeshError(BatchnavError):
    """A navmesh file that cannot be read, or a mesh from which none can be made."""


class EpisodeError(BatchnavError):
    """An episode file, or an episode in it, that cannot be used."""


class CheckpointError(BatchnavError):
    """Weights or a resume state that cannot be loaded."""


class DivergenceError(BatchnavError):
    """Training whose loss is no longer finite."""

    of_all_ranks = True


class ArgumentError(BatchnavError, ValueError):
    """An argument of a public function with the wrong type, shape or range."""


class ConfigError(ArgumentError):
    """A configuration file or option that is unknown, of the wrong type, or out of range."""


class DeviceError(BatchnavError):
    """A device that was asked for and is not there, or lacks something."""
