"""Options of the benchmarks, apart from the benchmarks since `--help` does not need their libraries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from batchnav.config import bounded

SCENE = "house:121980"
"""Default scene: `procedural.BENCHMARK_HOUSE`."""


@dataclass(frozen=True)
class NavmeshOptions:
    """Options of `batchnav bench navmesh`."""

    scenes: tuple[str, ...] = (SCENE,)
    """Scenes to bake, as house:7 or house:0-3; queries use the navmesh of the last one."""
    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one."""
    batch: int = bounded(2**20, 1, 2**28)
    """Queries per call."""
    repeats: int = bounded(9, 1, 100_000)
    """Number of repeats of each measurement; the median is printed."""
    record: bool = False
    """Append the results to eval/results/navmesh.jsonl."""


@dataclass
class RenderOptions:
    """Options of `batchnav bench render`."""

    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one."""
    num_agents: tuple[int, ...] = bounded((), 1, 2**24)
    """Views per call; default 4096 on CUDA, 256 on the CPU."""
    sizes: tuple[int, ...] = bounded((64,), 1, 4096)
    """Sides of the square images, pixels."""
    scenes: tuple[str, ...] = (SCENE,)
    """Scenes, each measured separately: house:7, mesh files; or batches: a range house:0-3; houses:K, K houses."""
    renderers: tuple[Literal["raycast", "opengl"], ...] = ("raycast", "opengl")
    """Renderers, each measured separately."""
    sensors: tuple[str, ...] = ("depth",)
    """Sets of sensors, each measured separately: names joined by +, as rgb+depth."""
    culling: bool = False
    """Also measure OpenGL without each kind of culling and without any."""
    repeats: int = bounded(7, 1, 100_000)
    """Number of repeats of each measurement; the median is printed."""
    peers: bool = True
    """Also measure installed peers."""
    seed: int = bounded(0, 0, 2**62)
    """Seed for sampling views."""
    record: bool = False
    """Append the results to eval/results/render.jsonl."""
    figure: Path | None = None
    """Image file for a plot of frames/s against the number of agents."""


@dataclass(frozen=True)
class EnvOptions:
    """Options of `batchnav bench env`."""

    scenes: tuple[str, ...] = (SCENE,)
    """Scenes: house:7, house:0-3, mesh files, prepared scenes."""
    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one."""
    num_envs: tuple[int, ...] = bounded((1, 4, 16, 64, 256, 1024), 1, 2**24)
    """Numbers of environments, each measured separately."""
    sensors: tuple[str, ...] = ("depth",)
    """Sets of sensors, each measured separately: names joined by +, as depth+waypoint; "none" for none."""
    sizes: tuple[int, ...] = bounded((64,), 1, 4096)
    """Sides of the square images, pixels."""
    task: str = "pointnav"
    """Name of the task, with its default settings."""
    people: int = bounded(0, 0, 8)
    """Number of people in each world, who walk."""
    agents_per_world: int = bounded(1, 1, 64)
    """Number of robots that share a world."""
    seconds: float = bounded(0.5, 1e-3, 86_400.0)
    """Duration of a repeat, seconds."""
    repeats: int = bounded(7, 1, 100_000)
    """Number of repeats of each measurement; the median is printed."""
    record: bool = False
    """Append the results to eval/results/env.jsonl."""


