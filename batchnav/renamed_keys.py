"""Configuration keys of the previous version: translation of files and of command lines, with one FutureWarning each.

Dataclasses declare former keys where the current ones are defined:

    sources: tuple[str, ...] = field(default=(), metadata={FORMERLY: {"files": None}})
    env: NavConfig = field(default_factory=NavConfig, metadata={ABSORBS: True})
    REMOVED: ClassVar[dict[str, Any]] = {"lamb_min_trust": 0.01}
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from batchnav.errors import ConfigError, shortened
from batchnav.renamed import warn_renamed

KINDS = "kinds"
"""Metadata key of a dataclass field whose settings are one of several kinds: a function without arguments that returns
the dataclasses by name. A file selects one with `name`: `task: {name: pointnav, max_steps: 200}`."""
FORMERLY = "formerly"
"""Metadata key of a dataclass field: its former keys, each with a function that converts the former value, or None."""
ABSORBS = "absorbs"
"""Metadata key of a dataclass field: True if the keys of this part were formerly one level higher."""
REMOVED = "REMOVED"
"""Class variable of a dataclass: removed keys, each with the only value that is still accepted (and ignored)."""


class Place(NamedTuple):
    """Current place of a former key."""

    path: tuple[str, ...]
    """Keys from the dataclass to the setting."""
    convert: Callable[[Any], Any] | None = None
    """Function that converts the former value; None keeps it."""


def former_keys(kind: type) -> dict[str, Place]:
    """The former keys of a dataclass, each with its current place."""
    found, hints = {}, typing.get_type_hints(kind)
    for f in dataclasses.fields(kind):
        for old, convert in f.metadata.get(FORMERLY, {}).items():
            found[old] = Place((f.name,), convert)
        if f.metadata.get(ABSORBS):
            part = hints[f.name]
            found.update({inner.name: Place((f.name, inner.name)) for inner in dataclasses.fields(part)})
            found.update({old: Place((f.name, *place.path), place.convert) for old, place in former_keys(part).items()})
    current = {f.name for f in dataclasses.fields(kind)}
    return {old: place for old, place in found.items() if old not in current}


def current_keys(kind: type, data: Any, where: str, renamed: dict[str, str]) -> Any:
    """Nested dicts for the dataclass `kind` with former keys replaced by the current ones.

    Args:
        kind: a dataclass.
        data: its settings; a value that is not a dict is returned unchanged.
        where: dotted path of `data`, for messages.
        renamed: receives the current dotted path of every former one that was found.

    Raises:
        ConfigError: a setting has a value under its former and its current key, or a removed key has another value
            than the accepted one.
    """
    if not isinstance(data, dict):
        return data
    former, removed = former_keys(kind), getattr(kind, REMOVED, {})
    values = {key: value for key, value in data.items() if key not in former and key not in removed}
    for key, value in data.items():
        if key in removed:
            if value != removed[key]:
                raise ConfigError(
                    f"{_dotted(where, key)}: found {shortened(value)} for a setting that was removed, expected no such "
                    f"key (it is now always {removed[key]})"
                )
        elif key in former:
            _place(values, former[key], _dotted(where, key), value)
            renamed[_dotted(where, key)] = _dotted(where, *former[key].path)
    for key, part in _parts(kind, values).items():
        if isinstance(part, dict):  # settings by name, for example of cameras
            values[key] = {
                name: current_keys(of, values[key][name], _dotted(where, key, name), renamed)
                for name, of in part.items()
            }
        else:
            values[key] = current_keys(part, values[key], _dotted(where, key), renamed)
    return values


def warn_of_renamed(renamed: Mapping[str, str], where: str) -> None:
    """FutureWarning that names the current keys of the former ones; none if `renamed` is empty."""
    if renamed:
        changes = ", ".join(f"{old} is now {new}" for old, new in renamed.items())
        warn_renamed(f"{where}: {changes}" if where else changes)


def current_options(kind: type, arguments: Sequence[str]) -> list[str]:
    """A command line whose options set fields of `kind`, with former options replaced by the current ones.

    `--camera.height 24`, `--scenes.no-redraw-finishes` and `--scenes.files=a.glb` become `--env.camera.height 24`,
    `--scenes.no-randomize-materials` and `--scenes.sources=a.glb`. One FutureWarning names all of them.
    """
    found, renamed, convert = [], {}, None
    for word in arguments:
        if not word.startswith("--"):
            found.append(word if convert is None else str(convert(_number(word))))
            convert = None
            continue
        option, equals, value = word[2:].partition("=")
        current, convert = _current_option(kind, option.replace("-", "_"))
        if current != option.replace("-", "_"):
            option, old = current.replace("_", "-"), option
            renamed[f"--{old}"] = f"--{option}"
        if equals and convert:
            value, convert = str(convert(_number(value))), None
        found.append(f"--{option}{equals}{value}")
    warn_of_renamed(renamed, "")
    return found


def _place(values: dict, place: Place, name: str, value: Any) -> None:
    """Store a setting under its current key. ConfigError if that key has a value; `name`: the former key."""
    inner = values
    for part in place.path[:-1]:
        inner[part] = dict(inner[part]) if isinstance(inner.get(part, {}), dict) and part in inner else {}
        inner = inner[part]
    if place.path[-1] in inner:
        raise ConfigError(f"{name}: found with its current key {'.'.join(place.path)}, expected one of the two")
    inner[place.path[-1]] = value if place.convert is None else place.convert(value)


def _parts(kind: type, values: Mapping[Any, Any]) -> dict[str, Any]:
    """The dataclass of each part that `values` sets, by key; a dict of them for a mapping of parts by name."""
    found, hints = {}, typing.get_type_hints(kind)
    for f in dataclasses.fields(kind):
        value, hint = values.get(f.name), hints[f.name]
        if not isinstance(value, dict):
            continue
        if KINDS in f.metadata:
            name = value.get("name")
            default = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
            found[f.name] = f.metadata[KINDS]().get(name, type(default)) if isinstance(name, str) else type(default)
        elif dataclasses.is_dataclass(hint):
            found[f.name] = hint
        elif typing.get_origin(hint) is dict and dataclasses.is_dataclass(typing.get_args(hint)[1]):
            found[f.name] = dict.fromkeys(value, typing.get_args(hint)[1])
    return found


def _current_option(kind: type, option: str) -> tuple[str, Callable[[Any], Any] | None]:
    """The current dotted path of an option, and the conversion of its value; None: keep it.

    The last part of a path may begin with `no_`.
    """
    *groups, last = option.split(".")
    negated = last.startswith("no_")
    parts = [*groups, last.removeprefix("no_")]
    path: list[str] = []
    convert = None
    while parts:
        former = former_keys(kind)
        if parts[0] in former:
            place = former[parts[0]]
            parts, convert = [*place.path, *parts[1:]], place.convert
        key = parts.pop(0)
        path.append(key)
        part = _part_of(kind, key)
        if part is None:
            break
        kind = part
    path += parts
    if negated:
        path[-1] = f"no_{path[-1]}"
    return ".".join(path), convert


def _part_of(kind: type, key: str) -> type | None:
    """The dataclass that the field `key` holds; None where it holds a plain value or does not exist."""
    for f in dataclasses.fields(kind):
        if f.name == key:
            if KINDS in f.metadata:
                return type(f.default if f.default_factory is dataclasses.MISSING else f.default_factory())
            hint = typing.get_type_hints(kind)[key]
            return hint if isinstance(hint, type) and dataclasses.is_dataclass(hint) else None
    return None


def _number(word: str) -> Any:
    """A command-line value as a number if possible, else as text."""
    try:
        return float(word.replace("_", ""))
    except ValueError:
        return word


def _dotted(*parts: Any) -> str:
    """Dotted path of keys; empty parts are omitted."""
    return ".".join(part if isinstance(part, str) else shortened(part) for part in parts if part != "")
