"""The model card of a trained policy: results, reference agents, learning curves and training configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from batchnav.data.config import ScenesConfig
from batchnav.envs.config import NavConfig
from batchnav.errors import BatchnavError
from batchnav.evaluation.intervals import Interval, Summary, format_interval
from batchnav.policy.config import PolicyConfig
from batchnav.procedural import EPISODE_FAMILIES
from batchnav.report.charts import in_words
from batchnav.report.metrics import load_metrics, series, smooth
from batchnav.runtime.console.announce import number_of
from batchnav.runtime.files.atomic import replacing
from batchnav.tasks.pointnav import PointNavConfig
from batchnav.types import Metric

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#6B6B6B"
PUBLISHED = {
    "DD-PPO, depth, 2.5e9 frames (Gibson val)": 0.956,
    "BPS, one GPU, 97% of DD-PPO": 0.97 * 0.956,
    "blind LSTM (Gibson val)": 0.729,
}
"""Published SPL on Gibson val: DD-PPO and a blind agent (Wijmans et al. 2020); BPS, which reports 97% of DD-PPO's
result with one GPU (Shacklett et al. 2021)."""


EPISODE_TITLES = {
    **{file: family.title for file, family in EPISODE_FAMILIES.items()},
    "wide_val": "procedural houses for a wide body",
    "wide_test": "procedural houses for a wide body",
}
"""Description of the scenes of each fixed episode file, by the file's name."""
SENSORS = {"rgb": "colour", "semantic": "categories"}
"""Display names of sensors whose names do not describe what they show."""
AGENTS = {
    "blind agent": "The blind agent has the same sensors but its policy reads no images.",
    "greedy agent": "The greedy agent moves straight towards the goal.",
}
"""Descriptions of the agents that a card compares with."""


class Trained(NamedTuple):
    """The parts of a training configuration that a model card describes."""

    env: NavConfig
    policy: PolicyConfig
    scenes: ScenesConfig
    text: str
    """The whole configuration, YAML."""


def write_model_card(
    folder: Path,
    runs: Mapping[str, Path],
    results: Mapping[tuple[str, str], Summary],
    metrics: Sequence[Metric],
    trained: Trained,
    frames: int,
    trained_on: str,
    played_on: str,
    commit: str,
) -> None:
    """Write README.md and curves.png into the folder of a policy.

    Args:
        folder: holds policy.safetensors; its name is the policy's name.
        runs: folders of training runs by agent name; the first is this policy's.
        results: summary of each (episode file, agent).
        metrics: the task's metrics.
        trained: the training configuration of this policy.
        frames: number of training frames.
        trained_on: machine of the training.
        played_on: machine of the evaluation.
        commit: commit of the evaluation.
    """
    draw_comparison(runs, folder / "curves.png")
    run = next(iter(runs.values()))
    rows, _ = load_metrics(run / "metrics.jsonl")
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
        commit=commit, table=_table(results, metrics), config=trained.text.strip(), encoder=policy.encoder,
        layers=policy.lstm_layers, height=camera.height, width=camera.width, seen=_sensors(trained),
        played=f" {played}." if played else "", agents=" ".join(agents), inputs=_inputs(trained.env),
    )  # fmt: skip
    with replacing(folder / "README.md", BatchnavError) as part:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")


def draw_comparison(runs: Mapping[str, Path], path: Path) -> None:
    """Plot SPL of one or two runs against frames and hours, with validation results and published values.

    Args:
        runs: run folders by agent name.
        path: image file to write.
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


def _sensors(trained: Trained) -> str:
    """The policy's image inputs, for a sentence."""
    if trained.policy.blind:
        return "images, which it does not read"
    return " and ".join(SENSORS.get(name, name) for name in trained.env.sensors)


def _inputs(env: NavConfig) -> str:
    """Goal sensor, actions and camera of an environment, for a sentence."""
    body, found = env.body, []
    if isinstance(env.task, PointNavConfig):
        found.append("exact GPS and compass" if env.task.gps_compass else "the goal position at the start only")
    if body.is_discrete:
        exact = "exact " if body.actuation_noise == 0.0 else ""
        found.append(f"{exact}steps of {body.forward_step:g} m and turns of {body.turn_angle_deg:g} degrees")
    else:
        found.append("linear and angular velocity commands")
    depth = f"depth to {env.depth.max_depth:g} m " if "depth" in env.sensors else "images "
    found.append(f"{depth}from {_ends(env.camera.camera_height_range, env.camera.camera_height)} m above the floor")
    if env.camera.hfov_range_deg:
        found.append(f"fields of view of {_ends(env.camera.hfov_range_deg, env.camera.hfov_deg)} degrees")
    return ", ".join(found)


def _ends(ends: Sequence[float], usual: float) -> str:
    """A range as text, or the single value if there is no range."""
    return " to ".join(f"{end:g}" for end in ends or (usual,))


def _table(results: Mapping[tuple[str, str], Summary], metrics: Sequence[Metric]) -> str:
    """Markdown table of the headline metrics, one line per episode file and agent."""
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
The weights are stored and evaluated in bfloat16 (commit {commit}):

    policy = batchnav.load_policy("{path}/policy.safetensors", device="cuda")

Means with 95% intervals: over episodes (independent), and after the semicolon over scenes (bootstrap). Every episode of
a file is played once with sampled actions, on {played_on}. No scene is a training scene.{played}

{table}

![SPL against frames and hours](curves.png)

{agents} Published values are for other scenes (Gibson) and for agents trained on Gibson.

Inputs and actions: {inputs}. Other noise, step sizes and cameras were not evaluated.

Training configuration:

```yaml
{config}
```
"""
