"""What each thing that scans have is worth to train with, by leaving it out: small agents, measured on three families.

    python eval/leave_out.py --out runs/leave_out

An agent trains in so many houses and as many scans of other seeds, without holes, without missing ceilings, ...: the
seeds stay the same whatever is left out. It plays every fixed episode once, with actions drawn. Prints success and SPL,
means over the seeds of training, and the SPL that is lost beside the first line, with a 95% interval over scenes. A
study that was stopped goes on when it is started again.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from batchnav.data.parallel import in_parallel
from batchnav.data.prepared import save_prepared
from batchnav.data.scenes import SCENES_PER_WORKER, find_scene
from batchnav.errors import ArgumentError, BatchnavError
from batchnav.evaluation.intervals import scene_interval
from batchnav.evaluation.run import Evaluation, PolicyPlayer
from batchnav.houses import ScanDefects, tear
from batchnav.runs.results import STYLE
from batchnav.runtime.bundled import EPISODES
from batchnav.runtime.device import resolve_device
from batchnav.scene.scene import make_scene

ROOT = Path(__file__).resolve().parents[1]
FAMILIES = ("val", "hall", "scan")
NONE = ScanDefects(holes=0.0, noise=0.0, pieces=0, ceilings=False)
LEFT_OUT = {
    "nothing": ScanDefects(), "holes": ScanDefects(holes=0.0), "missing ceilings": ScanDefects(ceilings=False),
    "noise": ScanDefects(noise=0.0), "pieces": ScanDefects(pieces=0), "halls": ScanDefects(), "defects": NONE,
    "scans": NONE,
}  # fmt: skip
"""What scans have then. Every third is of a hall; without halls, or without scans, of the house of that seed."""


@dataclass(frozen=True)
class Options:
    """What to compare."""

    out: Path = Path("runs/leave_out")
    config: Path = ROOT / "configs" / "pointnav_cpu.yaml"
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
    for seed in options.seeds:
        for name in options.left_out:
            measure(options, name, seed)
    show(options)


def measure(options: Options, name: str, seed: int) -> None:
    """Train one agent and have it play, unless that is done."""
    folder = run_folder(options, name, seed)
    todo = [file for file in options.episodes if not (folder / f"{file.name}.json").is_file()]
    if todo:
        settings = {
            "config": options.config, "out": folder, "device": options.device, "seed": seed,
            "scenes.houses": options.houses, "scenes.files": make_scans(options, name),
            "ppo.total-frames": options.total_frames,
        }  # fmt: skip
        words = [str(word) for key, value in settings.items() for word in (f"--{key}", value)]
        subprocess.run([sys.executable, ROOT / "train" / "pointnav.py", *words], check=True)
    device = resolve_device(options.device)
    for file in todo:
        player = PolicyPlayer(folder / "policy.safetensors", device)
        evaluation = Evaluation(file, device, player.config.body)
        evaluation.write_results(folder / f"{file.name}.json", evaluation.play(player))


def run_folder(options: Options, name: str, seed: int) -> Path:
    return options.out / f"{name.replace(' ', '_')}_{seed}"


def make_scans(options: Options, name: str) -> Path:
    """The folder of a variant's scans, as prepared scenes; those that are there stay."""
    folder = options.out / "scenes" / name.replace(" ", "_")
    folder.mkdir(parents=True, exist_ok=True)
    paths = (folder / f"scan_{seed}.scene" for seed in range(options.houses, 2 * options.houses))
    new = [path for path in paths if not path.is_file()]
    list(in_parallel(functools.partial(make_scan, name), new, "scans", SCENES_PER_WORKER))
    return folder


def make_scan(name: str, path: Path) -> None:
    """The file of a scan without what is left out; with nothing left out it is the scene `scan:SEED`."""
    seed = int(path.stem.removeprefix("scan_"))
    kind = "house" if seed % 3 or name in ("halls", "scans") else "hall"
    scanned = find_scene(f"{kind}:{seed}", appearance=False)
    save_prepared(make_scene(f"scan:{seed}", tear(scanned.mesh, seed, LEFT_OUT[name]), scanned.navmesh), path)


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
