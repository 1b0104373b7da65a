"""Exceptions of batchnav; values and lists of names, shortened for their messages.

Messages name the file or argument, what was found and what was expected.
"""

import reprlib
from collections.abc import Sequence
from typing import Any

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 2, 80, 80, 40


def shortened(value: Any) -> str:
    """A value as one short line for a message, for any length, depth or cycle of the value."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python refuses to print integers of more than 4,300 digits
        return f"a {type(value).__name__} that is too long to be shown"


def few(names: Sequence[str], most: int = 3, separator: str = ", ") -> str:
    """The first `most` names for a message, and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


class BatchnavError(Exception):
    """Base class of all errors that batchnav raises."""

    of_all_ranks = False
    """True if all ranks of a distributed run raise this error together, with the same message."""


class MeshError(BatchnavError):
    """A mesh or scene file that is invalid."""


class NavMeshError(BatchnavError):
    """A navmesh file that is invalid, or a mesh from which no navmesh can be baked."""


class EpisodeError(BatchnavError):
    """An episode file, or an episode in it, that is invalid."""


class CheckpointError(BatchnavError):
    """Weights, a training state or a run's folder that cannot be read or written, or a folder in use by another run."""


class DivergenceError(BatchnavError):
    """A training loss that is not finite."""

    of_all_ranks = True


class ArgumentError(BatchnavError, ValueError):
    """An argument of a public function with the wrong type, shape or range."""


class ConfigError(ArgumentError):
    """A configuration file or option that is unknown, has the wrong type or is out of range."""


class DeviceError(BatchnavError):
    """A device that is not available or lacks a feature."""
