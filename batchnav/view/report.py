"""A report as a folder: one HTML page with tables, curves, maps and videos beside it."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from batchnav.errors import BatchnavError
from batchnav.evaluation.intervals import Interval, Summary, format_interval
from batchnav.evaluation.play import Recording
from batchnav.runtime.files import replacing
from batchnav.scene.scene import Scene
from batchnav.types import Metric
from batchnav.view.curves import plot_curves
from batchnav.view.mosaic import colour, mosaic
from batchnav.view.topdown import TopDownMap
from batchnav.view.video import draw_episode, outcome, save_gif, video_frames

MOSAIC_COLUMNS = 8
"""Images shown of each recorded episode, evenly spaced in time."""
VIDEO_MAP_SIZE = 360

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #2d2d2d; max-width: 1120px; margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.6em } h2 { font-size: 1.2em; margin-top: 2em }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .3em .9em; text-align: right; border-bottom: 1px solid #e5e5e5 }
th:first-child, td:first-child { text-align: left } thead th { border-bottom: 2px solid #2d2d2d }
tr.first td { font-weight: 600 } small, figcaption { color: #6b6b6b } img { max-width: 100% }
figure { margin: 0 0 1.5em }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 1em }
"""

_INTERVALS = """
<p><small>Means with 95% intervals. The first is over episodes taken as independent (Wilson's for proportions, Student's
t elsewhere); the second, in brackets, over scenes: a bootstrap that draws scenes with all their episodes. For houses
that are not among these the second counts.</small></p>
"""


def write_report(
    folder: str | Path,
    title: str,
    about: Mapping[str, str],
    agents: Mapping[str, Summary],
    per_scene: Mapping[str, Summary],
    recordings: Sequence[Recording],
    scenes: Sequence[Scene],
    metrics: Sequence[Metric],
    curves: Path | None = None,
) -> Path:
    """Write `index.html` and its pictures; returns the page's path.

    Args:
        folder: made where it is not there; files of an older report are replaced.
        title: heading.
        about: facts to list under it, by name.
        agents: each agent's mean metrics with intervals; the first is the one that the report is about.
        per_scene: the same for the first agent in each scene.
        recordings: episodes to draw, `scene` indexing `scenes`.
        scenes: those of the bank.
        metrics: what the task says of them; those that are `shown` are the tables' columns.
        curves: the training run's `metrics.jsonl`.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    facts = "".join(f"<li>{html.escape(name)}: {html.escape(value)}</li>" for name, value in about.items())
    parts = [
        f"<h1>{html.escape(title)}</h1><ul>{facts}</ul>",
        "<h2>Agents on the same episodes</h2>",
        _table(agents, metrics),
    ]
    parts.append(_INTERVALS)
    if curves is not None:
        plot_curves(curves, folder / "curves.png", metrics)
        parts.append("<h2>Learning curves</h2><img src='curves.png' alt='learning curves'>")
    if recordings:
        goal = " Orange, dashed: the shortest path. Ring: the goal." if recordings[0].goal is not None else ""
        parts.append(f"<h2>Episodes</h2><p>Blue: the agent's path.{goal}</p>")
        parts.append("<div class='pair'>")
        for i, recording in enumerate(recordings, 1):
            parts.append(_episode(folder, i, recording, scenes[recording.scene]))
        parts.append("</div>")
        for name in recordings[0].images:
            _mosaic(recordings, name).save(folder / f"{name}.png")
            parts.append(f"<h2>What the agent saw</h2><img src='{name}.png' alt='{name}, one episode a row'>")
    parts.append("<h2>By scene</h2>" + _table(per_scene, metrics))
    page = folder / "index.html"
    text = (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{html.escape(title)}</title>"
        f"<style>{_STYLE}</style><body>{''.join(parts)}</body></html>\n"
    )
    with replacing(page, BatchnavError) as part:
        part.write_text(text, encoding="utf-8")
    return page


def _table(rows: Mapping[str, Summary], metrics: Sequence[Metric]) -> str:
    shown = [metric.name for metric in metrics if metric.shown]
    head = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in shown)
    lines = [f"<table><thead><tr><th></th><th>episodes</th>{head}</tr></thead><tbody>"]
    for i, (name, summary) in enumerate(rows.items()):
        cells = "".join(f"<td>{_cell(summary[metric])}</td>" for metric in shown)
        count = summary[shown[0]].count
        lines.append(f"<tr{'' if i else ' class=first'}><td>{html.escape(name)}</td><td>{count}</td>{cells}</tr>")
    return "".join(lines) + "</tbody></table>"


def _cell(interval: Interval) -> str:
    mean, episodes, scenes = format_interval(interval)
    return f"{mean}<br><small>{episodes}{f'<br>({scenes})' if scenes else ''}</small>"


def _episode(folder: Path, number: int, recording: Recording, scene: Scene) -> str:
    """Draw one episode's map and video; their HTML."""
    goal = recording.goal
    shortest = None if goal is None else scene.navmesh.shortest_path(recording.positions[0], goal)
    height = float(recording.positions[0, 1])
    plan = TopDownMap(scene.navmesh, scene.mesh, height)
    draw_episode(plan, recording, shortest)
    plan.image.save(folder / f"map_{number}.png")
    small = TopDownMap(scene.navmesh, scene.mesh, height, size=VIDEO_MAP_SIZE)
    save_gif(video_frames(small, recording, shortest), folder / f"episode_{number}.gif")
    text = f"{scene.name}: {outcome(recording)}, {len(recording.actions)} steps"
    return (
        f"<figure><img src='map_{number}.png' alt='map'><img src='episode_{number}.gif' alt='video'>"
        f"<figcaption>{html.escape(text)}</figcaption></figure>"
    )


def _mosaic(recordings: Sequence[Recording], sensor: str) -> Image.Image:
    """A row of a sensor's images for each episode."""
    rows = []
    for recording in recordings:
        spec, values = recording.images[sensor]
        times = np.linspace(0, len(values) - 1, MOSAIC_COLUMNS).round().astype(int)
        rows.append(colour(values[times], spec))
    return mosaic(np.concatenate(rows), columns=MOSAIC_COLUMNS, scale=max(1, 112 // rows[0].shape[2]))
