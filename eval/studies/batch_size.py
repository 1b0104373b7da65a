"""Study of batch sizes: SPL on unseen houses for several numbers of environments, with LAMB and with AdamW.

    python eval/studies/batch_size.py --out runs/batch_study

Each combination is a run of train/pointnav.py in its own folder. Parameters without an option here have the values of
the configuration. An interrupted study continues when started again. The plot in --out shows SPL on the validation
episodes against frames and against seconds of training. Option --record also writes the plot to eval/results, and
appends each run's last SPL to eval/results/batch_study.jsonl.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np

from batchnav.cli.console import run
from batchnav.config import bounded
from batchnav.learning import PPOConfig
from batchnav.report.charts import load_metrics
from batchnav.report.results import RESULTS, record, row, save_chart
from batchnav.runtime.device import resolve_device

ROOT = Path(__file__).resolve().parents[2]
PAPER_MINIBATCHES = 2
"""Minibatches per rollout in the paper. Their size grows with the number of environments, and the learning rate with
the square root of their size."""


@dataclass(frozen=True)
class Options:
    """Combinations to compare, and their training."""

    out: Path = Path("runs/batch_study")
    """Folder for the runs and the plot."""
    config: Path = ROOT / "configs" / "pointnav_depth_h200.yaml"
    """Training configuration of all runs."""
    num_envs: tuple[int, ...] = bounded((512, 2048, 8192), 1, 2**24)
    """Numbers of environments."""
    optimizers: tuple[str, ...] = ("lamb", "adamw")
    """Optimisers."""
    learning_rates: tuple[float, ...] = bounded((1.0e-3, 2.5e-4), 1e-12, 1e3)
    """Base rate of each optimiser."""
    minibatch_frames: tuple[int, ...] = bounded((0, 8192), 0, 2**31 - 1)
    """Frames per minibatch; 0: two minibatches per rollout, as in the paper."""
    total_frames: int = bounded(25_000_000, 1, 2**62)
    """Frames of each run."""
    evaluations: int = bounded(10, 0, 1_000_000)
    """Evaluations on the validation episodes per run, evenly spaced."""
    device: str = "auto"
    """Device of training: cuda, cpu, or auto for a GPU if there is one."""
    seed: int = bounded(0, 0, 2**62)
    """Seed of all runs."""
    record: bool = False
    """Append result rows to eval/results/batch_study.jsonl, and plot them in eval/results/batch_study.webp."""


class Case(NamedTuple):
    """Parameters of one run."""

    optimizer: str
    learning_rate: float
    """Base rate, before the square-root rule."""
    num_envs: int
    minibatches: int
    """Minibatches per rollout."""

    @property
    def folder(self) -> str:
        """Name of the run's folder."""
        return f"{self.optimizer}_{self.num_envs}_{self.minibatches}"


def main(options: Options) -> None:
    """Train the missing runs, plot all of them, and print or record their rows."""
    found = {}
    for case in cases(options):
        folder = options.out / case.folder
        if not is_complete(folder, options):
            subprocess.run(command(options, folder, case), cwd=ROOT, check=True)
        found[case] = learning_curve(folder)
    for folder in (options.out, RESULTS) if options.record else (options.out,):
        plot(found, folder / "batch_study.webp")
    device = resolve_device(options.device)
    rows = [
        row("batch_study", "spl", spl[-1], {
            **case._asdict(), "frames": int(frames[-1]), "seconds": round(seconds[-1]), "seed": options.seed,
            "split": "val",
        }, device)
        for case, (frames, seconds, spl) in found.items()
    ]  # fmt: skip
    record("batch_study", rows, append=options.record)


def cases(options: Options) -> list[Case]:
    """All combinations, without duplicates."""
    found = []
    for optimizer, rate in zip(options.optimizers, options.learning_rates, strict=True):
        for frames in options.minibatch_frames:
            for n in options.num_envs:
                minibatches = n * PPOConfig().rollout_steps // frames if frames else PAPER_MINIBATCHES
                found.append(Case(optimizer, rate, n, minibatches))
    return list(dict.fromkeys(found))


def is_complete(folder: Path, options: Options) -> bool:
    """Return True if a run has trained for all its frames."""
    metrics = folder / "metrics.jsonl"
    rows = load_metrics(metrics)[0] if metrics.exists() else []
    return bool(rows) and rows[-1]["frames"] >= options.total_frames


def command(options: Options, folder: Path, case: Case) -> list[str]:
    """Command line of one run."""
    settings = {
        "config": options.config, "out": folder, "device": options.device, "seed": options.seed,
        "eval-every": options.total_frames // options.evaluations, "ppo.num-envs": case.num_envs,
        "ppo.minibatches": case.minibatches, "ppo.optimizer": case.optimizer,
        "ppo.learning-rate": case.learning_rate, "ppo.total-frames": options.total_frames,
    }  # fmt: skip
    words = [str(word) for name, value in settings.items() for word in (f"--{name}", value)]
    return [sys.executable, "train/pointnav.py", *words]


def learning_curve(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Frames, seconds of collecting and learning (compiling included), and SPL at each evaluation of a run."""
    rows, tests = load_metrics(folder / "metrics.jsonl")
    frames = np.array([test["frames"] for test in tests])
    spent = np.cumsum([r["collect"] + r["learn"] for r in rows])
    return frames, np.interp(frames, [r["frames"] for r in rows], spent), np.array([t["eval"]["spl"] for t in tests])


def plot(found: dict[Case, tuple[np.ndarray, np.ndarray, np.ndarray]], path: Path) -> None:
    """Plot SPL against frames and seconds: a row of panels per optimiser, a colour per number of environments."""
    optimizers = list(dict.fromkeys(case.optimizer for case in found))
    colours = {n: f"C{i}" for i, n in enumerate(dict.fromkeys(case.num_envs for case in found))}
    figure, panels = plt.subplots(
        len(optimizers), 2, figsize=(10, 3.6 * len(optimizers)), sharey=True, sharex="col", squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for (optimizer, _, n, minibatches), (frames, seconds, spl) in found.items():
        line = "-" if minibatches == PAPER_MINIBATCHES else "--"
        for axes, x in zip(panels[optimizers.index(optimizer)], (frames / 1e6, seconds), strict=True):
            axes.plot(x, spl, line, color=colours[n], label=f"N = {n}, {minibatches} minibatches")
    for name, (left, right) in zip(optimizers, panels, strict=True):
        left.set_ylabel(f"{name.upper() if name == 'lamb' else 'AdamW'}: SPL on validation episodes")
        left.legend(fontsize=8)
        for axes in (left, right):
            axes.grid(color="#E5E5E5", linewidth=0.7)
    panels[-1][0].set_xlabel("million frames")
    panels[-1][1].set_xlabel("seconds of collecting and learning")
    save_chart(figure, path)
    plt.close(figure)


if __name__ == "__main__":
    run(Options, main, __doc__)
