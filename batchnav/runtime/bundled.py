"""Files bundled with the project, by name: configurations, fixed episodes and trained networks.

An installed package contains them; in a checkout they are at the top level, from where `pyproject.toml` includes them.
Policies above 1 MB and the detector are not in the wheel of batchnav but in that of the distribution batchnav-policies,
which `assets/pyproject.toml` builds.
"""

from __future__ import annotations

import hashlib
import importlib.util
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from batchnav.errors import BatchnavError, CheckpointError, ConfigError, EpisodeError
from batchnav.runtime.files import as_path

PACKAGE = Path(__file__).resolve().parents[1]
"""Folder of the package `batchnav`."""


def _folder(name: str) -> Path:
    """Path of a folder of bundled files: inside an installed package, or at the top of a checkout."""
    inside = PACKAGE / name
    return inside if inside.is_dir() else PACKAGE.parent / name


ASSETS, CONFIGS = _folder("assets"), _folder("configs")
STUDIES = PACKAGE.parent / "eval" / "studies" / "configs"
"""Configurations of experiments; a checkout has them, an installed package does not."""
EPISODES, POLICIES, ANTICIPATION = ASSETS / "episodes", ASSETS / "policies", ASSETS / "anticipation"
ENCODERS = ASSETS / "encoders"
COMPANION = "batchnav_policies"
"""Name of the package of batchnav-policies: a folder per policy, as in `POLICIES`, and the folder encoders."""
MANIFEST = "MANIFEST.toml"
"""File in `ASSETS` that lists size, SHA-256, source and licence of all bundled files."""
WEIGHTS = "policy.safetensors"
"""File name of a policy's weights, in a run folder or in a bundled policy's folder."""


def find_config(name: str | Path) -> Path:
    """Path of a configuration.

    Args:
        name: a file, the name of a bundled configuration ("pointnav_depth_cpu" is `configs/pointnav_depth_cpu.yaml`),
            or, in a checkout, the name of a study in `eval/studies/configs`.

    Raises:
        ConfigError: lists the bundled names.
    """
    if not str(name):
        raise ConfigError("configuration: found an empty name, expected a YAML file or a bundled name")
    path = as_path(name)
    if path.is_file():
        return path
    study = STUDIES / f"{name}.yaml"
    return study if study.is_file() else _find(name, [CONFIGS], "*.yaml", "configuration", ConfigError)


def find_episodes(name: str | Path) -> Path:
    """An episode file by path or name; "val" is `assets/episodes/val.json.gz`. EpisodeError if not found."""
    return _find(name, [EPISODES], "*.json.gz", "episode file", EpisodeError)


def find_split(split: str, episode_file: str, all_files: Iterable[str] = ()) -> Path:
    """The fixed episode file of a split. EpisodeError if not found, which lists the splits of the task.

    Args:
        split: name of the split.
        episode_file: pattern of the task's files (`Task.episode_file`).
        all_files: patterns of all tasks, so that files of others are not listed.
    """
    path = EPISODES / episode_file.format(split=split)
    if not path.is_file():
        before, _, after = episode_file.partition("{split}")
        longer = {each.partition("{split}")[0] for each in all_files}
        of_others = tuple(prefix for prefix in longer if len(prefix) > len(before))
        files = sorted(f.name for f in EPISODES.glob(f"{before}*{after}") if not f.name.startswith(of_others))
        known = ", ".join(name.removeprefix(before).removesuffix(after) for name in files)
        raise EpisodeError(f"split: found {split}, expected one of {known}: there is no {path.name}")
    return path


def find_policy(name: str | Path) -> Path:
    """A policy's weights by file, run folder or name, for example "pointnav_h200". CheckpointError if not found."""
    folder = as_path(name)
    if folder.is_dir():
        name = folder / WEIGHTS
    _check_companion(name, f"policies/{name}/{WEIGHTS}", policy_folders(), CheckpointError)
    return _find(name, policy_folders(), f"*/{WEIGHTS}", "policy", CheckpointError)


def policy_folders() -> tuple[Path, ...]:
    """Folders of bundled policies: that of batchnav and, where it is installed, that of batchnav-policies."""
    spec = importlib.util.find_spec(COMPANION)
    companion = () if spec is None else tuple(map(Path, spec.submodule_search_locations or ()))
    return (POLICIES, *companion)


def _check_companion(name: str | Path, listed: str, folders: Iterable[Path], error: type[BatchnavError]) -> None:
    """Raise `error` where `name` is no file but one that the manifest lists and that is in none of these folders."""
    if as_path(name).is_file() or listed not in _manifest():
        return
    if not any((folder / listed.partition("/")[2]).is_file() for folder in folders):
        raise error(
            f"{name}: this file is in the distribution batchnav-policies, which is not installed; "
            "install its wheel (`pip install 'batchnav[policies]'` from an index that has both)"
        )


def find_anticipation(name: str | Path) -> Path:
    """Weights of an occupancy predictor by file or name, for example "occupancy". ConfigError if not found."""
    return _find(as_path(name), [ANTICIPATION], "*.safetensors", "weights file", ConfigError)


def find_encoder(name: str | Path) -> Path:
    """Weights of a colour encoder or a detector by file or name. ConfigError if not found."""
    folders = [ENCODERS, *(folder / "encoders" for folder in policy_folders()[1:])]
    _check_companion(name, f"encoders/{name}.safetensors", folders, ConfigError)
    return _find(as_path(name), folders, "*.safetensors", "weights file", ConfigError)


def check_bundled(path: Path, error: type[BatchnavError]) -> None:
    """Raise `error` where a bundled file's SHA-256 differs from that in assets/MANIFEST.toml.

    Files that the manifest does not list pass.
    """
    listed = _manifest().get(bundled_name(path) or "")
    if listed is None:
        return
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != listed["sha256"]:
        raise error(
            f"{path}: found SHA-256 {found}, expected {listed['sha256']}, as in {ASSETS / MANIFEST}; download it again"
        )


def bundled_name(path: Path) -> str | None:
    """Name in the manifest of a file in a folder of bundled files, such as "episodes/val.json.gz"; else None."""
    path = path.resolve()
    companion = policy_folders()[1:]
    of_encoders = [(folder / "encoders", "encoders/") for folder in companion]
    for folder, inside in ((ASSETS, ""), *of_encoders, *((folder, "policies/") for folder in companion)):
        if path.is_relative_to(folder.resolve()):
            return inside + path.relative_to(folder.resolve()).as_posix()
    return None


def _manifest() -> dict[str, dict[str, str]]:
    """The manifest's entries by file, relative to the folder of assets."""
    manifest = ASSETS / MANIFEST
    return tomllib.loads(manifest.read_text(encoding="utf-8")) if manifest.is_file() else {}


def _find(name: str | Path, folders: Sequence[Path], pattern: str, what: str, error: type[BatchnavError]) -> Path:
    """An existing path, else the file in `folders` that matches `pattern` with the name in place of the star."""
    if Path(name).is_file():
        return Path(name)
    before, _, after = pattern.partition("*")
    known = {
        file.relative_to(folder).as_posix()[len(before) : -len(after)]: file
        for folder in reversed(folders)
        for file in folder.glob(pattern)
    }
    if str(name) not in known:
        raise error(f"{name}: no such file or {what}, expected a file or one of {', '.join(sorted(known)) or 'none'}")
    return known[str(name)]
