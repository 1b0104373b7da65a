"""`batchnav train`: train a navigation agent, the occupancy predictor, or CartPole."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence

import tyro

from batchnav.cli import anticipation, cartpole
from batchnav.runtime.files.bundled import CONFIGS
from batchnav.training.options import Options

ALL_OPTIONS = "--help-all"
"""Option that lists the fields of the configuration too, which imports PyTorch."""
PROGRAMS = {"anticipation": anticipation.command, "cartpole": cartpole.command}
"""Further programs by name."""


def command(arguments: Sequence[str]) -> None:
    """Run `batchnav train`, `batchnav train anticipation` or `batchnav train cartpole`."""
    if arguments and arguments[0] in PROGRAMS:
        PROGRAMS[arguments[0]](arguments[1:])
    elif not {"-h", "--help"}.isdisjoint(arguments):
        print_help()
    else:
        from batchnav.training import start  # imports PyTorch, which `--help` does not need

        start.start(["--help" if word == ALL_OPTIONS else word for word in arguments])


def print_help() -> None:
    """Print the options that are not fields of the configuration, and the bundled configurations."""
    text = (
        f"{inspect.getdoc(Options)}\n\nEvery field of the configuration is an option too, such as --ppo.total-frames. "
        f"`batchnav train {ALL_OPTIONS}` lists them with their defaults."
    )
    try:
        tyro.cli(Options, prog="batchnav train", description=text, args=["--help"])
    finally:  # tyro exits after the help
        lines = (f"  {name}\n      {about}" for name, about in configurations().items())
        print("\n".join(["configurations (--config):", *lines]))
        sys.stdout.flush()


def configurations() -> dict[str, str]:
    """Descriptions of the bundled configurations of navigation by name: the first sentence of each file."""
    found = {}
    for path in sorted(CONFIGS.glob("*.yaml")):
        if path.stem.startswith("cartpole"):
            continue
        comment = []
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                break
            comment.append(line.lstrip("# "))
        found[path.stem] = " ".join(comment).partition(". ")[0].rstrip(".") + "."
    return found
