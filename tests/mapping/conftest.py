"""Fixtures of the mapping tests: devices, and one thread for networks."""

import pytest
import torch


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request):
    """Name of the device that maps are on."""
    return request.param


@pytest.fixture(scope="module")
def one_thread():
    """Run PyTorch on one thread: on a busy machine several threads wait long for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
