"""`batchnav data ...`: data sets, scans of one's own, episode files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tyro
from rich.table import Column, Table
from tyro.conf import Positional

from batchnav.cli.console import Up, show
from batchnav.data.catalog import GROUPS, MANUAL, SOURCES, is_present
from batchnav.data.download import Login, download
from batchnav.data.episodes.episode import Episode
from batchnav.data.episodes.episode_file import save_episodes
from batchnav.data.episodes.generate import generate_episodes
from batchnav.data.find_sources import find_sources
from batchnav.data.habitat.datasets import load_dataset
from batchnav.data.habitat.scene_dataset import DATASET_CONFIG
from batchnav.data.prepared.prepare import Outcome, prepare
from batchnav.data.procthor.import_houses import import_houses
from batchnav.data.scene_ref import prepared_in
from batchnav.data.scenes import find_scenes
from batchnav.data.sources.asset import Z_UP, Frame
from batchnav.data.sources.scene_source import SCENES_DIR, STAGE_CONFIG
from batchnav.data.validate import validate
from batchnav.errors import ArgumentError, EpisodeError
from batchnav.runtime.console.announce import number_of
from batchnav.scene.scene import Scene

DATA = Path("data")
"""Habitat's folder of data, below the current one."""


def list_data(data_path: Path = DATA) -> None:
    """What data sets are known: their licence, where to get them, and what is present.

    Args:
        data_path: Habitat's folder `data`.
    """
    table = Table(Column("name", no_wrap=True), "present", "place", "licence", "how to get it")  # names are typed
    for uid, source in SOURCES.items():
        if not uid.startswith("hm3d_"):
            state = "yes" if is_present(uid, source, data_path) else "no"
            table.add_row(uid, state, source.link, source.licence, source.needs or f"batchnav data download {uid}")
    for uid, parts in GROUPS.items():
        count = sum(is_present(part, SOURCES[part], data_path) for part in parts)
        first = SOURCES[parts[0]]
        table.add_row(
            uid, f"{count} of {len(parts)}", first.link, first.licence, first.needs or "batchnav data download"
        )
    for uid, manual in MANUAL.items():
        state = "yes" if (data_path / manual.link).is_dir() else "no"
        table.add_row(uid, state, manual.link, manual.licence, manual.how)
    show(table)
    show("Parts of HM3D: hm3d_{minival,train,val}_{glb,habitat,configs,semantic_annots,semantic_configs}_v{0.1,0.2}")


def download_data(
    uids: Positional[tuple[str, ...]],
    /,
    data_path: Path = DATA,
    username: str = "",
    password: str = "",
    replace: bool = False,
) -> None:
    """Download data sets by Habitat's identifiers to where Habitat looks for them; again to go on after a break.

    Args:
        uids: names from `batchnav data list`.
        data_path: Habitat's folder `data`.
        username: for what needs a login: the API token's id.
        password: its secret, or the access token of Hugging Face.
        replace: download anew what is there.
    """
    if not uids:
        raise ArgumentError("uids: found none, expected names from `batchnav data list`")
    for link in download(uids, data_path, Login(username, password), replace):
        show(f"{link}")


def import_data(
    source: Positional[Path],
    /,
    out: Path,
    up: Up = "auto",
    split: str = "train",
    sizes: Path | None = None,
) -> None:
    """Make prepared scenes from a scan of one's own, a folder of them, Habitat's files or ProcTHOR houses.

    Args:
        source: a mesh file, a folder, a stage, scene instance or data set config, or a .json(l)(.gz) of houses.
        out: folder for the prepared scenes and their navmeshes.
        up: the axis that is up in mesh files; auto: y in a file of one's own, what Habitat says in a data set.
        split: of a data set.
        sizes: of ProcTHOR's assets: asset_bbox.json; by default the one beside the houses.
    """
    if _is_procthor(source):
        sources, unknown = import_houses(source, sizes or source.with_name("asset_bbox.json"), out)
        if unknown:
            show(f"left out, of unknown size: {', '.join(sorted(unknown))}")
    else:
        frame = {"auto": None, "y": Frame(), "z": Z_UP}[up]
        sources = find_sources(source, split, frame)
    _report(prepare(sources, out))


