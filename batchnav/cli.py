"""The command line: `batchnav doctor`, `batchnav data ...` for data sets, `batchnav navmesh ...` for navmeshes."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from batchnav.data.catalog import GROUPS, MANUAL, SOURCES, is_present
from batchnav.data.datasets import load_dataset
from batchnav.data.download import Login, download
from batchnav.data.episodes import Episode, save_episodes
from batchnav.data.generate import generate_episodes
from batchnav.data.prepare import Outcome, find_sources, import_houses, prepare
from batchnav.data.scene_dataset import DATASET_CONFIG
from batchnav.data.scenes import find_scenes, prepared_in
from batchnav.data.source import SCENES_DIR, STAGE_CONFIG, Z_UP, Frame
from batchnav.data.validate import validate
from batchnav.errors import ArgumentError, BatchnavError, EpisodeError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runs.doctor import examine, memory_findings
from batchnav.runtime.files import replacing
from batchnav.scene.mesh import load_mesh
from batchnav.scene.scene import Scene
from batchnav.view.navmesh import draw_navmesh, island_areas

DATA = Path("data")
"""Habitat's folder of data, below the current one."""
MAX_ISLANDS = 10
"""Islands that `navmesh info` lists."""

Up = Literal["auto", "y", "z"]
Words = tyro.conf.Positional


def data_list(data_path: Path = DATA) -> None:
    """What data sets are known: their licence, where to get them, and what is present.

    Args:
        data_path: Habitat's folder `data`.
    """
    table = Table("name", "present", "place", "licence", "how to get it")
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
    _print(table)
    _print("Parts of HM3D: hm3d_{minival,train,val}_{glb,habitat,configs,semantic_annots,semantic_configs}_v{0.1,0.2}")


