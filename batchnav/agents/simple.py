"""Forward, random and greedy agents. They read only the goal sensor, and stop within a radius of the goal."""

from __future__ import annotations

import math

import torch

from batchnav.envs.nav import NavEnv
from batchnav.sim.bodies import FORWARD, LEFT, RIGHT, STOP

GOAL_SENSOR = "pointgoal"
"""Name of the observation [distance to the goal in metres, angle to the left in radians]."""
AIMED = 0.501
"""Largest bearing at which an agent steps, in turns: half a turn, and a margin for rounding, without which an agent
whose goal lies exactly between two headings would turn to and fro."""
MAX_PASSES = 6
"""Steps aside, near a goal that is nearer than half a step, after which an agent stops."""


class ForwardAgent:
    """Moves forward, and stops within `radius` of the goal in tasks with a goal sensor.

    Args:
        env: environment to act in.
        radius: distance to the goal at which the agent stops, metres; None: the task's success distance.
    """

    def __init__(self, env: NavEnv, radius: float | None = None):
        self.radius = env.task.target_radius if radius is None else radius

    def reset(self, num_envs: int) -> None:
        """Do nothing: the agent keeps no state."""

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Actions i64 [N]."""
        actions = self.move(observations, len(episode_start), episode_start.device)
        if GOAL_SENSOR not in observations:
            return actions
        return torch.where(observations[GOAL_SENSOR][:, 0] < self.radius, STOP, actions)

    def move(self, observations: dict[str, torch.Tensor], n: int, device: torch.device) -> torch.Tensor:
        """Actions outside the stopping radius, i64 [N]."""
        return torch.full((n,), FORWARD, dtype=torch.int64, device=device)


class RandomAgent(ForwardAgent):
    """Moves forward, left or right with equal probability, and stops as `ForwardAgent` does.

    Args:
        env: environment to act in.
        radius: distance to the goal at which the agent stops, metres; None: the task's success distance.
        seed: seed of the actions; each `reset` starts the sequence again.
    """

    def __init__(self, env: NavEnv, radius: float | None = None, seed: int = 0):
        super().__init__(env, radius)
        self.generator, self.seed = torch.Generator(env.device), seed

    def reset(self, num_envs: int) -> None:
        """Start the random sequence again."""
        self.generator.manual_seed(self.seed)

    def move(self, observations: dict[str, torch.Tensor], n: int, device: torch.device) -> torch.Tensor:
        """Random moves, i64 [N]."""
        return torch.randint(FORWARD, RIGHT + 1, (n,), generator=self.generator, dtype=torch.int64, device=device)


class GreedyAgent(ForwardAgent):
    """Turns towards the goal, moves forward when the goal is at most half a turn off, and stops at the goal.

    A step straight at a goal that is nearer than half a step ends no nearer. There the agent steps aside, to a full
    step from the goal, and then at the goal; after MAX_PASSES such steps it stops.
    """

    sensor = GOAL_SENSOR
    """Name of the observation [distance, angle to the left] that the agent steers by."""

    def __init__(self, env: NavEnv, radius: float | None = None):
        super().__init__(env, radius)
        body = env.config.body
        turn, self.step = math.radians(body.widest_turn_deg), body.longest_step
        self.tolerance = AIMED * turn
        self.near = 0.5 * self.step / max(math.cos(turn / 2), 0.5)
        """Distance up to which a step straight at the goal ends no nearer, metres."""
        self.passes = torch.zeros(0, dtype=torch.int64, device=env.device)
        """i64 [N]: steps aside in the episode."""

    def reset(self, num_envs: int) -> None:
        """Forget the steps aside."""
        self.passes = self.passes.new_zeros(num_envs)

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Actions i64 [N]."""
        if len(self.passes) != len(episode_start):
            self.reset(len(episode_start))
        self.passes = self.passes.masked_fill(episode_start, 0)
        return super().act(observations, episode_start)

    def move(self, observations: dict[str, torch.Tensor], n: int, device: torch.device) -> torch.Tensor:
        """Forward moves, or turns towards the goal, i64 [N]; stops after too many steps aside."""
        angle = observations[self.sensor][:, 1]
        if GOAL_SENSOR in observations:
            distance, bearing = observations[GOAL_SENSOR].unbind(1)
            near = (distance <= self.near) & (bearing == angle)  # a waypoint on the way is no goal
            aside = torch.acos((distance / (2 * self.step)).clamp(max=1.0))
            angle = torch.where(near, angle - torch.where(angle < 0, -aside, aside), angle)
        turn = torch.where(angle > 0, LEFT, RIGHT)
        moves = torch.where(angle.abs() <= self.tolerance, FORWARD, turn)
        if GOAL_SENSOR in observations:
            self.passes = self.passes + (near & (moves == FORWARD))
            moves = torch.where(near & (self.passes > MAX_PASSES), STOP, moves)
        return moves
