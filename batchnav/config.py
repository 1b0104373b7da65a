"""Every setting, as frozen dataclasses with the published defaults, and the strict reader of their YAML files.

A YAML file holds a (possibly partial) `PointNavRun` or `CartPoleRun`; what it leaves out keeps its default here. An
unknown key, a wrong type or a value out of range is a ConfigError that names it.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from batchnav.errors import ConfigError

T = TypeVar("T")

HOUSE_SPLITS = {"train": range(100_000), "val": range(100_000, 110_000), "test": range(110_000, 120_000)}
"""Disjoint seeds of training, validation and test houses (`houses.SPLITS`)."""


@dataclass(frozen=True)
class PointNavConfig:
    """The PointGoal task. Defaults: Habitat's `habitat_pointnav_v1` at the 64x64 depth of the paper's agents."""

    height: int = 64
    width: int = 64
    hfov_deg: float = 90.0
    camera_height: float = 1.25
    """Metres above the agent's point on the navmesh."""
    min_depth: float = 0.0
    max_depth: float = 10.0
    """Depth is clipped to [min_depth, max_depth] metres and scaled to 0..1."""
    hole_value: float = 0.0
    """What a ray that hits nothing reads, 0..1: 0 is Habitat's convention, 1 makes a hole far."""
    backface_culling: bool = False
    forward_step: float = 0.25
    turn_angle_deg: float = 10.0
    sliding: bool = True
    agent_radius: float = 0.1
    agent_height: float = 1.5
    max_steps: int = 500
    success_distance: float = 0.2
    """Success: stop was called and the geodesic distance to the goal is below this, in metres."""
    slack_reward: float = -0.01
    success_reward: float = 2.5
    """Times SPL, at a successful stop."""
    closest_goal: float = 1.0
    furthest_goal: float = 30.0
    """Sampled episodes have a geodesic distance in [closest_goal, furthest_goal] metres."""
    min_detour_ratio: float = 1.1
    """Sampled episodes of a lower geodesic over Euclidean distance are mostly rejected (Habitat's rule)."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        _in_range(self, "height", 4, 1024)
        _in_range(self, "width", 4, 1024)
        _in_range(self, "hfov_deg", 1.0, 170.0)
        _in_range(self, "camera_height", 0.0, 10.0)
        _in_range(self, "min_depth", 0.0, 1e3)
        _in_range(self, "max_depth", self.min_depth + 1e-3, 1e3)
        _in_range(self, "hole_value", 0.0, 1.0)
        _in_range(self, "forward_step", 1e-3, 10.0)
        _in_range(self, "turn_angle_deg", 1e-3, 180.0)
        _in_range(self, "agent_radius", 0.0, 10.0)
        _in_range(self, "agent_height", 1e-2, 10.0)
        _in_range(self, "max_steps", 1, 2**31 - 1)
        _in_range(self, "success_distance", 1e-3, 100.0)
        _in_range(self, "closest_goal", 0.0, 1e3)
        _in_range(self, "furthest_goal", self.closest_goal + 1e-3, 1e4)
        _in_range(self, "min_detour_ratio", 1.0, 10.0)


PRESETS: dict[str, PointNavConfig] = {
    "habitat_pointnav_v1": PointNavConfig(height=256, width=256),
    "bps_depth64": PointNavConfig(),
    "challenge_2020_noiseless": PointNavConfig(
        height=360, width=640, hfov_deg=70.0, camera_height=0.88, min_depth=0.1, turn_angle_deg=30.0, sliding=False,
        agent_radius=0.18, agent_height=0.88, success_distance=0.36,
    ),
}  # fmt: skip
"""Published variants by name. The 2020 challenge without its sensor and actuation noise."""


@dataclass(frozen=True)
class PolicyConfig:
    """The actor-critic. Defaults: the paper's agent, 10,988,085 parameters at 64x64 depth."""

    encoder: str = "se_resnet9"
    """A name from `batchnav.policy.ENCODERS`; an image observation is read by it."""
    base_width: int = 64
    depth_bins: int = 10
    """One-hot channels appended to a one-channel image, each a tenth of its range for 10; 0 appends none."""
    visual_size: int = 512
    hidden_size: int = 512
    lstm_layers: int = 2
    """0: no memory; the policy is then a feed-forward network."""
    embedding_size: int = 32
    """Width of each vector observation's and of the previous action's embedding."""
    polar: tuple[str, ...] = ("pointgoal",)
    """Vector observations [r, angle] that the network reads as [r, cos, sin]."""
    blind: bool = False
    """Leave image observations out: the control experiment."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        _in_range(self, "base_width", 2, 512)
        _in_range(self, "depth_bins", 0, 64)
        _in_range(self, "visual_size", 1, 8192)
        _in_range(self, "hidden_size", 1, 8192)
        _in_range(self, "lstm_layers", 0, 8)
        _in_range(self, "embedding_size", 1, 4096)


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
        _in_range(self, "num_envs", 1, 2**24)
        _in_range(self, "rollout_steps", 1, 100_000)
        _in_range(self, "epochs", 1, 1000)
        _in_range(self, "minibatches", 1, self.num_envs)
        _in_range(self, "total_frames", 1, 10**13)
        _in_range(self, "gamma", 0.0, 1.0)
        _in_range(self, "gae_lambda", 0.0, 1.0)
        _in_range(self, "clip", 1e-6, 10.0)
        _in_range(self, "learning_rate", 0.0, 10.0)
        _in_range(self, "max_grad_norm", 1e-9, 1e9)
        _in_range(self, "lamb_min_trust", 1e-9, 1.0)
        if self.num_envs % self.minibatches:
            raise ConfigError(f"minibatches: found {self.minibatches}, expected a divisor of num_envs={self.num_envs}")

    @property
    def frames_per_update(self) -> int:
        """Environment steps between two updates of the policy."""
        return self.num_envs * self.rollout_steps


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
    """A PointNav episode file (`.json.gz`) to train on, shuffled, in the scenes that it names; no other scenes then."""
    slots: int = 0
    """Scenes in the device's memory at a time where there are more; the others take turns. 0: all at once."""
    gigabytes: float = 0.0
    """The device's memory that scenes may take, in 1e9 bytes: where all need more, as many slots as fit take turns. 0:
    no limit."""

    @property
    def names(self) -> list[str]:
        """The scenes' ids, and folders of scenes, as `data.scenes.scene_ids` takes them."""
        return [f"house:{self.first_house + i}" for i in range(self.houses)] + list(self.files)

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        _in_range(self, "houses", 0, 100_000)
        _in_range(self, "first_house", 0, 2**31)
        seeds, train = range(self.first_house, self.first_house + self.houses), HOUSE_SPLITS["train"]
        if seeds and seeds[-1] not in train:
            raise ConfigError(
                f"first_house: found {seeds[0]} with {self.houses} houses, which are seeds {seeds[0]} to {seeds[-1]}, "
                f"expected training houses, {train[0]} to {train[-1]}; others go by name, as files: [house:{seeds[-1]}]"
            )
        _in_range(self, "slots", 0, 100_000)
        if self.slots == 1:
            raise ConfigError(
                "slots: found 1, expected 0 (all scenes at once) or at least 2: one to load the next into"
            )
        _in_range(self, "gigabytes", 0.0, 1e6)
        for name in ("slots", "gigabytes"):
            if getattr(self, name) and self.episodes:
                raise ConfigError(
                    f"{name}: found {getattr(self, name)} with an episode file, expected 0: its scenes all stay"
                )
        if not (self.houses or self.files or self.episodes):
            raise ConfigError("scenes: found neither houses, files nor episodes, expected at least one scene")


