"""README's tables: SPL by scene family, throughput with peers, and the bundled policies."""

from __future__ import annotations

import tomllib
from typing import Any, NamedTuple

from batchnav.runtime.bundled import ASSETS, WEIGHTS
from eval.publish.summary import Figure, Row, machine, markdown, newest, rounded

SPLITS = {
    "val": "houses",
    "hall": "open-plan rooms",
    "building": "corridor floors",
    "block": "room-block floors",
    "scan": "degraded scans",
}
"""Fixed episode files, with the titles of their columns."""


class Policy(NamedTuple):
    """A bundled policy in README; its name begins with its task's."""

    name: str
    inputs: str
    without_hash: str = ""
    """Conditions that identify its result rows without a hash, see `Figure`."""

    @property
    def task(self) -> str:
        """Name of its task, and of the file of its rows."""
        return self.name.split("_")[0]


POLICIES = (
    Policy("pointnav_waypoint_small", "depth, waypoint, initial scan; camera 0.3 to 1.6 m high, 55 to 120 degrees"),
    Policy("pointnav_plan_small", "depth, waypoint; camera 0.3 to 1.6 m high, 55 to 120 degrees",
           "agent=learned sample=True frames=61440 sensors=depth+waypoint"),
    Policy("pointnav_h200", "depth; camera 1.25 m high, 90 degrees",
           "agent=learned renderer=raycast sample=True frames=165019648"),
    Policy("pointnav_rgb_small", "colour, pose; camera 1.25 m high, 90 degrees"),
    Policy("objectnav_mask_small", "depth, mask of the goal, pose; camera 0.8 to 1.5 m high, 70 to 110 degrees"),
    Policy("objectnav_rgbd_small", "colour, depth, pose, category; camera 1.25 m high, 90 degrees"),
    Policy("imagenav_rgb_small", "colour, image of the goal; camera 1.25 m high, 90 degrees"),
)  # fmt: skip
POINTNAV = tuple(policy for policy in POLICIES if policy.task == "pointnav")
REFERENCES = {
    "shortest_path": "shortest-path follower (knows the navmesh)",
    "map_planner_anticipation": "map planner with occupancy anticipation (no learned policy)",
    "map_planner": "map planner (no learned policy)",
}
"""Reference agents in README, with their names in its table."""


class Comparison(NamedTuple):
    """A line of the throughput table."""

    quantity: str
    """What is measured, in which unit, on which machine."""
    ours: Figure
    compared: tuple[Figure, ...]
    """Values of peers or bounds."""


def _render(name: str, renderer: str, machine: str, agents: int, sensors: str = "|depth") -> Figure:
    scene = f"scene=aws_small_house{'_textured' if 'rgb' in sensors else ''} width=64 metric=frames_per_second"
    where = f"machine={machine} num_agents={agents}"
    return Figure(name, "render", f"{scene} {where} renderer={renderer} sensors={sensors}")


def _training(name: str, part: str) -> Figure:
    """Training throughput of the paper's network: part "whole", or "policy" for the policy-only bound."""
    params = "policy=paper num_envs=4096 minibatches=16 width=64 resident_scenes=0 deterministic=False"
    return Figure(name, "train", f"part={part} ranks=1 {params}")


def _cartpole(name: str, how: str) -> Figure:
    """Throughput of a variant of CartPole."""
    return Figure(name, "cartpole", f"part=scaling num_envs=65536 machine=H200 how={how}")


COMPARISONS = (
    Comparison("Training end to end, the paper's network, frames/s, one GPU", _training("", "whole"),
               (_training("network alone", "policy"),)),
    Comparison("Rendering 64x64 depth, frames/s, one GPU", _render("", "raycast", "H200", 4096),
               (_render("Warp 1.19", "warp_1.19.0_cubql", "H200", 4096),)),
    Comparison("Rendering 64x64 depth and textured colour, frames/s, one GPU",
               _render("", "raycast", "H200", 4096, "rgb+depth"),
               (_render("Warp 1.19", "warp_1.19.0_cubql", "H200", 4096, "rgb+depth"),)),
    Comparison("Rendering 64x64 depth, frames/s, two CPU cores", _render("", "raycast", "CPU", 256),
               (_render("Embree", "Embree_(embreex_4.4.0.post1)", "CPU", 256),)),
    Comparison("CartPole, 65,536 environments, steps/s, one GPU", _cartpole("", "graph"),
               (_cartpole("gymnax", "gymnax_1.0.1_scan,_jax_0.11.2_gpu"),)),
)  # fmt: skip


