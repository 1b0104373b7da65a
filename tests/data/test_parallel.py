"""The same work on many items, in processes."""

import resource

import pytest
import torch

from batchnav.data import parallel
from batchnav.data.parallel import in_parallel


def _few(n):
    return [torch.full((2,), n + k) for k in range(10)]


def _half(n):
    return 1 / n


@pytest.fixture
def two_processes(monkeypatch):
    monkeypatch.setattr(parallel, "num_threads", lambda: 2)


def test_results_come_in_order_and_hold_no_file_open(two_processes):
    """A process may often have but 1,024 files open, and a scene holds several tensors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 256), hard))
    try:
        results = in_parallel(_few, range(100), "tensors")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [few[9][1].item() for few in results] == list(range(9, 109))


def test_an_error_in_a_process_is_raised_here(two_processes):
    with pytest.raises(ZeroDivisionError):
        in_parallel(_half, [2, 1, 0, 1], "halves")
