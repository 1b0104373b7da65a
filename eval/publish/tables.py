"""Write the tables of results from eval/results/*.jsonl; each cell shows the newest row.

    python -m eval.publish.tables            # rewrite the text between `<!-- results NAME -->` and `<!-- end -->`
    python -m eval.publish.tables --check    # exit with 1 if a file differs from its tables

NAME is a key of TABLES, or of the tables of summary.py, readme.py, agents.py or record.py. `robustness` also draws
`robustness.webp` beside its file, the model card of a bundled policy; `record` draws eval/results/record.webp. Lines of
eval/results/README.md and eval/studies/README.md end with the rows' commits, those of other files with their dates.
Conditions select rows by parameter, metric or machine ("H200", "CPU"), for example
`<!-- results pointnav split=val|test seed=0 -->`.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from batchnav.evaluation.intervals import Interval, format_interval
from batchnav.learning import PPOConfig
from batchnav.report.results import figure, shown, unit
from batchnav.report.robustness import PICTURE, robustness_picture
from eval.publish import agents, readme, record
from eval.publish.summary import SUMMARIES, Row, bundled_sha256, machine, markdown, parse, wanted_rows

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md", "eval/results/README.md", "eval/studies/README.md", "docs/benchmarks/model_zoo.md",
    "docs/benchmarks/throughput.md", "docs/benchmarks/record.md", "docs/howto/other_libraries.md",
    "assets/policies/pointnav_waypoint_small/README.md",
)  # fmt: skip
FILES = tuple(ROOT / name for name in PAGES)
BLOCK = re.compile(r"(<!-- results (\w+)((?: \w+=\S*)*) -->\n).*?(<!-- end -->)", re.DOTALL)
SPLITS = ("val", "test", "test_120", "procthor_unseen", "aws_small_house")
WHOLE = {**SUMMARIES, **readme.TABLES, **agents.TABLES, **record.TABLES}
"""Tables without conditions."""
METRICS = {"success": "success", "spl": "SPL", "soft_spl": "soft SPL"}


def main() -> None:
    """Rewrite or check the tables of all files."""
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        stamp = "commit" if path.parent.name in ("results", "studies") else "date"
        names = (*TABLES, *WHOLE)
        unknown = {match[2] for match in BLOCK.finditer(text)} - set(names)
        if unknown:
            sys.exit(f"{path}: found <!-- results {min(unknown)} -->, expected one of {', '.join(names)}")
        new = BLOCK.sub(lambda m, stamp=stamp: m[1] + made(m[2], m[3], stamp) + m[4], text)
        if "--check" not in sys.argv:
            path.write_text(new, encoding="utf-8")
            for block in BLOCK.finditer(text):
                if block[2] == "robustness" and (picture := picture_of_rows(parse(block[3]))):
                    (path.parent / PICTURE).write_bytes(picture)
                elif block[2] == "record":
                    record.write_curves()
        elif new != text:
            sys.exit(f"{path}: found tables that differ from eval/results; run python -m eval.publish.tables")


def made(name: str, conditions: str, stamp: str = "commit") -> str:
    """Markdown table of a name, with the rows that meet the conditions; `stamp` is the entry in its last column."""
    return WHOLE[name]() if name in WHOLE else table(name, parse(conditions), stamp)


def picture_of_rows(wanted: dict[str, list[str]]) -> bytes:
    """The picture of the rows of a table `robustness`: the first two metrics under each condition; empty if none."""
    found: dict[str, dict[str, Interval]] = {}
    rows = [row for row in wanted_rows("robustness", wanted) if metric_of_bundled(row)]
    for row in rows:
        mean = Interval(row["value"], row["low"], row["high"], row["params"]["episodes"])
        found.setdefault(row["params"]["condition"], {})[row["metric"]] = mean
    if not rows:
        return b""
    params = rows[0]["params"]
    return robustness_picture(
        f"{params['agent']} on {params['split']}", found, list(dict.fromkeys(r["metric"] for r in rows))[:2]
    )


def metric_of_bundled(row: Row) -> str | None:
    """Title of a row's metric; None for a policy that is no longer the bundled one of its name."""
    params = row["params"]
    return METRICS[row["metric"]] if params["policy_sha256"] == bundled_sha256(params["agent"]) else None


