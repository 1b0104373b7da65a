"""What adapters share: observations by name, whether they have one or not; figures of episodes by either name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from batchnav.errors import ArgumentError
from batchnav.types import Observation, VecEnv

PLAIN = "observation"
"""The name of an observation that is no dict."""


def by_name(observation: Any) -> Observation:
    """Tensors or arrays by name."""
    return dict(observation) if isinstance(observation, Mapping) else {PLAIN: observation}


def boxes_of(space: spaces.Space) -> dict[str, spaces.Box]:
    """The Boxes of the observations by name; ArgumentError for a space that has others."""
    found = dict(space.spaces) if isinstance(space, spaces.Dict) else {PLAIN: space}
    boxes = {name: box for name, box in found.items() if isinstance(box, spaces.Box)}
    for name in found.keys() - boxes.keys():
        raise ArgumentError(f"env: found {found[name]} for observation {name!r}, expected a Box")
    return boxes


def check_autoreset(env: VecEnv | VectorEnv) -> None:
    """ArgumentError for an environment that does not begin the next episode within the step that ends one."""
    mode = env.metadata.get("autoreset_mode") if isinstance(env, VectorEnv) else AutoresetMode.SAME_STEP
    if mode != AutoresetMode.SAME_STEP:
        raise ArgumentError(
            f"env: found autoreset mode {getattr(mode, 'name', mode)}, expected SAME_STEP "
            '(vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP} where gymnasium.make_vec makes it)'
        )


def num_actions(env: VecEnv | VectorEnv) -> int:
    """How many actions there are; ArgumentError for an environment whose actions are no Discrete(n) from 0 on."""
    space = env.single_action_space
    if not isinstance(space, spaces.Discrete) or space.start != 0:
        raise ArgumentError(f"env: found action space {space}, expected Discrete(n) starting at 0")
    return int(space.n)


def figures_of(info: Mapping) -> Observation:
    """What was measured of episodes, f32 [N] by name; `gymnasium.make_vec` leaves it in Gymnasium's "final_info"."""
    if "episode" in info:
        return info["episode"]
    return {name: values for name, values in info["final_info"].items() if not name.startswith("_")}
