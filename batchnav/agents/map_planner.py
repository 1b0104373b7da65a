"""Map planners: agents that steer by the waypoint on the path planned on their own occupancy map."""

from __future__ import annotations

import torch

from batchnav.agents.simple import GreedyAgent
from batchnav.envs.nav import NavEnv
from batchnav.mapping.observations import WAYPOINT
from batchnav.mapping.search_mapper import SearchMapper
from batchnav.sim.bodies import STOP


class MapPlannerAgent(GreedyAgent):
    """Steers towards the waypoint sensor as `GreedyAgent` steers towards the goal; nothing is learned.

    The environment's `MapConfig` decides whether unknown cells count as free or have predicted costs.
    """

    sensor = WAYPOINT


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
        actions = self.move(observations, len(episode_start), episode_start.device)
        return torch.where(self.mapper.arrived > 0, STOP, actions)
