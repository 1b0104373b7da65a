"""Availability of Triton kernels, and the modules that use them."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from networks import sizes

from batchnav.policy import encoder, lstm
from batchnav.policy.encoder import SEResNet9
from batchnav.policy.lstm import EpisodicLSTM
from batchnav.runtime import device
from batchnav.runtime.device import has_triton

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("compiler", "installed", "version", "expected"),
    [
        ("gcc", True, (3, 6), True), (None, True, (3, 6), False), ("gcc", False, (3, 6), False),
        ("gcc", True, (3, 4), False),  # torch 2.8
    ],
)  # fmt: skip
def test_triton_needs_its_compiler(monkeypatch, compiler, installed, version, expected):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(device.shutil, "which", lambda name: compiler)
    monkeypatch.setattr(device.importlib.util, "find_spec", lambda name: installed or None)
    monkeypatch.setattr(device, "_triton_version", lambda: version)
    assert device._triton_is_installed.__wrapped__() == expected


def test_the_cpu_has_no_triton():
    assert not has_triton(torch.device("cpu"))


@pytest.mark.parametrize(
    ("module", "make"),
    [(encoder, lambda: SEResNet9((1, 32, 32), *sizes(base_width=4))), (lstm, lambda: EpisodicLSTM(4, 64, 1))],
)
def test_a_module_looks_for_triton_when_it_moves_to_a_device(monkeypatch, module, make):
    monkeypatch.setattr(module, "has_triton", lambda device: device.type == "meta")
    network = make()
    assert not network.has_kernels and network.to("meta").has_kernels
    assert not network.to_empty(device="cpu").has_kernels
    with torch.device("meta"):
        assert make().has_kernels


def test_compiled_code_reads_the_stored_answer(monkeypatch):
    network = SEResNet9((1, 32, 32), *sizes(base_width=4, visual_size=8)).bfloat16()
    monkeypatch.setattr(encoder, "has_triton", None)  # not asked for each batch
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    image = torch.rand(2, 1, 32, 32).bfloat16()
    assert torch.equal(compiled(image), network(image))


ACTS = """
import sys, torch, batchnav
agent = batchnav.load_policy("assets/policies/pointnav_h200/policy.safetensors")
agent.reset(num_envs=2)
agent.act({name: torch.rand(2, *shape) for name, shape in agent.network.observation_shapes.items()})
print("torch._dynamo" in sys.modules)
"""


def test_a_policy_that_acts_imports_no_compiler():
    """torch's takes a second; optimisers bring it."""
    found = subprocess.run([sys.executable, "-c", ACTS], cwd=ROOT, capture_output=True, text=True)
    assert found.stdout.split() == ["False"], found.stderr
