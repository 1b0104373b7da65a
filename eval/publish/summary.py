"""The leaderboard of agents, and the newest values of the rows of eval/results."""

from __future__ import annotations

import tomllib
from typing import Any, NamedTuple

from batchnav.evaluation.players import HASH_DIGITS
from batchnav.procedural import EPISODE_FAMILIES
from batchnav.report.results import rows_of
from batchnav.runtime.bundled import ASSETS, WEIGHTS

Row = dict[str, Any]
Agent = tuple[str, int | None, int, str]
"""Key of a line of the leaderboard: name, frames, seed, and a text of encoder and sensors ("" for the defaults)."""


class Figure(NamedTuple):
    """A value of a table: that of the newest row that meets the conditions."""

    name: str
    """Name of the peer or agent in the table; empty for batchnav."""
    benchmark: str
    conditions: str
    """Conditions "name=value|value ...", see `parse`."""
    policy: str = ""
    """Bundled policy of the row, found by `policy_sha256`; "": any agent."""
    without_hash: str = ""
    """Conditions that identify the policy in rows without a hash; "": no such row."""


_LOW_COEF = "--imitation.coef 0.1 --ppo.entropy-coef 0.01"
_IN_METRES = "batchnav train --config pointnav_depth_cpu --policy.no-log-distance"
_SHORTER = "--scenes.houses 48 --ppo.minibatches 8 --ppo.total-frames 2750000"
_HOUSES = "batchnav train --config eval/studies/configs/pointnav_waypoint_houses_h200.yaml"
_NO_SCAN = "batchnav train --config pointnav_waypoint_h200 --env.map.no-initial-scan --imitation.coef 0.5"
_SCENES = "--scenes.houses 2048 --scenes.sources hall:0-255 scan:20000-20511 building:0-511 block:0-511"
TRAINED_BY = {
    (5_001_216, "simple_cnn"): "batchnav train --config pointnav_depth_cpu",
    (4_800_512, "simple_cnn"): f"{_IN_METRES} --ppo.total-frames 4800000",
    (6_400_000, "simple_cnn"): f"{_IN_METRES} --ppo.total-frames 6400000",
    (61_440, "simple_cnn, depth+waypoint"): (
        "batchnav train --config pointnav_waypoint_small_cpu --init-from runs/first --env.map.anticipation occupancy "
        "--ppo.learning-rate 3e-4 --ppo.total-frames 61_440"
    ),
    (102_400, "simple_cnn, depth+waypoint"): "batchnav train --config pointnav_waypoint_cpu",
    (614_400, "simple_cnn, depth+waypoint"): "batchnav train --config pointnav_waypoint_ppo_cpu --processes 1",
    (3_201_024, "simple_cnn, depth+waypoint"): (
        "batchnav train --config pointnav_waypoint_ppo_cpu --env.camera.height 24 --env.camera.width 24 "
        "--env.map.anticipation '' "
        f"--scenes.houses 96 --policy.no-log-distance {_LOW_COEF} --ppo.total-frames 3_200_000"
    ),
    (4_001_792, "simple_cnn"): f"{_IN_METRES} --ppo.minibatches 8 --ppo.total-frames 4000000",
    (4_300_800, "simple_cnn"): f"{_IN_METRES} --ppo.minibatches 8 --ppo.total-frames 4300000",
    (2_750_464, "simple_cnn"): f"{_IN_METRES} {_SHORTER}",
    (2_750_464, ""): f"{_IN_METRES} --policy.encoder se_resnet9 --policy.se-resnet9.base-width 8 {_SHORTER}",
    (300_023_808, ""): "batchnav train --config eval/studies/configs/pointnav_h200_300m.yaml",
    (180_092_928, ""): "batchnav train --config eval/studies/configs/pointnav_scans_h200.yaml",
    (165_019_648, ""): "batchnav train --config eval/studies/configs/pointnav_best_h200.yaml",
    (104_857_600, "depth+waypoint, initial scan"): "batchnav train --config pointnav_waypoint_h200",
    (104_857_600, "depth+waypoint"): _NO_SCAN,
    (104_857_600, "simple_cnn, depth+waypoint"): (
        "batchnav train --config pointnav_waypoint_small_cpu --env.map.anticipation occupancy --device cuda "
        f"--processes 1 --compile --graphs {_SCENES} --ppo.num-envs 4096 --ppo.rollout-steps 32 --ppo.minibatches 16 "
        "--ppo.learning-rate 1e-3 --ppo.total-frames 104_857_600"
    ),
    (131_072_000, "depth+waypoint"): (
        f"{_HOUSES} --env.map.anticipation '' --imitation.expert '' --ppo.entropy-coef 0.01 "
        "--scenes.houses 4096 --ppo.total-frames 131_072_000"
    ),
    (59_244_544, "depth+waypoint"): (f"{_HOUSES} --env.map.anticipation '' {_LOW_COEF} --ppo.total-frames 59_244_544"),
    (129_236_992, "depth+waypoint"): (
        f"{_HOUSES} --env.map.anticipation '' --imitation.expert '' --ppo.entropy-coef 0.01 "
        "--ppo.total-frames 129_236_992"
    ),
    (74_973_184, "depth+waypoint"): _HOUSES,
    (83_886_080, "depth+waypoint"): (f"{_HOUSES} {_LOW_COEF} --ppo.total-frames 83_886_080"),
    (64_225_280, "depth+waypoint"): (
        f"{_HOUSES} --init-from runs/first/policy.safetensors --scenes.houses 4096 "
        "--imitation.coef 0 --ppo.entropy-coef 0.003 --ppo.total-frames 64_225_000"
    ),
    (300_023_808, "rgb"): "batchnav train --config pointnav_rgb_h200",
    (200_015_872, "rgb"): (
        "batchnav train --config pointnav_rgb_h200 --ppo.total-frames 200_000_000 --scenes.no-randomize-materials"
    ),
}
"""Training command by frames, encoder and sensors, for agents that can be trained with the current version."""


