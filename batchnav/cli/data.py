"""`batchnav data ...`: datasets, your own scans, episode files."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Column, Table
from tyro.conf import Positional

from batchnav.cli.console import show, with_axes
from batchnav.cli.interrupts import interrupted_with
from batchnav.cli.names import check_file, check_given, check_scenes
from batchnav.data.download import GROUPS, MANUAL, SOURCES, is_present
from batchnav.data.files import SCENES_DIR
from batchnav.errors import ArgumentError, EpisodeError, MeshError, few
from batchnav.runtime.checks import check_int, check_seed
from batchnav.runtime.command_line import call_subcommand
from batchnav.runtime.console import new_run, next_command, number_of
from batchnav.runtime.files import check_target, check_writable
from batchnav.scene.axes import Up

if TYPE_CHECKING:
    from batchnav.data.episodes import AnyEpisode
    from batchnav.data.goals.rules import LabelMap
    from batchnav.data.scenes.datasets import Dataset
    from batchnav.data.scenes.prepared import Outcome
    from batchnav.data.scenes.source import SceneSource
    from batchnav.navmesh.settings import NavMeshSettings
    from batchnav.scene.scene import Scene

# `batchnav data make-episodes`: fixed episodes of any task


_LABELS = 60
"""Most labels that `make-episodes` lists."""


def make_episodes(
    scenes: Positional[tuple[str, ...]],
    /,
    out: Path,
    task: str = "pointnav",
    per_scene: int = 100,
    seed: int = 0,
    split: str = "train",
    content: bool = False,
    islands: str = "indoor",
    preset: str | None = None,
    rules: str | None = None,
    labels: str | None = None,
    people: str = "",
    device: str = "auto",
    agent_radius: float | None = None,
    agent_height: float | None = None,
) -> None:
    """Generate episodes with the rules of Habitat's generators.

    Args:
        scenes: scene files, folders of prepared scenes, dataset folders or configs, house:7 or house:0-3,7.
        out: the .json.gz file to write.
        task: pointnav; imagenav, in three levels of distance; objectnav or instance_imagenav, for scenes with object
            ids and categories; socialnav, with people; flee or explore, with starts alone; or a task of your own.
        per_scene: number of episodes per scene.
        seed: seed of the episodes.
        split: split of datasets.
        content: write one file per scene into a folder `content` next to OUT, as Habitat does.
        islands: islands that episodes take place on: all; largest; indoor, without roofs, yards and tops of furniture;
            or the number of an island.
        preset: environment whose body the navmesh is for, such as objectnav_hm3d; default: navmeshes as they are.
        rules: rules of ObjectNav's view points and episodes: hm3d_v2, hssd, ovon or procthor; default: the
            preset's, or hm3d_v2.
        labels: mapping from the scenes' labels to ObjectNav's categories: hm3d, mp3d, hssd, procthor, procedural or
            all, or a .yaml file with patterns for each category, as in `chair: ["*chair*", stool]`; default: the
            preset's, or hm3d.
        people: number of people of an episode, such as 3 or 1-6; default: the preset's, else 1-6 for socialnav alone.
        device: device that renders objects, for objectnav and instance_imagenav: auto, cpu or cuda.
        agent_radius: radius of the body that the navmesh is for, metres; default: the preset's, or navmeshes as they
            are.
        agent_height: height of the body that the navmesh is for, metres.
    """
    check_given("scenes", scenes, "scenes, such as house:0-3 or my/scan.glb")
    check_scenes(scenes)
    from batchnav.data.formats import FORMATS
    from batchnav.data.formats.dataset import check_content
    from batchnav.data.goals import kind_of
    from batchnav.data.goals.rules import labels_named
    from batchnav.data.scenes.islands import check_rule
    from batchnav.envs.config import nav_config
    from batchnav.runtime.console import next_command, number_of

    check_rule(islands)
    check_int("per_scene", per_scene, 1, 2**24)
    check_seed(seed)
    check_target(out, EpisodeError)
    given = {name: value for name, value in (("rules", rules), ("labels", labels)) if value is not None}
    body = _body_options(agent_radius, agent_height)
    config = nav_config(preset, given | body, task)
    kind, world = kind_of(task), _people(people, config, task)
    named = getattr(config.task, "labels", None)
    label_map = None if named is None else labels_named(named)
    if not out.name.endswith(suffix := FORMATS[kind.format].suffix):
        raise EpisodeError(f"{out}: found another suffix, expected {suffix}")
    if not (content and out.exists()):
        check_content(out)  # raises before episodes are generated
    settings = config.body.navmesh if preset or body else None
    with interrupted_with(lambda: f"{out} was not written"):
        configs = _configs(scenes, split)
        loaded: Iterable[Scene] = (scene for name in scenes for scene in _scenes(name, split, settings, kind.needs_ids))
        if label_map is not None:
            loaded = _with_counted_labels(loaded, label_map)
        chosen = list(_kept(loaded, islands)) if world is not None else _kept(loaded, islands)
        dataset = kind.generate_file(
            chosen, per_scene, seed, config.task, device, lambda reason: show(f"skipped: {reason}")
        )
        if world is not None:
            dataset = _with_people(dataset, list(chosen), world, config.body, seed)
        if not dataset:
            raise EpisodeError(f"{out}: found no episodes in {few(scenes)}, expected at least one; use other scenes")
        episodes = _with_configs(dataset.episodes, configs)
        dataset.with_episodes(episodes).save(out, content)
    show(f"{out}: {number_of(len(episodes), 'episode')} in {number_of(len({e.scene_id for e in episodes}), 'scene')}")
    played_as: tuple[str, ...] = ("--task", task) if preset is None else ("--preset", preset)
    if label_map is not None and label_map.patterns:
        played_as += _with_categories(task, label_map.categories)
    evaluate = "batchnav", "evaluate", "shortest_path", *played_as, *_words(body), "--episodes", out
    show(next_command("evaluate an agent on them", *evaluate))


def _people(people: str, config: Any, task: str) -> Any:
    """The world whose people episodes get; None for episodes without people. ArgumentError for no number of them."""
    from batchnav.config import validate
    from batchnav.tasks import TASKS

    if not people and not TASKS[task].among_people:
        return None
    least, most = config.world.people if config.world.people[1] else (1, 6)
    low, _, high = (people or f"{least}-{most}").partition("-")
    high = high or low
    if not (low.isdecimal() and high.isdecimal()):
        raise ArgumentError(f"people: found {people!r}, expected a number or a range such as 1-6")
    world = replace(config.world, people=(int(low), int(high)))
    validate(world)
    return world


def _with_people(dataset: Any, scenes: Sequence[Any], world: Any, body: Any, seed: int) -> Any:
    """The dataset of PointNav episodes with people in each."""
    from batchnav.data.episodes import group_by_scene
    from batchnav.data.people import with_people

    by_name = {scene.name: scene for scene in scenes}
    groups = group_by_scene(dataset.episodes).items()
    return dataset.with_episodes(
        episode for name, group in groups for episode in with_people(group, by_name[name], world, body, seed)
    )


def _body_options(agent_radius: float | None, agent_height: float | None) -> dict[str, float]:
    """Those of the two fields of a body that are given."""
    given = {"agent_radius": agent_radius, "agent_height": agent_height}
    return {name: value for name, value in given.items() if value is not None}


def _navmesh_settings(agent_radius: float | None, agent_height: float | None) -> NavMeshSettings | None:
    """Bake settings for a body; None where neither is given. ConfigError for values that no body has."""
    from batchnav.envs.config import NavConfig, with_body

    given = _body_options(agent_radius, agent_height)
    return with_body(NavConfig(), agent_radius, agent_height).body.navmesh if given else None


def _words(body: Mapping[str, float], section: str = "") -> list[object]:
    """Words of a command line that set fields of a body, which are options of a section of the configuration."""
    return [word for name, value in body.items() for word in (f"--{section}{name.replace('_', '-')}", value)]


def _with_categories(task: str, names: Sequence[str]) -> tuple[str, ...]:
    """Options that give a task's environment the categories of its episodes; none where it has them, or any."""
    from batchnav.tasks import TASKS

    known = TASKS[task].goal_categories(TASKS[task].Config())
    return ("--env.task.categories", *names) if known and not set(names) <= set(known) else ()


