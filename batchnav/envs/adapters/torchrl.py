"""Adapter to TorchRL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import spaces

from batchnav.envs.adapters.observations import boxes_of, by_name, check_autoreset, num_actions
from batchnav.runtime.conversion import check_torch
from batchnav.runtime.imports import needs_extra
from batchnav.types import VecEnv

with needs_extra("adapters", "adapter to TorchRL", "torchrl"):
    from tensordict import TensorDict, TensorDictBase
    from torchrl.data import Binary, Bounded, Categorical, Composite, Unbounded
    from torchrl.envs import EnvBase


class TorchRLEnv(EnvBase):
    """A batchnav environment for TorchRL's collectors and losses: batch size [N], on the environment's device.

        collector = SyncDataCollector(TorchRLEnv(CartPoleEnv(num_envs=32)), actor, frames_per_batch=2048)

    Observations are copies, by name ("observation" for a single tensor); "action" is i64 [N], "reward" f32 [N, 1], and
    "done", "terminated", "truncated" are bool [N, 1]. TorchRL expects the last observation of an ended episode in
    "next", and the first of the following episode from a reset. The environment resets within the step, so the adapter
    keeps the first observation for that reset. Without final observations, the first observation of the next episode
    takes the place of the last one. A truncated episode then also counts as terminated, so that no value is
    bootstrapped from it; `NavEnv(final_observation=True)` avoids this.

    `info` is the info of the environment's last step.
    """

    @torch.inference_mode(False)
    def __init__(self, env: VecEnv):
        """Take ownership of `env`: the adapter closes it."""
        check_autoreset(env)
        n = env.num_envs
        super().__init__(device=env.device, batch_size=[n])
        self.env = env
        self.info: Mapping = {}
        seen = {name: _spec(box, n, env.device) for name, box in boxes_of(env.single_observation_space).items()}
        self.observation_spec = Composite(seen, shape=[n])
        space = env.single_action_space
        self.action_spec = (
            _spec(space, n, env.device)
            if isinstance(space, spaces.Box)
            else Categorical(num_actions(env), shape=[n], device=env.device)
        )
        self.reward_spec = Unbounded([n, 1], device=env.device)
        flag = Binary(shape=[n, 1], dtype=torch.bool, device=env.device)
        self.done_spec = Composite(done=flag, terminated=flag.clone(), truncated=flag.clone(), shape=[n])
        self._seed: int | None = None
        self._first: TensorDict | None = None
        self._ended = torch.zeros(n, dtype=torch.bool, device=env.device)

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs) -> TensorDict:
        """Begin new episodes, of all environments or of those in the mask "_reset".

        Episodes that just ended have already been followed by new ones, whose first observations are returned. Others
        are cut short, as by `StepCounter`, by the environment's `reset_mask`.
        """
        mask = None if tensordict is None else tensordict.get("_reset", None)
        if mask is not None and self._first is not None and not mask.all():
            cut = mask.flatten() & ~self._ended
            if cut.any():
                observation, self.info = self.env.reset(options={"reset_mask": cut})
                self._first = self._copy(observation)
            return self._first.clone()
        if mask is not None and self._first is not None and torch.equal(mask.flatten(), self._ended):
            return self._first.clone()
        observation, self.info = self.env.reset(seed=self._seed)
        check_torch(observation)
        self._seed, self._first = None, self._copy(observation)
        self._ended.zero_()
        return self._first.clone()

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        observation, reward, terminated, truncated, self.info = self.env.step(tensordict["action"])
        self._ended, self._first = terminated | truncated, self._copy(observation)
        last = self._first.clone()
        if "final_obs" in self.info:
            last = torch.where(self._ended, self._copy(self.info["final_obs"]), last)
        else:
            terminated = self._ended
        flags = {"done": self._ended, "terminated": terminated, "truncated": truncated}
        return last.update({
            "reward": reward.unsqueeze(1).clone(), **{name: flag.unsqueeze(1).clone() for name, flag in flags.items()}
        })  # fmt: skip

    def _set_seed(self, seed: int | None) -> None:
        self._seed = seed

    def _copy(self, observation: Any) -> TensorDict:
        tensors = {name: tensor.clone() for name, tensor in by_name(observation).items()}
        return TensorDict(tensors, batch_size=self.batch_size, device=self.device)

    def close(self, *, raise_if_closed: bool = True) -> None:
        """Close the environment."""
        super().close(raise_if_closed=raise_if_closed)
        self.env.close()


def _spec(box: spaces.Box, n: int, device: torch.device) -> Bounded | Unbounded:
    """TorchRL's spec of a Box. Floats are f32."""
    low, high = (torch.from_numpy(end).expand(n, *box.shape) for end in (box.low, box.high))
    dtype = torch.float32 if low.is_floating_point() else low.dtype
    if not box.is_bounded():
        return Unbounded([n, *box.shape], device=device, dtype=dtype)
    return Bounded(low.to(dtype), high.to(dtype), [n, *box.shape], device=device, dtype=dtype)
