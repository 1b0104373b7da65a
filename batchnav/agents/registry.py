"""Agents to compare with: random, forward-only, greedy, two planners, the follower of shortest paths, the frontier's.

The first three know only the goal sensor, where the task has one, and stop where it says that the goal is near; the
planner also goes by a map that it makes of what it sees, the anticipator by one on which it guesses what it does not
see, and the last two know the navmesh. A task says which of them can play it (`Task.reference_agents`).
"""

from __future__ import annotations

import math
from typing import Any

import torch

from batchnav.agents.frontier import FrontierAgent
from batchnav.agents.protocol import Agent
from batchnav.agents.shortest_path import OracleAgent
from batchnav.envs.nav import NavEnv
from batchnav.errors import ConfigError
from batchnav.mapping.mapper import WAYPOINT
from batchnav.mapping.predictor import MapConfig
from batchnav.sim.bodies import FORWARD, LEFT, RIGHT, STOP

GOAL_SENSOR = "pointgoal"
"""The observation [distance, angle to the left] of a goal."""


class ForwardAgent:
    """Goes forward, and stops within the success distance of the goal where it is told of one."""

    def __init__(self, env: NavEnv):
        self.radius = env.task.target_radius

    def reset(self, num_envs: int) -> None:
        """Nothing to forget."""

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Actions i64 [N]."""
        actions = self.move(observations, len(episode_start), episode_start.device)
        if GOAL_SENSOR not in observations:
            return actions
        return torch.where(observations[GOAL_SENSOR][:, 0] < self.radius, STOP, actions)

    def move(self, observations: dict[str, torch.Tensor], n: int, device: torch.device) -> torch.Tensor:
        """What to do away from the goal: i64 [N]."""
        return torch.full((n,), FORWARD, device=device)


class RandomAgent(ForwardAgent):
    """Goes forward, left or right with equal chances, and stops as `ForwardAgent` does."""

    def __init__(self, env: NavEnv, seed: int = 0):
        super().__init__(env)
        self.generator, self.seed = torch.Generator(env.device), seed

    def reset(self, num_envs: int) -> None:
        """Begin the random numbers anew."""
        self.generator.manual_seed(self.seed)

    def move(self, observations: dict[str, torch.Tensor], n: int, device: torch.device) -> torch.Tensor:
        """Forward, left or right."""
        return torch.randint(FORWARD, RIGHT + 1, (n,), generator=self.generator, device=device)


class GreedyAgent(ForwardAgent):
    """Turns until the goal lies ahead to within half a turn, goes forward, and stops within the success distance."""

    sensor = GOAL_SENSOR
    """The observation [distance, angle to the left] that it goes by."""

    def __init__(self, env: NavEnv):
        super().__init__(env)
        self.tolerance = math.radians(env.config.body.widest_turn_deg) / 2

    def move(self, observations: dict[str, torch.Tensor], n: int, device: torch.device) -> torch.Tensor:
        """Forward, or a turn towards the goal."""
        angle = observations[self.sensor][:, 1]
        turn = torch.where(angle > 0, LEFT, RIGHT)
        return torch.where(angle.abs() <= self.tolerance, FORWARD, turn)


class PlannerAgent(GreedyAgent):
    """As the greedy one, but towards where the sensor "waypoint" points: it maps and plans, and has learned nothing."""

    sensor = WAYPOINT


REFERENCE_AGENTS: dict[str, type] = {
    "random": RandomAgent, "forward": ForwardAgent, "greedy": GreedyAgent, "planner": PlannerAgent,
    "anticipator": PlannerAgent, "oracle": OracleAgent, "frontier": FrontierAgent,
}  # fmt: skip
"""By name; each is made from the environment it will act in, and chooses among steps and turns."""
SETTINGS_OF_AGENTS: dict[str, dict[str, Any]] = {
    "planner": {"sensors": ("depth", WAYPOINT), "map": MapConfig()},
    "anticipator": {"sensors": ("depth", WAYPOINT), "map": MapConfig(anticipation="occupancy", look_around=True)},
}
"""Fields of the `NavConfig` of those that look; the others do without images."""


EARLY = 0.985
"""Share of the success distance at which a teacher stops: of 0.2 m policies in bfloat16 tell 2 mm at best."""


def make_reference_agent(name: str, env: NavEnv) -> Agent:
    """One of REFERENCE_AGENTS, by name, for this environment's body. ConfigError for speeds that it cannot do with."""
    return _for_body(REFERENCE_AGENTS[name](env), env)


def make_teacher(name: str, env: NavEnv) -> Agent:
    """One that goes by the goal sensor, to be imitated: it stops a little before it need. ConfigError likewise."""
    agent = REFERENCE_AGENTS[name](env)
    agent.radius *= EARLY
    return _for_body(agent, env)


def _for_body(agent: Agent, env: NavEnv) -> Agent:
    """The agent, or one that does by speeds what it chooses."""
    return agent if env.config.body.is_discrete else BySpeeds(agent, env)


class BySpeeds:
    """An agent that chooses among steps and turns, in a body that is told speeds.

    It goes ahead at the highest speed, and turns on the spot at the highest. The body's ranges must have 0 m/s in them,
    and turns to the right as fast as to the left.
    """

    def __init__(self, agent: Agent, env: NavEnv):
        self.agent, velocity = agent, env.config.body.velocity
        (low, high), (right, left) = velocity.lin_vel_range, velocity.ang_vel_range_deg
        if not (low <= 0.0 < high and right == -left):
            raise ConfigError(
                f"body.velocity: found {low:g} to {high:g} m/s and {right:g} to {left:g} deg/s, expected speeds with "
                "which one can stand, and turn as fast to either side: reference agents choose among steps and turns"
            )
        speeds = torch.tensor([[0.0, 0.0], [high, 0.0], [0.0, left], [0.0, right]], device=env.device)  # as numbered
        lowest, highest = torch.tensor([[low, right], [high, left]], device=env.device)
        self._actions = 2.0 * (speeds - lowest) / (highest - lowest) - 1.0

    def reset(self, num_envs: int) -> None:
        """As of the agent."""
        self.agent.reset(num_envs)

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Actions f32 [N, 2]."""
        return self._actions[self.agent.act(observations, episode_start)]
