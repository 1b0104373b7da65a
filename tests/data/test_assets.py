"""What is bundled is what the manifest says, and was made here."""

import hashlib
import tomllib
from pathlib import Path

ASSETS = Path(__file__).resolve().parents[2] / "assets"
EXPLAINED = {".md", ".png", ".toml"}
"""Kinds of files that speak for themselves: cards, their figures, the manifest."""


def test_every_bundled_file_is_in_the_manifest_with_its_checksum():
    listed = tomllib.loads((ASSETS / "MANIFEST.toml").read_text(encoding="utf-8"))
    found = {str(path.relative_to(ASSETS)) for path in ASSETS.rglob("*") if path.is_file()}
    assert {name for name in found if Path(name).suffix not in EXPLAINED} == set(listed)
    for name, about in listed.items():
        assert hashlib.sha256((ASSETS / name).read_bytes()).hexdigest() == about["sha256"], name
        assert about["source"] and about["licence"] == "MIT", name
