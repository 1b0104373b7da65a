"""The report of an evaluation: one self-contained HTML page with tables, learning curves and replayable episodes."""

from __future__ import annotations

import base64
import io
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from batchnav.data.goals import kind_of
from batchnav.errors import BatchnavError
from batchnav.evaluation.intervals import Interval, Summary, format_interval, summarise
from batchnav.evaluation.play import AgentMap, Images, present
from batchnav.evaluation.players import Player, PolicyPlayer
from batchnav.evaluation.predicted_masks import MaskViews
from batchnav.evaluation.run import (
    DISTANCES,
    Evaluation,
    Played,
    by_category,
    failure_table,
    has_subtasks,
    predicted_mask_table,
    properties,
    quantiles,
)
from batchnav.evaluation.subtasks import Subtasks, by_position
from batchnav.evaluation.trajectories import Trajectory, goals_shown, meanings_of
from batchnav.observation import Spec
from batchnav.report.charts import COLOURS, Chart, Rows, charts, in_words, load_metrics
from batchnav.report.page import as_yaml, command, now, render, script_json
from batchnav.report.results import MASK_CAPTION, MASK_COLUMNS, commit, mask_cells, versions
from batchnav.report.robustness import robustness_picture, shown_metrics
from batchnav.runtime.device import machine
from batchnav.runtime.files import read_text, replacing
from batchnav.scene.scene import Scene
from batchnav.tasks import TASKS
from batchnav.types import Metric
from batchnav.view.topdown import FLOOR_BAND, FOOT, TopDownMap, map_picture, map_place
from batchnav.view.video import colour, holds_ids

# Episodes on the report page: floor plans, agents' trajectories on them, and filmstrips of sensor images


PLAN_SIZE = 520
"""Longer side of a floor plan, pixels."""
PLAN_COLOURS = 48
"""Number of colours of a floor plan; keeps the page small."""
MAX_PICTURES = 160
"""Maximum number of images in a filmstrip; longer episodes are subsampled evenly."""
STRIP_COLUMNS = 16
"""Images per row of a filmstrip."""
LARGEST_PICTURE = 128
"""Longer side of an image in a filmstrip, pixels; larger images are downscaled."""
QUALITY = 85
"""WebP quality of filmstrips, 0 to 100."""
SUBPIXELS = 16
"""Resolution of trajectories: units per pixel of the floor plan."""
STAR = "M0 -10 2.4 -3.2 9.5 -3.1 3.8 1.2 5.9 8.1 0 4 -5.9 8.1 -3.8 1.2 -9.5 -3.1 -2.4 -3.2Z"
"""Sign of a goal: a star around the origin, in the syntax of an SVG path."""


class Plan(NamedTuple):
    """Floor plan of one storey of a scene."""

    map: TopDownMap
    source: str
    """The image as a data URI."""


class Plans:
    """Floor plans of scenes, with the goals of each category.

    Each storey is plotted once, on first use; plans are numbered in that order.
    """

    def __init__(self, scenes: Sequence[Scene]):
        self.scenes = scenes
        self.all: list[Plan] = []
        self._found: list[tuple[int, float]] = []

    def number(self, scene: int, height: float) -> int:
        """Number of the floor plan of the storey at `height` (y, metres) in a scene (row of the bank)."""
        for i, (k, y) in enumerate(self._found):
            if k == scene and abs(y - height) < FLOOR_BAND / 2:
                return i
        drawn = TopDownMap(self.scenes[scene].navmesh, self.scenes[scene].mesh, height, PLAN_SIZE)
        drawn.draw_scale_bar()
        self.all.append(Plan(drawn, data_uri(drawn.image.quantize(PLAN_COLOURS), "PNG", optimize=True)))
        self._found.append((scene, height))
        return len(self.all) - 1

    def to_page(self) -> list[dict[str, Any]]:
        """The floor plans as JSON for the page's script; `goals`: objects and view points by category."""
        return [
            {"source": plan.source, "size": plan.map.size, "foot": FOOT, "goals": self._goals(plan.map, *found)}
            for plan, found in zip(self.all, self._found, strict=True)
        ]

    def _goals(self, plan: TopDownMap, scene: int, height: float) -> dict[str, Any]:
        """Objects and view points of a storey by category; view points on the same pixel count once."""
        goals, found = self.scenes[scene].goals, {}
        for category in goals.categories if goals else ():
            objects = [goal for goal in goals.objects if goal.category == category] if goals else []
            points = np.concatenate([goal.view_points for goal in objects])
            level = [goal for goal in objects if (np.abs(goal.view_points[:, 1] - height) < FLOOR_BAND).any()]
            points = points[np.abs(points[:, 1] - height) < FLOOR_BAND]
            if len(points):
                centres = np.array([goal.position for goal in level], np.float32)
                pixels = np.unique(plan.to_pixels(points).round().clip(-32768, 32767).astype("<i2"), axis=0)
                packed = base64.b64encode(pixels.tobytes()).decode()
                found[category] = {"objects": places(plan, centres), "view_points": packed}
        return found


