"""Cache folder: private to the user, since machine code is loaded from it; versions of sources."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from batchnav.errors import ArgumentError
from batchnav.runtime import cache
from batchnav.runtime.files import replacing


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the cache is to be; nothing is there yet."""
    monkeypatch.setenv("BATCHNAV_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def made():
    """A kernel's folder, asked for anew."""
    return cache.versioned_cache_folder.__wrapped__("kernels", "batchnav.runtime.kernels.rng")


def test_cache_folders_are_private(folder):
    umask = os.umask(0)  # the most generous one
    try:
        kernels = made()
    finally:
        os.umask(umask)
    places = [folder, folder / "kernels", kernels]
    assert [stat.S_IMODE(place.stat().st_mode) for place in places] == [0o700] * 3
    assert made() == kernels


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777, 0o1777])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_folder_that_others_can_write_is_rejected(folder, mode, level):
    place = [folder, folder / "kernels", made()][level]
    place.chmod(mode)
    with pytest.raises(ArgumentError, match=rf"cache folder {place}: found .*mode {mode:o}.*chmod -R go-w {place}"):
        made()
    place.chmod(0o755)
    assert made().is_dir()


def test_a_sticky_parent_folder_is_accepted(folder):
    folder.parent.chmod(0o1777)
    assert made().is_dir()


def test_a_folder_of_another_user_is_rejected_but_not_of_root(folder, monkeypatch):
    made()
    owner = folder.stat().st_uid
    monkeypatch.setattr(cache.os, "geteuid", lambda: owner + 1)
    if owner == 0:
        made()
        os.chown(folder, 12345, -1)
        owner = 12345
    with pytest.raises(ArgumentError, match=rf"found a folder of user {owner}, .*BATCHNAV_CACHE"):
        made()


def test_a_file_in_place_of_the_folder_is_named(folder):
    folder.write_text("no folder")
    with pytest.raises(ArgumentError, match=r"cache folder .* cannot be created .*BATCHNAV_CACHE"):
        made()


def test_a_read_only_folder_is_named(folder, monkeypatch):
    made()
    monkeypatch.setattr(cache.os, "access", lambda *_: False)  # as in an image that is mounted read-only; root may all
    with pytest.raises(ArgumentError, match=rf"cache folder {folder}: cannot be written; set BATCHNAV_CACHE"):
        made()


def test_kernels_are_not_loaded_from_it(folder):
    folder.mkdir()
    folder.chmod(0o777)
    done = subprocess.run([sys.executable, "-c", "import batchnav.navmesh.batch"], capture_output=True, text=True)
    assert done.returncode and "ArgumentError: cache folder" in done.stderr and "chmod -R go-w" in done.stderr


def test_concurrent_pruning_is_no_error(folder, monkeypatch):
    kernels, glob = made(), Path.glob
    monkeypatch.setattr(Path, "glob", lambda path, pattern: [*glob(path, pattern), path / "gone"])
    assert made() == kernels


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A folder that another user filled, read-only."""
    monkeypatch.setenv("BATCHNAV_SHARED_CACHE", str(tmp_path / "shared"))
    (tmp_path / "shared").mkdir()
    yield tmp_path / "shared"
    for place in (tmp_path / "shared").rglob("*"):
        place.chmod(0o755 if place.is_dir() else 0o644)


def contents(folder):
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def test_a_shared_cache_is_linked_and_not_written(folder, shared):
    name = made().relative_to(folder)
    filled = shared / name / "sub"
    filled.mkdir(parents=True)
    (filled / "kernel.nbi").write_text("shared")
    (filled / "kernel.lock").write_text("")
    (shared / name / "other.nbi").write_text("shared")
    (made() / "own.nbi").write_text("own")
    before = contents(shared)
    kernels = made()
    assert (kernels / "sub" / "kernel.nbi").read_text() == (kernels / "other.nbi").read_text() == "shared"
    assert not (kernels / "sub" / "kernel.lock").exists() and (kernels / "own.nbi").read_text() == "own"
    with replacing(kernels / "other.nbi", ArgumentError) as part:
        part.write_text("own addition")
    made()
    assert (kernels / "other.nbi").read_text() == "own addition" and contents(shared) == before
    cache.link_shared(folder / "navmesh" / "a.navmesh")  # the shared cache has none
    assert not (folder / "navmesh").exists()


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_shared_cache_that_others_can_write_is_rejected(folder, shared, mode):
    shared.chmod(mode)
    with pytest.raises(ArgumentError, match=rf"shared cache {shared}: .*mode {mode:o}.*chmod -R go-w {shared}"):
        made()
    shared.rmdir()
    with pytest.raises(ArgumentError, match=rf"shared cache {shared}: found no folder"):
        made()
    shared.mkdir()


@pytest.mark.slow
def test_two_users_share_kernels_and_houses(tmp_path, monkeypatch):
    """The second one compiles and generates nothing that the first has, and leaves the shared cache as it is.

    The first compiles the kernels of the BVH, and others that this machine's cache does not have.
    """
    shared, own = tmp_path / "shared", tmp_path / "own"
    for compiled in (cache.cache_folder() / "kernels").glob("batchnav.*"):
        if not compiled.name.startswith("batchnav.scene.bvh-"):
            ignored = shutil.ignore_patterns("*.lock", "*.tmp.*")
            shutil.copytree(compiled, shared / "kernels" / compiled.name, ignore=ignored)
    run = [sys.executable, "-c", "import batchnav, sys; [batchnav.load_scene(name) for name in sys.argv[1:]]"]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    env.pop("BATCHNAV_SHARED_CACHE", None)
    filled = env | {"BATCHNAV_CACHE": str(shared)}
    first = subprocess.run([*run, "house:0", "house:0"], env=filled, capture_output=True, text=True)  # made, and loaded
    assert first.returncode == 0 and "compiling kernels" in first.stderr, first.stderr
    for place in shared.rglob("*"):
        place.chmod(0o555 if place.is_dir() else 0o444)
    before = contents(shared)
    user = env | {"BATCHNAV_CACHE": str(own), "BATCHNAV_SHARED_CACHE": str(shared)}
    second = subprocess.run([*run, "house:0", "house:1"], env=user, capture_output=True, text=True)
    assert second.returncode == 0 and "compiling kernels" not in second.stderr, second.stderr
    assert contents(shared) == before
    houses = {path.name: path.is_symlink() for path in (own / "houses").rglob("*.scene")}
    assert houses == {"house_0.scene": True, "house_1.scene": False}


def test_a_user_without_a_home_folder(monkeypatch, tmp_path):
    """As in a container with an arbitrary user id: no HOME and no entry in the passwd file."""

    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(cache.Path, "home", no_home)
    for name, path in (("BATCHNAV_CACHE", tmp_path), ("XDG_CACHE_HOME", tmp_path / "batchnav")):
        monkeypatch.delenv("BATCHNAV_CACHE", raising=False)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        with pytest.raises(ArgumentError, match="set BATCHNAV_CACHE to a folder"):
            cache.cache_folder()
        monkeypatch.setenv(name, str(tmp_path))
        assert cache.cache_folder() == path
