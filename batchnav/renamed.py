"""Names of version 0.0 and their current names. Old names work for one release, with a warning.

`current` translates users' input (arguments, configurations, command lines) and warns. Saved files (policies, states,
episode files) are translated with `warn=False`, since users do not edit them.
"""

from __future__ import annotations

import warnings

SENSORS = {"plan": "waypoint", "map": "ego_map"}
"""Current names of sensors, and of a policy's observations, by old name."""
AGENTS = {"planner": "map_planner", "anticipator": "map_planner_anticipation", "oracle": "shortest_path"}
"""Current names of reference agents by old name."""

CONFIGS = {
    "cartpole": "cartpole_cpu", "explore_cpu": "explore_depth_cpu", "flee_cpu": "flee_depth_cpu",
    "pointnav_24gb": "pointnav_depth_24gb", "pointnav_cpu": "pointnav_depth_cpu",
    "pointnav_h200": "pointnav_depth_h200", "pointnav_plan_cpu": "pointnav_waypoint_cpu",
    "pointnav_plan_h200": "pointnav_waypoint_h200", "pointnav_plan_houses_h200": "pointnav_waypoint_houses_h200",
    "pointnav_plan_small": "pointnav_waypoint_small_cpu",
}  # fmt: skip
"""Bundled configurations, by their old names."""


def current(kind: str, name: str, names: dict[str, str], warn: bool = True) -> str:
    """Today's name of something that may be called by an old one.

    Args:
        kind: what is named, for the warning: "sensor", "agent", "configuration".
        name: the name that was given.
        names: new names by old ones: `SENSORS`, `AGENTS` or `CONFIGS`.
        warn: whether to warn (FutureWarning) where the name is an old one.
    """
    if name not in names:
        return name
    if warn:
        warnings.warn(f"{kind} {name!r} is now called {names[name]!r}", FutureWarning, stacklevel=3)
    return names[name]
