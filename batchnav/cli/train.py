"""`batchnav train`: train a navigation agent, the occupancy predictor, or CartPole."""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
from collections.abc import Sequence
from dataclasses import make_dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

import batchnav
from batchnav.cli import anticipation, cartpole
from batchnav.runtime.bundled import CONFIGS
from batchnav.runtime.command_line import parse_options
from batchnav.training.options import Options

COMMON = (
    "device", "seed", "init_from", "processes", "eval_every", "scenes.houses", "scenes.sources", "scenes.episodes",
    "env.sensors", "ppo.total_frames", "ppo.num_envs", "ppo.learning_rate",
)  # fmt: skip
"""Fields of the configuration that `--help` lists, those that most runs change."""
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
    for path in COMMON:
        package, name = Path(batchnav.__file__).parent, path.removeprefix("ppo.")
        file, kind = ("training", "TrainingConfig") if name == path else ("learning", "LearnerConfig")
        found = _field(package / file / "config.py", kind, name)
        argument = tyro.conf.arg(
            name=path.replace("_", "-"), help=found.text, help_behavior_hint="", metavar=found.placeholder
        )
        fields.append((path.replace(".", "_"), Annotated[str, argument], ""))
    kind = make_dataclass("CommonOptions", fields, bases=(Options,), kw_only=True, frozen=True)
    try:
        parse_options(kind, "batchnav train", ["--help"], text)
    finally:  # tyro exits after the help
        lines = (f"  {name}\n      {about}" for name, about in configurations().items())
        print("\n".join(["configurations (--config):", *lines]))
        sys.stdout.flush()


class _Field(NamedTuple):
    """A field of a configuration, as its source file has it."""

    kind: str
    """The annotation."""
    text: str
    """The docstring, on one line."""

    @property
    def placeholder(self) -> str:
        """Placeholder of the option's value, as tyro writes it."""
        name = self.kind.removeprefix("tuple[").partition(",")[0].upper()
        return f"[{name} [{name} ...]]" if self.kind.startswith("tuple") else name


def _field(file: Path, kind: str, path: str) -> _Field:
    """A field of the dataclass `kind` in a source file, or of its parts: read, not imported, since that takes seconds.

    `path`: names of fields, joined by dots.
    """
    tree = ast.parse(file.read_text(encoding="utf-8"))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind)
    name, _, rest = path.partition(".")
    for statement, after in itertools.pairwise(body):
        if not (isinstance(statement, ast.AnnAssign) and isinstance(after, ast.Expr)):
            continue
        if ast.unparse(statement.target) == name:
            found = _Field(ast.unparse(statement.annotation), " ".join(ast.literal_eval(after.value).split()))
            return _field(_imported_from(tree, found.kind), found.kind, rest) if rest else found
    raise KeyError(path)


def _imported_from(tree: ast.Module, name: str) -> Path:
    """The source file of the module that a module imports `name` from."""
    lines = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    module = next(line.module or "" for line in lines if name in [alias.name for alias in line.names])
    return Path(batchnav.__file__).parents[1] / (module.replace(".", "/") + ".py")


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