class Layout(NamedTuple):
    """Layout of a table: rows with equal labels share a line."""

    benchmark: str
    """Name of the rows' file: eval/results/NAME.jsonl."""
    labels: dict[str, Callable[[Row], str]]
    """First columns: title, and function from a row to its text."""
    column: Callable[[Row], str | None]
    """Function from a row to the title of its value's column; None for rows that the table omits."""
    order: Callable[[Row], Any] | None = None
    """Sort key of rows; None: the order of the file."""
    cell: Callable[[Row], str] = lambda row: f"**{figure(row['value'])}**"
    """Function from a row to the text of its value."""
    better: Callable[[Row, Row], bool] = lambda new, old: True
    """Returns True if a row replaces an older one in its cell."""


def table(name: str, wanted: dict[str, list[str]], stamp: str = "commit") -> str:
    """Markdown table of the rows that have the wanted values."""
    layout, lines, titles = TABLES[name], {}, {}
    rows = [row for row in wanted_rows(layout.benchmark, wanted) if layout.column(row)]
    for row in sorted(rows, key=layout.order) if layout.order else rows:
        title = layout.column(row)
        titles[title] = None
        line = lines.setdefault(tuple(label(row) for label in layout.labels.values()), {})
        if title not in line or layout.better(row, line[title]):
            line[title] = row
    if not lines:
        return "No figures yet.\n"
    labels = [i for i in range(len(layout.labels)) if any(line[i] for line in lines)]  # without empty columns
    head = [*(list(layout.labels)[i] for i in labels), *titles, stamp]
    cells = [head, ["---"] * len(labels) + ["---:"] * len(titles) + ["---"]]
    for line, found in lines.items():
        stamps = dict.fromkeys(row[stamp] for row in found.values())
        figures = (layout.cell(found[title]) if title in found else "" for title in titles)
        cells.append([*(line[i] for i in labels), *figures, ", ".join(stamps)])
    return markdown(cells)


def param(name: str) -> Callable[[Row], str]:
    """Label function: a parameter's value, with thousands separators."""

    def label(row: Row) -> str:
        value = row["params"].get(name)
        small = isinstance(value, int) and not isinstance(value, bool) and value < 1_000_000
        return f"{value:,}" if small else shown(value)

    return label


def image(row: Row) -> str:
    """Image size."""
    return "{width}x{height}".format(**row["params"])


def minibatch(row: Row) -> int:
    """Frames of a minibatch."""
    return row["params"]["num_envs"] * PPOConfig().rollout_steps // row["params"]["minibatches"]


_IN_NOTES = {"actuation_noise", "depth_noise", "gps_compass", "camera_height", "hfov_deg"}
"""Settings with words of their own among the differences of an agent."""


def agent(row: Row) -> str:
    """Name of a row's agent, with its differences from the default agent."""
    params = row["params"]
    notes = [params[name] for name in ("encoder", "sensors") if params.get(name)]
    notes += [f"seed {params['seed']}"] if params.get("seed") else []
    notes += ["most probable actions"] if params.get("sample") is False else []
    notes += ["OpenGL"] if params.get("renderer") == "opengl" else []
    notes += ["initial scan"] if params.get("initial_scan") else []
    notes += [f"{kind} noise" for kind in ("actuation", "depth") if params.get(f"{kind}_noise")]
    notes += ["no GPS and compass"] if params.get("gps_compass") is False else []
    notes += [f"camera at {params['camera_height']:g} m"] if "camera_height" in params else []
    notes += [f"{params['hfov_deg']:g} degrees"] if "hfov_deg" in params else []
    changes = {name.rpartition(".")[2]: value for name, value in params.get("changes", {}).items()}
    notes += [f"{name.replace('_', ' ')} {value}" for name, value in changes.items() if name not in _IN_NOTES]
    return ", ".join([params["agent"], *notes])


def agent_order(row: Row) -> tuple[int, int, int]:
    """Sort key: split, frames of training (most first), metric."""
    params, metrics = row["params"], list(METRICS)
    split = SPLITS.index(params["split"]) if params["split"] in SPLITS else len(SPLITS)
    return split, -(params.get("frames") or 0), metrics.index(row["metric"]) if row["metric"] in metrics else 0


def interval(row: Row) -> str:
    """Mean with its 95% intervals: over episodes and, after the semicolon, over scenes."""
    ends = [math.nan if row.get(name) is None else row[name] for name in ("low", "high", "scene_low", "scene_high")]
    if row["metric"] in METRICS:  # shares; older rows hold intervals beyond 0 and 1
        ends = np.clip(ends, 0.0, 1.0)
    mean, episodes, scenes = format_interval(Interval(row["value"], *ends[:2], 0, *ends[2:]))
    return f"**{mean}** ({episodes}{f'; {scenes}' if scenes else ''})"


def rate(row: Row) -> str:
    """Frames per second, and their share of the policy-only bound."""
    return f"**{figure(row['value'])}** ({row['share_of_policy_only']:.0%})"


