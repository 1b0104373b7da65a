"""The generated reference pages have every option of every command and every configuration key."""

import dataclasses
import re
import sys
from pathlib import Path

import pytest

import batchnav
from batchnav.cli import COMMANDS, bench, data, navmesh
from batchnav.cli.train import ALL_OPTIONS, COMMON
from batchnav.envs.config import PRESETS
from batchnav.procedural import FAMILIES
from batchnav.tasks import TASKS
from batchnav.training import start
from batchnav.training.config import TrainingConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "docs"))
import reference_pages  # of the folder docs, as the site's hook imports it

OPTION = re.compile(r"(--[a-z][\w.-]*)")
SUBCOMMANDS = [
    "train", "train anticipation", "train cartpole", "train detector", "train encoder", "evaluate", "view", "export",
    "doctor", "cite",
    *(f"bench {name}" for name in bench.SUBCOMMANDS), *(f"data {name}" for name in data.SUBCOMMANDS),
    *(f"navmesh {name}" for name in navmesh.SUBCOMMANDS),
]  # fmt: skip


@pytest.fixture(scope="module")
def pages():
    """The texts of the pages by path."""
    return {path: generate() for path, generate in reference_pages.PAGES.items()}


def section(page, title):
    """Text of a section of a page, up to the next one."""
    return re.split(r"^## ", page, flags=re.MULTILINE)[[*re.findall(r"^## (.*)$", page, re.MULTILINE)].index(title) + 1]


def listed_options(text):
    """Options that a help text lists, without --help and the --no- forms."""
    lines = [line for line in text.splitlines() if re.match(r"[│ ] -", line)]
    names = {name for line in lines for name in OPTION.findall(line[2:].split("  ")[0])}
    return {name for name in names if name != "--help" and "no-" not in name.rpartition(".")[2][:5]}


@pytest.mark.parametrize("command", SUBCOMMANDS)
def test_every_option_of_a_command_is_on_the_page_with_its_meaning(command, run, capsys, pages):
    with pytest.raises(SystemExit):
        run(*command.split(), "--help")
    found = listed_options(capsys.readouterr().out)
    if command == "train":  # the page of the configuration has these
        found -= {"--" + key.replace("_", "-") for key in COMMON}
    rows = re.findall(
        r"^\| `(--[^`]*)` \|.*\| (.*) \|$", section(pages["reference/cli.md"], f"batchnav {command}"), re.M
    )
    assert {name for name, _ in rows} == found
    assert all(len(meaning.split()) > 2 for _, meaning in rows)


def test_every_command_has_a_section(pages):
    assert {name.split()[0] for name in SUBCOMMANDS} == set(COMMANDS)
    titles = re.findall(r"^## batchnav (.*)$", pages["reference/cli.md"], re.MULTILINE)
    assert sorted(titles) == sorted(SUBCOMMANDS)


def keys(config, path=""):
    """Dotted keys of a configuration and its parts."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from keys(value, f"{path}{field.name}.")
        else:
            yield f"{path}{field.name}"


def test_every_key_is_on_the_page_of_the_configuration_with_its_meaning(pages):
    page = pages["reference/configuration.md"]
    rows = dict(re.findall(r"^\| `([\w.]+)` \|.*\| (.*) \|$", page, re.MULTILINE))
    for key in keys(TrainingConfig()):
        assert len(rows[key].split()) > 2, key
    for name, task in TASKS.items():
        text = section(page, f"env.task: {name}")
        assert all(f"| `env.task.{key}` |" in text for key in keys(task.Config()))
    for title, names in (("Presets", PRESETS), ("Scene families", FAMILIES)):
        assert all(f"| `{name}` |" in section(page, title) for name in names)


def test_every_rule_of_success_is_on_its_page(pages):
    """The table says what the kernels do: `success_rule` follows the configuration that they read."""
    page = pages["reference/success_rules.md"]
    for title, names in (("Presets", PRESETS), ("Defaults of the tasks", TASKS)):
        rows = {
            row[1].strip(" `"): row
            for row in (line.split("|") for line in section(page, title).splitlines())
            if row[1:]
        }
        for name in names:
            task = PRESETS[name].task if title == "Presets" else TASKS[name].Config()
            if (rule := task.success_rule) is not None:
                assert f"< {rule.distance:g} m" in rows[name][4] and rule.target in rows[name][5]
            else:
                assert "no success" in rows[name][4]
    assert "| 31.725° |" in page and "`imagenav_nrns` | Hahn et al., 2021" in page
    assert "`hssd` | 1 m | 0.88 m |" in section(page, "View points")


def test_every_option_of_train_is_a_key_on_the_page(run, capsys, pages):
    with pytest.raises(SystemExit):
        run("train", ALL_OPTIONS)
    named = {name.removeprefix("--").replace("-", "_") for name in listed_options(capsys.readouterr().out)}
    own = {field.name for field in dataclasses.fields(start.Options)}
    assert own < named
    page = pages["reference/configuration.md"]
    assert all(f"| `{key}` |" in page for key in named - own)


def test_every_public_name_is_on_a_page():
    folder = Path(__file__).resolve().parents[1] / "docs" / "reference"
    named = {line for page in folder.glob("*.md") for line in page.read_text(encoding="utf-8").splitlines()}
    for name in batchnav.__all__:
        module = batchnav._PUBLIC[name]
        places = {f"::: {module}", f"::: {module}.{name}"}
        assert places & named, f"{name}: on none of docs/reference"
