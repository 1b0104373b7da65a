"""README's table of main figures and the leaderboard of agents, from the rows of eval/results, rounded for people."""

from __future__ import annotations

import tomllib
from typing import Any, NamedTuple

from batchnav.evaluation.players import HASH_DIGITS
from batchnav.procedural import EPISODE_FAMILIES
from batchnav.renamed import AGENTS, SENSORS
from batchnav.report.results import rows_of
from batchnav.runtime.files.bundled import ASSETS, WEIGHTS

Row = dict[str, Any]
Agent = tuple[str, int | None, int, str]
"""What tells a line of the leaderboard from others: name, frames, seed, encoder and sensors ("" for the paper's)."""


class Figure(NamedTuple):
    """The value of the newest row that meets conditions."""

    name: str
    """Name of the measured thing in the table; empty for the project's own."""
    benchmark: str
    conditions: str
    """Conditions in the syntax of a table's marker."""
    policy: str = ""
    """Bundled policy that a row is of, by `policy_sha256`; "": any agent."""
    without_hash: str = ""
    """Conditions that tell the policy in rows from before there were hashes."""


class Claim(NamedTuple):
    """A line of the table: what was measured, ours, and what it is read beside."""

    what: str
    ours: Figure
    beside: tuple[Figure, ...]


def _pointnav(agent: str, metric: str) -> Figure:
    name = {"shortest_path": "shortest-path follower", "blind": "a compass alone"}[agent]
    return Figure(name, "pointnav", f"metric={metric} split=val agent={agent}")


def _policy(policy: str, metric: str, without_hash: str, name: str = "") -> Figure:
    """A bundled policy on `val`, with sampled actions; `without_hash` tells its rows that have no hash."""
    conditions = f"metric={metric} split=val renderer=|raycast sample=|True camera_height= hfov_deg="
    return Figure(name, "pointnav", conditions, policy, f"agent=learned {without_hash}")


def _task(task: str, metric: str, agent: str, name: str = "") -> Figure:
    return Figure(name, task, f"metric={metric} split=val agent={agent}")


def _render(name: str, renderer: str, machine: str, agents: int, sensors: str = "|depth") -> Figure:
    scene = f"scene=aws_small_house{'_textured' if 'rgb' in sensors else ''} width=64 metric=frames_per_second"
    where = f"machine={machine} num_agents={agents}"
    return Figure(name, "render", f"{scene} {where} renderer={renderer} sensors={sensors}")


def _training(name: str, part: str, ranks: int = 1) -> Figure:
    how = "policy=paper num_envs=4096 minibatches=16 width=64 slots=0 deterministic=False"
    return Figure(name, "train", f"part={part} ranks={ranks} {how}")


def _cartpole(name: str, how: str) -> Figure:
    return Figure(name, "cartpole", f"part=scaling num_envs=65536 machine=H200 how={how}")


