"""Files that a mesh file names: textures, buffers and material libraries.

A name is relative to the mesh file's folder. It may lead upwards (`../textures/red.png`) within the mesh file's data
root, which is the first of

- the folder with `snapshots` and `blobs`, of a content-addressed cache (Hugging Face Hub);
- the folder `scene_datasets`;
- the folder above the mesh file's folder.

A name without `..` may be a symbolic link to any file: whoever placed the link chose the file. A name with `..` must
lead to a file in the root, links included, so that a file from a stranger cannot name files elsewhere.
"""

from __future__ import annotations

import os
from pathlib import Path

from batchnav.errors import BatchnavError
from batchnav.runtime.files.reading import read_regular

_SNAPSHOTS, _BLOBS, _DATASETS = "snapshots", "blobs", "scene_datasets"


def data_root(path: Path) -> Path:
    """The folder that names in a mesh file may not leave."""
    folder = Path(os.path.abspath(path)).parent
    for parent in folder.parents:
        if (parent / _BLOBS).is_dir() and (parent / _SNAPSHOTS) in (folder, *folder.parents):
            return parent
    within = next((parent for parent in (folder, *folder.parents) if parent.name == _DATASETS), None)
    return within or folder.parent


def read_named_file(path: Path, name: str, error: type[BatchnavError]) -> bytes:
    """Content of the file that a mesh file names. Raises `error` for a file outside the data root."""
    if "\0" in name:
        raise error("is not a file name (it contains a null character)")
    try:
        folder = Path(os.path.abspath(path)).parent
        if "\\" in name and not os.path.exists(folder / name):
            name = name.replace("\\", "/")
        file, root = Path(os.path.normpath(folder / name)), data_root(path)
        climbs = ".." in Path(name).parts
        outside = os.path.isabs(name) or not file.is_relative_to(root if climbs else folder)
        if not outside and climbs:
            outside = not file.resolve().is_relative_to(root.resolve())
    except (ValueError, OSError, RuntimeError) as problem:
        raise error(f"is not a file name ({problem})") from problem
    if outside:
        raise error(
            f"lies outside the mesh file's data root, found {name[:60]!r}, expected a relative path to a file in {root}"
        )
    return read_regular(file, error)
