"""The record: seconds from an empty folder to a policy that reaches a bar, such as SPL 0.80.

    python eval/record/run.py pointnav_depth_080_32px                # three seeds, kernels compiled before
    python eval/record/run.py pointnav_depth_080_32px --empty-cache  # with an empty cache: compiling counts
    python eval/record/run.py pointnav_depth_080_32px --record       # append rows to eval/results/record.jsonl too
    CUDA_VISIBLE_DEVICES=1 python eval/record/run.py pointnav_depth_080_32px --seeds 2    # a seed on another card

An entry of `entries.yaml` is a sequence of trainings, each from the weights of the one before it. The clock runs from
the start of the first process to the end of the last one, which has saved its weights: imports, generation of scenes
and recording of graphs are part of the time. Before it, each stage trains for one update in one house, so that kernels
are compiled, unless the cache is to be empty. Each seed has a cache of scenes of its own.

Then the policy of each seed plays the 200 episodes of `val`, and 3,072 other episodes in unseen houses: on a GPU
where the machine has one, which the training of an entry for the CPU does not see. A seed is a row of OUT/record.jsonl,
written when it ends, with its curve in training. The entry holds if the means of the seeds on `val` reach its bars; a
seed that misses them is a row too. A seed that trained and was not evaluated, because the program was interrupted, is
evaluated by the next call. docs/benchmarks/record.md has rules and results.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import tyro

from batchnav.cartpole.env import CartPoleEnv
from batchnav.cartpole.program import mean_return
from batchnav.cli.console import run
from batchnav.config import bounded, from_dict, read_yaml
from batchnav.errors import ArgumentError, BatchnavError
from batchnav.policy import load_policy
from batchnav.report.charts import load_metrics, series
from batchnav.report.results import RESULTS, append_rows, print_table, row, stamp
from batchnav.runtime.cache import cache_folder
from batchnav.runtime.device import resolve_device
from batchnav.runtime.files import read_text, replacing

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = Path(__file__).with_name("entries.yaml")
OTHER = "house:60000-60095", 32
"""Houses of the other unseen episodes, and episodes in each."""
CARTPOLE = "cartpole"
"""The task without episodes in files."""
POINTS = 200
"""Points of a curve in a row: means over equal parts of its time."""
TIMED = "timed.json"
"""File in the folder of a seed that trained and was not evaluated: its row without the metrics."""


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
    """A sequence of trainings, and the bars that they have to reach."""

    title: str
    """What the record is for."""
    bars: dict[str, float]
    """Least mean of each metric on `val`, the headline metric last."""
    stages: tuple[Stage, ...] = field(default_factory=tuple)
    """Trainings, in their order."""
    task: str = "pointnav"
    """Task, whose `val` is played; cartpole has one stage, whose options are the name of a configuration."""
    device: Literal["cuda", "cpu"] = "cuda"
    """Kind of device that the record is for."""

    @property
    def metric(self) -> str:
        """The headline metric, whose curve is kept."""
        return list(self.bars)[-1]


@dataclass(frozen=True)
class Options:
    """Entries, seeds and where the runs go."""

    names: tyro.conf.Positional[tuple[str, ...]]
    """Names of entries."""
    seeds: tuple[int, ...] = bounded((0, 1, 2), 0, 2**62)
    """Seeds, a run each."""
    out: Path = Path("runs/record")
    """Folder for record.jsonl and for the runs, each in an empty subfolder."""
    entries: Path = ENTRIES
    """File of entries."""
    device: Literal["", "cuda", "cpu"] = ""
    """Device of training; "": that of the entry."""
    empty_cache: bool = False
    """Begin each seed with an empty cache of kernels and scenes."""
    other: bool = True
    """Play the other unseen episodes too."""
    record: bool = False
    """Append the rows to eval/results/record.jsonl too."""


def main(options: Options) -> None:
    """Time the trainings of every seed, evaluate them, print and record the results."""
    entries, out = load_entries(options.entries), options.out.resolve()
    for name in options.names:
        if name not in entries:
            raise ArgumentError(f"entry: found {name!r}, expected one of {', '.join(entries)}")
        for seed in options.seeds:
            if (folder := out / name / f"seed_{seed}").exists() and not (folder / TIMED).exists():
                raise ArgumentError(f"{folder}: found a folder, expected none, so that the record begins empty")
    for name in options.names:
        measure(name, entries[name], options, out)


def load_entries(path: Path = ENTRIES) -> dict[str, Entry]:
    """Entries by name."""
    return {name: from_dict(Entry, values, f"{path}: {name}.") for name, values in read_yaml(path).items()}


def measure(name: str, entry: Entry, options: Options, out: Path) -> None:
    """Time and evaluate every seed of an entry, and print whether the means reach its bars."""
    device = resolve_device(options.device or entry.device)
    files = {"val": None, **({"other": other_episodes(entry, out)} if options.other and entry.task != CARTPOLE else {})}
    folders = {seed: out / name / f"seed_{seed}" for seed in options.seeds}
    if not options.empty_cache and not all((folder / TIMED).exists() for folder in folders.values()):
        with tempfile.TemporaryDirectory() as place:
            train(entry, Path(place), 0, device.type, warm=True)
    rows = []
    for seed, folder in folders.items():
        if not (folder / TIMED).exists():
            seconds, curve = timed(entry, folder, seed, device.type, options.empty_cache)
            params = {"entry": name, "seed": seed, "empty_cache": options.empty_cache}
            if entry.task != CARTPOLE:  # which ends when it is solved
                params["frames"] = sum(stage.frames for stage in entry.stages)
            kept = {**row("record", "seconds", seconds, params, device), **stamp(), "curve": curve}
            with replacing(folder / TIMED, BatchnavError) as path:
                path.write_text(json.dumps(kept), encoding="utf-8")
        found, policy = json.loads(read_text(folder / TIMED, BatchnavError)), folder / str(len(entry.stages) - 1)
        found["params"] |= (
            cartpole_returns(policy, device) if entry.task == CARTPOLE else evaluated(entry, policy, files)
        )
        rows.append(found)
        append_rows("record", rows[-1:], out)
        if options.record:
            append_rows("record", rows[-1:], RESULTS)
        (folder / TIMED).unlink()
    print_table("record", rows)
    print(verdict(entry, rows))


def verdict(entry: Entry, rows: list[dict]) -> str:
    """The seeds' means on `val` beside the bars, and whether they reach them."""
    lines = [f"{entry.title}: {np.mean([each['value'] for each in rows]):.0f} s, seeds: {len(rows)}"]
    for metric, bar in entry.bars.items():
        mean = float(np.mean([each["params"][f"val_{metric}"] for each in rows]))
        lines.append(f"{metric} {mean:.3f} on val: {'reaches' if mean >= bar else 'misses'} the bar of {bar:g}")
    return "\n".join(lines)


