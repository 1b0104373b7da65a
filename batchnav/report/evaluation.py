"""The report of an evaluation: one page that stands alone, with tables, curves, and every episode to look at."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from batchnav.errors import BatchnavError
from batchnav.evaluation.intervals import format_interval
from batchnav.evaluation.run import Evaluation, Played, Player, PolicyPlayer
from batchnav.evaluation.trajectories import Walk
from batchnav.report.breakdown import breakdowns, compared_by, properties
from batchnav.report.charts import COLOURS, Chart, Rows, charts, in_words
from batchnav.report.episodes import Plans, packed_walk, places, shown_steps, strips
from batchnav.report.metrics import load_metrics
from batchnav.report.page import as_yaml, command, now, render
from batchnav.report.results import commit, versions
from batchnav.runtime.device import machine
from batchnav.runtime.files.atomic import replacing
from batchnav.tasks import TASKS
from batchnav.types import Metric

MAX_LISTED = 500
"""Episodes that the page lists; results.json has all."""
PAGE = "index.html"


class Row(NamedTuple):
    """An episode in the page's list."""

    number: int
    """Among the episodes of the file."""
    name: str
    scene: str
    distance: float
    """Metres; NaN where the task has no goal."""
    detour: float
    scores: list[Score]
    """Of each agent."""


class Score(NamedTuple):
    """How an agent did in one episode."""

    success: bool | None
    """None where the task has nothing that succeeds or fails."""
    value: float
    """The metric by which agents are compared."""


def write_report(folder: str | Path, evaluation: Evaluation, agents: Mapping[str, Played], films: int = 24) -> Path:
    """Write `index.html`, a page that needs no other file; returns its path.

    Args:
        folder: made where it is not there.
        evaluation: the episodes and their scenes.
        agents: what each reached in them, by name; the first is the one that the report is about.
        films: episodes that are shown with what agents saw, failures before others.
    """
    played = list(agents.values())
    task = TASKS[played[0].player.config.task_name]
    metric = compared_by(task.metric_specs)
    rows = listed(evaluation, played, metric)
    shown = [m for m in task.metric_specs if m.shown]
    text = render(
        "report/pages/report.html",
        title=f"{task.title}: {', '.join(agents)} on {evaluation.path.name}",
        facts=_facts(evaluation, played), agents=dict(zip(agents, COLOURS * len(agents), strict=False)),
        metrics=[in_words(m.name) for m in shown], compared=in_words(metric.name),
        table={name: [format_interval(each.overall[m.name]) for m in shown] for name, each in agents.items()},
        breakdowns=breakdowns(evaluation, played, metric), ends=bar_ends(metric, played),
        charts=_charts(agents, task.metric_specs),
        trained=[name for name, each in agents.items() if _beside(each.player, "metrics.jsonl")],
        configurations=_configurations(agents),
        rows=rows, total=len(evaluation.episodes), goals=has_goals(played[0]),
        succeeds=_success(task.metric_specs) is not None,
        data=json.dumps(_page_data(evaluation, played, rows, films), separators=(",", ":")).replace("</", "<\\/"),
    )  # fmt: skip
    page = Path(folder) / PAGE
    with replacing(page, BatchnavError) as part:
        part.write_text(text, encoding="utf-8")
    return page


def listed(evaluation: Evaluation, played: Sequence[Played], metric: Metric) -> list[Row]:
    """The episodes, those in which the first agent failed or was worst before others; MAX_LISTED at most."""
    success = _success(TASKS[played[0].player.config.task_name].metric_specs)
    known = properties(evaluation, played[0])
    first = played[0].episodes
    order = np.lexsort([first[metric.name], *([first[success]] if success else [])])[:MAX_LISTED]
    return [
        Row(
            int(i), evaluation.episodes[i].episode_id, evaluation.names[first["scene"][i]],
            float(known.distance[i]), float(known.detour[i]),
            [
                Score(bool(each.episodes[success][i]) if success else None, float(each.episodes[metric.name][i]))
                for each in played
            ],
        )
        for i in order
    ]  # fmt: skip


def _page_data(evaluation: Evaluation, played: Sequence[Played], rows: Sequence[Row], films: int) -> dict[str, Any]:
    """What the page's script draws, in the order of the list."""
    plans = Plans(evaluation.bank.scenes)
    episodes = [_episode(evaluation, played, row.number, plans) for row in rows]
    chosen = to_film(len(rows), films)
    for agent, each in enumerate(played):
        if each.player.sees and chosen:
            numbers = [rows[k].number for k in chosen]
            for k, strip in zip(chosen, _films(evaluation, each, numbers), strict=True):
                episodes[k]["films"][str(agent)] = strip
    return {"plans": plans.to_page(), "episodes": episodes}


