"""Forward, random and greedy agents, which read only the goal sensor; map planners; velocity control of all of them.

Agents stop by their distance to the goal in space, as success is measured; the goal sensor's is that in the plane.
"""

from __future__ import annotations

import math

import torch

from batchnav.agents.protocol import Agent
from batchnav.envs.nav import NavEnv
from batchnav.errors import ConfigError
from batchnav.mapping.memory import MemoryMapper
from batchnav.mapping.observations import WAYPOINT
from batchnav.mapping.search_mapper import SearchMapper
from batchnav.mapping.waypoint import SAME_PLACE
from batchnav.sim.bodies import FORWARD, LEFT, RIGHT, STOP

GOAL_SENSOR = "pointgoal"
"""Name of the observation [distance to the goal in metres, angle to the left in radians]."""
MAX_BEARING_TURNS = 0.501
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
        self._position, self._goal = env.frame.odometry.position, env.task.goal_position
        self._category = env.task.goal_category

    def reset(self, num_envs: int) -> None:
        """Do nothing: the agent keeps no state."""

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Actions i64 [N]."""
        actions = self.move(observations, len(episode_start), episode_start.device)
        if GOAL_SENSOR not in observations:
            return actions
        return torch.where(self.distance(observations) < self.radius, STOP, actions)

    def distance(self, observations: dict[str, torch.Tensor]) -> torch.Tensor:
        """Distance to the goal in space, f32 [N], metres; 0 at the goal's place: the path has no length.

        Infinite where the goal is an object, for which the goal sensor is 0.
        """
        distance = in_plane = observations[GOAL_SENSOR][:, 0]
        if self._goal is not None:
            in_space = torch.hypot(in_plane, (self._goal - self._position)[:, 1])
            distance = torch.where(in_plane < float(SAME_PLACE), 0.0, in_space)
        if self._category is not None:
            distance = distance.masked_fill(self._category >= 0, torch.inf)
        return distance

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
        self.tolerance = MAX_BEARING_TURNS * turn
        self.near = 0.5 * self.step / max(math.cos(turn / 2), 0.5)
        """Distance up to which a step straight at the goal ends no nearer, metres."""
        self.passes = torch.zeros(0, dtype=torch.int64, device=env.device)
        """i64 [N]: steps aside in the episode."""

    @torch.inference_mode(False)
    def reset(self, num_envs: int) -> None:
        """Forget the steps aside."""
        self.passes = self.passes.new_zeros(num_envs)

    def begin(self, episode_start: torch.Tensor) -> None:
        """Forget the steps aside of ended episodes. In place: a CUDA graph may record the agent."""
        if len(self.passes) != len(episode_start):
            self.reset(len(episode_start))
        self.passes.masked_fill_(episode_start, 0)

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Actions i64 [N]."""
        self.begin(episode_start)
        return super().act(observations, episode_start)

    def angle(self, observations: dict[str, torch.Tensor]) -> torch.Tensor:
        """Angle of the next step, to the left, radians, f32 [N]."""
        return observations[self.sensor][:, 1]

    def move(self, observations: dict[str, torch.Tensor], n: int, device: torch.device) -> torch.Tensor:
        """Forward moves, or turns towards the goal, i64 [N]; stops after too many steps aside."""
        angle = self.angle(observations)
        if GOAL_SENSOR in observations:
            distance, bearing = observations[GOAL_SENSOR].unbind(1)
            near = (distance <= self.near) & (bearing == angle)  # a waypoint on the way is no goal
            aside = torch.acos((distance / (2 * self.step)).clamp(max=1.0))
            angle = torch.where(near, angle - torch.where(angle < 0, -aside, aside), angle)
        turn = torch.where(angle > 0, LEFT, RIGHT)
        moves = torch.where(angle.abs() <= self.tolerance, FORWARD, turn)
        if GOAL_SENSOR in observations:
            self.passes += near & (moves == FORWARD)
            moves = torch.where(near & (self.passes > MAX_PASSES), STOP, moves)
        return moves


def _wrapped(angle: torch.Tensor) -> torch.Tensor:
    """Angles in -pi..pi, radians; NaN where they are not finite."""
    return torch.remainder(angle + math.pi, 2 * math.pi) - math.pi


# Velocity control of agents that choose discrete actions


