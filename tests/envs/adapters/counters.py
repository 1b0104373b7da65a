"""A small environment with known episode ends, for tests of adapters."""

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from batchnav.envs.adapters.gymnasium_vector import FromGymnasium
from batchnav.envs.wrapper import Wrapper


class Counter(gymnasium.Env):
    """Counts its steps in a dict of observations. An episode of odd `length` terminates; others are truncated."""

    observation_space = spaces.Dict({
        "image": spaces.Box(0, 255, (3, 2, 2), np.uint8),
        "count": spaces.Box(-np.inf, np.inf, (1,), np.float64),
    })  # fmt: skip
    action_space = spaces.Discrete(3)

    def __init__(self, length=3):
        self.length, self.steps = length, 0

    def _seen(self):
        return {"image": np.full((3, 2, 2), self.steps, np.uint8), "count": np.array([self.steps], np.float64)}

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self._seen(), {}

    def step(self, action):
        self.steps += 1
        ended = self.steps == self.length
        failed = ended and self.length % 2 == 1
        return self._seen(), float(action), failed, ended and not failed, {}


def counters(*lengths):
    return SyncVectorEnv([lambda n=n: Counter(n) for n in lengths], autoreset_mode=AutoresetMode.SAME_STEP)


class WithoutFinal(Wrapper):
    """Returns no final observations, as `NavEnv` by default."""

    def step(self, actions):
        *rest, info = self.env.step(actions)
        return *rest, {name: value for name, value in info.items() if "final_obs" not in name}


def ours(*lengths, final=True):
    """Counters as a `VecEnv`."""
    env = FromGymnasium(counters(*lengths))
    return env if final else WithoutFinal(env)
