"""Habitat's scene datasets: `*.scene_dataset_config.json`, and the `*.scene_instance.json` that place objects.

A config lists the files that describe stages, objects, articulated objects and scene instances; paths are relative to
its folder. A name in a scene instance refers to the template with that file name, otherwise to the first template whose
path contains the name. Names in files may be arbitrary strings: `os.path.isfile` returns False where `Path.is_file`
raises.
"""

from __future__ import annotations

import fnmatch
import math
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from batchnav.data.files import is_number, natural_order, read_json, read_xml
from batchnav.data.scenes.annotations import ANNOTATIONS
from batchnav.data.scenes.asset import Asset, Part, asset_of, unit, vector, with_descriptor
from batchnav.data.scenes.source import STAGE_CONFIG, SceneSource, is_hidden, scene_id_of
from batchnav.errors import MeshError, shortened

# URDF files: the visual meshes of an articulated object, posed by its joints

_MAX_LINKS = 10_000


def read_urdf(path: Path, positions: Mapping[str, float]) -> list[Part]:
    """The meshes of all links, in the root link's frame.

    Args:
        path: the `.urdf` file; meshes are named relative to its folder.
        positions: joint positions by name, radians or metres; 0 for other joints.

    Raises MeshError where the file is not URDF, its joints form no tree, or a number cannot be read.
    """
    try:
        robot = read_xml(path, MeshError)
        links = {_named(link, "name"): link for link in robot.findall("link")}
        joints = {_link(joint, "child"): joint for joint in robot.findall("joint")}
        if len(links) > _MAX_LINKS:
            raise ValueError(f"found {len(links)} links, expected at most {_MAX_LINKS}")
        parts: list[Part] = []
        poses: dict[str, np.ndarray] = {}
        for name, link in links.items():
            pose = _link_pose(name, joints, positions, poses)
            for visual in link.findall("visual"):
                mesh = visual.find("geometry/mesh")
                if mesh is None:  # boxes and spheres are collision shapes; Habitat renders meshes only
                    continue
                place = pose @ _origin(visual)
                asset = Asset(path.parent / _named(mesh, "filename"), scale=_numbers(mesh.get("scale", "1 1 1")))
                parts.append(Part(asset, place[:3, :3], place[:3, 3]))
    except (ET.ParseError, ValueError) as error:
        raise MeshError(f"{path}: is not a usable URDF file ({error})") from error
    return parts


def _link_pose(
    name: str, joints: Mapping[str, ET.Element], positions: Mapping[str, float], poses: dict[str, np.ndarray]
) -> np.ndarray:
    """f64 [4, 4]: transform from the link's frame to the root's. `poses` caches the transforms of visited links."""
    chain: dict[str, ET.Element] = {}
    while name in joints and name not in poses:
        if name in chain:
            raise ValueError(f"link {name!r} is its own ancestor")
        chain[name] = joints[name]
        name = _link(joints[name], "parent")
    pose = poses.get(name, np.eye(4))
    for link, joint in reversed(chain.items()):
        pose = poses[link] = pose @ _origin(joint) @ _motion(joint, positions.get(joint.get("name", ""), 0.0))
    return pose


def _motion(joint: ET.Element, position: float) -> np.ndarray:
    """f64 [4, 4]: motion of a joint at a position, about or along its axis."""
    motion, axis = np.eye(4), joint.find("axis")
    direction = np.array(_numbers(_named(axis, "xyz")) if axis is not None else (1.0, 0.0, 0.0))
    if joint.get("type") in ("revolute", "continuous"):
        motion[:3, :3] = Rotation.from_rotvec(direction * position).as_matrix()
    elif joint.get("type") == "prismatic":
        motion[:3, 3] = direction * position
    return motion


def _origin(element: ET.Element) -> np.ndarray:
    """f64 [4, 4]: transform of an element's <origin xyz rpy>."""
    origin, pose = element.find("origin"), np.eye(4)
    if origin is not None:
        pose[:3, 3] = _numbers(origin.get("xyz", "0 0 0"))
        pose[:3, :3] = Rotation.from_euler("xyz", _numbers(origin.get("rpy", "0 0 0"))).as_matrix()
    return pose


