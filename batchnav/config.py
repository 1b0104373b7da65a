"""Strict reader of YAML configurations into frozen dataclasses.

A file holds a partial configuration: omitted keys keep their defaults. An unknown key, a wrong type or a value out of
range is a ConfigError that names the key.

    base: pointnav_depth_cpu        # another configuration: a path relative to this file, or a bundled name
    env: {preset: challenge_2020}   # named settings of a part, where the part has presets
    policy: {memory: lstm, lstm: {layers: 1}}   # settings of a part are in the section of its name
    imports: [my_encoder.py]        # modules to import first: files beside this file, or names

Keys of this file override those of the base and of the preset; mappings are merged at every level, lists are replaced.

Each package declares its own dataclasses; `batchnav.training.config` combines them for a training run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import numbers
import types
import typing
from collections import UserDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from batchnav.errors import ArgumentError, ConfigError, shortened
from batchnav.runtime.files import LIBRARY_ERRORS, as_path, read_regular
from batchnav.runtime.imports import import_modules

T = TypeVar("T")

__all__ = [
    "BASE", "CHOICES", "IMPORTS", "KINDS", "PRESETS", "Registry", "Sections", "bounded", "from_dict", "in_range",
    "load_config", "ranges", "sectioned", "shortened", "to_dict", "validate",
]  # fmt: skip

MAX_BYTES, MAX_DEPTH, MAX_VALUES, MAX_BASES = 2**20, 32, 100_000, 32
"""Limits of a configuration: bytes of a file, nesting levels, values after alias expansion, files that it inherits."""
KINDS = "kinds"
"""Metadata key of a dataclass field whose settings are one of several kinds: a function without arguments that returns
the dataclasses by name. A file selects one with `name`: `task: {name: pointnav, max_steps: 200}`."""
CHOICES = "choices"
"""Metadata key of a dataclass field that holds the name of a part, or names of parts: their registries, a tuple of
`Registry`. The dataclass is decorated by `sectioned`."""
RANGE = "range"
"""Metadata key of a dataclass field: its lowest and highest valid value (`bounded`)."""
PRESETS = "presets"
"""Metadata key of a dataclass field: a function without arguments that returns named values of the field. A file
selects one with `preset`: `env: {preset: challenge_2020, camera: {height: 64}}`."""
IMPORTS = "imports"
"""Top-level key that names modules to import before the file is read (`runtime.imports`)."""
BASE = "base"
"""Top-level key that names the configuration to inherit from."""


class Registry(UserDict[str, Any]):
    """Parts by name, such as encoders, that a field of a configuration chooses from.

    A part that has settings of its own declares them as `Config`, a frozen dataclass whose fields all have defaults.
    Registering the part gives the configuration a section of its name with these settings, in YAML, on the command
    line and in Python. Parts with one `section` share their settings.

        ENCODERS["mine"] = Mine          # with Mine.Config
        PolicyConfig(encoder="mine", mine=Mine.Config(depth=3))        # policy: {encoder: mine, mine: {depth: 3}}
    """

    def __init__(self, parts: Mapping[str, Any] | None = None):
        self.kinds: list[type] = []
        """Configurations that choose from it."""
        self.families: dict[str, Any] = {}
        """Parts by the word before a colon, each of all names "WORD:NAME" (`add_family`)."""
        super().__init__(parts or {})

    def __missing__(self, name: str) -> Any:
        family, _, member = name.partition(":")
        if member and family in self.families:
            return self.families[family]
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        family, _, member = str(name).partition(":")
        return name in self.data or (bool(member) and family in self.families)

    def __setitem__(self, name: str, part: Any) -> None:
        for kind in self.kinds if hasattr(part, "Config") else ():
            if getattr(part, "section", name) in {field.name for field in kind._own_fields}:  # type: ignore[attr-defined]
                raise ConfigError(
                    f"{name}: found a part of this name, expected another: {kind.__name__} has such a key"
                )
        super().__setitem__(name, part)
        self._declare()

    def add_family(self, word: str, part: Any) -> None:
        """Register the part of all names "WORD:NAME", such as "timm:resnet50"; it reads NAME from the configuration."""
        self.families[word] = part
        self._declare()

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self._declare()

    def _declare(self) -> None:
        for kind in self.kinds:
            _declare_sections(kind)

    def section(self, name: str) -> str | None:
        """Name of the section with the settings of a part; None for a part without settings or an unknown one."""
        part = self.get(name)
        return getattr(part, "section", name) if hasattr(part, "Config") else None

    @property
    def sections(self) -> dict[str, type]:
        """Configurations of the parts that have settings, by name of the section."""
        names = [*self, *(f"{family}:NAME" for family in self.families)]
        return {section: self[name].Config for name in names if (section := self.section(name)) is not None}


class Sections:
    """Base of dataclasses that are decorated by `sectioned`, for type checkers: sections are attributes of any name."""

    if typing.TYPE_CHECKING:
        _own_fields: typing.ClassVar[tuple[dataclasses.Field, ...]]

        def __getattr__(self, name: str) -> Any: ...


def sectioned(kind: type[T]) -> type[T]:
    """Decorator of a frozen dataclass that chooses parts by name: it gets a field for the settings of each part.

    The fields follow the registries (`CHOICES`): a part that is registered later adds its field to the class. Each has
    the default settings of its part as default.
    """
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]  # a dataclass
        for registry in field.metadata.get(CHOICES, ()):
            registry.kinds.append(kind)
    kind._own_fields = dataclasses.fields(kind)  # type: ignore[attr-defined,arg-type]
    _declare_sections(kind)
    return kind


def _declare_sections(kind: Any) -> None:
    """Make `kind` a dataclass of its own fields and of a field for each section of its registries."""
    own = {field.name: field for field in kind._own_fields}
    sections: dict[str, type] = {}
    for registry in (registry for field in own.values() for registry in field.metadata.get(CHOICES, ())):
        sections |= registry.sections
    for name in _MADE.intersection(vars(kind)):
        delattr(kind, name)
    kind.__annotations__ = {field.name: field.type for field in own.values()} | sections
    fields = own | {name: dataclasses.field(default=config()) for name, config in sections.items()}
    for name, field in fields.items():
        setattr(kind, name, field)
    dataclasses.dataclass(frozen=True)(kind)


_MADE = frozenset({"__delattr__", "__eq__", "__hash__", "__init__", "__match_args__", "__repr__", "__setattr__"})
"""Attributes that the decorator `dataclass` makes and does not overwrite."""


def chosen_settings(config: Any, field: str) -> tuple[Any, ...]:
    """Settings of the part that a field of a configuration names, as one argument; none for a part without settings.

    ConfigError for an unknown name.
    """
    (settings,) = all_settings(config, field).values()
    return settings


def all_settings(config: Any, field: str) -> dict[str, tuple[Any, ...]]:
    """`chosen_settings` of each part that a field names, by the part's name."""
    names, found = getattr(config, field), {}
    registries = next(f.metadata[CHOICES] for f in dataclasses.fields(config) if f.name == field)
    for name in (names,) if isinstance(names, str) else names:
        section = next((registry.section(name) for registry in registries if name in registry), "")
        if section == "":
            known = [known for registry in registries for known in registry]
            known += [f"{family}:NAME" for registry in registries for family in registry.families]
            raise ConfigError(f"{field}: found {shortened(name)}, expected one of {', '.join(known)}")
        found[name] = () if section is None else (getattr(config, section),)
    return found


