"""Where what takes long to make is kept: compiled kernels, houses, navmeshes; each beside the sources that made it."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import stat
from pathlib import Path

import numba
import numpy as np

from batchnav.errors import ArgumentError

KEPT_VERSIONS = 4
"""What a module made is kept for this many versions of its sources; the least recently used go first."""


def cache_folder() -> Path:
    """Where compiled kernels, houses and baked navmeshes are kept: $BATCHNAV_CACHE, else the user's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "batchnav"
    return Path(os.environ.get("BATCHNAV_CACHE") or default)


def private_folder(folder: Path) -> Path:
    """The folder, made where there is none so that nobody else reads it. Machine code is loaded from there, and run.

    ArgumentError for one that others own or may write, or that cannot be made or written. Above it others may write
    where they may not rename what is not theirs, as in /tmp.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.stat()
    except OSError as error:
        raise ArgumentError(
            f"cache folder {folder}: cannot be made ({error.strerror or error}): set BATCHNAV_CACHE to one that can"
        ) from error
    if state.st_uid not in (os.geteuid(), 0):
        found, advice = f"one of user {state.st_uid}'s", "set BATCHNAV_CACHE to a folder of your own"
    elif state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        found, advice = f"one that others may write (mode {stat.S_IMODE(state.st_mode):o})", f"chmod -R go-w {folder}"
    elif not os.access(folder, os.W_OK | os.X_OK):
        raise ArgumentError(f"cache folder {folder}: cannot be written: set BATCHNAV_CACHE to one that can")
    else:
        return folder
    raise ArgumentError(f"cache folder {folder}: found {found}, expected one that only you may write: {advice}")


@functools.cache
def _sources(module: str) -> frozenset[Path]:
    """The package's source files that a module is made of: its own and those it imports, and so on."""
    package = Path(__file__).parents[2]
    stem = package.joinpath(*module.split(".")[1:])
    own = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
    found, todo = set(), [own]
    while todo:
        source = todo.pop()
        if source in found or not source.is_file():
            continue
        found.add(source)
        for name in _IMPORTED.findall(source.read_text(encoding="utf-8")):
            # `from batchnav.a.b import c`: c may be a module of its own
            first, _, rest = name.partition(" import ")
            base = package.joinpath(*first.split(".")[1:])
            parts = [base / part.strip("() \n").split(" as ")[0] for part in rest.split(",")]
            todo += [path.with_suffix(".py") for path in (base, *parts)] + [base / "__init__.py"]
    return frozenset(found)


_IMPORTED = re.compile(r"^(?:from|import) (batchnav[\w.]*(?: import (?:\([^)]*\)|[^\n]*))?)", re.MULTILINE)


@functools.cache
def versioned_cache_folder(kind: str, module: str) -> Path:
    """Folder in the cache for what a module makes with exactly its sources; those of older versions are pruned.

    ArgumentError where the cache is not this user's own (`private_folder`).
    """
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__}".encode())
    for source in sorted(_sources(module)):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    for folder in (cache_folder(), cache_folder() / kind):
        private_folder(folder)
    folder = private_folder(folder / f"{module}-{digest.hexdigest()[:16]}")
    os.utime(folder)
    by_use = sorted(folder.parent.glob(f"{module}-*"), key=_last_use, reverse=True)
    for old in by_use[KEPT_VERSIONS:]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def _last_use(folder: Path) -> float:
    """When a folder was last used; long ago, where another process has just pruned it."""
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:
        return 0.0
