"""`make` installs the exact versions of constraints.txt, and pyproject.toml allows them."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OWN = {PROJECT["project"]["name"], "batchnav-policies"}
"""Distributions of this repository, which extras may name; they have no pins."""
PINS = [Requirement(line) for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()]
UNSAFE = {"trimesh": "4.9", "torch": "2.5.1", "pillow": "11.2.1", "setuptools": "78.1.0", "python": "3.11.3"}
"""Versions with known vulnerabilities, which the bounds exclude."""


def required() -> list[Requirement]:
    """All requirements of the project, with those of development and build."""
    extras = PROJECT["project"]["optional-dependencies"].values()
    names = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]
    needs = [Requirement(line) for line in (*names, *(line for extra in extras for line in extra))]
    return [need for need in needs if need.name not in OWN]


def test_every_pin_is_one_exact_version():
    assert all(re.fullmatch(r"==[\w.]+", str(pin.specifier)) for pin in PINS)
    names = [canonicalize_name(pin.name) for pin in PINS]
    assert len(set(names)) == len(names)


def test_what_is_asked_for_is_pinned_within_its_bounds():
    pins = {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in PINS}
    assert "pip" in pins
    for need in required():
        assert need.specifier.contains(pins[canonicalize_name(need.name)]), need.name


def test_unsafe_versions_are_excluded():
    python = Requirement("python" + PROJECT["project"]["requires-python"])
    for need in (*required(), python):
        if need.name in UNSAFE:
            assert not need.specifier.contains(Version(UNSAFE[need.name])), need.name


def test_all_that_is_drawn_in_is_pinned():
    """Transitive requirements in this environment, except for those with an exact version in another package."""
    pins = {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in PINS}
    todo, seen = [(need, False) for need in required()], set()
    while todo:
        need, exact = todo.pop()
        name = canonicalize_name(need.name)
        try:
            found = metadata.distribution(need.name)
        except metadata.PackageNotFoundError:  # belongs to an extra that is not installed here
            continue
        assert exact or pins.get(name) == Version(found.version).public, f"{need.name} {found.version}"
        if (name, *need.extras) in seen:
            continue
        seen.add((name, *need.extras))
        for line in found.requires or ():
            further = Requirement(line)
            if further.marker is None or any(further.marker.evaluate({"extra": e}) for e in ("", *need.extras)):
                stated = (part for part in further.specifier if part.operator in ("==", "==="))
                todo.append((further, any(not part.version.endswith(".*") for part in stated)))


def test_make_installs_with_the_pins_only():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    installs = [line for line in text.splitlines() if "pip install" in line]
    assert len(installs) == 1 and "PIP_CONSTRAINT=$(CONSTRAINTS) PIP_BUILD_CONSTRAINT=$(CONSTRAINTS)" in text
    assert "CONSTRAINTS ?= $(CURDIR)/constraints.txt" in text
