"""Versions of this package and of those that it needs, missing extras, and the cache folder.

This module imports no kernels, so that it also works where the cache folder cannot be used.
"""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
from typing import NamedTuple

from batchnav.errors import ArgumentError
from batchnav.runtime.cache import cache_folder, private_folder, shared_folder
from batchnav.runtime.imports import install_command

PACKAGES = ("torch", "numba", "numpy", "moderngl", "glcontext")
"""Packages that every machine needs."""
EXTRAS = {
    "draco": (("DracoPy",), "compressed meshes of glTF files"),
    "basisu": (("opengl_basisu",), "KTX 2 textures of glTF files"),
    "collada": (("pycollada",), "COLLADA meshes (.dae)"),
    "export": (("onnx", "onnxscript", "onnxruntime"), "batchnav export"),
    "viewer": (("viser",), "batchnav view"),
    "adapters": (("stable-baselines3", "skrl", "rsl-rl-lib", "torchrl", "pettingzoo"), "other RL libraries"),
    "ros2": (("onnxruntime", "rosbags"), "the ROS 2 node and recorded drives"),
    "vision": (("timm",), "pretrained encoders"),
    "video": (("av",), "MP4 videos"),
}
"""Optional packages by extra, and their purpose. Those of "cuda" depend on the machine; "policies" is for wheels."""
LEAST_SPACE = 1 << 30
"""Free bytes of the cache folder's disk below which it is reported."""


class Finding(NamedTuple):
    """A line of the report."""

    what: str
    """Name of the examined part: a package, a device or a quantity."""
    found: str
    """Version, name or state that was found."""
    advice: str = ""
    """Remedy for a missing part; empty where nothing is missing."""


def installation(version: str) -> list[Finding]:
    """Versions, extras and the cache folder. `version`: that of this package, which need not be installed."""
    versions = [Finding("batchnav", version), Finding("Python", platform.python_version())]
    return [*versions, *map(package, PACKAGES), *map(_extra, EXTRAS), _cache()]


def package(name: str, advice: str = "") -> Finding:
    """The installed version of a package."""
    if version := _version(name):
        return Finding(name, version)
    return Finding(name, "missing", advice or f"pip install {name}")


def _version(name: str) -> str | None:
    """Version of a package; None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _extra(name: str) -> Finding:
    """Versions of the packages of an extra."""
    packages, purpose = EXTRAS[name]
    versions = {each: _version(each) for each in packages}
    found = ", ".join(f"{each} {version or 'missing'}" for each, version in versions.items())
    advice = "" if all(versions.values()) else f"for {purpose}: {install_command(name)}"
    return Finding(f"extra {name}", found, advice)


def _cache() -> Finding:
    """The cache folder, its free space, and whether it can be used."""
    what = "cache folder"
    try:
        folder, shared = private_folder(cache_folder()), shared_folder()
        free = shutil.disk_usage(folder).free
    except ArgumentError as error:
        return Finding(what, "cannot be used", str(error))
    except OSError as error:
        return Finding(what, f"{cache_folder()}, cannot be read ({error.strerror or error})", "set BATCHNAV_CACHE")
    advice = "" if free >= LEAST_SPACE else "free some space, or set BATCHNAV_CACHE to a folder on another disk"
    and_shared = f", shared: {shared}" if shared else ""
    return Finding(what, f"{folder}, {free / 1e9:.1f} GB free{and_shared}", advice)
