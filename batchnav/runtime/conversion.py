"""Conversion of tensors: actions and masks into environments, results out of them, and copies on the CPU.

`vec_env` finds the environment in Gymnasium's wrappers.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import VectorWrapper

from batchnav.errors import ArgumentError, shortened
from batchnav.runtime.kernels.arrays import is_dense, tensor_text
from batchnav.types import VecEnv

OUTPUTS = ("torch", "numpy")
"""Array types of results."""


def as_actions(actions: Any, device: torch.device, dtype: torch.dtype = torch.int64) -> Any:
    """Actions as a tensor of `dtype`. Lists and NumPy arrays are copied to the device; tensors stay on their device.

    ArgumentError for anything but an array of numbers, and for floats or bools where integers are expected.
    """
    if isinstance(actions, torch.Tensor):
        tensor = actions
        if not is_dense(tensor):
            raise ArgumentError(f"actions: found {tensor_text(tensor)}, expected a dense tensor")
    else:
        try:
            tensor = torch.from_numpy(np.ascontiguousarray(actions)).to(device)
        except (TypeError, ValueError) as error:
            found = type(actions).__name__
            raise ArgumentError(f"actions: found {found} ({error}), expected an array of numbers") from error
    if tensor.dtype == dtype:
        return tensor
    if tensor.is_complex() or (
        not dtype.is_floating_point and (tensor.is_floating_point() or tensor.dtype == torch.bool)
    ):
        raise ArgumentError(
            f"actions: found {tensor.dtype}, expected {'numbers' if dtype.is_floating_point else 'integers'}"
        )
    return tensor.to(dtype)


def reset_options(options: Any, names: Collection[str]) -> Mapping[str, Any]:
    """Argument `options` of `reset`; none for None. ArgumentError for another kind, and for unknown names."""
    known = " or ".join(map(repr, names)) or "none; reset begins all episodes"
    if not isinstance(options, Mapping | None):
        raise ArgumentError(f"options: found {shortened(options)}, expected a dict of {known}")
    if unknown := set(options or ()) - set(names):
        raise ArgumentError(f"options: found {shortened(min(unknown, key=str))}, expected {known}")
    return options or {}


def as_mask(mask: Any, num_envs: int, device: torch.device) -> torch.Tensor:
    """A mask of environments as a bool [N] tensor. ArgumentError for another shape or dtype, or if nothing is set."""
    try:
        found = mask if isinstance(mask, torch.Tensor) else torch.from_numpy(np.array(mask))
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"reset_mask: found {type(mask).__name__}, expected torch.bool [{num_envs}]") from error
    if not is_dense(found):
        raise ArgumentError(f"reset_mask: found {tensor_text(found)}, expected torch.bool [{num_envs}]")
    if found.dtype != torch.bool or found.shape != (num_envs,) or not found.any():
        raise ArgumentError(
            f"reset_mask: found {found.dtype} {list(found.shape)}, {int(found.sum())} of them set, expected "
            f"torch.bool [{num_envs}] with at least one set"
        )
    return found.to(device)


def check_torch(observation: Any) -> None:
    """ArgumentError where an observation contains anything but torch tensors."""
    for value in observation.values() if isinstance(observation, Mapping) else (observation,):
        if not isinstance(value, torch.Tensor):
            raise ArgumentError(
                f"env: found {type(value).__name__} as an observation, expected a torch.Tensor; make the environment "
                'with output="torch"'
            )


def to_output(value: Any, copy: bool, output: str) -> Any:
    """A result whose tensors (in tuples and mappings) are copied if `copy`, and NumPy arrays if `output` is "numpy"."""
    if not copy and output == "torch":
        return value
    if isinstance(value, torch.Tensor):
        tensor = value.detach() if value.requires_grad else value
        if copy and (output == "torch" or value.device.type == "cpu"):
            tensor = tensor.clone()
        return tensor.cpu().numpy() if output == "numpy" else tensor
    if isinstance(value, Mapping):
        return {name: to_output(part, copy, output) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(to_output(part, copy, output) for part in value)
    return value


def copied_to_cpu(tree: Any) -> Any:
    """The nested dicts, lists and tuples of `tree` with a copy on the CPU in place of each tensor."""
    if isinstance(tree, torch.Tensor):
        return tree.detach().to("cpu", copy=True)
    if isinstance(tree, Mapping):
        return {name: copied_to_cpu(part) for name, part in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [copied_to_cpu(part) for part in tree]
    return tree


class JoinedResult:
    """A nested result of live tensors, with one-dimensional tensors joined by type: one copy serves for all of them.

    They are joined at construction, on torch's current stream. In a CUDA graph, each replay joins them again.
    """

    def __init__(self, live: Any):
        self._tensors = tensors = list(_tensors(live))
        self._live = _rebuilt(live, iter(tensors))  # callers may change the mappings of `live`
        groups: dict[Hashable, list[int]] = {}
        for i, tensor in enumerate(tensors):
            kind = (tensor.dtype, len(tensor)) if tensor.ndim == 1 else i
            groups.setdefault(kind, []).append(i)
        self._places = list(groups.values())
        """Numbers of the tensors that are joined, for each tensor of `_joined`."""
        self._joined = [
            torch.stack([tensors[i] for i in places]) if len(places) > 1 else tensors[places[0]]
            for places in self._places
        ]

    def output(self, copy: bool, output: str) -> Any:
        """The result as `to_output` converts it."""
        if not copy and output == "torch":
            return _rebuilt(self._live, iter(self._tensors))
        found: dict[int, Any] = {}
        for places, tensor in zip(self._places, self._joined, strict=True):
            converted = to_output(tensor, copy, output)
            found.update(zip(places, converted if len(places) > 1 else [converted], strict=True))
        return _rebuilt(self._live, iter([found[i] for i in range(len(found))]))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Tensors of a nested result, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, Mapping)):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(part)


def _rebuilt(value: Any, tensors: Iterator[Any]) -> Any:
    """The nested result with the next of `tensors` in place of each of its own."""
    if isinstance(value, torch.Tensor):
        return next(tensors)
    if isinstance(value, Mapping):
        return {name: _rebuilt(part, tensors) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_rebuilt(part, tensors) for part in value)
    return value


def vec_env(env: Any) -> VecEnv:
    """The environment, or a `VecEnv` of one that Gymnasium's vector wrappers surround.

    ArgumentError for an environment that is not on torch tensors.
    """
    if isinstance(env, VectorWrapper) and hasattr(env.unwrapped, "observe_into"):
        return GymnasiumWrapped(env)
    if hasattr(env, "observe_into"):
        return env
    raise ArgumentError(
        f"env: found {type(env).__name__}, expected a batchnav.types.VecEnv; wrap an environment of Gymnasium in "
        "batchnav.envs.adapters.gymnasium_vector.FromGymnasium"
    )


class GymnasiumWrapped:
    """A `VecEnv`: steps and resets go through `gymnasium.vector.VectorWrapper`s, all else to the environment inside.

    No CUDA graph holds its steps, since wrappers may read values on the host.
    """

    capturable = False

    def __init__(self, env: VectorWrapper):
        inside = env.unwrapped
        self.env, self._inside = env, inside
        self.single_observation_space, self.single_action_space = env.single_observation_space, env.single_action_space
        space = self.single_observation_space
        named = dict(space.spaces) if isinstance(space, spaces.Dict) else {"observation": space}
        stored: Mapping[str, torch.dtype] = inside.storage  # type: ignore[attr-defined]
        self.storage: Mapping[str, torch.dtype] = {name: stored.get(name, torch.float32) for name in named}
        self.reset, self.step, self.close = env.reset, env.step, env.close

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inside, name)
