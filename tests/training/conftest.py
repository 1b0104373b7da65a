"""What tests of runs share."""

import pytest


@pytest.fixture
def held(tmp_path):
    """A file that a run waits for (`small_runs.Carts`): what comes meanwhile finds it running, however slow the machine."""
    (tmp_path / "held").touch()
    return tmp_path / "held"