def _with_counted_labels(scenes: Iterable[Scene], labels: LabelMap) -> Iterator[Scene]:
    """The scenes; after the last, prints their numbers of objects by category, and those of the other labels."""
    from batchnav.data.goals.view_points import objects_of

    matched: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for scene in scenes:
        for thing in objects_of((scene.semantic or scene).mesh):
            category = labels.category(thing.label)
            (others if category is None else matched)[category or thing.label or "(no label)"] += 1
        yield scene
    for title, found in (("objects by category", matched), ("objects of no category, by label", others)):
        if found:
            show(f"{title}: {few([f'{label} {count}' for label, count in found.most_common()], _LABELS)}")


def _kept(scenes: Iterable[Scene], islands: str) -> Iterable[Scene]:
    """The scenes with some of their islands; prints what is left out."""
    from batchnav.data.scenes.islands import apply_rule

    for scene in scenes:
        try:
            kept, lines = apply_rule(scene, islands)
        except EpisodeError as error:
            show(f"skipped: {error}")
            continue
        for line in lines:
            show(f"{scene.name}: {line}")
        yield kept


def _scenes(name: str, split: str, settings: NavMeshSettings | None, appearance: bool) -> list[Scene]:
    """The scenes of a name: a scene, or those of a range, folder or dataset; arguments as in `load_scene`."""
    from batchnav.data.scenes.ids import prepared_in, scene_ids
    from batchnav.data.scenes.load import load_all

    dataset = _dataset(name, split)
    if dataset is not None:
        return dataset.load_scenes(settings=settings, appearance=appearance)
    prepared = prepared_in(Path(name))
    return load_all(map(str, prepared) if prepared else scene_ids([name]), settings, appearance)


