"""A policy on disk: safetensors, with what it takes to build the network again as JSON in the file's metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import safetensors
import torch
from gymnasium import spaces
from safetensors.torch import save

from batchnav.config import PolicyConfig, from_dict, to_dict
from batchnav.errors import BatchnavError, CheckpointError
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.agent import Agent
from batchnav.runtime.device import resolve_device
from batchnav.runtime.files import replacing

FORMAT = "batchnav policy 1"
DTYPES = (torch.float32, torch.bfloat16)
"""Types of weights in a file; a network always has float32."""


def save_policy(
    policy: ActorCritic, path: str | Path, info: dict[str, Any] | None = None, dtype: torch.dtype = torch.float32
) -> None:
    """Write weights, settings and shapes to `path`, atomically.

    Args:
        policy: the network.
        path: the file to write.
        info: anything JSON can hold (task settings, frames trained); `load_policy` hands it back.
        dtype: of the weights in the file; torch.bfloat16 halves it.

    CheckpointError where a weight is not finite, or the file cannot be written.
    """
    path = Path(path)
    tensors = {
        name: value.detach().to("cpu", dtype if value.is_floating_point() else value.dtype).contiguous()
        for name, value in policy.state_dict().items()
    }
    _check_finite(tensors, path)
    metadata = {
        "format": FORMAT,
        "policy": json.dumps(to_dict(policy.config)),
        "observations": json.dumps(policy.observation_shapes),
        "num_actions": json.dumps(policy.num_actions),
        "info": json.dumps(info or {}),
    }
    with replacing(path, CheckpointError) as part:
        part.write_bytes(save(tensors, metadata))  # save_file's are for their owner alone


def load_policy(path: str | Path, device: str | torch.device = "cpu") -> Agent:
    """Read a policy that `save_policy` wrote, ready to act on `device`.

    CheckpointError names the file, and the tensor or setting, that is missing, damaged, not finite or unknown.
    """
    path, device = Path(path), resolve_device(device)
    tensors, metadata = _read(path)
    if metadata.get("format") != FORMAT:
        raise CheckpointError(f"{path}: format is {metadata.get('format')!r}, expected {FORMAT!r}")
    try:
        config = from_dict(PolicyConfig, json.loads(metadata["policy"]))
        shapes = json.loads(metadata["observations"])
        boxes = {name: spaces.Box(-float("inf"), float("inf"), tuple(shape)) for name, shape in shapes.items()}
        actions = spaces.Discrete(json.loads(metadata["num_actions"]))
        info = json.loads(metadata["info"])
        network = ActorCritic(spaces.Dict(boxes), actions, config)
    except BatchnavError as error:
        raise CheckpointError(f"{path}: its settings cannot be used: {error}") from error
    except (KeyError, ValueError, TypeError, AttributeError, AssertionError) as error:
        raise CheckpointError(f"{path}: damaged metadata ({type(error).__name__}: {error})") from error
    _check_names_and_shapes(tensors, network.state_dict(), path)
    _check_finite(tensors, path)
    network.load_state_dict(tensors)
    return Agent(network.to(device), info)


def _read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not a whole safetensors file ({error})") from error


def _check_names_and_shapes(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], path: Path) -> None:
    for name, value in expected.items():
        if name not in found:
            raise CheckpointError(f"{path}: lacks tensor {name!r}, expected {list(value.shape)}")
        dtypes = DTYPES if value.is_floating_point() else (value.dtype,)
        if found[name].shape != value.shape or found[name].dtype not in dtypes:
            raise CheckpointError(
                f"{path}: tensor {name!r} is {found[name].dtype} {list(found[name].shape)}, "
                f"expected {' or '.join(map(str, dtypes))} {list(value.shape)}"
            )
    if extra := found.keys() - expected.keys():
        raise CheckpointError(f"{path}: tensor {min(extra)!r} is not part of this policy")


def _check_finite(tensors: dict[str, torch.Tensor], path: Path) -> None:
    for name, value in tensors.items():
        if value.is_floating_point() and not torch.isfinite(value).all():
            raise CheckpointError(f"{path}: tensor {name!r} holds values that are not finite")
