"""Navigation environments: bodies, a task and sensors, as one `gymnasium.vector.VectorEnv` on torch tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import gymnasium as gym
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from batchnav.config import validate
from batchnav.envs.config import NavConfig, nav_config
from batchnav.envs.state import load_tensors, on_cpu
from batchnav.envs.stream import SceneStream
from batchnav.errors import ArgumentError, ConfigError
from batchnav.runtime.device import resolve_device
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene, check_body
from batchnav.sensors.rig import Rig, make_sensors, sensor_specs
from batchnav.sim.bodies import NUM_ACTIONS
from batchnav.sim.simulator import Simulator
from batchnav.tasks import TASKS
from batchnav.tasks.pairs import EpisodeTable
from batchnav.types import Observation, Spec


class NavEnv(gym.vector.VectorEnv):
    """N agents, stepped together: a `batchnav.types.VecEnv`.

    Observations: a dict with what the sensors give and what the task lets agents observe, as `specs` declares them.
    Actions: i64 [N]: 0 stop, 1 forward, 2 left, 3 right.
    Autoreset is SAME_STEP: where an episode ends, the observation is the next one's first, info["episode"] holds the
    ended one's metrics (f32 [N] each) and the bool [N] info["_episode"] says where. Returned tensors are valid until
    the next call.

    Args:
        scenes: `Scene`s, a packed `SceneBank` (with appearance where a sensor needs it), or a `SceneStream`.
        num_envs: N.
        device: "cpu", "cuda" or "auto". A bank brings its own.
        seed: of the sampled episodes.
        task: a name of `batchnav.tasks.TASKS`.
        config: the settings; a preset's name (`batchnav.envs.config.PRESETS`) will do. `options` override fields of its
            body, main camera, sensors and task.
        sensors: names of `batchnav.sensors.SENSORS`; None: the configuration's.
        episodes: fixed episodes to play in turn instead of sampled ones.
        final_observation: also give info["final_obs"], the last observation of an ended episode, meaningful where
            info["_final_obs"] is set; costs a rendering.
        renderer: "raycast", "opengl", or "auto" for the faster one on this machine.

    ArgumentError, ConfigError for what is not as described; NavMeshError for a scene whose navmesh was baked for
    another body; EpisodeError for one that has no episode to offer.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012 (Gymnasium's form)

    def __init__(
        self,
        scenes: Sequence[Scene] | SceneBank | SceneStream,
        num_envs: int,
        device: str | torch.device = "auto",
        seed: int = 0,
        task: str = "pointnav",
        config: NavConfig | str | None = None,
        sensors: Sequence[str] | None = None,
        episodes: EpisodeTable | None = None,
        final_observation: bool = False,
        renderer: str = "raycast",
        **options,
    ):
        if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1:
            raise ArgumentError(f"num_envs: found {num_envs!r}, expected a whole number >= 1")
        if task not in TASKS:
            raise ConfigError(f"task: found {task!r}, expected one of {', '.join(TASKS)}")
        self.config = nav_config(config, options)
        validate(self.config)
        cameras = self.config.all_cameras
        names = self.config.sensors if sensors is None else sensors
        made = make_sensors(names, cameras, self.config.sensor_settings)
        appearance = any(sensor.needs_appearance for of_camera in made.values() for sensor in of_camera.values())
        self.stream = scenes if isinstance(scenes, SceneStream) else None
        self.bank = _bank(scenes, num_envs, device, appearance)
        body = self.config.body
        for scene in self.bank.scenes:
            check_body(scene, body.agent_radius, body.agent_height)
        self.num_envs, self.device = num_envs, self.bank.device
        self.sim = Simulator(self.bank, num_envs, body, lambda sim: TASKS[task](sim, self.config.task, episodes), seed)
        self.task = self.sim.task
        self.rig = Rig(self.bank, self.sim.bodies, cameras, made, renderer)
        if self.stream is not None:
            self.stream.begin(self.sim)
        elif episodes is None:
            self.sim.try_scenes()
        self.specs: tuple[Spec, ...] = (*self.rig.specs, *self.task.specs)
        """What is observed."""
        self.storage: Mapping[str, torch.dtype] = {spec.name: spec.stored_on(self.device) for spec in self.specs}
        self._own = self._out = self._new_observation()
        self._final = self._new_observation() if final_observation else None
        self.single_observation_space = gym.spaces.Dict({spec.name: spec.box for spec in self.specs})
        self.single_action_space = gym.spaces.Discrete(NUM_ACTIONS)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def _new_observation(self) -> Observation:
        return {
            spec.name: torch.zeros(self.num_envs, *spec.shape, dtype=spec.dtype, device=self.device)
            for spec in self.specs
        }

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Observation, dict]:
        """Begin all episodes anew; with a seed, from that seed's first episodes on."""
        if seed is not None:
            self.sim.origin.seed.fill_(seed)
            self.sim.bodies.episode.fill_(-1)
        self.sim.reset()
        return self.observe(), {}

    def observe_into(self, out: Observation | None) -> None:
        """From now on write observations into these tensors, by name; what is not among them is not drawn."""
        self._out = self._own if out is None else out

    def step(self, actions: torch.Tensor) -> tuple[Observation, torch.Tensor, torch.Tensor, torch.Tensor, dict]:
        """One step of every agent: i64 [N] -> observation, reward, terminated, truncated, info."""
        bodies = self.sim.bodies
        self.sim.advance(actions)
        info = {"episode": self.task.metrics, "_episode": bodies.done}
        if self._final is not None:
            info |= {"final_obs": self._observe(self._final), "_final_obs": bodies.done}
        self.sim.reset_done()
        observation = self.observe()
        self.sim.finish()
        return observation, self.task.reward, bodies.terminated, bodies.truncated, info

    def observe(self) -> Observation:
        """The current observation, drawn anew."""
        return self._observe(self._out)

    def _observe(self, out: Observation) -> Observation:
        self.rig.observe(out)
        for name, value in self.task.observations.items():
            if name in out:
                out[name].copy_(value)
        return out

    def settle(self) -> None:
        """Let torch's current stream wait for what the simulator does beside it."""
        self.sim.settle()

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph can hold a step."""
        return self.rig.capturable

    def between_rollouts(self) -> dict[str, float]:
        """Raise what kernels noted, and let scenes take turns: "scenes_loaded", "scene_stall" (seconds)."""
        self.sim.check()
        return self.stream.move(self.sim) if self.stream is not None else {}

    def state_dict(self) -> dict[str, torch.Tensor]:
        """All that the next step depends on, as tensors on the CPU."""
        state = on_cpu({**self._state(), "seed": self.sim.origin.seed})
        return state | (self.stream.state_dict() if self.stream is not None else {})

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from `state_dict`'s result. CheckpointError where it is not one of this environment."""
        load_tensors(state, {**self._state(), "seed": self.sim.origin.seed}, self._limits())
        if self.stream is not None:
            self.stream.load_state_dict(state, self.sim)
        self.sim.draw_all()

    def _state(self) -> dict[str, torch.Tensor]:
        """The live tensors that are saved."""
        return {**self.sim.bodies._asdict(), **self.task.state._asdict(), **self.task.observations}

    def _limits(self) -> dict[str, int]:
        """What indices in a state have to be below."""
        return {"scene": self.bank.num_scenes}

    def close_extras(self, **kwargs) -> None:
        """End what runs beside the simulation."""
        if self.stream is not None:
            self.stream.close()


