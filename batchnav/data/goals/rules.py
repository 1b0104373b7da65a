"""Rules of published ObjectNav datasets as presets: view points, episodes, and the category of each label of a scene.

Sources: the generator of Open-Vocabulary ObjectNav (Yokoyama et al., 2024), that of HSSD (Khanna et al., 2023), the
training code of ProcTHOR (Deitke et al., 2022), and measurements on the HM3D v2 files.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from batchnav.config import read_yaml
from batchnav.errors import ArgumentError, ConfigError, shortened
from batchnav.tasks.objectnav import HM3D


@dataclass(frozen=True)
class ViewPointRules:
    """Candidates for view points, and the coverage that they need."""

    step: float
    """Spacing of candidates along x and z, metres."""
    camera_height: float
    """Metres above the navmesh."""
    image: tuple[int, int, float]
    """Height and width of the image in pixels, and horizontal field of view in degrees."""
    pitches_deg: tuple[float, ...] = (0.0, 0.0, 0.0)
    """Pitch of each view; coverages add up to the score. Habitat's generators render three views; in HM3D v2 all three
    are level."""
    min_iou: float = 0.0
    """A view point has a greater score than this."""
    max_distance: float = 1.0
    """Largest horizontal distance from the object's boxes, metres."""
    max_depth: float = math.inf
    """Planar depth up to which pixels of the object count, metres."""
    min_island_radius: float = 1.5
    """Smallest island of the navmesh, metres."""


@dataclass(frozen=True)
class EpisodeRules:
    """Limits of an episode: start, distance and path."""

    closest: float = 1.0
    """Shortest geodesic distance to the nearest view point, metres."""
    furthest: float = 30.0
    """Longest geodesic distance to the nearest view point, metres."""
    max_height: float = 0.05
    """Largest height difference between the start and some view point of the category, metres."""
    max_path_height: float = math.inf
    """Largest height difference along the shortest path, metres."""
    min_detour_ratio: float = 1.05
    """Ratio of geodesic to Euclidean distance below which episodes are rejected."""
    some_straight: bool = True
    """True to keep an episode below the ratio r with probability 20 (r - 0.98)^2; False to reject all of them."""
    min_island_radius: float = 1.5
    """Smallest island of the navmesh, metres."""


@dataclass(frozen=True)
class Rules:
    """One preset."""

    name: str
    view_points: ViewPointRules
    episodes: EpisodeRules = EpisodeRules()
    labels: str = "hm3d"
    """Name of the label map in `LABELS`."""


_TILTED = (-30.0, 0.0, 30.0)
RULES = {
    rules.name: rules
    for rules in (
        Rules("hm3d_v2", ViewPointRules(0.085, 1.31, (240, 320, 90.0))),
        Rules(
            "hssd", ViewPointRules(0.09, 0.88, (128, 128, 90.0), _TILTED, min_iou=0.001),
            EpisodeRules(max_height=0.5), "hssd",
        ),
        Rules(
            "ovon", ViewPointRules(0.25, 1.31, (512, 512, 90.0), _TILTED, min_iou=0.05),
            EpisodeRules(max_height=math.inf, max_path_height=0.25, some_straight=False), "all",
        ),
        Rules(
            "procthor", ViewPointRules(0.085, 0.9, (240, 320, 90.0), _TILTED, max_depth=1.0),
            EpisodeRules(max_height=0.5), "procthor",
        ),
    )
}  # fmt: skip
"""Presets by name. "procthor" is visibility within 1 m; its camera may look up and down by 30 degrees."""


def rules_named(rules: str | Rules) -> Rules:
    """A preset by name; other rules are returned unchanged. ArgumentError for an unknown name."""
    if isinstance(rules, Rules):
        return rules
    if not isinstance(rules, str) or rules not in RULES:
        raise ArgumentError(f"rules: found {shortened(rules)}, expected one of {', '.join(RULES)}, or a Rules")
    return RULES[rules]


_PLANT = ("plant", "flower")
"""A label that contains one of these words is a plant in HM3D."""
_NEW_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\s_]+")
"""What separates the words of a label: spaces, underscores, and capitals in camel case."""
LABEL_FILES = (".yaml", ".yml")
"""Suffixes of files with patterns of labels."""


def words_of(label: str) -> str:
    """The words of a label in lower case: "arm chair" for "arm_chair", "ArmChair" and "Arm chair"."""
    return " ".join(word.lower() for word in _NEW_WORD.split(label) if word)


@dataclass(frozen=True)
class LabelMap:
    """Categories of a dataset, and the labels that belong to each; `words_of` makes labels alike."""

    categories: tuple[str, ...]
    """Names of the categories in the order of their ids; empty: every label is a category."""
    synonyms: Mapping[str, str]
    """Category by label, for labels that are not a category's name; lower case."""
    any_plant: bool = False
    """True where every label that contains "plant" or "flower" belongs to the category "plant"."""
    last_words: Mapping[str, str] = field(default_factory=dict)
    """Category by the last words of a name with underscores or in camel case, such as "my_room_ChairA_02"; letters and
    numbers at its end do not count."""
    patterns: tuple[tuple[str, str], ...] = ()
    """Patterns (`*`, `?`) of labels or their words, with their categories; the first match counts, before the rest."""

    def category(self, label: str) -> str | None:
        """The category of a label of the scene; None where the dataset does not ask for it."""
        words, text = words_of(label), label.strip().lower()
        for pattern, name in self.patterns:
            if fnmatch.fnmatchcase(words, words_of(pattern)) or fnmatch.fnmatchcase(text, pattern.lower()):
                return name
        if self.any_plant and any(word in words for word in _PLANT):
            return "plant"
        if not self.categories:
            return self.synonyms.get(text, text) or None
        found = self._by_words
        return found.get(words) or found.get(text) or self._by_last_words(text, words)

    @cached_property
    def _by_words(self) -> dict[str, str]:
        """Category by its name in lower case, and by the words of its name and of its synonyms."""
        names = {name.lower(): name for name in self.categories}
        synonyms = {words_of(label): names[name.lower()] for label, name in self.synonyms.items()}
        return synonyms | {words_of(name): name for name in self.categories} | names

    def _by_last_words(self, text: str, words: str) -> str | None:
        if words == text:  # plain words, as in published annotations
            return None
        kept = words.split()
        while kept and (len(kept[-1]) == 1 or kept[-1].isdigit()):
            kept.pop()
        ends = (" ".join(kept[i:]) for i in range(len(kept)))
        return next((self.last_words[end] for end in ends if end in self.last_words), None)

    @property
    def ids(self) -> dict[str, int]:
        """Id of each category, as in the dataset's files."""
        return {name: number for number, name in enumerate(self.categories)}


