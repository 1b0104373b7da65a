"""Reference pages, generated from the code when the site is built: command line, configuration, rules of success."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import tyro

from batchnav.cartpole.program import CartPoleRun
from batchnav.cli import COMMANDS, bench, cite, data, doctor, evaluate, export, navmesh, view
from batchnav.cli.bench import bench_options, describe
from batchnav.cli.train import (
    ALL_OPTIONS,
    AnticipationOptions,
    CartPoleOptions,
    DetectorOptions,
    EncoderOptions,
    configurations,
)
from batchnav.config import KINDS, ranges, to_dict
from batchnav.data.goals.rules import RULES
from batchnav.envs.config import ABOUT, PRESETS, NavConfig
from batchnav.procedural import FAMILIES
from batchnav.runtime.command_line import option_texts
from batchnav.tasks import TASKS
from batchnav.training import options as train
from batchnav.training.config import TrainingConfig

TYPES = {int: "integer", float: "number", str: "text", Path: "path", bool: "true, false"}
"""Names of plain types."""


class Program(NamedTuple):
    """A command or subcommand."""

    name: str
    kind: Callable[..., Any]
    """Dataclass or function whose fields or arguments are the options."""
    about: str
    """Description: the docstring of a module, class or function."""


def programs() -> list[Program]:
    """All commands and subcommands, in the order of `batchnav --help`."""
    about_train = (
        f"{inspect.getdoc(train.Options)}\n\nEvery key of the [configuration](configuration.md) is an option too: "
        f"`--ppo.total-frames` sets `ppo.total_frames`. `batchnav train {ALL_OPTIONS}` lists all of them."
    )
    return [
        Program("train", train.Options, about_train),
        Program("train anticipation", AnticipationOptions, inspect.getdoc(AnticipationOptions) or ""),
        Program("train cartpole", CartPoleOptions, inspect.getdoc(CartPoleOptions) or ""),
        Program("train detector", DetectorOptions, inspect.getdoc(DetectorOptions) or ""),
        Program("train encoder", EncoderOptions, inspect.getdoc(EncoderOptions) or ""),
        Program("evaluate", evaluate.Options, evaluate.__doc__ or ""),
        Program("view", view.Options, view.__doc__ or ""),
        *(Program(f"bench {name}", bench_options(name), describe(name)) for name in bench.SUBCOMMANDS),
        *(Program(f"data {name}", function, _summary(function)) for name, function in data.SUBCOMMANDS.items()),
        *(Program(f"navmesh {name}", function, _summary(function)) for name, function in navmesh.SUBCOMMANDS.items()),
        Program("export", export.Options, export.__doc__ or ""),
        Program("doctor", doctor.doctor, _summary(doctor.doctor)),
        Program("cite", cite.cite, _summary(cite.cite)),
    ]


def command_line() -> str:
    """The page of all commands and options."""
    parts = [
        "# Command line",
        "*For users of the command `batchnav`. Reference page, generated from the code.*",
        table(("command", "what it does"), [(f"`{name}`", command.about) for name, command in COMMANDS.items()]),
        "`--help` after a command prints its options. `--NAME` sets a yes/no option to yes, `--no-NAME` to no. "
        "Errors are one line on stderr, with exit status 1; unknown options have exit status 2.",
    ]
    for program in programs():
        rows = [_option_row(option) for option in options_of(program.kind)]
        parts += [f"## batchnav {program.name}", _paragraphs(program.about)]
        parts.append(options_table("option", rows))
    return "\n\n".join(parts) + "\n"


class Option(NamedTuple):
    """An option of a command."""

    name: str
    """As on the command line: "--num-envs", or "SCENES" for a positional argument."""
    type: Any
    default: Any
    """Default value; `inspect.Parameter.empty` for a required option."""
    text: str
    range: str = ""
    """Range of a number, to be appended to its type."""


def options_of(kind: Callable[..., Any]) -> list[Option]:
    """The options of a dataclass or function. Fields of a dataclass-valued argument are options themselves."""
    texts, hints = option_texts(kind), typing.get_type_hints(kind)
    limits = ranges(kind) if isinstance(kind, type) else {}
    annotated = typing.get_type_hints(kind, include_extras=True)
    found: list[Option] = []
    for name, parameter in inspect.signature(kind).parameters.items():
        if dataclasses.is_dataclass(hints[name]):
            found += options_of(hints[name])
            continue
        marks = getattr(annotated[name], "__metadata__", ())
        if tyro.conf.Suppress in marks:  # the help leaves it out too
            continue
        is_positional = tyro.conf.Positional in marks
        option = name.upper() if is_positional else f"--{name.replace('_', '-')}"
        found.append(Option(option, hints[name], parameter.default, texts[name], _range_text(limits.get(name))))
    return found


def _option_row(option: Option) -> tuple[str, ...]:
    is_required = option.default is inspect.Parameter.empty
    kind = "yes, no" if option.type is bool else type_text(option.type) + option.range
    default = {True: "yes", False: "no"}[option.default] if option.type is bool else default_text(option.default)
    return f"`{option.name}`", kind, "required" if is_required else default, option.text


def configuration() -> str:
    """The page of all configuration keys, presets, scene families and bundled configurations."""
    parts = [
        "# Configuration",
        "*For users who write a YAML file for `batchnav train --config`, or set its keys as options. Reference page, "
        "generated from the code.*",
        "A file holds the keys that differ from the defaults. `base: NAME` inherits from another configuration, and "
        "`env: {preset: NAME}` from a [preset](#presets). Unknown keys and values out of range are errors that name "
        "the key. On the command line a key is an option: `--ppo.total-frames 1000000`.",
        _section("Run", TrainingConfig(), ""),
        *_parts(TrainingConfig(), ""),
        "## CartPole",
        "Configuration of `batchnav train cartpole`. `policy` and `ppo` have the keys above; these defaults differ:",
        _differences(TrainingConfig(), CartPoleRun()) + ".",
        _keys(CartPoleRun(), ""),
        "## Bundled configurations",
        table(("`--config`", "what it trains"), [(f"`{name}`", about) for name, about in configurations().items()]),
        "## Presets",
        "Values of `env.preset`, and of `NavEnv(config=...)`: published variants of the environment. The table lists "
        "the keys that differ from the defaults.",
        table(("preset", "keys of `env`"), map(_preset_row, PRESETS.items())),
        "## Scene families",
        "Scenes that are made from a seed. A scene id is `FAMILY:SEED`; `FAMILY:0-3,7` lists five of them.",
        table(("family", "scenes", "seeds of each split", "episode files"), map(_family_row, FAMILIES.values())),
    ]
    return "\n\n".join(parts) + "\n"


def _parts(config: Any, path: str) -> list[str]:
    """Sections of the parts of a configuration. A part of several kinds has a section for each of them."""
    sections = []
    for field in dataclasses.fields(config):
        part, name = getattr(config, field.name), f"{path}{field.name}"
        if KINDS in field.metadata:
            sections += [_section(f"{name}: {kind}", made(), name) for kind, made in field.metadata[KINDS]().items()]
        elif dataclasses.is_dataclass(part):
            sections += [_section(name, part, name), *_parts(part, f"{name}.")]
    return sections


def _section(title: str, config: Any, path: str) -> str:
    return f"## {title}\n\n{_summary(type(config))}\n\n{_keys(config, path)}"


def _keys(config: Any, path: str) -> str:
    """Table of the keys of a configuration that are no parts."""
    texts, hints = option_texts(type(config)), typing.get_type_hints(type(config))
    limits = ranges(type(config))
    rows: list[Sequence[str]] = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if not dataclasses.is_dataclass(value):
            key = f"`{path}.{field.name}`" if path else f"`{field.name}`"
            kind = type_text(hints[field.name]) + _range_text(limits.get(field.name))
            rows.append((key, kind, default_text(value), texts[field.name]))
    return options_table("key", rows) if rows else ""


def _range_text(limits: tuple[float, float] | None) -> str:
    """The range of a key, to be appended to its type."""
    return "" if limits is None else f", {limits[0]:g} to {limits[1]:g}"


def _preset_row(item: tuple[str, NavConfig]) -> tuple[str, str]:
    name, preset = item
    default = dataclasses.replace(NavConfig(), task=type(preset.task)())  # of the preset's task
    task = "" if preset.task_name == NavConfig().task_name else f"`task.name: {preset.task_name}`, "
    return f"`{name}`", task + _differences(default, preset) or "the defaults"


def _differences(before: Any, after: Any) -> str:
    """Keys of a configuration whose values differ from those in another one."""
    old, new = (_flat(to_dict(config, complete=True)) for config in (before, after))
    return ", ".join(f"`{key}: {_plain(value)}`" for key, value in new.items() if value != old[key])


def _flat(values: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Nested dicts as one dict with dotted keys."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= _flat(value, f"{path}{key}.") if isinstance(value, dict) else {f"{path}{key}": value}
    return found


def _family_row(family: Any) -> tuple[str, ...]:
    seeds = ", ".join(f"{split} {seeds[0]:,} to {seeds[-1]:,}" for split, seeds in family.splits.items())
    return f"`{family.name}`", family.title, seeds, ", ".join(f"`{name}`" for name in family.episode_files)


def type_text(hint: Any) -> str:
    """A type in words: "integer", "list of numbers", or the values that are allowed."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is Literal:
        return ", ".join(f"`{choice}`" for choice in arguments)
    if typing.get_origin(hint) is tuple:
        if len(arguments) > 1 and arguments[1] is not Ellipsis:
            return f"{len(arguments)} values: {type_text(arguments[0])}"
        return f"list: {type_text(arguments[0])}"
    if typing.get_origin(hint) is dict:
        return f"mapping of names to `{arguments[1].__name__}`"
    if type(None) in arguments:
        return type_text(next(each for each in arguments if each is not type(None)))
    return TYPES.get(hint) or hint.__name__


