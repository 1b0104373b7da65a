"""ONNX files of policies: one step of the network, for ONNX Runtime and other programs without PyTorch.

The network is exported in its inference form: with running normalisation inside, and without the autograd functions
that training on the CPU uses. The batch size is free. `batchnav.export.deployment` names inputs and outputs.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from batchnav.errors import ArgumentError, BatchnavError, MissingPackageError
from batchnav.export.deployment import (
    EPISODE_START,
    NEXT_STATE,
    PREVIOUS_ACTION,
    VALUE,
    deployment_config,
    describe,
    read_specs,
    state_names,
)
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.agent import PolicyAgent
from batchnav.policy.memory import map_state, state_tensors
from batchnav.policy.weights import load_policy
from batchnav.runtime.extras import install_command
from batchnav.runtime.files.atomic import check_target, replacing
from batchnav.runtime.torch_defaults import torch_defaults

OLDEST_TORCH = (2, 7)
"""Oldest version of PyTorch whose exporter can write policies."""
_BATCH = 2
"""Agents of the example that is traced: sizes 0 and 1 would become constants."""


class PolicyStep(nn.Module):
    """One step of a policy, with a flat list of inputs and outputs.

    Args:
        network: the policy.
        names: names of the observations, in the order of the inputs.
    """

    def __init__(self, network: ActorCritic, names: Sequence[str]):
        super().__init__()
        self.network, self._names = network, tuple(names)
        self._state = network.initial_state(1)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Distribution, value and next state, from the inputs that `input_names` lists."""
        values = dict(zip(self.input_names, inputs, strict=True))
        observations = {name: values[name] for name in self._names}
        num_envs, device = inputs[0].shape[0], inputs[0].device  # `len` would make the number a constant
        network, state = self.network, iter([values[name] for name in self._state_names])
        action, none = network.actions, torch.zeros(num_envs, dtype=torch.bool, device=device)
        no_action = torch.zeros(num_envs, *action.shape, dtype=action.dtype, device=device)
        outputs, value, following = network.step(
            observations, values.get(PREVIOUS_ACTION, no_action), values.get(EPISODE_START, none),
            map_state(lambda _: next(state), self._state),
        )  # fmt: skip
        return *action.distribution(outputs).values(), value, *state_tensors(following)

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs: observations, previous action, episode start, state; without memory: observations."""
        if not self._state_names:
            return list(self._names)
        previous = [PREVIOUS_ACTION] if self.network.body.reads_previous_action else []
        return [*self._names, *previous, EPISODE_START, *self._state_names]

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs: parameters of the distribution, value, next state."""
        actions = self.network.actions
        parameters = actions.distribution(torch.zeros(1, actions.num_outputs, dtype=torch.float32, device="cpu"))
        return [*parameters, VALUE, *state_names(len(self._state_names), NEXT_STATE)]

    @property
    def _state_names(self) -> list[str]:
        return state_names(len(state_tensors(self._state)))

    def example(self, dtypes: Sequence[torch.dtype], num_envs: int) -> tuple[torch.Tensor, ...]:
        """Inputs of zeros at an episode's start; `dtypes` are those of the observations."""
        network = self.network
        shapes = [network.observation_shapes[name] for name in self._names]
        observations = [
            torch.zeros(num_envs, *shape, dtype=dtype, device="cpu")
            for shape, dtype in zip(shapes, dtypes, strict=True)
        ]
        if not self._state_names:
            return tuple(observations)
        action = torch.zeros(num_envs, *network.actions.shape, dtype=network.actions.dtype, device="cpu")
        previous = [action] if network.body.reads_previous_action else []
        start = torch.ones(num_envs, dtype=torch.bool, device="cpu")
        state = state_tensors(network.initial_state(num_envs))
        return *observations, *previous, start, *state

    def batch_dims(self) -> list[int]:
        """The dimension of each input that counts agents."""
        states = set(self._state_names)
        return [self.network.body.agent_dim if name in states else 0 for name in self.input_names]


def export_policy(
    policy: PolicyAgent | str | Path,
    path: str | Path,
    camera_height: float | None = None,
    hfov_deg: float | None = None,
) -> Path:
    """Write a policy as an ONNX file, and its description as a JSON file of the same name.

    Args:
        policy: policy file, run folder, name of a bundled policy, or a loaded policy of NavEnv.
        path: the .onnx file to write.
        camera_height: height of the robot's camera above the floor, metres; None: that of training.
        hfov_deg: horizontal field of view of the robot's camera, degrees; None: that of training.

    Returns:
        Path of the JSON file.

    Raises:
        ArgumentError: the path is no .onnx file, or cannot be written.
        MissingPackageError: a package of the extra `export` is missing.
    """
    path = Path(path)
    if path.suffix != ".onnx":
        raise ArgumentError(f"{path}: found suffix {path.suffix!r}, expected .onnx")
    check_target(path, ArgumentError)
    policy = policy if isinstance(policy, PolicyAgent) else load_policy(policy)
    config = deployment_config(policy, camera_height, hfov_deg)
    specs, description = read_specs(policy, config), describe(policy, config)
    with replacing(path.with_suffix(".json"), ArgumentError) as part:  # complete only once the ONNX file is
        part.write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
        write_onnx(policy.network, {spec.name: spec.dtype for spec in specs}, path)
    return path.with_suffix(".json")


def write_onnx(network: ActorCritic, dtypes: dict[str, torch.dtype], path: Path) -> None:
    """Write one step of a network as an ONNX file; `dtypes` are those of its observations by name, in order.

    ArgumentError where the file cannot be written, MissingPackageError without the extra `export` or with a PyTorch
    older than 2.7, whose exporter cannot write these networks.
    """
    if missing := [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]:
        raise MissingPackageError(f"export: found no package {missing[0]}, expected it: {install_command('export')}")
    if tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST_TORCH:
        expected = ".".join(map(str, OLDEST_TORCH))
        raise MissingPackageError(f"export: found PyTorch {torch.__version__}, expected {expected} or later")
    with torch_defaults(), torch.no_grad(), _quiet():
        step = PolicyStep(copy.deepcopy(network).cpu(), list(dtypes)).eval()
        shapes: tuple[dict[int, Any], ...] = tuple({dim: "batch"} for dim in step.batch_dims())
        program = torch.onnx.export(
            step, step.example(list(dtypes.values()), _BATCH), dynamo=True, dynamic_shapes=(shapes,), verbose=False,
            input_names=step.input_names, output_names=step.output_names,
        )  # fmt: skip
        if program is None:  # only the exporter without dynamo returns None
            raise BatchnavError("export: found no ONNX program, expected one")
        with replacing(path, ArgumentError) as part:
            program.save(part)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Context without the exporter's warnings on packages and axis names, which do not concern policies."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    try:
        log.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"torch\..*|copyreg")
            yield
    finally:
        log.setLevel(level)
