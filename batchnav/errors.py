"""Exceptions of batchnav; values and lists of names, shortened for their messages.

Messages name the file or argument, what was found and what was expected.
"""

import os
import reprlib
import shlex
from collections.abc import Sequence
from typing import Any


class _Repr(reprlib.Repr):
    """Short representations, the same in every version of Python: those of long integers differ."""

    def repr_int(self, x: int, level: int) -> str:
        try:
            repr(x)
        except ValueError:  # Python refuses to print integers of more than 4,300 digits
            return "an int that is too long to be shown"
        return super().repr_int(x, level)


_SHORT = _Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 2, 80, 80, 40


def shortened(value: Any) -> str:
    """A value as one short line for a message, for any length, depth or cycle of the value."""
    return _SHORT.repr(value)


def few(names: Sequence[str], most: int = 3, separator: str = ", ") -> str:
    """The first `most` names for a message, and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


def printable(text: str) -> str:
    """Text as one line for a terminal or a log: line breaks and other control characters appear escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shell_word(value: Any) -> str:
    """A path or another value as one printable word of a command line for a POSIX shell.

    Names with control characters, or that are not UTF-8, are written as $'...', which bash, zsh and ksh read.
    """
    text = str(value)
    if text.isprintable():
        return shlex.quote(text)
    plain = (chr(b) if 32 <= b < 127 and b not in b"\\'" else f"\\x{b:02x}" for b in os.fsencode(text))
    return f"$'{''.join(plain)}'"


class BatchnavError(Exception):
    """Base class of all errors that batchnav raises. The message is one line."""

    def __str__(self) -> str:
        return printable(super().__str__())

    of_all_ranks = False
    """True if all ranks of a distributed run raise this error together, with the same message."""


class MeshError(BatchnavError):
    """A mesh or scene file that is invalid."""


class NavMeshError(BatchnavError):
    """A navmesh file that is invalid, or a mesh from which no navmesh can be baked."""


class EpisodeError(BatchnavError):
    """An episode file, or an episode in it, that is invalid."""


class NoEpisodesError(EpisodeError):
    """Scenes in which no episode of the task can be sampled: `scenes`, their names."""

    def __init__(self, message: str, scenes: Sequence[str]):
        super().__init__(message)
        self.scenes = tuple(scenes)


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


class MissingPackageError(BatchnavError, ImportError):
    """An optional package that is not installed or is too old; the message has a pip command."""