def start(*words: str, **environment: str) -> tuple[list[str], subprocess.Popen]:
    """Start a command of batchnav, which shows its progress."""
    command = [sys.executable, "-m", "batchnav", *words]
    return command, subprocess.Popen(command, cwd=ROOT, env=os.environ | environment)


def finish(command: list[str], process: subprocess.Popen) -> None:
    """Wait for a command. BatchnavError if it fails."""
    if status := process.wait():
        raise BatchnavError(f"{shlex.join(command)}: found exit status {status}, expected 0")


def train_cartpole(entry: Entry, folder: Path, seed: int, device: str, **environment: str) -> None:
    """Train CartPole until it is solved or its frames are over."""
    config = folder / "config.yaml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f"base: {entry.stages[0].options}\nseed: {seed}\ndevice: {device}\n", encoding="utf-8")
    command, process = start("train", CARTPOLE, "--config", str(config), "--out", str(folder / "0"), **environment)
    if process.wait() and not (folder / "0" / "curve.csv").exists():  # it fails for an unsolved one too
        raise BatchnavError(f"{shlex.join(command)}: found exit status {process.returncode}, expected 0")


def cartpole_returns(policy: Path, device: torch.device) -> dict[str, float]:
    """Frames of training, and mean returns of 200 and of 3,072 new episodes."""
    agent = load_policy(policy, device)
    returns = {
        f"{split}_return": round(mean_return(agent.network, CartPoleEnv(count, device, seed)), 1)
        for split, count, seed in (("val", 200, 1_000_000), ("other", 3072, 2_000_000))
    }
    return {"frames": agent.info["frames"], **returns}


