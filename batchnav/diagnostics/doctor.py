"""`batchnav doctor`: devices and renderers of the machine, and the memory of a training run."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Sequence
from pathlib import Path

import torch

from batchnav.config import load_config
from batchnav.data.episodes.episode_file import load_episodes
from batchnav.data.scene_ref import scene_ids
from batchnav.data.scenes import measure_scenes, played_scene
from batchnav.diagnostics.installation import Finding, package
from batchnav.diagnostics.memory import predict_memory
from batchnav.errors import DeviceError
from batchnav.renderers.opengl.gl import EGLDevice, cuda_match, egl_devices, open_context
from batchnav.runtime.device import resolve_device
from batchnav.runtime.extras import install_command
from batchnav.runtime.threads import num_threads
from batchnav.training.config import TrainingConfig

CUDA_PACKAGES = ("numba-cuda", "cuda-bindings", "nvidia-nvvm", "nvidia-cuda-nvrtc", "nvidia-nvjitlink")
"""Packages that compile kernels for a GPU. Conda and the system's toolkit may have them under other names."""
MAX_MEASURED = 64
"""Maximum number of scenes measured for a prediction: generating thousands of scenes takes minutes."""


def examine() -> list[Finding]:
    """Examine CUDA, NCCL, EGL and OpenGL."""
    findings = [*_cuda(), *_nccl(), *_egl()]
    opengl = _opengl()
    has_cuda = torch.cuda.is_available()
    where = torch.cuda.get_device_name() if has_cuda else f"{num_threads()} CPU threads"
    renderers = "raycast" if opengl.advice else "raycast; opengl with --renderer opengl; auto picks the faster one"
    return [*findings, opengl, Finding("device: auto", where), Finding("renderers", renderers)]


def memory_findings(config: Path) -> list[Finding]:
    """Memory that `predict_memory` predicts for a training configuration, by part, on the configuration's device.

    If there are more than `MAX_MEASURED` scenes, that many are measured, evenly spaced over the list; each represents
    its neighbours. The first line of the report then gives the error of the estimate.
    """
    run = load_config(config, TrainingConfig)
    device = resolve_device(run.device)
    if run.scenes.episodes:
        names = sorted({played_scene(episode) for episode in load_episodes(run.scenes.episodes)})
    else:
        names = scene_ids(run.scenes.names)
    n = min(len(names), MAX_MEASURED)
    chosen = [names[(2 * k + 1) * len(names) // (2 * n)] for k in range(n)]
    measured = measure_scenes(chosen, settings=run.env.body.navmesh, appearance=run.appearance)
    scenes = [measured[i * n // len(names)] for i in range(len(names))]
    parts = predict_memory(run, scenes, device)
    sizes = {**parts, f"total, on {device}": sum(parts.values())}
    findings = [Finding(f"memory: {name}", f"{size / 1e9:.3f} GB") for name, size in sizes.items()]
    if n < len(names):
        sizes_of_scenes = [scene.with_appearance(run.appearance_fields).num_bytes for scene in measured]
        findings.insert(0, Finding("memory: scenes measured", _sampling_error(sizes_of_scenes, len(names))))
    return findings


def _sampling_error(sizes: Sequence[int], number: int) -> str:
    """Sampling error, in words, of the total size of `number` scenes that is estimated from the measured `sizes`."""
    few = len(sizes)
    error = statistics.stdev(sizes) / statistics.mean(sizes) * math.sqrt(1 / few - 1 / number)
    return f"{few} of {number:,}: the total is within {1.96 * error:.0%} (95%); the largest scene may be larger"


def _cuda() -> list[Finding]:
    """CUDA devices that PyTorch finds, and the packages that compile kernels."""
    if torch.version.cuda is None:
        return [
            Finding("CUDA", "this PyTorch build is for the CPU", "for an NVIDIA GPU: install a CUDA build of PyTorch")
        ]
    if not torch.cuda.is_available():
        return [Finding("CUDA", "no device", "for an NVIDIA GPU: install its driver; nvidia-smi shows it")]
    findings = [package(name, install_command("cuda")) for name in CUDA_PACKAGES]
    for i in range(torch.cuda.device_count()):
        free, total = (size / 2**30 for size in torch.cuda.mem_get_info(i))
        findings.append(
            Finding(
                f"cuda:{i}",
                f"{torch.cuda.get_device_name(i)}, {free:.0f} of {total:.0f} GiB free, "
                f"PyTorch for CUDA {torch.version.cuda}",
            )
        )
    return findings


def _nccl() -> list[Finding]:
    """Communication of several processes: NCCL, its settings, and peer access between GPUs."""
    if not torch.distributed.is_available():
        return [
            Finding("several GPUs", "this PyTorch build has no torch.distributed", "install PyTorch from pytorch.org")
        ]
    if not torch.distributed.is_nccl_available():
        return [Finding("NCCL", "not in this PyTorch build; several processes train on the CPU with Gloo")]
    version = torch.cuda.nccl.version()
    version = ".".join(map(str, version)) if isinstance(version, tuple) else str(version)
    settings = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("NCCL_")]
    findings = [Finding("NCCL", ", ".join([version, *settings]))]
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count > 1:
        pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
        apart = [f"cuda:{i} and cuda:{j}" for i, j in pairs if not torch.cuda.can_device_access_peer(i, j)]
        found = f"no peer access between {', '.join(apart[:8])}" if apart else "peer access between all"
        advice = "sums over these GPUs pass through host memory; nvidia-smi topo -m shows the links" if apart else ""
        findings.append(Finding(f"peer access of {count} GPUs", found, advice))
    return findings


def _egl() -> list[Finding]:
    """EGL devices, with the CUDA device of each."""
    try:
        devices = egl_devices()
    except DeviceError as error:
        return [Finding("EGL", "missing", str(error))]
    ordinals = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    matches = {match.index: i for i in ordinals if (match := cuda_match(i, devices))}
    return [Finding(f"EGL device {d.index}", _describe(d, matches.get(d.index))) for d in devices]


def _describe(device: EGLDevice, cuda_index: int | None) -> str:
    """Name of an EGL device and of its CUDA device."""
    return (device.name or "unnamed") + ("" if cuda_index is None else f", cuda:{cuda_index}")


def _opengl() -> Finding:
    """The OpenGL context that the renderer would use."""
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    try:
        context = open_context(device)
    except DeviceError as error:
        return Finding("OpenGL", "no context", str(error))
    with context:
        found = f"{context.renderer} on EGL device {context.device.index}"
    context.release()
    return Finding("OpenGL", found)