def _dataset(name: str, split: str) -> Dataset | None:
    """The dataset of a folder or a config; None for other names and for folders of prepared scenes."""
    from batchnav.data.scenes.datasets import load_dataset
    from batchnav.data.scenes.ids import prepared_in
    from batchnav.data.scenes.scene_dataset import DATASET_CONFIG

    path = Path(name)
    if prepared_in(path) or not (path.is_dir() or name.endswith(DATASET_CONFIG)):
        return None
    return load_dataset(path, split)


def _configs(names: Iterable[str], split: str) -> dict[str, str]:
    """Path of the config of each scene that the config of a dataset describes; episodes need it to find the scene."""
    datasets = [dataset for name in names if (dataset := _dataset(name, split)) is not None]
    return {scene: str(data.config.path) for data in datasets if data.config for scene in data.scene_names}


def _with_configs(episodes: Sequence[AnyEpisode], configs: Mapping[str, str]) -> list[AnyEpisode]:
    return [
        replace(episode, scene_dataset_config=configs.get(episode.scene_id, episode.scene_dataset_config))
        for episode in episodes
    ]


DATA = Path("data")
"""Default of Habitat's data folder, relative to the current folder."""


def list_data(data_path: Path = DATA) -> None:
    """List known datasets: licence, source, and whether they are present.

    Args:
        data_path: Habitat's data folder.
    """
    table = Table(Column("name", no_wrap=True), "present", "folder", "licence", "how to get it")  # users copy the names
    for uid, source in SOURCES.items():
        if not uid.startswith("hm3d_"):
            state = "yes" if is_present(uid, source, data_path) else "no"
            table.add_row(uid, state, source.link, source.licence, source.needs or f"batchnav data download {uid}")
    for uid, parts in GROUPS.items():
        count = sum(is_present(part, SOURCES[part], data_path) for part in parts)
        first = SOURCES[parts[0]]
        how = first.needs or f"batchnav data download {uid}"
        table.add_row(uid, f"{count} of {len(parts)}", first.link, first.licence, how)
    for uid, manual in MANUAL.items():
        state = "yes" if (data_path / manual.link).is_dir() else "no"
        table.add_row(uid, state, manual.link, manual.licence, manual.how)
    show(table)
    show("Parts of HM3D: hm3d_{minival,train,val}_{glb,habitat,configs,semantic_annots,semantic_configs}_v{0.1,0.2}")
    folder = () if data_path == DATA else ("--data-path", data_path)
    for uid, source in SOURCES.items():
        if not source.needs and not is_present(uid, source, data_path):
            show(next_command("download one without a login", "batchnav", "data", "download", uid, *folder))
            return


