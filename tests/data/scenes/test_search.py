"""Search paths of datasets: what patterns match, bounds, cycles, and names with special characters."""

import os

import numpy as np
import pytest
from worlds import write_episodes, write_floor, write_json

import batchnav
from batchnav.data.scenes import search
from batchnav.data.scenes.scene_dataset import SceneDatasetConfig
from batchnav.data.scenes.search import Search, first_containing
from batchnav.errors import ArgumentError, MeshError
from batchnav.runtime.files import remove_leftovers

NAMES = ("stages/a.glb", "stages/b.glb", "stages/.hidden.glb", "stages/deep/c.glb", "objects/a.json", "x[1].glb")


@pytest.fixture
def folder(tmp_path):
    """A folder whose own name is a pattern."""
    for name in NAMES:
        file = tmp_path / "set [v2]" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return tmp_path / "set [v2]"


def test_files_in_matching_folders(folder):
    assert [file.name for file in Search("own", folder).files("stages")] == [".hidden.glb", "a.glb", "b.glb", "deep"]


@pytest.mark.parametrize("pattern", ["*/" * 18 + "*", "../*/" + "*/" * 10 + "*.glb", "*/.." * 12])
def test_links_to_folders_above_are_not_followed(pattern, folder):
    for name, target in (("one", "."), ("two", "."), ("three", ".."), ("stages/four", "../stages"), ("five", "five")):
        (folder / name).symlink_to(target)
    assert len(Search("own", folder).files(pattern)) <= 100
    config = write_json(folder / "own.scene_dataset_config.json", {"stages": {"paths": {".glb": [pattern]}}})
    assert len(SceneDatasetConfig(config).scene_names) <= 4


def test_entries_are_bounded(folder, monkeypatch):
    monkeypatch.setattr(search, "MAX_ENTRIES", 4)
    with pytest.raises(MeshError, match=r"own: pattern '\*/\*': searched more than 4 files and folders, expected"):
        Search("own", folder).files("*/*")


def test_a_folder_that_cannot_be_read_holds_nothing(folder, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert Search("own", folder).files("/*/*/*/*/*") == Search("own", folder).files("stages") == []


def test_a_link_that_cannot_be_read_is_left_out(folder, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    (folder / "link").symlink_to("stages")
    assert [file.name for file in Search("own", folder).files("l*/a.glb")] == ["a.glb"]
    monkeypatch.setattr(os.path, "realpath", refuse)
    assert Search("own", folder).files("l*/a.glb") == []
    assert [file.name for file in Search("own", folder).files("st*/a.glb")] == ["a.glb"]


def test_a_data_set_below_a_folder_with_special_characters(folder):
    write_floor(folder / "stages" / "floor.ply")
    config = write_json(folder / "own.scene_dataset_config.json", {"stages": {"paths": {".ply": ["stages/*.ply"]}}})
    assert len(SceneDatasetConfig(config).scene_names) == 1
    write_floor(folder / "scene_datasets" / "own" / "floor.glb", up="z")
    split = write_episodes(folder / "datasets" / "pointnav" / "own" / "v1" / "val" / "val.json.gz", ["own/floor.glb"])
    assert batchnav.load_dataset(folder / "scene_datasets" / "own", split="val").episode_file == split
    assert batchnav.load_dataset(folder / "scene_datasets" / "own", split="[v]al").episode_file is None
    for split in ("", "../val", "a\0b"):
        with pytest.raises(ArgumentError, match=r"split: found .* expected a name"):
            batchnav.load_dataset(folder / "scene_datasets" / "own", split=split)


def test_leftovers_of_a_name_with_special_characters(tmp_path):
    left, other = tmp_path / ".a[1].pt.0123abcd.part", tmp_path / ".a1.pt.0123abcd.part"
    for file in (left, other):
        file.touch()
    remove_leftovers(tmp_path / "a[1].pt")
    assert not left.exists() and other.exists()


def test_the_first_text_that_contains_a_word():
    rng = np.random.default_rng(0)
    texts, words = (
        ["".join(rng.choice(list("ab/"), rng.integers(high))) for _ in range(200)] for high in (30, 9)
    )  # fmt: skip
    expected = {word: next((i for i, text in enumerate(texts) if word in text), None) for word in words if word}
    assert first_containing(texts, words) == {word: i for word, i in expected.items() if i is not None}
    assert first_containing([], ["a"]) == first_containing(["a"], []) == {}
    deep = "a" * 100_000
    assert first_containing([deep], [deep, deep[1:], "ab"]) == {deep: 0, deep[1:]: 0}
