"""Options of the benchmarks, apart from the benchmarks since `--help` does not need their libraries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SCENE = "house:121980"
"""Default scene: `procedural.BENCHMARK_HOUSE`."""


@dataclass(frozen=True)
class LoadOptions:
    """Options of `batchnav bench load`."""

    scenes: tuple[str, ...] = (SCENE,)
    """Scene ids: house:7, mesh files, prepared scenes."""
    repeats: int = 9
    """Number of repeats of each measurement; the median is printed."""
    record: bool = False
    """Append the results to eval/results/load.jsonl."""


@dataclass(frozen=True)
class NavmeshOptions:
    """Options of `batchnav bench navmesh`."""

    scenes: tuple[str, ...] = (SCENE,)
    """Scene ids of the scenes to bake; queries use the navmesh of the last one."""
    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one."""
    batch: int = 2**20
    """Queries per call."""
    repeats: int = 9
    """Number of repeats of each measurement; the median is printed."""
    record: bool = False
    """Append the results to eval/results/navmesh.jsonl."""


@dataclass
class RenderOptions:
    """Options of `batchnav bench render`."""

    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one."""
    num_agents: tuple[int, ...] = ()
    """Views per call; default 4096 on CUDA, 256 on the CPU."""
    sizes: tuple[int, ...] = (64,)
    """Sides of the square images, pixels."""
    scenes: tuple[str, ...] = (SCENE,)
    """Scene ids: house:7, mesh files; or houses:K, a batch of K procedural houses."""
    renderers: tuple[Literal["raycast", "opengl"], ...] = ("raycast", "opengl")
    """Renderers, each measured separately."""
    sensors: tuple[str, ...] = ("depth",)
    """Sets of sensors, each measured separately: names joined by +, as rgb+depth."""
    culling: bool = False
    """Also measure OpenGL without each kind of culling and without any."""
    repeats: int = 7
    """Number of repeats of each measurement; the median is printed."""
    peers: bool = True
    """Also measure installed peers."""
    seed: int = 0
    """Seed for sampling views."""
    record: bool = False
    """Append the results to eval/results/render.jsonl."""
    figure: Path | None = None
    """Image file for a plot of frames/s against the number of agents."""


@dataclass(frozen=True)
class EnvOptions:
    """Options of `batchnav bench env`."""

    scenes: tuple[str, ...] = (SCENE,)
    """Scene ids: house:7, mesh files, prepared scenes."""
    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one."""
    num_envs: tuple[int, ...] = (1, 4, 16, 64, 256, 1024)
    """Numbers of environments, each measured separately."""
    sensors: tuple[str, ...] = ("depth",)
    """Sets of sensors, each measured separately: names joined by +, as depth+waypoint."""
    sizes: tuple[int, ...] = (64,)
    """Sides of the square images, pixels."""
    seconds: float = 0.5
    """Duration of a repeat, seconds."""
    repeats: int = 7
    """Number of repeats of each measurement; the median is printed."""
    record: bool = False
    """Append the results to eval/results/env.jsonl."""


@dataclass(frozen=True)
class SimOptions:
    """Options of `batchnav bench sim`."""

    scenes: tuple[str, ...] = (SCENE,)
    """Scene ids: house:7, mesh files, prepared scenes."""
    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one."""
    num_envs: tuple[int, ...] = (256, 4096, 16384)
    """Numbers of environments, each measured separately."""
    tasks: tuple[str, ...] = ("pointnav",)
    """Names of tasks: pointnav, flee, explore, objectnav."""
    actions: tuple[Literal["all", "moving", "forward"], ...] = ("all", "moving")
    """Sets of sampled actions: all four; moving: without stop; forward: steps only."""
    noise: tuple[float, ...] = (0.0,)
    """Multipliers of the actuation noise (LoCoBot, proportional controller)."""
    steps: int = 200
    """Steps per repeat; fewer where they would take longer than `seconds`."""
    seconds: float = 0.5
    """Longest duration of a repeat, seconds."""
    repeats: int = 7
    """Number of repeats of each measurement; the median is printed."""
    record: bool = False
    """Append the results to eval/results/sim.jsonl."""


@dataclass(frozen=True)
class TrainOptions:
    """Options of `batchnav bench train`."""

    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one."""
    algorithm: str = "ppo"
    """Algorithm that learns; one that needs no expert."""
    policies: tuple[str, ...] = ("paper", "light")
    """Policies: paper (SE-ResNet9 and LSTM), light (half as many channels, one LSTM layer)."""
    sizes: tuple[int, ...] = (64, 128)
    """Sides of the square depth images, pixels."""
    num_envs: tuple[int, ...] = (1024, 4096, 16384)
    """Numbers of environments, each measured separately."""
    houses: int = 64
    """Number of procedural houses, from seed 0."""
    resident_scenes: int = 0
    """Houses in device memory at a time; 0: all of them."""
    rollout_steps: int = 32
    """Number of steps of each environment in a rollout."""
    minibatch_frames: int = 16384
    """Frames of one minibatch, for every number of environments."""
    updates: int = 5
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