def sections_in_use(config: Any) -> set[str]:
    """Names of the sections of the parts that a configuration chooses, and of those in its property `also_in_use`."""
    found: set[str] = set(getattr(config, "also_in_use", ()))
    for field in dataclasses.fields(config):
        names = getattr(config, field.name)
        for registry in field.metadata.get(CHOICES, ()):
            found |= {registry.section(name) or "" for name in ((names,) if isinstance(names, str) else names)}
    return found


def bounded(default: Any, low: float, high: float) -> Any:
    """A dataclass field with a default and a range of valid values, both ends included.

    The range holds for each value of a tuple; None is valid too where the annotation allows it.
    """
    return dataclasses.field(default=default, metadata={RANGE: (low, high)})


def ranges(kind: type) -> dict[str, tuple[float, float]]:
    """Ranges of a dataclass's fields by name. A field that a subclass declares again keeps its range."""
    fields = [field for each in reversed(kind.__mro__) for field in vars(each).get("__dataclass_fields__", {}).values()]
    return {field.name: field.metadata[RANGE] for field in fields if RANGE in field.metadata}


def load_config(path: str | Path, kind: type[T]) -> T:
    """Read a YAML file as the dataclass `kind`.

    Args:
        path: the file.
        kind: dataclass to build.

    Raises:
        ConfigError: names the file, the key, and the expected value.
    """
    path = Path(path)
    values = _inherited(path)
    if isinstance(values, dict) and IMPORTS in {field.name for field in dataclasses.fields(kind)}:  # type: ignore[arg-type]
        values = values | {IMPORTS: list(import_modules(values.get(IMPORTS, []), f"{path}: {IMPORTS}"))}
    try:
        return _build(kind, values, "")
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def from_dict(kind: type[T], data: Any, where: str = "") -> T:
    """Build the dataclass `kind` from nested dicts, strictly, and validate it.

    Args:
        kind: dataclass to build.
        data: nested dicts, for example of a YAML file.
        where: dotted path of `data` in its file, for error messages.

    Raises:
        ConfigError: an unknown key, a wrong type, or a value out of range.
    """
    return _build(kind, data, where)


