"""Policy files in safetensors format: the weights, and JSON metadata from which the network is rebuilt."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch.overrides import TorchFunctionMode

from batchnav.config import IMPORTS, from_dict, read_yaml, shortened, to_dict
from batchnav.errors import BatchnavError, CheckpointError, ConfigError, printable
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.agent import PolicyAgent
from batchnav.policy.config import PolicyConfig
from batchnav.policy.observations import MAX_CATEGORIES
from batchnav.policy.pretrained import weights_follow
from batchnav.runtime.bundled import find_policy
from batchnav.runtime.device import resolve_device
from batchnav.runtime.files import as_path, replacing, safetensors_bytes
from batchnav.runtime.imports import advice, import_modules
from batchnav.runtime.weights import Source, check_finite, check_names_and_shapes, read_weights

FORMAT = "batchnav policy 2"
MAX_OBSERVATIONS, MAX_NUMBERS, MAX_ACTIONS, MAX_ACTION_SIZE = 64, 2**22, 2**16, 2**10
"""Limits of a file: observations, numbers in an observation, actions, numbers in an action."""


def save_policy(
    policy: ActorCritic, path: str | Path, info: dict[str, Any] | None = None, dtype: torch.dtype = torch.float32
) -> None:
    """Write weights, settings and shapes to a file, atomically. Equal policies and `info` give equal bytes.

    Args:
        policy: the network.
        path: the file to write.
        info: values that JSON can hold (task settings, frames trained); `load_policy` returns them.
        dtype: type of the weights in the file; torch.bfloat16 halves its size.

    Raises:
        CheckpointError: a weight is not finite, or the file cannot be written.
    """
    path = Path(path)
    tensors = {
        name: value.detach().to("cpu", dtype if value.dtype == torch.float32 else value.dtype).contiguous()
        for name, value in policy.state_dict().items()
    }
    check_finite(tensors, path)
    metadata = {
        "format": FORMAT,
        "policy": json.dumps(to_dict(policy.config)),
        "observations": json.dumps(policy.observation_shapes),
        **({"categories": json.dumps(policy.num_categories)} if policy.num_categories else {}),
        **_actions_metadata(policy),
        **({"pretrained": json.dumps(policy.pretrained.source._asdict())} if policy.pretrained else {}),
        "info": json.dumps(info or {}),
    }
    metadata["sha256"] = _digest(tensors, metadata)
    with replacing(path, CheckpointError) as part:
        part.write_bytes(safetensors_bytes(tensors, metadata))


@torch.inference_mode(False)
def load_policy(path: str | Path, device: str | torch.device = "cpu") -> PolicyAgent:
    """Read a policy that `save_policy` wrote, ready to act on `device`.

    Args:
        path: the file, a run's folder, or the name of a bundled policy, such as "pointnav_h200". The modules that the
            configuration of a run's folder imports are imported; those that a policy file names are not.
        device: device to act on.

    Raises:
        CheckpointError: a tensor or setting is missing, damaged, not finite or unknown, or a bundled file differs from
            its manifest.
    """
    path, device = policy_file(path), resolve_device(device)
    tensors, metadata = read_weights(path, FORMAT)
    info: dict[str, Any] = {}
    try:
        info = dict(json.loads(metadata["info"]))
        config = from_dict(PolicyConfig, json.loads(metadata["policy"]))
        shapes, categories = json.loads(metadata["observations"]), json.loads(metadata.get("categories", "{}"))
        space = _observation_space(shapes, categories)
        actions = _action_space(metadata)
        with _SkipNormalInit(), weights_follow():  # allocate nothing before the tensors are known to fit
            expected = ActorCritic(space, actions, config, "meta").state_dict()
        check_names_and_shapes(tensors, expected, f"{path}")
        with weights_follow():
            network = ActorCritic(space, actions, config)  # has values that the file lacks: an encoder's constants
        if network.pretrained is not None:
            network.pretrained.source = _source_in(metadata)
    except CheckpointError:
        raise
    except BatchnavError as error:
        raise CheckpointError(f"{path}: its settings cannot be used: {error}{advice(info)}") from error
    except (KeyError, ValueError, TypeError, AttributeError, AssertionError, RecursionError) as error:
        raise CheckpointError(f"{path}: damaged metadata ({type(error).__name__}: {error})") from error
    check_finite(tensors, path)
    if "sha256" in metadata and metadata.pop("sha256") != _digest(tensors, metadata):
        raise CheckpointError(
            f"{path}: is damaged: its checksum differs; to change a file on purpose, remove 'sha256' from its metadata"
        )
    network.load_state_dict(tensors)
    return PolicyAgent(network.to(device), info)


def restore_source(policy: ActorCritic, path: Path) -> None:
    """Give a policy the origin of its pretrained weights that a policy file names, where there is such a file.

    CheckpointError for a file that cannot be read.
    """
    if policy.pretrained is not None and path.exists():
        policy.pretrained.source = _source_in(read_weights(path, FORMAT)[1])


def _source_in(metadata: Mapping[str, str]) -> Source:
    """The origin of pretrained weights in a file's metadata."""
    source = json.loads(metadata["pretrained"])
    return Source(**{name: printable(str(source[name])) for name in Source._fields})


def policy_file(name: str | Path) -> Path:
    """A policy's weights, as `find_policy` finds them; of a run's folder after the imports of its configuration."""
    config = as_path(name) / "config.yaml"
    if config.is_file():
        values = read_yaml(config)
        names = values.get(IMPORTS, []) if isinstance(values, dict) else []
        import_modules(names, f"{config}: {IMPORTS}", config.parent)
    return find_policy(name)


