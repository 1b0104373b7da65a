"""A trained policy's model card: weights in bfloat16, success and SPL beside a blind and a greedy agent, curves.

    python eval/model_card.py --run runs/h200_300m --control runs/blind --out assets/policies/pointnav_h200

The figures are those of the weights as they are written here. Plays every episode file once with each agent, appends
the figures to eval/results/pointnav.jsonl, and writes policy.safetensors, curves.png and README.md into --out.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pointnav
import torch
import tyro
import yaml

from batchnav.policy.weights import load_policy, save_policy
from batchnav.runs.results import commit, machine
from batchnav.runtime.device import resolve_device
from batchnav.view.curves import BLUE, GREY, ORANGE, load_metrics, series, smooth
from batchnav.view.report import format_interval

FIXED = tuple(pointnav.EPISODES / f"{name}.json.gz" for name in ("val", "test"))
PUBLISHED = {
    "DD-PPO, depth, 2.5e9 frames (Gibson val)": 0.956,
    "97% of it, the paper's single GPU": 0.97 * 0.956,
    "blind LSTM (Gibson val)": 0.729,
}
"""SPL as published: Wijmans et al. 2020, and what Shacklett et al. 2021 reach with one GPU. Other scenes than ours."""
METRICS = ("success", "spl", "soft_spl", "distance_to_goal", "collisions", "steps")


@dataclass(frozen=True)
class Options:
    """What to describe."""

    run: Path
    """The folder of the run."""
    control: Path
    """The folder of a blind agent's run."""
    out: Path
    """Folder for the card."""
    episodes: tuple[Path, ...] = FIXED
    """Episode files to play."""
    trained_on: str = ""
    """The machine that trained it; by default it is this one."""
    device: str = "auto"
    num_envs: int = 256
    record: bool = True
    """Append the figures to eval/results/pointnav.jsonl."""


def main(options: Options) -> None:
    device = resolve_device(options.device)
    options.out.mkdir(parents=True, exist_ok=True)
    weights = options.out / "policy.safetensors"
    trained = load_policy(options.run / "policy.safetensors")
    save_policy(trained.network, weights, trained.info, torch.bfloat16)
    agents = {
        "this agent": {"checkpoint": weights},
        "blind agent": {"checkpoint": options.control / "policy.safetensors"},
        "greedy agent": {"agent": "greedy"},
    }
    results = {
        (file.name.removesuffix(".json.gz"), name): play(options, file, agent)
        for file in options.episodes
        for name, agent in agents.items()
    }
    draw(options, options.out / "curves.png")
    (options.out / "README.md").write_text(card(options, trained.info, results, device), encoding="utf-8")


def play(options: Options, episodes: Path, agent: dict) -> dict:
    """The results of eval/pointnav.py for an agent on an episode file: mean and interval by metric."""
    with tempfile.TemporaryDirectory() as folder:
        common = {"device": options.device, "num_envs": options.num_envs, "record": options.record}
        pointnav.main(pointnav.Options(episodes=episodes, out=Path(folder), **common, **agent))
        return json.loads((Path(folder) / "results.json").read_text(encoding="utf-8"))["overall"]


def draw(options: Options, path: Path) -> None:
    """SPL of both agents against frames and hours: while training, and on the validation episodes; published lines."""
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.5), sharey=True, layout="constrained")
    for axes, key, unit, label in zip(panels, ("frames", "seconds"), (1e6, 3600.0), ("million frames", "hours"),
                                      strict=True):  # fmt: skip
        for folder, name, colour in ((options.run, "this agent", BLUE), (options.control, "blind agent", ORANGE)):
            rows, tests = load_metrics(folder / "metrics.jsonl")
            x, y = series(rows, "spl", key)
            axes.plot(x / unit, smooth(y, len(y) // 40), color=colour, linewidth=1.2, label=f"{name}, training scenes")
            points = np.array([(test[key] / unit, test["eval"]["spl"]) for test in tests]).reshape(-1, 2)
            axes.plot(*points.T, "o-", color=colour, markersize=5, alpha=0.6, label=f"{name}, unseen houses (val)")
        for (name, spl), style in zip(PUBLISHED.items(), ("-", "--", ":"), strict=True):
            axes.axhline(spl, color=GREY, linestyle=style, linewidth=0.9, label=name)
        axes.set(xlabel=label, ylim=(0.0, 1.0))
        axes.grid(color="#E5E5E5", linewidth=0.7)
    panels[0].set_ylabel("SPL")
    panels[1].legend(frameon=False, fontsize=8, loc="lower right")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def card(options: Options, info: dict, results: dict[tuple[str, str], dict], device: torch.device) -> str:
    """The model card."""
    rows, _ = load_metrics(options.run / "metrics.jsonl")
    hours = rows[-1]["seconds"] / 3600
    speed = np.median([row["frames_per_second"] for row in rows])
    config = (options.run / "config.yaml").read_text(encoding="utf-8")
    scenes = yaml.safe_load(config)["scenes"]
    titles = [metric.replace("_", " ") for metric in METRICS]
    table = ["| episodes | agent | " + " | ".join(titles) + " |", "| --- " * (2 + len(METRICS)) + "|"]
    for (episodes, agent), overall in results.items():
        cells = (format_interval(pointnav.Interval(**overall[metric])) for metric in METRICS)
        table.append(f"| {episodes} | {agent} | " + " | ".join(f"{mean} ({spread})" for mean, spread in cells) + " |")
    places = " and ".join([f"{scenes['houses']} procedural houses", *scenes["files"]])
    return CARD.format(
        name=options.out.name, path=options.out.as_posix(), frames=info["frames"], hours=hours, speed=speed,
        machine=options.trained_on or machine(device), scenes=places, device=machine(device), commit=commit(),
        table="\n".join(table), config=config.strip(),
    )  # fmt: skip


CARD = """\
# {name}: a PointGoal agent

The paper's network (SE-ResNet9 and two LSTM layers) for 64x64 depth, trained with `train/pointnav.py` for {frames:,}
frames in {hours:.2f} hours on one {machine} ({speed:,.0f} frames/s, median), in {scenes}.
Weights in bfloat16, as they were measured here (commit {commit}):

    policy = batchnav.load_policy("{path}/policy.safetensors", device="cuda")

Means with 95% intervals, every episode of a file played once, actions drawn, on {device}.
None of these scenes was trained in. `val` and `test` are procedural houses.

{table}

![SPL against frames and hours](curves.png)

The blind agent sees where the goal is, but no depth. Published figures are of other scenes (Gibson) and of agents
trained there; they are drawn for orientation.

It knows one task: perfect compass and GPS, exact steps of 0.25 m and turns of 10 degrees, depth to 10 m from 1.25 m
above the floor. On noisy sensors, other cameras or scanned homes nothing was measured.

Configuration:

```yaml
{config}
```
"""

if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
