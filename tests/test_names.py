"""Names from users and from others' files, on the terminal, in printed commands and in files: any bytes, any length."""

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.table import Table
from worlds import episodes_on, write_floor

import batchnav
from batchnav import cli
from batchnav.cli.console import show
from batchnav.data.formats import EpisodeDataset, load_episodes
from batchnav.data.play import load_played_scenes
from batchnav.data.scenes.prepared import prepare
from batchnav.data.scenes.source import mesh_source
from batchnav.errors import BatchnavError, MeshError, printable, shell_word
from batchnav.runtime.console import terminal
from batchnav.training.loop import next_steps

NAMES = ("x" * 5000, "a\nb", "a\x1b[31mb", "a\x9b31mb", os.fsdecode(b"\xff"), "a\u202eb", "[/v2]")
COMMANDS = (
    ["train", "--config"], ["train", "--out"], ["evaluate"], ["evaluate", "greedy", "--episodes"], ["view"],
    ["view", "--episodes"], ["bench", "navmesh", "--scenes"], ["data", "import", "--out", "out"], ["data", "prepare"],
    ["data", "episodes", "--out", "out.json.gz"], ["data", "validate"], ["data", "download"], ["navmesh", "bake"],
    ["navmesh", "info"], ["navmesh", "view"], ["doctor", "--config"], [],
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_names_reach_the_terminal_as_one_line(command, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if command == ["train", "--out"]:
        name = f"{write_floor(tmp_path / 'file.ply')}/{name}"  # below a file: no folder can be made there
    with pytest.raises(SystemExit) as caught:
        cli.main([*command, name])
    out = capsys.readouterr()
    assert caught.value.code != 0
    for text in (str(caught.value.code), *out.out.splitlines(), *out.err.splitlines()):
        assert text.isprintable()


def test_errors_are_one_line():
    assert str(MeshError("a\nb\x1b[31m\udcff é²")) == r"a\nb\x1b[31m\udcff é²"
    assert str(BatchnavError()) == ""


@pytest.mark.parametrize("name", ["a b", "a'b", "$(touch x)", "a\nb", "a\x1b[31m'\\b", os.fsdecode(b"\xff\xfe a"), "é"])
def test_printed_commands_are_quoted_for_a_shell(name):
    assert shell_word(name).isprintable()
    command = ["bash", "-c", f"printf %s {shell_word(name)}"]
    assert subprocess.run(command, capture_output=True, check=True).stdout == os.fsencode(name)
    _, evaluate, resume = next_steps(10, "ppo", Path("runs") / name).splitlines()
    word = shell_word(f"runs/{name}")
    assert evaluate.endswith(f"batchnav evaluate {word} --report") and f"--out {word} --ppo" in resume


def test_tables_and_lines_hold_no_control_characters(capsys):
    table = Table("name\x1b]0;title\a", title="a\x9b1mb")
    table.add_row("\x1b[31mred", "[/v2][bold]\udcff")
    show(table)
    show("a\nb [/v2] [bold]\x1b[31m")
    terminal(force_terminal=True).print("plain \x1b[31m text")
    text = capsys.readouterr().out
    assert all(line.isprintable() for line in text.splitlines())
    assert r"\x1b[31mred" in text and r"[/v2][bold]\udcff" in text and r"a\nb [/v2] [bold]\x1b[31m" in text


def test_a_terminal_still_has_rich_control_codes():
    file = io.StringIO()
    console = terminal(file=file, force_terminal=True, color_system="standard")
    console.print("red", style="red")
    console.show_cursor(False)
    assert file.getvalue() == "\x1b[31mred\x1b[0m\n\x1b[?25l"


def test_streams_of_ascii(tmp_path):
    write_floor(tmp_path / "a.ply")
    run = [sys.executable, "-m", "batchnav", "navmesh", "bake", "a.ply", "--out", "é.navmesh"]
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    env["PYTHONPATH"] = str(Path(batchnav.__file__).parents[1])
    found = subprocess.run(run, cwd=tmp_path, env=env, capture_output=True, check=False)
    assert found.returncode == 0 and rb"m\xb2" in found.stdout and b"Traceback" not in found.stderr


def test_files_whose_names_are_not_utf8(tmp_path, monkeypatch, capsys):
    """A scan with such a name is loaded, prepared, given episodes and played."""
    folder = tmp_path / os.fsdecode(b"r\xe9sum\xe9")
    path = write_floor(tmp_path / "a.ply")
    folder.mkdir()
    scan = folder / os.fsdecode(b"scan\xff.ply")
    shutil.copy(path, scan)
    scene = batchnav.load_scene(scan)
    assert scene.name == scan.stem and scene.navmesh.area > 40
    (outcome,) = prepare([mesh_source(scan)], folder / "prepared")
    again = batchnav.load_scene(outcome.path)
    assert not outcome.problem and np.array_equal(again.mesh.vertices, scene.mesh.vertices)
    assert prepare([mesh_source(scan)], folder / "prepared")[0].fresh
    file = folder / os.fsdecode(b"e\xff.json.gz")
    EpisodeDataset(episodes_on(str(scan))).save(file)
    episodes = load_episodes(file)
    assert episodes[0].scene_id == str(scan) and load_played_scenes(episodes)[0].navmesh.area == scene.navmesh.area
    monkeypatch.chdir(folder)
    cli.main(["data", "validate", scan.name])
    cli.main(["evaluate", "greedy", "--episodes", str(file), "--out", "out", "--report"])
    assert (folder / "out" / "results.json").is_file() and "scan" in (folder / "out" / "index.html").read_text()
    assert all(line.isprintable() for line in capsys.readouterr().out.splitlines())


def test_printable_text_is_left_alone():
    assert printable("m² é 中 [x]") == "m² é 中 [x]"
