"""Cache folder for compiled kernels, procedural houses and navmeshes, versioned by the sources that make them."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import re
import shutil
import stat
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np

from batchnav.errors import ArgumentError, shell_word

log = logging.getLogger(__name__)
LOCK = ".lock"
"""End of the names of lock files."""
KEPT_VERSIONS = 4
"""Number of source versions per module whose results are kept; the least recently used are deleted first."""


def cache_folder() -> Path:
    """Path of the cache folder: $BATCHNAV_CACHE, else `batchnav` in the user's cache folder.

    ArgumentError where neither names a folder and the user has no home folder.
    """
    if named := os.environ.get("BATCHNAV_CACHE"):
        return Path(named)
    if users := os.environ.get("XDG_CACHE_HOME"):
        return Path(users) / "batchnav"
    try:
        return Path.home() / ".cache" / "batchnav"
    except RuntimeError as error:  # as in containers with an arbitrary user id: no HOME, no entry in the passwd file
        raise ArgumentError(
            "cache folder: found no home folder of this user, expected HOME or BATCHNAV_CACHE; "
            "set BATCHNAV_CACHE to a folder of your own"
        ) from error


def shared_folder() -> Path | None:
    """Path of the shared cache, $BATCHNAV_SHARED_CACHE, which one user filled and others read; None without one.

    Naming it means trust in its owner, whose machine code is loaded. ArgumentError where it is no folder, or where
    others than its owner can write to it.
    """
    named = os.environ.get("BATCHNAV_SHARED_CACHE")
    if not named:
        return None
    folder = Path(named)
    if not folder.is_dir():
        raise ArgumentError(f"shared cache {folder}: found no folder, expected the one in BATCHNAV_SHARED_CACHE")
    if (mode := folder.stat().st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
        raise ArgumentError(
            f"shared cache {folder}: found a folder that others than its owner can write (mode "
            f"{stat.S_IMODE(mode):o}), expected none; its owner: chmod -R go-w {shell_word(folder)}"
        )
    return folder


def link_shared(path: Path) -> None:
    """Link what the shared cache has at `path`, a file or folder of the own cache; what is there stays as it is.

    A link is replaced, never written through: caches write a file under another name, then rename it.
    """
    shared = shared_folder()
    if shared is None:
        return
    there = shared / path.relative_to(cache_folder())
    for source in [there] if there.is_file() else there.rglob("*"):
        target = path / source.relative_to(there)
        if source.suffix == LOCK or not source.is_file() or os.path.lexists(target):
            continue
        with contextlib.suppress(OSError):  # a full disk, or another process that makes the same link
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            target.symlink_to(source.absolute())


def warn_not_kept(error: Exception) -> None:
    """Log that the cache cannot be written, once per process: results are computed again instead."""
    if not _warned:
        _warned.append(True)
        log.warning(
            "cache folder %s: cannot be written (%s); kernels and scenes are made again in each process until it has "
            "space, or BATCHNAV_CACHE names another folder", cache_folder(), getattr(error, "strerror", None) or error,
        )  # fmt: skip


_warned: list[bool] = []
"""Not empty after the first warning."""


def private_folder(folder: Path) -> Path:
    """The folder, created if needed, after a check that only this user can write to it: machine code is loaded from it.

    ArgumentError where another user owns it or can write to it, or where it cannot be created or written. Parent
    folders that others can write to must be sticky, as /tmp is.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.stat()
    except OSError as error:
        raise ArgumentError(
            f"cache folder {folder}: cannot be created ({error.strerror or error}); set BATCHNAV_CACHE to another"
        ) from error
    if state.st_uid not in (os.geteuid(), 0):
        found, advice = f"a folder of user {state.st_uid}", "set BATCHNAV_CACHE to a folder of your own"
    elif state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        found, advice = (
            f"a folder that others can write (mode {stat.S_IMODE(state.st_mode):o})",
            f"chmod -R go-w {shell_word(folder)}",
        )
    elif not os.access(folder, os.W_OK | os.X_OK):
        raise ArgumentError(f"cache folder {folder}: cannot be written; set BATCHNAV_CACHE to a writable folder")
    else:
        return folder
    raise ArgumentError(f"cache folder {folder}: found {found}, expected one that only you can write; {advice}")


@functools.cache
def _sources(module: str) -> frozenset[Path]:
    """Source files of the package that a module depends on: its own file and, recursively, the modules it imports."""
    package = Path(__file__).parents[1]
    stem = package.joinpath(*module.split(".")[1:])
    own = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
    found, todo = set(), [own]
    while todo:
        source = todo.pop()
        if source not in found and (read := _read(source)) is not None:
            found.add(source)
            todo += read.imports
    return frozenset(found)


class _Source(NamedTuple):
    """A source file of the package."""

    content: bytes
    imports: tuple[Path, ...]
    """Paths that the modules which it imports may have."""


@functools.cache
def _read(source: Path) -> _Source | None:
    """A source file, read once; None where there is none."""
    try:
        content = source.read_bytes()
    except OSError:
        return None
    package, imports = Path(__file__).parents[1], list[Path]()
    for name in _IMPORTED.findall(content.decode("utf-8")):
        # `from batchnav.a.b import c`: c may be a module
        first, _, rest = name.partition(" import ")
        base = package.joinpath(*first.split(".")[1:])
        parts = [base / part.strip("() \n").split(" as ")[0] for part in rest.split(",")]
        imports += [path.with_suffix(".py") for path in (base, *parts)] + [base / "__init__.py"]
    return _Source(content, tuple(imports))


_IMPORTED = re.compile(r"^(?:from|import) (batchnav[\w.]*(?: import (?:\([^)]*\)|[^\n]*))?)", re.MULTILINE)


@functools.cache
def versioned_cache_folder(kind: str, module: str) -> Path:
    """Cache folder for the results of a module, created if needed and named after a hash of all sources.

    It has links to the results in the shared cache, where there is one.

    Deletes all but the KEPT_VERSIONS most recently used versions. `kind`: subfolder, for example "kernels".

    ArgumentError where the cache folder is not private (`private_folder`).
    """
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__}".encode())
    for source in sorted(_sources(module)):
        read = _read(source)
        assert read is not None, "a source that _sources found"
        digest.update(source.name.encode() + b"\0" + read.content)
    for folder in (cache_folder(), cache_folder() / kind):
        private_folder(folder)
    folder = private_folder(folder / f"{module}-{digest.hexdigest()[:16]}")
    link_shared(folder)
    os.utime(folder)
    by_use = sorted(folder.parent.glob(f"{module}-*"), key=_last_use, reverse=True)
    for old in by_use[KEPT_VERSIONS:]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def keep_newest(folder: Path, most_bytes: int, kept: Collection[Path] = ()) -> None:
    """Delete the least recently used files below a folder until the others have at most `most_bytes`; not those `kept`.

    A file's last use is its modification time: `os.utime` at each use keeps it.
    """
    found = []
    for file in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # another process deletes too
            state = file.stat()
            if stat.S_ISREG(state.st_mode) and file.suffix != LOCK:
                found.append((state.st_mtime, state.st_size, file))
    total = sum(size for _, size, _ in found)
    for _, size, file in sorted(found):
        if total <= most_bytes:
            return
        if file not in kept:
            file.unlink(missing_ok=True)
            total -= size


def _last_use(folder: Path) -> float:
    """Time of a folder's last use; 0 where another process has just deleted it."""
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:
        return 0.0
