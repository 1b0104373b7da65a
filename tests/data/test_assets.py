"""What is bundled is what the manifest says, and was made here."""

import hashlib
import re
import shutil
import tomllib
from pathlib import Path

import pytest
import torch

import batchnav
from batchnav.errors import CheckpointError, ConfigError
from batchnav.policy.weights import load_policy, save_policy
from batchnav.runtime import bundled
from batchnav.runtime.bundled import ASSETS

BUNDLED = "policies/pointnav_h200/policy.safetensors"
PROJECTS = ("pyproject.toml", "assets/pyproject.toml")
LARGEST, LARGEST_OF_ALL = 1_000_000, 6_000_000
"""Largest weights in the wheel of batchnav, and of a policy other than the paper's, bytes."""
TOOLS = {"dev", "docs"}
"""Extras for work on batchnav itself."""
EXPLAINED = {".md", ".webp", ".toml"}
"""Kinds of files that speak for themselves: cards, their figures, the manifest."""


def test_every_bundled_file_is_in_the_manifest_with_its_checksum():
    listed = tomllib.loads((ASSETS / "MANIFEST.toml").read_text(encoding="utf-8"))
    found = {str(path.relative_to(ASSETS)) for path in ASSETS.rglob("*") if path.is_file()}
    assert {name for name in found if Path(name).suffix not in EXPLAINED} == set(listed)
    for name, about in listed.items():
        content = (ASSETS / name).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (about["bytes"], about["sha256"]), name
        assert about["source"] and about["licence"] == "MIT", name


def test_the_large_policies_have_a_distribution_of_their_own():
    wheel, companion = (tomllib.loads((ASSETS.parent / name).read_text()) for name in PROJECTS)
    build = wheel["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    large = companion["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for folder in sorted(path for path in (ASSETS / "policies").iterdir() if path.is_dir()):
        name, size = f"policies/{folder.name}", (folder / bundled.WEIGHTS).stat().st_size
        assert (name in large, f"assets/{name}" in build) == (size > LARGEST, size <= LARGEST), name
        assert size <= LARGEST_OF_ALL or name == str(Path(BUNDLED).parent)
    version = companion["project"]["version"]
    assert version == batchnav.__version__ and companion["project"]["dependencies"] == [f"batchnav=={version}"]
    assert wheel["project"]["optional-dependencies"]["policies"] == [f"batchnav-policies=={version}"]


def test_a_policy_of_the_companion_is_found_when_that_is_installed(tmp_path, monkeypatch):
    (tmp_path / "base" / "policies").mkdir(parents=True)
    shutil.copy(ASSETS / "MANIFEST.toml", tmp_path / "base")
    monkeypatch.setattr(bundled, "ASSETS", tmp_path / "base")
    monkeypatch.setattr(bundled, "POLICIES", tmp_path / "base" / "policies")
    with pytest.raises(CheckpointError, match=r"pointnav_h200: .*batchnav-policies, which is not installed; install"):
        load_policy("pointnav_h200")
    installed = tmp_path / "site" / bundled.COMPANION / "pointnav_h200"
    shutil.copytree(ASSETS / "policies" / "pointnav_h200", installed)
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert bundled.bundled_name(installed / bundled.WEIGHTS) == BUNDLED
    assert load_policy("pointnav_h200").network is not None
    (installed / bundled.WEIGHTS).write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="found SHA-256"):
        load_policy("pointnav_h200")


def test_the_detector_of_the_companion_is_found_when_that_is_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(bundled, "ENCODERS", tmp_path / "none")
    with pytest.raises(ConfigError, match=r"objects_small: .*batchnav-policies, which is not installed; install"):
        bundled.find_encoder("objects_small")
    shutil.copytree(ASSETS / "encoders", installed := tmp_path / "site" / bundled.COMPANION / "encoders")
    monkeypatch.syspath_prepend(tmp_path / "site")
    found = bundled.find_encoder("objects_small")
    assert found == installed / "objects_small.safetensors"
    assert bundled.bundled_name(found) == "encoders/objects_small.safetensors"


def test_bundled_weights_that_were_changed_are_refused(tmp_path, monkeypatch):
    copy = tmp_path / BUNDLED
    copy.parent.mkdir(parents=True)
    shutil.copy(ASSETS / "MANIFEST.toml", tmp_path)
    agent = load_policy(ASSETS / BUNDLED)
    save_policy(agent.network, copy, {"frames": 1}, torch.bfloat16)  # a whole policy, but not the bundled one
    load_policy(copy)
    monkeypatch.setattr(bundled, "ASSETS", tmp_path)
    with pytest.raises(CheckpointError, match=r"policy\.safetensors: found SHA-256 .*, expected .*MANIFEST\.toml"):
        load_policy(copy)
    load_policy(shutil.copy(copy, tmp_path / "mine.safetensors"))  # not listed


def test_the_licence_of_every_dependency_is_listed():
    project = tomllib.loads((ASSETS.parent / "pyproject.toml").read_text())["project"]
    extras = {name: packages for name, packages in project["optional-dependencies"].items() if name not in TOOLS}
    needed = {(_package(line), "") for line in project["dependencies"]}
    needed |= {(_package(line), extra) for extra, packages in extras.items() for line in packages}
    page = (ASSETS.parent / "docs" / "reference" / "licences.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ") and "---" not in line]
    listed = {(row[0], row[1] if len(row) == 3 else "") for row in rows if row[0] != "package"}
    assert listed == needed


def _package(requirement: str) -> str:
    """Name of the package that a requirement names."""
    return re.split(r"[\[<>=~!; ]", requirement)[0]
