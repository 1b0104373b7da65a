"""Tables of the agents that a user can have, one per task: bundled, trained by one command, or reference agents."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from eval.publish import readme
from eval.publish.summary import Figure, Row, markdown, newest

_HOUSES = {"val": "houses, `val`", "test": "houses, `test`"}
SPLITS = {
    "pointnav": {**_HOUSES, **{name: title for name, title in readme.SPLITS.items() if name != "val"}},
    "objectnav": {**_HOUSES, "building": "corridor floors", "procthor": "ProcTHOR houses"},
    "imagenav": _HOUSES,
}
"""Fixed episode files of each task, with the titles of their columns."""


class Agent(NamedTuple):
    """A line of the table."""

    name: str
    """Name of a bundled policy, a configuration or a reference agent."""
    command: str
    """Command that trains or evaluates it."""
    conditions: str = ""
    """Conditions of its result rows, see `summary.parse`; "": found by name."""


def _evaluated(name: str, task: str = "pointnav") -> Agent:
    """A bundled policy or a reference agent."""
    return Agent(name, f"batchnav evaluate {name}" + (f" --task {task}" if task != "pointnav" else ""))


def _trained(name: str, conditions: str, options: str = "") -> Agent:
    """The policy that a configuration trains."""
    return Agent(name, f"batchnav train --config {name}{options}", f"agent=learned sample=True {conditions}")


AGENTS = {
    "pointnav": (
        *map(_evaluated, ("shortest_path", "map_planner", "map_planner_anticipation", "greedy")),
        *(_evaluated(policy.name) for policy in readme.POINTNAV),
        _trained("pointnav_waypoint_h200", "frames=104857600 initial_scan=True", " --seed 7"),
        _trained("pointnav_waypoint_cpu", "frames=102400 seed=1", " --seed 1"),
        _trained("pointnav_rgb_h200", "frames=300023808 sensors=rgb", " --seed 7"),
        _trained("pointnav_depth_cpu", "frames=5001216"),
    ),
    "objectnav": tuple(
        _evaluated(name, "objectnav")
        for name in ("objectnav_rgbd_small", "objectnav_mask_small", "map_searcher", "shortest_path", "random")
    ),
    "imagenav": tuple(_evaluated(name, "imagenav") for name in ("imagenav_rgb_small", "shortest_path", "random")),
}
"""Agents of each task."""


def agents(task: str = "pointnav") -> str:
    """Table of agents, best SPL on `val` first: "success rate, SPL" on each file of episodes, and the command."""
    policies = {policy.name: policy for policy in readme.POLICIES}
    lines: list[tuple[Agent, dict[str, list[Row]]]] = []
    for agent in AGENTS[task]:
        found: dict[str, list[Row]] = {}
        for split in SPLITS[task]:
            if agent.name in policies:
                pair = [readme.figure_of(policies[agent.name], split, metric) for metric in ("success", "spl")]
            else:
                file = split if task == "pointnav" else f"{task}_{split}"
                others = f"split={file} camera_height= hfov_deg= {agent.conditions or f'agent={agent.name}'}"
                pair = [Figure("", task, f"metric={metric} {others}") for metric in ("success", "spl")]
            rows = [newest(figure) for figure in pair]
            found[split] = [row for row in rows if row]
        if any(found.values()):
            lines.append((agent, found))
    if not lines:
        return "No figures yet.\n"
    cells = [["agent", *SPLITS[task].values(), "command"], ["---", *["---:"] * len(SPLITS[task]), "---"]]
    for agent, found in sorted(lines, key=_spl_on_val, reverse=True):
        figures = (", ".join(f"{row['value']:.3f}" for row in rows) for rows in found.values())
        cells.append([f"`{agent.name}`", *figures, f"`{agent.command}`"])
    rows = [row for _, found in lines for pair in found.values() for row in pair]
    episodes = sorted({str(row["params"]["episodes"]) for row in rows})
    return markdown(cells) + readme.caption(
        f"{' or '.join(episodes)} episodes in unseen scenes per column, sampled actions", rows
    )


def _spl_on_val(line: tuple[Agent, dict[str, list[Row]]]) -> float:
    rows = line[1]["val"]
    return rows[-1]["value"] if rows else 0.0


TABLES = {
    "agents": agents, "objectnav_agents": partial(agents, "objectnav"), "imagenav_agents": partial(agents, "imagenav"),
}  # fmt: skip
