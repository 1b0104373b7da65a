"""Kernels in forked processes: an error that says what to do, and work where no loop ran before the fork."""

import re
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import torch

from batchnav.errors import DeviceError

MESSAGE = "made by fork after its parent ran a kernel .* spawn"
CARTS = {"num_envs": 2, "vectorization_mode": "async"}


class Frames(torch.utils.data.Dataset):
    """First observations of an environment, reset in the workers of a DataLoader."""

    def __init__(self, env):
        self.env = env

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.env.reset()[0].clone()


@pytest.fixture
def carts():
    from batchnav.cartpole.env import CartPoleEnv

    env = CartPoleEnv(4)
    env.reset()
    env.step(torch.ones(4, dtype=torch.int64))
    return env


def test_workers_of_a_data_loader_say_what_to_do(carts):
    loader = torch.utils.data.DataLoader(Frames(carts), num_workers=1, multiprocessing_context="fork")
    with pytest.raises(DeviceError, match=MESSAGE):
        next(iter(loader))
    assert len(list(torch.utils.data.DataLoader(Frames(carts), num_workers=0))) == 2  # the parent still works


def test_gymnasiums_processes_say_what_to_do_and_work_when_spawned(carts, capfd):
    # Gymnasium's worker makes its environment outside its error handling: the message is in the worker's traceback.
    with pytest.raises((ConnectionError, EOFError, DeviceError)):
        gymnasium.make_vec("batchnav.gym:batchnav/CartPole-v0", **CARTS, vector_kwargs={"context": "fork"}).reset()
    assert re.search(MESSAGE, capfd.readouterr().err)
    env = gymnasium.make_vec("batchnav.gym:batchnav/CartPole-v0", **CARTS, vector_kwargs={"context": "spawn"})
    env.reset(seed=1)
    observation, *_ = env.step(np.ones(2, np.int64))
    assert observation.shape == (2, 4)
    env.close()


def _play(connection):
    from batchnav.cartpole.env import CartPoleEnv

    env = CartPoleEnv(4)
    env.reset()
    connection.send(env.step(torch.ones(4, dtype=torch.int64))[1].tolist())


FORK_FIRST = """
import multiprocessing, sys
sys.path.insert(0, "tests/runtime/kernels")
import batchnav.cartpole.env, test_forks
here, there = multiprocessing.Pipe()
worker = multiprocessing.get_context("fork").Process(target=test_forks._play, args=(there,))
worker.start()
assert here.poll(300), worker.exitcode
print(here.recv())
"""


def test_kernels_run_in_processes_that_are_forked_before_the_first_kernel():
    done = subprocess.run([sys.executable, "-c", FORK_FIRST], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[1.0, 1.0, 1.0, 1.0]", done.stderr
