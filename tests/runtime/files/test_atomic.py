"""Atomic file writes and folder locks."""

import fcntl
import json
import os

import pytest

from batchnav.errors import BatchnavError, CheckpointError
from batchnav.runtime.files import atomic as files
from batchnav.runtime.files.atomic import check_target, check_writable, lock_folder, remove_leftovers, replacing


def test_unwritable_folders_are_detected_before_writing(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "new" / "er"):
        check_writable(place, BatchnavError)
    for place in (tmp_path / "file", tmp_path / "file" / "new"):
        with pytest.raises(CheckpointError, match=rf"{place}: found a file at {tmp_path}/file, expected a folder"):
            check_writable(place, CheckpointError)
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(CheckpointError, match=rf"new: cannot be written .no permission to write in {tmp_path}"):
        check_writable(tmp_path / "new", CheckpointError)
    assert not (tmp_path / "new").exists()


def test_unwritable_files_are_detected_before_writing(tmp_path):
    (tmp_path / "file").touch()
    for name in ("new", "file", "new/er"):
        check_target(tmp_path / name, BatchnavError)
    with pytest.raises(CheckpointError, match=rf"{tmp_path}: found a folder, expected a file; .* {tmp_path}/NAME"):
        check_target(tmp_path, CheckpointError)
    with pytest.raises(CheckpointError, match=rf"found a file at {tmp_path}/file, expected a folder"):
        check_target(tmp_path / "file" / "new", CheckpointError)


def test_replacement_is_atomic(tmp_path):
    path = tmp_path / "new" / "a.txt"
    with replacing(path, BatchnavError) as part:
        part.write_text("one")
    with pytest.raises(ZeroDivisionError), replacing(path, BatchnavError) as part:
        part.write_text("two")
        raise ZeroDivisionError
    with pytest.raises(CheckpointError, match=r"a\.txt: cannot be written"), replacing(path, CheckpointError) as part:
        pass  # nothing was written
    assert path.read_text() == "one" and [p.name for p in path.parent.iterdir()] == ["a.txt"]
    with (
        pytest.raises(BatchnavError, match="cannot be written"),
        replacing(tmp_path / "no" / "b", BatchnavError, make_folder=False) as part,
    ):
        part.write_text("three")
    assert not (tmp_path / "no").exists()


def test_two_writers_of_one_file_do_not_interfere(tmp_path):
    path = tmp_path / "a.txt"
    with replacing(path, BatchnavError) as first, replacing(path, BatchnavError) as second:
        assert first != second
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first"  # which ended last


def test_content_is_flushed_before_the_name(tmp_path, monkeypatch):
    path, seen = tmp_path / "a.txt", []
    sync, replace = os.fsync, os.replace

    def note_sync(handle):
        seen.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")))
        sync(handle)

    def note_replace(source, target):
        seen.append("renamed")
        replace(source, target)

    monkeypatch.setattr(files.os, "fsync", note_sync)
    monkeypatch.setattr(files.os, "replace", note_replace)
    with replacing(path, BatchnavError) as part:
        part.write_text("x")
    assert seen == [part.name, "renamed", tmp_path.name]


def test_a_link_can_be_replaced(tmp_path):
    path = tmp_path / "link"
    with replacing(path, BatchnavError) as part:
        part.symlink_to("nowhere")
    assert path.is_symlink()


def test_only_a_files_own_leftovers_are_removed(tmp_path):
    for name in (".a.pt.01234567.part", ".a.pt.part", ".b.pt.01234567.part", "a.pt"):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path / "a.pt")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".a.pt.part", ".b.pt.01234567.part", "a.pt"]


def test_a_locked_folder_names_its_process(tmp_path):
    held = lock_folder(tmp_path, BatchnavError)
    assert json.loads((tmp_path / ".lock").read_text())["pid"] == os.getpid()
    with pytest.raises(CheckpointError, match=f"in use by process {os.getpid()} on .* since 20"):
        lock_folder(tmp_path, CheckpointError)
    (tmp_path / ".lock").write_text("{")
    with pytest.raises(CheckpointError, match="in use by another process"):
        lock_folder(tmp_path, CheckpointError)
    held.close()
    lock_folder(tmp_path, BatchnavError).close()


def test_without_file_locks_there_is_a_warning(tmp_path, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    lock_folder(tmp_path, BatchnavError).close()
    assert "cannot be locked" in caplog.text
