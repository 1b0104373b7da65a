"""`batchnav train`: train a navigation agent, the occupancy predictor, or CartPole."""

from __future__ import annotations

from collections.abc import Sequence

from batchnav.cli import anticipation, cartpole
from batchnav.training import start


def command(arguments: Sequence[str]) -> None:
    """Run `batchnav train`, `batchnav train anticipation` or `batchnav train cartpole`."""
    programs = {"anticipation": anticipation.command, "cartpole": cartpole.command}
    if arguments and arguments[0] in programs:
        programs[arguments[0]](arguments[1:])
    else:
        start.start(arguments)
