"""Names of version 0.0 and what they are called now. Old names work for one release, with a warning.

Users' input (arguments, configurations, command lines) goes through `current`, which warns. Saved files (policies,
states, episode files) go through it with `warn=False`, since nobody can change them.
"""

from __future__ import annotations

import warnings

SENSORS = {"plan": "waypoint", "map": "ego_map"}
"""Sensors, by their old names; a policy's observations too."""
AGENTS = {"planner": "map_planner", "anticipator": "map_planner_anticipation", "oracle": "shortest_path"}
"""Reference agents, by their old names."""


def current(kind: str, name: str, names: dict[str, str], warn: bool = True) -> str:
    """Today's name of something that may be called by an old one.

    Args:
        kind: what is named, for the warning: "sensor", "agent".
        name: the name that was given.
        names: new names by old ones: `SENSORS` or `AGENTS`.
        warn: whether to warn (FutureWarning) where the name is an old one.
    """
    if name not in names:
        return name
    if warn:
        warnings.warn(f"{kind} {name!r} is now called {names[name]!r}", FutureWarning, stacklevel=3)
    return names[name]