def download_data(
    uids: Positional[tuple[str, ...]],
    /,
    data_path: Path = DATA,
    username: str = "",
    password: str = "",
    replace: bool = False,
) -> None:
    """Download datasets by Habitat's identifiers into Habitat's layout. Repeat the command to continue a download.

    Args:
        uids: names from `batchnav data list`.
        data_path: Habitat's data folder.
        username: id of the API token, for datasets that need a login.
        password: secret of the API token, or access token of Hugging Face.
        replace: also download datasets that are already present.
    """
    from batchnav.data.download import Login, download

    check_given("uids", uids, "names from `batchnav data list`")
    with interrupted_with(lambda: "run the same command to continue"):
        links = download(uids, data_path, Login(username, password), replace)
    for link in links:
        show(f"{link}")
    scenes = next((link for link in links if link.parent.name == SCENES_DIR.name), None)
    if scenes is not None:
        parts = (SOURCES[part].part for uid in uids for part in GROUPS.get(uid, (uid,)))
        split = ("--split", next(parts)) if scenes.name == "hm3d" else ()
        show(next_command("bake their navmeshes", "batchnav", "data", "prepare", scenes, *split))


def import_data(
    source: Positional[Path],
    /,
    out: Path,
    up: Up = "auto",
    scale: float = 1.0,
    flip: bool = False,
    two_sided: bool = False,
    islands: str = "indoor",
    split: str = "train",
    sizes: Path | None = None,
    models: tuple[Path, ...] = (),
    agent_radius: float | None = None,
    agent_height: float | None = None,
) -> None:
    """Make prepared scenes from your own scans, ROS maps, Gazebo worlds, Habitat's files or ProcTHOR houses.

    Args:
        source: mesh file, map.yaml, folder, Gazebo world (SDF), Habitat config (stage, scene instance or dataset), or
            .json(l)(.gz) of houses.
        out: folder for the prepared scenes and their navmeshes.
        up: axis of mesh files that points up; auto: y for your own files, Habitat's convention for datasets.
        scale: factor from the unit of mesh files to metres; 0.001 for millimetres.
        flip: reverse the winding of all triangles, for meshes whose faces look outwards or down.
        two_sided: make floors walkable whose faces look down.
        islands: islands to keep: all; largest; indoor, without roofs, yards and tops of furniture; or the number of an
            island.
        split: split of a dataset.
        sizes: file with the sizes of ProcTHOR's assets; default: asset_bbox.json in the folder of SOURCE.
        models: folders of models of a Gazebo world, besides those of GAZEBO_MODEL_PATH and GZ_SIM_RESOURCE_PATH.
        agent_radius: radius of the body that navmeshes are baked for, metres; default: navmesh files as they are, else
            0.1.
        agent_height: height of the body that navmeshes are baked for, metres; default: 1.5.
    """
    check_file(source, MeshError)
    from batchnav.data.gazebo import is_world
    from batchnav.data.procthor import import_houses
    from batchnav.data.scenes.asset import frame_of
    from batchnav.data.scenes.datasets import find_sources
    from batchnav.data.scenes.prepared import prepare

    check_writable(out, ArgumentError)
    settings = _navmesh_settings(agent_radius, agent_height)
    if _is_procthor(source):
        sources, unknown = import_houses(source, sizes or source.with_name("asset_bbox.json"), out)
        for line in str(unknown).splitlines():
            show(line)
    elif is_world(source):
        sources = [_import_world(source, models, out)]
    else:
        sources = find_sources(source, split, frame_of(up))
    how: dict[str, Any] = {"scale": scale, "flip": flip, "two_sided": two_sided, "islands": islands}
    _report(prepare([each.adjusted(**how) for each in sources], out, describe=True, settings=settings))
    body = _body_options(agent_radius, agent_height)
    train = "batchnav", "train", "--scenes.houses", 0, "--scenes.sources", out, *_words(body, "env.body.")
    show(next_command("train in them", *train, *new_run(out.resolve().name)))
    chosen = () if islands == "indoor" else ("--islands", "all")  # the prepared scenes have the chosen ones alone
    make = "batchnav", "data", "make-episodes", out, *_words(body), *chosen, "--out", out / "episodes.json.gz"
    show(next_command("make episodes", *make))


