"""Options of commands that play agents, which change the agents' environment: camera, body, noise, any key of `env`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import tyro

from batchnav.config import validate
from batchnav.runtime.command_line import parse_options

if TYPE_CHECKING:
    from batchnav.envs.config import NavConfig

ENV = "--env."
"""Prefix of the options that set any key of the section `env`."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Changes of the agents' environment. Names of options are those of fields of `NavConfig`'s parts."""

    camera_height: float | None = None
    """Height of the main camera above the floor, metres. Default: the height in training."""
    hfov_deg: float | None = None
    """Horizontal field of view of the main camera, degrees. Default: the field of view in training."""
    camera_info: Path | None = None
    """Calibration file of the main camera (YAML of ROS's camera_calibration), resized to the policy's image. Default:
    the lens in training."""
    agent_radius: float | None = None
    """Radius of the body, metres; navmeshes of prepared and procedural scenes are baked for it. Default: the radius in
    training, or that of the preset or task."""
    agent_height: float | None = None
    """Height of the body, metres. Default: the height in training, or that of the preset or task."""
    depth_noise: float | None = None
    """Multiplier of the noise of depth: 1 is that of a real camera, 0 none. Default: the noise in training."""
    actuation_noise: float | None = None
    """Multiplier of the noise of steps and turns: 1 is that of a real robot, 0 none. Default: the noise in training."""
    env: tyro.conf.Suppress[tuple[str, ...]] = ()
    """Words of the options `--env.KEY VALUE`."""

    @property
    def given(self) -> dict[str, float]:
        """Options that set one field, by its name."""
        names = [each.name for each in fields(Changes) if each.name not in ("camera_info", "env")]
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def words(self) -> list[object]:
        """Words of a command line that make the same changes; those of `env` come last."""
        named = {**self.given, **({} if self.camera_info is None else {"camera_info": self.camera_info})}
        return [word for name, value in named.items() for word in (f"--{name.replace('_', '-')}", value)]


_Options = TypeVar("_Options", bound=Changes)


def parse_with_changes(
    kind: Callable[..., _Options], prog: str, arguments: Sequence[str], description: str | None
) -> _Options:
    """The options of a command line. Those of `env` are parsed with the agents' environments as defaults."""
    words: list[str] = []
    changes: list[str] = []
    kept = words
    for word in arguments:
        if word.startswith("--"):
            kept = changes if word.startswith(ENV) else words
        kept.append(word)
    return replace(parse_options(kind, prog, words, description), env=tuple(changes))


def changed_environment(config: NavConfig, options: Changes) -> NavConfig:
    """An agent's environment with the changes of the options. ConfigError for an invalid value."""
    from batchnav.envs.config import NavConfig, with_camera, with_options  # imports PyTorch, which help does not need

    config = with_camera(config, None, options.hfov_deg, options.camera_info)
    config = with_options(config, options.given)
    if options.env:
        kind: Any = make_dataclass("Environment", [("env", NavConfig)], frozen=True)
        config = parse_options(kind, "batchnav", options.env, "Keys of the section env.", default=kind(config)).env
        validate(config)
    return config
