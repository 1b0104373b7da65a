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
from batchnav.errors import ArgumentError, CheckpointError, ConfigError
from batchnav.render.choose import make_renderer
from batchnav.render.raycast.renderer import RaycastRenderer
from batchnav.runtime.device import resolve_device
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
        self._observation = {
            "depth": torch.zeros(image, dtype=torch.float32, device=self.device),
            "pointgoal": self.sim.result.pointgoal,
        }
        self._final = None
        if final_observation:
            self._final = {name: torch.zeros_like(value) for name, value in self._observation.items()}
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
            self.sim.seed.fill_(seed)
            self.sim.state.episode.fill_(-1)
        self.sim.reset()
        return self.observe(), {}

    def step(self, actions: torch.Tensor) -> tuple[dict, torch.Tensor, torch.Tensor, torch.Tensor, dict]:
        """One step of every agent: i64 [N] -> observation, reward, terminated, truncated, info."""
        return self._observation, *self.step_into(actions, self._observation)

    def step_into(
        self, actions: torch.Tensor, out: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, dict]:
        """`step` that writes its observation into the tensors of `out`, by name: floats of any width.

        Where `out` has no "depth", nothing is rendered.
        """
        self.sim.advance(actions)
        info = {"episode": self.sim.metrics(), "_episode": self.sim.result.done}
        if self._final is not None:
            info["final_obs"] = self._observe(self._final)
        self.sim.reset_done()
        self._observe(out)
        self.sim.finish()
        return self.sim.result.reward, self.sim.result.terminated, self.sim.result.truncated, info

    def settle(self) -> None:
        """Let torch's current stream wait for what the simulator does beside it."""
        self.sim.settle()

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph can hold a step: where a renderer launches nothing but kernels."""
        return isinstance(self.renderer, RaycastRenderer)

    def _observe(self, out: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Render from where the agents are, clip to the sensor's range and scale to 0..1."""
        if "depth" in out:
            self._scale(self.look(), out["depth"])
        if "pointgoal" in out:
            out["pointgoal"].copy_(self.sim.result.pointgoal)
        return out

    def look(self) -> torch.Tensor:
        """What the agents see, in metres: f32 [N, H, W]. The renderer's own tensor, valid until the next rendering."""
        state = self.sim.state
        return self.renderer.render(state.scene, self.sim.result.camera, state.heading)

    def _scale(self, metres: torch.Tensor, out: torch.Tensor) -> None:
        """f32 [N, H, W] in metres -> `out` [N, 1, H, W] in 0..1, in as few passes over the images as there can be."""
        config, metres = self.config, metres.unsqueeze(1)
        above = metres - config.min_depth if config.min_depth else metres
        torch.mul(above, 1.0 / (config.max_depth - config.min_depth), out=out)
        out.clamp_(0.0, 1.0)
        if config.hole_value > 0.0:
            out.masked_fill_(metres == 0.0, config.hole_value)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """All that the next step depends on, as tensors on the CPU."""
        state = {name: value.cpu().clone() for name, value in self.sim.state._asdict().items()}
        state["pointgoal"] = self.sim.result.pointgoal.cpu().clone()
        state["camera"] = self.sim.result.camera.cpu().clone()
        state["seed"] = self.sim.seed[0].cpu().clone()
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
        self.sim.seed.fill_(int(state["seed"]))
        self.sim.draw_all()

    def observe(self, out: dict[str, torch.Tensor] | None = None) -> dict[str, torch.Tensor]:
        """The current observation, rendered anew (after `load_state_dict`), into `out` as by `step_into`."""
        return self._observe(self._observation if out is None else out)


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
