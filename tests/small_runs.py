"""Training runs in CartPole, each in its own process, forked from a process that has imported all modules.

CartPole replaces the navigation environment: the tests examine folder and loop, and such a run starts quickly.
"""

import functools
import json
import multiprocessing
import os
import resource
import sys
import time
from pathlib import Path

import torch
from ranks import free_port, variables

from batchnav.cartpole.env import CartPoleEnv
from batchnav.config import from_dict
from batchnav.errors import BatchnavError
from batchnav.training import loop as training
from batchnav.training.config import TrainingConfig

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["batchnav.training.loop", "batchnav.cartpole.env", "torch._dynamo"]
)  # torch imports it late; import it before forking
FRAMES = 8 * 16
"""Frames of an update."""
PATIENCE = 900.0
"""Time limit of a run, seconds: two on an idle machine with cached kernels, minutes on a busy one without."""
BEGUN = "a rollout begins"


def make_run(updates=30, save_every=0.0, **changes):
    """A run that saves after every update, with these settings changed."""
    return from_dict(TrainingConfig, {
        "policy": {"hidden_size": 16, "memory": "none"},
        "ppo": {
            "num_envs": 8, "rollout_steps": 16, "total_frames": updates * FRAMES, "optimizer": "adamw",
            **changes.pop("ppo", {}),
        },
        "device": "cpu", "save_every": save_every, **changes,
    })  # fmt: skip


class Carts(CartPoleEnv):
    """CartPole environments of one rank, with a fault.

    `faults` maps ranks to a fault of the third rollout ("nan", "sleep", a message of OutOfMemoryError), to BEGUN, which
    prints a line at the start of every rollout, or to a path: from the fourth rollout on, the run waits while the file
    exists.
    """

    def __init__(self, num_envs, ranks, seed, faults):
        super().__init__(num_envs, ranks.device, seed)
        self.rank, self.fault, self.rollouts = ranks.rank, faults.get(ranks.rank), 0

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=None if seed is None else seed + self.rank, options=options)

    def between_rollouts(self):
        self.rollouts += 1
        if self.fault == BEGUN:
            print(BEGUN, flush=True)
        elif isinstance(self.fault, Path):
            while self.rollouts > 3 and self.fault.exists():
                time.sleep(0.01)
        elif self.fault and self.rollouts == 3:
            if self.fault == "sleep":
                time.sleep(PATIENCE)
            elif self.fault != "nan":
                raise torch.OutOfMemoryError(f"no {self.fault}")
        return super().between_rollouts()

    def step(self, actions):
        observation, reward, *rest = super().step(actions)
        if self.fault == "nan" and self.rollouts == 3:
            reward = reward + float("nan")
        return observation, reward, *rest


def play(run, out, largest_file=None, variables=None, faults=None, stall_seconds=600.0, **options):
    """Train as `train/pointnav.py` does after parsing its command line, in CartPole."""
    log = os.open(f"{out}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if largest_file is not None:  # acts as a full disk: writes beyond the limit fail
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    torch.set_num_threads(1)
    training.make_environment = lambda run, ranks: Carts(run.ppo.num_envs, ranks, run.seed, faults or {})
    training.join = functools.partial(training.join, stall_seconds=stall_seconds)
    os.environ.update(variables or {})
    try:
        training.train(run, out, **options)
    except BatchnavError as error:
        sys.exit(f"error: {error}")


def start(run, out, **options):
    """Start a run; `process.pid`, `process.exitcode` (negative: the signal that killed it)."""
    process = CONTEXT.Process(target=play, args=(run, out), kwargs=options, daemon=True)
    process.start()
    return process


def start_ranks(run, out, world_size, **options):
    """Start a distributed run of `world_size` processes."""
    port = free_port()
    return [start(run, out, variables=variables(rank, world_size, port), **options) for rank in range(world_size)]


def finish(process):
    """Wait for a run to end; returns its exit status."""
    process.join(PATIENCE)
    assert process.exitcode is not None, "the run does not end"
    return process.exitcode


def log_of(out):
    """The output of all runs in a folder, stdout and stderr."""
    with open(f"{out}.log", encoding="utf-8") as file:
        return file.read()


def rows(out):
    """The complete rows of the curves."""
    path = out / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def without_times(row):
    return {key: value for key, value in row.items() if key not in ("seconds", "collect", "learn", "frames_per_second")}


def wait_until(process, condition, pause=0.003):
    """Wait for a condition while the process runs."""
    until, going_on = time.monotonic() + PATIENCE, True
    while not condition():  # check once more after the process has ended
        assert going_on, "the run ended or stalled before that"
        going_on = process.is_alive() and time.monotonic() < until
        time.sleep(pause)


def assert_same_run(found, expected):
    """Assert that two folders hold the same run bit for bit, except for measured times."""
    assert list(map(without_times, rows(found))) == list(map(without_times, rows(expected)))
    assert (found / "policy.safetensors").read_bytes() == (expected / "policy.safetensors").read_bytes()
    states = [torch.load(out / "resume.pt", weights_only=True)["learner"] for out in (found, expected)]
    torch.testing.assert_close(*states, rtol=0.0, atol=0.0)
