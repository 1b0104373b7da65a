"""Procedural scenes: furnished and coloured scenes from seeds, free of third-party licences.

`FAMILIES` lists the scene families. A new family needs its maker, `make(seed, surface) -> TriangleMesh`, and one line
in `FAMILIES`. A maker goes from a floor plan (`plans.py`) to walls, floors and ceilings (`walls.py`), furniture
(`furniture/`) and materials (`materials/`); `degrade.py` adds the defects of scanned meshes.

Terms: an *open-plan room* is one large room with windows (`hall:SEED`); a *corridor floor* is a floor of a large
building with rooms along corridors (`building:SEED`); a *room-block floor* is a deep floor where blocks of rooms stand
among wide passages (`block:SEED`); a *degraded scan* is a house or an open-plan room with a scanner's defects: holes,
noise, missing ceilings, floating pieces (`scan:SEED`); an *obstacle course* is a small scene with a narrow gate, walls
without thickness, a ramp between two storeys or a platform (`course:SEED`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from batchnav.procedural.course import COURSE_KINDS, course_kind, make_course
from batchnav.procedural.degrade import degrade, make_scan
from batchnav.procedural.furniture.models import MATERIALS, Furniture, content_of, read_furniture
from batchnav.procedural.house import BENCHMARK_HOUSE, make_house, make_plan
from batchnav.procedural.large_floors import make_block, make_building
from batchnav.procedural.materials.lights import with_lights
from batchnav.procedural.materials.pictures import Pictures, pictures_content, read_pictures, with_pictures
from batchnav.procedural.materials.surface import make_material_library
from batchnav.procedural.materials.textures import replace_textures, restore_textures
from batchnav.procedural.open_plan import make_hall
from batchnav.procedural.random_stream import LARGEST_SEED
from batchnav.types import TriangleMesh

SPLITS = {"train": range(100_000), "val": range(100_000, 110_000), "test": range(110_000, 120_000)}
"""Disjoint seeds of training, validation and test scenes, the same for every scene family."""


class SceneFamily(NamedTuple):
    """One kind of scene that is made from a seed; the scene id is "NAME:SEED"."""

    name: str
    title: str
    """Plural noun phrase for tables and model cards."""
    make: Callable[..., TriangleMesh | tuple[TriangleMesh, TriangleMesh]]
    """make(seed, surface): the mesh; or the mesh to bake the navmesh from, and the mesh that cameras see."""
    episode_files: Mapping[str, str]
    """Names of the fixed PointNav episode files in `assets/episodes`, each with the split of its scenes."""
    splits: Mapping[str, range] = SPLITS
    """Seeds of training, validation and test scenes."""
    takes_options: bool = False
    """True if the maker takes `furniture` and `more_kinds`, as ids with "?furniture=FOLDER" and "?kinds=more" ask."""
    random_materials: bool = True
    """True if the materials of its scenes can be randomised during training (`scenes.randomize_materials`), and by ids
    with "?materials=FOLDER" and "?lights=random"."""

    def meshes(
        self, seed: int, surface: bool, furniture: Furniture | None = None, more_kinds: bool = False
    ) -> tuple[TriangleMesh, TriangleMesh]:
        """The mesh to bake the navmesh from, and the mesh that cameras see; options as in `make_house`."""
        options = {"furniture": furniture, "more_kinds": more_kinds}
        made = self.make(seed, surface, **{name: value for name, value in options.items() if value})
        return (made, made) if isinstance(made, TriangleMesh) else made


FAMILIES = {
    family.name: family
    for family in (
        SceneFamily("house", "procedural houses", make_house, {"val": "val", "test": "test"}, takes_options=True),
        SceneFamily("hall", "open-plan rooms with windows", make_hall, {"hall": "val"}),
        SceneFamily("building", "corridor floors of large buildings", make_building, {"building": "val"}),
        SceneFamily("block", "floors with blocks of rooms among wide passages", make_block, {"block": "val"}),
        SceneFamily("scan", "degraded scans of houses and open-plan rooms", make_scan, {"scan": "val"}),
        SceneFamily(
            "course", "obstacle courses: narrow gates, thin walls, ramps, platforms", make_course, {"course": "val"}
        ),
    )
}
"""Scene families by name."""
EPISODE_FAMILIES = {file: family for family in FAMILIES.values() for file in family.episode_files}
"""The family of each fixed episode file, by the file's name. Each file has one family, since a mean over several
families would hide in which of them an agent fails."""


__all__ = [
    "BENCHMARK_HOUSE",
    "COURSE_KINDS",
    "EPISODE_FAMILIES",
    "FAMILIES",
    "LARGEST_SEED",
    "MATERIALS",
    "SPLITS",
    "Furniture",
    "Pictures",
    "SceneFamily",
    "content_of",
    "course_kind",
    "degrade",
    "make_block",
    "make_building",
    "make_course",
    "make_hall",
    "make_house",
    "make_material_library",
    "make_plan",
    "make_scan",
    "pictures_content",
    "read_furniture",
    "read_pictures",
    "replace_textures",
    "restore_textures",
    "with_lights",
    "with_pictures",
]  # fmt: skip