def read_yaml(path: Path) -> Any:
    """The values of a YAML file, as dicts, lists and scalars. All YAML files of the package are read here.

    ConfigError for a file that cannot be read, is too large, or is not YAML.
    """
    data = read_regular(path, ConfigError, MAX_BYTES)
    try:
        return yaml.load(data.decode("utf-8"), _Loader)
    except (yaml.YAMLError, *LIBRARY_ERRORS) as error:  # `!!int a` is a ValueError, `!!int ""` an IndexError
        raise ConfigError(f"{path}: is not YAML ({' '.join(str(error).split())[:200]})") from error


def _inherited(path: Path) -> Any:
    """The values of a file merged over those of its bases."""
    chain: list[Path] = []  # the files whose `base` led to the current one
    found: list[Any] = []
    current: Path | None = path
    while current is not None:
        values = read_yaml(current)
        values = {} if values is None else values
        chain.append(current.resolve())
        if isinstance(values, dict) and isinstance(names := values.get(IMPORTS), list):
            values[IMPORTS] = [_beside(name, current) for name in names]
        base = values.pop(BASE, None) if isinstance(values, dict) else None
        found.append(values)
        try:
            current, file = None if base is None else _find_base(base, current, chain), current
        except ConfigError as error:
            raise ConfigError(f"{current}: {error}") from error
        if len(chain) > MAX_BASES:
            raise ConfigError(f"{file}: base: found more than {MAX_BASES} files, each the base of the one before")
    result = found.pop()
    while found:
        result = merged(result, found.pop())
    return result


def _beside(name: Any, path: Path) -> Any:
    """A name in `imports`: the path of a file relative to the configuration `path`; others unchanged."""
    return str(path.parent / name) if isinstance(name, str) and name.endswith(".py") else name


def _find_base(name: Any, path: Path, chain: Sequence[Path]) -> Path:
    """The file that `base` names: relative to the file that names it, else a bundled configuration."""
    if not isinstance(name, str):
        raise ConfigError(f"base: found {shortened(name)}, expected the name or the path of a configuration")
    from batchnav.runtime.bundled import find_config  # not at the top, since it imports torch

    candidates = [path.parent / name, path.parent / f"{name}.yaml"]
    try:
        found = next((file for file in map(as_path, candidates) if file.is_file()), None) or find_config(name)
    except (ConfigError, ArgumentError) as error:
        raise ConfigError(f"base: {error} (read through {_arrows(chain)})") from error
    if found.resolve() in chain:
        raise ConfigError(f"base: found a cycle, {_arrows([*chain, found.resolve()])}, expected a chain that ends")
    return found


