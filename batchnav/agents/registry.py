"""Reference agents by name, the environments that they act in, and experts for imitation.

A task names the reference agents that can play it (`Task.reference_agents`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import torch

from batchnav.agents.frontier import FrontierAgent
from batchnav.agents.predictive import PredictiveAgent
from batchnav.agents.protocol import Agent
from batchnav.agents.shortest_path import ShortestPathAgent
from batchnav.agents.simple import (
    GOAL_SENSOR,
    ForgetfulMapSearcherAgent,
    ForwardAgent,
    GreedyAgent,
    MapPlannerAgent,
    MapSearcherAgent,
    RandomAgent,
    VelocityControlAgent,
)
from batchnav.agents.social import FollowerAgent, OrcaAgent, WaitAndGoAgent
from batchnav.envs.config import NavConfig
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError, ConfigError
from batchnav.mapping.config import MapConfig
from batchnav.mapping.observations import WAYPOINT
from batchnav.tasks import TASKS

EXPERT_STOP_RATIO = 0.985
"""Share of the success distance within which an expert stops.

A policy that imitates the stop estimates the distance with an error: bfloat16 resolves 1 to 2 mm near 0.2 m. From an
expert that stops exactly at the success distance, the policy would learn to stop slightly outside it.
"""
NEAREST_STOP = 0.51
"""Distance to the goal that a path straight at it reaches, in steps: half of one, and a margin for rounding."""


@dataclass(frozen=True)
class ReferenceAgent:
    """A reference agent: its constructor, and the observations and map settings that it needs."""

    title: str
    """Description in one line."""
    make: Callable[[NavEnv, float], Agent]
    """Makes the agent from its environment and the distance to the target at which it stops, metres."""
    observations: tuple[str, ...] = ()
    """Names of the observations that it reads."""
    sensors: tuple[str, ...] = ()
    """`NavConfig.sensors` of its environment; empty: it acts without images."""
    map: MapConfig = field(default_factory=MapConfig)
    """`NavConfig.map` of its environment."""
    is_expert: bool = True
    """True where a policy can imitate it."""

    @property
    def needs_images(self) -> bool:
        """True where the environment has to render for it."""
        return bool(self.sensors)


REFERENCE_AGENTS: dict[str, ReferenceAgent] = {
    "random": ReferenceAgent("Random steps and turns.", RandomAgent, is_expert=False),
    "forward": ReferenceAgent("Forward steps only.", ForwardAgent),
    "greedy": ReferenceAgent("Straight towards the goal.", GreedyAgent, (GOAL_SENSOR,)),
    "map_planner": ReferenceAgent(
        "Map planner; unknown space counts as free.", MapPlannerAgent, (GOAL_SENSOR, WAYPOINT), ("depth", WAYPOINT)
    ),
    "map_planner_anticipation": ReferenceAgent(
        "Map planner with occupancy anticipation and an initial scan.", MapPlannerAgent, (GOAL_SENSOR, WAYPOINT),
        ("depth", WAYPOINT), MapConfig(anticipation="occupancy", initial_scan=True),
    ),
    "map_searcher": ReferenceAgent(
        "Map planner that explores frontiers until it sees its goal.", lambda env, radius: MapSearcherAgent(env),
        (WAYPOINT,), ("depth", WAYPOINT), MapConfig(initial_scan=True),
    ),
    "map_searcher_forgetful": ReferenceAgent(
        "Map searcher that begins a new map for every goal of a sequence.",
        lambda env, radius: ForgetfulMapSearcherAgent(env), (WAYPOINT,), ("depth", WAYPOINT),
        MapConfig(initial_scan=True),
    ),
    "shortest_path": ReferenceAgent("Shortest-path follower.", ShortestPathAgent),
    "orca": ReferenceAgent("Shortest path; avoids people by ORCA.", OrcaAgent),
    "wait_and_go": ReferenceAgent("Shortest path; waits for people.", WaitAndGoAgent),
    "predictive": ReferenceAgent("Shortest path; steps aside of people, whose paths it knows.", PredictiveAgent),
    "follower": ReferenceAgent("Shortest path to a person, and faces it.", FollowerAgent),
    "frontier": ReferenceAgent("Frontier explorer.", lambda env, radius: FrontierAgent(env)),
}  # fmt: skip
"""Reference agents by name. All choose discrete actions."""
EXPERTS = tuple(name for name, agent in REFERENCE_AGENTS.items() if agent.is_expert)
"""Names of the reference agents that a policy can imitate."""


def reference_agent(name: str) -> ReferenceAgent:
    """The entry of `REFERENCE_AGENTS`. ArgumentError for an unknown name."""
    if name not in REFERENCE_AGENTS:
        raise ArgumentError(f"agent: found {name!r}, expected one of {', '.join(REFERENCE_AGENTS)}")
    return REFERENCE_AGENTS[name]


def agent_config(name: str, config: NavConfig) -> NavConfig:
    """The environment in which a reference agent acts: body, cameras and task of `config`, the agent's own sensors.

    The map's settings are the agent's own too: `NavConfig.validate` refuses settings for a map that no sensor reads.
    """
    agent = reference_agent(name)
    own: dict[str, Any] = {"sensors": agent.sensors, "map": agent.map}
    return dataclasses.replace(config, **own)


def without_images(config: NavConfig) -> NavConfig:
    """The environment of an agent that reads the task's observations alone: nothing is rendered or mapped."""
    return agent_config("forward", config)


