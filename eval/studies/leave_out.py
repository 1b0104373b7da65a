"""What each thing that scans have is worth to train with, by leaving it out: agents, measured on three families.

    python eval/studies/leave_out.py --out runs/leave_out
    python eval/studies/leave_out.py --out runs/leave_out_h200 --config configs/pointnav_depth_h200.yaml --total-frames 25_000_000

An agent trains in so many houses and as many scans of other seeds, without holes, without missing ceilings, ...: the
seeds stay the same whatever is left out. It plays every fixed episode once, with actions drawn. Prints success and SPL,
means over the seeds of training, and the SPL that is lost beside the first line, with a 95% interval over scenes. A
study that was stopped goes on when it is started again; what another study left in its folder is refused.
"""

from __future__ import annotations

import functools
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from batchnav.config import load_config
from batchnav.data.parallel import SCENES_PER_WORKER, in_parallel
from batchnav.data.prepared.scene_file import save_prepared
from batchnav.data.scenes import find_scene
from batchnav.errors import ArgumentError, BatchnavError
from batchnav.evaluation.intervals import scene_interval
from batchnav.evaluation.players import PolicyPlayer
from batchnav.evaluation.results import write_results
from batchnav.evaluation.run import Evaluation
from batchnav.procedural import ScanDefects, tear
from batchnav.report.results import STYLE
from batchnav.runtime.device import resolve_device
from batchnav.runtime.files.bundled import EPISODES
from batchnav.scene.scene import make_scene
from batchnav.training.config import TrainingConfig
from batchnav.training.folder import RunFolder
from batchnav.training.loop import train

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = ("val", "hall", "scan")
LEFT_OUT: dict[str, ScanDefects | None] = {
    "nothing": ScanDefects(), "holes": ScanDefects(holes=0.0), "missing ceilings": ScanDefects(ceilings=False),
    "noise": ScanDefects(noise=0.0), "pieces": ScanDefects(pieces=0), "halls": ScanDefects(), "defects": None,
    "scans": None,
}  # fmt: skip
"""What scans have then; None: they are whole. Every third is of a hall; without halls, or without scans, of the house
of that seed."""


@dataclass(frozen=True)
class Options:
    """What to compare."""

    out: Path = Path("runs/leave_out")
    config: Path = ROOT / "configs" / "pointnav_depth_cpu.yaml"
    left_out: tuple[str, ...] = tuple(LEFT_OUT)
    seeds: tuple[int, ...] = (0, 1, 2, 3)
    houses: int = 48
    """Training seeds from 0 on; scans have the next ones."""
    total_frames: int = 1_500_000
    episodes: tuple[Path, ...] = tuple(EPISODES / f"{name}.json.gz" for name in FAMILIES)
    device: str = "auto"


def main(options: Options) -> None:
    if unknown := [name for name in options.left_out if name not in LEFT_OUT]:
        raise ArgumentError(f"left_out: found {unknown}, expected some of {', '.join(LEFT_OUT)}")
    make_scans(options)
    evaluations = load_evaluations(options)
    for seed in options.seeds:
        for name in options.left_out:
            measure(options, name, seed, evaluations)
    show(options)


def measure(options: Options, name: str, seed: int, evaluations: list[Evaluation]) -> None:
    """Train one agent and have it play, unless that is done. BatchnavError where what is there is of other settings."""
    folder, run = run_folder(options, name, seed), configured(options, name, seed)
    RunFolder(folder, run).close()  # it opens for this configuration alone
    files = [folder / f"{evaluation.path.name}.json" for evaluation in evaluations]
    if not all(map(Path.is_file, files)):
        train(run, folder)
    for file, evaluation in zip(files, evaluations, strict=True):
        if not file.is_file():
            player = PolicyPlayer(folder / "policy.safetensors", evaluation.bank.device)
            write_results(file, evaluation, evaluation.play(player))
        found = json.loads(file.read_text(encoding="utf-8"))["episodes_file"]
        if found != str(evaluation.path):
            raise ArgumentError(f"{file}: found results in {found}, expected {evaluation.path}; choose another --out")


