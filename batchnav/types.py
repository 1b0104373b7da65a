"""The words every room of the house speaks. Read this first.

Letters:  N environments (agents), T rollout steps, K scenes, V vertices, F triangles, P polygons, H x W image.
Units:    SI: metres, seconds, radians unless a name ends in `_deg`.
Frame:    right-handed, +Y up; heading 0 looks along -Z and grows to the left (counter-clockwise from above).
Depth:    planar (along the camera's forward axis), metres; 0 where nothing is hit.
Kernels:  NamedTuples of arrays travel into compiled code as one argument; what is written comes last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from gymnasium import spaces

Observation = dict[str, torch.Tensor]
Column = TypeVar("Column")
"""What a NamedTuple of arrays holds for each: NumPy's on the host, torch's on a device, or how many rows there are."""


class Texture(NamedTuple):
    """An image on surfaces, and how it is read between its texels: a glTF sampler's settings."""

    pixels: np.ndarray
    """u8 [h, w, 4], RGBA, rows from the top: UV (0, 0) is the top left corner. Bytes are shown as they are."""
    wrap: tuple[str, str] = ("repeat", "repeat")
    """Of U and V: "repeat", "mirror" or "clamp"."""
    magnify: str = "linear"
    """"nearest" or "linear"."""
    minify: str = "linear_mipmap_linear"
    """"nearest", "linear", or one of these, then "_mipmap_", then how mip levels are chosen: one or the other again."""


class Material(NamedTuple):
    """Unlit: what is seen is color x texture x vertex colour, each channel by itself."""

    color: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0)
    """RGBA, 0 to 1."""
    texture: int = -1
    """Row of `Surface.textures`; -1: none."""


LIGHT_STEPS = 16
"""Of full light, in which houses are shaded."""


class Surface(NamedTuple):
    """What a mesh's F triangles look like, and what they are part of. Runs that see depth alone never read it."""

    material: np.ndarray
    """i32 [F], rows of `materials`."""
    materials: tuple[Material, ...]
    textures: tuple[Texture, ...] = ()
    uv: np.ndarray | None = None
    """f32 [F, 3, 2], of the corners of each triangle; None: no material has a texture."""
    color: np.ndarray | None = None
    """u8 [F, 3, 4], RGBA of the corners; None: white."""
    object_id: np.ndarray | None = None
    """i32 [F]: the instance that a triangle is part of, as the data set numbers them; None: not known."""
    category: np.ndarray | None = None
    """i32 [F], rows of `categories`; None: not known."""
    categories: tuple[str, ...] = ()
    """Names; row 0 is what has no category."""
    finish: np.ndarray | None = None
    """i32 [M, 4], of each material that may be randomised (`scene/material_sampling.py`): number of the finish that it is
    a shade of, the finish's kind (-1: it stays as it is), its light in `LIGHT_STEPS`, and 1 where it is the mean colour
    of the finish's texture; None: all stay as they are, as those of files do."""


class TriangleMesh(NamedTuple):
    """Triangles in the world frame: +Y up, metres."""

    vertices: np.ndarray
    """f32 [V, 3]."""
    faces: np.ndarray
    """i32 [F, 3], counter-clockwise seen from the front."""
    num_dropped: int = 0
    """Triangles left out at loading because they were degenerate or not finite."""
    surface: Surface | None = None
    """None where a file says nothing of it, or nobody asked."""


class Visibility(NamedTuple):
    """What each pixel sees: a visibility buffer (Burns and Hunt, JCGT 2(2), 2013). Colour follows from it."""

    depth: torch.Tensor
    """f32 [N, H, W], metres; 0 where nothing is hit."""
    triangle: torch.Tensor
    """i32 [N, H, W]: which triangle of the bank, -1 where nothing is hit. Scene k's triangles are numbered from
    `bank.first_triangle[k]` on in the order of its mesh's faces, so with one scene this indexes `scene.mesh.faces`."""


