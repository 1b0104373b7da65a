"""Adapter from `gymnasium.vector.VectorEnv` (NumPy) to `VecEnv` (torch)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from batchnav.envs.adapters.observations import PLAIN, boxes_of, by_name, check_autoreset, num_actions
from batchnav.errors import ArgumentError, CheckpointError, shortened
from batchnav.runtime.checks import check_open
from batchnav.runtime.conversion import as_mask
from batchnav.runtime.kernels.arrays import check_tensor
from batchnav.types import Observation


class FromGymnasium(VectorEnv):
    """A `batchnav.types.VecEnv` on the CPU around a Gymnasium vector environment, for batchnav's learner.

        env = gymnasium.make_vec("CartPole-v1", 32, vectorization_mode="sync",
                                 vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP})
        learner = PPO(policy, FromGymnasium(env), config.ppo)

    Observations are a Box or a Dict of Boxes. Floats are converted to float32; integers and bools keep their dtype.
    Actions are Discrete(n) starting at 0: i64 [N]. Returned tensors are copies. info holds "episode" ("return" and
    "steps", f32 [N], computed by the adapter) with "_episode", and "final_obs" with "_final_obs".

    Only SAME_STEP autoreset is accepted. Under Gymnasium's default, NEXT_STEP, each episode is followed by a step whose
    action is ignored, from which the learner must not learn.

    ArgumentError for other environments, spaces and modes, and for each call after `close`.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012 (Gymnasium's name)
    capturable = False

    @torch.inference_mode(False)
    def __init__(self, env: VectorEnv):
        """Take ownership of `env`: the adapter closes it."""
        if not isinstance(env, VectorEnv):
            raise ArgumentError(f"env: found {type(env).__name__}, expected a gymnasium.vector.VectorEnv")
        check_autoreset(env)
        boxes, self._num_actions = boxes_of(env.single_observation_space), num_actions(env)
        self.env, self.num_envs, self.device = env, env.num_envs, torch.device("cpu")
        self.single_observation_space, self.single_action_space = env.single_observation_space, env.single_action_space
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.storage: Mapping[str, torch.dtype] = {name: _storage(box) for name, box in boxes.items()}
        self._shapes = {name: (env.num_envs, *box.shape) for name, box in boxes.items()}
        self._return, self._steps = (
            torch.zeros(env.num_envs, dtype=torch.float32, device="cpu"),
            torch.zeros(env.num_envs, dtype=torch.float32, device="cpu"),
        )
        self._was_reset = False

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes: observation, {}. Gymnasium gives environment i the seed `seed + i`.

        `options`: those of the environment. {"reset_mask": bool [N]} begins the next episode of these agents only.
        """
        check_open(self)
        begins: Any = slice(None)
        if not isinstance(options, Mapping | None):
            raise ArgumentError(f"options: found {shortened(options)}, expected a dict")
        if options and "reset_mask" in options:
            begins = as_mask(options["reset_mask"], self.num_envs, self.device)
            options = {**options, "reset_mask": begins.numpy()}
        observation, _ = self.env.reset(seed=seed, options=options)
        self._return[begins], self._steps[begins] = 0.0, 0.0
        self._was_reset = True
        return self._as_observed(self._tensors(observation)), {}

    def step(self, actions: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """i64 [N] -> observation, reward f32 [N], terminated bool [N], truncated bool [N], info."""
        check_open(self)
        if not self._was_reset:
            raise ArgumentError("step: found an environment that was never reset, expected reset() before it")
        check_tensor("actions", actions, (self.num_envs,), torch.int64, self.device)
        n = self._num_actions
        if actions.min() < 0 or actions.max() >= n:
            raise ArgumentError(f"actions: found {int(actions.min())} to {int(actions.max())}, expected 0 to {n - 1}")
        observation, reward, terminated, truncated, info = self.env.step(actions.numpy().copy())
        tensors, reward = self._tensors(observation), torch.from_numpy(np.array(reward, np.float32))
        terminated, truncated = (torch.from_numpy(np.array(flag, bool)) for flag in (terminated, truncated))
        ended = terminated | truncated
        self._return += reward
        self._steps += 1
        seen = {
            "episode": {"return": self._return.clone(), "steps": self._steps.clone()}, "_episode": ended,
            "final_obs": self._as_observed(self._final(tensors, ended, info.get("final_obs"))), "_final_obs": ended,
        }  # fmt: skip
        self._return[ended], self._steps[ended] = 0.0, 0.0
        return self._as_observed(tensors), reward, terminated, truncated, seen

    def observe_into(self, out: Observation | None) -> None:
        """No effect: observations are copied from NumPy in each step."""
        check_open(self)

    def observe_again(self) -> Observation:
        """Nothing: {}."""
        check_open(self)
        return {}

    def settle(self) -> None:
        """No effect: steps are synchronous."""
        check_open(self)

    def between_rollouts(self) -> dict[str, float]:
        """No effect, and no statistics: {}."""
        check_open(self)
        return {}

    def state_dict(self) -> dict[str, torch.Tensor]:
        """CheckpointError: Gymnasium's interface gives no access to an environment's state."""
        raise CheckpointError(
            f"{self.env}: found an environment whose state cannot be saved, expected one of batchnav's"
        )

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """CheckpointError: Gymnasium's interface gives no access to an environment's state."""
        raise CheckpointError(f"{self.env}: found an environment that cannot be resumed, expected one of batchnav's")

    def close_extras(self, **kwargs) -> None:
        """Close the wrapped environment; `close` calls it once."""
        self.env.close(**kwargs)

    def _tensors(self, observation: Any) -> Observation:
        """Tensors by name, copied from NumPy observations. ArgumentError for an unexpected shape."""
        arrays = by_name(observation)
        tensors = {}
        for name, dtype in self.storage.items():
            array = np.array(arrays[name], order="C")
            if array.shape != self._shapes[name]:
                found, expected = list(array.shape), list(self._shapes[name])
                raise ArgumentError(f"observation {name!r}: found shape {found}, expected {expected}")
            tensors[name] = torch.from_numpy(array).to(dtype)
        return tensors

    def _final(self, tensors: Observation, ended: torch.Tensor, final: Mapping | Sequence | None) -> Observation:
        """Final observations where episodes ended, and current observations elsewhere.

        `final`: arrays [N, ...] by name, or one item per environment, such as Gymnasium's object array.
        """
        whole = {name: tensor.clone() for name, tensor in tensors.items()}
        for i in ended.nonzero().flatten().tolist():
            own: Any
            if isinstance(final, Mapping):
                own = {name: final[name][i] for name in whole}
            else:
                own = None if final is None else final[i]
            if own is None:
                raise ArgumentError(
                    f"info: found no 'final_obs' of environment {i}, whose episode ended; "
                    "expected it, as SAME_STEP autoreset requires"
                )
            own = by_name(own)
            for name, tensor in whole.items():
                tensor[i] = torch.from_numpy(np.array(own[name]))
        return whole

    def _as_observed(self, tensors: Observation) -> Observation | torch.Tensor:
        """A dict if the observation space is a Dict, else the only tensor."""
        return tensors if isinstance(self.single_observation_space, spaces.Dict) else tensors[PLAIN]


def _storage(box: spaces.Box) -> torch.dtype:
    """The dtype of a Box in a rollout: float32 for floats, its own dtype for others."""
    return torch.float32 if box.dtype.kind == "f" else torch.from_numpy(np.zeros(0, box.dtype)).dtype