_DEPTH = "renderer=raycast sample=True frames=165019648"
CLAIMS = (
    Claim("PointNav, 20 houses never seen: success", _policy("pointnav_h200", "success", _DEPTH),
          (_pointnav("shortest_path", "success"), _pointnav("blind", "success"))),
    Claim("PointNav, 20 houses never seen: SPL", _policy("pointnav_h200", "spl", _DEPTH),
          (_pointnav("shortest_path", "spl"), _pointnav("blind", "spl"))),
    Claim("SPL of the map planner, no learning (`map_planner`)",
          Figure("", "pointnav", "metric=spl split=val agent=map_planner"), ()),
    Claim("SPL of the map planner with initial scan and occupancy anticipation (`map_planner_anticipation`)",
          Figure("", "pointnav", "metric=spl split=val agent=map_planner_anticipation"),
          (_policy("pointnav_plan_h200", "spl", "frames=104857600 sensors=depth+waypoint encoder=",
                   "trained with it, `pointnav_plan_h200`"),)),
    Claim("SPL of the small policy for two CPU cores (`pointnav_cpu`)", Figure("", "pointnav", "metric=spl "
          "split=val agent=learned|pointnav_cpu renderer=raycast sample=True frames=5001216 seed=0 encoder=simple_cnn"),
          ()),
    Claim("SPL of the small policy with waypoint and expert (`pointnav_plan_small`)",
          _policy("pointnav_plan_small", "spl", "sample=True frames=61440 sensors=depth+waypoint"), ()),
    Claim("Flee, the same houses: share of the farthest place", _task("flee", "share_of_farthest", "learned|flee_h200"),
          (_task("flee", "share_of_farthest", "shortest_path", "knowing the map"),
           _task("flee", "share_of_farthest", "random", "steps at random"))),
    Claim("Explore, the same houses: square metres visited in 500 steps", _task("explore", "cells", "learned|explore_h200"),
          (_task("explore", "cells", "frontier", "knowing the map, to the frontier"),
           _task("explore", "cells", "random", "steps at random"))),
    Claim("training from end to end, the paper's network, frames/s on one H200", _training("", "whole"),
          (_training("the network alone", "policy"),)),
    Claim("the same on two H200", _training("", "whole", 2), ()),
    Claim("depth images of 64x64, a furnished house, frames/s on one H200", _render("", "raycast", "H200", 4096),
          (_render("Warp 1.19", "warp_1.19.0_cubql", "H200", 4096),)),
    Claim("the same with colour, textured", _render("", "raycast", "H200", 4096, "rgb+depth"),
          (_render("Warp 1.19", "warp_1.19.0_cubql", "H200", 4096, "rgb+depth"),)),
    Claim("the same without colour on two CPU cores", _render("", "raycast", "CPU", 256),
          (_render("Embree", "Embree_(embreex_4.4.0.post1)", "CPU", 256),)),
    Claim("shortest paths a second on a navmesh, one H200",
          Figure("", "navmesh", "metric=geodesics_per_second machine=H200"),
          (Figure("two CPU cores", "navmesh", "metric=geodesics_per_second machine=CPU"),)),
    Claim("CartPole, 65,536 environments, steps/s on one H200", _cartpole("", "graph"),
          (_cartpole("gymnax", "gymnax_1.0.1_scan,_jax_0.11.2_gpu"),
           _cartpole("PyTorch compiled, in a graph", "torch_compiled,_graph"))),
)  # fmt: skip
"""What README says first."""

_WEAKER = "--kickstart.coef 0.1 --ppo.entropy-coef 0.01"
_BY_METRES = "batchnav train --config pointnav_cpu --policy.no-log-distance"
_SHORTER = "--scenes.houses 48 --ppo.minibatches 8 --ppo.total-frames 2750000"
_AT_ONCE = "batchnav train --config pointnav_plan_h200 --map.no-look-around --kickstart.coef 0.5"
_LEFT_ALONE = f"{_AT_ONCE} --kickstart.share 1.05 --ppo.gamma 0.997"
TRAINED_BY = {
    (5_001_216, "simple_cnn"): "batchnav train --config pointnav_cpu",
    (4_800_512, "simple_cnn"): f"{_BY_METRES} --ppo.total-frames 4800000",
    (6_400_000, "simple_cnn"): f"{_BY_METRES} --ppo.total-frames 6400000",
    (61_440, "simple_cnn, depth+waypoint"): (
        "batchnav train --config pointnav_plan_small --init-from runs/first --map.anticipation occupancy "
        "--ppo.learning-rate 3e-4 --ppo.total-frames 61_440"
    ),
    (614_400, "simple_cnn, depth+waypoint"): "batchnav train --config pointnav_plan_cpu --processes 1",
    (3_201_024, "simple_cnn, depth+waypoint"): (
        "batchnav train --config pointnav_plan_cpu --camera.height 24 --camera.width 24 --map.anticipation '' "
        f"--scenes.houses 96 --policy.no-log-distance {_WEAKER} --ppo.total-frames 3_200_000"
    ),
    (4_001_792, "simple_cnn"): f"{_BY_METRES} --ppo.minibatches 8 --ppo.total-frames 4000000",
    (4_300_800, "simple_cnn"): f"{_BY_METRES} --ppo.minibatches 8 --ppo.total-frames 4300000",
    (2_750_464, "simple_cnn"): f"{_BY_METRES} {_SHORTER}",
    (2_750_464, ""): f"{_BY_METRES} --policy.encoder se_resnet9 {_SHORTER}",
    (300_023_808, ""): "batchnav train --config pointnav_h200_300m",
    (180_092_928, ""): "batchnav train --config pointnav_scans_h200",
    (165_019_648, ""): "batchnav train --config pointnav_best_h200",
    (104_857_600, "depth+waypoint, looks around"): "batchnav train --config pointnav_plan_h200",
    (104_857_600, "depth+waypoint"): _AT_ONCE,
    (171_048_960, "depth+waypoint"): f"{_LEFT_ALONE} --ppo.total-frames 171_048_960",
    (160_956_416, "depth+waypoint"): (
        f"{_LEFT_ALONE} --scenes.files hall:0-255 scan:20000-21535 building:0-511 block:0-511 "
        "--ppo.total-frames 160_956_416"
    ),
    (104_857_600, "simple_cnn, depth+waypoint"): (
        "batchnav train --config pointnav_plan_small --map.anticipation occupancy --device cuda --processes 1 "
        "--compile --graphs --scenes.houses 2048 --scenes.files hall:0-255 scan:20000-20511 building:0-511 "
        "block:0-511 --ppo.num-envs 4096 --ppo.rollout-steps 32 --ppo.minibatches 16 --ppo.learning-rate 1e-3 "
        "--ppo.total-frames 104_857_600"
    ),
    (131_072_000, "depth+waypoint"): (
        "batchnav train --config pointnav_plan_houses_h200 --map.anticipation '' --kickstart.teacher '' "
        "--ppo.entropy-coef 0.01 --scenes.houses 4096 --ppo.total-frames 131_072_000"
    ),
    (59_244_544, "depth+waypoint"): (
        f"batchnav train --config pointnav_plan_houses_h200 --map.anticipation '' {_WEAKER} "
        "--ppo.total-frames 59_244_544"
    ),
    (129_236_992, "depth+waypoint"): (
        "batchnav train --config pointnav_plan_houses_h200 --map.anticipation '' --kickstart.teacher '' "
        "--ppo.entropy-coef 0.01 --ppo.total-frames 129_236_992"
    ),
    (74_973_184, "depth+waypoint"): "batchnav train --config pointnav_plan_houses_h200",
    (83_886_080, "depth+waypoint"): (
        f"batchnav train --config pointnav_plan_houses_h200 {_WEAKER} --ppo.total-frames 83_886_080"
    ),
    (64_225_280, "depth+waypoint"): (
        "batchnav train --config pointnav_plan_houses_h200 --init-from runs/first/policy.safetensors "
        "--scenes.houses 4096 --kickstart.coef 0 --ppo.entropy-coef 0.003 --ppo.total-frames 64_225_000"
    ),
    (300_023_808, "rgb"): "batchnav train --config pointnav_rgb_h200",
    (200_015_872, "rgb"): (
        "batchnav train --config pointnav_rgb_h200 --ppo.total-frames 200_000_000 --scenes.no-redraw-finishes"
    ),
}
"""By frames, encoder and sensors, how agents were trained that can be trained again so."""


