"""Label maps: categories and ids of published datasets, and labels of scenes."""

import pytest

from batchnav.data.goals.rules import LABELS
from batchnav.procedural.materials.surface import CATEGORIES


def test_ids_are_those_of_the_published_files():
    assert LABELS["hm3d"].ids == {"chair": 0, "bed": 1, "plant": 2, "toilet": 3, "tv_monitor": 4, "sofa": 5}
    mp3d = LABELS["mp3d"].ids
    assert len(mp3d) == 21 and mp3d["chair"] == 0 and mp3d["tv_monitor"] == 13 and mp3d["clothes"] == 20
    assert LABELS["hssd"].categories == ("bed", "chair", "potted_plant", "sofa", "toilet", "tv")
    assert len(LABELS["procthor"].categories) == 16


@pytest.mark.parametrize("name, label, category", [
    ("hm3d", "armchair", "chair"), ("hm3d", " Couch ", "sofa"), ("hm3d", "toilet seat", "toilet"),
    ("hm3d", "flower vase", "plant"), ("hm3d", "decorative plant", "plant"), ("hm3d", "chaise longue", "sofa"),
    ("hm3d", "tv", "tv_monitor"), ("hm3d", "table", None), ("hm3d", "", None), ("hm3d", "bedside lamp", None),
    ("mp3d", "chest_of_drawers", "chest_of_drawers"), ("mp3d", "wall", None), ("hssd", "tv_monitor", "tv"),
    ("hssd", "plant", "potted_plant"), ("procthor", "tv_monitor", "Television"), ("procthor", "bed", "Bed"),
    ("procthor", "toilet_paper", None), ("all", "Office Chair", "office chair"), ("all", "", None),
])  # fmt: skip
def test_labels_of_scenes(name, label, category):
    assert LABELS[name].category(label) == category


def test_the_categories_of_procedural_scenes_are_labels_of_them():
    procedural = LABELS["procedural"]
    assert set(procedural.categories) <= set(CATEGORIES)
    assert procedural.categories[:6] == LABELS["hm3d"].categories
    assert {LABELS["hm3d"].category(name) for name in CATEGORIES} == {*LABELS["hm3d"].categories, None}
