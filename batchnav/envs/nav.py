"""Navigation environments: bodies, a task and sensors, as one `gymnasium.vector.VectorEnv` on torch tensors."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from batchnav.config import shortened, validate
from batchnav.envs.arguments import autoreset_mode_of, bank_of, check_kinds
from batchnav.envs.config import NavConfig, nav_config
from batchnav.envs.observations import observation_sources, space_of
from batchnav.envs.state import MAX_FLOAT, check_tensors, on_cpu
from batchnav.envs.stream import SceneStream
from batchnav.errors import ArgumentError, CheckpointError
from batchnav.mapping.mapper import MAPPER, Mapper
from batchnav.runtime.checks import check_int, check_open, check_seed, refuse_copies
from batchnav.runtime.conversion import OUTPUTS, as_actions, as_mask, to_output
from batchnav.scene.bank import SceneBank
from batchnav.scene.material_sampling import MaterialLibrary
from batchnav.scene.scene import Scene, check_body
from batchnav.sensors.frame import Frame, appearance_needed, write_observations
from batchnav.sensors.sensor import check_observation
from batchnav.sim.positions import check_positions
from batchnav.sim.simulator import MAX_ENVS, Simulator
from batchnav.tasks import TASKS
from batchnav.tasks.episode_sampling import EpisodeTable
from batchnav.types import Observation


class NavEnv(gym.vector.VectorEnv):
    """N agents, stepped together: a `batchnav.types.VecEnv`.

    Observations: a dict with what the sensors give and what the task lets agents observe, as `specs` declares them.
    Actions: i64 [N]: 0 stop, 1 forward, 2 left, 3 right, and with `control="v1"` 4 look up, 5 look down; or, with
    `control="velocity"`, f32 [N, 2]: the speeds ahead and to the left, from -1 (lowest) to 1 (highest). Numbers
    of other types, NumPy arrays and lists will do.
    Autoreset is SAME_STEP: where an episode ends, the observation is the next one's first, info["episode"] holds the
    ended one's metrics (f32 [N] each) and the bool [N] info["_episode"] says where.

    Args:
        scenes: `Scene`s, a packed `SceneBank` (with appearance where a sensor needs it), or a `SceneStream`.
        num_envs: N.
        device: "cpu", "cuda" or "auto"; of a bank its own, or "auto".
        seed: of the sampled episodes, from 0 to 2^63 - 1; None: a random one.
        task: a name of `batchnav.tasks.TASKS`.
        config: the settings; a preset's name (`batchnav.envs.config.PRESETS`) will do. `options` override fields of its
            body, main camera, sensors and task.
        sensors: names of `batchnav.sensors.SENSORS` (of other cameras "CAMERA_SENSOR") and of
            `batchnav.envs.observations.SOURCES`; None: the configuration's.
        episodes: fixed episodes to play in turn instead of sampled ones.
        final_observation: also give info["final_obs"], the last observation of an ended episode, meaningful where
            info["_final_obs"] is set; costs a rendering.
        renderer: "raycast", "opengl", or "auto" for the faster one on this machine.
        first_env: where several processes share a run, the number of this one's first environment among all: it then
            plays the episodes that it would play in one process, in scenes that it has its share of.
        copy: return copies. Without, what is returned is the environment's own and valid until the next call, which
            spares memory traffic; observations that are written elsewhere (`observe_into`) are never copied.
        output: "torch", or "numpy" for arrays on the host.
        swatches: what the finishes of procedural houses are drawn anew from between rollouts, where sensors see colour
            (`batchnav.procedural.make_swatches()`); None: they stay. A `SceneBank` brings its own, and
            each environment in it draws for itself.
        autoreset_mode: Gymnasium's. With NEXT_STEP the step after an episode's end begins the next one, whatever the
            action; with DISABLED `reset(options={"reset_mask": ended})` does. The learner takes SAME_STEP.

    ArgumentError, ConfigError for what is not as described, and for a step before the first `reset`, or any use after
    `close`; NavMeshError for a scene whose navmesh was baked for another body; EpisodeError for one that has no episode
    to offer.
    """

    __reduce_ex__ = refuse_copies
    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012 (Gymnasium's form)

    def __init__(
        self,
        scenes: Sequence[Scene] | SceneBank | SceneStream,
        num_envs: int,
        device: str | torch.device = "auto",
        seed: int | None = 0,
        task: str = "pointnav",
        config: NavConfig | str | None = None,
        sensors: Sequence[str] | None = None,
        episodes: EpisodeTable | None = None,
        final_observation: bool = False,
        renderer: str = "raycast",
        first_env: int = 0,
        copy: bool = True,
        output: str = "torch",
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        swatches: MaterialLibrary | None = None,
        **options,
    ):
        num_envs = check_int("num_envs", num_envs, 1, MAX_ENVS)
        seed = secrets.randbits(63) if seed is None else check_seed(seed)
        check_kinds(task, config, sensors, episodes, renderer, swatches)
        self._copy, self._output = copy, output
        self.metadata = self.metadata | {"autoreset_mode": autoreset_mode_of(autoreset_mode)}
        if output not in OUTPUTS:
            raise ArgumentError(f"output: found {shortened(output)}, expected one of {', '.join(OUTPUTS)}")
        self.config = nav_config(config, options, task)
        if sensors is not None:
            self.config = dataclasses.replace(self.config, sensors=tuple(sensors))
        validate(self.config)
        self.sources = observation_sources(self.config)
        """What is observed, by name: `batchnav.types.ObservationSource`."""
        self.stream = scenes if isinstance(scenes, SceneStream) else None
        if self.stream is not None and episodes is not None:
            raise ArgumentError("episodes: found fixed episodes for scenes that take turns, expected None")
        self.bank = bank_of(scenes, num_envs, device, appearance_needed(self.sources.values()), swatches)
        body = self.config.body
        for scene in self.bank.scenes:
            check_body(scene, body.agent_radius, body.agent_height)
        self.num_envs, self.device = num_envs, self.bank.device
        self._playing = False  # from the first reset to the end
        self._redraws = torch.zeros(1, dtype=torch.int64)  # of finishes, so far
        make_task = lambda sim: TASKS[task](sim, self.config.task, episodes)  # noqa: E731
        self.sim = Simulator(self.bank, num_envs, body, make_task, seed, first_env)
        self.task = self.sim.task
        self.frame = Frame(
            self.bank,
            self.sim.bodies,
            self.config.all_cameras,
            self.sources.values(),
            renderer,
            self.sim.sampling,
            self.task,
        )
        """What sources read."""
        if self.stream is not None:
            self.stream.begin(self.sim)
        elif episodes is None:
            self.sim.check_scenes()
        self.specs = tuple(source.spec for source in self.sources.values())
        self.storage: Mapping[str, torch.dtype] = {spec.name: spec.stored_on(self.device) for spec in self.specs}
        self._own = self._out = self._new_observation()
        self._final = self._new_observation() if final_observation else None
        self.single_observation_space = space_of(self.specs)
        self.single_action_space = body.action_space
        self._action_type = body.empty_actions(0, self.device).dtype
        boxes = self.single_observation_space.spaces.items()
        self.observation_space = gym.spaces.Dict([(name, batch_space(box, num_envs)) for name, box in boxes])
        self.action_space = batch_space(self.single_action_space, num_envs)

    @property
    def mapper(self) -> Mapper | None:
        """The mapper of the agents' maps; None without a sensor that reads a map."""
        return self.frame.find(MAPPER)

    def _new_observation(self) -> Observation:
        return {
            spec.name: torch.zeros(self.num_envs, *spec.shape, dtype=spec.dtype, device=self.device)
            for spec in self.specs
        }

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin all episodes anew; with a seed, from that seed's first episodes on.

        `options`: {"reset_mask": bool [N]} begins the next episode of these agents alone.
        """
        check_open(self)
        if unknown := set(options or ()) - {"reset_mask"}:
            raise ArgumentError(f"options: found {shortened(min(unknown, key=str))}, expected 'reset_mask' alone")
        if options:
            if seed is not None:
                raise ArgumentError(
                    f"seed: found {shortened(seed)} with a reset_mask, expected None: it is of all agents"
                )
            self._check_playing()
            self._begin_next(as_mask(options["reset_mask"], self.num_envs, self.device))
            return self.observe(), {}
        if seed is not None:
            self.sim.sampling.seed.fill_(check_seed(seed))
            self.sim.bodies.episode.fill_(-1)
            self._redraws.zero_()
        self._draw_finishes()
        for source in self.sources.values():
            source.reset()
        self.sim.reset()
        for flags in (self.sim.bodies.done, self.sim.bodies.terminated, self.sim.bodies.truncated):
            flags.zero_()
        self._playing = True
        return self.observe(), {}

    def observe_into(self, out: Observation | None) -> None:
        """From now on write observations into these tensors, by name; what is not among them is not drawn.

        None: the environment's own again. ArgumentError where one is not as `sensors.sensor.check_observation` says.
        """
        check_open(self)
        if out is not None:
            check_observation(out, self.specs, self.num_envs, self.device)
        self._out = self._own if out is None else out

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One step of every agent: actions -> observation, reward, terminated, truncated, info."""
        self._check_playing()
        bodies, mode = self.sim.bodies, self.metadata["autoreset_mode"]
        ended = bodies.done.clone() if mode == AutoresetMode.NEXT_STEP else None
        self.sim.advance(as_actions(actions, self.device, self._action_type))
        info = {"episode": self.task.metrics, "_episode": bodies.done}
        if mode == AutoresetMode.SAME_STEP:
            if self._final is not None:
                info |= {"final_obs": self._observe(self._final), "_final_obs": bodies.done}
            self.sim.reset_done()
        elif ended is not None:
            self._begin_next(ended)
        observation = self.observe()
        self.sim.finish()
        return observation, *self._handed((self.task.reward, bodies.terminated, bodies.truncated, info))

    def _begin_next(self, agents: torch.Tensor) -> None:
        """Begin the next episode of these agents, bool [N], whose last step, if it was one, counts for nothing."""
        bodies = self.sim.bodies
        self.sim.finish()  # reward and metrics are found from the flags below
        ended = bodies.done & ~agents
        bodies.done.copy_(agents)
        self.sim.reset_done()
        bodies.done.copy_(ended)
        for flags in (bodies.terminated, bodies.truncated):
            flags.masked_fill_(agents, False)
        self.task.reward.masked_fill_(agents, 0.0)

    def observe(self) -> Observation:
        """The current observation, drawn anew."""
        self._check_playing()
        observation = self._observe(self._out)
        return self._handed(observation) if self._out is self._own else observation

    @property
    def seen(self) -> Observation:
        """The last observation; tensors that the next call overwrites."""
        return self._out

    def _handed(self, result: Any) -> Any:
        """What the caller gets: the environment's own tensors, copies, or arrays."""
        return to_output(result, self._copy, self._output)

    def _observe(self, out: Observation) -> Observation:
        write_observations(self.frame, self.sources, out)
        return out

    def settle(self) -> None:
        """Let torch's current stream wait for what the simulator does beside it."""
        check_open(self)
        self.sim.settle()

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph can hold a step."""
        return self.frame.capturable

    def between_rollouts(self) -> dict[str, float]:
        """Raise what kernels noted, and let scenes take turns: "scenes_loaded", "scene_stall" (seconds).

        Draw finishes anew where there are swatches.
        """
        check_open(self)
        self.sim.check()
        figures = self.stream.move(self.sim) if self.stream is not None else {}
        self._redraws += 1
        self._draw_finishes(every_house=False)
        return figures

    def _draw_finishes(self, every_house: bool = True) -> None:
        """Have houses look as they do now; those alone that change, where the call before was `between_rollouts`."""
        self.bank.randomize_materials(self.sim.sampling.seed, int(self._redraws), every_house)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """All that the next step depends on, as tensors on the CPU."""
        self._check_playing()
        state = on_cpu(self._state())
        return state | (self.stream.state_dict() if self.stream is not None else {})

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from `state_dict`'s result. CheckpointError where it is not one of this environment.

        Nothing has changed then, but for the scenes of a `SceneStream` where a position is off their navmeshes.
        """
        check_open(self)
        live = self._state()
        state = {"redraws": torch.zeros_like(self._redraws), **state}  # of runs whose houses looked the same till now
        check_tensors(state, live, self._ranges())
        if self.stream is not None:
            self.stream.load_state_dict(state, self.sim)
        check_positions("environment state 'position'", self.bank, state["scene"], state["position"], CheckpointError)
        for name, target in live.items():
            target.copy_(state[name])
        self._draw_finishes()
        self.sim.sample_all()
        self._playing = True

    def _state(self) -> dict[str, torch.Tensor]:
        """The live tensors that are saved."""
        tensors = {**self.sim.bodies._asdict(), **self.task.state._asdict(), **self.task.observations}
        drawn = {} if self.bank.material_sampler is None else {"redraws": self._redraws}
        kept = {name: tensor for source in self.sources.values() for name, tensor in source.state.items()}
        return {**tensors, **drawn, **kept, "seed": self.sim.sampling.seed}

    def _ranges(self) -> dict[str, tuple[float, float]]:
        """The lowest and highest values in a state that kernels can go on from, by name, where not all are good."""
        count, finite = (0, torch.iinfo(torch.int32).max), (-MAX_FLOAT, MAX_FLOAT)
        kept = {name: limits for source in self.sources.values() for name, limits in source.ranges.items()}
        return {
            "scene": (0, self.bank.num_scenes - 1), "position": finite, "heading": finite, "start": finite,
            "start_heading": finite, "tilt": finite, "path_length": (0, MAX_FLOAT), "collisions": count, "steps": count,
            "episode": (-1, count[1]), "redraws": count, **self.task.ranges, **kept,
        }  # fmt: skip

    def close_extras(self, **kwargs) -> None:
        """End what runs beside the simulation; `close` calls it, once."""
        self._playing = False
        if self.stream is not None:
            self.stream.close()

    def _check_playing(self) -> None:
        """ArgumentError where it is closed, or was never reset: there are no episodes to go on with."""
        if not self._playing:
            check_open(self)
            raise ArgumentError(f"{type(self).__name__}: found no episodes that run, expected reset() before")


class PointNavEnv(NavEnv):
    """`NavEnv` for PointGoal navigation with a depth camera.

    Observations: {"depth": f32 [N, 1, H, W] in 0..1, "pointgoal": f32 [N, 2] (rho in metres, -phi in radians)}.
    terminated: stop was called; truncated: out of steps.
    """