def prepare_data(
    paths: Positional[tuple[Path, ...]],
    /,
    split: str = "train",
    out: Path | None = None,
    agent_radius: float | None = None,
    agent_height: float | None = None,
) -> None:
    """Bake and pack scenes into one fast-loading file each. Repeat the command to continue after an interruption.

    Args:
        paths: mesh files, dataset folders or dataset configs.
        split: split of datasets.
        out: folder for the prepared scenes; default: the folder of each mesh, where loading finds them.
        agent_radius: radius of the body that navmeshes are baked for, metres; default: navmesh files as they are, else
            0.1.
        agent_height: height of the body that navmeshes are baked for, metres; default: 1.5.
    """
    check_given("paths", paths, "mesh files, folders or configs of datasets")
    check_scenes(map(str, paths))
    from batchnav.data.scenes.datasets import find_sources
    from batchnav.data.scenes.prepared import prepare

    if out is not None:
        check_writable(out, ArgumentError)
    settings = _navmesh_settings(agent_radius, agent_height)
    outcomes = prepare([source for path in paths for source in find_sources(path, split)], out, settings=settings)
    _report(outcomes)
    if outcomes:
        show(next_command("view the first one", "batchnav", "view", outcomes[0].path))


def export_scene(scene: Positional[str], /, out: Path, urdf: Path | None = None, policy: str | None = None) -> None:
    """Write a scene as a GLB file with a named node for each object (category_instance), materials and textures.

    Args:
        scene: a scene id, such as house:7, or the path of a scene.
        out: the .glb file to write.
        urdf: a .urdf file to write: the agent's body, a cylinder, with its camera.
        policy: policy whose body and camera the URDF describes: a file, run folder or bundled name; default: those of
            the default environment.
    """
    check_scenes([scene])
    from batchnav.data.scenes.load import load_scene
    from batchnav.envs.config import NavConfig, config_of
    from batchnav.export.glb import save_glb, save_urdf
    from batchnav.policy.weights import load_policy

    for file in (out,) if urdf is None else (out, urdf):
        check_target(file, ArgumentError)
    mesh = load_scene(scene).mesh
    count = save_glb(mesh, out)
    show(f"{out}: {number_of(count, 'object')}, {number_of(len(mesh.faces), 'triangle')}")
    if urdf is not None:
        save_urdf(NavConfig() if policy is None else config_of(load_policy(policy).info), urdf)
        show(f"{urdf}")
    show(next_command("check the file", "batchnav", "data", "validate", out))


def validate_data(paths: Positional[tuple[Path, ...]], /, split: str = "train", scenes_dir: Path = SCENES_DIR) -> None:
    """Check scenes, navmeshes and episode files. Exit status 1 if there are errors.

    Args:
        paths: .navmesh, .json.gz, .scene or mesh files, dataset configs or folders.
        split: split of datasets.
        scenes_dir: folder that contains the scenes of episodes.
    """
    check_given("paths", paths, "scenes, navmeshes, episode files or folders")
    for path in paths:
        check_file(path, MeshError, "a .navmesh, an episode file (.json.gz), a .scene, a mesh, a config, or a folder")
    from batchnav.data.validate import validate

    broken = False
    for path in paths:
        findings = list(validate(path, split, scenes_dir))
        for finding in findings:
            where = "" if str(path) in finding.text else f"{path}: "
            show(f"{finding.level}: {where}{finding.text}")
        broken |= any(finding.level == "error" for finding in findings)
        if all(finding.level == "note" for finding in findings):
            show(f"{path}: no errors")
    if broken:
        sys.exit(1)
    for line in dict.fromkeys(map(_after_validation, paths)):
        if line:
            show(line)
            return


