"""A trained policy's model card as a folder: weights in bfloat16, its figures beside other agents', curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from batchnav.config import load_config
from batchnav.errors import BatchnavError
from batchnav.evaluation.intervals import Interval, Summary, format_interval
from batchnav.procedural import EPISODE_FAMILIES
from batchnav.report.charts import in_words
from batchnav.report.metrics import load_metrics, series, smooth
from batchnav.runtime.console.announce import number_of
from batchnav.runtime.files.atomic import replacing
from batchnav.tasks.pointnav import PointNavConfig
from batchnav.training.config import TrainingConfig
from batchnav.types import Metric

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#6B6B6B"
PUBLISHED = {
    "DD-PPO, depth, 2.5e9 frames (Gibson val)": 0.956,
    "97% of it, the paper's single GPU": 0.97 * 0.956,
    "blind LSTM (Gibson val)": 0.729,
}
"""SPL as published: Wijmans et al. 2020, and what Shacklett et al. 2021 reach with one GPU. Other scenes than ours."""


EPISODE_TITLES = {
    **{file: family.title for file, family in EPISODE_FAMILIES.items()},
    "wide_val": "procedural houses for a wide body",
    "wide_test": "procedural houses for a wide body",
}
"""Scenes of the fixed episode files, by the file's name."""
SENSORS = {"rgb": "colour", "semantic": "categories"}
"""What sensors show, where their names do not say it."""
AGENTS = {
    "blind agent": "A blind agent is told what this one is, but reads no images.",
    "greedy agent": "The greedy agent walks straight at the goal.",
}


def write_model_card(
    folder: Path,
    runs: Mapping[str, Path],
    results: Mapping[tuple[str, str], Summary],
    metrics: Sequence[Metric],
    frames: int,
    trained_on: str,
    played_on: str,
    commit: str,
) -> None:
    """Write README.md and curves.png beside the weights, policy.safetensors, in `folder`.

    Args:
        folder: its name is the policy's.
        runs: folders of training runs by the agents' names, first of all this policy's.
        results: by episode file and agent.
        metrics: what the task says of them.
        frames: that it was trained for.
        trained_on: the machine that trained it.
        played_on: the machine that the results are from.
        commit: that they were made by.
    """
    draw_comparison(runs, folder / "curves.png")
    run = next(iter(runs.values()))
    rows, _ = load_metrics(run / "metrics.jsonl")
    config = (run / "config.yaml").read_text(encoding="utf-8")
    trained = load_config(run / "config.yaml", TrainingConfig, warn=False)
    policy, camera, scenes = trained.policy, trained.env.camera, trained.scenes
    played = "; ".join(
        f"`{name}`: {EPISODE_TITLES[name]}"
        for name in dict.fromkeys(split for split, _ in results)
        if name in EPISODE_TITLES
    )
    agents = [AGENTS[name] for name in dict.fromkeys(agent for _, agent in results) if name in AGENTS]
    text = CARD.format(
        name=folder.name, path=folder.as_posix(), frames=frames, hours=rows[-1]["seconds"] / 3600,
        speed=np.median([row["frames_per_second"] for row in rows]), trained_on=trained_on,
        scenes=" and ".join([number_of(scenes.houses, "procedural house"), *scenes.sources]), played_on=played_on,
        commit=commit, table=_table(results, metrics), config=config.strip(), encoder=policy.encoder,
        layers=policy.lstm_layers, height=camera.height, width=camera.width, seen=_sights(trained),
        played=f" {played}." if played else "", agents=" ".join(agents), knows=_knowledge(trained),
    )  # fmt: skip
    with replacing(folder / "README.md", BatchnavError) as part:
        part.write_text(text, encoding="utf-8")