def prepare_data(paths: Positional[tuple[Path, ...]], /, split: str = "train", out: Path | None = None) -> None:
    """Bake, build and pack scenes into one file each, which loads at once; again to go on after a break.

    Args:
        paths: mesh files, data sets' folders or configs.
        split: of data sets.
        out: folder for the prepared scenes; by default they go beside the meshes, where they are found by themselves.
    """
    _report(prepare([source for path in paths for source in find_sources(path, split)], out))


def make_episodes(
    scenes: Positional[tuple[str, ...]],
    /,
    out: Path,
    per_scene: int = 100,
    seed: int = 0,
    split: str = "train",
    content: bool = False,
) -> None:
    """Generate PointNav episodes by the rules of Habitat's generator.

    Args:
        scenes: files, folders of prepared scenes, data sets' folders or configs, or "house:SEED".
        out: the .json.gz file to write.
        per_scene: how many in each scene.
        seed: same scenes, same seed, same episodes.
        split: of data sets.
        content: one file a scene, in a folder `content` beside the top file.
    """
    if per_scene < 1:
        raise ArgumentError(f"per_scene: found {per_scene}, expected 1 or more")
    episodes: list[Episode] = []
    for scene in [scene for name in scenes for scene in _scenes(name, split)]:
        try:
            episodes += generate_episodes(scene, per_scene, seed)
        except EpisodeError as error:
            show(f"skipped: {error}")
    if not episodes:
        raise EpisodeError(f"{out}: found no episodes to write, expected some in {len(scenes)} scenes")
    save_episodes(episodes, out, content)
    show(f"{out}: {number_of(len(episodes), 'episode')} in {number_of(len({e.scene_id for e in episodes}), 'scene')}")


def validate_data(paths: Positional[tuple[Path, ...]], /, split: str = "train", scenes_dir: Path = SCENES_DIR) -> None:
    """Find and name what is wrong in scenes, navmeshes and episode files; exit status 1 where something is.

    Args:
        paths: .navmesh, .json.gz, .scene or mesh files, configs, data sets' folders.
        split: of data sets.
        scenes_dir: below which the scenes of episodes are.
    """
    broken = False
    for path in paths:
        findings = list(validate(path, split, scenes_dir))
        for finding in findings:
            show(f"{finding.level}: {finding.text}")
        broken |= any(finding.level == "error" for finding in findings)
        if not findings:
            show(f"{path}: nothing wrong")
    if broken:
        sys.exit(1)


def _scenes(name: str, split: str) -> list[Scene]:
    """The scenes of a name: one, or those in a folder."""
    path = Path(name)
    if prepared := prepared_in(path):
        return find_scenes(map(str, prepared), appearance=False)
    if path.is_dir() or name.endswith(DATASET_CONFIG):
        return load_dataset(path, split).load_scenes(appearance=False)
    return find_scenes([name], appearance=False)


def _is_procthor(path: Path) -> bool:
    """Whether a file holds houses: JSON that is none of Habitat's configs."""
    name = path.name.removesuffix(".gz")
    is_json = name.endswith((".json", ".jsonl"))
    return is_json and not name.endswith(("_config.json", STAGE_CONFIG, "_instance.json"))


def _report(outcomes: Sequence[Outcome]) -> None:
    """Say what became of each scene; exit status 1 where one could not be prepared."""
    for outcome in outcomes:
        note = ("up to date" if outcome.fresh else "prepared") + (", +Z up" if outcome.z_up else ", +Y up")
        if outcome.missing:
            note += f", without {len(outcome.missing)} assets that are missing, as {outcome.missing[0]}"
        show(f"error: {outcome.problem}" if outcome.problem else f"{outcome.path}: {note}")
    if any(outcome.problem for outcome in outcomes):
        sys.exit(1)


def command(arguments: Sequence[str]) -> None:
    """`batchnav data ...`."""
    functions: dict[str, Callable[..., Any]] = {
        "list": list_data, "download": download_data, "import": import_data, "prepare": prepare_data,
        "episodes": make_episodes, "validate": validate_data,
    }  # fmt: skip
    tyro.extras.subcommand_cli_from_dict(functions, prog="batchnav data", args=list(arguments))
