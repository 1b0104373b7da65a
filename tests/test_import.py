"""`import batchnav` imports no other package, so that it is fast."""

import subprocess
import sys

import pytest

from batchnav.errors import DeviceError
from batchnav.runtime import device

SEEN = """
import sys
before = set(sys.modules)
import batchnav
print(*{name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)
"""


def test_import_pulls_in_no_other_package():
    found = subprocess.run([sys.executable, "-c", SEEN], capture_output=True, text=True, check=True).stdout
    assert found.split() == ["batchnav"]


WITHOUT_CUDA = """
import importlib.abc, sys
class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in ("numba_cuda", "cuda"):
            raise ModuleNotFoundError(name)
sys.meta_path[:] = [Hidden(), *(finder for finder in sys.meta_path if "numba_cuda" not in type(finder).__module__)]
import batchnav.cartpole.env, batchnav.cli.train, batchnav.gym.envs
print(len(batchnav.cartpole.env.CartPoleEnv(4).reset(seed=0)[0]))
"""


def test_a_cpu_does_without_the_packages_for_cuda():
    """Numba contains a CUDA target that batchnav does not use; the extra "cuda" replaces it."""
    found = subprocess.run([sys.executable, "-c", WITHOUT_CUDA], capture_output=True, text=True)
    assert found.stdout.split() == ["4"], found.stderr


def test_a_gpu_without_them_is_told_what_to_install(monkeypatch):
    monkeypatch.setattr(device.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(device.torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(device.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DeviceError, match=r"found no numba-cuda, .* pip install .*'numba-cuda"):
        device.resolve_device("cuda")
