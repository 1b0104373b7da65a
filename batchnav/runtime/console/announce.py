"""Status lines."""

from __future__ import annotations

import logging
import sys

from batchnav.errors import printable, shell_word

log = logging.getLogger("batchnav")


def announce(text: str) -> None:
    """Print a status line: to the `batchnav` logger if it has handlers, else to stderr."""
    if log.hasHandlers():
        log.info("%s", printable(text))
    elif log.isEnabledFor(logging.INFO) or log.level == logging.NOTSET:
        print(printable(text), file=sys.stderr, flush=True)


def next_command(purpose: str, *words: object) -> str:
    """A line that names a command for a next step: "To evaluate: batchnav evaluate runs/mine --report".

    Args:
        purpose: what the command does, a verb phrase.
        words: words of the command; they are quoted for a shell.
    """
    return f"To {purpose}: {' '.join(map(shell_word, words))}"


def number_of(count: int, noun: str) -> str:
    """A count with its noun, for example "1 scene" or "1,024 scenes"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
