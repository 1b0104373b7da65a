"""CartPole as a `VecEnv`: owns the tensors and runs the kernels of `step` on them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from batchnav.cartpole.episodes import Carts, EpisodeInfo
from batchnav.cartpole.physics import MAX_ANGLE, MAX_POSITION, WINDOW
from batchnav.cartpole.step import MAX_BLOCK, restart, step_cpu, step_cuda, step_few
from batchnav.errors import ArgumentError, CheckpointError
from batchnav.runtime.checks import Seeds, check_int, check_open, check_seed, common_seed, refuse_copies
from batchnav.runtime.conversion import reset_options
from batchnav.runtime.device import resolve_device
from batchnav.runtime.kernels.arrays import check_tensor, host_flag, is_dense, tensor_text, view
from batchnav.runtime.kernels.launch import BoundKernel
from batchnav.types import Observation

FEW = 1024
"""Largest number of environments that the CPU steps in one thread."""
MAX_ENVS = 2**28 - 1
"""Largest number of environments: kernels index them, and the four-vectors of their records, with int32."""


class CartPoleEnv(VectorEnv):
    """Batch of `num_envs` CartPole-v1 environments on torch tensors: a `batchnav.types.VecEnv`.

    Observations f32 [N, 4] (position, velocity, angle, angular velocity), actions i64 or u8 [N] (0 left, 1 right),
    reward 1 at every step. An ended episode restarts in the same step; then `info["_episode"]` is set,
    `info["episode"]` holds its "return" and "steps", and `info["final_obs"]` its final observation (`EpisodeInfo`
    fills them when they are read). An episode that fails at its 500th step is both terminated and truncated, as in
    Gymnasium.

    Returned tensors belong to the environment: they are valid until the next call and must not be written. A new
    environment is reset. Every method raises ArgumentError after `close`.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012 (Gymnasium's name)
    storage: Mapping[str, torch.dtype] = MappingProxyType({"observation": torch.float32})
    __reduce_ex__ = refuse_copies
    capturable = False
    """False: a learner's rollout in a CUDA graph is untested. A graph of steps that also reads their info works."""

    @torch.inference_mode(False)
    def __init__(self, num_envs: int, device: str | torch.device = "cpu", seed: int = 0, block: int = 256):
        """Make the environments. ArgumentError or DeviceError for an argument that does not fit.

        Args:
            num_envs: number of environments.
            device: "cpu", "cuda" or another torch device.
            seed: seed of the start states.
            block: number of carts per block; on CUDA the threads of a block.
        """
        num_envs, seed = check_int("num_envs", num_envs, 1, MAX_ENVS), check_seed(seed)
        block = check_int("block", block, 1, MAX_BLOCK)
        self.num_envs, self.device, self.block = num_envs, resolve_device(device), block
        high = np.array([2 * MAX_POSITION, np.inf, 2 * MAX_ANGLE, np.inf], np.float32)
        self.single_observation_space = gymnasium.spaces.Box(-high, high, dtype=np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

        self._invalid, invalid = host_flag(self.device)
        zeros = lambda *shape, dtype: torch.zeros(shape, dtype=dtype, device=self.device)  # noqa: E731
        blocks = -(-num_envs // block)
        self.carts = Carts(
            seed=seed,
            block=block,
            state=zeros(num_envs, 4, dtype=torch.float32),
            began=zeros(num_envs, dtype=torch.int16),
            clock=zeros(blocks, dtype=torch.int64),
            terminated=zeros(num_envs, dtype=torch.bool),
            truncated=zeros(num_envs, dtype=torch.bool),
            timed_out=zeros(blocks, dtype=torch.int32),
            record=zeros(num_envs, 8, dtype=torch.float32),
            count=zeros(blocks, dtype=torch.int32),
            invalid=invalid,
        )
        self._reward = torch.ones(num_envs, dtype=torch.float32, device=self.device)
        self._info = EpisodeInfo(self.carts)
        self._bind()
        self._restart()

    def _bind(self) -> None:
        """Prepare the kernels' arguments once: views of the tensors and, on CUDA, a bound launch."""
        self.kernel_carts = view(self.carts)
        if self.device.type == "cuda":
            # One launch per type of actions; that for u8 is bound at its first use, since it compiles a kernel.
            self._step_cuda = {torch.int64: self._bind_step(torch.int64)}
            self._backward = 0

    def _bind_step(self, action_type: torch.dtype) -> BoundKernel:
        actions = view(torch.zeros(self.num_envs, dtype=action_type, device=self.device))
        return BoundKernel(step_cuda, self.num_envs, actions, 0, self.kernel_carts, block=self.block, overlap=True)

    def reset(self, *, seed: Seeds = None, options: dict | None = None) -> tuple[torch.Tensor, Mapping]:
        """Start new episodes: observation, info. A seed restarts the random sequence; without one it continues.

        `seed`: an integer, or N consecutive ones as Gymnasium takes them, which count as the first of them.
        ArgumentError for options: all episodes begin together.
        """
        self.check_open()
        reset_options(options, ())
        clock, seed = self.carts.clock, common_seed(seed, self.num_envs)
        if seed is None:
            clock.add_(WINDOW).bitwise_and_(-WINDOW)  # the start of the next window, whose start states are unused
        else:
            self.carts = self.carts._replace(seed=seed)
            clock.zero_()
            self._bind()
        self._restart()
        return self.carts.state, self._info

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, Mapping]:
        """Step all environments: observation, reward, terminated, truncated, info.

        An action other than 0 and 1 pushes left, as in Gymnasium's vector environment, and raises ArgumentError. On the
        CPU this step raises. On CUDA the kernel sets a flag, and a later step or `between_rollouts` raises, to avoid
        a synchronisation.

        Args:
            actions: i64 [N]; or u8 [N], which saves 7 bytes of memory traffic per cart.
        """
        self.check_open()
        action_type = torch.uint8 if getattr(actions, "dtype", None) is torch.uint8 else torch.int64
        check_tensor("actions", actions, (self.num_envs,), action_type, self.device)
        self._advance(actions.contiguous())
        if self._invalid[0]:
            self._report_invalid()
        return self.carts.state, self._reward, self.carts.terminated, self.carts.truncated, self._info

    def _advance(self, actions: torch.Tensor) -> None:
        if actions.is_cuda:
            if actions.dtype not in self._step_cuda:
                self._step_cuda[actions.dtype] = self._bind_step(actions.dtype)
            step = self._step_cuda[actions.dtype]
            step.change(0, actions.data_ptr())
            # The direction matters for speed only. A graph repeats the directions of its recording, so they keep
            # alternating if it has an even number of steps. They cannot be computed from the clock: the index of a
            # block's clock depends on the direction.
            step.change(1, self._backward)
            step()
            self._backward = 1 - self._backward
        elif self.num_envs <= FEW:
            step_few(actions.numpy(), self.kernel_carts)
        else:
            step_cpu(actions.numpy(), self.kernel_carts)
        self._info.expire()

    def _report_invalid(self) -> None:
        environment, self._invalid[0] = int(self._invalid[0]) - 1, 0
        raise ArgumentError(
            f"actions: found an unknown action for environment {environment}, expected 0 (left) or 1 (right)"
        )

    def observe_into(self, out: Observation | None) -> None:
        """No effect: the observation is the state itself, which `step` continues to return."""
        self.check_open()

    def observe_again(self) -> Observation:
        """The observation is the state itself."""
        self.check_open()
        return {"observation": self.carts.state}

    def settle(self) -> None:
        """No effect: all kernels run on torch's current stream."""
        self.check_open()

    def between_rollouts(self) -> dict[str, float]:
        """Returns an empty dict. ArgumentError after an invalid action, including one in a replayed graph."""
        self.check_open()
        if self._invalid[0]:
            self._report_invalid()
        return {}

    def _restart(self) -> None:
        carts = self.carts
        for tensor in (carts.terminated, carts.truncated, carts.timed_out, carts.count):
            tensor.zero_()
        self._write_starts()

    def _write_starts(self) -> None:
        restart(self.num_envs, self.kernel_carts)
        self._info.expire()

    @property
    def steps(self) -> torch.Tensor:
        """i16 [N]: steps taken in each running episode."""
        self.check_open()
        return self.carts.clock[0].to(torch.int16) - self.carts.began

    def _set_steps(self, steps: torch.Tensor) -> None:
        self.carts.began.copy_(self.carts.clock[0].to(torch.int16) - steps)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """State from which the environment continues exactly: copies of tensors by name."""
        self.check_open()
        carts = self.carts
        return {
            "state": carts.state.clone(), "steps": self.steps.clone(), "clock": carts.clock[0].clone(),
            "seed": torch.tensor(carts.seed, dtype=torch.int64, device="cpu"),
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Continue exactly from the result of `state_dict`. CheckpointError for a state of other shapes or types."""
        expected = self.state_dict()
        for name, tensor in expected.items():
            found = state.get(name)
            fits = isinstance(found, torch.Tensor) and is_dense(found)
            if found is None or not fits or found.shape != tensor.shape or found.dtype != tensor.dtype:
                raise CheckpointError(
                    f"{name}: found {tensor_text(found)}, expected {tensor.dtype} {list(tensor.shape)}"
                )
        self.carts.state.copy_(state["state"])
        self.carts.clock.copy_(state["clock"])
        self._set_steps(state["steps"].to(self.device))
        self.carts = self.carts._replace(seed=int(state["seed"]))
        self._bind()

    def close_extras(self, **kwargs) -> None:
        """Release the tensors; `close` calls this once."""
        for name in ("carts", "kernel_carts", "_reward", "_info", "_step_cuda"):
            self.__dict__.pop(name, None)

    def check_open(self) -> None:
        """ArgumentError after `close`."""
        check_open(self)
