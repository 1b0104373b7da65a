"""Availability of Triton kernels, and the modules that use them."""

import subprocess
import sys
from pathlib import Path

import torch

from batchnav.runtime.device import has_triton

ROOT = Path(__file__).resolve().parents[2]


def test_the_cpu_has_no_triton():
    assert not has_triton(torch.device("cpu"))


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