_CHANGED = {"camera_height", "hfov_deg", "changes"}
"""Parameters of rows of agents in other environments than their own."""


def leaderboard() -> str:
    """Table with a line per agent, best SPL on `val` first: success and SPL on each split, date, commit, command."""
    lines: dict[Agent, dict[tuple[str, str], Row]] = {}
    names: dict[tuple[int | None, int, str], str] = {}
    for row in wanted_rows("pointnav", parse(f"metric=success|spl split={'|'.join(EPISODE_FAMILIES)} sample=|True")):
        params = row["params"]
        if params.get("renderer", "raycast") == "raycast" and not _CHANGED & params.keys():
            notes = [params[name] for name in ("encoder", "sensors") if params.get(name)]
            if params.get("initial_scan") and params.get("frames"):  # reference agents differ by name
                notes.append("initial scan")
            kind = ", ".join(notes)
            # A row without a hash belongs to the policy with the same frames, seed, encoder and sensors.
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
    head = ["agent", "frames", *splits, "date", "commit", "command"]
    cells = (_agent_line(agent, found, splits) for agent, found in best)
    return markdown([head, ["---", "---:", *["---"] * (len(head) - 2)], *cells])


def _agent_line(agent: Agent, found: dict[tuple[str, str], Row], splits: list[str]) -> list[str]:
    """An agent's cells: "success, SPL" of each split."""
    name, frames, seed, kind = agent
    figures = [[found.get((split, metric)) for metric in ("success", "spl")] for split in splits]
    cells = [", ".join(f"{row['value']:.3f}" for row in pair if row) for pair in figures]
    dates, commits = (list(dict.fromkeys(row[key] for row in found.values())) for key in ("date", "commit"))
    command = TRAINED_BY.get((frames, kind), "") if frames else f"batchnav evaluate {name}"
    command += f" --seed {seed}" if command and seed else ""
    trained = rounded(frames) if frames else ""
    name += f", {kind}" if kind else ""
    return [name, trained, *cells, max(dates), ", ".join(commits), f"`{command}`" if command else "see the log"]


def newest(figure: Figure) -> Row | None:
    """The newest row that meets the conditions of a figure; None if there is none."""
    found = wanted_rows(figure.benchmark, parse(figure.conditions))
    if figure.policy:
        digest, unhashed = bundled_sha256(figure.policy), parse(figure.without_hash)
        found = [
            row
            for row in found
            if (
                row["params"]["policy_sha256"] == digest
                if "policy_sha256" in row["params"]
                else unhashed and is_wanted(row, unhashed)
            )
        ]
    return found[-1] if found else None


def bundled_sha256(policy: str) -> str:
    """The first `HASH_DIGITS` hex digits of a bundled policy's SHA-256, from assets/MANIFEST.toml."""
    manifest = tomllib.loads((ASSETS / "MANIFEST.toml").read_text(encoding="utf-8"))
    return manifest[f"policies/{policy}/{WEIGHTS}"]["sha256"][:HASH_DIGITS]


def wanted_rows(benchmark: str, wanted: dict[str, list[str]]) -> list[Row]:
    """The newest rows of a benchmark that have one of the wanted values of each parameter, metric and machine."""
    return [row for row in rows_of(benchmark) if is_wanted(row, wanted)]


def is_wanted(row: Row, wanted: dict[str, list[str]]) -> bool:
    """Return True if a row has one of the wanted values of each parameter, metric and machine."""
    name = "CPU" if row["machine"].startswith("CPU") else machine(row)
    values_of = {**row["params"], "metric": row["metric"], "machine": name}
    return all(str(values_of.get(key, "")).replace(" ", "_") in values for key, values in wanted.items())


def parse(conditions: str) -> dict[str, list[str]]:
    """Parse conditions " name=value|value ..." to values by name; "_" stands for a space in a value."""
    pairs = (condition.split("=", 1) for condition in conditions.split())
    return {name: values.replace(" ", "_").split("|") for name, values in pairs}


def machine(row: Row) -> str:
    """Short name of a row's machine: "H200", "2 CPU cores"."""
    name = row["machine"]
    return f"{name.rsplit(', ', 1)[1].split()[0]} CPU cores" if name.startswith("CPU") else name.removeprefix("NVIDIA ")


def markdown(cells: list[list[str]]) -> str:
    """Lines of a Markdown table."""
    return "".join("| " + " | ".join(line) + " |\n" for line in cells)


def rounded(value: float) -> str:
    """Format with two digits, as millions or billions; shares have two decimals, or three if two would round to 1."""
    for size, word in ((1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{float(f'{value / size:.2g}'):g} {word}"
    if 0.995 <= value < 1.0:
        return f"{value:.3f}"
    return f"{value:.2f}" if value <= 1.0 else f"{float(f'{value:.2g}'):,.0f}"


SUMMARIES = {"leaderboard": leaderboard}
