"""Current names by the names of version 0.0. Former names work for one release, with a warning.

`current` translates users' input (arguments, configurations, command lines) and warns. Saved files (policies, states,
episode files) are translated with `warn=False`, since users do not edit them.
"""

from __future__ import annotations

import inspect
import warnings

SENSORS = {"plan": "waypoint", "map": "ego_map"}
"""Current names of sensors, and of a policy's observations, by former name."""
AGENTS = {"planner": "map_planner", "anticipator": "map_planner_anticipation", "oracle": "shortest_path"}
"""Current names of reference agents by former name."""

CONFIGS = {
    "cartpole": "cartpole_cpu", "explore_cpu": "explore_depth_cpu", "flee_cpu": "flee_depth_cpu",
    "pointnav_cpu": "pointnav_depth_cpu",
    "pointnav_h200": "pointnav_depth_h200", "pointnav_plan_cpu": "pointnav_waypoint_cpu",
    "pointnav_plan_h200": "pointnav_waypoint_h200", "pointnav_plan_houses_h200": "pointnav_waypoint_houses_h200",
    "pointnav_plan_small": "pointnav_waypoint_small_cpu",
}  # fmt: skip
"""Current names of bundled configurations by former name."""

POLICIES = {"pointnav_plan_h200": "pointnav_waypoint_small"}
"""Current bundled policies by the names of those that they replace. They are other networks."""


def current(kind: str, name: str, names: dict[str, str], warn: bool = True) -> str:
    """The current name for a current or former name.

    Args:
        kind: kind of the named object, for the warning: "sensor", "agent", "configuration" or "policy".
        name: the current or former name; an unknown name is returned unchanged.
        names: current names by former name: `SENSORS`, `AGENTS`, `CONFIGS` or `POLICIES`.
        warn: whether a former name raises a FutureWarning.
    """
    if name not in names:
        return name
    if warn:
        warn_renamed(f"{kind} {name!r} is now called {names[name]!r}")
    return names[name]


def warn_renamed(text: str) -> None:
    """FutureWarning at the line outside of this package that led here, so Python shows one per line and text."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, FutureWarning, stacklevel=level)
