"""Appearance of ProcTHOR houses: materials from their names and colours, categories from asset ids.

A material is a Unity name and, for paint, a colour; texture images are not part of the houses. Words in the name select
the most similar texture of the library, and a colour. Each asset has one muted colour in all places.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from batchnav.data.files import is_number
from batchnav.procedural.materials.finishes import Finish
from batchnav.procedural.materials.surface import make_surface
from batchnav.procedural.materials.textures import FIRST, TEXTURE_FAMILIES, Color, hsv
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import Group, Run
from batchnav.types import Surface

_FAMILY_WORDS = (
    ("brick", "tiles"), ("tile", "tiles"), ("marble", "stone"), ("granite", "stone"), ("concrete", "plain"),
    ("wicker", "wicker"), ("carpet", "carpet"), ("wood", "planks"), ("plank", "planks"), ("floor", "planks"),
    ("cabinet", "planks"), ("counter", "planks"),
)  # fmt: skip
"""Words in material names, each with a family of textures; the first match counts."""
_COLORS: tuple[tuple[str, Color], ...] = (
    ("pureblack", (0.12, 0.12, 0.12)), ("darkwood", (0.36, 0.24, 0.17)), ("lightwood", (0.80, 0.66, 0.48)),
    ("mediumwood", (0.62, 0.45, 0.30)), ("offwhite", (0.93, 0.91, 0.86)), ("white", (0.94, 0.93, 0.91)),
    ("black", (0.14, 0.13, 0.13)), ("dark", (0.36, 0.25, 0.19)), ("pale", (0.84, 0.74, 0.60)),
    ("cream", (0.92, 0.86, 0.73)), ("eggshell", (0.92, 0.89, 0.82)), ("beige", (0.85, 0.77, 0.65)),
    ("yellow", (0.90, 0.80, 0.48)), ("orange", (0.80, 0.50, 0.26)), ("pink", (0.87, 0.67, 0.65)),
    ("robinegg", (0.55, 0.78, 0.78)), ("red", (0.60, 0.28, 0.22)), ("green", (0.45, 0.58, 0.42)),
    ("blue", (0.40, 0.52, 0.66)), ("grey", (0.58, 0.57, 0.55)), ("gray", (0.58, 0.57, 0.55)),
    ("tan", (0.75, 0.63, 0.48)), ("brown", (0.47, 0.33, 0.23)), ("brick", (0.62, 0.36, 0.29)),
    ("drywall", (0.88, 0.86, 0.82)), ("marble", (0.88, 0.86, 0.83)), ("granite", (0.70, 0.68, 0.66)),
    ("concrete", (0.68, 0.67, 0.64)), ("tile", (0.85, 0.84, 0.82)), ("wood", (0.66, 0.49, 0.33)),
)  # fmt: skip
"""Words in material names, each with a colour; the first match counts."""
_UNNAMED: Color = (0.82, 0.79, 0.74)
_CEILING: Color = (0.95, 0.94, 0.92)
"""Colours of walls and floors, and of ceilings, whose material gives no colour."""
_CATEGORIES = (
    ("walldecor", "picture"), ("painting", "picture"), ("toiletpaper", "toilet_paper"), ("tvstand", "cabinet"),
    ("desklamp", "lighting"), ("floorlamp", "lighting"), ("lamp", "lighting"), ("chair", "chair"), ("sofa", "sofa"),
    ("bathtub", "bathtub"), ("showercurtain", "curtain"), ("shower", "shower"), ("television", "tv_monitor"),
    ("desktop", "tv_monitor"), ("laptop", "laptop"), ("table", "table"), ("desk", "desk"), ("houseplant", "plant"),
    ("plant", "plant"), ("toilet", "toilet"), ("fridge", "refrigerator"), ("dresser", "chest_of_drawers"),
    ("shelving", "shelving"), ("stool", "stool"), ("ottoman", "stool"), ("countertop", "counter"), ("sink", "sink"),
    ("washing", "washing_machine"), ("pillow", "cushion"), ("towel", "towel"), ("mug", "cup"), ("cup", "cup"),
    ("winebottle", "bottle"), ("spraybottle", "bottle"), ("soapbottle", "bottle"), ("bottle", "bottle"),
    ("basketball", "toy"), ("teddy", "toy"), ("bowl", "bowl"), ("vase", "vase"), ("plate", "plate"), ("book", "book"),
    ("garbagebag", "garbage_bag"), ("garbage", "trash_can"), ("bin", "trash_can"), ("dogbed", "dog_bed"),
    ("bed", "bed"), ("cart", "cart"), ("box", "box"), ("mirror", "mirror"), ("clothes", "clothes"),
)  # fmt: skip
"""Words in asset ids without underscores, each with a category of procedural houses; the first match counts."""


def category_of(asset: str) -> str:
    """The category of an asset: a word of `_CATEGORIES`, otherwise the first words of the id ("alarm_clock")."""
    plain = asset.lower().replace("_", "").removeprefix("robothor")
    for word, category in _CATEGORIES:
        if word in plain:
            return category
    words = re.split(r"[^A-Za-z_]", asset.removeprefix("RoboTHOR_"))[0].strip("_")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", words).lower() or "object"


class HouseMaterials:
    """The materials of one house: each has a name for `Solids.material`, and a `Finish` (texture and colour)."""

    def __init__(self) -> None:
        self._finishes: dict[str, Finish] = {}

    def wall(self, wall: dict) -> str:
        """Material of a wall."""
        return self._material(wall.get("material"), _UNNAMED, "plain")

    def floor(self, room: dict) -> str:
        """Material of a room's floor."""
        return self._material(room.get("floorMaterial"), _UNNAMED, "planks")

    def ceiling(self, house: dict) -> str:
        """Material of all ceilings."""
        parameters = house.get("proceduralParameters")
        material = parameters.get("ceilingMaterial") if isinstance(parameters, dict) else None
        return self._material(material, _CEILING, "plain")

    def asset(self, asset: str) -> str:
        """Material of an object, by its asset id."""
        rng = RandomStream(zlib.crc32(asset.encode("utf-8", "surrogatepass")))
        color = hsv(rng.uniform(0.0, 1.0), rng.uniform(0.05, 0.45), rng.uniform(0.3, 0.85))
        if category_of(asset) == "plant":
            color = hsv(rng.uniform(0.22, 0.36), rng.uniform(0.3, 0.6), rng.uniform(0.35, 0.65))
        return self._added(f"asset {asset}", Finish(color))

    def surface(self, record: Sequence[Run | Group], vertices: np.ndarray, faces: np.ndarray) -> Surface:
        """The surface of a house.

        Args:
            record: `Solids.record` of the house.
            vertices: f64 [V, 3], metres.
            faces: i32 [F, 3].
        """
        names = sorted({group.category for group in record if isinstance(group, Group)} - {""})
        shape = vertices, faces, np.ones(len(faces), bool)
        return make_surface(RandomStream(0), self._finishes.__getitem__, record, shape, ("", *names))

    def _material(self, material: Any, default: Color, family: str) -> str:
        """A material from JSON: a name, or an object with a name and, for paint, a colour. Returns its new name.

        Args:
            material: the JSON value.
            default: colour where neither the value nor a word in its name gives one.
            family: family of textures where no word in the name gives one.
        """
        fields = material if isinstance(material, dict) else {"name": material}
        name, color = fields.get("name"), fields.get("color")
        name = name if isinstance(name, str) else ""
        plain = re.sub(r"[^a-z]", "", name.lower())
        if isinstance(color, dict) and all(is_number(color.get(c)) and 0 <= color[c] <= 1 for c in "rgb"):
            tint = color["r"], color["g"], color["b"]
        else:
            tint = next((known for word, known in _COLORS if word in plain), default)
        family = next((known for word, known in _FAMILY_WORDS if word in plain), family)
        number = zlib.crc32(name.encode("utf-8", "surrogatepass")) % TEXTURE_FAMILIES[family].size
        return self._added(f"material {name} {tint} {family}", Finish(tint, FIRST[family] + number))

    def _added(self, name: str, finish: Finish) -> str:
        """Store a material; returns its name."""
        self._finishes[name] = finish
        return name