def _link(joint: ET.Element, end: str) -> str:
    """Name of a joint's "parent" or "child" link."""
    element = joint.find(end)
    if element is None:
        raise ValueError(f"a joint without <{end}>")
    return _named(element, "link")


def _named(element: ET.Element, name: str) -> str:
    """A required attribute of an element. ValueError where it is missing."""
    value = element.get(name)
    if value is None:
        raise ValueError(f"<{element.tag}> without {name!r}")
    return value


def _numbers(text: str) -> tuple[float, float, float]:
    """Three finite numbers from text. ValueError for anything else."""
    values = [float(word) for word in text.replace(",", " ").split()]  # published files use commas too
    if len(values) != 3 or not np.isfinite(values).all():
        raise ValueError(f"found {text!r}, expected three numbers")
    x, y, z = values
    return x, y, z


# Search paths of scene datasets: names with `*`, `?` and `[...]`, within bounds; and names in names

MAX_ENTRIES = 1_000_000
"""Largest number of folder entries that the patterns of one dataset may look at."""
_MAGIC = re.compile(r"[*?[]")


class Search:
    """Search for the files that patterns name, as `glob.glob` does without `**`.

    A wildcard does not match a link to a folder that holds the link. Folders that cannot be read are left out.

    Args:
        where: begin of error messages, the file that holds the patterns.
        folder: base of relative patterns; its own name is taken literally.

    MeshError where all searches together look at more than MAX_ENTRIES entries.
    """

    def __init__(self, where: str, folder: Path):
        self._where, self._folder, self._left = where, folder, MAX_ENTRIES

    def files(self, pattern: str) -> list[Path]:
        """Files that match a pattern, and files directly in matching folders."""
        found: list[Path] = []
        for match in self._matches(pattern):
            if os.path.isdir(match):
                found += [match / name for name in self._names(match, pattern)]
            else:
                found.append(match)
        return found

    def _matches(self, pattern: str) -> list[Path]:
        """Existing paths that match a pattern."""
        paths = [self._folder]
        for part in PurePosixPath(pattern).parts:
            paths = list(self._step(paths, part, pattern))
        return paths

    def _step(self, paths: Iterable[Path], part: str, pattern: str) -> Iterator[Path]:
        """The existing paths that continue `paths` by one part of a pattern."""
        if not _MAGIC.search(part):
            yield from (path / part for path in paths if os.path.lexists(path / part))
            return
        is_match = re.compile(fnmatch.translate(part)).match
        for path in paths:
            found = (name for name in self._names(path, pattern) if is_match(name))
            shown = (path / name for name in found if part[0] == "." or name[0] != ".")
            yield from (each for each in shown if not _is_cycle(each))

    def _names(self, folder: Path, pattern: str) -> list[str]:
        """Sorted names in a folder; none where it cannot be read."""
        names: list[str] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    names.append(entry.name)
                    self._left -= 1
                    if self._left < 0:
                        raise MeshError(
                            f"{self._where}: pattern {shortened(pattern)}: searched more than {MAX_ENTRIES:,} files "
                            f"and folders, expected a pattern of the dataset's own folders"
                        )
        except OSError:
            return []
        return sorted(names)


def _is_cycle(path: Path) -> bool:
    """True for a link to a folder that holds the link, and for a link that cannot be read."""
    try:
        return os.path.islink(path) and os.path.realpath(path) in map(os.path.realpath, path.parents)
    except OSError:
        return True


