"""PointGoal navigation with a depth camera, as a `gymnasium.vector.VectorEnv` on torch tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from batchnav.config import PRESETS, PointNavConfig
from batchnav.device import resolve_device
from batchnav.errors import ArgumentError, CheckpointError, ConfigError
from batchnav.render.choose import make_renderer
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene
from batchnav.sim.pointnav import PointNavSim
from batchnav.sim.state import NUM_ACTIONS, EpisodeTable


class PointNavEnv(gym.vector.VectorEnv):
    """N PointGoal agents, stepped together.

    Observations: {"depth": f32 [N, 1, H, W] in 0..1, "pointgoal": f32 [N, 2] (rho in metres, -phi in radians)}.
    Actions: i64 [N]: 0 stop, 1 forward, 2 left, 3 right.
    Autoreset is SAME_STEP: where an episode ends, the observation is the next one's first, info["episode"] holds the
    ended one's metrics (f32 [N] each) and the bool [N] info["_episode"] says where. Returned tensors are valid until
    the next call. terminated: stop was called; truncated: out of steps.

    Args:
        scenes: `Scene`s, or a packed `SceneBank`.
        num_envs: N.
        device: "cpu", "cuda" or "auto". A bank brings its own.
        seed: of the sampled episodes.
        config: the task; a preset's name (`batchnav.config.PRESETS`) will do. `options` override its fields.
        episodes: fixed episodes to play in turn instead of sampled ones.
        final_observation: also give info["final_obs"], the last observation of an ended episode; costs a rendering.
        renderer: "raycast", "opengl", or "auto" for the faster one on this machine.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012 (Gymnasium's form)

    def __init__(
        self,
        scenes: Sequence[Scene] | SceneBank,
        num_envs: int,
        device: str | torch.device = "auto",
        seed: int = 0,
        config: PointNavConfig | str | None = None,
        episodes: EpisodeTable | None = None,
        final_observation: bool = False,
        renderer: str = "raycast",
        **options,
    ):
        if not isinstance(num_envs, int) or num_envs < 1:
            raise ArgumentError(f"num_envs: found {num_envs!r}, expected a whole number >= 1")
        self.config = _task(config, options)
        self.bank = scenes if isinstance(scenes, SceneBank) else SceneBank.pack(list(scenes), resolve_device(device))
        self.num_envs, self.device, self.final_observation = num_envs, self.bank.device, final_observation
        self.sim = PointNavSim(self.bank, num_envs, self.config, seed, episodes)
        self.renderer = make_renderer(
            renderer, self.bank, num_envs, height=self.config.height, width=self.config.width,
            hfov_deg=self.config.hfov_deg, backface_culling=self.config.backface_culling,
            # A ray may end at the sensor's range only where a hole reads the same as a far surface.
            max_depth=self.config.max_depth if self.config.hole_value == 1.0 else float("inf"),
        )  # fmt: skip
        image = (num_envs, 1, self.config.height, self.config.width)
        self._depth = torch.zeros(image, dtype=torch.float32, device=self.device)
        self._final_depth = torch.zeros_like(self._depth) if final_observation else None
        self.single_observation_space = gym.spaces.Dict({
            "depth": gym.spaces.Box(0.0, 1.0, image[1:], np.float32),
            "pointgoal": gym.spaces.Box(-np.inf, np.inf, (2,), np.float32),
        })  # fmt: skip
        self.single_action_space = gym.spaces.Discrete(NUM_ACTIONS)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict[str, torch.Tensor], dict]:
        """Begin all episodes anew; with a seed, from that seed's first episodes on."""
        if seed is not None:
            self.sim.seed = seed
            self.sim.state.episode.fill_(-1)
        self.sim.reset()
        return self._observe(self._depth), {}

    def step(self, actions: torch.Tensor) -> tuple[dict, torch.Tensor, torch.Tensor, torch.Tensor, dict]:
        """One step of every agent: i64 [N] -> observation, reward, terminated, truncated, info."""
        self.sim.advance(actions)
        info = {"episode": self.sim.metrics(), "_episode": self.sim.result.done}
        if self._final_depth is not None:
            final = self._observe(self._final_depth)
            info["final_obs"] = {"depth": final["depth"], "pointgoal": final["pointgoal"].clone()}
        self.sim.reset_done()
        result = self.sim.result
        return self._observe(self._depth), result.reward, result.terminated, result.truncated, info

    def _observe(self, out: torch.Tensor) -> dict[str, torch.Tensor]:
        """Render from where the agents are, clip to the sensor's range and scale to 0..1."""
        state, result, config = self.sim.state, self.sim.result, self.config
        metres = self.renderer.render(state.scene, result.camera, state.heading).unsqueeze(1)
        torch.sub(metres, config.min_depth, out=out)
        out.mul_(1.0 / (config.max_depth - config.min_depth)).clamp_(0.0, 1.0)
        if config.hole_value > 0.0:
            out.masked_fill_(metres == 0.0, config.hole_value)
        return {"depth": out, "pointgoal": result.pointgoal}

    def state_dict(self) -> dict[str, torch.Tensor]:
        """All that the next step depends on, as tensors on the CPU."""
        state = {name: value.cpu().clone() for name, value in self.sim.state._asdict().items()}
        state["pointgoal"] = self.sim.result.pointgoal.cpu().clone()
        state["camera"] = self.sim.result.camera.cpu().clone()
        state["seed"] = torch.tensor(self.sim.seed, dtype=torch.int64)
        return state

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Continue from `state_dict`'s result. CheckpointError where it is not of this environment's shape."""
        own = {**self.sim.state._asdict(), "pointgoal": self.sim.result.pointgoal, "camera": self.sim.result.camera}
        for name, target in own.items():
            found = state.get(name)
            if found is None or found.shape != target.shape or found.dtype != target.dtype:
                what = "nothing" if found is None else f"{found.dtype} {list(found.shape)}"
                expected = f"{target.dtype} {list(target.shape)}"
                raise CheckpointError(f"environment state {name!r}: found {what}, expected {expected}")
        for name, target in own.items():
            target.copy_(state[name])
        self.sim.seed = int(state["seed"])

    def observe(self) -> dict[str, torch.Tensor]:
        """The current observation, rendered anew (after `load_state_dict`)."""
        return self._observe(self._depth)


def _task(config: PointNavConfig | str | None, options: dict) -> PointNavConfig:
    """The task from a config or a preset's name, with overrides."""
    if isinstance(config, str):
        if config not in PRESETS:
            raise ConfigError(f"preset: found {config!r}, expected one of {', '.join(PRESETS)}")
        config = PRESETS[config]
    config = config or PointNavConfig()
    known = {f.name for f in dataclasses.fields(PointNavConfig)}
    for name in options:
        if name not in known:
            raise ConfigError(f"PointNavEnv option {name!r} is unknown, expected one of {', '.join(sorted(known))}")
    config = dataclasses.replace(config, **options)
    config.validate()
    return config
