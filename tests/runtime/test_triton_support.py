"""Availability of Triton kernels, and the modules that use them."""

import importlib
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from batchnav.errors import BatchnavError
from batchnav.runtime.device import has_triton
from batchnav.runtime.imports import install_command

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


@pytest.mark.parametrize(
    "lines, expected",
    [
        (["torch>=2.6", 'viser<1.2,>=1.1; extra == "viewer"', "av; extra == 'video'"], "pip install 'viser<1.2,>=1.1'"),
        (["a[b]>=1 ; extra == 'viewer'", "c; extra == 'viewer'", "d; extra == 'viewer2'"], "pip install 'a[b]>=1' 'c'"),
        (None, "pip install '.[viewer]' in the checkout"),
    ],
)
def test_packages_of_an_extra(lines, expected, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: lines)
    assert install_command("viewer") == expected


def test_a_checkout_that_is_not_installed(monkeypatch):
    def requires(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    assert install_command("video") == "pip install '.[video]' in the checkout"


@pytest.mark.parametrize("package", ["rsl_rl", "skrl", "stable_baselines3", "torchrl"])
def test_an_adapter_without_its_library_says_what_to_install(package, monkeypatch):
    module = f"batchnav.envs.adapters.{package}"
    for name in [name for name in sys.modules if name == module or name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # an import of it then raises ModuleNotFoundError
    with pytest.raises(ImportError, match=r"^adapter to .*: found .*, expected the package: pip install ") as caught:
        importlib.import_module(module)
    assert isinstance(caught.value, BatchnavError) and caught.value.name.partition(".")[0] == package
    assert install_command("adapters") in str(caught.value)
