"""Small environments that learners must master, in plain torch."""

import torch
from gymnasium import spaces

from batchnav.policy import PolicyAgent


class Toy:
    """The members of a `VecEnv` that a toy has no use for."""

    capturable = False

    @property
    def storage(self):
        space, narrow = self.single_observation_space, torch.bfloat16 if self.device.type == "cuda" else torch.float32
        boxes = space.spaces if isinstance(space, spaces.Dict) else {"observation": space}
        return {name: narrow if len(box.shape) == 3 else torch.float32 for name, box in boxes.items()}

    def observe_into(self, out):
        """It goes on returning its own."""

    def observe_again(self):
        return {}

    def settle(self):
        """Nothing runs beside."""

    def between_rollouts(self):
        return {}

    def close(self):
        """Nothing to free."""


class Bandit(Toy):
    """Contextual bandit, one step an episode: the reward is 1 for the action that the observation points at."""

    def __init__(self, num_envs=64, num_actions=3, seed=0):
        self.num_envs, self.num_actions, self.device = num_envs, num_actions, torch.device("cpu")
        self.single_observation_space = spaces.Box(0.0, 1.0, (num_actions,))
        self.single_action_space = spaces.Discrete(num_actions)
        self.generator = torch.Generator().manual_seed(seed)

    def _observe(self):
        self.target = torch.randint(self.num_actions, (self.num_envs,), generator=self.generator)
        return torch.nn.functional.one_hot(self.target, self.num_actions).float()

    def reset(self, *, seed=None, options=None):
        self.generator.manual_seed(seed)
        return self._observe(), {}

    def step(self, actions):
        reward = (actions == self.target).float()
        ended = torch.ones(self.num_envs, dtype=torch.bool)
        info = {"episode": {"return": reward}, "_episode": ended}
        return self._observe(), reward, ended, torch.zeros_like(ended), info

    def state_dict(self):
        return {"generator": self.generator.get_state(), "target": self.target.clone()}

    def load_state_dict(self, state):
        self.generator.set_state(state["generator"])
        self.target.copy_(state["target"])


class Point(Toy):
    """Contextual bandit of numbers, one step an episode: the reward is 1 less the squared distance of the action, cut
    off at -1 and 1, from the observation.
    """

    def __init__(self, num_envs=64, size=2, device="cpu"):
        self.num_envs, self.size, self.device = num_envs, size, torch.device(device)
        self.single_observation_space = spaces.Box(-1.0, 1.0, (size,))
        self.single_action_space = spaces.Box(-1.0, 1.0, (size,))
        self.generator = torch.Generator(self.device)
        self.target = torch.zeros(num_envs, size, device=self.device)

    def reset(self, *, seed=None, options=None):
        self.generator.manual_seed(seed + 1)  # not the numbers that a learner of this seed draws actions from
        return self._observe(), {}

    def _observe(self):
        shape = self.num_envs, self.size
        self.target = torch.rand(shape, generator=self.generator, device=self.device) * 1.6 - 0.8
        return self.target

    def step(self, actions):
        reward = 1.0 - (actions.clamp(-1.0, 1.0) - self.target).square().sum(1)
        ended = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        info = {"episode": {"return": reward}, "_episode": ended}
        return self._observe(), reward, ended, torch.zeros_like(ended), info

    def state_dict(self):
        return {"generator": self.generator.get_state(), "target": self.target.clone()}

    def load_state_dict(self, state):
        self.generator.set_state(state["generator"])
        self.target = state["target"].clone()


class RememberBit(Toy):
    """A bit is shown at an episode's first step and asked for `delay` steps later, where the last step's reward is 1
    for the action that repeats it. Starts are staggered, so that episodes begin anywhere inside a rollout.

    Observation: [bit shown as -1 or 1, 1 at the question] under "cue", and an empty image of 16x16 pixels if asked for.
    """

    def __init__(self, num_envs=64, delay=5, image=False, truncate=False, device="cpu"):
        self.num_envs, self.delay, self.device = num_envs, delay, torch.device(device)
        self.truncate = truncate
        boxes = {"cue": spaces.Box(-1.0, 1.0, (2,))}
        if image:
            boxes["image"] = spaces.Box(0.0, 1.0, (1, 16, 16))
        self.single_observation_space, self.single_action_space = spaces.Dict(boxes), spaces.Discrete(2)
        self.generator = torch.Generator(self.device)
        self.image = torch.zeros(num_envs, 1, 16, 16, device=self.device) if image else None

    def _observe(self):
        shown = torch.where(self.time == 0, self.bit * 2.0 - 1.0, 0.0)
        obs = {"cue": torch.stack([shown, (self.time == self.delay).float()], dim=1)}
        if self.image is not None:
            obs["image"] = self.image
        return obs

    def reset(self, *, seed=None, options=None):
        self.generator.manual_seed(seed)
        self.time = torch.arange(self.num_envs, device=self.device) % (self.delay + 1)
        self.bit = torch.randint(2, (self.num_envs,), generator=self.generator, device=self.device)
        return self._observe(), {}

    def step(self, actions):
        ended = self.time == self.delay
        reward = (ended & (actions == self.bit)).float()
        self.time = torch.where(ended, 0, self.time + 1)
        fresh = torch.randint(2, (self.num_envs,), generator=self.generator, device=self.device)
        final_obs = self._observe()
        self.bit = torch.where(ended, fresh, self.bit)
        # as an environment may: what is masked out is no number
        info = {"episode": {"return": torch.where(ended, reward, torch.nan)}, "_episode": ended, "final_obs": final_obs}
        never = torch.zeros_like(ended)
        terminated, truncated = (never, ended) if self.truncate else (ended, never)
        return self._observe(), reward, terminated, truncated, info

    def state_dict(self):
        return {"generator": self.generator.get_state(), "time": self.time.clone(), "bit": self.bit.clone()}

    def load_state_dict(self, state):
        self.generator.set_state(state["generator"])
        self.time, self.bit = state["time"].clone(), state["bit"].clone()


def acts_alike(policy, loaded, with_label, without):
    """True where a loaded agent acts in an environment without labels as its policy does in one with them."""
    (seen, _), (less, _) = with_label.reset(seed=3), without.reset(seed=3)
    agents = PolicyAgent(policy), loaded
    for agent in agents:
        agent.reset(with_label.num_envs)
    return less.keys() < seen.keys() and agents[0].act(seen).equal(agents[1].act(less))