def first_containing(texts: Sequence[str], words: Iterable[str]) -> dict[str, int]:
    """For each word that occurs in a text, the index of the first such text; linear in the number of characters.

    Method: Aho and Corasick, "Efficient string matching", CACM 18(6), 1975. A tree holds the prefixes of all words;
    each node links to the longest proper suffix that is also a prefix.
    """
    longest = max(map(len, texts), default=0)
    children: list[dict[str, int]] = [{}]
    ends: dict[int, str] = {}
    for word in words:
        if not 0 < len(word) <= longest:
            continue
        node = 0
        for letter in word:
            if letter not in children[node]:
                children[node][letter] = len(children)
                children.append({})
            node = children[node][letter]
        ends[node] = word
    shorter, order = [0] * len(children), list(children[0].values())
    for node in order:  # grows during the loop
        for letter, child in children[node].items():
            shorter[child] = _next_node(children, shorter, shorter[node], letter)
            order.append(child)
    found: dict[str, int] = {}
    seen = [False] * len(children)
    for i, text in enumerate(texts if ends else ()):
        node = 0
        for letter in text:
            node = end = _next_node(children, shorter, node, letter)
            while end and not seen[end]:  # each node is visited once over all texts
                seen[end] = True
                if end in ends:
                    found[ends[end]] = i
                end = shorter[end]
    return found


def _next_node(children: list[dict[str, int]], shorter: list[int], node: int, letter: str) -> int:
    """The node of the longest prefix that is a suffix of `node` plus `letter`."""
    while node and letter not in children[node]:
        node = shorter[node]
    return children[node].get(letter, 0)


DATASET_CONFIG = ".scene_dataset_config.json"
"""End of the name of a file that describes a scene dataset."""
SCENE_INSTANCE = ".scene_instance.json"
_SUFFIX = {
    "stages": STAGE_CONFIG,
    "objects": ".object_config.json",
    "articulated_objects": ".ao_config.json",
    "scene_instances": SCENE_INSTANCE,
}
"""End of file names that ".json" stands for in the search paths of each section."""
NO_STAGE = "NONE"
"""Template name of a scene without a stage."""


class _Template(NamedTuple):
    """A stage, object or scene instance: its file, and attributes that the dataset's config adds or replaces."""

    handle: str
    """Path of the file, or name in the config."""
    file: Path
    """File whose folder is the base of relative paths."""
    added: dict
    """Attributes from the config, which take precedence over the file's."""

    def attributes(self, defaults: dict) -> dict:
        """Attributes of the config, the file and `defaults`, in this order of precedence.

        MeshError where the file is not a JSON object.
        """
        if self.file.suffix != ".json" or self.file.name.endswith(DATASET_CONFIG):
            return {**defaults, "render_asset": self.file.name, "urdf_filepath": self.file.name, **self.added}
        return {**defaults, **_object(self.file), **self.added}