class Renderer(Protocol):
    """What every renderer offers: it finds surfaces and never shades. It owns what it returns, until its next call."""

    capturable: bool
    """Whether a CUDA graph can hold a call: it launches nothing but kernels."""

    def render(
        self,
        scene_index: torch.Tensor,
        position: torch.Tensor,
        heading: torch.Tensor,
        pitch: torch.Tensor | None = None,
        tan_half_hfov: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The depth alone: f32 [N, H, W] metres, 0 where nothing is hit.

        Args:
            scene_index: i32 [N], rows of the bank.
            position: f32 [N, 3], of the cameras.
            heading: f32 [N], radians.
            pitch: f32 [N], radians, up is positive; None: level.
            tan_half_hfov: f32 [N], half the width of each camera's image at distance 1; None: all have the field of
                view that the renderer was made with.
        """
        ...

    def visibility(
        self,
        scene_index: torch.Tensor,
        position: torch.Tensor,
        heading: torch.Tensor,
        pitch: torch.Tensor | None = None,
        tan_half_hfov: torch.Tensor | None = None,
    ) -> Visibility:
        """Depth and triangle of every pixel; the arguments are those of `render`."""
        ...


class Spec(NamedTuple):
    """What one observation of an environment is: sensors and tasks declare it, everybody else reads it."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    low: float
    high: float
    storage: torch.dtype
    """How a rollout keeps it on CUDA; on the CPU as it is observed."""

    def stored_on(self, device: torch.device) -> torch.dtype:
        """The type in which a rollout on this device keeps it."""
        return self.storage if device.type == "cuda" else self.dtype

    @property
    def box(self) -> spaces.Box:
        """As Gymnasium says it."""
        return spaces.Box(self.low, self.high, self.shape, torch.empty(0, dtype=self.dtype).numpy().dtype)


class Requirements(NamedTuple):
    """Inputs that an observation source reads: renderers, scene banks and memory prediction go by them."""

    camera: str | None = None
    """Name of the camera whose images it reads, "" for the main one; None: it reads no image."""
    scale: int = 1
    """Rendered rows (and columns) per row (and column) of the observation."""
    triangles: bool = False
    """True where it reads triangle indices besides depth."""
    appearance: frozenset[str] = frozenset()
    """Fields of `scene.appearance.Appearance` that it reads."""
    max_depth: float = 0.0
    """Metres beyond which a surface and a hole may read the same."""
    pose: bool = False
    """True where it reads the bodies' pose and their start pose."""
    map: bool = False
    """True where it reads the agents' own map, which accumulates over an episode."""
    goal: frozenset[str] = frozenset()
    """Attributes of the task that it reads, such as "relative_goal"."""


class Frame(Protocol):
    """One moment of N agents, as observation sources read it. Results are computed on first use, once per moment."""

    num_envs: int
    device: torch.device
    bodies: Any
    """Live tensors of the agents' bodies (`sim.bodies.Bodies`)."""
    task: Any
    """The `Task` of the agents, or None."""
    appearance: Any
    """Fields of `scene.appearance.Appearance` on the device, or None."""

    def cameras(self, name: str) -> Any:
        """The N cameras of a name, where they are at this moment (`sensors.sensor.Cameras`)."""
        ...

    def depth(self, camera: str, scale: int = 1) -> torch.Tensor:
        """Planar depth f32 [N, scale * H, scale * W], metres, 0 for holes; without sensor noise."""
        ...

    def triangle(self, camera: str, scale: int = 1) -> torch.Tensor:
        """Triangle indices i32 [N, scale * H, scale * W], -1 for holes. Only for sources that require triangles."""
        ...

    def shared(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """The result of `compute`, called for the first source of this moment that asks by this key."""
        ...

    def resource(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The object that `make` returned to the first source that asked by this key; kept for all moments."""
        ...

    def elsewhere(self, bodies: Any, sources: Any) -> Any:
        """A frame of the same cameras on other bodies in the same scenes, for sources of its own."""
        ...


class ObservationSource(Protocol):
    """One observation of an agent. The environment, rollouts, memory prediction and reports read the declaration.

    A source is made from a configuration alone, so that its declaration needs no environment. Subclasses set `spec` and
    `requires`, define `write`, and override the other members where they keep something between steps.
    """

    spec: Spec
    requires: Requirements

    def memory(self, num_envs: int, device: torch.device) -> Mapping[str, int]:
        """Bytes that it allocates besides images and observation, by part; sources count a part of one name once."""
        return {}

    def bind(self, frame: Frame) -> None:
        """Allocate for the agents of a frame. Called once, before `write`; ConfigError where an input is missing."""
        return

    def reset(self) -> None:
        """Forget all episodes: numbers of episodes begin again."""
        return

    @property
    def state(self) -> Mapping[str, torch.Tensor]:
        """Live tensors that the next observation depends on, by name, for saving and resuming."""
        return {}

    @property
    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Lowest and highest valid values of `state`, by name, for tensors with a limited range."""
        return {}

    def write(self, frame: Frame, out: torch.Tensor) -> None:
        """Write the observation of this moment to `out` [N, *spec.shape], of the spec's dtype or its storage."""
        ...


class TaskObservation(ObservationSource):
    """An observation that the task keeps up to date: a copy of `frame.task.observations[spec.name]`."""

    def __init__(self, spec: Spec):
        self.spec, self.requires = spec, Requirements(goal=frozenset({"observations"}))

    def write(self, frame: Frame, out: torch.Tensor) -> None:
        """Copy the live tensor."""
        out.copy_(frame.task.observations[self.spec.name])


class Metric(NamedTuple):
    """What a figure of an episode is: a task declares it; intervals, tables, curves and result rows read it."""

    name: str
    low: float = 0.0
    high: float = math.inf
    """The least and the greatest value that an episode can have."""
    binary: bool = False
    """Every episode has 0 or 1, so that the mean is a proportion."""
    headline: bool = False
    """Agents are compared by it, training shows it, and result files keep it."""
    shown: bool = True
    """Tables of one agent have it."""


class Task(Protocol):
    """What agents are to do, as the simulator runs it and an environment shows it. One file each, in `tasks/`.

    `advance`, `score`, `begin_episodes` and `sample_episodes` only launch kernels, in the order that `sim/simulator.py` has on one page, on
    torch's current stream. A task owns its goal, reward and metrics.
    """

    Config: type
    """The dataclass of its settings."""
    config: Any
    """Its settings."""
    title: str
    """What people call it."""
    episode_file: str
    """Name of its fixed episodes among the files of `assets/episodes`; `{split}` stands in it."""
    reference_agents: tuple[str, ...]
    """Names of the agents of `evaluation.agents` that can play it."""
    metric_specs: tuple[Metric, ...]
    """What is measured of an episode, the most telling first."""
    goal_images: Mapping[str, str]
    """Images of the goal that agents observe: names of camera sensors by the name of the observation. Such a task has
    live tensors `goal_position` f32 [N, 3], on the navmesh, and `goal_heading` f32 [N], radians."""
    observations: Mapping[str, torch.Tensor]
    """Live tensors of the task's observations, by name; `sources` declares them."""
    relative_goal: torch.Tensor | None
    """f32 [N, 2]: distance in metres and bearing in radians of the goal at this moment, where agents know them; None
    where they do not."""
    reward: torch.Tensor
    """f32 [N], of the last step."""
    metrics: Mapping[str, torch.Tensor]
    """f32 [N] by name, as `metric_specs` has them: of the episodes just ended where `Bodies.done`, else of those that
    run."""
    episode_info: Mapping[str, torch.Tensor]
    """f32 [N] by name: what is known of a running episode from its start on, as how far the goal was."""
    target: torch.Tensor | None
    """f32 [N, 3]: where an agent that knows the map would go, and what maps show; None where there is no such place."""
    target_radius: float
    """Metres from the target within which one has arrived."""
    state: NamedTuple
    """All tensors [N, ...] that the next step depends on, bodies apart."""
    ranges: Mapping[str, tuple[float, float]]
    """The lowest and highest values of the state that kernels can go on from, by name, where not all are good."""
    max_steps: int
    num_fixed: int
    """Fixed episodes that are played in turn, environment i those with numbers i, i + N, i + 2N ...; 0: none."""
    no_episode_message: str
    """What is wrong with a scene that has no episode to offer."""

    def advance(self, actions: torch.Tensor) -> None:
        """Walk every body, say whether its episode is at its end, leave the transition.

        Actions are i64 [N], or speeds f32 [N, 2], contiguous: what the body's control is (`sim.bodies.BodyConfig`).
        """
        ...

    def score(self) -> None:
        """Reward and metrics, from the transition: the next episode may have begun meanwhile."""
        ...

    def begin_episodes(self, everyone: bool) -> None:
        """Begin the episodes that are due, or everyone's; queue their agents; observe."""
        ...

    def sample_episodes(self) -> None:
        """Draw the queued agents' next episodes."""
        ...

    @staticmethod
    def sources(config: Any) -> tuple[ObservationSource, ...]:
        """Observations that the task offers besides sensors, such as the goal's position."""
        ...

    @staticmethod
    def arrays(n: int, device: torch.device, config: Any) -> tuple[Any, ...]:
        """All that it keeps of `n` agents: tensors, and NamedTuples of them."""
        ...

    @staticmethod
    def search_rows(num_envs: int, device: torch.device, chunks: int) -> tuple[int, ...]:
        """How many path searches run at a time, for each of its kernels that search."""
        ...


class VecEnv(Protocol):
    """The seam between the world and the learner: a `gymnasium.vector.VectorEnv` on torch tensors.

    Every environment has every member: nobody probes. Autoreset is SAME_STEP: the observation after an episode's end is
    the next episode's first. Returned tensors are valid until the next call.
    """

    num_envs: int
    device: torch.device
    single_observation_space: Any
    """A Box, or a Dict of Boxes by name."""
    single_action_space: Any
    """Discrete, or a Box of floats [A]."""
    storage: Mapping[str, torch.dtype]
    """How a rollout keeps each observation on this device, by name ("observation" where there is but one): an image may
    be kept in bfloat16, as the network reads it; an id never is."""

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph can hold a step.

        Such a step only launches kernels, on torch's current stream or on streams that `settle` brings back to it, and
        reads and writes tensors that stay where they are.
        """
        ...

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, Mapping]:
        """Start all episodes anew: observation, info."""
        ...

    def observe_into(self, out: Observation | None) -> None:
        """From now on have `step` write its observations into these tensors, by name, and return them.

        They have the storage's types, and what is not named need not be made. None: the environment's own again. An
        environment may go on returning its own; the caller copies what it does not find in place.
        """
        ...

    def step(self, actions: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor, Mapping]:
        """Actions -> observation, reward f32 [N], terminated bool [N], truncated bool [N], info.

        Actions are i64 [N], or f32 [N, A] where the action space is a Box.

        info["episode"] holds f32 [N] tensors by name, meaningful where the bool [N] info["_episode"] is set;
        info["final_obs"], where the environment was asked for it, is the observation before the reset, meaningful where
        info["_final_obs"] is set.
        """
        ...

    def settle(self) -> None:
        """Let torch's current stream wait for what steps run on others."""
        ...

    def between_rollouts(self) -> dict[str, float]:
        """What is to be done on the host now and then; the learner calls it once an update. Figures for the curves.

        Raises what kernels noted: ArgumentError for actions out of range, EpisodeError for a scene without episodes.
        """
        ...

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Everything that the next step depends on; `load_state_dict` continues exactly from there."""
        ...

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Continue from `state_dict`'s result. CheckpointError where it is not of this environment."""
        ...

    def close(self) -> None:
        """Free what the environment holds; it cannot be used any more."""
        ...
