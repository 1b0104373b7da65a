"""`batchnav train ...`: a navigation agent, or CartPole."""

from __future__ import annotations

from collections.abc import Sequence

from batchnav.cli import cartpole
from batchnav.training import start


def command(arguments: Sequence[str]) -> None:
    """`batchnav train`, `batchnav train cartpole`."""
    if arguments[:1] == ["cartpole"]:
        cartpole.command(arguments[1:])
    else:
        start.start(arguments)
