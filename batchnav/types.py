"""Data types and protocols that all packages share. Read this first.

Letters:  N environments (agents), T rollout steps, K scenes, V vertices, F triangles, P polygons, H x W image.
Units:    SI: metres, seconds, radians unless a name ends in `_deg`.
Frame:    right-handed, +Y up; heading 0 looks along -Z and grows to the left (counter-clockwise from above).
Depth:    planar (along the camera's forward axis), metres; 0 where nothing is hit.
Kernels:  a NamedTuple of arrays is one argument. Arguments that a kernel writes come last; their names end in `_out`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

if TYPE_CHECKING:  # the help of commands imports this module, and PyTorch takes seconds
    import torch

    from batchnav.observation import ObservationSource

Observation = dict[str, "torch.Tensor"]
Column = TypeVar("Column")
"""Type of a NamedTuple's columns: NumPy arrays on the host, torch tensors on a device, or numbers of rows."""


class Blocks(NamedTuple):
    """An image with its mip levels in blocks of 4x4 texels (`scene/blocks.py`)."""

    width: int
    """Texels of the finest level."""
    height: int
    """Texels of the finest level."""
    words: np.ndarray
    """i64 [R, 8]: the blocks of all levels, finest first, row by row; each level begins a row of the array."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and 4, as of an image's array."""
        return self.height, self.width, 4


class Texture(NamedTuple):
    """An image on surfaces, with a glTF sampler's settings for reading it between texels."""

    pixels: np.ndarray | Blocks
    """u8 [h, w, 4], RGBA, rows from the top: UV (0, 0) is the top left corner. Bytes are shown unchanged. Large
    textures of scene files are in blocks; `batchnav.scene.blocks.pixels_of` gives the image of either kind."""
    wrap: tuple[str, str] = ("repeat", "repeat")
    """Modes for U and V outside 0 to 1: "repeat", "mirror" or "clamp"."""
    magnify: str = "linear"
    """Filter of an image that is enlarged: "nearest" or "linear"."""
    minify: str = "linear_mipmap_linear"
    """Filter of an image that is reduced: "nearest", "linear", or "F_mipmap_G" with F in a level, G between."""


class Material(NamedTuple):
    """Unlit material: the visible colour is color x texture x vertex colour, per channel."""

    color: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0)
    """RGBA, 0 to 1."""
    texture: int = -1
    """Row of `Surface.textures`; -1: none."""


LIGHT_STEPS = 16
"""Number of brightness levels of the shading that procedural scenes have in their colours."""


class Surface(NamedTuple):
    """Appearance and object labels of a mesh's F triangles. Depth sensors do not read it."""

    material: np.ndarray
    """i32 [F], rows of `materials`."""
    materials: tuple[Material, ...]
    textures: tuple[Texture, ...] = ()
    uv: np.ndarray | None = None
    """f32 [F, 3, 2]: texture coordinates of each triangle's corners; None: no material has a texture."""
    color: np.ndarray | None = None
    """u8 [F, 3, 4]: RGBA of each triangle's corners; None: white."""
    object_id: np.ndarray | None = None
    """i32 [F]: the dataset's number of the instance that a triangle belongs to; None: unknown."""
    category: np.ndarray | None = None
    """i32 [F], rows of `categories`; None: unknown."""
    categories: tuple[str, ...] = ()
    """Names; row 0 is for triangles without a category."""
    finish: np.ndarray | None = None
    """i32 [M, 4], a row for each material that may be randomised (`scene/material_sampling.py`): number of its finish,
    the finish's kind (-1: never randomised), its light in `LIGHT_STEPS`, and 1 where it is the mean colour of the
    finish's texture. None: no material is randomised, as in scenes from files."""
    tile: np.ndarray | None = None
    """i32 [F]: row of `tiles` for triangles whose ids vary (`scene/id_tiles.py`); -1 for others. None: all are -1."""
    tile_uv: np.ndarray | None = None
    """f32 [F, 3, 2]: position of each corner on the triangle's tile, texels."""
    tiles: np.ndarray | None = None
    """i32 [B, 3]: first row in `tile_ids`, width and height of each tile."""
    tile_ids: np.ndarray | None = None
    """i32 [T, 2]: object id and category of each texel; the rows of a tile from the top."""


