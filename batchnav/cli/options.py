"""Options of commands whose programs are modules of their own, so that `--help` does not import PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from batchnav.config import bounded
from batchnav.data.files import SCENES_DIR


@dataclass(frozen=True)
class EvaluateOptions:
    """Options of `batchnav evaluate`."""

    agents: tyro.conf.Positional[tuple[str, ...]] = ()
    """Agents to evaluate: policies (files, run folders, bundled names such as pointnav_h200) and reference agents of
    the task (random, forward, greedy, map_planner, map_planner_anticipation, map_searcher, shortest_path,
    frontier)."""
    task: str | None = None
    """Task of the agents. Default: that of the policies; pointnav for reference agents without a policy."""
    preset: str | None = None
    """Environment of reference agents, for example objectnav_mp3d for Habitat's ObjectNav episodes in Matterport3D.
    Default: the task's own. Policies play in the environment of their training."""
    split: str = "val"
    """Name of a fixed episode file of the task. All tasks: val, test (procedural houses). PointNav and ObjectNav:
    building (corridor floors). ObjectNav: procthor (ProcTHOR houses). PointNav: hall, block, scan, course (other scene
    families), and wide_val, wide_test (bodies of radius 0.18 m, as in the Habitat challenges)."""
    episodes: Path | None = None
    """Episode file to use instead of --split: your own, Habitat's with its folder `content`, or the name of a bundled
    one."""
    scenes_dir: Path = SCENES_DIR
    """Folder that contains the scenes of Habitat's episodes."""
    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one."""
    renderer: Literal["raycast", "opengl", "auto"] = "raycast"
    """Renderer. "auto" times both on a few batches and takes the faster one."""
    num_envs: int = bounded(256, 1, 2**24)
    """Number of environments, at most one per episode."""
    sample: bool = True
    """Sample the policy's actions, as Habitat's evaluation does. --no-sample takes the most probable actions."""
    seed: int = bounded(0, 0, 2**62)
    """Seed for action sampling."""
    camera_height: float | None = None
    """Height of the main camera above the floor, metres. Default: the height in training."""
    hfov_deg: float | None = None
    """Horizontal field of view of the main camera, degrees. Default: the field of view in training."""
    out: Path | None = None
    """Folder for results.json and the report. Default: a subfolder of the policy's folder, or of runs."""
    report: bool = False
    """Write the report index.html: learning curves, all episodes, and a comparison with reference agents."""
    report_episodes: int = bounded(24, 0, 2**24)
    """Number of episodes with recorded images in the report, failures first."""
    videos: Literal["none", "gif", "mp4"] = "none"
    """File format of videos of the first agent in six episodes. mp4 needs PyAV. none: no videos."""
    maps: bool = False
    """Write the map that the first agent built in six episodes, as ROS maps. For agents with a sensor that reads a
    map."""
    append_results: bool = False
    """Append result rows to eval/results/TASK.jsonl."""


@dataclass(frozen=True)
class CartPoleOptions:
    """Options of `batchnav train cartpole`."""

    config: str = "cartpole_cpu"
    """Configuration: a YAML file, or a bundled name, cartpole_cpu or cartpole_h200."""


@dataclass(frozen=True)
class AnticipationOptions:
    """Options of `batchnav train anticipation`."""

    out: Path
    """Weights file to write, .safetensors."""
    scenes: tuple[str, ...] = ("house:0-511",)
    """Scene ids, ranges such as house:0-511, and folders, as `batchnav.load_scenes` takes them."""
    maps: int = bounded(20_000, 2, 2**31 - 1)
    """Number of maps to record; each takes 37 KB."""
    num_envs: int = bounded(256, 1, 2**31 - 1)
    """Number of environments while recording."""
    steps: int = bounded(3000, 0, 2**31 - 1)
    """Number of training steps on cells; 0: none."""
    path_steps: int = bounded(1500, 0, 2**31 - 1)
    """Number of training steps on paths, after those on cells; 0: none."""
    batch: int = bounded(32, 2, 2**31 - 1)
    """Number of maps in a training step."""
    learning_rate: float = bounded(3e-3, 0.0, 1.0)
    """Peak learning rate of AdamW on cells, which falls linearly to 0. The rate on paths is a tenth of it."""
    init_from: str = ""
    """Initial weights: a file that this command wrote, or "occupancy", the bundled weights. The recorded map planner
    uses them too. "": random weights; the map planner counts unknown cells as free."""
    seed: int = bounded(0, 0, 2**48)
    """Seed of episodes, recorded steps, initial weights and batches."""
    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one."""
