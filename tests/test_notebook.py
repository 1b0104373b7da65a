"""docs/get_started/first_agent.ipynb runs from top to bottom with short training, and shows its pictures."""

import pytest

from tests.pages import ROOT

NOTEBOOK = ROOT / "docs" / "get_started" / "first_agent.ipynb"
SHORT = "frames, houses, episodes = 4096, 2, 8"


@pytest.mark.slow
def test_the_notebook_runs(tmp_path, monkeypatch):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    (parameters,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ()))
    parameters.source = SHORT
    nbclient.NotebookClient(notebook, timeout=3600, resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    shown = [kind for output in outputs for kind in output.get("data", ())]
    assert shown.count("image/png") >= 3 and "image/gif" in shown  # navmesh, mosaic, curves; the episode
    said = "".join(output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs)
    assert "100%" in said and "trained {" in said  # the progress bar, and the metrics