def draw_comparison(runs: Mapping[str, Path], path: Path) -> None:
    """SPL of one run or two against frames and hours: while training, and on the validation episodes; published lines.

    Args:
        runs: the folders, by the agents' names.
        path: of the picture.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, key, unit, label in zip(
        panels, ("frames", "seconds"), (1e6, 3600.0), ("million frames", "hours"), strict=True
    ):
        for (name, folder), colour in zip(runs.items(), (BLUE, ORANGE), strict=False):
            rows, tests = load_metrics(folder / "metrics.jsonl")
            x, y = series(rows, "spl", key)
            axes.plot(x / unit, smooth(y, len(y) // 40), color=colour, linewidth=1.2, label=f"{name}, training scenes")
            points = np.array([(test[key] / unit, test["eval"]["spl"]) for test in tests]).reshape(-1, 2)
            if len(points):
                axes.plot(*points.T, "o-", color=colour, markersize=5, alpha=0.6, label=f"{name}, houses of val")
        for (name, spl), style in zip(PUBLISHED.items(), ("-", "--", ":"), strict=True):
            axes.axhline(spl, color=GREY, linestyle=style, linewidth=0.9, label=name)
        axes.set(xlabel=label, ylim=(0.0, 1.0))
        axes.grid(color="#E5E5E5", linewidth=0.7)
    panels[0].set_ylabel("SPL")
    panels[1].legend(frameon=False, fontsize=8, loc="lower right")
    figure.savefig(path, dpi=110)


def _sights(run: TrainingConfig) -> str:
    """What a run's agent sees, in words."""
    if run.policy.blind:
        return "images that it does not read"
    return " and ".join(SENSORS.get(name, name) for name in run.env.sensors)


def _knowledge(run: TrainingConfig) -> str:
    """What a run's agent is told, how it moves, and what its camera is like."""
    env, body, knows = run.env, run.env.body, []
    if isinstance(env.task, PointNavConfig):
        knows.append("perfect compass and GPS" if env.task.gps_compass else "the goal's place, told once at the start")
    if body.is_discrete:
        exact = "exact " if body.actuation_noise == 0.0 else ""
        knows.append(f"{exact}steps of {body.forward_step:g} m and turns of {body.turn_angle_deg:g} degrees")
    else:
        knows.append("speeds forward and to the left")
    depth = f"depth to {env.depth.max_depth:g} m " if "depth" in env.sensors else "images "
    knows.append(f"{depth}from {_ends(env.camera.camera_height_range, env.camera.camera_height)} m above the floor")
    if env.camera.hfov_range_deg:
        knows.append(f"fields of view of {_ends(env.camera.hfov_range_deg, env.camera.hfov_deg)} degrees")
    return ", ".join(knows)


def _ends(ends: Sequence[float], usual: float) -> str:
    """A range in words, or the usual value where there is none."""
    return " to ".join(f"{end:g}" for end in ends or (usual,))


def _table(results: Mapping[tuple[str, str], Summary], metrics: Sequence[Metric]) -> str:
    """A line for an agent on an episode file."""
    shown = [metric.name for metric in metrics if metric.headline]
    lines = ["| episodes | agent | " + " | ".join(map(in_words, shown)) + " |", "| --- " * (2 + len(shown)) + "|"]
    for (episodes, agent), overall in results.items():
        lines.append(f"| {episodes} | {agent} | " + " | ".join(_cell(overall[metric]) for metric in shown) + " |")
    return "\n".join(lines)


def _cell(interval: Interval) -> str:
    mean, episodes, scenes = format_interval(interval)
    return f"{mean} ({episodes}{f'; {scenes}' if scenes else ''})"


CARD = """\
# {name}: a PointGoal agent

A network of {encoder} and LSTM layers ({layers}) for {height}x{width} {seen}, trained with `train/pointnav.py` for
{frames:,} frames in {hours:.2f} hours on one {trained_on} ({speed:,.0f} frames/s, median), in {scenes}.
Weights in bfloat16, as they were measured here (commit {commit}):

    policy = batchnav.load_policy("{path}/policy.safetensors", device="cuda")

Means with 95% intervals, over episodes taken as independent and, after the semicolon, over scenes, which are drawn with
all their episodes; every episode of a file played once, actions drawn, on {played_on}.
None of these scenes was trained in.{played}

{table}

![SPL against frames and hours](curves.png)

{agents} Published figures are of other scenes (Gibson) and of agents trained there; they are drawn for orientation.

It knows one task: {knows}. With other noise, steps or cameras nothing was measured.

Configuration:

```yaml
{config}
```
"""
