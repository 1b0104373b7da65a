"""Map planners: agents that steer by the waypoint on the path planned on their own occupancy map."""

from __future__ import annotations

from batchnav.agents.simple import GreedyAgent
from batchnav.mapping.observations import WAYPOINT


class MapPlannerAgent(GreedyAgent):
    """Steers towards the waypoint sensor as `GreedyAgent` steers towards the goal; nothing is learned.

    The environment's `MapConfig` decides whether unknown cells count as free or have predicted costs.
    """

    sensor = WAYPOINT
