"""The learner's settings as frozen dataclasses, and the strict reader of all configurations' YAML files.

The settings of bodies, cameras, sensors and tasks lie with those; `runs.config` puts a training run together. A YAML
file holds a (possibly partial) configuration; what it leaves out keeps its default. An unknown key, a wrong type or a
value out of range is a ConfigError that names it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import numbers
import reprlib
import types
import typing
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from batchnav.errors import ConfigError

T = TypeVar("T")

MAX_BYTES, MAX_DEPTH, MAX_VALUES = 2**20, 32, 100_000
"""What a configuration file may hold: bytes, levels, and values once its aliases are written out."""
KINDS = "kinds"
"""Key in a dataclass field's metadata where its settings are one of several kinds: a function without arguments that
gives the kinds' dataclasses by name. A file says which as `name`: `task: {name: pointnav, max_steps: 200}`."""


def load_config(path: str | Path, kind: type[T]) -> T:
    """Read a YAML file as the dataclass `kind`. ConfigError names the file, the key, and what was expected."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from error
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path}: is too large, expected {MAX_BYTES:,} bytes at most")
    try:
        values = yaml.load(data.decode("utf-8"), _Loader)
    except (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError) as error:  # `!!int a` is a ValueError
        raise ConfigError(f"{path}: is not YAML ({' '.join(str(error).split())[:200]})") from error
    try:
        return from_dict(kind, {} if values is None else values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def from_dict(kind: type[T], data: Any, where: str = "") -> T:
    """Build the dataclass `kind` from nested dicts, strictly, and validate it."""
    if not isinstance(data, dict):
        raise ConfigError(f"{where or kind.__name__}: found {type(data).__name__}, expected a mapping")
    fields: tuple[dataclasses.Field, ...] = dataclasses.fields(kind)  # type: ignore[arg-type]  # a dataclass
    hints, known = typing.get_type_hints(kind), {f.name: f for f in fields}
    values: dict[str, Any] = {}
    for key, value in data.items():
        key = key if isinstance(key, str) and key.isidentifier() and len(key) <= 80 else shortened(key)
        name = f"{where}.{key}" if where else key
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
            raise ConfigError(f"{name}: unknown key; the nearest is {near[0]!r}")
        default = known[key]
        if isinstance(value, dict) and KINDS in default.metadata:
            values[key] = _of_kind(default, value, name)
        elif isinstance(value, dict) and dataclasses.is_dataclass(hints[key]):
            values[key] = from_dict(hints[key], {**to_dict(_default(default)), **value}, name)
        else:
            values[key] = _convert(value, hints[key], name)
    result: Any = kind(**values)
    try:
        result.validate()
    except ConfigError as error:
        raise ConfigError(f"{where}.{error}" if where else str(error)) from error
    return result


def to_dict(config: Any) -> dict:
    """A dataclass as plain nested dicts that YAML and JSON can hold; `from_dict` inverts it."""

    def plain(value):
        if isinstance(value, dict):
            return {key: plain(entry) for key, entry in value.items()}
        return list(value) if isinstance(value, tuple) else to_dict(value) if dataclasses.is_dataclass(value) else value

    values = {f.name: plain(getattr(config, f.name)) for f in dataclasses.fields(config)}
    for f in dataclasses.fields(config):
        if KINDS in f.metadata:
            kind = type(getattr(config, f.name))
            names = [name for name, known in f.metadata[KINDS]().items() if known is kind]
            values[f.name] = dict(zip(("name",), names, strict=False)) | values[f.name]
    return values


def _default(field: dataclasses.Field) -> Any:
    """The value of a field that nobody sets."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _of_kind(field: dataclasses.Field, data: dict, where: str) -> Any:
    """Settings of which there are several kinds: `name` says which, without it they are of the default's."""
    kinds, values = field.metadata[KINDS](), dict(data)
    if "name" not in values:
        return from_dict(type(_default(field)), values, where)
    name = values.pop("name")
    if not isinstance(name, str) or name not in kinds:
        raise ConfigError(f"{where}.name: found {shortened(name)}, expected one of {', '.join(kinds)}")
    return from_dict(kinds[name], values, where)