def _arrows(chain: Sequence[Path]) -> str:
    return " -> ".join(file.name for file in chain)


def merged(base: Any, changes: Any) -> Any:
    """Nested dicts `base` with `changes` merged into them; neither is modified.

    A dict whose `name` differs from that of the base replaces it, since it selects another kind of settings.
    """
    if not (isinstance(base, dict) and isinstance(changes, dict)):
        return changes
    if "name" in changes and changes["name"] != base.get("name", changes["name"]):
        return changes
    return base | {key: merged(base.get(key), value) for key, value in changes.items()}


def _build(kind: type[T], data: Any, where: str) -> T:
    """`from_dict` for values with current keys."""
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
        field = known[key]
        if isinstance(value, dict) and PRESETS in field.metadata:
            value = _with_preset(field, value, name)
        if isinstance(value, dict) and KINDS in field.metadata:
            values[key] = _of_kind(field, value, name)
        elif isinstance(value, dict) and dataclasses.is_dataclass(hints[key]):
            values[key] = _build(hints[key], {**to_dict(_default(field), complete=True), **value}, name)
        else:
            values[key] = _convert(value, hints[key], name)
    result: Any = kind(**values)
    try:
        _check(result)
    except ConfigError as error:
        raise ConfigError(f"{where}.{error}" if where else str(error)) from error
    return result


def to_dict(config: Any, complete: bool = False) -> dict:
    """A dataclass as plain nested dicts for YAML and JSON; `from_dict` inverts it.

    `complete`: True keeps the sections of parts that are not in use.
    """

    def plain(value):
        if isinstance(value, dict):
            return {key: plain(entry) for key, entry in value.items()}
        return (
            list(value)
            if isinstance(value, tuple)
            else to_dict(value, complete)
            if dataclasses.is_dataclass(value)
            else value
        )

    unused = set() if complete else _section_names(config) - sections_in_use(config)
    values = {f.name: plain(getattr(config, f.name)) for f in dataclasses.fields(config) if f.name not in unused}
    for f in dataclasses.fields(config):
        if KINDS in f.metadata:
            kind = type(getattr(config, f.name))
            names = [name for name, known in f.metadata[KINDS]().items() if known is kind]
            values[f.name] = dict(zip(("name",), names, strict=False)) | values[f.name]
    return values


def _section_names(config: Any) -> set[str]:
    """Names of the sections of a configuration's parts, whether in use or not."""
    own = getattr(config, "_own_fields", None)
    return set() if own is None else {f.name for f in dataclasses.fields(config)} - {f.name for f in own}


def _default(field: dataclasses.Field) -> Any:
    """The default value of a field."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _with_preset(field: dataclasses.Field, data: dict, where: str) -> dict:
    """Settings merged over the preset that they name, without the key `preset`. ConfigError for an unknown name."""
    if "preset" not in data:
        return data
    presets, values = field.metadata[PRESETS](), dict(data)
    name = values.pop("preset")
    if not isinstance(name, str) or name not in presets:
        raise ConfigError(f"{where}.preset: found {shortened(name)}, expected one of {', '.join(presets)}")
    return merged(to_dict(presets[name], complete=True), values)


def _of_kind(field: dataclasses.Field, data: dict, where: str) -> Any:
    """Dataclass of the kind that the key `name` selects, else of the default's. ConfigError for an unknown name."""
    kinds, values = field.metadata[KINDS](), dict(data)
    if "name" not in values:
        return _build(type(_default(field)), values, where)
    name = values.pop("name")
    if not isinstance(name, str) or name not in kinds:
        raise ConfigError(f"{where}.name: found {shortened(name)}, expected one of {', '.join(kinds)}")
    return _build(kinds[name], values, where)


