"""`batchnav train`: train a navigation agent, a colour encoder, a detector, the occupancy predictor, or CartPole."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from batchnav.config import bounded
from batchnav.errors import ArgumentError, printable
from batchnav.runtime.bundled import CONFIGS, find_config
from batchnav.runtime.command_line import parse_options
from batchnav.runtime.console import new_run, next_command
from batchnav.runtime.files import check_writable
from batchnav.runtime.garbage_collection import collection_paused
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


@dataclass(frozen=True)
class CartPoleOptions:
    """Train CartPole until the mean return of 100 new episodes is 475.

        batchnav train cartpole                             # a few seconds on a CPU
        batchnav train cartpole --config cartpole_h200      # 65,536 environments on a GPU
        batchnav train cartpole --backend torch             # the environment in PyTorch operations

    --out receives policy.safetensors, curve.csv and curve.png. The exit status is 1 if the run ends with a lower
    return.
    """

    config: str = "cartpole_cpu"
    """Configuration: a YAML file, or a bundled name, cartpole_cpu or cartpole_h200."""
    backend: Literal["kernels", "torch"] = "kernels"
    """Implementation of the environment: compiled kernels, on the CPU or on CUDA, or PyTorch operations."""
    out: Path = Path("runs/cartpole")
    """Folder for the policy and its learning curve; a former run's are replaced."""


def train_cartpole(arguments: Sequence[str]) -> None:
    """`batchnav train cartpole`."""
    options = parse_options(CartPoleOptions, "batchnav train cartpole", arguments, inspect.getdoc(CartPoleOptions))
    from batchnav.cartpole.program import is_solved  # imports PyTorch, which `--help` does not need

    check_writable(options.out, ArgumentError)
    solved = is_solved(options.config, options.backend, options.out)
    print(f"policy and learning curve: {options.out}")
    if not solved:
        sys.exit(
            f"error: {printable(options.config)}: CartPole is not solved; increase ppo.total_frames or change seed"
        )
    print(next_command("train a navigation agent", "batchnav", "train", *new_run()))


@dataclass(frozen=True)
class AnticipationOptions:
    """Train the occupancy predictor: weights that predict the costs of unexplored cells, for `map.anticipation`.

        batchnav train anticipation --out runs/mine.safetensors
        batchnav train anticipation --out runs/mine.safetensors --scenes my/scans house:0-1023
        batchnav train anticipation --out runs/mine.safetensors --scenes my/scans --init-from occupancy --steps 0
        batchnav train --config pointnav_waypoint_h200 --env.map.anticipation runs/mine.safetensors --out runs/mine

    The command records maps of the map planner in the scenes. Training has two phases:

    1. Cells: the network learns the odds that an unknown cell is blocked.
    2. Paths: the odds are traversal costs. The path from each frontier cell to the goal should have its true length,
       and the frontier cell with the shortest path should be the best choice.

    Every tenth scene is held out. Tables show losses and path errors on its maps, unrotated and rotated by 30 degrees.
    """

    out: Path
    """Weights file to write, .safetensors."""
    scenes: tuple[str, ...] = ("house:0-511",)
    """Scene ids, ranges such as house:0-511, and folders, as `batchnav.load_scenes` takes them."""
    maps: int = bounded(20_000, 2, 2**31 - 1)
    """Number of maps to record; each takes 37 KB."""
    num_envs: int = bounded(256, 1, 2**31 - 1)
    """Number of environments while recording."""
    steps: int = bounded(3000, 0, 2**31 - 1)
    """Number of training steps on cells; 0: none."""
    path_steps: int = bounded(1500, 0, 2**31 - 1)
    """Number of training steps on paths, after those on cells; 0: none."""
    batch: int = bounded(32, 2, 2**31 - 1)
    """Number of maps in a training step."""
    learning_rate: float = bounded(3e-3, 0.0, 1.0)
    """Peak learning rate of AdamW on cells, which falls linearly to 0. The rate on paths is a tenth of it."""
    init_from: str = ""
    """Initial weights: a file that this command wrote, or "occupancy", the bundled weights. The recorded map planner
    uses them too. "": random weights; the map planner counts unknown cells as free."""
    seed: int = bounded(0, 0, 2**48)
    """Seed of episodes, recorded steps, initial weights and batches."""
    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one."""


def train_anticipation(arguments: Sequence[str]) -> None:
    """`batchnav train anticipation`."""
    options = parse_options(
        AnticipationOptions, "batchnav train anticipation", arguments, inspect.getdoc(AnticipationOptions)
    )
    from batchnav.cli.predictor import main  # imports PyTorch, which `--help` does not need

    main(options)


@dataclass(frozen=True)
class EncoderOptions:
    """Train a colour encoder on renders: weights that the encoder of an RGB agent can start from.

        batchnav train encoder --out runs/eyes.safetensors
        batchnav train encoder --out runs/eyes.safetensors --scenes house:0-255 my/scans

    The network predicts depth, normals and semantic categories of each view, and embeddings that tell which views are
    of one place. A table shows its errors on held-out scenes, every tenth one. A card with them is written beside the
    weights. The command ends with one that trains an agent.
    """

    out: Path
    """Weights file to write, .safetensors; the card has the same name with .md."""
    scenes: tuple[str, ...] = (
        "house:0-255", "house:256-319?kinds=more", "hall:0-63", "building:0-15", "block:0-15", "scan:0-63",
    )  # fmt: skip
    """Scene ids, ranges such as house:0-511, and folders, as `batchnav.load_scenes` takes them; ten or more scenes."""
    steps: int = bounded(5000, 0, 2**31 - 1)
    """Number of training steps; 0: measure only."""
    pairs: int = bounded(512, 2, 2**20)
    """Number of pairs of views in a training step."""
    image_size: int = bounded(64, 16, 1024)
    """Rows and columns of an image, pixels; a multiple of 4."""
    base_width: int = bounded(24, 2, 128)
    """Base width of the encoder `se_resnet9`."""
    learning_rate: float = bounded(2e-3, 0.0, 1.0)
    """Peak learning rate of AdamW, which rises over 200 steps and falls as a cosine to 0."""
    eval_batches: int = bounded(8, 1, 2**20)
    """Number of batches of views that are measured in each family of held-out scenes."""
    init_from: str = ""
    """Initial weights: a file that this command wrote in scenes with the same categories, or the name of a bundled one.
    "": random weights."""
    seed: int = bounded(0, 0, 2**48)
    """Seed of views and initial weights."""
    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one."""


