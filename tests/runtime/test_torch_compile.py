"""torch.compile for a user without a name, as in containers with an arbitrary user id."""

import gc
import getpass
import stat
import threading
from pathlib import Path

import pytest
import torch

from batchnav.runtime import device
from batchnav.runtime import garbage_collection as collector
from batchnav.runtime.device import CACHE, compiled


def nameless():
    raise KeyError("getpwuid(): uid not found: 12345")


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """Parts given to torch.compile, whose variable is unset; our cache folder is empty."""
    found = []
    monkeypatch.setattr(torch, "compile", lambda part, **how: found.append((part, how)) or part)
    monkeypatch.setenv(CACHE, "")
    monkeypatch.delenv(CACHE)  # a later test finds it as it was, also if this one sets it
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
