"""What comes with the project, by name: configurations, fixed episodes and trained networks.

An installed package has them inside, a checkout at its top level, where `pyproject.toml` takes them from.
"""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path

from batchnav.errors import BatchnavError, CheckpointError, ConfigError, EpisodeError
from batchnav.runtime.files.atomic import as_path

PACKAGE = Path(__file__).resolve().parents[2]


def _folder(name: str) -> Path:
    inside = PACKAGE / name
    return inside if inside.is_dir() else PACKAGE.parent / name


ASSETS, CONFIGS = _folder("assets"), _folder("configs")
EPISODES, POLICIES, ANTICIPATION = ASSETS / "episodes", ASSETS / "policies", ASSETS / "anticipation"
WEIGHTS = "policy.safetensors"
"""The file of a policy in its folder: a run's, or one that comes with the project."""


def find_config(name: str | Path) -> Path:
    """A configuration file by its path, or by name: "pointnav_cpu" is `configs/pointnav_cpu.yaml`. ConfigError."""
    return _find(name, CONFIGS, "*.yaml", "configuration", ConfigError)


def find_episodes(name: str | Path) -> Path:
    """An episode file by its path, or by name: "val" is `assets/episodes/val.json.gz`. EpisodeError."""
    return _find(name, EPISODES, "*.json.gz", "episode file", EpisodeError)


def find_split(split: str, episode_file: str) -> Path:
    """The fixed episodes of a split, by the name that a task has for such files (`Task.episode_file`). EpisodeError."""
    path = EPISODES / episode_file.format(split=split)
    if not path.is_file():
        before, _, after = episode_file.partition("{split}")
        files = sorted(file.name for file in EPISODES.glob(f"{before}*{after}"))
        known = ", ".join(name.removeprefix(before).removesuffix(after) for name in files)
        raise EpisodeError(f"split: found {split}, expected one of {known}: there is no {path.name}")
    return path


def find_policy(name: str | Path) -> Path:
    """A policy's weights: a file, a run's folder, or a name as "pointnav_h200". CheckpointError."""
    folder = as_path(name)
    if folder.is_dir():
        name = folder / WEIGHTS
    return _find(name, POLICIES, f"*/{WEIGHTS}", "policy", CheckpointError)


def find_anticipation(name: str | Path) -> Path:
    """Weights that guess what is unseen: a file, or a name as "occupancy". ConfigError."""
    return _find(as_path(name), ANTICIPATION, "*.safetensors", "weights file", ConfigError)


def check_bundled(path: Path, error: type[BatchnavError]) -> None:
    """Raise `error` where a file that comes with the project is not the one whose SHA-256 assets/MANIFEST.toml states.

    Other files, also those in `assets` that it does not list, pass.
    """
    path, manifest = path.resolve(), ASSETS / "MANIFEST.toml"
    if not path.is_relative_to(ASSETS) or not manifest.is_file():
        return
    listed = tomllib.loads(manifest.read_text(encoding="utf-8")).get(path.relative_to(ASSETS).as_posix())
    if listed is None:
        return
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != listed["sha256"]:
        raise error(f"{path}: found a file of SHA-256 {found}, expected {listed['sha256']}, which {manifest} states")


def _find(name: str | Path, folder: Path, pattern: str, what: str, error: type[BatchnavError]) -> Path:
    """A path that is there, else what `pattern` finds in `folder`, by the part of it that the star stands for."""
    if Path(name).is_file():
        return Path(name)
    before, _, after = pattern.partition("*")
    known = {file.relative_to(folder).as_posix()[len(before) : -len(after)]: file for file in folder.glob(pattern)}
    if str(name) not in known:
        raise error(
            f"{name}: no such file, nor a {what} of that name, expected a file or one of {', '.join(sorted(known))}"
        )
    return known[str(name)]