def options(row: Row) -> str:
    """Number of GPUs if several, and options of training that are on."""
    params = row["params"]
    several = [f"{params['ranks']} GPUs"] if params["ranks"] > 1 else []
    names = ("one_graph", "deterministic", "tuned")
    return ", ".join([*several, *(name.replace("_", " ") for name in names if params[name])])


def houses(row: Row) -> str:
    """Number of training houses, and how many are resident at a time."""
    params = row["params"]
    total, resident = f"{params['houses']:,}", params["resident_scenes"]
    return f"{resident} of {total}" if resident else total


def renderer(row: Row) -> str | None:
    """Name of a row's renderer; Warp's three acceleration structures share a column."""
    name = row["params"]["renderer"]
    if row["metric"] != "frames_per_second" or " without " in name or "depth" not in sensors(row):
        return None
    return {"raycast": "ray caster", "opengl": "OpenGL"}.get(name, name.rsplit(" ", 1)[0] if "warp" in name else name)


def other_sensors(row: Row) -> str:
    """Sensors besides depth."""
    return ", ".join(name for name in sensors(row) if name != "depth")


def sensors(row: Row) -> list[str]:
    """Sensors of a row; rows without the parameter have depth only."""
    return row["params"].get("sensors", "depth").split("+")


PLAYED = {"agent": agent, "frames": param("frames"), "split": param("split"), "episodes": param("episodes")}
TABLES = {
    "pointnav": Layout("pointnav", PLAYED, lambda row: METRICS[row["metric"]], order=agent_order, cell=interval),
    "flee": Layout("flee", PLAYED, lambda row: unit(row["metric"]), order=agent_order, cell=interval),
    "explore": Layout("explore", PLAYED, lambda row: unit(row["metric"]), order=agent_order, cell=interval),
    "robustness": Layout(
        "robustness",
        {"condition": param("condition"), "episodes": param("episodes")},
        metric_of_bundled,
        cell=interval,
    ),
    "train": Layout(
        "train",
        {
            "policy": param("policy"), "image": image, "environments": param("num_envs"),
            "frames per minibatch": lambda row: f"{minibatch(row):,}", "houses": houses, "options": options,
        },
        lambda row: "frames/s (share of the policy-only bound)" if row["params"]["part"] == "whole" else None,
        order=lambda row: (row["params"]["policy"] != "paper", row["params"]["width"], row["params"]["num_envs"],
                           minibatch(row)),
        cell=rate,
    ),
    "batch_study": Layout(
        "batch_study",
        {
            "optimiser": param("optimizer"), "base rate": param("learning_rate"), "environments": param("num_envs"),
            "frames per minibatch": lambda row: f"{minibatch(row):,}", "frames": param("frames"),
            "seconds": param("seconds"),
        },
        lambda row: "SPL",
        order=lambda row: (row["params"]["optimizer"] != "lamb", minibatch(row), row["params"]["num_envs"]),
        cell=lambda row: f"**{row['value']:.3f}**",
    ),
    "render": Layout(
        "render",
        {
            "machine": machine, "scene": param("scene"), "triangles": param("triangles"), "image": image,
            "agents": param("num_agents"), "sensors besides depth": other_sensors,
        },
        renderer,
        better=lambda new, old: "warp" not in new["params"]["renderer"] or new["value"] > old["value"],
    ),
    "render_culling": Layout(
        "render",
        {"machine": machine, "scene": param("scene"), "image": image, "agents": param("num_agents")},
        lambda row: row["params"]["renderer"].partition("opengl ")[2] or None,
    ),
    "render_stages": Layout(
        "render",
        {"machine": machine, "scene": param("scene"), "image": image, "agents": param("num_agents")},
        lambda row: row["params"].get("stage"),
    ),
    "sim": Layout(
        "sim",
        {
            "machine": machine, "scene": param("scene"), "task": param("task"), "agents": param("num_envs"),
            "noise": param("actuation_noise"),
        },
        lambda row: "{}, {actions}".format(unit(row["metric"]), **row["params"]),
        order=lambda row: ("CPU" in row["machine"], *(row["params"][by] for by in ("scene", "task", "num_envs"))),
    ),
    "adapters": Layout(
        "cartpole",
        {"library": param("library")},
        lambda row: unit(row["metric"]) if row["params"]["part"] == "adapters" else None,
        order=lambda row: -row["value"],
    ),
    "navmesh": Layout(
        "navmesh",
        {
            "machine": machine, "scene": param("scene"), "triangles": param("triangles"),
        },
        lambda row: unit(row["metric"]),
    ),
}  # fmt: skip


if __name__ == "__main__":
    main()
