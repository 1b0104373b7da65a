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
from dataclasses import dataclass, field
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
HOUSE_SPLITS = {"train": range(100_000), "val": range(100_000, 110_000), "test": range(110_000, 120_000)}
"""Disjoint seeds of training, validation and test houses (`houses.SPLITS`)."""


@dataclass(frozen=True)
class PolicyConfig:
    """The actor-critic. Defaults: the paper's agent, 10,988,085 parameters at 64x64 depth."""

    encoder: str = "se_resnet9"
    """A name from `batchnav.policy.ENCODERS`; an image observation is read by it."""
    base_width: int = 64
    depth_bins: int = 10
    """One-hot channels that se_resnet9 appends to a one-channel image, each a tenth of its range for 10; 0: none."""
    visual_size: int = 512
    hidden_size: int = 512
    lstm_layers: int = 2
    """0: no memory; the policy is then a feed-forward network."""
    embedding_size: int = 32
    """Width of each vector observation's and of the previous action's embedding."""
    polar: tuple[str, ...] = ("pointgoal",)
    """Vector observations [r, angle] that the network reads as [r, cos, sin]."""
    log_distance: bool = False
    """Read their r by its logarithm and sines and cosines of that (`policy.actor_critic.log_distance`): centimetres
    count at a goal then, and fifty metres more do not drown all else. The paper's agent reads metres."""
    normalized: tuple[str, ...] = ()
    """Images whose channels are centred and scaled by their running mean and variance, as the paper's RGB agent's."""
    blind: bool = False
    """Leave image observations out: the control experiment."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        in_range(self, "base_width", 2, 512)
        in_range(self, "depth_bins", 0, 64)
        in_range(self, "visual_size", 1, 8192)
        in_range(self, "hidden_size", 1, 8192)
        in_range(self, "lstm_layers", 0, 8)
        in_range(self, "embedding_size", 1, 4096)


@dataclass(frozen=True)
class PPOConfig:
    """Large-batch PPO. Defaults: the paper's released depth settings (`train_depth.sh`)."""

    num_envs: int = 512
    rollout_steps: int = 32
    epochs: int = 1
    minibatches: int = 2
    """Each holds whole sequences of num_envs / minibatches environments."""
    total_frames: int = 2_500_000_000
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    value_coef: float = 0.5
    entropy_coef: float = 0.01
    max_grad_norm: float = 1.0
    optimizer: Literal["lamb", "adamw"] = "lamb"
    learning_rate: float = 5e-4
    """Base rate: scaled by sqrt(minibatch frames / 256) where that is above 1."""
    weight_decay: float = 1e-2
    lamb_min_trust: float = 0.01
    """LAMB's trust ratio is clipped to [this, 1 / this]; 1 is Adam."""
    timeout_bootstrap: bool = False
    """Bootstrap the value at a time-out (the environment must offer `final_obs`)."""
    normalize_advantage: bool = False

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        in_range(self, "num_envs", 1, 2**24)
        in_range(self, "rollout_steps", 1, 100_000)
        in_range(self, "epochs", 1, 1000)
        in_range(self, "minibatches", 1, self.num_envs)
        in_range(self, "total_frames", 1, 10**13)
        in_range(self, "gamma", 0.0, 1.0)
        in_range(self, "gae_lambda", 0.0, 1.0)
        in_range(self, "clip", 1e-6, 10.0)
        in_range(self, "learning_rate", 0.0, 10.0)
        in_range(self, "max_grad_norm", 1e-9, 1e9)
        in_range(self, "lamb_min_trust", 1e-9, 1.0)
        if self.num_envs % self.minibatches:
            raise ConfigError(f"minibatches: found {self.minibatches}, expected a divisor of num_envs={self.num_envs}")

    @property
    def frames_per_update(self) -> int:
        """Environment steps between two updates of the policy."""
        return self.num_envs * self.rollout_steps


@dataclass(frozen=True)
class KickstartConfig:
    """Kickstarting (Schmitt et al. 2018): the policy imitates a reference agent too, less and less as it learns."""

    teacher: Literal["", "greedy", "planner"] = ""
    """One that goes by the observations alone, as the policy has to; "": none."""
    coef: float = 0.1
    """Of the teacher's actions' negative log probability in the loss, at first."""
    share: float = 1.0
    """Of the run, in which it falls to 0; with 2, half of it is left at the end."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        in_range(self, "coef", 0.0, 1e6)
        in_range(self, "share", 1e-6, 1e6)


@dataclass(frozen=True)
class ScenesConfig:
    """Which scenes to train in: procedural houses by seed, and scene files."""

    houses: int = 16
    """Number of procedural houses."""
    first_house: int = 0
    """Seed of the first; the others follow. All are training seeds (`houses.SPLITS`): others are asked for by name, as
    "house:100003" in `files`."""
    files: tuple[str, ...] = ()
    """Mesh files, each with its `.navmesh` beside it or baked; folders of prepared scenes; or whatever `find_scene`
    finds by name."""
    episodes: str = ""
    """An episode file (`.json.gz`) to train on, shuffled, in the scenes that it names; no other scenes then."""
    slots: int = 0
    """Scenes in the device's memory at a time where there are more; the others take turns. 0: all at once."""
    gigabytes: float = 0.0
    """The device's memory that scenes may take, in 1e9 bytes: where all need more, as many slots as fit take turns. 0:
    no limit."""
    redraw_finishes: bool = False
    """Draw colours and textures of procedural houses anew while training, each house every 16 rollouts, so that agents
    that see colour do not know houses by them. Scenes from files, and those of evaluations, stay as they are."""
    largest_texture: int = 4096
    """Texels along a texture's longer side, where agents see colour: larger ones are read at a half, a quarter ..."""

    @property
    def names(self) -> list[str]:
        """The scenes' ids, and folders of scenes, as `data.scenes.scene_ids` takes them."""
        return [f"house:{self.first_house + i}" for i in range(self.houses)] + list(self.files)

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        in_range(self, "houses", 0, 100_000)
        in_range(self, "first_house", 0, 2**31)
        seeds, train = range(self.first_house, self.first_house + self.houses), HOUSE_SPLITS["train"]
        if seeds and seeds[-1] not in train:
            raise ConfigError(
                f"first_house: found {seeds[0]} with {self.houses} houses, which are seeds {seeds[0]} to {seeds[-1]}, "
                f"expected training houses, {train[0]} to {train[-1]}; others go by name, as files: [house:{seeds[-1]}]"
            )
        in_range(self, "slots", 0, 100_000)
        if self.slots == 1:
            raise ConfigError(
                "slots: found 1, expected 0 (all scenes at once) or at least 2: one to load the next into"
            )
        in_range(self, "gigabytes", 0.0, 1e6)
        in_range(self, "largest_texture", 1, 16384)
        for name in ("slots", "gigabytes"):
            if getattr(self, name) and self.episodes:
                raise ConfigError(
                    f"{name}: found {getattr(self, name)} with an episode file, expected 0: its scenes all stay"
                )
        if not (self.houses or self.files or self.episodes):
            raise ConfigError("scenes: found neither houses, files nor episodes, expected at least one scene")


@dataclass(frozen=True)
class CartPoleRun:
    """One training run on CartPole."""

    policy: PolicyConfig = field(default_factory=lambda: PolicyConfig(lstm_layers=0, hidden_size=64))
    ppo: PPOConfig = field(default_factory=lambda: PPOConfig(num_envs=64, timeout_bootstrap=True))
    device: str = "auto"
    seed: int = 0

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        in_range(self, "seed", 0, 2**62)


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
