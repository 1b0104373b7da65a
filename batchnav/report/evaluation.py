"""The report of an evaluation: one self-contained HTML page with tables, learning curves and replayable episodes."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from batchnav.errors import BatchnavError
from batchnav.evaluation.failure_kinds import meanings_of
from batchnav.evaluation.failures import failure_table
from batchnav.evaluation.groups import properties
from batchnav.evaluation.intervals import format_interval
from batchnav.evaluation.players import Player, PolicyPlayer
from batchnav.evaluation.run import Evaluation, Played
from batchnav.evaluation.trajectories import Trajectory
from batchnav.report.breakdown import breakdowns, compared_by
from batchnav.report.charts import COLOURS, Chart, Rows, charts, in_words
from batchnav.report.episodes import Plans, packed_trajectory, placed_map, places, shown_steps, strips
from batchnav.report.metrics import load_metrics
from batchnav.report.page import as_yaml, command, now, render
from batchnav.report.results import commit, versions
from batchnav.runtime.device import machine
from batchnav.runtime.files.atomic import replacing
from batchnav.runtime.files.reading import read_text
from batchnav.tasks import TASKS
from batchnav.types import Metric
from batchnav.view.goals import shown_goals

log = logging.getLogger(__name__)

MAX_LISTED = 500
"""Maximum number of episodes listed on the page; results.json has all."""
PAGE = "index.html"


class Row(NamedTuple):
    """A line of the page's episode list."""

    number: int
    """Index in the episode file."""
    name: str
    scene: str
    distance: float
    """Geodesic distance to the goal, metres; NaN for tasks without a goal."""
    detour: float
    """Ratio of the geodesic distance to the straight-line distance; NaN for tasks without a goal."""
    scores: list[Score]
    """One score for each agent."""
    failure: str = "failed"
    """How the first agent failed, where the task has kinds of failures."""


class Score(NamedTuple):
    """An agent's result in one episode."""

    success: bool | None
    """None for tasks without a success metric."""
    value: float
    """Value of the metric that agents are compared by."""


def write_report(folder: str | Path, evaluation: Evaluation, agents: Mapping[str, Played], films: int = 24) -> Path:
    """Write `index.html`, a page that needs no other file; returns its path.

    Args:
        folder: created if missing.
        evaluation: the episodes and their scenes.
        agents: results by agent name; the report is about the first.
        films: number of episodes with sensor images; most of them are the first ones of the list, failures.
    """
    played = list(agents.values())
    task = TASKS[played[0].player.config.task_name]
    metric = compared_by(task.metric_specs)
    rows = listed(evaluation, played, metric)
    shown = [m for m in task.metric_specs if m.shown]
    text = render(
        "report/pages/report.html",
        title=f"{task.title}: {', '.join(agents)} on {evaluation.path.name}",
        header=_header(evaluation, agents), agents=dict(zip(agents, COLOURS * len(agents), strict=False)),
        metrics=[in_words(m.name) for m in shown], compared=in_words(metric.name),
        table={name: [format_interval(each.overall[m.name]) for m in shown] for name, each in agents.items()},
        kinds=meanings_of(played[0].player.config), failures={
            name: failure_table(evaluation, each) for name, each in agents.items() if each.failures is not None
        },
        breakdowns=breakdowns(evaluation, played, metric), ends=bar_ends(metric, played),
        charts=_charts(agents, task.metric_specs),
        trained=[name for name, each in agents.items() if _file_of_run(each.player, "metrics.jsonl")],
        configurations=_configurations(agents),
        rows=rows, total=len(evaluation.episodes), goals=has_goals(played[0]),
        mapped=next((name for name, each in agents.items() if each.player.env_config.has_map), None),
        succeeds=_success(task.metric_specs) is not None,
        data=json.dumps(_page_data(evaluation, played, rows, films), separators=(",", ":")).replace("</", "<\\/"),
    )  # fmt: skip
    page = Path(folder) / PAGE
    with replacing(page, BatchnavError) as part:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")
    return page


def listed(evaluation: Evaluation, played: Sequence[Played], metric: Metric) -> list[Row]:
    """Rows of at most MAX_LISTED episodes, in order of the first agent's result: failures first, then low values."""
    success = _success(TASKS[played[0].player.config.task_name].metric_specs)
    known = properties(evaluation, played[0])
    first, kinds = played[0].episodes, played[0].failures
    order = np.lexsort([first[metric.name], *([first[success]] if success else [])])[:MAX_LISTED]
    return [
        Row(
            int(i), evaluation.episodes[i].episode_id, evaluation.names[first["scene"][i]],
            float(known.distance[i]), float(known.detour[i]),
            [
                Score(bool(each.episodes[success][i]) if success else None, float(each.episodes[metric.name][i]))
                for each in played
            ],
            "failed" if kinds is None else str(kinds[i]),
        )
        for i in order
    ]  # fmt: skip


def _page_data(evaluation: Evaluation, played: Sequence[Played], rows: Sequence[Row], films: int) -> dict[str, Any]:
    """Data for the page's script, in the order of the episode list."""
    plans = Plans(evaluation.bank.scenes)
    episodes = [_episode(evaluation, played, row.number, plans) for row in rows]
    chosen = to_film(len(rows), films)
    for agent, each in enumerate(played):
        if each.player.env_config.sensors and chosen:
            numbers = [rows[k].number for k in chosen]
            for k, strip in zip(chosen, _films(evaluation, each, numbers), strict=True):
                episodes[k]["films"][str(agent)] = strip
    mapped = next((each for each in played if each.player.env_config.has_map), None)
    if mapped is not None and chosen:
        numbers = [rows[k].number for k in chosen]
        for k, built in zip(chosen, evaluation.final_maps(mapped, numbers), strict=True):
            episodes[k]["map"] = placed_map(plans.all[episodes[k]["plan"]].map, built)
    return {"plans": plans.to_page(), "episodes": episodes}