def main_table() -> str:
    """The claims whose figures there are, in Markdown; "No figures yet." without any."""
    cells = [["", "batchnav", "beside it", "commit"], ["---", "---:", "---", "---"]]
    for claim in CLAIMS:
        ours, peers = newest(claim.ours), [(peer.name, newest(peer)) for peer in claim.beside]
        if ours:
            beside = "; ".join(f"{name}: {rounded(row['value'])}" for name, row in peers if row)
            commits = dict.fromkeys(row["commit"] for row in (ours, *(row for _, row in peers if row)))
            cells.append([claim.what, f"**{rounded(ours['value'])}**", beside, ", ".join(commits)])
    return markdown(cells) if len(cells) > 2 else "No figures yet.\n"


def leaderboard() -> str:
    """One line an agent, the best SPL on `val` first: success and SPL on each split, when, commit, how to repeat it."""
    lines: dict[Agent, dict[tuple[str, str], Row]] = {}
    names: dict[tuple[int | None, int, str], str] = {}
    for row in wanted_rows("pointnav", parse(f"metric=success|spl split={'|'.join(EPISODE_FAMILIES)} sample=|True")):
        params = row["params"]
        if params.get("renderer", "raycast") == "raycast" and not {"camera_height", "hfov_deg"} & params.keys():
            notes = [params[name] for name in ("encoder", "sensors") if params.get(name)]
            if params.get("look_around") and params.get("frames"):  # reference agents are told apart by name
                notes.append("looks around")
            kind = ", ".join(notes)
            # Rows of a policy without a hash are those of the same frames, seed, encoder and sensors.
            trained = params.get("frames"), params.get("seed") or 0, kind
            if params.get("policy_sha256"):
                names[trained] = params["agent"]
            lines.setdefault((params["agent"], *trained), {})[params["split"], row["metric"]] = row
    for agent in [agent for agent in lines if agent[0] == "learned" and agent[1:] in names]:
        lines[names[agent[1:]], *agent[1:]] = lines.pop(agent) | lines[names[agent[1:]], *agent[1:]]
    if not lines:
        return "No figures yet.\n"
    best = sorted(lines.items(), key=lambda line: -line[1].get(("val", "spl"), {"value": 0.0})["value"])
    splits = [split for split in EPISODE_FAMILIES if any((split, "spl") in found for found in lines.values())]
    head = ["agent", "frames", *splits, "when", "commit", "how"]
    cells = (_agent_line(agent, found, splits) for agent, found in best)
    return markdown([head, ["---", "---:", *["---"] * (len(head) - 2)], *cells])