def packed_trajectory(plan: TopDownMap, trajectory: Trajectory) -> str:
    """A trajectory as base64 of little-endian int16 [S, 3]: column and row (1 / SUBPIXELS pixel), heading (degrees)."""
    places = plan.to_pixels(trajectory.positions) * SUBPIXELS
    degrees = np.rad2deg(trajectory.headings.astype(np.float64)) % 360.0
    numbers = np.concatenate([places, degrees[:, None]], axis=1).round()
    return base64.b64encode(numbers.clip(-32768, 32767).astype("<i2").tobytes()).decode()


def packed_bodies(plan: TopDownMap, trajectory: Trajectory) -> list[dict[str, Any]]:
    """Moving bodies of an episode for the page's script: radius in pixels, and path as `packed_trajectory`."""
    if (seen := trajectory.seen) is None:
        return []
    found = []
    for k in present(seen, 0):
        path = packed_trajectory(plan, trajectory._replace(positions=seen.position[:, k], headings=seen.heading[:, k]))
        found.append({"radius": round(float(seen.radius[0, k]) * plan.pixels_per_metre, 1), "path": path})
    return found


def places(plan: TopDownMap, points: np.ndarray) -> list[list[float]]:
    """Columns and rows [K, 2] on a floor plan, pixels, of points f32 [K, 3]."""
    return np.round(plan.to_pixels(points), 1).tolist()


def placed_map(plan: TopDownMap, built: AgentMap) -> dict[str, Any]:
    """An agent's map as JSON for the page's script: image, corner and side; pixels of the floor plan."""
    column, row, side = map_place(plan, built)
    picture = data_uri(map_picture(built), "PNG", optimize=True)
    return {"source": picture, "x": round(column, 2), "y": round(row, 2), "side": round(side, 2)}


