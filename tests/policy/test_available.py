"""Where kernels in Triton are used."""

import pytest
import torch

from batchnav.policy import available
from batchnav.policy.available import has_triton


@pytest.mark.parametrize(
    ("compiler", "installed", "version", "expected"),
    [
        ("gcc", True, (3, 6), True), (None, True, (3, 6), False), ("gcc", False, (3, 6), False),
        ("gcc", True, (3, 4), False),  # torch 2.8
    ],
)  # fmt: skip
def test_triton_needs_its_compiler(monkeypatch, compiler, installed, version, expected):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(available.shutil, "which", lambda name: compiler)
    monkeypatch.setattr(available.importlib.util, "find_spec", lambda name: installed or None)
    monkeypatch.setattr(available, "_version", lambda: version)
    assert available._is_installed.__wrapped__() == expected


def test_the_cpu_has_no_triton():
    assert not has_triton(torch.device("cpu"))


def test_compiled_code_knows_at_once():
    def which(x):
        return x + 1 if has_triton(x.device) else x - 1

    compiled = torch.compile(which, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.zeros(2)), torch.full((2,), -1.0))
