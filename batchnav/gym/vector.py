"""Environments of `gymnasium.make_vec`: info named as in Gymnasium's own vector environments, and rendering."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from batchnav.cartpole.env import CartPoleEnv
from batchnav.data.scenes import load_scenes
from batchnav.envs.arguments import check_kinds
from batchnav.envs.config import NavConfig, nav_config
from batchnav.envs.nav import NavEnv
from batchnav.envs.observations import needed_appearance
from batchnav.envs.options import OPTION_NAMES
from batchnav.envs.stream import SceneStream
from batchnav.errors import ArgumentError
from batchnav.gym.frames import FrameRenderer
from batchnav.runtime.checks import Seeds
from batchnav.runtime.conversion import OUTPUTS, as_actions, to_output
from batchnav.scene.appearance import FROM_FILES

RGB_ARRAY = "rgb_array"


class GymnasiumNav(NavEnv):
    """A `NavEnv` with `render`, whose info has the names of Gymnasium's own vector environments.

    With SAME_STEP autoreset, metrics of ended episodes are in info["final_info"], each with its mask; with other modes
    they are in info itself. The key "episode" is reserved for `gymnasium.wrappers.vector.RecordEpisodeStatistics`.
    """

    metadata = {**NavEnv.metadata, "render_modes": [RGB_ARRAY], "render_fps": 10}  # noqa: RUF012 (Gymnasium's form)

    def __init__(self, scenes: Any, num_envs: int, render_mode: str | None = None, **options: Any):
        if render_mode not in (None, RGB_ARRAY):
            raise ArgumentError(f"render_mode: found {render_mode!r}, expected None or {RGB_ARRAY!r}")
        if render_mode and isinstance(scenes, SceneStream):
            raise ArgumentError(f"render_mode: found {render_mode!r} with a SceneStream, expected None")
        super().__init__(scenes, num_envs, **options)
        self.render_mode = render_mode
        self._frames = FrameRenderer(self) if render_mode else None

    def reset(self, *, seed: Seeds = None, options: dict | None = None) -> tuple[Any, dict]:
        """Begin new episodes (see `NavEnv.reset`)."""
        result = super().reset(seed=seed, options=options)
        if self._frames:
            self._frames.follow()
        return result

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict]:
        """Step all agents (see `NavEnv.step`); info is described in the class."""
        *result, info = super().step(actions)
        if self._frames:
            self._frames.follow()
        ended = info["_episode"]
        metrics = {**info["episode"], **{f"_{name}": ended for name in info["episode"]}}
        if self.metadata["autoreset_mode"] != AutoresetMode.SAME_STEP:
            return *result, metrics
        final = {name: info[name] for name in ("final_obs", "_final_obs") if name in info}
        return *result, {"final_info": metrics, "_final_info": ended, **final}

    def render(self) -> tuple[np.ndarray, ...]:
        """Images of each agent next to a map with its path, u8 [H, W, 3] each; empty without a render mode."""
        self._check_playing()
        return self._frames.render() if self._frames else ()


class GymnasiumCartPole(CartPoleEnv):
    """`CartPoleEnv` that accepts actions of any array type, with the arguments `copy` and `output` of `NavEnv`.

    Autoreset is SAME_STEP, the only mode. info holds "final_info" (return and steps of the ended episode) and
    "final_obs", with their masks.
    """

    def __init__(
        self,
        num_envs: int,
        device: Any = "cpu",
        seed: int | None = None,
        copy: bool = True,
        output: str = "torch",
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        render_mode: None = None,
    ):
        if output not in OUTPUTS:
            raise ArgumentError(f"output: found {output!r}, expected one of {', '.join(OUTPUTS)}")
        mode = AutoresetMode.SAME_STEP
        if autoreset_mode not in (mode, mode.name, mode.value):
            raise ArgumentError(f"autoreset_mode: found {autoreset_mode!r}, expected SAME_STEP")
        if render_mode is not None:
            raise ArgumentError(f"render_mode: found {render_mode!r}, expected None")
        super().__init__(num_envs, device, secrets.randbits(63) if seed is None else seed)
        self._copy, self._output, self.render_mode = copy, output, render_mode

    def reset(self, *, seed: Seeds = None, options: dict | None = None) -> tuple[Any, dict]:
        """Begin new episodes. ArgumentError for options: there are none."""
        if options:
            raise ArgumentError(
                f"options: found {', '.join(map(str, options))}, expected none; reset begins all episodes"
            )
        return to_output(super().reset(seed=seed)[0], self._copy, self._output), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict]:
        """Step all environments."""
        kept = actions.dtype if isinstance(actions, torch.Tensor) and actions.dtype == torch.uint8 else torch.int64
        *result, info = super().step(as_actions(actions, self.device, kept))
        ended = info["_episode"]
        final = {**info["episode"], **{f"_{name}": ended for name in info["episode"]}}
        final_info = {"final_info": final, "_final_info": ended}
        named = {**final_info, "final_obs": info["final_obs"], "_final_obs": info["_final_obs"]}
        return to_output((*result, named), self._copy, self._output)


def make_nav(
    num_envs: int = 1,
    task: str = "pointnav",
    scenes: Any = ("house:0",),
    config: NavConfig | str | None = None,
    sensors: Sequence[str] | None = None,
    render_mode: str | None = None,
    **options: Any,
) -> GymnasiumNav:
    """A navigation environment.

    Args:
        num_envs: N.
        task: a name in `batchnav.tasks.TASKS`.
        scenes: names for `batchnav.load_scenes`, or an argument of `NavEnv`.
        config: a configuration, or the name of a preset.
        sensors: names of sensors; None: those of the configuration.
        render_mode: "rgb_array" for `render`.
        options: other arguments of `NavEnv` and fields of its configuration. The default seed is random.

    ArgumentError for `scenes` that is a single name, and errors of `NavEnv` and `load_scenes`.
    """
    if isinstance(scenes, str):
        raise ArgumentError(f"scenes: found {scenes!r}, expected a list of names, such as [{scenes!r}]")
    check_kinds(task, config, sensors, options.get("episodes"))
    own = {"seed": None} | {name: options.pop(name) for name in NAV_ARGUMENTS & options.keys()}
    made = nav_config(config, options, task)
    if isinstance(scenes, Sequence) and all(isinstance(name, str) for name in scenes):
        fields = needed_appearance(made if sensors is None else NavConfig(**{**vars(made), "sensors": tuple(sensors)}))
        scenes = load_scenes(scenes, settings=made.body.navmesh, appearance=bool(fields & FROM_FILES))
    return GymnasiumNav(scenes, num_envs, render_mode, task=task, config=made, sensors=sensors, **own)


NAV_ARGUMENTS = OPTION_NAMES | {"device", "seed", "episodes"}
"""Arguments of `NavEnv` that are not fields of a configuration."""


def make_cartpole(num_envs: int = 1, **options: Any) -> GymnasiumCartPole:
    """CartPole environments."""
    return GymnasiumCartPole(num_envs, **options)