def to_film(count: int, films: int) -> list[int]:
    """Positions in the list of the episodes with sensor images: three quarters from the top, the rest spaced evenly."""
    worst = min(count, -(-3 * films // 4))
    spread = np.linspace(worst, count - 1, min(films, count) - worst).round().astype(int)
    return [*range(worst), *np.unique(spread).tolist()]


def _films(evaluation: Evaluation, played: Played, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Filmstrips of an agent in these episodes, rendered again from its recorded trajectory, and images of the goal."""
    config = played.player.config
    ranges = {name: config.depth for name in config.sensors if name.split("_")[-1] == "depth"}
    metres = {name: (depth.min_depth, depth.max_depth) for name, depth in ranges.items()}
    steps = [shown_steps(len(played.trajectories[i].headings)) for i in numbers]
    trajectories = [
        Trajectory(*(part[kept] for part in played.trajectories[i])) for i, kept in zip(numbers, steps, strict=True)
    ]
    seen = evaluation.images_along(config, played.episodes["scene"][numbers], trajectories)
    goals = evaluation.goal_images(config, numbers)
    return [
        {"every": int(kept[1]) if len(kept) > 1 else 1, "strips": strips({**images, **goal}, metres)}
        for kept, images, goal in zip(steps, seen, goals, strict=True)
    ]


def _episode(evaluation: Evaluation, played: Sequence[Played], i: int, plans: Plans) -> dict[str, Any]:
    """An episode for the page's script: number of its floor plan, goal, shortest path, and all agents' paths."""
    scene = int(played[0].episodes["scene"][i])
    start = played[0].trajectories[i].positions[0]
    number = plans.number(scene, float(start[1]))
    plan = plans.all[number].map
    found: dict[str, Any] = {
        "plan": number, "paths": [packed_trajectory(plan, each.trajectories[i]) for each in played], "films": {},
        "goal": None, "shortest": [], "category": None, "map": None,
    }  # fmt: skip
    episode = evaluation.episodes[i]
    goals = shown_goals(episode, evaluation.bank.scenes[scene]) if has_goals(played[0]) else None
    if goals is not None:
        radius = float(episode.goals[0].radius or 0.0) if episode.goals else 0.0
        found["goal"] = [*places(plan, goals.nearest[None])[0], round(max(radius * plan.pixels_per_metre, 5.0), 1)]
        found["shortest"] = places(plan, goals.path)
        found["category"] = getattr(episode, "goal_name", None)
    return found


def has_goals(played: Played) -> bool:
    """True for tasks with goals: their episode info contains the start distance."""
    return "start_distance" in played.episodes


def _header(evaluation: Evaluation, agents: Mapping[str, Played]) -> dict[str, str]:
    """Header of the report: episodes, task, training of each policy, command, commit, date, device and versions."""
    header = evaluation.describe(next(iter(agents.values())).player)
    trained = {name: frames_trained(each.player) for name, each in agents.items()}
    if any(trained.values()):
        header["trained for"] = ", ".join(f"{name}: {frames:,} frames" for name, frames in trained.items() if frames)
    header |= {"command": command(), "commit": commit(), "date": now(), "device": machine(evaluation.bank.device)}
    header["versions"] = ", ".join(f"{name} {version}" for name, version in versions().items())
    return header


def frames_trained(player: Player) -> int:
    """Training frames of a policy as its file states them; 0 if it does not, and for reference agents."""
    return int(player.info.get("frames") or 0) if isinstance(player, PolicyPlayer) else 0


def _configurations(agents: Mapping[str, Played]) -> dict[str, str]:
    """YAML of each distinct environment and of each policy's training run, by title."""
    found: dict[str, str] = {}
    for name, each in agents.items():
        text = as_yaml(each.player.config)
        if text not in found.values():
            found[f"environment of {name}"] = text
        trained = _file_of_run(each.player, "config.yaml")
        if trained is not None:
            found[f"training of {name}"] = read_text(trained, BatchnavError)
    return found


def _charts(agents: Mapping[str, Played], metrics: Sequence[Metric]) -> list[Chart]:
    """Learning curves of policies that are in their run's folder. Other agents have no curve but keep their colour."""
    runs, any_run = {}, False
    for name, each in agents.items():
        path = _file_of_run(each.player, "metrics.jsonl")
        any_run |= path is not None
        runs[name] = Rows([], [])
        if path is not None:
            try:
                runs[name] = Rows(*load_metrics(path))
            except BatchnavError as error:  # the evaluation is worth its page without this curve
                log.warning("%s; its learning curves are left out", error)
    own = {m.name: (m.low, m.high) for m in metrics if m.headline}
    return charts(runs, own) if any_run else []


def _file_of_run(player: Player, name: str) -> Path | None:
    """A file in the folder of a policy; None for other agents or if there is no such file."""
    if not isinstance(player, PolicyPlayer):
        return None
    path = player.checkpoint.parent / name
    return path if path.is_file() else None


def _success(metrics: Sequence[Metric]) -> str | None:
    """Name of the binary headline metric; None if the task has none."""
    return next((m.name for m in metrics if m.headline and m.binary), None)


def bar_ends(metric: Metric, played: Sequence[Played]) -> tuple[float, float]:
    """(low, high) of the bars: the metric's range, or the range of all means extended to 0."""
    means = [mean[metric.name].mean for each in played for mean in (each.overall, *each.scenes.values())]
    low = metric.low if np.isfinite(metric.low) else min(0.0, *means)
    return low, metric.high if np.isfinite(metric.high) else max(*means, low + 1e-9)