class VelocityControlAgent:
    """Executes the discrete actions of `agent` with a body under velocity control.

    A forward action is the highest linear velocity; a turn is the highest angular velocity on the spot.

    Args:
        agent: chooses actions i64 [N].
        env: environment whose body takes velocity commands. ConfigError unless the linear range includes 0 m/s and a
            forward velocity, and the angular range is symmetric.
    """

    @torch.inference_mode(False)
    def __init__(self, agent: Agent, env: NavEnv):
        self.agent, velocity = agent, env.config.body.velocity
        (low, high), (right, left) = velocity.lin_vel_range, velocity.ang_vel_range_deg
        if not (low <= 0.0 < high and right == -left):
            raise ConfigError(
                f"body.velocity: found {low:g} to {high:g} m/s and {right:g} to {left:g} deg/s, expected 0 m/s and a "
                "forward velocity in the first range and a symmetric second range, since reference agents stop, step "
                "and turn to both sides; change lin_vel_range or ang_vel_range_deg"
            )
        # Rows in the order of the discrete actions: stop, forward, left, right.
        commands = torch.tensor(
            [[0.0, 0.0], [high, 0.0], [0.0, left], [0.0, right]], dtype=torch.float32, device=env.device
        )
        lowest, highest = torch.tensor([[low, right], [high, left]], dtype=torch.float32, device=env.device)
        self._actions = 2.0 * (commands - lowest) / (highest - lowest) - 1.0

    def reset(self, num_envs: int) -> None:
        """Reset the discrete agent."""
        self.agent.reset(num_envs)

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Velocity commands f32 [N, 2], each normalised to -1..1 over its range."""
        return self._actions[self.agent.act(observations, episode_start)]


# Map planners: agents that steer by the waypoint on the path planned on their own occupancy map


RECENT = 8
"""Number of steps among which a map planner looks for repeated ones."""
REPEATS = 2
"""Number of equal steps among the recent ones after which the next one counts as repeated."""
SAME_STEP = 1e-3
"""Largest difference of the places and headings of equal steps, metres and radians."""
ASIDE = math.acos(0.25)
"""Angle of a step aside to the bearing of a waypoint, radians. From half a step off it leads to a full step off."""


class MapPlannerAgent(GreedyAgent):
    """Steers towards the waypoint sensor as `GreedyAgent` steers towards the goal; nothing is learned.

    An agent steps over a waypoint that is nearer than half a step, and back again. Before it repeats such a step for
    the second time, it steps aside, left and right in turn. The environment's `MapConfig` decides whether unknown cells
    count as free or have predicted costs.
    """

    sensor = WAYPOINT

    def __init__(self, env: NavEnv, radius: float | None = None):
        super().__init__(env, radius)
        self._heading = env.frame.odometry.heading
        self.reset(0)

    @torch.inference_mode(False)
    def reset(self, num_envs: int) -> None:
        """Forget all steps."""
        super().reset(num_envs)
        self.recent = self._heading.new_full((num_envs, RECENT, 3), torch.inf)
        """f32 [N, RECENT, 3]: x, z and heading at the last steps, the latest first; one entry while held in place."""
        self.aside = self._heading.new_full((num_envs,), torch.nan)
        """f32 [N]: heading of a step aside until it is taken, radians; NaN otherwise."""
        self.side = self._heading.new_full((num_envs,), ASIDE)
        """f32 [N]: angle of the next step aside, radians."""

    def begin(self, episode_start: torch.Tensor) -> None:
        """Forget the steps of ended episodes."""
        super().begin(episode_start)
        self.recent.masked_fill_(episode_start[:, None, None], torch.inf)
        self.aside.masked_fill_(episode_start, torch.nan)
        self.side.masked_fill_(episode_start, ASIDE)

    def angle(self, observations: dict[str, torch.Tensor]) -> torch.Tensor:
        """Angle to the waypoint, or of a step aside, radians, f32 [N]."""
        angle = observations[self.sensor][:, 1]
        steps = (angle.abs() <= self.tolerance) & self.aside.isnan()
        repeats = steps & self._note(steps)
        self.aside.copy_(torch.where(repeats, self._heading + angle + self.side, self.aside))
        self.side.copy_(torch.where(repeats, -self.side, self.side))
        off = _wrapped(self.aside - self._heading)
        self.aside.masked_fill_(off.abs() <= self.tolerance, torch.nan)  # it is taken now
        return torch.where(off.isnan(), angle, off)

    def _note(self, steps: torch.Tensor) -> torch.Tensor:
        """Add the steps of this call to the recent ones; True for those that repeat an earlier one again."""
        here = torch.stack([self._position[:, 0], self._position[:, 2], self._heading], dim=1)
        apart = self.recent - here[:, None]
        apart[..., 2] = _wrapped(apart[..., 2])
        same = (apart.abs() < SAME_STEP).all(dim=2)
        is_new = steps & ~same[:, 0]
        later = torch.cat([here[:, None], self.recent[:, :-1]], dim=1)
        self.recent.copy_(torch.where(is_new[:, None, None], later, self.recent))
        return is_new & (same.sum(dim=1) >= REPEATS)


class MapSearcherAgent(MapPlannerAgent):
    """Explores until it sees its goal, goes to it and stops; nothing is learned.

    It steers towards the waypoint, which leads to the nearest goal that the agent has seen, or to the nearest frontier
    of its own map (`mapping/search.py`).

    Args:
        env: environment to act in, of the task objectnav and with a map; the mapper decides where the agent stops.
    """

    def __init__(self, env: NavEnv):
        super().__init__(env)
        assert isinstance(env.mapper, SearchMapper)  # the registry names the sensors that make it
        self.mapper = env.mapper

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Actions i64 [N]."""
        self.begin(episode_start)
        actions = self.move(observations, len(episode_start), episode_start.device)
        return torch.where(self.mapper.arrived > 0, STOP, actions)


class ForgetfulMapSearcherAgent(MapSearcherAgent):
    """A map searcher that begins a new map for every goal of a sequence, to measure what memory is worth.

    Args:
        env: environment to act in, of a task with several goals in an episode.
    """

    mapper: MemoryMapper

    def __init__(self, env: NavEnv):
        super().__init__(env)
        self._number = env.task.goal_number
        self._known = self._number.clone()

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Actions i64 [N]; a turn where the goal has just changed."""
        changed = (self._number != self._known) & ~episode_start
        self._known.copy_(self._number)
        self.mapper.forget(changed)
        return torch.where(changed, LEFT, super().act(observations, episode_start))