FAR = 16384.0
"""Distance from the origin up to which float32 coordinates have steps of a millimetre or less, metres."""


class TriangleMesh(NamedTuple):
    """Triangles in the world frame: +Y up, metres."""

    vertices: np.ndarray
    """f32 [V, 3]."""
    faces: np.ndarray
    """i32 [F, 3], counter-clockwise seen from the front."""
    num_dropped: int = 0
    """Triangles that loading removed because they were degenerate or not finite."""
    surface: Surface | None = None
    """None where the file has no appearance or loading did not ask for it."""
    origin: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Position of the frame in the file's coordinates, metres: loading subtracts it from meshes far from the origin."""


class Visibility(NamedTuple):
    """Depth and triangle of each pixel: a visibility buffer (Burns and Hunt, JCGT 2(2), 2013)."""

    depth: torch.Tensor
    """f32 [N, H, W], metres; 0 where nothing is hit."""
    triangle: torch.Tensor
    """i32 [N, H, W]: triangle of the bank, -1 where nothing is hit, -2 - k for moving body k of the agent's world.
    Triangles of scene k have consecutive numbers from `bank.first_triangle[k]`, in the order of its mesh's faces:
    indices of `scene.mesh.faces` in a bank of one scene."""


class MovingBodies(NamedTuple):
    """Upright bodies of W worlds beside the robots, at most K each: people and standing objects. Renderers draw them.

    Body k of world w exists where k < `count[w]`. A person is a vertical capsule with a sphere as head; shapes are
    constants below.
    """

    count: torch.Tensor  # type: ignore[assignment]  # hides `tuple.count`
    """i32 [W], 0 to K."""
    position: torch.Tensor
    """f32 [W, K, 3]: centre of the foot, on the navmesh, metres."""
    heading: torch.Tensor
    """f32 [W, K], radians."""
    velocity: torch.Tensor
    """f32 [W, K, 2]: along X and Z, m/s."""
    radius: torch.Tensor
    """f32 [W, K], metres; of a box, half its side."""
    height: torch.Tensor
    """f32 [W, K], metres from the foot to the top."""
    shape: torch.Tensor
    """i32 [W, K]: PERSON, CYLINDER or BOX."""
    appearance: torch.Tensor
    """i32 [W, K]: row of the palette of colours."""


PERSON, CYLINDER, BOX = 0, 1, 2
"""Shapes of moving bodies."""
MAX_BODIES = 8
"""Largest number of people and standing objects in a world."""
NUM_APPEARANCES = 16
"""Number of rows of the palette that people's colours are drawn from; the rows after them are MultiON's cylinders'."""


class Metric(NamedTuple):
    """Declaration of one metric of an episode. Tasks make it; intervals, tables, curves and result rows read it."""

    name: str
    low: float = 0.0
    high: float = math.inf
    """Lowest and highest possible values of an episode."""
    binary: bool = False
    """True where an episode's value is 0 or 1, so that the mean is a proportion."""
    headline: bool = False
    """True where agents are compared by it, training shows it and result files keep it."""
    shown: bool = True
    """True where tables of one agent contain it."""


