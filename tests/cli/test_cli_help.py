"""Help, usage and start of all commands."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import batchnav
from batchnav.agents.registry import REFERENCE_AGENTS
from batchnav.cartpole.program import BACKENDS
from batchnav.cli import COMMANDS, SLOW, bench, navmesh
from batchnav.cli.data import SUBCOMMANDS
from batchnav.cli.train import PROGRAMS


@pytest.mark.parametrize("arguments, status", [((), 2), (("nonsense",), 2), (("--help",), 0)])
def test_usage_and_exit_status(run, arguments, status, capsys):
    with pytest.raises(SystemExit) as caught:
        run(*arguments)
    assert caught.value.code == status
    out = capsys.readouterr().out
    assert "batchnav doctor [--config NAME]\n" in out and "batchnav navmesh {bake,info,view,map}" in out


def test_every_command_has_a_module(run):
    with pytest.raises(SystemExit):
        run("--help")
    for name in COMMANDS:
        assert hasattr(importlib.import_module(f"batchnav.cli.{name}"), "command")


@pytest.mark.parametrize(
    "command, option",
    [
        ("data import", "--up {auto,x,y,z,-x,-y,-z}"),
        ("data download", "--password"),
        ("navmesh bake", "--agent-radius"),
    ],
)
def test_help_lists_options(run, command, option, capsys):
    with pytest.raises(SystemExit) as caught:
        run(*command.split(), "--help")
    assert caught.value.code == 0
    assert option in capsys.readouterr().out


LIGHT = """
import sys
import batchnav
from batchnav.cli import COMMANDS, main
try:
    main(sys.argv[1:])
finally:
    print(*sorted({"torch", "numba", "tyro", "numpy"} & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("option, imported", [("--help", ["numpy", "tyro"]), ("--version", [])])
def test_help_and_version_do_not_import_heavy_packages(option, imported):
    found = subprocess.run([sys.executable, "-c", LIGHT, option], capture_output=True, text=True)
    assert found.returncode == 0 and found.stderr.split() == imported
    assert "batchnav" in found.stdout


@pytest.mark.parametrize(
    "words, message",
    [
        ("train --config nope", "nope: no such file or configuration, expected"),
        ("train --config=nope", "nope: no such file or configuration, expected"),
        ("evaluate nope", "nope: no such file or policy, expected"),
        ("evaluate greedy --episodes nope", "nope: no such file or episode file, expected"),
        ("export nope --out policy.onnx", "nope: no such file or policy, expected"),
        ("view house:3 --agents nope", "nope: no such file or policy, expected"),
        ("view --episodes nope", "nope: no such file or episode file, expected"),
        ("view nope.glb", "scene 'nope.glb': found no such file here"),
        ("data validate nope.json.gz", "nope.json.gz: cannot be read"),
        (
            "data validate house:3",
            "house:3: found a scene id, expected a .navmesh, an episode file (.json.gz), a .scene",
        ),
        ("data import nope.glb --out out", "nope.glb: cannot be read"),
        ("data import house:3 --out out", "house:3: found a scene id, expected the path of a file or folder"),
        ("data prepare nope", "scene 'nope': found no such file here"),
        ("data make-episodes nope.glb --out e.json.gz", "scene 'nope.glb': found no such file here"),
        ("data export nope --out house.glb", "scene 'nope': found no such file here"),
        ("navmesh bake nope.glb", "nope.glb: cannot be read"),
        ("navmesh info nope.navmesh", "nope.navmesh: cannot be read"),
        ("navmesh view nope.navmesh", "nope.navmesh: cannot be read"),
        ("navmesh map nope --out map.yaml", "scene 'nope': found no such file here"),
    ],
)
def test_missing_names_are_named_without_slow_imports(tmp_path, words, message):
    found = subprocess.run([sys.executable, "-c", LIGHT, *words.split()], capture_output=True, text=True, cwd=tmp_path)
    *_, imported, error = found.stderr.splitlines()
    assert found.returncode == 1 and error.startswith(f"error: {message}")
    assert not {"torch", "numba"} & set(imported.split())
    assert not list(tmp_path.iterdir())


HELPS = """
import sys
from batchnav.cli import main
for words in sys.stdin.read().splitlines():
    try:
        main([*words.split(), "--help"])
    except SystemExit as end:
        assert end.code == 0, words
    heavy = {"torch", "numba", "scipy", "trimesh", "matplotlib"} & set(sys.modules)
    assert not heavy, (words, heavy)
"""


def test_help_imports_nothing_heavy():
    """PyTorch and numba take seconds to import, on a cold disk half a minute."""
    words = ["train", "train cartpole", "train anticipation", "train encoder", "evaluate", "view", "doctor", "cite"]
    words.append("train detector")
    words += ["data", "navmesh", *(f"bench {name}" for name in bench.SUBCOMMANDS)]
    words += [
        f"data {name}"
        for name in ("list", "download", "import", "prepare", "export", "make-episodes", "validate", "objects")
    ]
    words += [f"navmesh {name}" for name in ("bake", "info", "view")]
    found = subprocess.run([sys.executable, "-c", HELPS], input="\n".join(words), capture_output=True, text=True)
    assert found.returncode == 0 and not found.stderr, found.stderr
    assert found.stdout.count("usage:") >= len(words)


def test_the_help_names_what_there_is(run, capsys):
    """All commands with their programs, and all reference agents; the backends of CartPole."""
    texts = {}
    for words in (("--help",), ("evaluate", "--help"), ("train", "cartpole", "--help")):
        with pytest.raises(SystemExit):
            run(*words)
        texts[words[0]] = capsys.readouterr().out
    assert set(re.findall(r"^  batchnav ([a-z]+)", texts["--help"], re.MULTILINE)) == {*COMMANDS}
    assert all(name in texts["--help"] for name in (*PROGRAMS, *SUBCOMMANDS, *bench.SUBCOMMANDS, *navmesh.SUBCOMMANDS))
    assert all(re.search(rf"\b{name}\b", texts["evaluate"]) for name in REFERENCE_AGENTS)
    assert "--deterministic" in texts["evaluate"]
    assert all(name in texts["train"] for name in (*BACKENDS, "cartpole_cpu", "cartpole_h200"))


@pytest.mark.parametrize("command", SLOW)
def test_slow_commands_print_a_line_before_their_imports(run, caplog, monkeypatch, command):
    def import_module(name):
        raise ImportError(name)

    monkeypatch.setattr("batchnav.cli.importlib.import_module", import_module)
    with pytest.raises(ImportError, match=f"batchnav.cli.{command}"):
        run(command)
    assert [record.getMessage() for record in caplog.records] == [f"batchnav {batchnav.__version__}: starting"]


def test_cite_prints_the_entry_of_readme_and_citation_file(run):
    out = run("cite")
    root = Path(__file__).resolve().parents[2]
    (entry,) = re.findall(r"```bibtex\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    assert "".join(entry.split()) in "".join(out.split())
    citation = yaml.safe_load((root / "CITATION.cff").read_text())
    assert f"version = {{{citation['version']}}}" in out and citation["references"][0]["title"] in out
    assert all(person["family-names"] in out for person in citation["references"][0]["authors"])


def test_python_m_batchnav_works_in_any_folder(tmp_path):
    command = [sys.executable, "-m", "batchnav", "--version"]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    found = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert found.stdout == f"batchnav {batchnav.__version__}\n"
