"""Devices: where torch.compile caches, Triton kernels and the modules that use them; pauses of the collector."""

import gc
import getpass
import importlib
import importlib.metadata
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from batchnav.errors import BatchnavError
from batchnav.runtime import device
from batchnav.runtime import garbage_collection as collector
from batchnav.runtime.device import CACHE, TRITON_CACHE, compiled, has_triton
from batchnav.runtime.imports import install_command


def nameless():
    raise KeyError("getpwuid(): uid not found: 12345")


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """Parts given to torch.compile, whose variable is unset; our cache folder is empty."""
    found = []
    monkeypatch.setattr(torch, "compile", lambda part, **how: found.append((part, how)) or part)
    for name in (CACHE, TRITON_CACHE):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)  # a later test finds it as it was, also if this one sets it
    monkeypatch.setenv("BATCHNAV_CACHE", str(tmp_path / "cache"))
    return found


@pytest.mark.parametrize("error", [KeyError, OSError, ImportError])
def test_without_a_user_name_the_cache_is_below_ours(error, calls, monkeypatch, tmp_path):
    def raises():
        raise error("no such user")

    monkeypatch.setattr(getpass, "getuser", raises)
    assert compiled(len) is len and calls == [(len, {"dynamic": False})]
    folder = Path(device.os.environ[CACHE])
    assert folder == tmp_path / "cache" / "torch" and stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_module_is_compiled_in_place(calls, monkeypatch):
    monkeypatch.setattr(getpass, "getuser", nameless)
    module = torch.nn.Linear(2, 3)
    assert compiled(module) is module
    assert calls == [(module._call_impl, {"dynamic": False})] and CACHE in device.os.environ


def test_pytorch_chooses_where_it_can(calls, monkeypatch, tmp_path):
    monkeypatch.setattr(getpass, "getuser", lambda: "me")
    compiled(len)
    assert CACHE not in device.os.environ
    monkeypatch.setattr(getpass, "getuser", nameless)
    monkeypatch.setenv(CACHE, str(tmp_path / "mine"))
    compiled(len)
    assert device.os.environ[CACHE] == str(tmp_path / "mine") and not (tmp_path / "cache").exists()


def test_triton_has_one_cache(calls, monkeypatch, tmp_path):
    """PyTorch's compiler would name another folder later, and kernels would be compiled a second time."""
    monkeypatch.setattr(getpass, "getuser", lambda: "me")
    monkeypatch.setenv("TRITON_HOME", str(tmp_path))
    compiled(len)
    assert device.os.environ[TRITON_CACHE] == str(tmp_path / ".triton" / "cache")


def test_triton_is_below_a_named_cache(calls, monkeypatch, tmp_path):
    monkeypatch.setenv(CACHE, str(tmp_path / "mine"))
    compiled(len)
    assert device.os.environ[TRITON_CACHE] == str(tmp_path / "mine" / "triton")


def test_a_named_cache_of_triton_stays(calls, monkeypatch, tmp_path):
    monkeypatch.setenv(TRITON_CACHE, str(tmp_path))
    monkeypatch.setattr(getpass, "getuser", lambda: "me")
    compiled(len)
    assert device.os.environ[TRITON_CACHE] == str(tmp_path)


# Pauses of Python's garbage collector


def test_collector_is_paused_until_the_last_resume():
    """A thread that compiles ends while another records a graph, in which nothing may be collected."""
    compiling, recording = threading.Event(), threading.Event()

    def compile_meanwhile():
        with collector.collection_paused():
            compiling.set()
            assert recording.wait(300)

    thread = threading.Thread(target=compile_meanwhile)
    thread.start()
    assert compiling.wait(300)
    with collector.collection_paused():
        recording.set()
        thread.join()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_disabled_collector_stays_disabled():
    gc.disable()
    try:
        with collector.collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


# Availability of Triton kernels, and the modules that use them

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
        (None, "pip install -e '.[viewer]' in the checkout"),
    ],
)
def test_packages_of_an_extra(lines, expected, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: lines)
    assert install_command("viewer") == expected


def test_a_checkout_that_is_not_installed(monkeypatch):
    def requires(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    assert install_command("video") == "pip install -e '.[video]' in the checkout"


@pytest.mark.parametrize(
    "package, installed",
    [
        ("pettingzoo", "pettingzoo"), ("rsl_rl", "rsl-rl-lib"), ("skrl", "skrl"),
        ("stable_baselines3", "stable-baselines3"), ("torchrl", "torchrl"),
    ],
)  # fmt: skip
def test_an_adapter_without_its_library_says_what_to_install(package, installed, monkeypatch):
    module = f"batchnav.envs.adapters.{package}"
    for name in [name for name in sys.modules if name == module or name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # an import of it then raises ModuleNotFoundError
    expected = rf"^adapter to .*: found .*, expected the package {installed}: pip install '{installed}[^']*'$"
    with pytest.raises(ImportError, match=expected) as caught:
        importlib.import_module(module)
    assert isinstance(caught.value, BatchnavError) and caught.value.name.partition(".")[0] == package
