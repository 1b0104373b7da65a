"""GitHub's workflows name files and targets of make that exist."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_commands_of_a_workflow_exist(path):
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
    commands = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    assert commands and all(job["timeout-minutes"] <= 60 for job in jobs)
    text = " ".join(commands)
    files = re.findall(r"(?<![\w/.])(?:tests|assets|\.ci)(?:/[\w.]+)*", text)
    assert [name for name in files if not (ROOT / name).exists()] == []
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"\bmake (\w+)", text)) <= set(targets)
    assert files
