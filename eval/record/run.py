"""The record: seconds from an empty folder to a policy of a given SPL.

    python eval/record/run.py pointnav_depth_080                    # three seeds, kernels compiled before
    python eval/record/run.py pointnav_depth_080 --empty-cache      # with an empty cache: compiling is part of the time
    python eval/record/run.py pointnav_depth_080 --record           # append rows and the curve to eval/results

An entry of `entries.yaml` is a sequence of trainings, each from the weights of the one before it. The clock runs from
the start of the first process to the end of the last one, which has saved its weights: imports, generation of scenes
and recording of graphs are part of the time. Before it, each stage trains for one update in one house, so that kernels
are compiled, unless the cache is to be empty.

Then the policy of each seed plays the 200 episodes of `val`, and 3,072 other episodes in unseen houses. The entry holds
if the mean SPL of the seeds on `val` is at least its bar. docs/benchmarks/record.md has rules and results.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import tyro

from batchnav.cli.console import run
from batchnav.config import from_dict, read_yaml
from batchnav.errors import ArgumentError, BatchnavError
from batchnav.report.charts import load_metrics, series
from batchnav.report.results import RESULTS, record, row, save_chart
from batchnav.runtime.device import resolve_device

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = Path(__file__).with_name("entries.yaml")
OTHER = "house:60000-60095", 32
"""Houses of the other unseen episodes, and episodes in each."""


@dataclass(frozen=True)
class Stage:
    """A training of an entry."""

    frames: int
    """Frames of training."""
    options: str
    """Options of `batchnav train`."""
    algorithm: Literal["ppo", "dagger"] = "ppo"
    """Algorithm, whose section has the number of frames."""

    def command(self, folder: Path, seed: int, device: str, before: Path | None) -> list[str]:
        """Command that trains into a folder, from the weights of the stage before."""
        words = ["train", *shlex.split(self.options), f"--{self.algorithm}.total-frames", str(self.frames)]
        words += ["--out", str(folder), "--seed", str(seed), "--device", device]
        return [*words, "--init-from", str(before)] if before else words


@dataclass(frozen=True)
class Entry:
    """A sequence of trainings, and the bar that they have to reach."""

    title: str
    """What the record is for."""
    spl: float
    """Least mean SPL on `val`."""
    stages: tuple[Stage, ...] = field(default_factory=tuple)
    """Trainings, in their order."""
    task: str = "pointnav"
    """Task, whose `val` is played."""


class Curve(NamedTuple):
    """SPL of the training episodes of a seed, against seconds of the clock."""

    seconds: np.ndarray
    spl: np.ndarray


@dataclass(frozen=True)
class Options:
    """Entry, seeds and where the runs go."""

    entry: tyro.conf.Positional[str]
    """Name of an entry of entries.yaml."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds, a run each."""
    out: Path = Path("runs/record")
    """Folder for the runs; each entry gets an empty subfolder."""
    device: str = "auto"
    """Device: cuda, cpu, or auto for a GPU if there is one."""
    empty_cache: bool = False
    """Begin each seed with an empty cache of kernels and scenes."""
    record: bool = False
    """Append rows to eval/results/record.jsonl, and write the curves to eval/results/record_ENTRY.webp."""


def main(options: Options) -> None:
    """Time the trainings of every seed, evaluate them, print and record the results."""
    entries = load_entries()
    if options.entry not in entries:
        raise ArgumentError(f"entry: found {options.entry!r}, expected one of {', '.join(entries)}")
    entry, folder = entries[options.entry], options.out.resolve() / options.entry
    if folder.exists():
        raise ArgumentError(f"{folder}: found a folder, expected none, so that the record begins empty")
    device = resolve_device(options.device)
    other = other_episodes(entry, folder)
    if not options.empty_cache:
        with tempfile.TemporaryDirectory() as place:
            train(entry, Path(place), 0, device.type, warm=True)
    rows, curves = [], {}
    for seed in options.seeds:
        seconds, policy, curves[seed] = timed(entry, folder / f"seed_{seed}", seed, device.type, options.empty_cache)
        found = {"val": evaluated(policy, entry, "val"), "other": evaluated(policy, entry, str(other))}
        params = {"entry": options.entry, "seed": seed, "empty_cache": options.empty_cache}
        params |= {"frames": sum(stage.frames for stage in entry.stages)}
        params |= {f"{split}_{metric}": value for split, each in found.items() for metric, value in each.items()}
        rows.append(row("record", "seconds", seconds, params, device))
    record("record", rows, append=options.record)
    plot(entry, curves, folder / "curve.webp")
    if options.record:
        shutil.copy(folder / "curve.webp", RESULTS / f"record_{options.entry}.webp")
    mean = {split: float(np.mean([each["params"][f"{split}_spl"] for each in rows])) for split in ("val", "other")}
    seconds, reached = np.mean([each["value"] for each in rows]), "reached" if mean["val"] >= entry.spl else "missed"
    print(f"{entry.title}: {seconds:.0f} s; mean SPL {mean['val']:.3f} on val, {mean['other']:.3f} on other episodes")
    print(f"the bar of {entry.spl:g} is {reached}")


