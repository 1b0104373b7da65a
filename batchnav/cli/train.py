"""`batchnav train`: train a navigation agent or CartPole."""

from __future__ import annotations

from collections.abc import Sequence

from batchnav.cli import cartpole
from batchnav.training import start


def command(arguments: Sequence[str]) -> None:
    """Run `batchnav train` or `batchnav train cartpole`."""
    if arguments[:1] == ["cartpole"]:
        cartpole.command(arguments[1:])
    else:
        start.start(arguments)