def train_encoder(arguments: Sequence[str]) -> None:
    """`batchnav train encoder`."""
    options = parse_options(EncoderOptions, "batchnav train encoder", arguments, inspect.getdoc(EncoderOptions))
    from batchnav.cli.encoder import main  # imports PyTorch, which `--help` does not need

    main(options)


@dataclass(frozen=True)
class DetectorOptions:
    """Train an object detector on renders: weights that make goal masks from colour and depth.

        batchnav train detector --out runs/objects.safetensors
        batchnav train detector --out runs/objects.safetensors --scenes house:0-255 "house:256-511?furniture=my/models"
        batchnav train detector --out runs/again.safetensors --init-from runs/objects.safetensors --steps 0 --scenes my

    The network labels each pixel with a category of ObjectNav, or none. A table shows precision and recall of its masks
    on held-out scenes, every tenth one. A card with them is written beside the weights. The command ends with one that
    evaluates an agent with it.
    """

    out: Path
    """Weights file to write, .safetensors; the card has the same name with .md."""
    scenes: tuple[str, ...] = (
        "house:0-255", "house:256-511?kinds=more", "hall:0-63", "building:0-15", "block:0-15", "scan:0-63",
    )  # fmt: skip
    """Scene ids, ranges such as house:0-511, and folders, as `batchnav.load_scenes` takes them; ten or more scenes."""
    labels: str = "hm3d"
    """Categories: a label map by name, such as hm3d, mp3d or hssd."""
    steps: int = bounded(5000, 0, 2**31 - 1)
    """Number of training steps; 0: measure only, in all scenes."""
    views: int = bounded(1024, 2, 2**20)
    """Number of views in a training step."""
    image_size: int = bounded(128, 32, 1024)
    """Rows and columns of an image, pixels, a multiple of 32; masks have half as many."""
    learning_rate: float = bounded(2e-3, 0.0, 1.0)
    """Peak learning rate of AdamW, which rises over 200 steps and falls as a cosine to 0."""
    eval_batches: int = bounded(8, 1, 2**20)
    """Number of batches of views that are measured in each family of held-out scenes."""
    init_from: str = ""
    """Initial weights: a file that this command wrote for the same categories, or the name of a bundled one. "": random
    weights."""
    seed: int = bounded(0, 0, 2**48)
    """Seed of views and initial weights."""
    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one."""


def train_detector(arguments: Sequence[str]) -> None:
    """`batchnav train detector`."""
    options = parse_options(DetectorOptions, "batchnav train detector", arguments, inspect.getdoc(DetectorOptions))
    from batchnav.cli.detector import main  # imports PyTorch, which `--help` does not need

    main(options)


PROGRAMS = {
    "anticipation": train_anticipation,
    "cartpole": train_cartpole,
    "detector": train_detector,
    "encoder": train_encoder,
}
"""Further programs by name."""


def command(arguments: Sequence[str]) -> None:
    """Run `batchnav train`, or one of PROGRAMS after it."""
    if arguments and arguments[0] in PROGRAMS:
        PROGRAMS[arguments[0]](arguments[1:])
    elif not {"-h", "--help"}.isdisjoint(arguments):
        print_help()
    else:
        for name in filter(None, _given(arguments, "--config")):
            find_config(name)  # raises for an unknown name, before imports that take seconds
        with _processes_for_scenes(arguments):
            with collection_paused():
                from batchnav.training import start  # imports PyTorch, which `--help` does not need

            start.start(["--help" if word == ALL_OPTIONS else word for word in arguments])


def _processes_for_scenes(arguments: Sequence[str]) -> contextlib.AbstractContextManager[None]:
    """Context that starts processes for procedural scenes where the cache has none and one process trains."""
    others = {"--gpus", "--max-restarts", "--scenes.episodes", ALL_OPTIONS}
    if "WORLD_SIZE" in os.environ or not others.isdisjoint(word.partition("=")[0] for word in arguments):
        return contextlib.nullcontext()
    from batchnav.runtime.cache import cache_folder  # imports numba, as the next one
    from batchnav.runtime.parallel import processes_ahead

    cached = any(cache_folder().glob("houses/*/*"))
    return contextlib.nullcontext() if cached else processes_ahead("batchnav.data.scenes.load")


def _given(arguments: Sequence[str], option: str) -> list[str]:
    """Values of an option among arguments that are not parsed yet."""
    after = [value for word, value in itertools.pairwise(arguments) if word == option]
    return after + [word.partition("=")[2] for word in arguments if word.startswith(f"{option}=")]


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