class Task(Protocol):
    """Goal, reward, metrics and end of episodes of N agents. One file each, in `tasks/`.

    `advance`, `score`, `begin_episodes` and `sample_episodes` only launch kernels, on torch's current stream, in the
    order that `sim/simulator.py` explains. A task owns its goal, reward and metrics.
    """

    Config: type
    """Dataclass of its configuration."""
    config: Any
    """Its configuration."""
    title: str
    """Display name."""
    episode_file: str
    """Name of its files of fixed episodes in `assets/episodes`, with the placeholder `{split}`."""
    reference_agents: tuple[str, ...]
    """Names of the reference agents (`agents.registry`) that support it."""
    metric_specs: tuple[Metric, ...]
    """Metrics of an episode, the most important first."""
    goal_kind: str
    """Kind of its goals, a name in `batchnav.data.goals.GOALS`, which decides how scenes get goals, how episodes are
    made and played, and what failures are called. "": no goal."""
    changes_goals: bool
    """True where an episode may have several goals, one after another."""
    goal_position: torch.Tensor | None
    """f32 [N, 3]: place of each agent's goal, metres on the navmesh; None: no place."""
    goal_heading: torch.Tensor | None
    """f32 [N]: heading at the goal, radians; None: any."""
    goal_category: torch.Tensor | None
    """i64 [N]: number of the goal's category among `SceneBank.goal_categories`, -1 for none; None: no categories."""
    goal_camera: torch.Tensor | None
    """f32 [N, 6]: camera of the goal's image, with the columns of `scene.goals.ObjectGoal.images`; None: no camera."""
    goal_number: torch.Tensor
    """i32 [N]: a number that changes where the agent gets another goal."""
    goal_index: torch.Tensor | None
    """i32 [N]: number of the current goal in the list of the episode; None for a task with one goal."""
    among_people: bool
    """True where the simulator always has a world of people (`batchnav.world`), though nobody may be in it."""
    observations: Mapping[str, torch.Tensor]
    """Live tensors of the task's observations, by name; `sources` declares them."""
    relative_goal: torch.Tensor | None
    """f32 [N, 2]: current distance (metres) and bearing (radians) of the goal; None where agents do not know them."""
    reward: torch.Tensor
    """f32 [N]: reward of the last step."""
    metrics: Mapping[str, torch.Tensor]
    """f32 [N] by name, in the order of `metric_specs`: of ended episodes where `Bodies.done`, else of running ones."""
    episode_info: Mapping[str, torch.Tensor]
    """f32 [N] by name: values of the running episode that are known from its start on, such as the start distance."""
    episode_details: Mapping[str, torch.Tensor]
    """f32 [N] by name: values of ended episodes besides `metrics`, such as the success of each subtask."""
    target: torch.Tensor | None
    """f32 [N, 3]: destination of an agent that knows the map; maps show it. None where the task has no destination."""
    target_radius: float
    """Metres from the target within which an agent has arrived."""
    state: NamedTuple
    """All tensors [N, ...] that the next step depends on, apart from the bodies: the state to resume from."""
    ranges: Mapping[str, tuple[float, float]]
    """Lowest and highest valid values of `state` and `observations`, by name."""
    max_steps: int
    """Steps after which an episode is truncated."""
    num_fixed: int
    """Number of fixed episodes, 0 for none. Environment i plays those with numbers i, i + N, i + 2N ..."""
    no_episode_message: str
    """Error text for a scene in which no episode can be sampled."""

    @property
    def nearest_target(self) -> torch.Tensor | None:
        """`target`, or the nearest of several destinations at the last `update_nearest_target`: f32 [N, 3]."""
        ...

    def update_nearest_target(self) -> None:
        """Find the destinations that are nearest to the agents' current positions."""
        ...

    def check_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """CheckpointError where tensors of a saved state, each within its range, do not fit together."""
        ...

    def advance(self, actions: torch.Tensor) -> None:
        """Move every body, flag the episodes that end, and record the transition for `score`.

        Actions are contiguous: i64 [N], or velocity commands f32 [N, 2], as `sim.bodies.BodyConfig.control` says.
        """
        ...

    def score(self) -> None:
        """Compute reward and metrics from the transition: the next episode may already have begun."""
        ...

    def begin_episodes(self, all_agents: bool) -> None:
        """Begin the next episode of agents that are done, or of all; queue these agents; observe the goal."""
        ...

    def sample_episodes(self) -> None:
        """Sample the queued agents' next episodes."""
        ...

    @staticmethod
    def sources(config: Any) -> tuple[ObservationSource, ...]:
        """Goal sensors and other observations that the task provides."""
        ...

    @staticmethod
    def goal_images(config: Any) -> Mapping[str, str]:
        """Images of the goal that agents observe: names of camera sensors by the name of the observation.

        Such a task has `goal_position` and `goal_heading`, or `goal_camera` where `goal_image_size` is not None.
        """
        ...

    @staticmethod
    def goal_image_size(config: Any) -> tuple[int, int] | None:
        """Height and width of `goal_images` from `goal_camera`; None: the main camera shows the goal's pose."""
        ...

    @staticmethod
    def goal_categories(config: Any) -> tuple[str, ...] | None:
        """Categories of the objects that the scene bank must hold (`SceneBank.pack`); None: the task needs none."""
        ...

    @staticmethod
    def arrays(n: int, device: torch.device, config: Any) -> tuple[Any, ...]:
        """Allocate all tensors of `n` agents: tensors and NamedTuples of tensors."""
        ...

    @staticmethod
    def search_rows(num_envs: int, device: torch.device, chunks: int) -> tuple[int, ...]:
        """Number of concurrent path searches of each set of scratch memory that it needs."""
        ...


