"""Files bundled with the project, by name: configurations, fixed episodes and trained networks.

An installed package contains them; in a checkout they are at the top level, from where `pyproject.toml` includes them.
"""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path

from batchnav import renamed
from batchnav.errors import BatchnavError, CheckpointError, ConfigError, EpisodeError
from batchnav.runtime.files.atomic import as_path

PACKAGE = Path(__file__).resolve().parents[2]
"""Folder of the package `batchnav`."""


def _folder(name: str) -> Path:
    """Path of a folder of bundled files: inside an installed package, or at the top of a checkout."""
    inside = PACKAGE / name
    return inside if inside.is_dir() else PACKAGE.parent / name


ASSETS, CONFIGS = _folder("assets"), _folder("configs")
STUDIES = PACKAGE.parent / "eval" / "studies" / "configs"
"""Configurations of experiments; a checkout has them, an installed package does not."""
EPISODES, POLICIES, ANTICIPATION = ASSETS / "episodes", ASSETS / "policies", ASSETS / "anticipation"
WEIGHTS = "policy.safetensors"
"""File name of a policy's weights, in a run folder or in a bundled policy's folder."""


def find_config(name: str | Path) -> Path:
    """Path of a configuration.

    Args:
        name: a file, the name of a bundled configuration ("pointnav_depth_cpu" is `configs/pointnav_depth_cpu.yaml`),
            or, in a checkout, the name of a study in `eval/studies/configs`. Names of the previous version, and their
            paths, are accepted with a FutureWarning.

    Raises:
        ConfigError: lists the bundled names.
    """
    if not str(name):
        raise ConfigError("configuration: found an empty name, expected a YAML file or a bundled name")
    path = as_path(name)
    if path.is_file():
        return path
    is_bundled_path = path.parent.name == CONFIGS.name and path.suffix == ".yaml"
    known = renamed.current("configuration", path.stem if is_bundled_path else str(name), renamed.CONFIGS)
    study = STUDIES / f"{known}.yaml"
    return study if study.is_file() else _find(known, CONFIGS, "*.yaml", "configuration", ConfigError)


def find_episodes(name: str | Path) -> Path:
    """An episode file by path or name; "val" is `assets/episodes/val.json.gz`. EpisodeError if not found."""
    return _find(name, EPISODES, "*.json.gz", "episode file", EpisodeError)


def find_split(split: str, episode_file: str) -> Path:
    """The fixed episode file of a split, by a task's pattern (`Task.episode_file`). EpisodeError if not found."""
    path = EPISODES / episode_file.format(split=split)
    if not path.is_file():
        before, _, after = episode_file.partition("{split}")
        files = sorted(file.name for file in EPISODES.glob(f"{before}*{after}"))
        known = ", ".join(name.removeprefix(before).removesuffix(after) for name in files)
        raise EpisodeError(f"split: found {split}, expected one of {known}: there is no {path.name}")
    return path


def find_policy(name: str | Path) -> Path:
    """A policy's weights by file, run folder or name, for example "pointnav_h200". CheckpointError if not found."""
    folder = as_path(name)
    if folder.is_dir():
        name = folder / WEIGHTS
    return _find(name, POLICIES, f"*/{WEIGHTS}", "policy", CheckpointError)


def find_anticipation(name: str | Path) -> Path:
    """Weights of an occupancy predictor by file or name, for example "occupancy". ConfigError if not found."""
    return _find(as_path(name), ANTICIPATION, "*.safetensors", "weights file", ConfigError)


def check_bundled(path: Path, error: type[BatchnavError]) -> None:
    """Raise `error` where a bundled file's SHA-256 differs from that in assets/MANIFEST.toml.

    Files that the manifest does not list pass.
    """
    path, manifest = path.resolve(), ASSETS / "MANIFEST.toml"
    if not path.is_relative_to(ASSETS) or not manifest.is_file():
        return
    listed = tomllib.loads(manifest.read_text(encoding="utf-8")).get(path.relative_to(ASSETS).as_posix())
    if listed is None:
        return
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != listed["sha256"]:
        raise error(f"{path}: found SHA-256 {found}, expected {listed['sha256']}, as in {manifest}; download it again")


def _find(name: str | Path, folder: Path, pattern: str, what: str, error: type[BatchnavError]) -> Path:
    """An existing path, else the file in `folder` that matches `pattern` with the name in place of the star."""
    if Path(name).is_file():
        return Path(name)
    before, _, after = pattern.partition("*")
    known = {file.relative_to(folder).as_posix()[len(before) : -len(after)]: file for file in folder.glob(pattern)}
    if str(name) not in known:
        raise error(f"{name}: no such file or {what}, expected a file or one of {', '.join(sorted(known))}")
    return known[str(name)]
