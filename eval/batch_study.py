"""Do large batches learn? SPL on unseen houses for several numbers of environments, with LAMB and with AdamW.

    python eval/batch_study.py --out runs/batch_study

Each combination is a run of train/pointnav.py in its own folder, with the configuration's settings but for those named
here; a study that was stopped goes on when it is started again. Draws SPL on the validation episodes against frames
and against seconds of training, and appends each run's last value to eval/results/batch_study.jsonl.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import tyro
from record import record, row

from batchnav.device import resolve_device
from batchnav.view.curves import load_metrics

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Options:
    """What to compare."""

    out: Path = Path("runs/batch_study")
    config: Path = ROOT / "configs" / "pointnav_h200.yaml"
    num_envs: tuple[int, ...] = (512, 2048, 8192)
    optimizers: tuple[str, ...] = ("lamb", "adamw")
    learning_rates: tuple[float, ...] = (5e-4, 2.5e-4)
    """Base rate of each optimiser."""
    minibatches: int = 2
    """As in the paper: the step grows with the environments, by the square-root rule the rate too."""
    total_frames: int = 25_000_000
    evaluations: int = 10
    """On the validation episodes, evenly spread over each run."""
    device: str = "auto"
    seed: int = 0


def main(options: Options) -> None:
    runs = {}
    for optimizer, rate in zip(options.optimizers, options.learning_rates, strict=True):
        for num_envs in options.num_envs:
            folder = options.out / f"{optimizer}_{num_envs}"
            subprocess.run(command(options, folder, optimizer, rate, num_envs), cwd=ROOT, check=True)
            runs[optimizer, rate, num_envs] = load_metrics(folder / "metrics.jsonl")[1]
    draw(runs, options.out / "batch_study.png")
    device = resolve_device(options.device)
    common = {"minibatches": options.minibatches, "seed": options.seed, "split": "val"}
    record("batch_study", [
        row("batch_study", "spl", evaluations[-1]["eval"]["spl"], {
            "optimizer": optimizer, "learning_rate": rate, "num_envs": num_envs, "frames": evaluations[-1]["frames"],
            "seconds": round(evaluations[-1]["seconds"]), **common,
        }, device)
        for (optimizer, rate, num_envs), evaluations in runs.items()
    ])  # fmt: skip


def command(options: Options, folder: Path, optimizer: str, rate: float, num_envs: int) -> list[str]:
    """The command line of one run."""
    settings = {
        "config": options.config, "out": folder, "device": options.device, "seed": options.seed,
        "eval-every": options.total_frames // options.evaluations, "ppo.num-envs": num_envs,
        "ppo.minibatches": options.minibatches, "ppo.optimizer": optimizer, "ppo.learning-rate": rate,
        "ppo.total-frames": options.total_frames,
    }  # fmt: skip
    words = [str(word) for name, value in settings.items() for word in (f"--{name}", value)]
    return [sys.executable, "train/pointnav.py", *words]


def draw(runs: dict[tuple[str, float, int], list[dict]], path: Path) -> None:
    """SPL against frames and against seconds; one colour for a number of environments, dashes for AdamW."""
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    colours = {n: f"C{i}" for i, n in enumerate(dict.fromkeys(n for _, _, n in runs))}
    for (optimizer, _, num_envs), rows in runs.items():
        spl = [r["eval"]["spl"] for r in rows]
        for axes, key, label in zip(panels, ("frames", "seconds"), ("frames", "seconds of training"), strict=True):
            style = {"color": colours[num_envs], "linestyle": "-" if optimizer == "lamb" else "--"}
            axes.plot([r[key] for r in rows], spl, label=f"{optimizer}, N = {num_envs}", **style)
            axes.set_xlabel(label)
    panels[0].set_ylabel("SPL on validation episodes")
    panels[0].legend(fontsize=8)
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
