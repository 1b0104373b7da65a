"""Scenes from their source files, which take seconds to read, and from the cache, which keeps those of large files.

A cached scene is a compact prepared file (`prepared.py`). It is named after a hash of its source (`fingerprint`: paths,
sizes and modification times of its files), the bake settings and the settings of its appearance. Warnings of the first
load are repeated at each load. The cache keeps `most_bytes` bytes and deletes the least recently used scenes first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from batchnav.data.scenes.islands import select_islands
from batchnav.data.scenes.prepared import SUFFIX, fingerprint, load_prepared, made_from, save_prepared
from batchnav.data.scenes.source import SceneSource
from batchnav.errors import MeshError
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.cache import cache_folder, keep_newest, versioned_cache_folder, warn_not_kept
from batchnav.scene.images import AppearanceConfig
from batchnav.scene.mesh import appearance_config
from batchnav.scene.scene import Scene, for_body, is_baked_for

KIND = "scenes"
"""Name of the folder within the cache folder."""
SMALLEST = 1_000_000
"""Bytes of a scene's files from which it is cached: smaller ones are read in a moment."""
MOST_BYTES, MOST_OF_DISK = 100_000_000_000, 0.2
"""Largest size of the cached scenes: bytes, and share of the disk."""
_SETTLED = 2_000_000_000
"""Nanoseconds since the last change of a file before its modification time is trusted: clocks of file systems are
coarse, so two contents within a moment may have one time."""


def load_source(
    source: SceneSource, settings: NavMeshSettings | None = None, appearance: AppearanceConfig | bool = True
) -> Scene:
    """A scene from its prepared file where that is up to date, otherwise from the cache or its source files.

    The navmesh of a prepared scene is baked again for another body (`for_body`). Raises MeshError, and NavMeshError
    where the source has a navmesh file for another body (`SceneSource.load_navmesh`).
    """
    found = made_from(source.prepared)
    if found is not None and found in (fingerprint(source), fingerprint(dataclasses.replace(source, islands="all"))):
        scene = load_prepared(source.prepared, appearance)._replace(name=source.name)
        if found != fingerprint(source):
            scene = select_islands(scene, source.islands)
        if settings is None or scene.navmesh_origin != "file" or is_baked_for(scene.navmesh, settings):
            return scene if settings is None else for_body(scene, settings)
    if not _is_kept(source):
        return source.load(settings, appearance)
    return _through_cache(source, settings, appearance)


def most_bytes() -> int:
    """Largest size of the cached scenes, bytes."""
    folder = cache_folder()
    while not folder.exists():
        folder = folder.parent
    return min(MOST_BYTES, int(MOST_OF_DISK * shutil.disk_usage(folder).total))


def cached_files() -> list[Path]:
    """The files of the cached scenes."""
    return [file for file in (cache_folder() / KIND).rglob(f"*{SUFFIX}") if file.is_file()]


def _is_kept(source: SceneSource) -> bool:
    """True where a scene's files are large, present, and old enough to be known by size and time."""
    try:
        states = [file.stat() for file in source.files]
    except OSError:  # `load` names the missing file
        return False
    settled = time.time_ns() - max(state.st_mtime_ns for state in states) > _SETTLED
    return settled and source.surface is None and sum(state.st_size for state in states) >= SMALLEST


def _through_cache(source: SceneSource, settings: NavMeshSettings | None, appearance: AppearanceConfig | bool) -> Scene:
    """The scene from the cache, or from its files, which are then cached."""
    config = appearance_config(appearance)
    wanted = [config] if config is not None else [AppearanceConfig(), None]  # surfaces are left in the file
    files = [_file(source, settings, each) for each in wanted]
    for file in filter(Path.is_file, files):
        with contextlib.suppress(MeshError):  # a damaged file is made again
            scene = load_prepared(file, appearance)._replace(name=source.name)
            with contextlib.suppress(OSError):  # the cache of another user
                os.utime(file)
            return scene
    notes: list[tuple[str, str]] = []
    with _noted(notes.append):
        scene = source.load(settings, appearance)
    try:
        save_prepared(scene, files[-1], durable=False, compact=True, notes=notes)  # a lost file is made again
        keep_newest(cache_folder() / KIND, most_bytes(), [files[-1]])
    except MeshError as error:
        warn_not_kept(error)
    return scene


def _file(source: SceneSource, settings: NavMeshSettings | None, config: AppearanceConfig | None) -> Path:
    """Path in the cache of a scene that is loaded with these settings."""
    paths = [os.path.abspath(file) for file in source.files]
    digest = hashlib.sha256(f"{fingerprint(source)} {source.name} {settings} {config} {paths}".encode())
    return versioned_cache_folder(KIND, __name__) / f"{digest.hexdigest()[:32]}{SUFFIX}"


@contextlib.contextmanager
def _noted(note: Callable[[tuple[str, str]], None]) -> Iterator[None]:
    """Context in which warnings are issued and noted, each with the name of its logger, or "" for those of Python."""
    logger, handler = logging.getLogger("batchnav"), _Notes(note)
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        logger.removeHandler(handler)
        for found in caught:
            if found.category is UserWarning:
                note(("", str(found.message)))
            warnings.warn_explicit(found.message, found.category, found.filename, found.lineno)


class _Notes(logging.Handler):
    """Notes records. Where a program has no handlers, they are printed as without this one."""

    def __init__(self, note: Callable[[tuple[str, str]], None]):
        super().__init__(logging.WARNING)
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        """Note a record."""
        self._note((record.name, record.getMessage()))
        others = [*logging.getLogger("batchnav").handlers, *logging.getLogger().handlers]
        if logging.lastResort is not None and not [each for each in others if not isinstance(each, _Notes)]:
            logging.lastResort.handle(record)