_HM3D_LABELS = {
    "chair": (
        "arm chair, armchair, ball chair, bar chair, bean bag chair, beanbag, beanbag chair, camping chair, "
        "chaise, computer chair, deck chair, desk chair, dining chair, dinner chair, double armchair, easy chair, "
        "folded chair, folded chairs, folding chair, garden chair, high chair, highchair, highchairs, "
        "kitchen chair, lounge chair, office chair, patio chair, recliner, rocking chair, round chair, sofa chair, "
        "soft chair, spa armchair, stack of chairs, stacked chair, stacked chairs, swivel chair, table chair, "
        "therapeutic chair"
    ),
    "bed": (
        "bed base, bed frame, bed sheet, bedframe, bedpost, bunk bed, cat bed, cradle, dog bed, hammock, "
        "headboard, massage bed, mattress"
    ),
    "plant": "grass, tree, twigs in vase, vegetation",
    "toilet": "bidet, cat litter box, cats toilet, chamber pot, toilet seat",
    "tv_monitor": "bulletin board, display, monitor, plasma tv, television, tube, tv, tv led, tv_screen, whiteboard",
    "sofa": "chaise longue, circular sofa, couch, l-shaped sofa, sofa set",
}
"""Labels by category: those of HM3D, correctly spelled, by the table that the generators of HM3D and OVON read; and
"television" and "tv_screen" of other datasets."""
_LAST_WORDS = {
    "chair": "chair", "armchair": "chair", "bed": "bed", "toilet": "toilet", "tv": "tv_monitor",
    "television": "tv_monitor", "tv monitor": "tv_monitor", "sofa": "sofa", "couch": "sofa",
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
_PROCTHOR_LABELS = {
    "alarm_clock": "AlarmClock", "baseball_bat": "BaseballBat", "trash_can": "GarbageCan", "plant": "HousePlant",
    "cup": "Mug", "tv_monitor": "Television",
}  # fmt: skip
"""Labels of imported houses (`data/procthor.py`), which tell neither balls from toys nor bottles apart."""
_PROCEDURAL = (
    *HM3D, "basket", "bathtub", "cabinet", "chest_of_drawers", "coat_rack", "counter", "desk", "laptop", "mirror",
    "nightstand", "oven", "radiator", "refrigerator", "shelving", "shower", "sink", "stool", "stove", "table", "vase",
    "wardrobe", "washing_machine",
)  # fmt: skip

LABELS = {
    "hm3d": LabelMap(
        HM3D,
        {label: name for name, labels in _HM3D_LABELS.items() for label in labels.split(", ")},
        any_plant=True,
        last_words=_LAST_WORDS,
    ),
    "mp3d": LabelMap(_MP3D, {}),
    "hssd": LabelMap(_HSSD, {"plant": "potted_plant", "tv_monitor": "tv", "couch": "sofa"}),
    "procthor": LabelMap(_PROCTHOR, _PROCTHOR_LABELS),
    "procedural": LabelMap(_PROCEDURAL, {}),
    "all": LabelMap((), {}),
}
"""Label maps by name. Those of datasets also know the labels of procedural scenes, which are mpcat40's."""


def labels_named(labels: str | LabelMap) -> LabelMap:
    """A label map by name, or of a file of patterns; another map is returned unchanged. ArgumentError for others."""
    if isinstance(labels, LabelMap):
        return labels
    if isinstance(labels, str) and labels.lower().endswith(LABEL_FILES):
        return read_labels(Path(labels))
    if not isinstance(labels, str) or labels not in LABELS:
        raise ArgumentError(
            f"labels: found {shortened(labels)}, expected one of {', '.join(LABELS)}, a .yaml file of patterns, or a "
            "LabelMap"
        )
    return LABELS[labels]


def read_labels(path: Path) -> LabelMap:
    """The label map of a YAML file with a pattern, or a list of patterns, for each category.

        chair: ["*chair*", stool]
        shelf: "*shel[fv]*"

    Categories have the order of the file. ArgumentError for any other content.
    """
    try:
        table = read_yaml(path)
    except ConfigError as error:
        raise ArgumentError(f"labels: {error}") from error
    patterns = []
    for name, found in table.items() if isinstance(table, dict) else ():
        texts = found if isinstance(found, list) else [found]
        if not isinstance(name, str) or not texts or not all(isinstance(text, str) and text for text in texts):
            raise ArgumentError(
                f"labels: {path}: category {shortened(name)}: found {shortened(found)}, expected patterns, such as "
                '["*chair*"]'
            )
        patterns += [(text, name) for text in texts]
    if not patterns:
        raise ArgumentError(f'labels: {path}: found no category, expected some with patterns, as in chair: ["*chair*"]')
    return LabelMap(tuple(table), {}, patterns=tuple(patterns))