class VecEnv(Protocol):
    """The environment that the learner sees: a `gymnasium.vector.VectorEnv` on torch tensors.

    Every environment has every member. Autoreset is SAME_STEP: the observation after an episode's end is the first of
    the next episode. Returned tensors are valid until the next call.
    """

    num_envs: int
    device: torch.device
    single_observation_space: Any
    """A Box, or a Dict of Boxes by name."""
    single_action_space: Any
    """Discrete, or a Box of floats [A]."""
    storage: Mapping[str, torch.dtype]
    """Type of a rollout's copy of each observation on this device, by name ("observation" where there is only one). An
    image may be kept in bfloat16, which the network reads; an id is not."""

    @property
    def capturable(self) -> bool:
        """True where a CUDA graph can hold a step.

        Such a step only launches kernels, on torch's current stream or on streams that `settle` brings back to it, and
        reads and writes tensors that stay where they are.
        """
        ...

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, Mapping]:
        """Begin new episodes in all environments. Returns observation and info."""
        ...

    def observe_into(self, out: Observation | None) -> None:
        """Have `step` write its observations into these tensors, by name, and return them, from now on.

        The tensors have the types of `storage`. An environment may leave out observations without a tensor. None: the
        environment's own tensors again. An environment may continue to return its own; the caller then copies them.
        """
        ...

    def step(self, actions: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor, Mapping]:
        """Actions -> observation, reward f32 [N], terminated bool [N], truncated bool [N], info.

        Actions are i64 [N], or f32 [N, A] where the action space is a Box.

        info["episode"] holds f32 [N] tensors by name, meaningful where the bool [N] info["_episode"] is set;
        info["final_obs"] is the observation before the reset, meaningful where info["_final_obs"] is set; it exists
        where the environment was made with `final_observation`.
        """
        ...

    def observe_again(self) -> Observation:
        """Those observations of the last step that follow from `state_dict`, by name, computed again; {} for none.

        A learner's state leaves them out. The call changes nothing that the next step depends on.
        """
        ...

    def settle(self) -> None:
        """Have torch's current stream wait for the work of steps on other streams."""
        ...

    def between_rollouts(self) -> dict[str, float]:
        """Do periodic work on the host; the learner calls it once per update. Returns values for the training curves.

        Raises errors that kernels flagged: ArgumentError for actions out of range, EpisodeError for a scene in which no
        episode can be sampled.
        """
        ...

    def state_dict(self) -> dict[str, torch.Tensor]:
        """All tensors that the next step depends on. A run that loads them continues exactly."""
        ...

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Continue from a result of `state_dict`. CheckpointError where it does not fit this environment."""
        ...

    def close(self) -> None:
        """Free the environment's resources. It cannot be used afterwards."""
        ...