def make_reference_agent(name: str, env: NavEnv) -> Agent:
    """A reference agent for an environment made with `agent_config`, or for one with the same observations.

    ArgumentError for an unknown name, and for an agent that the task does not list in `reference_agents`; ConfigError
    for velocity ranges that do not allow discrete actions.
    """
    return _make(name, env, env.task.target_radius)


def make_expert(name: str, env: NavEnv) -> Agent:
    """A reference agent to imitate, which acts on the observations and bodies of the policy's environment.

    It stops within `EXPERT_STOP_RATIO` times the success distance; where odometry drifts, as near to the goal as steps
    allow, so that errors have room. Errors: see `make_reference_agent`. Where the policy's observations are late, the
    expert knows the present ones.
    """
    radius = env.task.target_radius * EXPERT_STOP_RATIO
    if env.config.disturbances.has_drift:
        radius = min(radius, NEAREST_STOP * env.config.body.longest_step)
    expert = _make(name, env, radius)
    return expert if env.present_observation is env.last_observation else _PresentAgent(expert, env)


class _PresentAgent:
    """An agent that acts on an environment's observations without latency."""

    def __init__(self, agent: Agent, env: NavEnv):
        self.agent, self.env = agent, env

    def reset(self, num_envs: int) -> None:
        """Reset the agent."""
        self.agent.reset(num_envs)

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """The agent's actions on the present observations."""
        return self.agent.act({**observations, **self.env.present_observation}, episode_start)


def check_expert(name: str, config: NavConfig, key: str = "expert") -> None:
    """ConfigError where an agent cannot be the expert of policies that are trained in an environment.

    Args:
        name: the expert.
        config: the training environment.
        key: the configuration's field that names the expert, for the message.
    """
    found = f"{key}: found {name!r}"
    if name not in EXPERTS:
        raise ConfigError(f"{found}, expected one of {', '.join(EXPERTS)}, or '' for none")
    if name not in TASKS[config.task_name].reference_agents:
        raise ConfigError(f"{found} with the task {config.task_name}, expected {_of_task(config.task_name)}")
    if not config.body.is_discrete:
        raise ConfigError(f"{found} with velocity control, expected a body with discrete actions, or '' for no expert")
    agent = REFERENCE_AGENTS[name]
    missing = _missing(agent.observations, (*config.sensors, GOAL_SENSOR))
    if missing:
        raise ConfigError(f"{found} with sensors {', '.join(config.sensors)}, expected {missing!r} among them")
    if agent.map.anticipation and not config.map.anticipation:
        raise ConfigError(f"{found} without map.anticipation, expected map.anticipation: {agent.map.anticipation}")


def _make(name: str, env: NavEnv, radius: float) -> Agent:
    """A reference agent that stops within `radius` metres, with velocity commands where the body takes them."""
    task = env.config.task_name
    entry, known = reference_agent(name), TASKS[task].reference_agents
    if name not in known:
        raise ArgumentError(f"agent: found {name!r} with the task {task}, expected one of {', '.join(known)}")
    if missing := _missing(entry.observations, env.sources):
        raise ArgumentError(
            f"agent: found {name!r} in an environment without the observation {missing!r}, expected one that has "
            f"{', '.join(entry.observations)}; agent_config({name!r}, env.config) is its configuration"
        )
    agent = entry.make(env, radius)
    return agent if env.config.body.is_discrete else VelocityControlAgent(agent, env)


def _of_task(task_name: str) -> str:
    """The experts of a task, separated by commas; '' stands for no expert."""
    return ", ".join(("''", *(name for name in TASKS[task_name].reference_agents if name in EXPERTS)))


def _missing(needed: Collection[str], known: Collection[str]) -> str | None:
    """The first needed observation that is not among the known ones; None if all are."""
    return next((name for name in needed if name not in known), None)