def learning() -> str:
    """Table of SPL by scene family, best agent on `val` first, with its caption."""
    agents = {f"`{policy.name}`": policy for policy in POINTNAV} | {text: name for name, text in REFERENCES.items()}
    found = {text: {split: newest(_spl(agent, split)) for split in SPLITS} for text, agent in agents.items()}
    rows = [row for by_split in found.values() for row in by_split.values() if row]
    if not rows:
        return "No figures yet.\n"
    order = sorted(found, key=lambda text: -((found[text]["val"] or {"value": 0.0})["value"]))
    cells = [["SPL", *SPLITS.values()], ["---", *["---:"] * len(SPLITS)]]
    cells += [[text, *(f"{row['value']:.2f}" if row else "" for row in found[text].values())] for text in order]
    episodes = "; ".join(sorted({str(row["params"]["episodes"]) for row in rows}))
    return markdown(cells) + caption(f"{episodes} episodes in 20 unseen scenes of each family", rows)


def throughput() -> str:
    """Table of the comparisons that have rows, with its caption."""
    cells, rows = [["", "batchnav", "compared with"], ["---", "---:", "---"]], []
    for line in COMPARISONS:
        ours, peers = newest(line.ours), [(peer.name, newest(peer)) for peer in line.compared]
        if ours:
            compared = "; ".join(f"{name}: {rounded(row['value'])}" for name, row in peers if row)
            cells.append([line.quantity, f"**{rounded(ours['value'])}**", compared])
            rows += [ours, *(row for _, row in peers if row)]
    return (
        markdown(cells)
        + caption("Training: an untrained policy in 64 houses. Rendering: one house of 145,840 triangles", rows)
        if rows
        else "No figures yet.\n"
    )


def policies() -> str:
    """Table of the bundled policies: inputs, success rate and SPL on `val`, size of the file."""
    manifest: dict[str, Any] = tomllib.loads((ASSETS / "MANIFEST.toml").read_text(encoding="utf-8"))
    cells, rows = [["policy", "inputs", "success rate", "SPL", "size"], ["---", "---", "---:", "---:", "---:"]], []
    for policy in POLICIES:
        pair = [newest(figure_of(policy, "val", metric)) for metric in ("success", "spl")]
        rows += [row for row in pair if row]
        size = manifest[f"policies/{policy.name}/{WEIGHTS}"]["bytes"] / 1e6
        link = f"[`{policy.name}`](assets/policies/{policy.name}/README.md)"
        cells.append([link, policy.inputs, *(_with_interval(row) if row else "" for row in pair), f"{size:.2g} MB"])
    return markdown(cells) + (
        caption("Validation episodes of their tasks: 200 in 20 unseen houses; 95% intervals", rows) if rows else ""
    )


def _spl(agent: Policy | str, split: str) -> Figure:
    """SPL of a policy, or of a reference agent by name."""
    if isinstance(agent, Policy):
        return figure_of(agent, split, "spl")
    return Figure("", "pointnav", f"metric=spl split={split} agent={agent} camera_height= hfov_deg=")


def figure_of(policy: Policy, split: str, metric: str) -> Figure:
    """A bundled policy's metric on fixed episodes of its task, with sampled actions."""
    split = split if policy.task == "pointnav" else f"{policy.task}_{split}"
    conditions = f"metric={metric} split={split} renderer=|raycast sample=|True camera_height= hfov_deg="
    return Figure("", policy.task, conditions, policy.name, policy.without_hash)


def _with_interval(row: Row) -> str:
    return f"{row['value']:.3f} ({row['low']:.3f} to {row['high']:.3f})"


def caption(text: str, rows: list[Row]) -> str:
    """A line with a text, the machines and the dates of rows."""
    machines = " and ".join(sorted({"CPU" if row["machine"].startswith("CPU") else machine(row) for row in rows}))
    first, last = min(row["date"] for row in rows), max(row["date"] for row in rows)
    return f"\n*{text}. {machines}; {first if first == last else f'{first} to {last}'}.*\n"


TABLES = {"learning": learning, "throughput": throughput, "policies": policies}