class _SkipNormalInit(TorchFunctionMode):
    """Mode in which `normal_` does nothing: on "meta" tensors it would import torch's compiler, which takes 1 s."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func.__name__ == "normal_":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def load_weights(policy: ActorCritic, path: str | Path) -> None:
    """Load weights into a network from a file that `save_policy` wrote for the same settings and shapes.

    The network may read more vectors and integers than the saved one. The body's weights for them begin at 0, so the
    network begins with the actions of the saved one. Where initial weights of an encoder came from may differ, and
    auxiliary losses, whose weights are new where the file has none.

    Args:
        policy: the network; its weights are replaced.
        path: the file, a run's folder, or the name of a bundled policy.

    Raises:
        CheckpointError: the file cannot be read, or settings or shapes differ.
    """
    found = load_policy(path).network
    more = policy.embeddings.keys() - found.observation_shapes.keys()
    alike: dict[str, Any] = {
        "observation_shapes": {n: shape for n, shape in policy.observation_shapes.items() if n not in more},
        "num_categories": {n: size for n, size in policy.num_categories.items() if n not in more},
        "action_space": policy.action_space,
        "config": replace(policy.config, polar=tuple(n for n in policy.config.polar if n not in more)),
    }
    for name, expected in alike.items():
        has = getattr(found, name)
        if name == "config":
            has, expected = (architecture(replace(config, auxiliary=())) for config in (has, expected))
        if has != expected:
            raise CheckpointError(f"{path}: {name}: found {_where_other(has, expected)}")
    if more and not policy.body.input_weights:
        raise CheckpointError(
            f"{path}: found a policy that does not read {', '.join(sorted(more))}, expected one that does, "
            f"since the memory {policy.config.memory!r} names no input weights"
        )
    own = policy.state_dict()
    weights = own | {name: value for name, value in found.state_dict().items() if name in own}
    for read in (f"body.{name}" for name in policy.body.input_weights):
        parts = dict(zip(found.body_inputs, weights[read].split(list(found.body_inputs.values()), dim=1), strict=True))
        none = weights[read].new_zeros(len(weights[read]), policy.config.embedding_size)
        weights[read] = torch.cat([parts.get(name, none) for name in policy.body_inputs], dim=1)
    policy.load_state_dict(weights)
    if policy.pretrained is not None and found.pretrained is not None:
        policy.pretrained.source = found.pretrained.source


def architecture(config: PolicyConfig) -> dict[str, Any]:
    """A configuration as a dict, without the files of initial weights, such as `se_resnet9.weights`."""
    found = to_dict(config)
    for section in found.values():
        if isinstance(section, dict):
            section.pop("weights", None)
    return found


def _where_other(found: Any, expected: Any) -> str:
    """Both values, for a message; of mappings only the parts that differ."""
    if isinstance(found, dict):
        names = [name for name in {**found, **expected} if found.get(name) != expected.get(name)]
        found, expected = (
            ", ".join(f"{name}={values[name]}" for name in names if name in values) or "none of them"
            for values in (found, expected)
        )
    return f"{found}, expected {expected}"


def _actions_metadata(policy: ActorCritic) -> dict[str, str]:
    """Metadata of the action space: number of discrete actions, or size of a continuous action."""
    if policy.actions.shape:
        return {"action_size": json.dumps(policy.actions.shape[0])}
    return {"num_actions": json.dumps(policy.actions.num_outputs)}


def _action_space(metadata: dict[str, str]) -> spaces.Space:
    """The action space from the metadata of `_actions_metadata`. ConfigError for sizes beyond the limits."""
    if "action_size" in metadata:
        size = _whole(json.loads(metadata["action_size"]), "action_size", MAX_ACTION_SIZE)
        return spaces.Box(-1.0, 1.0, (size,), np.float32)
    return spaces.Discrete(_whole(json.loads(metadata["num_actions"]), "num_actions", MAX_ACTIONS))


def _observation_space(shapes: dict[str, list[int]], categories: dict[str, int]) -> spaces.Dict:
    """Observation space from shapes by name; `categories` has the number of values of each integer observation.

    ConfigError for sizes beyond the limits.
    """
    if len(shapes) > MAX_OBSERVATIONS:
        raise ConfigError(f"observations: found {len(shapes)}, expected {MAX_OBSERVATIONS} at most")
    boxes: dict[str, spaces.Space] = {}
    for name, shape in shapes.items():
        what = f"observation {shortened(name)}"
        sizes = tuple(_whole(size, what, MAX_NUMBERS) for size in shape[:4])  # `ActorCritic` refuses four
        _whole(math.prod(sizes), what, MAX_NUMBERS)
        if name in categories:
            boxes[name] = spaces.Box(0, _whole(categories[name], what, MAX_CATEGORIES) - 1, sizes, np.int64)
        else:
            boxes[name] = spaces.Box(-float("inf"), float("inf"), sizes)
    return spaces.Dict(list(boxes.items()))  # Gymnasium sorts a dict, but keeps the order of a list


def _whole(value: Any, name: str, most: int) -> int:
    """An integer from 1 to `most`, unchanged. ConfigError for another value."""
    if type(value) is not int or not 1 <= value <= most:
        raise ConfigError(f"{name}: found {shortened(value)}, expected an integer from 1 to {most:,}")
    return value


def _digest(tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> str:
    """SHA-256 of tensors and metadata, as a hexadecimal string."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
