"""`batchnav train`: train a navigation agent, the occupancy predictor, or CartPole."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from dataclasses import make_dataclass
from typing import Annotated, Any

import tyro

from batchnav.cli import anticipation, cartpole
from batchnav.runtime.bundled import CONFIGS
from batchnav.runtime.command_line import parse_options
from batchnav.training.options import Options

COMMON = {
    "device": ("STR", 'Device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one.'),
    "seed": ("INT", "Seed of initial weights, episodes and action sampling."),
    "init_from": ("STR", "Initial weights: a policy file, a run's folder, or the name of a bundled policy."),
    "processes": ("INT", "Number of CPU training processes that share the environments."),
    "eval_every": ("INT", "Interval between evaluations on the validation episodes, frames. 0: no evaluation."),
    "scenes.houses": ("INT", "Number of procedural houses."),
    "scenes.sources": ("[STR [STR ...]]", 'Further scenes: mesh files, folders, scene ids such as "hall:0-255".'),
    "scenes.episodes": ("STR", "Episode file (`.json.gz`) to train on; its scenes replace all others."),
    "env.sensors": ("[STR [STR ...]]", "Observations by name, such as depth, rgb, semantic, waypoint, gps, compass."),
    "ppo.total_frames": ("INT", "Length of the run, environment steps of all processes."),
    "ppo.num_envs": ("INT", "Number of environments."),
    "ppo.learning_rate": (
        "FLOAT",
        "Base learning rate, multiplied by sqrt(minibatch frames / 256) if that is above 1.",
    ),
}
"""Placeholder and short help of the fields of the configuration that `--help` lists, those that most runs change. They
stand here since the configuration's modules take seconds to import."""
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
    """Print the common options and the bundled configurations."""
    text = (
        f"{inspect.getdoc(Options)}\n\nEvery field of the configuration is an option. `batchnav train {ALL_OPTIONS}` "
        "lists all of them, with the values of the configuration that --config names."
    )
    fields: list[tuple[str, Any, str]] = []
    for path, (placeholder, about) in COMMON.items():
        argument = tyro.conf.arg(name=path.replace("_", "-"), help=about, help_behavior_hint="", metavar=placeholder)
        fields.append((path.replace(".", "_"), Annotated[str, argument], ""))
    kind = make_dataclass("CommonOptions", fields, bases=(Options,), kw_only=True, frozen=True)
    try:
        parse_options(kind, "batchnav train", ["--help"], text)
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