class PointNavEnv(NavEnv):
    """`NavEnv` for PointGoal navigation with a depth camera.

    Observations: {"depth": f32 [N, 1, H, W] in 0..1, "pointgoal": f32 [N, 2] (rho in metres, -phi in radians)}.
    terminated: stop was called; truncated: out of steps.
    """

    def __init__(self, scenes: Sequence[Scene] | SceneBank | SceneStream, num_envs: int, *arguments, **options):
        super().__init__(scenes, num_envs, *arguments, **options)


def specs_of(config: NavConfig, task: str = "pointnav") -> tuple[Spec, ...]:
    """What an environment of this configuration observes, without one."""
    sensors = make_sensors(config.sensors, config.all_cameras, config.sensor_settings)
    return (*sensor_specs(sensors), *TASKS[task].specs)


def _bank(scenes, num_envs: int, device: str | torch.device, appearance: bool) -> SceneBank:
    """The bank that an environment runs in."""
    if isinstance(scenes, SceneStream):
        return scenes.open(num_envs, resolve_device(device), appearance)
    if not isinstance(scenes, SceneBank):
        return SceneBank.pack(scenes, resolve_device(device), appearance)
    if appearance and scenes.appearance is None:
        raise ArgumentError("scenes: found a bank without appearance, expected SceneBank.pack(..., appearance=True)")
    return scenes
