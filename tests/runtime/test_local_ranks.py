"""Local ranks: they wait while rank 0 prepares, and exit with it in every case."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from batchnav.errors import DeviceError
from batchnav.runtime.distributed import join, start_local_ranks
from batchnav.runtime.parallel import num_threads

PATIENCE = 600.0
"""Seconds for what takes a few on a quiet machine."""
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from batchnav.runtime.distributed import Heartbeat
from batchnav.runtime.distributed import join
from batchnav.runtime.distributed import start_local_ranks

def wait_for(name):
    while not (folder / name).exists():
        time.sleep(0.05)

def wait_for_all(*arguments):
    (folder / "told").touch()
    as_it_is(*arguments)

folder, as_it_is = Path(sys.argv[1]), Heartbeat.wait_for_all
Heartbeat.wait_for_all = wait_for_all
if "RANK" in os.environ:
    (folder / "started").touch()
    wait_for("imported")
    with join("cpu") as ranks:
        ranks.all_gather(ranks.rank)
    sys.exit()
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background begins with it ignored
try:
    with start_local_ranks(2, sys.orig_argv):
        wait_for("prepared")
        with join("cpu") as ranks:
            print(ranks.all_gather(ranks.rank))
except KeyboardInterrupt:
    sys.exit(130)
"""
"""Rank 0, and started again by it rank 1. Each goes on to `join` when a file says so."""
WAITS, IS_TOLD = ("started", "imported"), ("started", "prepared", "told")
"""What has happened where rank 1 waits in `join` to be told, or still imports when it is told."""


@pytest.fixture
def rank_0(tmp_path):
    """Rank 0, its own session; what all say comes by its stdout, which ends when all have ended."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    yield process
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def come_to(phase, process, folder):
    """Let ranks go as far as that."""
    for name in phase:
        if name in ("imported", "prepared"):
            (folder / name).touch()
        while not (folder / name).exists():
            assert process.poll() is None
            time.sleep(0.05)


def test_local_ranks_join_rank_0(rank_0, tmp_path):
    come_to(("imported", "prepared"), rank_0, tmp_path)
    assert rank_0.communicate(timeout=PATIENCE)[0] == "[0, 1]\n" and rank_0.returncode == 0


@pytest.mark.parametrize("phase", [WAITS, IS_TOLD], ids="-".join)
def test_local_ranks_exit_silently_if_rank_0_is_killed(rank_0, tmp_path, phase):
    come_to(phase, rank_0, tmp_path)
    rank_0.kill()
    rank_0.wait()
    (tmp_path / "imported").touch()
    assert rank_0.communicate(timeout=PATIENCE)[0] == ""


@pytest.mark.parametrize(("phase", "number", "status"), [(IS_TOLD, signal.SIGTERM, 143), (WAITS, signal.SIGINT, 130)])
def test_a_signal_before_all_have_joined_ends_local_ranks(rank_0, tmp_path, phase, number, status):
    """At once and without a word: nobody waits for what is gone. A terminal sends SIGINT to all."""
    come_to(phase, rank_0, tmp_path)
    (os.killpg if number == signal.SIGINT else os.kill)(rank_0.pid, number)
    assert rank_0.communicate(timeout=PATIENCE)[0] == "" and rank_0.returncode == status


AGAIN = """
import os, sys
from batchnav.errors import DeviceError
from batchnav.runtime.distributed import join, start_local_ranks

if "RANK" in os.environ:
    with join("cpu") as ranks:
        ranks.all_gather(ranks.rank)
    sys.exit()
os.environ["GLOO_SOCKET_IFNAME"] = "absent"
for _ in range(3):
    try:
        with start_local_ranks(2, sys.orig_argv), join("cpu") as ranks:
            print(ranks.all_gather(ranks.rank))
    except DeviceError as error:
        print(str(error).split(" (")[0])
        del os.environ["GLOO_SOCKET_IFNAME"]
"""
"""Starts ranks three times, as a notebook may; the first start fails, since there is no such network interface."""


@pytest.mark.slow
def test_ranks_start_again_after_a_failed_start():
    done = subprocess.run([sys.executable, "-c", AGAIN], stdout=subprocess.PIPE, text=True, timeout=PATIENCE)
    assert done.stdout.splitlines() == ["rank 0", "[0, 1]", "[0, 1]"] and done.returncode == 0


def test_a_local_rank_that_exits_before_it_joins_is_an_error():
    before, threads = dict(os.environ), (num_threads(), torch.get_num_threads())
    command = [sys.executable, "-c", "import os, time; time.sleep(600 * (os.environ['RANK'] == '2'))"]
    with (
        pytest.raises(DeviceError, match="rank 1 of 3: exited before it joined, expected all to join"),
        start_local_ranks(3, command),
    ):
        join("cpu")
    assert os.environ == before and (num_threads(), torch.get_num_threads()) == threads
