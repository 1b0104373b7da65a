"""What is bundled is what the manifest says, and was made here."""

import hashlib
import shutil
import tomllib
from pathlib import Path

import pytest
import torch

from batchnav.errors import CheckpointError
from batchnav.policy.weights import load_policy, save_policy
from batchnav.runtime.files import bundled
from batchnav.runtime.files.bundled import ASSETS

BUNDLED = "policies/pointnav_h200/policy.safetensors"
EXPLAINED = {".md", ".png", ".toml"}
"""Kinds of files that speak for themselves: cards, their figures, the manifest."""


def test_every_bundled_file_is_in_the_manifest_with_its_checksum():
    listed = tomllib.loads((ASSETS / "MANIFEST.toml").read_text(encoding="utf-8"))
    found = {str(path.relative_to(ASSETS)) for path in ASSETS.rglob("*") if path.is_file()}
    assert {name for name in found if Path(name).suffix not in EXPLAINED} == set(listed)
    for name, about in listed.items():
        assert hashlib.sha256((ASSETS / name).read_bytes()).hexdigest() == about["sha256"], name
        assert about["source"] and about["licence"] == "MIT", name


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