def to_film(count: int, films: int) -> list[int]:
    """Which of the episodes in the list are filmed: three quarters are the first ones, the others spread evenly."""
    worst = min(count, -(-3 * films // 4))
    spread = np.linspace(worst, count - 1, min(films, count) - worst).round().astype(int)
    return [*range(worst), *np.unique(spread).tolist()]


def _films(evaluation: Evaluation, played: Played, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """What an agent saw in these episodes, drawn anew from where it stood."""
    config = played.player.config
    ranges = {name: config.depth for name in config.sensors if name.split("_")[-1] == "depth"}
    metres = {name: (depth.min_depth, depth.max_depth) for name, depth in ranges.items()}
    steps = [shown_steps(len(played.walks[i].headings)) for i in numbers]
    walks = [Walk(*(part[kept] for part in played.walks[i])) for i, kept in zip(numbers, steps, strict=True)]
    seen = evaluation.pictures(config, played.episodes["scene"][numbers], walks)
    return [
        {"every": int(kept[1]) if len(kept) > 1 else 1, "strips": strips(images, metres)}
        for kept, images in zip(steps, seen, strict=True)
    ]


def _episode(evaluation: Evaluation, played: Sequence[Played], i: int, plans: Plans) -> dict[str, Any]:
    """An episode for the page's script: its plan, goal, shortest path, and every agent's way."""
    scene = int(played[0].episodes["scene"][i])
    navmesh = evaluation.bank.scenes[scene].navmesh
    start = played[0].walks[i].positions[0]
    number = plans.number(scene, float(start[1]))
    plan = plans.all[number].map
    found: dict[str, Any] = {
        "plan": number, "walks": [packed_walk(plan, each.walks[i]) for each in played], "films": {},
        "goal": None, "shortest": [],
    }  # fmt: skip
    goals = np.array([goal.position for goal in evaluation.episodes[i].goals], np.float32).reshape(-1, 3)
    if len(goals) and has_goals(played[0]):
        distance = navmesh.geodesic_distance(np.repeat(start[None], len(goals), axis=0), goals)
        goal = goals[int(np.argmin(distance))]
        radius = float(evaluation.episodes[i].goals[0].radius or 0.0)
        found["goal"] = [*places(plan, goal[None])[0], round(max(radius * plan.pixels_per_metre, 5.0), 1)]
        found["shortest"] = places(plan, navmesh.shortest_path(start, goal))
    return found


def has_goals(played: Played) -> bool:
    """Whether the task is to reach the goals of its episodes' file."""
    return "start_distance" in played.episodes


def _facts(evaluation: Evaluation, played: Sequence[Played]) -> dict[str, str]:
    """What was run, on what and when."""
    facts = {**evaluation.facts(played[0].player), "command": command(), "commit": commit(), "date": now()}
    facts["device"] = machine(evaluation.bank.device)
    facts["versions"] = ", ".join(f"{name} {version}" for name, version in versions().items())
    return facts


def _configurations(agents: Mapping[str, Played]) -> dict[str, str]:
    """By what they are of: the environments, each once, and how policies were trained."""
    found: dict[str, str] = {}
    for name, each in agents.items():
        text = as_yaml(each.player.config)
        if text not in found.values():
            found[f"environment of {name}"] = text
        trained = _beside(each.player, "config.yaml")
        if trained is not None:
            found[f"training of {name}"] = trained.read_text(encoding="utf-8")
    return found


def _charts(agents: Mapping[str, Played], metrics: Sequence[Metric]) -> list[Chart]:
    """The learning curves of the policies whose runs are beside them; the others keep their colours' places."""
    runs, any_run = {}, False
    for name, each in agents.items():
        path = _beside(each.player, "metrics.jsonl")
        any_run |= path is not None
        runs[name] = Rows(*load_metrics(path)) if path is not None else Rows([], [])
    own = {m.name: (m.low, m.high) for m in metrics if m.headline}
    return charts(runs, own) if any_run else []


def _beside(player: Player, name: str) -> Path | None:
    """A file of the run that a policy is from, where it lies in that run's folder."""
    if not isinstance(player, PolicyPlayer):
        return None
    path = player.checkpoint.parent / name
    return path if path.is_file() else None


def _success(metrics: Sequence[Metric]) -> str | None:
    """The metric that tells failures."""
    return next((m.name for m in metrics if m.headline and m.binary), None)


def bar_ends(metric: Metric, played: Sequence[Played]) -> tuple[float, float]:
    """The range of bars: the metric's own, or as far as means reach, with 0 in it."""
    means = [mean[metric.name].mean for each in played for mean in (each.overall, *each.scenes.values())]
    low = metric.low if np.isfinite(metric.low) else min(0.0, *means)
    return low, metric.high if np.isfinite(metric.high) else max(*means, low + 1e-9)