def validate(config: Any) -> None:
    """Validate a dataclass and those inside it (after command-line overrides)."""
    hints = typing.get_type_hints(type(config))
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        if typing.get_origin(hints[f.name]) is Literal:
            _convert(value, hints[f.name], f.name)
        for part in value.values() if isinstance(value, dict) else (value,):
            if dataclasses.is_dataclass(part):
                validate(part)
    config.validate()


def _convert(value: Any, hint: Any, name: str) -> Any:
    """A YAML value as the annotated type, or ConfigError."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if (type(value), value) in [(type(choice), choice) for choice in arguments]:  # True is not 1
            return value
        raise ConfigError(f"{name}: found {shortened(value)}, expected one of {', '.join(map(repr, arguments))}")
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _convert(value, next(a for a in arguments if a is not type(None)), name)
    if origin is dict:
        if isinstance(value, dict):
            return {str(k): _convert(v, arguments[1], f"{name}.{k}") for k, v in value.items()}
        raise ConfigError(f"{name}: found {value!r}, expected a mapping")
    is_part = dataclasses.is_dataclass(hint)
    if is_part and isinstance(value, (dict, hint)):
        return value if isinstance(value, hint) else from_dict(hint, value, name)
    if origin is tuple:
        if isinstance(value, (list, tuple)):
            return tuple(_convert(v, arguments[0], f"{name}[{i}]") for i, v in enumerate(value))
        raise ConfigError(f"{name}: found {shortened(value)}, expected a list")
    if hint in (int, float) and isinstance(value, _NUMBERS[hint]) and not isinstance(value, bool):  # NumPy's too
        with contextlib.suppress(OverflowError):
            return hint(value)
    elif isinstance(value, hint) and not (isinstance(value, bool) and hint is not bool):
        return value
    hint_name = getattr(hint, "__name__", str(hint))
    hint_note = " (YAML reads 1e-3 as text: write 1.0e-3)" if hint is float and isinstance(value, str) else ""
    raise ConfigError(f"{name}: found {shortened(value)}, expected {hint_name}{hint_note}")


_NUMBERS = {int: numbers.Integral, float: numbers.Real}


def in_range(config: Any, name: str, low: float, high: float) -> None:
    """ConfigError where a field of a dataclass is not from `low` to `high`."""
    value = getattr(config, name)
    if not low <= value <= high:  # NaN fails here too
        raise ConfigError(f"{name}: found {shortened(value)}, expected {low:g} to {high:g}")


def shortened(value: Any) -> str:
    """A value as one short line of a message, however long, deep or entangled it is."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python writes no number of more than 4,300 digits
        return f"a {type(value).__name__} that is too long to be shown"


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 2, 80, 80, 40


class _Loader(yaml.SafeLoader):
    """Plain values within the bounds above. An alias stands for all that it repeats: a few lines can mean 10^9."""

    depth = 0

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None and _written_out(node, {}) > MAX_VALUES:
            raise yaml.YAMLError(f"with its aliases written out it has more than {MAX_VALUES:,} values")
        return node

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise yaml.YAMLError(f"it is nested deeper than {MAX_DEPTH} levels")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _written_out(node: yaml.Node, known: dict[yaml.Node, int]) -> int:
    """Values in a node, those of its aliases counted each time."""
    if node not in known:
        known[node] = MAX_VALUES + 1  # what it counts for inside itself
        parts = node.value if not isinstance(node, yaml.ScalarNode) else ()
        flat = [n for part in parts for n in (part if isinstance(part, tuple) else (part,))]
        known[node] = 1 + sum(_written_out(n, known) for n in flat)
    return known[node]
