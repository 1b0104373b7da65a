"""Fixtures shared by tests of training runs."""

import pytest


@pytest.fixture
def held(tmp_path):
    """A file that keeps a run waiting while it exists (`small_runs.Carts`), on fast and slow machines alike."""
    (tmp_path / "held").touch()
    return tmp_path / "held"