def validate(config: Any, where: str = "") -> None:
    """Validate a dataclass and the dataclasses in its fields. ConfigError for the first invalid value.

    `where`: dotted path of the dataclass with a dot at its end, for messages; "" for the whole configuration.

    Command-line options change fields without the checks of `from_dict`; call this afterwards.
    """
    hints = typing.get_type_hints(type(config))
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        if typing.get_origin(hints[f.name]) is Literal:
            _convert(value, hints[f.name], f"{where}{f.name}")
        parts = (
            {f"{f.name}.{name}": part for name, part in value.items()} if isinstance(value, dict) else {f.name: value}
        )
        for name, part in parts.items():
            if dataclasses.is_dataclass(part):
                validate(part, f"{where}{name}.")
    try:
        _check(config)
    except ConfigError as error:
        raise ConfigError(f"{where}{error}") from error


def _check(config: Any) -> None:
    """ConfigError for a value of a dataclass out of the range of its field, or that its method `validate` refuses."""
    for name, (low, high) in ranges(type(config)).items():
        value = getattr(config, name)
        for single in value if isinstance(value, tuple) else () if value is None else (value,):
            check_range(name, single, low, high)
    if hasattr(config, "validate"):
        config.validate()


def _convert(value: Any, hint: Any, name: str) -> Any:
    """A YAML value as the annotated type `hint`. ConfigError, with the key `name`, for another type."""
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
        return value if isinstance(value, hint) else _build(hint, value, name)
    if origin is tuple:
        if isinstance(value, (list, tuple)):
            return tuple(_convert(v, arguments[0], f"{name}[{i}]") for i, v in enumerate(value))
        raise ConfigError(f"{name}: found {shortened(value)}, expected a list")
    if hint in (int, float) and isinstance(value, _NUMBERS[hint]) and not isinstance(value, bool):  # NumPy numbers too
        with contextlib.suppress(OverflowError):
            return hint(value)
    elif isinstance(value, hint) and not (isinstance(value, bool) and hint is not bool):
        return value
    hint_name = getattr(hint, "__name__", str(hint))
    hint_note = " (YAML reads 1e-3 as text: write 1.0e-3)" if hint is float and isinstance(value, str) else ""
    raise ConfigError(f"{name}: found {shortened(value)}, expected {hint_name}{hint_note}")


_NUMBERS = {int: numbers.Integral, float: numbers.Real}


def in_range(config: Any, name: str, low: float, high: float) -> None:
    """ConfigError where the field `name` of a dataclass is outside `low` to `high`, both included."""
    check_range(name, getattr(config, name), low, high)


def check_range(name: str, value: float, low: float, high: float) -> None:
    """ConfigError, with the name, where a value is outside `low` to `high`, both included."""
    if not low <= value <= high:  # NaN fails here too
        raise ConfigError(f"{name}: found {shortened(value)}, expected {low:g} to {high:g}")


class _Loader(yaml.SafeLoader):
    """Loader of plain values within MAX_DEPTH and MAX_VALUES. A mapping has each key once.

    Values behind aliases count each time, since nested aliases in a few lines can expand to 10^9 values.
    """

    depth = 0

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None and _expanded_size(node, {}) > MAX_VALUES:
            raise yaml.YAMLError(f"with its aliases expanded it has more than {MAX_VALUES:,} values")
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        known: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in known:
                    raise yaml.YAMLError(f"line {key.start_mark.line + 1} gives the key {key.value!r} a second time")
                known.add(key.value)
        return node

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise yaml.YAMLError(f"it is nested deeper than {MAX_DEPTH} levels")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _expanded_size(node: yaml.Node, known: dict[yaml.Node, int]) -> int:
    """Number of values in a node after alias expansion. `known`: the sizes of nodes found so far."""
    if node not in known:
        known[node] = MAX_VALUES + 1  # an alias to a node inside that node never ends: too large
        parts = node.value if not isinstance(node, yaml.ScalarNode) else ()
        flat = [n for part in parts for n in (part if isinstance(part, tuple) else (part,))]
        known[node] = 1 + sum(_expanded_size(n, known) for n in flat)
    return known[node]