class SceneDatasetConfig:
    """A `*.scene_dataset_config.json` file. Files of stages, objects and scenes are read by `source`, not before.

    Raises MeshError with the field where the file is no such config.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        data = _object(self.path)
        self._search_paths = Search(str(self.path), self.path.parent)
        self._defaults: dict[str, dict] = {}
        self._templates = {section: self._read_section(data, section) for section in _SUFFIX}
        navmeshes = data.get("navmesh_instances", {})
        if not isinstance(navmeshes, dict) or not all(isinstance(v, str) for v in navmeshes.values()):
            raise MeshError(f"{self.path}: field 'navmesh_instances': expected an object of paths")
        self._navmeshes = {name: self.path.parent / file for name, file in navmeshes.items()}
        self._lexicons = self._read_lexicons(data)

    @property
    def scene_names(self) -> list[str]:
        """Names of the scene instances; without scene instances, scene ids of the stages."""
        if self._templates["scene_instances"]:
            return sorted(self._templates["scene_instances"], key=natural_order)
        files = [template.file for template in self._templates["stages"].values()]
        return sorted({scene_id_of(file) for file in files}, key=natural_order)

    def has(self, name: str) -> bool:
        """True where the config lists a scene instance or a stage of this name."""
        return any(self._find(section, name) is not None for section in ("scene_instances", "stages"))

    def source(self, name: str) -> SceneSource:
        """The source of a scene instance or of a stage. MeshError for an unknown name or a broken file."""
        instance = self._find("scene_instances", name)
        if instance is None:
            descriptor = self._lexicons.get(f"{_stage_stem(name)}.semantic")
            stage = self._stage(name, f"{self.path}: scene {name!r}", descriptor)
            return SceneSource(scene_id_of(Path(name)), (stage,), self._navmesh(name, stage.asset.path))
        return self._instance_source(instance)

    def _instance_source(self, instance: _Template) -> SceneSource:
        data = instance.attributes(self._defaults["scene_instances"])
        where, name = str(instance.file), _stem(instance.file)
        stage = data.get("stage_instance")
        if not isinstance(stage, dict) or not isinstance(stage.get("template_name"), str):
            raise MeshError(
                f"{where}: field 'stage_instance': found {shortened(stage)}, expected one with a template_name"
            )
        # Habitat reads the translation and rotation of a stage instance but does not apply them.
        named = data.get("semantic_scene_instance")
        descriptor = self._lexicons.get(named) if isinstance(named, str) else None
        parts = [] if stage["template_name"] == NO_STAGE else [self._stage(stage["template_name"], where, descriptor)]
        missing: list[str] = []
        origin, names, number = data.get("translation_origin"), self._names(data), 0
        for section, place in (("objects", self._place_object), ("articulated_objects", self._place_articulated)):
            key = section.removesuffix("s") + "_instances"
            rows = data.get(key, [])
            if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
                raise MeshError(f"{where}: field {key!r}: found {shortened(rows)}, expected a list of objects")
            known = self._find_all(section, {n for row in rows if isinstance(n := row.get("template_name"), str)})
            for i, row in enumerate(rows):
                at = f"{where}: {key}[{i}]"
                template = row.get("template_name")
                if not isinstance(template, str):
                    raise MeshError(f"{at}: field 'template_name': found {shortened(template)}, expected a name")
                found = known[template]
                placed = place(found, {"translation_origin": origin, **row}, at) if found else []
                number += 1
                category = self._category(section, found, names) if found else ""
                present = [
                    part._replace(object_id=number, category=category)
                    for part in placed if os.path.isfile(part.asset.path)
                ]  # fmt: skip
                if len(present) < len(placed) or found is None:
                    missing.append(template)
                parts += present
        given = data.get("navmesh_instance") or name
        if not isinstance(given, str):
            raise MeshError(f"{where}: field 'navmesh_instance': found {shortened(given)}, expected a name")
        navmesh = self._navmesh(given, self.path.parent / "navmeshes" / name, name)
        return SceneSource(name, tuple(parts), navmesh, tuple(dict.fromkeys(missing)), self.path.parent / "prepared")

    def _read_lexicons(self, data: dict) -> dict[str, Path]:
        """Lexicons (category names) and annotation files, by name: files in the config, and in its search folders."""
        cell = data.get("semantic_scene_descriptor_instances", {})
        where = f"{self.path}: field 'semantic_scene_descriptor_instances'"
        if not isinstance(cell, dict):
            raise MeshError(f"{where}: found {shortened(cell)}, expected an object of paths")
        found = {}
        for extension, patterns in _typed(cell, "paths", dict, where).items():
            suffix = extension if extension in ANNOTATIONS else ".json"
            if not isinstance(patterns, list) or not all(isinstance(p, str) and "\0" not in p for p in patterns):
                raise MeshError(f"{where}: paths: found {shortened(patterns)}, expected a list of paths")
            found.update({file.name.removesuffix(suffix): file for file in self._search(patterns, suffix)})
        named = {name: file for name, file in cell.items() if isinstance(file, str) and "\0" not in file}
        return found | {name: self.path.parent / file for name, file in named.items()}

    def _names(self, instance: dict) -> dict[int, str]:
        """Category names by `semantic_id`, from the lexicon of a scene instance.

        A lexicon is {"classes": [{"name": "chair", "id": 20}, ...]} (ReplicaCAD, HSSD). Without a lexicon,
        objects have no categories. MeshError for a file of another form.
        """
        name = instance.get("semantic_scene_instance")
        file = self._lexicons.get(name) if isinstance(name, str) else None
        if file is None or not os.path.isfile(file) or file.suffix != ".json":
            return {}
        classes = _object(file).get("classes", [])
        if not isinstance(classes, list) or not all(
            isinstance(row, dict) and isinstance(row.get("name"), str) and isinstance(row.get("id"), int)
            for row in classes
        ):
            raise MeshError(
                f"{file}: field 'classes': found {shortened(classes)}, expected objects with a name and an id"
            )
        return {row["id"]: row["name"] for row in classes}

    def _category(self, section: str, template: _Template, names: dict[int, str]) -> str:
        """The category of a template; "" where its config or the lexicon has none."""
        number = template.attributes(self._defaults[section]).get("semantic_id") if names else None
        return names.get(number, "") if isinstance(number, int) else ""

    def _stage(self, name: str, where: str, descriptor: Path | None) -> Part:
        """A stage. `descriptor`: its annotation file; the stage's own is used for None, or for a lexicon of objects."""
        template = self._find("stages", name)
        if template is None:
            raise MeshError(
                f"{where}: found no stage {name!r} in {self.path}, which has {len(self._templates['stages'])}"
            )
        attributes = template.attributes(self._defaults["stages"])
        asset = asset_of(attributes, template.file.parent, template.handle, is_stage=True)
        usable = descriptor is not None and descriptor.suffix in ANNOTATIONS and os.path.isfile(descriptor)
        return Part(with_descriptor(asset, descriptor) if usable else asset)

    def _place_object(self, template: _Template, row: dict, where: str) -> list[Part]:
        attributes = template.attributes(self._defaults["objects"])
        asset = asset_of(attributes, template.file.parent, template.handle, is_stage=False)
        scale = _uniform_scale(row, where) * np.array(vector(row, "non_uniform_scale", where, (1.0, 1.0, 1.0)))
        at_centre = str(row.get("translation_origin")).lower() != "asset_local"
        return [Part(asset, _rotation(row, where) * scale, _translation(row, where), at_centre)]

    def _place_articulated(self, template: _Template, row: dict, where: str) -> list[Part]:
        attributes = template.attributes(self._defaults["articulated_objects"])
        name = attributes.get("urdf_filepath")
        if not isinstance(name, str):
            raise MeshError(f"{template.handle}: field 'urdf_filepath': found {shortened(name)}, expected a path")
        positions = row.get("initial_joint_pose", {})
        if not isinstance(positions, Mapping) or not all(map(is_number, positions.values())):
            positions = {}  # a list refers to Bullet's numbering of joints, which is in no file
        path = template.file.parent / name
        if not os.path.isfile(path):
            return []
        linear, translation = _rotation(row, where) * _uniform_scale(row, where), _translation(row, where)
        return [
            part._replace(linear=linear @ part.linear, translation=translation + linear @ part.translation)
            for part in read_urdf(path, positions)
        ]

    def _navmesh(self, *names: str | Path) -> Path | None:
        """The first existing navmesh: by name in the config, otherwise by file name."""
        for name in names:
            found = self._navmeshes.get(str(name)) or Path(name).with_name(f"{_stem(Path(name))}.navmesh")
            if os.path.isfile(found):
                return found
        return None

    def _find(self, section: str, name: str) -> _Template | None:
        """A template by its file name, otherwise the first template whose path contains the name."""
        return self._find_all(section, {name})[name]

    def _find_all(self, section: str, names: Iterable[str]) -> dict[str, _Template | None]:
        """`_find` for many names, in time linear in the characters of names and templates."""
        templates = self._templates[section]
        found = {name: templates.get(Path(name).name) or templates.get(_stem(Path(name))) for name in names}
        if unknown := [name for name, template in found.items() if template is None]:
            listed = list(templates.values())
            first = first_containing([template.handle for template in listed], unknown)
            found |= {name: listed[i] for name, i in first.items()}
        return found

    def _read_section(self, data: dict, section: str) -> dict[str, _Template]:
        cell = data.get(section, {})
        where = f"{self.path}: field {section!r}"
        paths, configs = _typed(cell, "paths", dict, where), _typed(cell, "configs", list, where)
        self._defaults[section] = _typed(cell, "default_attributes", dict, where)
        found: dict[str, _Template] = {}
        for extension, patterns in paths.items():
            suffix = _SUFFIX[section] if extension.endswith(".json") else extension
            if not isinstance(patterns, list) or not all(isinstance(p, str) and "\0" not in p for p in patterns):
                raise MeshError(f"{where}: paths[{extension!r}]: found {shortened(patterns)}, expected a list of paths")
            for file in self._search(patterns, suffix):
                # A config file takes precedence over a mesh file of the same name.
                if suffix.endswith(".json") or _stem(file) not in found:
                    found[_stem(file)] = _Template(file.as_posix(), file, {})
        files = list(found.values())
        originals = [row.get("original_file") for row in configs if isinstance(row, dict)]
        bases = first_containing([t.handle for t in files], [name for name in originals if isinstance(name, str)])
        for i, row in enumerate(configs):
            added = _typed(row, "attributes", dict, f"{where}: configs[{i}]")
            handle, original = row.get("template_handle"), row.get("original_file")
            base = files[bases[original]] if isinstance(original, str) and original in bases else None
            name = handle or (base and _stem(base.file))
            if not isinstance(name, str):
                raise MeshError(f"{where}: configs[{i}]: found neither a template_handle nor a known original_file")
            found[name] = _Template(name, base.file if base else self.path, {**(base.added if base else {}), **added})
        return found

    def _search(self, patterns: Iterable[str], suffix: str) -> list[Path]:
        """Files that end in `suffix`: matches of a pattern, and files directly in matching folders."""
        files: set[Path] = set()
        for pattern in patterns:
            found = self._search_paths.files(pattern)
            files.update(file for file in found if file.name.endswith(suffix) and not is_hidden(file))
        return sorted(files, key=natural_order)