def train(entry: Entry, folder: Path, seed: int, device: str, warm: bool = False, **environment: str) -> list[float]:
    """Train all stages, or one update of each in one house; returns the times at which they ended."""
    if device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    if entry.task == CARTPOLE:
        train_cartpole(entry, folder, seed, device, **environment)
        return [time.perf_counter()]
    before, ends = None, []
    for number, stage in enumerate(entry.stages):
        words = stage.command(folder / str(number), seed, device, before)
        short = ("--scenes.houses", "1", f"--{stage.algorithm}.total-frames", "1") if warm else ()
        finish(*start(*words, *short, **environment))
        before = folder / str(number)
        ends.append(time.perf_counter())
    return ends


def timed(entry: Entry, folder: Path, seed: int, device: str, empty: bool) -> tuple[float, dict]:
    """Seconds of all stages, and the curve of the headline metric in training."""
    with tempfile.TemporaryDirectory() as place:
        environment = {"BATCHNAV_CACHE": place}
        if empty:
            environment |= {"TORCHINDUCTOR_CACHE_DIR": f"{place}/inductor", "TRITON_CACHE_DIR": f"{place}/triton"}
        else:  # kernels alone: scenes are generated for each seed
            (Path(place) / "kernels").symlink_to(cache_folder().resolve() / "kernels")
        begin = time.perf_counter()
        ends = train(entry, folder, seed, device, **environment)
    parts = []
    for number, end in enumerate(ends):
        if entry.task == CARTPOLE:
            _, x, y = np.loadtxt(folder / "0" / "curve.csv", delimiter=",", skiprows=1, ndmin=2).T
        else:
            rows, _ = load_metrics(folder / str(number) / "metrics.jsonl")
            x, y = series(rows, entry.metric, "seconds")
        parts.append((x + (end - begin - (x[-1] if len(x) else 0.0)), y))
    return ends[-1] - begin, curve_of(*map(np.concatenate, zip(*parts, strict=True)))


def curve_of(seconds: np.ndarray, values: np.ndarray) -> dict[str, list[float]]:
    """A curve of at most POINTS points: "seconds" and "values", means over equal parts of the time."""
    if not len(seconds):
        return {"seconds": [], "values": []}
    part = np.minimum((seconds / seconds[-1] * POINTS).astype(int), POINTS - 1)
    groups = [part == number for number in np.unique(part)]
    means = lambda of: [round(float(of[group].mean()), 4) for group in groups]  # noqa: E731
    return {"seconds": means(seconds), "values": means(values)}


def other_episodes(entry: Entry, out: Path) -> Path:
    """The file of the other unseen episodes of the entry's task."""
    houses, per_scene = OTHER
    path = out / f"other_{entry.task}.json.gz"
    if not path.exists():
        words = houses, "--task", entry.task, "--per-scene", str(per_scene), "--out", str(path)
        finish(*start("data", "make-episodes", *words))
    return path


def evaluated(entry: Entry, policy: Path, files: dict[str, Path | None]) -> dict[str, float]:
    """Means of the entry's metrics on `val` and on files of episodes, which are played at the same time.

    A GPU plays them where there is one, whatever trained the policy.
    """
    device, running = resolve_device("auto"), []
    for split, path in files.items():
        words = ("--episodes", str(path)) if path else ("--split", split)
        together = "3072" if device.type == "cuda" else "256"
        words = (*words, "--num-envs", together, "--device", device.type)
        running.append(start("evaluate", str(policy), *words, "--out", str(policy / split)))
    for command, process in running:
        finish(command, process)
    found = {}
    for split in files:
        overall = json.loads(next((policy / split).rglob("results*.json")).read_text(encoding="utf-8"))["overall"]
        found |= {f"{split}_{metric}": round(overall[metric]["mean"], 4) for metric in entry.bars}
    return found


if __name__ == "__main__":
    run(Options, main, __doc__)
