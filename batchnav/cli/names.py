"""Names in a command's arguments, checked before PyTorch and numba are imported, which takes seconds.

Names that pass are checked again where they are read.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from batchnav.agents import find_weights
from batchnav.data.files import SCENES_DIR
from batchnav.errors import ArgumentError, BatchnavError, MeshError, shortened
from batchnav.runtime.bundled import find_episodes
from batchnav.runtime.files import as_path


def check_agents(words: Iterable[str]) -> None:
    """CheckpointError for a word that is neither a policy nor a reference agent."""
    for word in words:
        find_weights(word)


def check_episodes(name: str | Path | None) -> None:
    """EpisodeError for an episode file that is neither a file nor bundled; None passes."""
    if name is not None:
        find_episodes(name)


def check_file(path: Path, error: type[BatchnavError], expected: str = "the path of a file or folder") -> None:
    """Raise `error` where nothing has the path; for a scene id it names what is `expected` instead."""
    try:
        as_path(path).stat()
    except OSError as problem:
        word, colon, _ = str(path).partition(":")
        if colon and len(word) > 1 and word.isidentifier():  # one letter is a drive of Windows
            raise error(f"{path}: found a scene id, expected {expected}") from problem
        raise error(f"{path}: cannot be read ({problem.strerror})") from problem


def check_given(what: str, values: Collection[Any], expected: str) -> None:
    """ArgumentError for a list of arguments without any."""
    if not values:
        raise ArgumentError(f"{what}: found none, expected {expected}")


def check_scenes(names: Iterable[str], scenes_dir: Path = SCENES_DIR) -> None:
    """MeshError for a name that can only be a path, and has no file or folder, here or in `scenes_dir`.

    Names with a colon are ids of scenes, and those of Habitat's folder or of Windows have other spellings: they pass.
    """
    for name in names:
        is_path = not ({":", "\\"} & set(name) or SCENES_DIR.name in name)
        if is_path and not any(os.path.exists(place) for place in (as_path(name), scenes_dir / name)):
            raise MeshError(
                f"scene {shortened(name)}: found no such file here or in {scenes_dir}, expected a file, a folder, or "
                f"a procedural scene such as house:7"
            )
