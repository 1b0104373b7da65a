"""The notebooks of docs/get_started run from top to bottom with short training, and show their pictures."""

import sys
from pathlib import Path

import pytest

from batchnav.data.formats import EpisodeDataset, load_episodes
from tests.pages import ROOT

SHORT = "frames, houses, episodes = 4096, 2, 8"
SHORT_COLAB = "URL, frames, houses, episodes = 'none', 512, 2, 'few.json.gz'"


def run_notebook(name, folder, **sources):
    """Outputs of a notebook's cells; `sources` replaces those of the cells with these tags."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    notebook = nbformat.read(ROOT / "docs" / "get_started" / name, as_version=4)
    for tag, source in sources.items():
        (cell,) = (cell for cell in notebook.cells if tag in cell.metadata.get("tags", ()))
        cell.source = source
    nbclient.NotebookClient(notebook, timeout=3600, resources={"metadata": {"path": folder}}).execute()
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def pages(outputs):
    return "".join("".join(output.get("data", {}).get("text/html", "")) for output in outputs)


@pytest.mark.slow
def test_the_first_agent_is_trained(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    outputs = run_notebook("first_agent.ipynb", tmp_path, parameters=SHORT)
    shown = [kind for output in outputs for kind in output.get("data", ())]
    assert shown.count("image/png") >= 3  # navmesh, mosaic, curves
    assert 'src="data:image/gif;base64,' in pages(outputs)  # the episode, which nbconvert keeps in HTML
    said = "".join(output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs)
    assert "100%" in said and "trained {" in said  # the progress bar, and the metrics


@pytest.mark.slow
def test_the_notebook_for_colab_runs_once_installed(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    EpisodeDataset(load_episodes(ROOT / "assets" / "episodes" / "val.json.gz")[:2]).save(tmp_path / "few.json.gz")
    outputs = run_notebook("colab.ipynb", tmp_path, parameters=SHORT_COLAB, install="pass")
    said = "".join(output.get("text", "") for output in outputs)
    assert "| agent | success | SPL |" in said and 'src="data:image/gif;base64,' in pages(outputs)