def _agent_line(agent: Agent, found: dict[tuple[str, str], Row], splits: list[str]) -> list[str]:
    """An agent's cells: "success, SPL" of each split."""
    name, frames, seed, kind = agent
    figures = [[found.get((split, metric)) for metric in ("success", "spl")] for split in splits]
    cells = [", ".join(f"{row['value']:.3f}" for row in pair if row) for pair in figures]
    dates, commits = (list(dict.fromkeys(row[key] for row in found.values())) for key in ("date", "commit"))
    how = TRAINED_BY.get((frames, kind), "") if frames else f"batchnav evaluate {name}"
    how += f" --seed {seed}" if how and seed else ""
    trained = rounded(frames) if frames else ""
    name += f", {kind}" if kind else ""
    return [name, trained, *cells, max(dates), ", ".join(commits), f"`{how}`" if how else "see LOG.md"]


def newest(figure: Figure) -> Row | None:
    """The last row that meets the conditions."""
    found = wanted_rows(figure.benchmark, parse(figure.conditions))
    if figure.policy:
        digest, former = bundled_sha256(figure.policy), parse(figure.without_hash)
        found = [
            row
            for row in found
            if (
                row["params"]["policy_sha256"] == digest if "policy_sha256" in row["params"] else is_wanted(row, former)
            )
        ]
    return found[-1] if found else None


def bundled_sha256(policy: str) -> str:
    """The first digits of a bundled policy's SHA-256, from assets/MANIFEST.toml."""
    manifest = tomllib.loads((ASSETS / "MANIFEST.toml").read_text(encoding="utf-8"))
    return manifest[f"policies/{policy}/{WEIGHTS}"]["sha256"][:HASH_DIGITS]


def wanted_rows(benchmark: str, wanted: dict[str, list[str]]) -> list[Row]:
    """The newest rows of a benchmark with one of the wanted values of each parameter, metric and machine.

    Agents and sensors have their current names, also in rows with names of version 0.0.
    """
    return [row for row in map(_renamed, rows_of(benchmark)) if is_wanted(row, wanted)]


def _renamed(row: Row) -> Row:
    """A row with current names of agent and sensors."""
    params = dict(row["params"])
    if "agent" in params:
        params["agent"] = AGENTS.get(params["agent"], params["agent"])
    if "agent" in params and "sensors" in params:
        params["sensors"] = "+".join(SENSORS.get(name, name) for name in params["sensors"].split("+"))
    return {**row, "params": params}


def is_wanted(row: Row, wanted: dict[str, list[str]]) -> bool:
    name = "CPU" if row["machine"].startswith("CPU") else machine(row)
    facts = {**row["params"], "metric": row["metric"], "machine": name}
    return all(str(facts.get(key, "")).replace(" ", "_") in values for key, values in wanted.items())


def parse(conditions: str) -> dict[str, list[str]]:
    """Values by name, of " name=value|value ..."; a space in a value is written "_"."""
    pairs = (condition.split("=", 1) for condition in conditions.split())
    return {name: values.replace(" ", "_").split("|") for name, values in pairs}


def machine(row: Row) -> str:
    """Its short name: "H200", "2 CPU cores"."""
    name = row["machine"]
    return f"{name.rsplit(', ', 1)[1].split()[0]} CPU cores" if name.startswith("CPU") else name.removeprefix("NVIDIA ")


def markdown(cells: list[list[str]]) -> str:
    """A table's lines."""
    return "".join("| " + " | ".join(line) + " |\n" for line in cells)


def rounded(value: float) -> str:
    """For people: two digits, in words from a million on; shares with two decimals, or three where two would be all."""
    for size, word in ((1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{float(f'{value / size:.2g}'):g} {word}"
    if 0.995 <= value < 1.0:
        return f"{value:.3f}"
    return f"{value:.2f}" if value <= 1.0 else f"{float(f'{value:.2g}'):,.0f}"


SUMMARIES = {"main": main_table, "leaderboard": leaderboard}
