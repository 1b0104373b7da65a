"""Python and shell blocks of README and docs run in the order of their page, or name their requirements."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path

import numba
import pytest
import torch
import tyro

import batchnav
from batchnav.cli import evaluate, main, train
from batchnav.data.formats import EpisodeDataset, load_episodes
from batchnav.learning import ALGORITHMS
from batchnav.policy import ENCODERS, MEMORIES
from batchnav.runtime.imports import OPTION
from batchnav.sensors import SENSORS
from batchnav.sensors.depth import DEPTH_ESTIMATORS
from batchnav.sensors.goal_mask import DETECTORS
from batchnav.tasks import TASKS
from batchnav.training import start
from tests.pages import NEEDS, PAGES, ROOT, Block, blocks

RUN = ("python", "sh")
OTHERS = ("text", "yaml", "json", "toml", "bash", "bibtex")
"""Languages of blocks that do not run; SLURM scripts are "bash"."""
OWN_TEST = ("own_task.md", "other_libraries.md")
"""Pages with separate tests: tests/test_own_task.py, tests/envs/adapters/test_adapters_page.py."""
NUM_EPISODES = 4
NAMED = re.compile(r"`((?:assets|batchnav|configs|docs|eval|tests|train)/[a-z0-9_./]+\.[a-z]+)`")
"""Pattern of file names of the repository; names in capitals, as NAME.py, are placeholders."""

SHELL = re.compile(r"[|<>&;$*?(){}`~]")
"""What the shell replaces or acts on."""

LONGEST = 1200.0
"""Time limit of a block, seconds, on a busy machine."""


def runnable(page: Path, wanted: frozenset[str]) -> list[Block]:
    """Blocks of a page whose requirements are among those given."""
    return [block for block in blocks(page) if (block.language in RUN or block.file) and block.needs <= wanted]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


TESTED = [page for page in PAGES if page.name not in OWN_TEST]
ANYWHERE = [page for page in TESTED if runnable(page, frozenset())]
ON_GPU = [page for page in TESTED if any(block.needs for block in runnable(page, frozenset({"gpu"})))]


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """File with the first episodes of `val`; all episodes would take minutes."""
    path = tmp_path_factory.mktemp("few") / "few.json.gz"
    EpisodeDataset(load_episodes(ROOT / "assets" / "episodes" / "val.json.gz")[:NUM_EPISODES]).save(path)
    return path


@pytest.fixture
def folder(few, tmp_path, monkeypatch):
    """Working folder like a fresh checkout: its data and programs, without files that are not tracked."""
    registries = [
        (registry, dict(registry))
        for registry in (ALGORITHMS, DEPTH_ESTIMATORS, DETECTORS, ENCODERS, MEMORIES, SENSORS, TASKS)
    ]
    for name in ("assets", "configs", "docs", "eval", "train"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / few.name).symlink_to(few)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    yield tmp_path
    for registry, known in registries:  # pages add parts of their own
        registry.clear()
        registry.update(known)


def play(page: Path, found: list[Block], folder: Path) -> None:
    """Run blocks as a reader does: Python in one session, shell lines one by one until one fails."""
    session = {"__name__": "__main__"}
    for block in found:
        if block.file:
            (folder / block.file).write_text(block.text)
        elif block.language == "python":
            # Empty lines replace the page's preceding lines, so that a traceback names the line of the page.
            exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), session)
        else:
            command = f"{block.text.rstrip()} {block.short}"
            if (lines := plain_commands(command)) is None:
                out, errors, status = run_shell(command)
                assert status == 0, f"{page}:{block.line}: {command}\n{out[-2000:]}\n{errors[-4000:]}"
            else:
                run_here(lines, f"{page}:{block.line}")


def plain_commands(text: str) -> list[list[str]] | None:
    """Arguments of each `batchnav` of a block; None if the shell or a process of its own has further work to do."""
    if SHELL.search(text):
        return None
    lines = [shlex.split(line, comments=True) for line in text.replace("\\\n", " ").splitlines()]
    if any(words[:1] not in ([], ["batchnav"]) or OPTION in words for words in lines):
        return None
    return [words[1:] for words in lines if words]


def run_here(lines: list[list[str]], where: str) -> None:
    """Run commands in this process, which has imported PyTorch already."""
    for words in lines:
        threads = torch.get_num_threads(), numba.get_num_threads()
        try:
            main(words)
        except SystemExit as end:
            assert not end.code, f"{where}: {shlex.join(words)}\n{end.code}"
        finally:
            torch.set_num_threads(threads[0])
            numba.set_num_threads(threads[1])


def run_shell(command: str) -> tuple[str, str, int]:
    """Run shell lines; returns output, errors and exit status. A timeout ends all processes that they started.

    `batchnav` runs in the current interpreter, also if it is not on PATH.
    """
    ours = f'batchnav() {{ {shlex.quote(sys.executable)} -m batchnav "$@"; }}'
    shell = ["bash", "-euo", "pipefail", "-c", f"{ours}\n{command}"]
    pipe = subprocess.PIPE
    with subprocess.Popen(shell, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        try:
            return *process.communicate(timeout=LONGEST), process.returncode
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise


@pytest.mark.slow
@pytest.mark.parametrize("page", ANYWHERE, ids=name_of)
def test_blocks_run(page, folder):
    play(page, runnable(page, frozenset()), folder)


@pytest.mark.cuda
@pytest.mark.parametrize("page", ON_GPU, ids=name_of)
def test_blocks_run_on_a_gpu(page, folder):
    play(page, runnable(page, frozenset({"gpu"})), folder)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_that_tests_do_not_run_parse(page, folder):
    """Check options, configuration names and values of blocks that tests do not run."""
    for block in blocks(page):
        if block.file:
            (folder / block.file).write_text(block.text)
        for command in block.text.replace("\\\n", " ").splitlines() if block.language == "sh" and block.needs else ():
            words = shlex.split(command, comments=True)
            if words[:3] == ["batchnav", "train", "anticipation"]:
                tyro.cli(train.AnticipationOptions, args=words[3:])
            elif words[:3] == ["batchnav", "train", "encoder"]:
                tyro.cli(train.EncoderOptions, args=words[3:])
            elif words[:3] == ["batchnav", "train", "detector"]:
                tyro.cli(train.DetectorOptions, args=words[3:])
            elif words[:3] == ["batchnav", "train", "cartpole"]:
                tyro.cli(train.CartPoleOptions, args=words[3:])
            elif words[:2] == ["batchnav", "train"] and "..." not in words:
                start.parse(words[2:])
            elif words[:2] == ["batchnav", "evaluate"] and "..." not in words:
                evaluate.parse(words[2:])


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_named_files_exist(page):
    for path in NAMED.findall(page.read_text(encoding="utf-8")):
        assert (ROOT / path).is_file(), f"{page}: names {path}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_name_a_known_language_and_known_needs(page):
    for block in blocks(page):
        assert block.language in RUN + OTHERS, f"{page}:{block.line}: found {block.language!r}"
        assert block.needs <= NEEDS, f"{page}:{block.line}: found {set(block.needs - NEEDS)}"


def test_readme_has_at_most_150_lines():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


EXTRA = re.compile(r"^(?:make ([a-z]+)|pip install (.*\.\[[a-z,]+\].*?))\s*(?:#.*)?$", re.MULTILINE)
"""A line that adds an extra to a checkout: a target of make, or a command of pip."""


def extras_of_pages() -> list[str]:
    """Commands of all pages that add extras to a checkout: one of each form, as extras differ in packages alone."""
    text = "\n".join(block.text for page in PAGES for block in blocks(page) if block.language == "sh")
    found = {match[0].partition("#")[0].strip() for match in EXTRA.finditer(text) if match[2]}
    forms = {re.sub(r"[a-z]+(?=[],])", "NAME", command): command for command in sorted(found)}
    return [*forms.values(), "make viewer"]


@pytest.mark.slow
def test_extras_keep_the_installation_of_make_train(tmp_path):
    """After an editable installation, as that of `make train`, each page's command leaves batchnav in the checkout.

    Packages are not downloaded: pip installs batchnav alone, in an environment that finds those of this one.
    """
    checkout, here = tmp_path / "checkout", Path(batchnav.__file__).parents[1]
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=here, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if name.startswith(("batchnav/", "assets/", "configs/")) or "/" not in name:
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            (checkout / name).symlink_to(here / name) if name.endswith(".safetensors") else shutil.copy(
                here / name, checkout / name
            )
    venv.create(checkout / ".venv", with_pip=True)
    python = checkout / ".venv" / "bin" / "python"
    (site,) = (checkout / ".venv").glob("lib/python*/site-packages")
    (site / "others.pth").write_text("\n".join(each for each in sys.path if each.endswith("site-packages")))
    env = os.environ | {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PYTHONPATH": ""}
    env |= {"PATH": f"{python.parent}{os.pathsep}{env['PATH']}", "PIP_CONSTRAINT": "", "PIP_BUILD_CONSTRAINT": ""}

    def shell(command, folder=checkout):
        done = subprocess.run(command, shell=True, cwd=folder, env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    shell(f"{python} -m pip install --quiet --editable . && touch .venv/.installed")
    commands = extras_of_pages()
    assert "pip install -e '.[viewer]'" in commands and len(commands) >= 3
    for command in commands:
        shell(command)
        where = shell(f"{python} -c 'import batchnav; print(batchnav.__file__)'", tmp_path)
        assert where.strip() == str(checkout / "batchnav" / "__init__.py"), command


def test_pages_add_extras_by_targets_of_the_makefile():
    """`make viewer` and the others exist, and install an editable checkout."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"pip install ['\"]?\.\[", text), (
            f"{page}: expected pip install -e, which keeps a checkout editable"
        )
        for name in re.findall(r"`?make (viewer|export|ros2|video|adapters|collada|draco|basisu)\b", text):
            done = subprocess.run(["make", "-n", name], cwd=ROOT, capture_output=True, text=True)
            assert f"--editable '.[{name}]'" in done.stdout, (page, done.stderr)
