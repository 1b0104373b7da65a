"""Helpers of all adapters: observations by name, spaces, autoreset modes and episode metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from batchnav.errors import ArgumentError
from batchnav.types import Observation, VecEnv

PLAIN = "observation"
"""Name of an observation that is a single tensor."""


def by_name(observation: Any) -> Observation:
    """Observations by name: a dict as it is, a single tensor or array as `PLAIN`."""
    return dict(observation) if isinstance(observation, Mapping) else {PLAIN: observation}


def boxes_of(space: spaces.Space) -> dict[str, spaces.Box]:
    """Boxes of a space's observations by name. ArgumentError for other spaces."""
    found = dict(space.spaces) if isinstance(space, spaces.Dict) else {PLAIN: space}
    boxes = {name: box for name, box in found.items() if isinstance(box, spaces.Box)}
    for name in found.keys() - boxes.keys():
        raise ArgumentError(f"env: found {found[name]} for observation {name!r}, expected a Box")
    return boxes


def categories_of(space: spaces.Space) -> dict[str, int]:
    """Number of values of the integer observations [] of a space by name, such as ObjectNav's "objectgoal"."""
    boxes = boxes_of(space).items()
    return {name: int(box.high) + 1 for name, box in boxes if box.shape == () and np.issubdtype(box.dtype, np.integer)}


def with_discrete(space: spaces.Space) -> spaces.Space:
    """The space with `Discrete` in place of integer boxes []: libraries read these as categories."""
    found = {name: spaces.Discrete(number) for name, number in categories_of(space).items()}
    return spaces.Dict([*{**space.spaces, **found}.items()]) if isinstance(space, spaces.Dict) and found else space


def check_autoreset(env: VecEnv | VectorEnv) -> None:
    """ArgumentError for an autoreset mode other than SAME_STEP."""
    mode = env.metadata.get("autoreset_mode") if isinstance(env, VectorEnv) else AutoresetMode.SAME_STEP
    if mode != AutoresetMode.SAME_STEP:
        raise ArgumentError(
            f"env: found autoreset mode {getattr(mode, 'name', mode)}, expected SAME_STEP "
            '(pass vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP} to gymnasium.make_vec)'
        )


def num_actions(env: VecEnv | VectorEnv) -> int:
    """Number of discrete actions. ArgumentError for an action space other than Discrete(n) starting at 0."""
    space = env.single_action_space
    if not isinstance(space, spaces.Discrete) or space.start != 0:
        raise ArgumentError(f"env: found action space {space}, expected Discrete(n) starting at 0")
    return int(space.n)


def check_actions(env: VecEnv | VectorEnv) -> None:
    """ArgumentError for an action space other than Discrete(n) starting at 0 or a Box."""
    if not isinstance(env.single_action_space, spaces.Box):
        num_actions(env)


def episode_metrics(info: Mapping) -> Observation:
    """Episode metrics, f32 [N] by name, from "episode" or, for `gymnasium.make_vec`, from "final_info"."""
    if "episode" in info:
        return info["episode"]
    return {name: values for name, values in info["final_info"].items() if not name.startswith("_")}