def load_entries() -> dict[str, Entry]:
    """Entries by name."""
    return {name: from_dict(Entry, values) for name, values in read_yaml(ENTRIES).items()}


def batchnav(*words: str, **environment: str) -> None:
    """Run a command of batchnav, which shows its progress. BatchnavError if it fails."""
    command = [sys.executable, "-m", "batchnav", *words]
    status = subprocess.run(command, cwd=ROOT, env=os.environ | environment).returncode
    if status:
        raise BatchnavError(f"{shlex.join(command)}: found exit status {status}, expected 0")


def train(entry: Entry, folder: Path, seed: int, device: str, warm: bool = False, **environment: str) -> list[float]:
    """Train all stages, or one update of each in one house; returns the times at which they ended."""
    before, ends = None, []
    for number, stage in enumerate(entry.stages):
        words = stage.command(folder / str(number), seed, device, before)
        batchnav(
            *words, *(("--scenes.houses", "1", f"--{stage.algorithm}.total-frames", "1") if warm else ()), **environment
        )
        before = folder / str(number)
        ends.append(time.perf_counter())
    return ends


def timed(entry: Entry, folder: Path, seed: int, device: str, empty: bool) -> tuple[float, Path, Curve]:
    """Seconds of all stages, the last one's folder, and SPL in training against seconds."""
    with ExitStack() as stack:
        environment = {}
        if empty:
            place = stack.enter_context(tempfile.TemporaryDirectory())
            environment = {name: f"{place}/{name}" for name in ("BATCHNAV_CACHE", "TORCHINDUCTOR_CACHE_DIR")}
        start = time.perf_counter()
        ends = train(entry, folder, seed, device, **environment)
    seconds, spl = [], []
    for number, end in enumerate(ends):
        rows, _ = load_metrics(folder / str(number) / "metrics.jsonl")
        x, y = series(rows, "spl", "seconds")
        seconds.append(x + (end - start - rows[-1]["seconds"]))
        spl.append(y)
    return ends[-1] - start, folder / str(len(ends) - 1), Curve(np.concatenate(seconds), np.concatenate(spl))


def other_episodes(entry: Entry, folder: Path) -> Path:
    """The file of the other unseen episodes."""
    houses, per_scene = OTHER
    path = folder / "other.json.gz"
    path.parent.mkdir(parents=True)
    batchnav("data", "make-episodes", houses, "--task", entry.task, "--per-scene", str(per_scene), "--out", str(path))
    return path


def evaluated(policy: Path, entry: Entry, split: str) -> dict[str, float]:
    """Success rate and SPL of a policy on a split or on a file of episodes."""
    out = policy / ("val" if split == "val" else "other")
    batchnav(
        "evaluate", str(policy), *(("--split", "val") if split == "val" else ("--episodes", split)), "--out", str(out)
    )
    overall = json.loads(next(out.rglob("results*.json")).read_text(encoding="utf-8"))["overall"]
    return {metric: round(overall[metric]["mean"], 4) for metric in ("success", "spl")}


def plot(entry: Entry, curves: Mapping[int, Curve], path: Path) -> None:
    """Plot SPL in training against seconds, a line for each seed."""
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for seed, curve in curves.items():
        axes.plot(curve.seconds, curve.spl, label=f"seed {seed}")
    axes.axhline(entry.spl, color="#888888", linewidth=0.8)
    axes.set(
        title=entry.title,
        xlabel="seconds since the start",
        ylabel="SPL of training episodes",
        xlim=(0, None),
        ylim=(0, 1),
    )
    axes.grid(color="#E5E5E5", linewidth=0.7)
    axes.legend()
    save_chart(figure, path)
    plt.close(figure)


if __name__ == "__main__":
    run(Options, main, __doc__)
