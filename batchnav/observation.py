"""Observations: what a source of an agent's observations declares and does. Protocols of `batchnav.types` refer to it.

Letters, units and frames are those of `batchnav/types.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import torch
from gymnasium import spaces


class Spec(NamedTuple):
    """Declaration of one observation. Sensors and tasks make it; environments, rollouts and policies read it."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    low: float
    high: float
    """Lowest and highest possible values."""
    storage: torch.dtype
    """Type of a rollout's copy on CUDA. On the CPU a rollout keeps `dtype`."""

    def stored_on(self, device: torch.device) -> torch.dtype:
        """Type of a rollout's copy on this device."""
        return self.storage if device.type == "cuda" else self.dtype

    @property
    def box(self) -> spaces.Box:
        """The Gymnasium space of the observation."""
        return spaces.Box(self.low, self.high, self.shape, torch.empty(0, dtype=self.dtype, device="cpu").numpy().dtype)


class Requirements(NamedTuple):
    """Inputs that an observation source reads. Renderers, scene banks and memory prediction use this declaration."""

    camera: str | None = None
    """Name of the camera whose images it reads, "" for the main one; None: it reads no image."""
    scale: int = 1
    """Rendered rows (and columns) per row (and column) of the observation."""
    triangles: bool = False
    """True where it reads triangle indices in addition to depth."""
    appearance: frozenset[str] = frozenset()
    """Fields of `scene.appearance.Appearance` that it reads."""
    max_depth: float = 0.0
    """Depth, metres, from which on a renderer may return holes instead of surfaces."""
    map: bool = False
    """True where it reads the agents' own map, which accumulates over an episode."""
    goal: frozenset[str] = frozenset()
    """Attributes of the task that it reads, such as "relative_goal"."""
    semantic: bool = False
    """True where its images show the mesh with semantic ids; some datasets have another mesh for colours."""
    pose: bool = False
    """True where it reads the agents' pose, or a goal relative to it, as odometry estimates them."""


class Frame(Protocol):
    """Input of observation sources: N agents at one step. Results are computed on first use, once per step."""

    num_envs: int
    device: torch.device
    bank: Any
    """The scenes (`scene.bank.SceneBank`), or None."""
    bodies: Any
    """Live tensors of the agents' bodies (`sim.bodies.Bodies`)."""
    odometry: Any
    """The bodies at the poses that odometry estimates: `bodies`, unless it drifts."""
    task: Any
    """The `Task` of the agents, or None."""
    material_sampler: Any
    """Sampler of the scenes' materials (`scene.material_sampling.MaterialSampler`), or None."""
    appearance: Any
    """Fields of `scene.appearance.Appearance` on the device, or None."""
    semantic_appearance: Any
    """Fields of `Appearance` of the mesh with the ids, for images with `semantic`, or None."""
    seeds: Any
    """Seed of the sensors' noise (`sensors.camera.Seeds`), or None."""
    seen: Any
    """Moving bodies in the images (`renderers.bodies.SeenBodies`), or None."""
    max_climb: float
    """Step height that the scenes' navmeshes are baked for, metres."""

    def cameras(self, name: str) -> Any:
        """The N cameras with this name, at their current poses (`sensors.sensor.Cameras`)."""
        ...

    def estimated_cameras(self, name: str) -> Any:
        """The N cameras with this name, at the poses that odometry estimates."""
        ...

    def estimated_goal(self, goal: torch.Tensor) -> torch.Tensor:
        """Live tensor f32 [N, 2]: distance and bearing of a goal by odometry, from those by the true poses."""
        ...

    def depth(self, camera: str, scale: int = 1, semantic: bool = False) -> torch.Tensor:
        """Planar depth f32 [N, scale * H, scale * W], metres, 0 for holes; without sensor noise."""
        ...

    def triangle(self, camera: str, scale: int = 1, semantic: bool = False) -> torch.Tensor:
        """Surface ids i32 [N, scale * H, scale * W] of `types.Visibility`. Only for sources that require triangles."""
        ...

    def shared(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """The result of `compute`, which is called for the first request of a key in this step."""
        ...

    def resource(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The object that `make` returned at the first request of a key; kept for all steps."""
        ...

    def begin(self, sources: Any) -> None:
        """Begin a step in which these sources are read: discard the results of the last step."""
        ...

    def with_bodies(self, bodies: Any, sources: Any, cameras: Any = None) -> Any:
        """A frame with the same scenes on other bodies, for other sources; None: with the same cameras."""
        ...


class ObservationSource(Protocol):
    """One observation of an agent. The environment, rollouts, memory prediction and reports read the declaration.

    A source is made from a configuration alone, so that its declaration needs no environment. Subclasses set `spec` and
    `requires`, define `write`, and override the other members where they have state.
    """

    spec: Spec
    requires: Requirements

    def memory(self, num_envs: int, device: torch.device) -> Mapping[str, int]:
        """Bytes that it allocates in addition to images and observation, by part; sources share parts by name."""
        return {}

    def bind(self, frame: Frame) -> None:
        """Allocate for the agents of a frame. Called once, before `write`; ConfigError where an input is missing."""
        return

    def reset(self) -> None:
        """Discard all state: episode numbers start again at 0."""
        return

    @property
    def state(self) -> Mapping[str, torch.Tensor]:
        """Live tensors that the next observation depends on, by name, for saving and resuming."""
        return {}

    @property
    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Lowest and highest valid values of `state`, by name, for tensors with a limited range."""
        return {}

    def restore(self, frame: Frame, set_materials: Callable[[int], None]) -> None:
        """Compute again what `state` leaves out. Called when a state has been loaded, before the next `write`.

        `set_materials`: gives the scenes the materials of a randomisation, by its number.
        """
        return

    @property
    def repeatable(self) -> bool:
        """True where a second `write` in a step writes the same observation and changes no state."""
        return not self.state

    @property
    def capturable(self) -> bool:
        """True where a CUDA graph can hold `write`."""
        return True

    def write(self, frame: Frame, out: torch.Tensor) -> None:
        """Write the current observation to `out` [N, *spec.shape], of the spec's dtype or its storage."""
        ...


def memory_of(sources: Iterable[ObservationSource], num_envs: int, device: torch.device) -> int:
    """Bytes that sources allocate in addition to images and observations; parts that they share count once."""
    parts: dict[str, int] = {}
    for source in sources:
        parts |= source.memory(num_envs, device)
    return sum(parts.values())


class TaskObservation(ObservationSource):
    """An observation that the task computes: a copy of `frame.task.observations[spec.name]`.

    Args:
        spec: spec of the observation.
        relative: True for distance and bearing of a goal from the agent's pose, which odometry estimates.
    """

    def __init__(self, spec: Spec, relative: bool = False):
        self.spec, self.requires = spec, Requirements(goal=frozenset({"observations"}), pose=relative)

    def write(self, frame: Frame, out: torch.Tensor) -> None:
        """Copy the live tensor."""
        found = frame.task.observations[self.spec.name]
        out.copy_(frame.estimated_goal(found) if self.requires.pose else found)
