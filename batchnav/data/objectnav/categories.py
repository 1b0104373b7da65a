"""Goal categories of published ObjectNav datasets: their ids, and the category of each label of a scene."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from batchnav.errors import ArgumentError

_PLANT = ("plant", "flower")
"""A label that contains one of these words is a plant in HM3D."""


@dataclass(frozen=True)
class LabelMap:
    """Categories of a dataset, and the labels that belong to each."""

    categories: tuple[str, ...]
    """Names of the categories in the order of their ids; empty: every label is a category."""
    synonyms: Mapping[str, str]
    """Category by label, for labels that are not a category's name; lower case."""
    any_plant: bool = False
    """True where every label that contains "plant" or "flower" belongs to the category "plant"."""

    def category(self, label: str) -> str | None:
        """The category of a label of the scene; None where the dataset does not ask for it."""
        label = label.strip().lower()
        if self.any_plant and any(word in label for word in _PLANT):
            return "plant"
        name = self.synonyms.get(label, label)
        if not self.categories:
            return name or None
        return self._by_lower.get(name.lower())

    @property
    def _by_lower(self) -> dict[str, str]:
        return {name.lower(): name for name in self.categories}

    @property
    def ids(self) -> dict[str, int]:
        """Id of each category, as in the dataset's files."""
        return {name: number for number, name in enumerate(self.categories)}


_HM3D = ("chair", "bed", "plant", "toilet", "tv_monitor", "sofa")
_HM3D_LABELS = {
    "armchair": "chair", "office chair": "chair", "dining chair": "chair", "desk chair": "chair", "chairs": "chair",
    "beds": "bed", "bunk bed": "bed", "toilet seat": "toilet", "tv": "tv_monitor", "television": "tv_monitor",
    "monitor": "tv_monitor", "tv monitor": "tv_monitor", "couch": "sofa", "sofa bed": "sofa",
}  # fmt: skip
_MP3D = (
    "chair", "table", "picture", "cabinet", "cushion", "sofa", "bed", "chest_of_drawers", "plant", "sink", "toilet",
    "stool", "towel", "tv_monitor", "shower", "bathtub", "counter", "fireplace", "gym_equipment", "seating", "clothes",
)  # fmt: skip
_HSSD = ("bed", "chair", "potted_plant", "sofa", "toilet", "tv")
_PROCTHOR = (
    "AlarmClock", "Apple", "BaseballBat", "BasketBall", "Bed", "Bowl", "Chair", "GarbageCan", "HousePlant", "Laptop",
    "Mug", "Sofa", "SprayBottle", "Television", "Toilet", "Vase",
)  # fmt: skip
_PROCEDURAL = (
    *_HM3D, "basket", "bathtub", "cabinet", "chest_of_drawers", "coat_rack", "counter", "desk", "laptop", "mirror",
    "nightstand", "oven", "radiator", "refrigerator", "shelving", "shower", "sink", "stool", "stove", "table", "vase",
    "wardrobe", "washing_machine",
)  # fmt: skip

LABELS = {
    "hm3d": LabelMap(_HM3D, _HM3D_LABELS, any_plant=True),
    "mp3d": LabelMap(_MP3D, {}),
    "hssd": LabelMap(_HSSD, {"plant": "potted_plant", "tv_monitor": "tv", "couch": "sofa"}),
    "procthor": LabelMap(_PROCTHOR, {"plant": "HousePlant", "tv_monitor": "Television", "cup": "Mug"}),
    "procedural": LabelMap(_PROCEDURAL, {}),
    "all": LabelMap((), {}),
}
"""Label maps by name. Those of datasets also know the labels of procedural scenes, which are mpcat40's."""


def labels_named(labels: str | LabelMap) -> LabelMap:
    """A label map by name; another map is returned unchanged. ArgumentError for an unknown name."""
    if isinstance(labels, LabelMap):
        return labels
    if labels not in LABELS:
        raise ArgumentError(f"labels: found {labels!r}, expected one of {', '.join(LABELS)}")
    return LABELS[labels]