def default_text(value: Any) -> str:
    """A default value; empty for None and for empty values."""
    return "" if value is None or value in ("", (), {}) else f"`{_plain(value)}`"


def _plain(value: Any) -> str:
    """A value as YAML has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_plain, value))}]"
    return str(value)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table. Vertical bars in cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def options_table(name: str, rows: Iterable[Sequence[str]]) -> str:
    """A table of options or keys, which docs/extra.css lays out for telephones."""
    return f'<div class="options" markdown>\n\n{table((name, "value", "default", "meaning"), rows)}\n\n</div>'


def _summary(documented: Any) -> str:
    """The docstring of a class or function up to its sections such as `Args:`."""
    return re.split(r"\n\n(?:Args|Raises|Returns):", inspect.getdoc(documented) or "")[0]


def _paragraphs(docstring: str) -> str:
    """A docstring as Markdown: indented blocks of commands and of other text become fenced blocks."""
    blocks = []
    for part in docstring.strip().split("\n\n"):
        language = "sh" if part.lstrip().startswith("batchnav") else "text"
        blocks.append(f"```{language}\n{textwrap.dedent(part)}\n```" if part.startswith("    ") else part)
    return "\n\n".join(blocks)


def success_rules() -> str:
    """The page of the rules of success of all tasks and presets."""
    head = "preset", "benchmark", "stop", "distance", "to", "heading", "limit"
    tasks = {name: NavConfig(task=task.Config()) for name, task in TASKS.items()}
    points_of = {name: rules.view_points for name, rules in RULES.items()}
    places = [
        (f"`{name}`", f"{points.max_distance:g} m", f"{points.camera_height:g} m", _visible(points))
        for name, points in points_of.items()
    ]
    parts = [
        "# Which success rule?",
        "*For users who compare their numbers with published ones. Reference page, generated from the code.*",
        "A success needs three things: where the agent is, where it looks, and whether it says that it has arrived. "
        "Benchmarks differ in each of them; choose the preset of the benchmark that you compare with.",
        "## Presets",
        table(head, (_rule_row(name, PRESETS[name].task, ABOUT.get(name, "")) for name in PRESETS)),
        "## Defaults of the tasks",
        table(("task", "goal", *head[2:]), (_rule_row(name, tasks[name].task, TASKS[name].title) for name in TASKS)),
        "- distance: geodesic, along the navmesh, from the agent's position on the floor; the comparison is strict "
        "(0.1 m is no success at a limit of 0.1 m). Heights count: a goal one storey above is as far as the stairs are "
        "long. The height of the camera does not count.\n"
        "- stop: yes where only the action stop ends an episode with a success. Being near the goal when the steps run "
        "out is a failure.\n"
        "- heading: the largest angle between the agent's heading and the target's.\n"
        "- people: `socialnav_falcon` counts no success after a collision with a person, `socialnav_houses` none after "
        "one that the robot causes (`human_collision_ends`).\n"
        "- `env: {task: {success_distance: 1.0}}` in a configuration, or `NavEnv(success_distance=1.0)`, changes it.",
        "## View points",
        "In ObjectNav the distance leads to a view point: a place on the navmesh from which the object is visible, not "
        "the object itself. Files of episodes bring their own view points. For scenes without a file, these rules of "
        "`env.task.rules` make them:",
        table(("rules", "from the object's box, at most", "height of the eye", "what must be visible"), places),
        "The height is that of a camera above the navmesh at the view point. An agent whose camera is lower may not "
        "see the object from there; success does not ask for that.",
    ]
    return "\n\n".join(parts) + "\n"


def _rule_row(name: str, task: Any, about: str) -> tuple[str, ...]:
    rule = task.success_rule
    if rule is None:
        return f"`{name}`", about, "", "no success", "", "", f"{task.max_steps:,} steps"
    heading = "any" if rule.max_angle_deg >= 180.0 else f"{rule.max_angle_deg:g}°"
    stop = "yes" if rule.stop else "no"
    return f"`{name}`", about, stop, f"< {rule.distance:g} m", rule.target, heading, f"{task.max_steps:,} steps"


def _visible(points: Any) -> str:
    """The object's share of the image that a view point needs."""
    share = "some pixel" if points.min_iou == 0.0 else f"more than {points.min_iou:g} of frame coverage"
    return share + ("" if points.max_depth == float("inf") else f" within {points.max_depth:g} m")


PAGES: dict[str, Callable[[], str]] = {
    "reference/cli.md": command_line,
    "reference/configuration.md": configuration,
    "reference/success_rules.md": success_rules,
}
"""Functions that generate pages, by the page's path in the site."""
