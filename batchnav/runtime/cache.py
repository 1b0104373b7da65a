"""Where what takes long to make is kept: compiled kernels, houses, navmeshes; each beside the sources that made it."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
from pathlib import Path

import numba
import numpy as np

KEPT_VERSIONS = 4
"""What a module made is kept for this many versions of its sources; the least recently used go first."""


def cache_folder() -> Path:
    """Where compiled kernels, houses and baked navmeshes are kept: $BATCHNAV_CACHE, else the user's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "batchnav"
    return Path(os.environ.get("BATCHNAV_CACHE") or default)


@functools.cache
def _sources(module: str) -> frozenset[Path]:
    """The package's source files that a module is made of: its own and those it imports, and so on."""
    package = Path(__file__).parents[1]
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
def made_by(kind: str, module: str) -> Path:
    """Folder in the cache for what a module makes with exactly its sources; those of older versions are pruned."""
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__}".encode())
    for source in sorted(_sources(module)):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    folder = cache_folder() / kind / f"{module}-{digest.hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    by_use = sorted(folder.parent.glob(f"{module}-*"), key=lambda f: f.stat().st_mtime, reverse=True)
    for old in by_use[KEPT_VERSIONS:]:
        shutil.rmtree(old, ignore_errors=True)
    return folder
