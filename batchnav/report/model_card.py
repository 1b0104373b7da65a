"""The model card of a trained policy: results, reference agents, learning curves and training configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np

from batchnav.config import to_dict
from batchnav.data.config import ScenesConfig
from batchnav.envs.config import NavConfig
from batchnav.errors import BatchnavError, printable
from batchnav.evaluation.intervals import Interval, Summary, format_interval
from batchnav.policy.config import PolicyConfig
from batchnav.procedural import EPISODE_FAMILIES
from batchnav.report.charts import in_words, load_metrics, series, smooth
from batchnav.report.results import save_chart
from batchnav.runtime.console import number_of
from batchnav.runtime.files import replacing
from batchnav.runtime.weights import Source
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
    pretrained: Source | None = None
    """Origin of the encoder's pretrained weights; None without any."""


def write_model_card(
    folder: Path,
    runs: Mapping[str, Path],
    results: Mapping[tuple[str, str], Summary],
    metrics: Sequence[Metric],
    trained: Trained,
    frames: int,
    trained_on: str,
    played_on: str,
) -> None:
    """Write README.md, curves.webp and the training configuration config.yaml into the folder of a policy.

    Args:
        folder: holds policy.safetensors; its name is the policy's name.
        runs: folders of training runs by agent name; the first is this policy's.
        results: summary of each (episode file, agent).
        metrics: the task's metrics.
        trained: the training configuration of this policy.
        frames: number of training frames.
        trained_on: machine of the training.
        played_on: machine of the evaluation.
    """
    draw_comparison(runs, folder / "curves.webp")
    rows, _ = load_metrics(next(iter(runs.values())) / "metrics.jsonl")
    policy, scenes = trained.policy, trained.scenes
    agents = [AGENTS[name] for name in dict.fromkeys(agent for _, agent in results) if name in AGENTS]
    text = CARD.format(
        name=_plain(folder.name), path=folder.as_posix(), observations=_observations(trained),
        inputs=_inputs(trained.env), encoder=_plain(policy.encoder), memory=_plain(_memory(policy)),
        pretrained=_pretrained(trained.pretrained), licence=_licence(trained.pretrained),
        table=_table(results, metrics),
        agents="".join(f" {sentence}" for sentence in agents), played_on=played_on, date=date.today(), frames=frames,
        hours=rows[-1]["seconds"] / 3600, trained_on=trained_on,
        speed=np.median([row["frames_per_second"] for row in rows]),
        scenes=" and ".join([number_of(scenes.houses, "procedural house"), *map(_plain, scenes.sources)]),
    )  # fmt: skip
    with replacing(folder / "config.yaml", BatchnavError) as part:
        part.write_text(trained.text, encoding="utf-8", errors="backslashreplace")
    with replacing(folder / "README.md", BatchnavError) as part:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")


def _memory(policy: PolicyConfig) -> str:
    """The memory's name and settings, such as "lstm (2 layers)"."""
    settings = to_dict(policy).get(policy.memory)
    return policy.memory + (f" ({', '.join(f'{value} {key}' for key, value in settings.items())})" if settings else "")


def _pretrained(source: Source | None) -> str:
    """Line on the origin of pretrained weights; "" without any."""
    if source is None:
        return ""
    digest = f", SHA-256 `{source.sha256}`" if source.sha256 else ""
    maker = "" if " of batchnav" in source.model else " of timm"
    return f"- Pretrained encoder: {_plain(source.model)}{maker}, weights {_plain(source.weights)}{digest}.\n"


def _licence(source: Source | None) -> str:
    """The licence of the policy, and that of its pretrained weights."""
    if source is None or not source.sha256:
        return "MIT."
    return f"MIT; the weights of {_plain(source.model)} inside: {_plain(source.licence or 'not named by timm')}."


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
    save_chart(figure, path)


def _observations(trained: Trained) -> str:
    """The policy's image inputs with their size, for a sentence."""
    if trained.policy.blind:
        return "none: the policy does not read its images"
    camera = trained.env.camera
    names = " and ".join(SENSORS.get(name, name) for name in trained.env.sensors)
    return f"{names}, {camera.height}x{camera.width} pixels"


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
    head = ["episodes", "scenes", "agent", *map(in_words, shown)]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for (episodes, agent), overall in results.items():
        cells = [episodes, EPISODE_TITLES.get(episodes, ""), agent, *(_cell(overall[metric]) for metric in shown)]
        lines.append("| " + " | ".join(map(_plain, cells)) + " |")
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Text of a file or a folder's name as Markdown that shows it, also in a cell of a table."""
    return re.sub(r"([\\`*\[\]<>|&])", r"\\\1", printable(text))


def _cell(interval: Interval) -> str:
    """Mean and its interval over scenes; over episodes where scenes have none."""
    mean, episodes, scenes = format_interval(interval)
    return f"{mean} ({scenes or episodes})"


CARD = """\
# {name}

A policy for PointGoal navigation.

## Intended use

Research in simulation. The policy was not evaluated on a robot.

## Inputs and actions

- Images: {observations}.
- Pose, actions, camera: {inputs}.
- Network: {encoder} and {memory}, weights in bfloat16.
{pretrained}
```python
policy = batchnav.load_policy("{path}/policy.safetensors", device="auto")
```

## Results

Each agent played every episode of a file once, with sampled actions, on {played_on}, {date}. Brackets hold 95%
intervals over scenes. No scene is a training scene.{agents}

{table}

![SPL against frames and hours](curves.webp)

Grey lines are published values of agents that trained and were evaluated in Gibson.

## Training

{frames:,} frames in {hours:.2f} hours on one {trained_on} ({speed:,.0f} frames per second, median), in {scenes}.

```sh
batchnav train --config {path}/config.yaml
```

## Limits

Only the noise, step sizes, cameras and kinds of scenes above were evaluated.

## Licence

{licence}
"""