def check_objects(folder: Positional[Path], /, sheet: Path = Path("objects.png")) -> None:
    """Check a furniture folder, CATEGORY/*.glb, and draw its models with a metre grid. Exit status 1 for problems.

    Args:
        folder: the folder that `house:7?furniture=FOLDER` names.
        sheet: the .png file to write.
    """
    check_file(folder, MeshError)
    check_target(sheet, ArgumentError)
    if sheet.suffix.lower() != ".png":
        raise ArgumentError(f"sheet: found {sheet}, expected a .png file")
    from batchnav.data.objects import contact_sheet, reports, save_sheet
    from batchnav.procedural import read_furniture

    furniture = read_furniture(folder)
    found = list(reports(furniture))
    table = Table(Column("model", no_wrap=True), "width x depth x height, m", "triangles", "place")
    for report in found:
        w, d, h = report.model.size
        table.add_row(report.model.name, f"{w:.2f} x {d:.2f} x {h:.2f}", str(len(report.model.faces)), report.places)
    show(table)
    for report in found:
        for problem in report.problems:
            show(f"{report.model.name}: {problem}")
    save_sheet(contact_sheet(furniture, {report.model.name: report.problems for report in found}), sheet)
    wrong = sum(bool(report.problems) for report in found)
    show(f"{sheet}: {number_of(len(found), 'model')}, {wrong or 'none'} with problems")
    if wrong:
        sys.exit(1)
    show(next_command("view a house with them", "batchnav", "view", f"house:0?furniture={folder}"))


def _after_validation(path: Path) -> str:
    """A line with a command that shows a valid file; empty for folders."""
    from batchnav.data.formats import is_episode_file, load_episodes
    from batchnav.data.goals import GOALS
    from batchnav.data.scenes.prepared import SUFFIX
    from batchnav.evaluation.players import DEFAULT_TASK
    from batchnav.scene.mesh import SUFFIXES

    if path.suffix == ".navmesh":
        return next_command("plot it", "batchnav", "navmesh", "view", path)
    if path.suffix.lower() in (SUFFIX, *SUFFIXES):
        return next_command("view it", "batchnav", "view", path)
    if is_episode_file(path):
        dataset = load_episodes(path)
        task = GOALS[dataset.kind].task
        words: tuple[str, ...] = () if task == DEFAULT_TASK else ("--task", task)
        names = sorted({getattr(episode, "object_category", "") for episode in dataset.episodes} - {""})
        words += _with_categories(task, names)
        command = "batchnav", "evaluate", "shortest_path", *words, "--episodes", path
        return next_command("evaluate an agent on them", *command)
    return ""


def _import_world(source: Path, models: Sequence[Path], out: Path) -> SceneSource:
    """Write a Gazebo world as OUT/meshes/NAME.glb, beside which no prepared scene stands; prints what is left out."""
    from batchnav.data.gazebo import read_world
    from batchnav.data.scenes.source import mesh_source
    from batchnav.export.glb import save_glb

    mesh, left_out = read_world(source, models)
    file = out / "meshes" / f"{source.stem}.glb"
    save_glb(mesh, file)
    for line in filter(None, (*left_out.notes, str(left_out))):
        show(line)
    return mesh_source(file)


def _is_procthor(path: Path) -> bool:
    """True for a JSON file that is not one of Habitat's configs: it holds ProcTHOR houses."""
    from batchnav.data.scenes.source import STAGE_CONFIG

    name = path.name.removesuffix(".gz")
    is_json = name.endswith((".json", ".jsonl"))
    return is_json and not name.endswith(("_config.json", STAGE_CONFIG, "_instance.json"))


def _report(outcomes: Sequence[Outcome]) -> None:
    """Print the outcome for each scene. Exit status 1 if a scene could not be prepared."""
    for outcome in outcomes:
        sign, axis = ("-" if outcome.up.startswith("-") else "+"), outcome.up.lstrip("-").upper()
        note = ("up to date" if outcome.fresh else "prepared") + (f", {sign}{axis} up" if axis else "")
        if outcome.missing:
            note += f", without {len(outcome.missing)} missing assets, for example {outcome.missing[0]}"
        show(f"error: {outcome.problem}" if outcome.problem else f"{outcome.path}: {note}")
        if outcome.summary:
            show(f"  {outcome.summary}")
        for text in outcome.warnings:
            show(f"  warning: {text}")
    if any(outcome.problem for outcome in outcomes):
        sys.exit(1)


SUBCOMMANDS: dict[str, Callable[..., Any]] = {
    "list": list_data, "download": download_data, "import": import_data, "prepare": prepare_data,
    "export": export_scene, "make-episodes": make_episodes, "validate": validate_data, "objects": check_objects,
}  # fmt: skip
"""Functions of the subcommands by name."""


def command(arguments: Sequence[str]) -> None:
    """Run `batchnav data SUBCOMMAND`."""
    call_subcommand(SUBCOMMANDS, "batchnav data", with_axes(arguments))
