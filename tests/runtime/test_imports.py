"""Modules of one's own: imported once, kept by name or absolute path, never because a policy file alone names them."""

import json
import sys

import pytest

from batchnav.errors import ConfigError
from batchnav.runtime import imports
from batchnav.runtime.imports import VARIABLE, advice, import_in_child, import_modules, split_option


@pytest.fixture(autouse=True)
def nothing_imported(monkeypatch):
    monkeypatch.setattr(imports, "_imported", {})
    monkeypatch.setenv(VARIABLE, "[]")


def write(folder, text="import builtins\nbuiltins.times = getattr(builtins, 'times', 0) + 1\n", name="mine.py"):
    path = folder / name
    path.write_text(text)
    return path


def times():
    import builtins

    return builtins.__dict__.pop("times", 0)


def test_a_file_is_imported_once_and_kept_as_an_absolute_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    assert import_modules(["mine.py"]) == import_modules(["./mine.py"]) == (str(tmp_path / "mine.py"),)
    assert times() == 1


def test_a_module_of_the_working_folder_is_found_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    write(tmp_path, name="module_of_mine.py")
    assert import_modules(["module_of_mine"]) == ("module_of_mine",) and times() == 1


def test_a_child_process_imports_the_same(tmp_path, monkeypatch):
    path = write(tmp_path)
    import_modules([str(path)])
    monkeypatch.setattr(imports, "_imported", {})  # as in another process
    import_in_child()
    assert times() == 2


def test_a_file_that_moved_is_found_if_the_option_names_it(tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    after.mkdir()
    path = write(after)
    with pytest.raises(ConfigError, match=r"imports: found no file .*before/mine\.py.*name it by --import"):
        import_modules([str(before / "mine.py")], "imports")
    import_modules([str(path)])
    assert import_modules([str(before / "mine.py")], "imports") == (str(path),)
    times()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("mine", "expected a list"),
        ([1], "expected a list"),
        (["no_such_module_here"], "no_such_module_here.*ModuleNotFoundError"),
        (["x"] * 100, "at most 64"),
    ],
)
def test_names_that_do_not_fit(names, message):
    with pytest.raises(ConfigError, match=f"imports: .*{message}"):
        import_modules(names, "imports")


def test_an_error_of_a_module_is_told_in_one_line(tmp_path):
    path = write(tmp_path, "raise ValueError('two\\nlines')")
    with pytest.raises(ConfigError, match=r"--import: .*mine\.py.*found an error .*ValueError: two lines"):
        import_modules([str(path)])


def test_the_option_is_taken_out_of_a_command_line():
    words = ["--seed", "3", "--import", "a.py", "--out", "x", "--import=b.c"]
    assert split_option(words) == (["--seed", "3", "--out", "x"], ["a.py", "b.c"])
    with pytest.raises(ConfigError, match="--import: found no value"):
        split_option(["--import"])


def test_a_policy_file_s_imports_are_told_not_executed(tmp_path):
    path = write(tmp_path)
    info = json.loads(json.dumps({"imports": [str(path), "b.c"]}))
    assert f"--import {path} --import b.c" in advice(info) and times() == 0
    import_modules([str(path)])
    assert "mine.py" not in advice(info) and "--import b.c" in advice(info)
    assert advice({}) == ""
    times()
