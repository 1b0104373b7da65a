"""Commands name commands for next steps; each of them runs as it is printed."""

import re
import shlex

import pytest
from worlds import episodes_on, write_floor

from batchnav.data.episodes.episode_file import save_episodes
from batchnav.view.viewer.app import Viewer

LINE = re.compile(r"^To [a-z ]+: batchnav (.*)$", re.MULTILINE)
SMALL_TRAINING = (
    "--device", "cpu", "--processes", "1", "--ppo.num-envs", "4", "--ppo.rollout-steps", "4", "--ppo.minibatches", "1",
    "--ppo.total-frames", "16", "--env.camera.height", "16", "--env.camera.width", "16", "--eval-every", "0",
)  # fmt: skip
NEXT = {
    "train": (*SMALL_TRAINING, "--scenes.houses", "0", "--scenes.sources", "floor.glb"),
    "evaluate": ("--device", "cpu", "--report-episodes", "1"),
    "data make-episodes": ("--per-scene", "2"),
}
"""Options that make printed commands small and independent of the machine."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Working folder, with a blank in its name, that has a small scene and episodes in it."""
    path = tmp_path / "my folder"
    path.mkdir()
    monkeypatch.chdir(path)
    write_floor(path / "floor.glb")
    save_episodes(episodes_on("floor.glb", 2), path / "few.json.gz")
    monkeypatch.setattr(Viewer, "run", lambda viewer: viewer.stop())  # it serves until it is interrupted
    return path


def run_small(run, words):
    """Run a printed command with the options of NEXT."""
    name = " ".join(words[:2]) if words[0] == "data" else words[0]
    more = NEXT.get(name, ())
    if name == "train" and "--scenes.sources" in words:
        more = SMALL_TRAINING
    return run(*words, *more)


@pytest.mark.parametrize(
    "command, number",
    [
        (("navmesh", "bake", "floor.glb", "--out", "a navmesh.navmesh"), 1),
        (("navmesh", "map", "floor.glb", "--out", "a map.yaml"), 1),
        (("data", "import", "floor.glb", "--out", "my scenes"), 2),
        (("data", "export", "floor.glb", "--out", "a scene.glb"), 1),
        (("data", "make-episodes", "floor.glb", "--per-scene", "2", "--out", "my episodes.json.gz"), 1),
        (("evaluate", "greedy", "--episodes", "few.json.gz", "--device", "cpu", "--out", "an evaluation"), 2),
        (("doctor",), 2),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_printed_commands_run(command, number, folder, run):
    found = LINE.findall(run(*command))
    assert len(found) == number
    for line in found:
        run_small(run, shlex.split(line))
