"""What the simulator knows of every agent, as arrays that kernels read and write."""

from typing import NamedTuple

import numpy as np
import torch

from batchnav.config import PointNavConfig
from batchnav.errors import EpisodeError
from batchnav.runtime.arrays import check_tensor

METRICS = ("success", "spl", "soft_spl", "distance_to_goal", "collisions", "path_length", "steps", "return")
"""Rows of `StepResult.metrics`, in this order."""

STOP, FORWARD, LEFT, RIGHT = range(4)
"""The actions, numbered as Habitat numbers them."""
NUM_ACTIONS = 4


class Task(NamedTuple):
    """The numbers of `PointNavConfig` that kernels need, as float32 and int32 scalars."""

    forward_step: np.float32
    turn: np.float32
    sliding: bool
    max_steps: np.int32
    success_distance: np.float32
    slack_reward: np.float32
    success_reward: np.float32
    closest_goal: np.float32
    furthest_goal: np.float32
    min_detour_ratio: np.float32
    camera_height: np.float32

    @classmethod
    def of(cls, config: PointNavConfig) -> "Task":
        """The task that a configuration describes; the turn in radians."""
        return cls(
            np.float32(config.forward_step), np.float32(np.deg2rad(config.turn_angle_deg)), bool(config.sliding),
            np.int32(config.max_steps), np.float32(config.success_distance), np.float32(config.slack_reward),
            np.float32(config.success_reward), np.float32(config.closest_goal), np.float32(config.furthest_goal),
            np.float32(config.min_detour_ratio), np.float32(config.camera_height),
        )  # fmt: skip


class EpisodeTable(NamedTuple):
    """Fixed episodes, M of them; empty where episodes are sampled."""

    scene: torch.Tensor
    """i32 [M]."""
    start: torch.Tensor
    """f32 [M, 3]."""
    heading: torch.Tensor
    """f32 [M], radians."""
    goal: torch.Tensor
    """f32 [M, 3]."""

    def check(self, num_scenes: int, device: torch.device) -> None:
        """ArgumentError or EpisodeError unless kernels can play it in a bank of so many scenes (waits for the device).

        Scene indices are in range, starts, headings and goals finite.
        """
        rows = None
        for name, dtype, width in (
            ("scene", torch.int32, ()), ("start", torch.float32, (3,)), ("heading", torch.float32, ()),
            ("goal", torch.float32, (3,)),
        ):  # fmt: skip
            value = getattr(self, name)
            check_tensor(f"episodes.{name}", value, (rows, *width), dtype, device)
            rows = len(value)
            good = (value >= 0) & (value < num_scenes) if name == "scene" else torch.isfinite(value)
            bad = torch.nonzero(~(good.all(1) if width else good))
            if len(bad):
                row, expected = int(bad[0]), f"0 to {num_scenes - 1}" if name == "scene" else "finite numbers"
                raise EpisodeError(f"episodes.{name}[{row}]: found {value[row].tolist()}, expected {expected}")


class AgentState(NamedTuple):
    """The running episode of every agent. The simulator owns it; renderers and environments read it."""

    scene: torch.Tensor
    """i32 [N]."""
    position: torch.Tensor
    """f32 [N, 3], on the navmesh."""
    heading: torch.Tensor
    """f32 [N]: start_heading + turns * turn angle, so that no error accumulates."""
    start_heading: torch.Tensor
    """f32 [N]."""
    turns: torch.Tensor
    """i32 [N]: left turns less right turns."""
    goal: torch.Tensor
    """f32 [N, 3]."""
    start_distance: torch.Tensor
    """f32 [N]: geodesic distance to the goal at the start, which SPL uses."""
    distance: torch.Tensor
    """f32 [N]: geodesic distance to the goal now."""
    path_length: torch.Tensor
    """f32 [N]."""
    collisions: torch.Tensor
    """i32 [N]."""
    steps: torch.Tensor
    """i32 [N]."""
    episode_return: torch.Tensor
    """f32 [N]."""
    episode: torch.Tensor
    """i32 [N]: how many episodes this agent began before this one; the counter of its random numbers."""
    table_index: torch.Tensor
    """i32 [N]: row of the episode table, -1 where the episode was sampled or the table is used up."""

    @classmethod
    def empty(cls, n: int, device: torch.device) -> "AgentState":
        """State of `n` agents before their first reset."""
        f32, i32 = {"dtype": torch.float32, "device": device}, {"dtype": torch.int32, "device": device}
        return cls(
            torch.zeros(n, **i32), torch.zeros(n, 3, **f32), torch.zeros(n, **f32), torch.zeros(n, **f32),
            torch.zeros(n, **i32), torch.zeros(n, 3, **f32), torch.zeros(n, **f32), torch.zeros(n, **f32),
            torch.zeros(n, **f32), torch.zeros(n, **i32), torch.zeros(n, **i32), torch.zeros(n, **f32),
            torch.full((n,), -1, **i32), torch.full((n,), -1, **i32),
        )  # fmt: skip


