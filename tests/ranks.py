"""Processes of a distributed run, started by a test as torchrun starts them."""

import contextlib
import multiprocessing
import os
import queue
import random
import socket
import sys
import time
import traceback

import torch

from batchnav.runtime.distributed import join

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["batchnav.training.loop", "torch._dynamo"])  # torch imports it late
PATIENCE = 900.0
"""Time limit, seconds; an idle machine with compiled kernels needs a few."""


def variables(rank, world_size, port):
    """Environment variables that torchrun sets."""
    return {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "localhost", "MASTER_PORT": str(port),
    }  # fmt: skip


def free_port():
    """A free port below 32768, since the system assigns ports from 32768 upwards on its own."""
    while True:
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("localhost", random.SystemRandom().randrange(20000, 32768)))
            return one.getsockname()[1]


def _run(work, device, rank, world_size, port, log, results, arguments):
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        stream.flush()
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666), number)
    os.environ.update(variables(rank, world_size, port))
    torch.set_num_threads(1)
    try:
        with join(device, force_process_group=True) as ranks:
            results.put((rank, work(ranks, *arguments)))
    except Exception:
        traceback.print_exc()
        raise


def start(work, world_size, log, *arguments, device="cpu"):
    """Start `work(ranks, *arguments)` in several processes; returns them and the queue of (rank, result)."""
    # The forkserver's imports may have initialised CUDA, which a fork does not survive.
    context = CONTEXT if device == "cpu" else multiprocessing.get_context("spawn")
    port, results = free_port(), context.Queue()
    processes = [
        context.Process(
            target=_run, args=(work, device, rank, world_size, port, str(log), results, arguments), daemon=True
        )
        for rank in range(world_size)
    ]  # fmt: skip
    for process in processes:
        process.start()
    return processes, results


def statuses(processes):
    """Wait for all processes; returns their exit statuses."""
    for process in processes:
        process.join(PATIENCE)
    return [process.exitcode for process in processes]


def results_of(work, world_size, log, *arguments, device="cpu"):
    """Results of `work` on all ranks; if a process fails, AssertionError with its log."""
    processes, results = start(work, world_size, log, *arguments, device=device)
    found, until = {}, time.monotonic() + PATIENCE
    while len(found) < world_size:
        try:
            rank, result = results.get(timeout=1.0)
            found[rank] = result
        except queue.Empty:
            assert not any(process.exitcode for process in processes) and time.monotonic() < until, log.read_text()
    assert statuses(processes) == [0] * world_size, log.read_text()
    return [found[rank] for rank in range(world_size)]
