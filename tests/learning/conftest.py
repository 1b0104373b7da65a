"""All tests of this folder use small networks, which are faster on one thread."""

import pytest


@pytest.fixture(autouse=True)
def small_networks(one_thread):
    """Apply `one_thread` to every test."""