def load_evaluations(options: Options) -> list[Evaluation]:
    body = load_config(options.config, TrainingConfig).env.body
    return [Evaluation(file, resolve_device(options.device), body) for file in options.episodes]


def run_folder(options: Options, name: str, seed: int) -> Path:
    return options.out / f"{name.replace(' ', '_')}_{seed}"


def configured(options: Options, name: str, seed: int) -> TrainingConfig:
    """The run in which one agent trains: in this process alone, since it imports and compiles once for all of them."""
    run = load_config(options.config, TrainingConfig)
    scanned = tuple(scanned_scene(options, name, scan) for scan in scan_seeds(options))
    scenes = replace(run.scenes, houses=options.houses, first_house=0, sources=scanned)
    ppo = replace(run.ppo, total_frames=options.total_frames)
    return replace(run, scenes=scenes, ppo=ppo, seed=seed, device=options.device, processes=1)


def scan_seeds(options: Options) -> range:
    return range(options.houses, 2 * options.houses)


def scanned_scene(options: Options, name: str, seed: int) -> str:
    """The scene that stands for the scan of a seed: a scan's file, or where that would be whole what it is of."""
    if LEFT_OUT[name] is None:
        return walked_scene(name, seed)
    return str(options.out / "scenes" / name.replace(" ", "_") / f"scan_{seed}.scene")


def walked_scene(name: str, seed: int) -> str:
    """The id of what a scan is of."""
    return f"{'house' if seed % 3 or name in ('halls', 'scans') else 'hall'}:{seed}"


def make_scans(options: Options) -> None:
    """All scans, as prepared scenes; those that are there stay."""
    scans = [(name, seed) for name in options.left_out if LEFT_OUT[name] for seed in scan_seeds(options)]
    new = [scan for scan in scans if not Path(scanned_scene(options, *scan)).is_file()]
    list(in_parallel(functools.partial(make_scan, options), new, "scans", SCENES_PER_WORKER))


def make_scan(options: Options, scan: tuple[str, int]) -> None:
    """The file of a scan without what is left out; with nothing left out it is the scene `scan:SEED`."""
    name, seed = scan
    path, defects = Path(scanned_scene(options, name, seed)), LEFT_OUT[name]
    assert defects, "what is whole is no scan"
    path.parent.mkdir(parents=True, exist_ok=True)
    scanned = find_scene(walked_scene(name, seed), appearance=False)
    save_prepared(make_scene(f"scan:{seed}", tear(scanned.mesh, seed, defects), scanned.navmesh), path, durable=False)


def played(options: Options, name: str, file: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Success and SPL f64 [seeds, episodes], and the episodes' scenes."""
    files = [run_folder(options, name, seed) / f"{file.name}.json" for seed in options.seeds]
    runs = [json.loads(path.read_text(encoding="utf-8"))["episodes"] for path in files]
    success, spl = (np.array([[episode[metric] for episode in run] for run in runs]) for metric in ("success", "spl"))
    return success, spl, np.array([episode["scene_id"] for episode in runs[0]])


def show(options: Options) -> None:
    table = Table("left out", "episodes", title=f"seeds {', '.join(map(str, options.seeds))}", **STYLE)
    for title in ("success", "SPL", "each seed's", "SPL lost", "95%"):
        table.add_column(title, justify="right")
    for name in options.left_out:
        for file in options.episodes:
            success, spl, scene = played(options, name, file)
            lost = (played(options, options.left_out[0], file)[1] - spl).mean(0)
            beside = [[lost.mean()], scene_interval(lost, scene)] if name != options.left_out[0] else []
            cells = [[success.mean()], [spl.mean()], spl.mean(1), *beside]
            table.add_row(name, file.name.partition(".")[0], *(" ".join(f"{v:.3f}" for v in cell) for cell in cells))
        table.add_section()
    Console().print(table)


if __name__ == "__main__":
    try:
        main(tyro.cli(Options, description=__doc__))
    except BatchnavError as error:
        sys.exit(f"error: {error}")