class Walked(NamedTuple):
    """What a step leaves for judging it: the running episode as it was before the next one may have begun."""

    moved: torch.Tensor
    """bool [N]: the agent is elsewhere, so that its distance has to be found anew."""
    scene: torch.Tensor
    """i32 [N]."""
    position: torch.Tensor
    """f32 [N, 3]: after the step."""
    goal: torch.Tensor
    """f32 [N, 3]."""
    start_distance: torch.Tensor
    """f32 [N]: geodesic, from the episode's start."""
    distance: torch.Tensor
    """f32 [N]: geodesic, before the step."""
    episode_return: torch.Tensor
    """f32 [N]: before the step."""

    @classmethod
    def empty(cls, n: int, device: torch.device) -> "Walked":
        """Of `n` agents that have not moved."""
        f32 = {"dtype": torch.float32, "device": device}
        return cls(
            torch.zeros(n, dtype=torch.bool, device=device), torch.zeros(n, dtype=torch.int32, device=device),
            torch.zeros(n, 3, **f32), torch.zeros(n, 3, **f32), torch.zeros(n, **f32), torch.zeros(n, **f32),
            torch.zeros(n, **f32),
        )  # fmt: skip


class Upcoming(NamedTuple):
    """Every agent's next episode, drawn while the running one lasts, so that no step waits for the search."""

    queue: torch.Tensor
    """i32 [N]: the agents whose next episode is still to be drawn, in any order."""
    queued: torch.Tensor
    """i32 [1]: how many those are."""
    scene: torch.Tensor
    """i32 [N]."""
    start: torch.Tensor
    """f32 [N, 3]."""
    heading: torch.Tensor
    """f32 [N], radians."""
    goal: torch.Tensor
    """f32 [N, 3]."""
    distance: torch.Tensor
    """f32 [N]: geodesic, from start to goal."""
    table_index: torch.Tensor
    """i32 [N]: row of the episode table, -1 where there is none."""

    @classmethod
    def empty(cls, n: int, device: torch.device) -> "Upcoming":
        """Of `n` agents, none of them queued."""
        f32, i32 = {"dtype": torch.float32, "device": device}, {"dtype": torch.int32, "device": device}
        return cls(
            torch.zeros(n, **i32), torch.zeros(1, **i32), torch.zeros(n, **i32), torch.zeros(n, 3, **f32),
            torch.zeros(n, **f32), torch.zeros(n, 3, **f32), torch.zeros(n, **f32), torch.full((n,), -1, **i32),
        )  # fmt: skip


class StepResult(NamedTuple):
    """What one step gives back, for every agent."""

    pointgoal: torch.Tensor
    """f32 [N, 2]: (rho in metres, -phi in radians): distance in the plane and angle to the left of the goal."""
    camera: torch.Tensor
    """f32 [N, 3]: where the camera is."""
    reward: torch.Tensor
    """f32 [N]."""
    terminated: torch.Tensor
    """bool [N]: stop was called."""
    truncated: torch.Tensor
    """bool [N]: out of steps."""
    done: torch.Tensor
    """bool [N]: either."""
    metrics: torch.Tensor
    """f32 [8, N], rows as METRICS names them: of the episode just ended where `done`, else of the running one."""
    finished_index: torch.Tensor
    """i32 [N]: row of the episode table of the episode that `metrics` speaks of, -1 where there is none."""
    flags: torch.Tensor
    """i32 [2]: how many actions out of range were seen, and one more than the last scene where sampling failed."""

    @classmethod
    def empty(cls, n: int, device: torch.device) -> "StepResult":
        """Room for the results of `n` agents."""
        f32, mask = {"dtype": torch.float32, "device": device}, {"dtype": torch.bool, "device": device}
        return cls(
            torch.zeros(n, 2, **f32), torch.zeros(n, 3, **f32), torch.zeros(n, **f32), torch.zeros(n, **mask),
            torch.zeros(n, **mask), torch.zeros(n, **mask), torch.zeros(len(METRICS), n, **f32),
            torch.full((n,), -1, dtype=torch.int32, device=device), torch.zeros(2, dtype=torch.int32, device=device),
        )  # fmt: skip
