"""CartPole in PyTorch operations, without custom kernels, for comparison.

A step is some forty operations. Each is a kernel that reads its operands from memory and writes its result to memory.
`torch.compile` fuses them into a few kernels.
"""

from __future__ import annotations

import torch

from batchnav.cartpole import physics
from batchnav.cartpole.env import CartPoleEnv
from batchnav.cartpole.episodes import LastEpisodes
from batchnav.errors import CheckpointError
from batchnav.runtime.device import compiled

_MASS = physics.CART_MASS + physics.POLE_MASS
_MOMENT = physics.POLE_MASS * physics.HALF_LENGTH / _MASS


def torch_push(state: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Physics of one step: `physics.push` for states f32 [N, 4] and directions bool [N]."""
    position, velocity, angle, spin = state.unbind(1)
    sine, cosine = torch.sin(angle), torch.cos(angle)
    push = torch.where(right, physics.FORCE / _MASS, -physics.FORCE / _MASS).to(state.dtype)
    thrust = push + _MOMENT * spin * spin * sine
    inertia = physics.HALF_LENGTH * (4.0 / 3.0 - physics.POLE_MASS / _MASS * cosine * cosine)
    spin_up = (physics.GRAVITY * sine - cosine * thrust) / inertia
    speed_up = thrust - _MOMENT * spin_up * cosine
    return torch.stack((
        position + physics.TIME_STEP * velocity, velocity + physics.TIME_STEP * speed_up,
        angle + physics.TIME_STEP * spin, spin + physics.TIME_STEP * spin_up,
    ), 1)  # fmt: skip


def torch_step(state: torch.Tensor, steps: torch.Tensor, actions: torch.Tensor, uniform: torch.Tensor):
    """One step of all carts, with restarts: a pure function.

    Args:
        state: f32 [N, 4].
        steps: steps of each running episode, i16 [N].
        actions: i64 or u8 [N].
        uniform: random numbers for the starts, f32 [N, 4] in [0, 1).

    Returns:
        state and steps; terminated, truncated and ended, bool [N]; final state f32 [N, 4] and final steps f32 [N].
    """
    final, final_steps = torch_push(state, actions == 1), steps + 1
    terminated = (final[:, 0].abs() > physics.MAX_POSITION) | (final[:, 2].abs() > physics.MAX_ANGLE)
    truncated = final_steps >= physics.MAX_STEPS
    ended = terminated | truncated
    state = torch.where(ended[:, None], torch_start(uniform), final)
    return state, torch.where(ended, 0, final_steps), terminated, truncated, ended, final, final_steps.float()


def torch_start(uniform: torch.Tensor) -> torch.Tensor:
    """Start states f32 [N, 4] from uniform numbers in [0, 1)."""
    return (uniform - 0.5) * (2.0 * physics.START_RANGE)


class TorchCartPoleEnv(CartPoleEnv):
    """`CartPoleEnv` in PyTorch operations. Starts come from a torch generator and differ from those of `CartPoleEnv`.

    Actions other than 0 and 1 push left and raise no error, since a check would synchronise with the device.
    """

    @torch.inference_mode(False)
    def __init__(self, num_envs: int, device: str | torch.device = "cpu", seed: int = 0, compile: bool = False):
        """Make the environments; `compile` fuses the step's operations by torch.compile, at the first step."""
        self._step = compiled(torch_step) if compile else torch_step
        super().__init__(num_envs, device, seed)

    def _bind(self) -> None:
        self.generator = torch.Generator(self.device).manual_seed(self.carts.seed)

    @property
    def steps(self) -> torch.Tensor:
        """i16 [N]: steps taken in each running episode. They are counted here, since the clock does not advance."""
        self.check_open()
        return self._steps

    def _set_steps(self, steps: torch.Tensor) -> None:
        self._steps = steps.clone()

    def _uniform(self) -> torch.Tensor:
        return torch.rand(self.num_envs, 4, generator=self.generator, dtype=torch.float32, device=self.device)

    def _write_starts(self) -> None:
        self.carts.state.copy_(torch_start(self._uniform()))
        self._steps = torch.zeros(self.num_envs, dtype=torch.int16, device=self.device)
        self._info = LastEpisodes.none(self.num_envs, self.device).named()

    def _advance(self, actions: torch.Tensor) -> None:
        state, steps, terminated, truncated, ended, final_state, final_steps = self._step(
            self.carts.state, self._steps, actions, self._uniform()
        )
        self.carts, self._steps = self.carts._replace(state=state, terminated=terminated, truncated=truncated), steps
        self._info = LastEpisodes(ended, final_state, final_steps).named()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """State from which the environment continues exactly, with the generator's state."""
        return {**super().state_dict(), "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Continue exactly from the result of `state_dict`."""
        super().load_state_dict(state)
        try:
            self.generator.set_state(state["generator"].cpu())
        except (AttributeError, KeyError, RuntimeError, TypeError) as error:
            raise CheckpointError(
                f"generator: found no generator state ({error}), expected one of {self.generator.device}"
            ) from error

    def close_extras(self, **kwargs) -> None:
        """Release the tensors; `close` calls this once."""
        super().close_extras(**kwargs)
        self.__dict__.pop("_steps", None)
