"""The registry of scene families, and what reads it."""

from batchnav.data.scene_ref import DatasetRef, FileRef, GeneratedRef, has_random_materials, parse_scene_id
from batchnav.procedural import EPISODE_FAMILIES, FAMILIES
from batchnav.report.model_card import EPISODE_TITLES
from batchnav.runtime.files.bundled import find_episodes


def test_every_family_has_scene_ids_titles_and_fixed_episodes():
    assert list(FAMILIES) == ["house", "hall", "building", "block", "scan", "course"]
    assert list(EPISODE_FAMILIES) == ["val", "test", "hall", "building", "block", "scan", "course"]
    for name, family in FAMILIES.items():
        ref = parse_scene_id(f"{name}:7")
        assert isinstance(ref, GeneratedRef) and ref.family is family and ref.seed == 7
        for file, split in family.episode_files.items():
            assert find_episodes(file).is_file() and split in family.splits and EPISODE_TITLES[file] == family.title


def test_scene_ids_of_data_sets_and_files():
    ref = parse_scene_id("hssd.scene_dataset_config.json:102344049")
    assert isinstance(ref, DatasetRef) and ref.name == "102344049"
    assert parse_scene_id("castle:7") == FileRef("castle:7")
    assert parse_scene_id("a/b.scene").is_prepared and not parse_scene_id("a/b.glb").is_prepared
    found = {name: has_random_materials(name) for name in ("house:1", "scan:1", "a.scene", "a.glb")}
    assert found == {"house:1": True, "scan:1": True, "a.scene": True, "a.glb": False}
