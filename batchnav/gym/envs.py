"""Environments of `gymnasium.make_vec` and `gymnasium.make`: info named as in Gymnasium's own, and rendering."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from PIL import Image

from batchnav.cartpole.env import CartPoleEnv
from batchnav.data.scenes.load import load_scenes
from batchnav.envs.arguments import OPTION_NAMES, check_kinds
from batchnav.envs.config import NavConfig, nav_config
from batchnav.envs.nav import NavEnv
from batchnav.envs.observations import needed_appearance
from batchnav.envs.stream import SceneStream
from batchnav.errors import ArgumentError
from batchnav.evaluation.play import bodies_by_agent
from batchnav.renderers.bodies import SeenBodies
from batchnav.runtime.checks import Seeds, check_open
from batchnav.runtime.conversion import OUTPUTS, as_actions, reset_options, to_output
from batchnav.scene.appearance import FROM_FILES
from batchnav.view.topdown import BLUE, FOOT, PAPER, TopDownMap
from batchnav.view.video import colour

# Rendered frames of `gymnasium`'s render mode "rgb_array": images of each agent next to a map with its path

MAP_SIZE = 320
"""Longer side of a map, pixels."""
STOREY = 0.5
"""Vertical spacing of the maps of a scene, metres."""


class FrameRenderer:
    """Tracks the agents of an environment and renders frames of them."""

    def __init__(self, env: NavEnv):
        self.env = env
        self._paths: list[list[np.ndarray]] = [[] for _ in range(env.num_envs)]
        self._episodes = np.full(env.num_envs, -1)
        self._maps: dict[tuple[int, int], TopDownMap] = {}

    def follow(self) -> None:
        """Record the agents' positions. A path starts with its episode."""
        bodies = self.env.sim.bodies
        episodes, positions = bodies.episode.cpu().numpy().copy(), bodies.position.cpu().numpy().copy()
        for i, path in enumerate(self._paths):
            if episodes[i] != self._episodes[i]:
                path.clear()
            path.append(positions[i])
        self._episodes = episodes

    def render(self) -> tuple[np.ndarray, ...]:
        """One frame per agent, u8 [H, W, 3]."""
        seen = {
            spec: self.env.last_observation[spec.name].cpu().numpy() for spec in self.env.specs if len(spec.shape) == 3
        }
        return tuple(
            self._compose([Image.fromarray(colour(values[i], spec)) for spec, values in seen.items()], self._map(i))
            for i in range(self.env.num_envs)
        )

    def _map(self, i: int) -> TopDownMap:
        """The map of agent `i` with goal, path and heading."""
        bodies, target = self.env.sim.bodies, self.env.task.target
        row, height = int(bodies.scene[i]), float(bodies.position[i, 1])
        key = row, round(height / STOREY)
        if key not in self._maps:
            scene = self.env.bank.scenes[row]
            self._maps[key] = TopDownMap(scene.navmesh, scene.mesh, height, MAP_SIZE)
        plan = self._maps[key].copy()
        if target is not None:
            plan.draw_goal(target[i].cpu().numpy(), self.env.task.target_radius)
        if columns := bodies_by_agent(self.env):
            plan.draw_bodies(SeenBodies(*(column[i : i + 1].cpu().numpy() for column in columns)), 0)
        plan.draw_path(np.array(self._paths[i]))
        plan.draw_start(self._paths[i][-1], float(bodies.heading[i]), BLUE)
        return plan

    def _compose(self, views: list[Image.Image], plan: TopDownMap) -> np.ndarray:
        """Images in a row with the map on the right. The size does not depend on the scene, as videos require."""
        side = MAP_SIZE + FOOT
        scaled = [
            view.resize((round(side * view.width / view.height), side), Image.Resampling.NEAREST) for view in views
        ]
        frame = Image.new("RGB", (sum(view.width for view in scaled) + MAP_SIZE, side), PAPER)
        left = 0
        for picture in (*scaled, plan.image):
            frame.paste(picture, (left, 0))
            left += picture.width
        return np.asarray(frame)


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
        reset_options(options, ())
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


# Environments of `gymnasium.make`: a batch of one, in NumPy


class SingleEnv(gymnasium.Env):
    """A `gymnasium.Env` around a `gymnasium.vector.VectorEnv` of one environment with NumPy arrays.

    There is no autoreset: `reset` begins the next episode. Metrics of an ended episode are in info. ArgumentError for
    each call after `close`.
    """

    def __init__(self, env: GymnasiumNav | GymnasiumCartPole):
        self.vector, self.render_mode = env, env.render_mode
        self.metadata = {name: env.metadata[name] for name in ("render_modes", "render_fps") if name in env.metadata}
        self.observation_space, self.action_space = env.single_observation_space, env.single_action_space
        self._begun = False

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        """Begin the next episode, or with a seed the first episode of that seed."""
        super().reset(seed=seed)
        if options:
            raise ArgumentError(f"options: found {', '.join(map(str, options))}, expected none")
        observation, _ = self.vector.reset(seed=seed)
        self._begun = True
        return _first(observation), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        """Step the environment: observation, reward, terminated, truncated, info."""
        check_open(self.vector)
        if not self._begun:
            raise ArgumentError("step: found an environment that was never reset, expected a call of reset() first")
        observation, reward, terminated, truncated, info = self.vector.step(np.asarray(action)[None])
        over, final = bool(terminated[0] or truncated[0]), {}
        if over:
            observation = info.get("final_obs", observation)
            final = {name: float(v[0]) for name, v in info.get("final_info", info).items() if not name.startswith("_")}
        return _first(observation), float(reward[0]), bool(terminated[0]), bool(truncated[0]), final

    def render(self) -> np.ndarray | None:
        """Images of the agent next to its map, u8 [H, W, 3]; None without a render mode."""
        check_open(self.vector)
        return self.vector.render()[0] if isinstance(self.vector, GymnasiumNav) and self.render_mode else None

    def close(self) -> None:
        """Close the vector environment."""
        self.vector.close()


def make_single_nav(**options: Any) -> SingleEnv:
    """One navigation environment, with the options of `make_nav`."""
    mode = AutoresetMode.DISABLED
    return SingleEnv(make_nav(1, **options, output="numpy", autoreset_mode=mode))


def make_single_cartpole(**options: Any) -> SingleEnv:
    """One CartPole environment."""
    return SingleEnv(make_cartpole(1, **options, output="numpy"))


def _first(value: Any) -> Any:
    """The first row of an array, or of each array in a dict: arrays, also of a number."""
    return {name: part[0, ...] for name, part in value.items()} if isinstance(value, dict) else value[0]