def data_download(
    uids: Words[tuple[str, ...]],
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
        _print(f"{link}")


def data_import(
    source: Words[Path],
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
            _print(f"left out, of unknown size: {', '.join(sorted(unknown))}")
    else:
        frame = {"auto": None, "y": Frame(), "z": Z_UP}[up]
        sources = find_sources(source, split, frame)
    _report(prepare(sources, out))


def data_prepare(paths: Words[tuple[Path, ...]], /, split: str = "train", out: Path | None = None) -> None:
    """Bake, build and pack scenes into one file each, which loads at once; again to go on after a break.

    Args:
        paths: mesh files, data sets' folders or configs.
        split: of data sets.
        out: folder for the prepared scenes; by default they go beside the meshes, where they are found by themselves.
    """
    _report(prepare([source for path in paths for source in find_sources(path, split)], out))


def data_episodes(
    scenes: Words[tuple[str, ...]],
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
            _print(f"skipped: {error}")
    if not episodes:
        raise EpisodeError(f"{out}: found no episodes to write, expected some in {len(scenes)} scenes")
    save_episodes(episodes, out, content)
    _print(f"{out}: {len(episodes)} episodes in {len({e.scene_id for e in episodes})} scenes")


def data_validate(paths: Words[tuple[Path, ...]], /, split: str = "train", scenes_dir: Path = SCENES_DIR) -> None:
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
            _print(f"{finding.level}: {finding.text}")
        broken |= any(finding.level == "error" for finding in findings)
        if not findings:
            _print(f"{path}: nothing wrong")
    if broken:
        sys.exit(1)


def navmesh_bake(
    mesh: Words[Path],
    /,
    *,
    out: Path | None = None,
    up: Up = "auto",
    settings: Annotated[NavMeshSettings, tyro.conf.arg(name="")],
) -> None:
    """Bake a navmesh from a mesh file, with Habitat's settings.

    Args:
        mesh: a mesh file.
        out: by default NAME.navmesh beside it.
        up: the file's up axis; auto is y.
        settings: Habitat's names and defaults, in metres and degrees.
    """
    out = out or mesh.with_suffix(".navmesh")
    with Console(stderr=True).status(f"baking {mesh}"):
        navmesh = NavMesh.bake(load_mesh(mesh, up, appearance=False), settings)
    navmesh.save(out)
    _print(f"{out}: {navmesh.area:.2f} m², {navmesh.num_polygons} polygons, {navmesh.num_islands} islands")


def navmesh_info(file: Words[Path], /) -> None:
    """Show what is in a navmesh file: size, islands, settings.

    Args:
        file: a .navmesh file.
    """
    navmesh = NavMesh.load(file)
    table = Table(show_header=False)
    table.add_row("version", "1 (without settings)" if navmesh.settings is None else "2")
    table.add_row("tiles, polygons", f"{len(navmesh.file.tiles)}, {navmesh.num_polygons}")
    table.add_row("area", f"{navmesh.area:.6f} m²")
    table.add_row("bounds", " to ".join(f"({x:.3f}, {y:.3f}, {z:.3f})" for x, y, z in navmesh.bounds))
    areas = island_areas(navmesh)
    for k in np.argsort(-areas)[:MAX_ISLANDS]:
        table.add_row(f"island {k}", f"{areas[k]:.5f} m², radius {navmesh.data.island_radius[k]:.3f} m")
    if len(areas) > MAX_ISLANDS:
        table.add_row("further islands", f"{len(areas) - MAX_ISLANDS}")
    for name, value in dataclasses.asdict(navmesh.settings).items() if navmesh.settings else ():
        table.add_row(name, f"{value:g}" if isinstance(value, float) else str(value))
    _print(table)


def navmesh_view(
    file: Words[Path],
    /,
    out: Path | None = None,
    start: tuple[float, float, float] | None = None,
    goal: tuple[float, float, float] | None = None,
    height: float | None = None,
) -> None:
    """Draw a navmesh from above: islands, clearance, and a path.

    Args:
        file: a .navmesh file.
        out: the .png to write; by default NAME.png beside it.
        start: x y z, metres; with --goal the ends of the path. By default a long one is chosen.
        goal: x y z, metres.
        height: y of the storey; by default that of the largest island.
    """
    out = out or file.with_suffix(".png")
    ends = [None if point is None else np.array(point, np.float32) for point in (start, goal)]
    figure = draw_navmesh(NavMesh.load(file), *ends, height=height)
    with replacing(out, BatchnavError) as part:
        figure.savefig(part, format="png", dpi=120)
    _print(f"{out}")


def doctor(config: Path | None = None) -> None:
    """Say what this machine can do and what will be used; for what is missing, what to install.

    Args:
        config: a training configuration; also predict the memory that its run takes, scenes and all (makes them).
    """
    table = Table("what", "found", "to do")
    for finding in [*examine(), *(memory_findings(config) if config else ())]:
        table.add_row(*finding)
    _print(table)


COMMANDS: dict[str, Callable | dict[str, Callable]] = {
    "doctor": doctor,
    "data": {
        "list": data_list, "download": data_download, "import": data_import, "prepare": data_prepare,
        "episodes": data_episodes, "validate": data_validate,
    },
    "navmesh": {"bake": navmesh_bake, "info": navmesh_info, "view": navmesh_view},
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """The program `batchnav`; `arguments` are those of the command line by default."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    group = arguments[0] if arguments else ""
    if group not in COMMANDS:
        lines = [f"  batchnav {name}{_subcommands(name)}" for name in COMMANDS]
        print("\n".join(["usage:", *lines, "", "batchnav data --help, batchnav navmesh bake --help ... say more"]))
        sys.exit(0 if group in ("-h", "--help") else 2)
    command = COMMANDS[group]
    call = tyro.extras.subcommand_cli_from_dict if isinstance(command, dict) else tyro.cli
    try:
        call(command, prog=f"batchnav {group}", args=arguments[1:])
    except BatchnavError as error:
        sys.exit(f"error: {error}")


def _subcommands(group: str) -> str:
    """What may follow a group's name, for the usage."""
    command = COMMANDS[group]
    return f" {{{','.join(command)}}} ..." if isinstance(command, dict) else ""


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
        _print(f"error: {outcome.problem}" if outcome.problem else f"{outcome.path}: {note}")
    if any(outcome.problem for outcome in outcomes):
        sys.exit(1)


def _print(thing) -> None:
    """Print plainly: no markup in names, no line broken where the output is not a terminal."""
    console = Console(width=None if sys.stdout.isatty() else 240)
    console.print(thing, markup=False, highlight=False, soft_wrap=not isinstance(thing, Table))


if __name__ == "__main__":
    main()
