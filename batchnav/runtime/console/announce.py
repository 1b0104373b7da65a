"""Status lines."""

from __future__ import annotations

import logging
import sys

from batchnav.errors import printable

log = logging.getLogger("batchnav")


def announce(text: str) -> None:
    """Print a status line: to the `batchnav` logger if it has handlers, else to stderr."""
    if log.hasHandlers():
        log.info("%s", printable(text))
    elif log.isEnabledFor(logging.INFO) or log.level == logging.NOTSET:
        print(printable(text), file=sys.stderr, flush=True)


def number_of(count: int, noun: str) -> str:
    """A count with its noun, for example "1 scene" or "1,024 scenes"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