@dataclass(frozen=True)
class PointNavRun:
    """One training run of a PointGoal agent."""

    task: PointNavConfig = field(default_factory=PointNavConfig)
    scenes: ScenesConfig = field(default_factory=ScenesConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    device: str = "auto"
    renderer: Literal["raycast", "opengl", "auto"] = "raycast"
    """auto: both draw a few batches at each start, and the faster is taken; the choice is logged."""
    seed: int = 0
    compile: bool = False
    """Run the policy through torch.compile."""
    graphs: bool = False
    """Replay rollouts and optimiser steps as CUDA graphs: the same losses with less work for the host. No effect on the
    CPU."""
    deterministic: bool = False
    """Only operations that give the same bits twice: the same seed then has the same losses on the same GPU. On the CPU
    that is so without it."""
    save_every: float = 60.0
    """Seconds between two saves of weights and resume state."""
    eval_every: int = 0
    """Frames between two evaluations on the validation episodes; 0: none while training."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        if (self.scenes.slots or self.scenes.gigabytes) and self.renderer != "raycast":
            raise ConfigError(f"renderer: found {self.renderer!r} with scenes that take turns, expected 'raycast'")
        _in_range(self, "save_every", 0.0, 1e9)
        _in_range(self, "eval_every", 0, 10**13)
        _in_range(self, "seed", 0, 2**62)


@dataclass(frozen=True)
class CartPoleRun:
    """One training run on CartPole."""

    policy: PolicyConfig = field(default_factory=lambda: PolicyConfig(lstm_layers=0, hidden_size=64))
    ppo: PPOConfig = field(default_factory=lambda: PPOConfig(num_envs=64, timeout_bootstrap=True))
    device: str = "auto"
    seed: int = 0

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        _in_range(self, "seed", 0, 2**62)


def load_config(path: str | Path, kind: type[T]) -> T:
    """Read a YAML file as the dataclass `kind`. ConfigError names the file, the key, and what was expected."""
    path = Path(path)
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not YAML ({' '.join(str(error).split())})") from error
    try:
        return from_dict(kind, {} if data is None else data)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def from_dict(kind: type[T], data: Any, where: str = "") -> T:
    """Build the dataclass `kind` from nested dicts, strictly, and validate it."""
    if not isinstance(data, dict):
        raise ConfigError(f"{where or kind.__name__}: found {type(data).__name__}, expected a mapping")
    hints, known = typing.get_type_hints(kind), {f.name: f for f in dataclasses.fields(kind)}
    values = {}
    for key, value in data.items():
        name = f"{where}.{key}" if where else str(key)
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.0)
            raise ConfigError(f"{name}: unknown key; the nearest is {near[0]!r}")
        default = known[key]
        if isinstance(value, dict) and dataclasses.is_dataclass(hints[key]):
            base = default.default_factory() if default.default is dataclasses.MISSING else default.default
            values[key] = from_dict(hints[key], {**to_dict(base), **value}, name)
        else:
            values[key] = _convert(value, hints[key], name)
    result = kind(**values)
    try:
        result.validate()
    except ConfigError as error:
        raise ConfigError(f"{where}.{error}" if where else str(error)) from error
    return result


def to_dict(config: Any) -> dict:
    """A dataclass as plain nested dicts that YAML and JSON can hold; `from_dict` inverts it."""

    def plain(value):
        return list(value) if isinstance(value, tuple) else to_dict(value) if dataclasses.is_dataclass(value) else value

    return {f.name: plain(getattr(config, f.name)) for f in dataclasses.fields(config)}


def validate(config: Any) -> None:
    """Validate a dataclass and those inside it (after command-line overrides)."""
    for f in dataclasses.fields(config):
        if dataclasses.is_dataclass(getattr(config, f.name)):
            validate(getattr(config, f.name))
    config.validate()


def _convert(value: Any, hint: Any, name: str) -> Any:
    """A YAML value as the annotated type, or ConfigError."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if value in arguments:
            return value
        raise ConfigError(f"{name}: found {value!r}, expected one of {', '.join(map(repr, arguments))}")
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _convert(value, next(a for a in arguments if a is not type(None)), name)
    if origin is tuple:
        if isinstance(value, (list, tuple)):
            return tuple(_convert(v, arguments[0], f"{name}[{i}]") for i, v in enumerate(value))
        raise ConfigError(f"{name}: found {value!r}, expected a list")
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, hint) and not (isinstance(value, bool) and hint is not bool):
        return value
    hint_name = getattr(hint, "__name__", str(hint))
    hint_note = " (YAML reads 1e-3 as text: write 1.0e-3)" if hint is float and isinstance(value, str) else ""
    raise ConfigError(f"{name}: found {value!r}, expected {hint_name}{hint_note}")


def _in_range(config: Any, name: str, low: float, high: float) -> None:
    value = getattr(config, name)
    if not low <= value <= high:  # NaN fails here too
        raise ConfigError(f"{name}: found {value}, expected {low:g} to {high:g}")