def shown_steps(steps: int) -> np.ndarray:
    """Step numbers that a filmstrip shows: evenly spaced, at most MAX_PICTURES."""
    return np.arange(0, steps, -(-steps // MAX_PICTURES))


def strips(seen: Mapping[str, Images], depth_ranges: Mapping[str, tuple[float, float]]) -> list[dict[str, Any]]:
    """One filmstrip for each sensor, with image size and depth range, as JSON for the page's script.

    Args:
        seen: images of the shown steps, by sensor.
        depth_ranges: metres at values 0 and 1, by depth sensor.
    """
    found = []
    for name, (spec, values) in seen.items():
        pictures = colour(values, spec)
        height, width = pictures.shape[1:3]
        kept = min(1.0, LARGEST_PICTURE / max(height, width))
        size = max(1, round(width * kept)), max(1, round(height * kept))
        found.append({
            "sensor": name, "width": size[0], "height": size[1], "columns": STRIP_COLUMNS, "count": len(pictures),
            "shape": f"{width}x{height}", "source": _strip(pictures, size, spec), "range": depth_ranges.get(name),
        })  # fmt: skip
    return found


def _strip(pictures: np.ndarray, size: tuple[int, int], spec: Spec) -> str:
    """Images u8 [S, H, W, 3] in rows of STRIP_COLUMNS, as a data URI."""
    rows = -(-len(pictures) // STRIP_COLUMNS)
    sheet = Image.new("RGB", (size[0] * min(len(pictures), STRIP_COLUMNS), size[1] * rows))
    how = Image.Resampling.NEAREST if holds_ids(spec) else Image.Resampling.BOX  # ids cannot be averaged
    for i, picture in enumerate(pictures):
        small = Image.fromarray(picture).resize(size, how)
        sheet.paste(small, (i % STRIP_COLUMNS * size[0], i // STRIP_COLUMNS * size[1]))
    return data_uri(sheet, "WEBP", quality=QUALITY)


def data_uri(image: Image.Image, kind: str, **options: Any) -> str:
    """An image as a data URI of the given PIL format."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"


# A metric broken down by properties of the episodes: goal distance, detour ratio and scene


SCENE = "scene"
"""Name of the property that groups episodes by their scene."""


class Part(NamedTuple):
    """A group of episodes, with each agent's mean in it."""

    label: str
    num_episodes: int
    intervals: list[Interval]
    """Mean and confidence interval of each agent."""


def compared_by(metrics: Sequence[Metric]) -> Metric:
    """The metric to compare agents by: the first headline metric that is not binary, else the first headline metric."""
    compared = [metric for metric in metrics if metric.headline] or list(metrics)
    return next((metric for metric in compared if not metric.binary), compared[0])


def breakdowns(evaluation: Evaluation, played: Sequence[Played], metric: Metric) -> Mapping[str, list[Part]]:
    """Groups of episodes by distance, detour, category and scene, the first agent's worst scene first.

    Properties that no episode has are omitted.
    """
    found = properties(evaluation, played[0])
    tables = {
        "geodesic distance to the goal": quantiles(found.distance, DISTANCES),
        "detour: geodesic over straight line": quantiles(found.detour, "{:.2f} to {:.2f}"),
        "goal category": by_category(evaluation),
        SCENE: {name: np.flatnonzero(played[0].episodes["scene"] == k) for k, name in enumerate(evaluation.names)},
    }
    found_parts = {
        name: [Part(label, len(rows), [_mean(each, rows, metric) for each in played]) for label, rows in parts.items()]
        for name, parts in tables.items()
        if parts
    }
    found_parts[SCENE].sort(key=lambda part: part.intervals[0].mean)
    return _positions(played) | found_parts


def _positions(played: Sequence[Played]) -> dict[str, list[Part]]:
    """Success rate and SPL by position in the sequence; empty for tasks with one goal in an episode."""
    if not has_subtasks(played[0].player.config):
        return {}
    found = [by_position(each.episodes) for each in played]
    return {
        f"position in the sequence: {name}": [
            Part(f"subtask {rows[0].position}", rows[0].success.count, [getattr(row, field) for row in rows])
            for rows in zip(*found, strict=True)
        ]
        for name, field in (("success", "success"), ("SPL", "spl"))
    }


def _mean(played: Played, rows: np.ndarray, metric: Metric) -> Interval:
    """Mean and interval of a metric over some episodes (row indices)."""
    episodes = {name: played.episodes[name][rows] for name in (metric.name, "scene")}
    return summarise(episodes, [metric])[metric.name]


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
    goal: str = ""
    """Category of the goal; "" for goals without one."""


class Score(NamedTuple):
    """An agent's result in one episode."""

    success: bool | None
    """None for tasks without a success metric."""
    value: float
    """Value of the metric that agents are compared by."""


def write_report(
    folder: str | Path,
    evaluation: Evaluation,
    agents: Mapping[str, Played],
    films: int = 24,
    disturbed: Mapping[str, Summary] | None = None,
) -> Path:
    """Write `index.html`, a page that needs no other file; returns its path.

    Args:
        folder: created if missing.
        evaluation: the episodes and their scenes.
        agents: results by agent name; the report is about the first. Other reference agents whose success and
            compared metric are 0 have a folded row in the table of agents, and no more.
        films: number of episodes with sensor images; most of them are the first ones of the list, failures.
        disturbed: results of the first agent by condition, as `batchnav evaluate --robustness` measures them.
    """
    first = next(iter(agents))
    task = TASKS[agents[first].player.config.task_name]
    everyone, shown = agents, [m for m in task.metric_specs if m.shown]
    metric = compared_by(task.metric_specs)
    checked = [name for name in (_success(task.metric_specs), metric.name) if name]
    zero = {name: each for name, each in everyone.items() if name != first and _is_zero(each, checked)}
    agents = {name: each for name, each in everyone.items() if name not in zero}
    played = list(agents.values())
    rows = listed(evaluation, played, metric)
    text = render(
        "report/pages/report.html",
        title=f"{task.title}: {first} on {evaluation.path.name}",
        header=_header(evaluation, agents), agents=dict(zip(agents, COLOURS * len(agents), strict=False)),
        metrics=[in_words(m.name) for m in shown], compared=in_words(metric.name),
        checked=list(map(in_words, checked)), zero=list(zero),
        table={name: [format_interval(each.overall[m.name]) for m in shown] for name, each in everyone.items()},
        kinds=meanings_of(played[0].player.config), failures={
            name: failure_table(evaluation, each) for name, each in agents.items() if each.failures is not None
        },
        mask_columns=MASK_COLUMNS, mask_caption=MASK_CAPTION, masks={
            name: [(row.label, row.episodes, mask_cells(row)) for row in predicted_mask_table(each)]
            for name, each in agents.items() if each.masks is not None
        },
        breakdowns=breakdowns(evaluation, played, metric), ends=bar_ends(metric, played),
        disturbed=_disturbed(f"{first} on {evaluation.path.name}", disturbed, task.metric_specs) if disturbed else None,
        charts=_charts(agents, task.metric_specs),
        trained=[name for name, each in agents.items() if _file_of_run(each.player, "metrics.jsonl")],
        configurations=_configurations(agents),
        by_scene=SCENE, star=STAR, rows=rows, total=len(evaluation.episodes), goals=has_goals(played[0]),
        categories=any(row.goal for row in rows),
        mapped=next((name for name, each in agents.items() if each.player.env_config.has_map), None),
        succeeds=_success(task.metric_specs) is not None,
        data=script_json(_page_data(evaluation, played, rows, films)),
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
    kind = kind_of(played[0].player.config.task_name)
    order = np.lexsort([first[metric.name], *([first[success]] if success else [])])[:MAX_LISTED]
    return [
        Row(
            int(i), evaluation.episodes[i].episode_id, evaluation.names[first["scene"][i]],
            float(known.distance[i]), float(known.detour[i]),
            [
                Score(bool(each.episodes[success][i]) if success else None, float(each.episodes[metric.name][i]))
                for each in played
            ],
            ("failed" if kinds is None or kinds.ndim > 1 else str(kinds[i])) + _mask_words(played[0].masks, i),
            kind.category(evaluation.episodes[i]),
        )
        for i in order
    ]  # fmt: skip


def _mask_words(masks: MaskViews | None, i: int) -> str:
    """What the predicted mask said in an episode, in words; empty for an agent without one."""
    if masks is None:
        return ""
    in_view, predicted, hits, _ = (int(column[i]) for column in masks)
    return f"; goal in {in_view} views, its mask predicted in {hits} of them and in {predicted - hits} others"


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
    trajectories = [played.trajectories[i].rows(kept) for i, kept in zip(numbers, steps, strict=True)]
    seen = evaluation.images_along(config, played.episodes["scene"][numbers], trajectories)
    masks = evaluation.goal_masks(config, numbers, played.episodes["scene"][numbers], trajectories)
    images = evaluation.goal_images(config, numbers)
    goals = [goals_shown(some, each.goal_index) for some, each in zip(images, trajectories, strict=True)]
    return [
        {"every": int(kept[1]) if len(kept) > 1 else 1, "strips": strips({**images, **mask, **goal}, metres)}
        for kept, images, mask, goal in zip(steps, seen, masks, goals, strict=True)
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
        "bodies": packed_bodies(plan, played[0].trajectories[i]), "tour": [],
    }  # fmt: skip
    if has_subtasks(played[0].player.config):
        ends = Subtasks.of(played[0].episodes)
        found["tour"] = [[int(end), bool(ok)] for end, ok in zip(ends.end[i], ends.success[i], strict=True) if end >= 0]
    episode = evaluation.episodes[i]
    kind = kind_of(played[0].player.config.task_name)
    goals = kind.shown(episode, evaluation.bank.scenes[scene])
    if goals is not None:
        radius = float(episode.goals[0].radius or 0.0) if episode.goals else 0.0
        found["goal"] = [*places(plan, goals.nearest[None])[0], round(max(radius * plan.pixels_per_metre, 5.0), 1)]
        found["shortest"] = places(plan, goals.path)
        found["category"] = kind.goal_name(episode) or None
    return found


def _disturbed(title: str, found: Mapping[str, Summary], metrics: Sequence[Metric]) -> dict[str, Any]:
    """Table and picture of an agent under disturbances."""
    shown = shown_metrics(metrics)
    image = base64.b64encode(robustness_picture(title, found, shown)).decode()
    rows = {name: [format_interval(overall[metric]) for metric in shown] for name, overall in found.items()}
    return {"metrics": [in_words(name) for name in shown], "rows": rows, "image": f"data:image/webp;base64,{image}"}


def _is_zero(played: Played, metrics: Sequence[str]) -> bool:
    """True for a reference agent for which these metrics are all 0."""
    return not isinstance(played.player, PolicyPlayer) and not any(played.overall[name].mean for name in metrics)


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
