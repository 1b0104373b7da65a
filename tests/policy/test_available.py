"""Where kernels in Triton are used."""

import pytest
import torch

from batchnav.policy import available
from batchnav.policy.available import has_triton


@pytest.mark.parametrize(
    ("compiler", "installed", "expected"), [("gcc", True, True), (None, True, False), ("gcc", False, False)]
)
def test_triton_needs_its_compiler(monkeypatch, compiler, installed, expected):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(available.shutil, "which", lambda name: compiler)
    monkeypatch.setattr(available.importlib.util, "find_spec", lambda name: installed or None)
    assert available._is_installed.__wrapped__() == expected


def test_the_cpu_has_no_triton():
    assert not has_triton(torch.device("cpu"))


def test_compiled_code_knows_at_once():
    def which(x):
        return x + 1 if has_triton(x.device) else x - 1

    compiled = torch.compile(which, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.zeros(2)), torch.full((2,), -1.0))
