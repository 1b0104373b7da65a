"""Files that SDF names: models on a path of folders, and the files of a model."""

from __future__ import annotations

import os
import urllib.parse
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

from batchnav.data.files import read_text
from batchnav.errors import MeshError

VARIABLES = ("GAZEBO_MODEL_PATH", "GZ_SIM_RESOURCE_PATH", "IGN_GAZEBO_RESOURCE_PATH")
"""Environment variables with folders of models, as Gazebo reads them."""
_SCHEMES = ("model", "package")


class ModelPath:
    """Folders in which models are searched, in order.

    The given folders come first, then those of `VARIABLES`, the world's folder, and the folder `models` next to it.

    Args:
        folders: folders that contain a folder for each model.
        world: the world's file.
    """

    def __init__(self, folders: Sequence[Path], world: Path):
        for folder in folders:
            if not folder.is_dir():
                raise MeshError(f"--models: found no folder {folder}, expected one with a folder for each model")
        named = [Path(word) for name in VARIABLES for word in os.environ.get(name, "").split(os.pathsep) if word]
        home = world.absolute().parent
        self.folders = [*folders, *named, home, home.parent / "models", home / "models"]

    def find(self, uri: str, folder: Path) -> Path | None:
        """The existing file or folder that a URI names; None where there is none.

        Args:
            uri: model://NAME/FILE, package://NAME/FILE, file://FILE, or a path from `folder`, within the searched
                folders and the one above `folder`.
            folder: folder of the SDF file that has the URI.
        """
        uri = urllib.parse.unquote(uri.strip())
        scheme, mark, rest = uri.partition("://")
        if mark and scheme in _SCHEMES:
            roots = self.folders
        elif mark and scheme != "file":
            return None
        else:
            rest, roots = (rest if mark else uri), [folder, *self.folders]
        allowed = [os.path.abspath(root) for root in (*self.folders, folder.parent)]
        for root in roots:
            path = os.path.abspath(os.path.join(root, rest))
            if any(path == base or path.startswith(base + os.sep) for base in allowed) and os.path.exists(path):
                return Path(path)
        return None


def model_file(folder: Path) -> Path | None:
    """The SDF file of a model's folder: that of the latest version in model.config, else model.sdf; None for none."""
    config, plain = folder / "model.config", folder / "model.sdf"
    if config.is_file():
        try:
            rows = ET.fromstring(read_text(config, MeshError)).findall("sdf")
        except ET.ParseError:
            rows = []
        files = {_version(row): folder / (row.text or "").strip() for row in rows if ".." not in (row.text or "")}
        present = [version for version, file in files.items() if file.is_file()]
        if present:
            return files[max(present)]
    return plain if plain.is_file() else None


def _version(row: ET.Element) -> tuple[int, ...]:
    return tuple(int(word) for word in row.get("version", "0").split(".") if word.isdigit())
