"""Ablation of degraded scans: train agents on scans that lack one kind of defect, and evaluate them on three families.

    python eval/studies/leave_out.py --out runs/leave_out
    python eval/studies/leave_out.py --out runs/leave_out_h200 --config configs/pointnav_depth_h200.yaml \
        --total-frames 25_000_000

Each agent trains in houses and in as many degraded scans. The scans of each ablation lack one kind of defect, such as
holes or missing ceilings; the scenes' seeds are the same in all ablations. The agent then plays every fixed episode
once, with sampled actions. Prints success and SPL (means over training seeds), and the SPL lost against the first
ablation with a 95% interval over scenes. An interrupted study continues when started again. A folder that holds another
study is refused.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from batchnav.cli.console import run
from batchnav.config import bounded, load_config
from batchnav.data.scenes.load import load_scene
from batchnav.data.scenes.prepared import save_prepared
from batchnav.errors import ArgumentError
from batchnav.evaluation.intervals import scene_interval
from batchnav.evaluation.players import PolicyPlayer
from batchnav.evaluation.run import Evaluation, write_results
from batchnav.procedural import ScanDefects, degrade
from batchnav.report.results import STYLE
from batchnav.runtime.bundled import EPISODES
from batchnav.runtime.device import resolve_device
from batchnav.runtime.parallel import SCENES_PER_WORKER, in_parallel
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
"""Defects of the scans by ablation; None: the scenes are not degraded. Every third scan is of open-plan rooms; in the
ablations "halls" and "scans" all are of houses."""


@dataclass(frozen=True)
class Options:
    """Ablations, training and evaluation of the study."""

    out: Path = Path("runs/leave_out")
    """Folder for scans, runs and results."""
    config: Path = ROOT / "configs" / "pointnav_depth_cpu.yaml"
    """Training configuration of all agents."""
    left_out: tuple[str, ...] = tuple(LEFT_OUT)
    """Ablations; the others are compared with the first."""
    seeds: tuple[int, ...] = bounded((0, 1, 2, 3), 0, 2**62)
    """Training seeds."""
    houses: int = bounded(48, 1, 100_000)
    """Number of training houses n, with seeds 0 to n - 1; the n scans have seeds n to 2n - 1."""
    total_frames: int = bounded(1_500_000, 1, 2**62)
    """Frames of training of each agent."""
    episodes: tuple[Path, ...] = tuple(EPISODES / f"{name}.json.gz" for name in FAMILIES)
    """Episode files of the evaluation."""
    device: str = "auto"
    """Device of training and evaluation: cuda, cpu, or auto for a GPU if there is one."""


def main(options: Options) -> None:
    """Make the scans, train and evaluate all agents, and print the table."""
    if unknown := [name for name in options.left_out if name not in LEFT_OUT]:
        raise ArgumentError(f"left_out: found {unknown}, expected some of {', '.join(LEFT_OUT)}")
    make_scans(options)
    evaluations = load_evaluations(options)
    for seed in options.seeds:
        for name in options.left_out:
            measure(options, name, seed, evaluations)
    show(options)


def measure(options: Options, name: str, seed: int, evaluations: list[Evaluation]) -> None:
    """Train and evaluate one agent, unless its results exist.

    BatchnavError if the folder holds a run with another configuration, or results of other episodes.
    """
    folder, run = run_folder(options, name, seed), configured(options, name, seed)
    RunFolder(folder, run).close()  # raises for a folder with another configuration
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
    """The episode files, each loaded once for all agents."""
    config = load_config(options.config, TrainingConfig).env
    return [Evaluation(file, resolve_device(options.device), config) for file in options.episodes]


def run_folder(options: Options, name: str, seed: int) -> Path:
    """Folder of the agent of an ablation and a training seed."""
    return options.out / f"{name.replace(' ', '_')}_{seed}"


def configured(options: Options, name: str, seed: int) -> TrainingConfig:
    """Training configuration of one agent. Training uses this process, so imports and compilation happen once."""
    run = load_config(options.config, TrainingConfig)
    scanned = tuple(scanned_scene(options, name, scan) for scan in scan_seeds(options))
    scenes = replace(run.scenes, houses=options.houses, first_house=0, sources=scanned)
    ppo = replace(run.ppo, total_frames=options.total_frames)
    return replace(run, scenes=scenes, ppo=ppo, seed=seed, device=options.device, processes=1)


def scan_seeds(options: Options) -> range:
    """Seeds of the scans."""
    return range(options.houses, 2 * options.houses)


def scanned_scene(options: Options, name: str, seed: int) -> str:
    """Source of the training scene of a scan seed: the scan's file, or the original scene's id without defects."""
    if LEFT_OUT[name] is None:
        return original_scene(name, seed)
    return str(options.out / "scenes" / name.replace(" ", "_") / f"scan_{seed}.scene")


def original_scene(name: str, seed: int) -> str:
    """Scene id of the scene that a scan degrades."""
    return f"{'house' if seed % 3 or name in ('halls', 'scans') else 'hall'}:{seed}"


def make_scans(options: Options) -> None:
    """Make the prepared scenes of all scans that do not exist yet."""
    scans = [(name, seed) for name in options.left_out if LEFT_OUT[name] for seed in scan_seeds(options)]
    new = [scan for scan in scans if not Path(scanned_scene(options, *scan)).is_file()]
    list(in_parallel(functools.partial(make_scan, options), new, "scans", SCENES_PER_WORKER))


def make_scan(options: Options, scan: tuple[str, int]) -> None:
    """Make the prepared scene of a scan with the defects of an ablation; with all of them it equals `scan:SEED`."""
    name, seed = scan
    path, defects = Path(scanned_scene(options, name, seed)), LEFT_OUT[name]
    assert defects, "no scan is made for an ablation without defects"
    path.parent.mkdir(parents=True, exist_ok=True)
    scanned = load_scene(original_scene(name, seed), appearance=False)
    save_prepared(
        make_scene(f"scan:{seed}", degrade(scanned.mesh, seed, defects), scanned.navmesh), path, durable=False
    )


def results_of(options: Options, name: str, file: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Success and SPL, each f64 [seeds, episodes], and the episodes' scene ids."""
    files = [run_folder(options, name, seed) / f"{file.name}.json" for seed in options.seeds]
    runs = [json.loads(path.read_text(encoding="utf-8"))["episodes"] for path in files]
    success, spl = (np.array([[episode[metric] for episode in run] for run in runs]) for metric in ("success", "spl"))
    return success, spl, np.array([episode["scene_id"] for episode in runs[0]])


def show(options: Options) -> None:
    """Print the table of all ablations and episode files."""
    table = Table("left out", "episodes", title=f"seeds {', '.join(map(str, options.seeds))}", **STYLE)
    for title in ("success", "SPL", "SPL by seed", "SPL lost", "95%"):
        table.add_column(title, justify="right")
    for name in options.left_out:
        for file in options.episodes:
            success, spl, scene = results_of(options, name, file)
            lost = (results_of(options, options.left_out[0], file)[1] - spl).mean(0)
            difference = [[lost.mean()], scene_interval(lost, scene)] if name != options.left_out[0] else []
            cells = [[success.mean()], [spl.mean()], spl.mean(1), *difference]
            table.add_row(name, file.name.partition(".")[0], *(" ".join(f"{v:.3f}" for v in cell) for cell in cells))
        table.add_section()
    Console().print(table)


if __name__ == "__main__":
    run(Options, main, __doc__)
