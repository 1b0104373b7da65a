"""The mesh files in a folder, one for each scene."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from batchnav.data.scenes.annotations import is_semantic
from batchnav.errors import few
from batchnav.scene.formats import unsupported_format
from batchnav.scene.mesh import SUFFIXES
from batchnav.scene.ros_map import SUFFIX as MAP_SUFFIX
from batchnav.scene.ros_map import is_ros_map

_log = logging.getLogger(__name__)


def mesh_files_in(folder: Path) -> list[Path]:
    """The mesh files in a folder, one for each scene, by name (see `one_per_scene`).

    Logs a warning about files of formats that are not read, and about several mesh files of one scene.
    """
    present = [file for file in sorted(folder.iterdir()) if not is_hidden(file)]
    unread = [file.name for file in present if unsupported_format(file.suffix) and file.is_file()]
    if unread:
        kind = unsupported_format(Path(unread[0]).suffix)
        _log.warning("%s: left out %s: %s", folder, few(unread), kind)
    files = [file for file in present if file.suffix.lower() in SUFFIXES]
    files = [file for file in files if file.suffix.lower() != MAP_SUFFIX or is_ros_map(file)]
    kept = one_per_scene(files)
    copies = [f.name for f in files if f not in kept and not is_semantic(f) and not _with_basis(f).is_file()]
    if copies:
        _log.warning("%s: left out %s: a mesh file of the same name counts as the scene", folder, few(copies))
    return kept


def one_per_scene(files: Iterable[Path]) -> list[Path]:
    """The mesh files without those that belong to the scene of another one.

    Of files with one name (X.basis.glb, X.glb, X.obj) the first in the order of `SUFFIXES` counts, a `.basis.glb`
    before all. X.semantic.glb and X_semantic.ply are left out where there is a file X of another kind.
    """
    files = list(files)
    best: dict[Path, Path] = {}
    for file in sorted(files, key=_rank):
        best.setdefault(_scene(file), file)
    return [file for file in files if best[_scene(file)] == file]


def is_hidden(file: Path) -> bool:
    """True for names that begin with a dot, such as `._scan.glb`, which macOS writes to other file systems."""
    return file.name.startswith(".")


def _scene(file: Path) -> Path:
    """Path of the scene that a mesh file belongs to, without suffixes."""
    stem = file.stem.removesuffix(".semantic" if file.suffix == ".glb" else "_semantic").removesuffix(".basis")
    return file.with_name(stem)


def _with_basis(file: Path) -> Path:
    """The compressed file of the same scene, as in HM3D."""
    return file.with_name(f"{file.stem}.basis.glb")


def _rank(file: Path) -> tuple[bool, bool, int]:
    """Order of preference among files of one scene."""
    return is_semantic(file), not file.name.endswith(".basis.glb"), SUFFIXES.index(file.suffix.lower())