@dataclass(frozen=True)
class SimOptions:
    """Options of `batchnav bench sim`."""

    scenes: tuple[str, ...] = (SCENE,)
    """Scenes: house:7, house:0-3, mesh files, prepared scenes."""
    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one."""
    num_envs: tuple[int, ...] = bounded((256, 4096, 16384), 1, 2**24)
    """Numbers of environments, each measured separately."""
    tasks: tuple[str, ...] = ("pointnav",)
    """Names of tasks: pointnav, flee, explore, objectnav."""
    actions: tuple[Literal["all", "moving", "forward"], ...] = ("all", "moving")
    """Sets of sampled actions: all four; moving: without stop; forward: steps only."""
    noise: tuple[float, ...] = bounded((0.0,), 0.0, 1000.0)
    """Multipliers of the actuation noise (LoCoBot, proportional controller)."""
    steps: int = bounded(200, 1, 2**31 - 1)
    """Steps per repeat; fewer where they would take longer than `seconds`."""
    seconds: float = bounded(0.5, 1e-3, 86_400.0)
    """Longest duration of a repeat, seconds."""
    repeats: int = bounded(7, 1, 100_000)
    """Number of repeats of each measurement; the median is printed."""
    record: bool = False
    """Append the results to eval/results/sim.jsonl."""


@dataclass(frozen=True)
class ScansOptions:
    """Options of `batchnav bench scans`."""

    count: int = bounded(6, 1, 1000)
    """Number of scans."""
    triangles: float = bounded(1.4e6, 1e3, 2.5e6)
    """Triangles of a scan, on average."""
    textures: str = "4x4096"
    """Number of textures of a scan, and their side, texels."""
    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one."""
    num_envs: int = bounded(0, 0, 2**24)
    """Number of environments; 0: 4096 on CUDA, 64 on the CPU."""
    sensors: tuple[str, ...] = ("depth", "rgb+depth", "depth+waypoint")
    """Sets of sensors, each measured separately: names joined by +."""
    sizes: tuple[int, ...] = bounded((64, 128), 1, 4096)
    """Sides of the square images, pixels; training has the first."""
    policy: str = "paper"
    """Policy that is trained, as in `batchnav bench train`."""
    objects: int = bounded(100, 1, 100_000)
    """Number of objects of a scan whose view points are searched."""
    houses: int = bounded(0, 0, 100_000)
    """Number of procedural houses in which the view points of all objects are searched too."""
    seconds: float = bounded(0.5, 1e-3, 86_400.0)
    """Duration of a repeat of steps, seconds."""
    repeats: int = bounded(7, 1, 100_000)
    """Number of repeats of steps; the median is printed."""
    updates: int = bounded(5, 1, 2**31 - 1)
    """Timed updates, after the warm-up."""
    stream: str = ""
    """Measure scene streaming alone: numbers of resident scans and of all scans, such as 64/800. Those beyond `count`
    are links to the prepared files of the first."""
    record: bool = False
    """Append the results to eval/results/scans.jsonl."""


@dataclass(frozen=True)
class TrainOptions:
    """Options of `batchnav bench train`."""

    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one."""
    algorithm: str = "ppo"
    """Algorithm that learns; one that needs no expert."""
    policies: tuple[str, ...] = ("paper", "light")
    """Policies: paper (SE-ResNet9 and LSTM), light (half as many channels, one LSTM layer); or timm:NAME for a frozen
    encoder of timm with random weights, and one LSTM layer. Those read colour, the others depth."""
    sizes: tuple[int, ...] = bounded((64, 128), 1, 4096)
    """Sides of the square images, pixels."""
    num_envs: tuple[int, ...] = bounded((1024, 4096, 16384), 1, 2**24)
    """Numbers of environments, each measured separately."""
    houses: int = bounded(64, 1, 100_000)
    """Number of procedural houses, from seed 0."""
    resident_scenes: int = bounded(0, 0, 100_000)
    """Houses in device memory at a time; 0: all of them."""
    rollout_steps: int = bounded(32, 1, 10_000)
    """Number of steps of each environment in a rollout."""
    minibatch_frames: int = bounded(16384, 1, 2**31 - 1)
    """Frames of one minibatch, for every number of environments."""
    people: int = bounded(0, 0, 8)
    """Number of people in each world, who walk."""
    updates: int = bounded(5, 1, 2**31 - 1)
    """Timed updates, after the warm-up."""
    compile: bool = True
    """Run the policy through torch.compile on a GPU."""
    graphs: bool = True
    """Replay rollouts and optimiser steps as CUDA graphs on a GPU."""
    deterministic: bool = False
    """Use deterministic operations only."""
    json: bool = False
    """Print each result as a line of JSON."""
    record: bool = False
    """Append the results to eval/results/train.jsonl, and plot those of this commit in eval/results/train.webp."""
