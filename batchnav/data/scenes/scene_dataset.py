"""Habitat's scene datasets: `*.scene_dataset_config.json`, and the `*.scene_instance.json` that place objects.

A config lists the files that describe stages, objects, articulated objects and scene instances; paths are relative to
its folder. A name in a scene instance refers to the template with that file name, otherwise to the first template whose
path contains the name. Names in files may be arbitrary strings: `os.path.isfile` returns False where `Path.is_file`
raises.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from batchnav.data.files import is_number, natural_order, read_json
from batchnav.data.scenes.annotations import ANNOTATIONS
from batchnav.data.scenes.asset import Part, asset_of, unit, vector, with_descriptor
from batchnav.data.scenes.mesh_files import is_hidden
from batchnav.data.scenes.search import Search, first_containing
from batchnav.data.scenes.source import STAGE_CONFIG, SceneSource, scene_id_of
from batchnav.data.scenes.urdf import read_urdf
from batchnav.errors import MeshError, shortened

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
