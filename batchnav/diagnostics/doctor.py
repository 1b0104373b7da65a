"""What this machine can do, what will be used, and what to install for the rest: `batchnav doctor`."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from batchnav.config import load_config
from batchnav.data.episodes.episode_file import load_episodes
from batchnav.data.scene_ref import scene_ids
from batchnav.data.scenes import measure_scenes
from batchnav.diagnostics.memory import predict_memory
from batchnav.errors import DeviceError
from batchnav.renderers.opengl.gl import EGLDevice, cuda_match, egl_devices, open_context
from batchnav.runtime.device import resolve_device
from batchnav.runtime.threads import num_threads
from batchnav.training.config import TrainingConfig

PACKAGES = ("torch", "numba", "numpy", "moderngl", "glcontext")

CUDA_PACKAGES = ("numba-cuda", "cuda-bindings", "nvidia-nvvm", "nvidia-cuda-nvrtc", "nvidia-nvjitlink")
"""What compiles kernels for a GPU; conda and the system's toolkit may offer the same under other names."""
MOST_MEASURED = 64
"""Scenes that are measured for a prediction: thousands would be made for minutes."""


class Finding(NamedTuple):
    """A line of the report."""

    what: str
    found: str
    advice: str = ""
    """What to install or do; empty where nothing is missing."""


def examine() -> list[Finding]:
    """Look at Python, packages, CUDA and OpenGL."""
    findings = [Finding("Python", platform.python_version()), *map(_package, PACKAGES)]
    findings += [*_cuda(), *_nccl(), *_egl()]
    opengl = _opengl()
    has_cuda = torch.cuda.is_available()
    where = torch.cuda.get_device_name() if has_cuda else f"{num_threads()} CPU threads"
    renderers = "raycast" if opengl.advice else "raycast; opengl with --renderer opengl, the faster with auto"
    return [*findings, opengl, Finding("device: auto", where), Finding("renderers", renderers)]


def memory_findings(config: Path) -> list[Finding]:
    """What `predict_memory` says of a training configuration, part by part, on the device that it asks for.

    Of more than `MOST_MEASURED` scenes so many are measured, evenly spread over their list; each stands for those
    around it too, and the first line says so.
    """
    run = load_config(config, TrainingConfig)
    device = resolve_device(run.device)
    if run.scenes.episodes:
        names = sorted({episode.scene for episode in load_episodes(run.scenes.episodes)})
    else:
        names = scene_ids(run.scenes.names)
    n = min(len(names), MOST_MEASURED)
    chosen = [names[(2 * k + 1) * len(names) // (2 * n)] for k in range(n)]
    measured = measure_scenes(chosen, settings=run.env.body.navmesh, appearance=run.appearance)
    scenes = [measured[i * n // len(names)] for i in range(len(names))]
    parts = predict_memory(run, scenes, device)
    sizes = {**parts, f"in all, on {device}": sum(parts.values())}
    findings = [Finding(f"memory: {name}", f"{size / 1e9:.3f} GB") for name, size in sizes.items()]
    if n < len(names):
        sizes_of_scenes = [scene.with_appearance(run.appearance_fields).num_bytes for scene in measured]
        findings.insert(0, Finding("memory: scenes measured", _how_sure(sizes_of_scenes, len(names))))
    return findings


def _how_sure(sizes: Sequence[int], number: int) -> str:
    """How far the sum of so many scenes' sizes, of which these were measured, may be from the estimate."""
    few = len(sizes)
    error = statistics.stdev(sizes) / statistics.mean(sizes) * math.sqrt(1 / few - 1 / number)
    return f"{few} of {number:,}: all may take {1.96 * error:.0%} more or less (95%), and the largest may be larger"


def _package(name: str, advice: str = "") -> Finding:
    try:
        return Finding(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "missing", advice or f"pip install {name}")


def _cuda() -> list[Finding]:
    """The driver and devices that torch sees, and whether the packages for kernels are there."""
    if torch.version.cuda is None:
        return [
            Finding("CUDA", "this torch is built for the CPU", "on an NVIDIA GPU: pip install a CUDA build of torch")
        ]
    if not torch.cuda.is_available():
        return [Finding("CUDA", "no device", "on an NVIDIA GPU: install its driver (nvidia-smi shows it)")]
    findings = [_package(name, "pip install 'batchnav[cuda]'") for name in CUDA_PACKAGES]
    for i in range(torch.cuda.device_count()):
        free, total = (size / 2**30 for size in torch.cuda.mem_get_info(i))
        findings.append(
            Finding(f"cuda:{i}", f"{torch.cuda.get_device_name(i)}, {free:.0f} of {total:.0f} GiB free, torch for CUDA "
                    f"{torch.version.cuda}")
        )  # fmt: skip
    return findings


def _nccl() -> list[Finding]:
    """By what several processes would speak to one another: NCCL, its settings, and which GPUs reach which."""
    if not torch.distributed.is_available():
        return [Finding("several GPUs", "this torch has no torch.distributed", "install torch as pytorch.org gives it")]
    if not torch.distributed.is_nccl_available():
        return [Finding("NCCL", "none in this torch: several processes train by gloo, on the CPU")]
    version = torch.cuda.nccl.version()
    version = ".".join(map(str, version)) if isinstance(version, tuple) else str(version)
    settings = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("NCCL_")]
    findings = [Finding("NCCL", ", ".join([version, *settings]))]
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count > 1:
        pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
        apart = [f"cuda:{i} and cuda:{j}" for i, j in pairs if not torch.cuda.can_device_access_peer(i, j)]
        found = f"no direct way between {', '.join(apart[:8])}" if apart else "each reaches each directly"
        advice = "sums over them go by way of the host; nvidia-smi topo -m shows the links" if apart else ""
        findings.append(Finding(f"{count} GPUs among one another", found, advice))
    return findings


def _egl() -> list[Finding]:
    """EGL's devices, and which CUDA device each is."""
    try:
        devices = egl_devices()
    except DeviceError as error:
        return [Finding("EGL", "missing", str(error))]
    ordinals = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    matches = {match.index: i for i in ordinals if (match := cuda_match(i, devices))}
    return [Finding(f"EGL device {d.index}", _describe(d, matches.get(d.index))) for d in devices]


def _describe(device: EGLDevice, cuda_index: int | None) -> str:
    return (device.name or "unnamed") + ("" if cuda_index is None else f", cuda:{cuda_index}")


def _opengl() -> Finding:
    """The context that the renderer would get."""
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    try:
        context = open_context(device)
    except DeviceError as error:
        return Finding("OpenGL", "no context", str(error))
    with context:
        found = f"{context.renderer} on EGL device {context.device.index}"
    context.release()
    return Finding("OpenGL", found)