def _object(path: Path) -> dict:
    data = read_json(path, MeshError)
    if not isinstance(data, dict):
        raise MeshError(f"{path}: found {type(data).__name__}, expected an object")
    return data


def _typed(cell: Any, field: str, kind: type, where: str) -> Any:
    """A field of a type; its empty value where the field is absent. MeshError for another type."""
    value = cell.get(field, kind()) if isinstance(cell, dict) else cell
    if not isinstance(value, kind):
        raise MeshError(f"{where}: field {field!r}: found {shortened(value)}, expected {kind.__name__}")
    return value


def _rotation(row: dict, where: str) -> np.ndarray:
    """f64 [3, 3]: rotation of an instance, from its quaternion [w, x, y, z]."""
    rotation = unit(vector(row, "rotation", where, (1.0, 0.0, 0.0, 0.0), length=4))
    if rotation is None:
        raise MeshError(f"{where}: field 'rotation': found zeros, expected a quaternion [w, x, y, z]")
    return Rotation.from_quat(np.roll(rotation, -1)).as_matrix()


def _translation(row: dict, where: str) -> np.ndarray:
    return np.array(vector(row, "translation", where, (0.0, 0.0, 0.0)))


def _stage_stem(name: str) -> str:
    """Name of a scene without folder and suffixes."""
    return _stem(Path(name)).removesuffix(".basis")


def _uniform_scale(row: dict, where: str) -> float:
    scale = row.get("uniform_scale", 1.0)
    if not is_number(scale) or not math.isfinite(scale):
        raise MeshError(f"{where}: field 'uniform_scale': found {shortened(scale)}, expected a number")
    return float(scale)


def _stem(file: Path) -> str:
    """File name without the suffix of its kind."""
    name = file.name
    for suffix in (*_SUFFIX.values(), ".glb", ".gltf", ".obj", ".ply", ".stl", ".urdf", ".navmesh"):
        name = name.removesuffix(suffix)
    return name
