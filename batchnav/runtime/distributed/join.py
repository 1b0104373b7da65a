"""Joining a distributed training run: the process's rank, its device and its process group.

torchrun starts the program once per GPU, on one or several machines, and sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR
and MASTER_PORT. `start_local_ranks` sets the same variables, and so may any other launcher.
"""

from __future__ import annotations

import os
import platform
from datetime import timedelta

import torch
import torch.distributed as dist

from batchnav.errors import ConfigError, DeviceError
from batchnav.runtime.device import resolve_device
from batchnav.runtime.distributed.heartbeat import Heartbeat
from batchnav.runtime.distributed.local_ranks import PORT_ON_STDIN, exited_ranks, receive_port, send_port
from batchnav.runtime.distributed.ranks import OBJECT_TIMEOUT, Ranks
from batchnav.runtime.threads import limit_threads, num_threads

RENDEZVOUS_SECONDS = 600.0
"""Longest wait of the ranks for each other at the start, seconds."""
STALL_SECONDS = 600.0
"""Longest time that a rank may keep the others waiting for its gradients, seconds."""
_SLACK_SECONDS = 60.0
"""NCCL's time limit minus `stall_seconds`: the heartbeat reacts first, since NCCL's error names no rank."""


def join(
    device: str = "auto",
    rendezvous_seconds: float = RENDEZVOUS_SECONDS,
    stall_seconds: float = STALL_SECONDS,
    force_process_group: bool = False,
) -> Ranks:
    """Join the other processes of a run that torchrun or `start_local_ranks` started.

    Args:
        device: "cpu", "cuda" or "auto". With several ranks each takes the CUDA device of its local rank; a single
            process may also name one, for example "cuda:1".
        rendezvous_seconds: longest wait for the other ranks.
        stall_seconds: longest time that one rank may keep the others waiting during training.
        force_process_group: initialise NCCL or Gloo for a single process too, for tests.

    Raises:
        DeviceError: a rank does not join, or a machine has fewer GPUs than ranks.
        ConfigError: environment variables are missing or inconsistent.
    """
    world_size = _variable("WORLD_SIZE", 1)
    rank = _variable("RANK", 0 if world_size == 1 else None)
    if world_size == 1 and not force_process_group:
        return Ranks(resolve_device(device))
    if not 0 <= rank < world_size:
        raise ConfigError(f"RANK: found {rank} with WORLD_SIZE {world_size}, expected 0 to {world_size - 1}")
    chosen = _own_device(device, _variable("LOCAL_RANK", rank), world_size)
    limit_threads(num_threads() // _variable("LOCAL_WORLD_SIZE", 1))  # the ranks of a machine share its cores
    label = f"{platform.node()}, {chosen}"
    heartbeat = Heartbeat(*_stores(rendezvous_seconds), rank, world_size, label, stall_seconds)
    heartbeat.wait_for_all(rendezvous_seconds, exited_ranks)
    heartbeat.start()
    limit = timedelta(seconds=stall_seconds + _SLACK_SECONDS)
    on_cuda = chosen.type == "cuda"
    dist.init_process_group(
        "nccl" if on_cuda else "gloo", store=heartbeat.store_for("groups"), rank=rank, world_size=world_size,
        timeout=limit if on_cuda else OBJECT_TIMEOUT, device_id=chosen if on_cuda else None,
    )  # fmt: skip
    ranks = Ranks(chosen, rank, world_size, heartbeat)
    _check_all_reduce(ranks)
    return ranks


def _check_all_reduce(ranks: Ranks) -> None:
    """One all-reduce, which sets up the communicator before a CUDA graph or a timer includes it.

    DeviceError if its result is wrong.
    """
    ones = torch.ones(1024, dtype=torch.float32, device=ranks.device)
    dist.all_reduce(ones)
    if not bool((ones == ranks.world_size).all()):
        raise DeviceError(
            f"all-reduce of ones: found {ones[0].item():g}, expected {ranks.world_size}, the number of ranks"
        )
    ranks.barrier()


def _own_device(device: str, local_rank: int, world_size: int) -> torch.device:
    """The device of a rank: the CUDA device of its local rank, or the only one that it sees."""
    if ":" in device and world_size > 1:
        raise ConfigError(f"device: found {device!r} with {world_size} ranks, expected 'cuda': each takes its own")
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return resolve_device("cpu")
    count = torch.cuda.device_count()
    if count == 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
        local_rank = 0  # a scheduler shows each process its own GPU only
    if local_rank >= count:
        raise DeviceError(f"rank {local_rank} of this machine: found {count} CUDA devices, expected one for each rank")
    return resolve_device(torch.device("cuda", local_rank))


def _stores(rendezvous_seconds: float) -> tuple[dist.Store, dist.Store]:
    """Two connections to the store where ranks find each other: one for this process, one for its heartbeat."""
    host = os.environ.get("MASTER_ADDR", "localhost")
    of_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    serve = _variable("RANK", 0) == 0 and not of_agent
    if os.environ.get("MASTER_PORT") == PORT_ON_STDIN:
        port = 0 if serve else receive_port()
    else:
        port = _variable("MASTER_PORT", 29500)
    # The store of torchrun's agent outlives a restart of its processes, so each attempt has its own keys.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if of_agent else "0"
    stores = []
    for is_master in (serve, False):
        try:
            store = dist.TCPStore(
                host, port, None, is_master, timedelta(seconds=rendezvous_seconds), wait_for_workers=False,
                multi_tenant=True,
            )  # fmt: skip
        except (RuntimeError, ValueError) as error:
            text = " ".join(str(error).split())[:200]
            raise DeviceError(
                f"rank 0: cannot be reached at {host}:{port} within {rendezvous_seconds:g} s ({text})"
            ) from error
        if is_master:
            port = store.port
            send_port(port)
        stores.append(dist.PrefixStore(f"batchnav/{attempt}", store))
    return stores[0], stores[1]


def _variable(name: str, default: int | None) -> int:
    """An environment variable as an integer. ConfigError where it is not one, or is unset and has no default."""
    text = os.environ.get(name, "" if default is None else str(default))
    if not text.isdigit():
        raise ConfigError(f"{name}: found {text or 'nothing'!r}, expected a whole number, as torchrun sets it")
    return int(text)
