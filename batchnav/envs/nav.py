"""Navigation environments: bodies, a task and sensors, as one `gymnasium.vector.VectorEnv` on torch tensors."""

from __future__ import annotations

import dataclasses
import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import gymnasium as gym
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from batchnav.config import shortened, validate
from batchnav.data.episodes import Episode
from batchnav.data.files import SCENES_DIR
from batchnav.data.formats import EpisodeDataset, load_episodes
from batchnav.data.goals import GOALS, kind_of
from batchnav.data.people import COUNT
from batchnav.data.play import check_kind, load_played_scenes, named
from batchnav.envs.arguments import (
    EnvOptions,
    bank_of,
    check_kinds,
    check_shared,
    for_bodies,
    people_of,
    standing_in,
    table_of,
    with_goals_of_file,
    with_missing_goals,
    world_maker,
)
from batchnav.envs.config import PRESETS, NavConfig, nav_config
from batchnav.envs.observations import needed_appearance, observation_sources, space_of
from batchnav.envs.stream import SceneStream
from batchnav.errors import ArgumentError, CheckpointError
from batchnav.mapping.mapper import Mapper
from batchnav.mapping.observations import MAPPER
from batchnav.observation import memory_of
from batchnav.runtime.checks import (
    Seeds,
    check_int,
    check_open,
    check_seed,
    common_seed,
    refuse_copies,
)
from batchnav.runtime.conversion import JoinedResult, as_actions, as_mask, copied_to_cpu, reset_options, to_output
from batchnav.runtime.device import check_memory
from batchnav.runtime.kernels.arrays import is_dense, tensor_text
from batchnav.runtime.kernels.graphs import Graphs
from batchnav.scene.appearance import FROM_FILES
from batchnav.scene.bank import SceneBank
from batchnav.scene.images import AppearanceConfig
from batchnav.scene.scene import Scene, check_body
from batchnav.sensors.body_surfaces import BODY_CATEGORIES, category_numbers
from batchnav.sensors.camera import CameraConfig
from batchnav.sensors.depth_odometry import DepthOdometry
from batchnav.sensors.disturbances import Latency, Odometry
from batchnav.sensors.frame import Frame, appearance_needed, write_observations
from batchnav.sensors.sensor import check_observation
from batchnav.sim.simulator import MAX_ENVS, Simulator, check_positions
from batchnav.tasks import TASKS
from batchnav.tasks.episode_sampling import EpisodeTable
from batchnav.tasks.task import ANGLES, COORDINATES, MAX_FLOAT
from batchnav.types import MovingBodies, Observation

# Steps of few agents as a CUDA graph: launching their kernels takes longer than executing them.
#
# A replayed step has the results of a plain step, in which the host launches each kernel. Environments with code of
# other packages take plain steps, since a graph would leave out what that code does on the host.

MAX_REPLAYED_ENVS = 256
"""Largest number of environments whose steps are replayed. With more, the GPU takes longer than the host, and a plain
step can sample episodes while the next one begins."""
PACKAGE = __name__.partition(".")[0]


def is_replayable(env: Any) -> bool:
    """True if a `NavEnv` replays its steps: on CUDA, with few agents and without code of other packages."""
    few = env.device.type == "cuda" and env.num_envs <= MAX_REPLAYED_ENVS
    return few and env.capturable and has_only_own_code(env)


def has_only_own_code(env: Any) -> bool:
    """True if environment, task, observation sources and renderers are classes of this package."""
    parts = env, env.task, *_parts(env.frame)
    return all(type(part).__module__.partition(".")[0] == PACKAGE for part in parts)


def _parts(frame: Frame) -> Iterator[Any]:
    """Sources and renderers of a frame and of the frames derived from it."""
    yield from (*frame.sources, *frame.renderers.values())
    for derived in frame.derived:
        yield from _parts(derived)


class StepReplay:
    """Steps of an environment that are recorded once and replayed from then on.

    Args:
        step: takes the actions, and returns live tensors in nested tuples and mappings. It must end with all work on
            torch's current stream (`Simulator.settle`).
        actions: tensor for the actions of a step.
    """

    def __init__(self, step: Callable[[torch.Tensor], Any], actions: torch.Tensor):
        self._actions = actions
        self.run = Graphs(actions.device, enabled=True).wrap(lambda: JoinedResult(step(actions)))
        """Takes a step with the actions of the last call; on the CPU nothing is recorded."""

    @property
    def is_possible(self) -> bool:
        """False during the recording of another graph, which then holds the step."""
        return self._actions.device.type == "cpu" or not torch.cuda.is_current_stream_capturing()

    def __call__(self, actions: torch.Tensor) -> JoinedResult:
        """Take a step with these actions, which have the shape, type and device of the tensor for actions."""
        self._actions.copy_(actions.detach())
        return self.run()


# States of environments: tensors by name, whose shape, dtype and values are checked before they are loaded


def check_tensors(
    state: Mapping[str, torch.Tensor],
    targets: Mapping[str, torch.Tensor],
    ranges: Mapping[str, tuple[float, float]],
) -> None:
    """Check that a state can be copied into the live tensors.

    Args:
        state: tensors by name.
        targets: live tensors by name.
        ranges: lowest and highest valid values by name, for tensors with a limited range. Kernels check nothing.

    CheckpointError names a tensor that is missing, of another shape or dtype, out of range or NaN.
    """
    for name, target in targets.items():
        found = state.get(name)
        fits = isinstance(found, torch.Tensor) and is_dense(found)
        if found is None or not fits or found.shape != target.shape or found.dtype != target.dtype:
            expected = f"{target.dtype} {list(target.shape)}"
            raise CheckpointError(f"environment state {name!r}: found {tensor_text(found)}, expected {expected}")
        if found.is_floating_point() and found.isnan().any():
            raise CheckpointError(f"environment state {name!r}: found NaN, expected numbers")
        low, high = ranges.get(name, (-math.inf, math.inf))
        least, most = found.min().item(), found.max().item()
        if least < low or most > high:
            raise CheckpointError(
                f"environment state {name!r}: found {least:g} to {most:g}, expected {low:g} to {high:g}"
            )


class NavEnv(gym.vector.VectorEnv):
    """A `batchnav.types.VecEnv` of N agents.

    Observations: a dict of tensors [N, ...], declared in `specs`: sensors and observations of the task.
    Actions: i64 [N]: 0 stop, 1 forward, 2 left, 3 right; `control="v1"` adds 4 look up and 5 look down. With
    `control="velocity"`: f32 [N, 2], linear and angular velocity, scaled to -1..1. Other number types, NumPy arrays and
    lists are converted.
    Autoreset is SAME_STEP: after an episode's end the observation is the first of the next episode. info["episode"]
    holds the metrics of ended episodes, f32 [N] by name; info["_episode"], bool [N], is True where an episode ended.
    On CUDA, steps of few agents are replayed as a CUDA graph (`batchnav.envs.nav`).

    Args:
        scenes: `Scene`s, a packed `SceneBank` (with appearance if a sensor needs it), or a `SceneStream`.
        num_envs: N.
        device: "cpu", "cuda" or "auto"; for a `SceneBank` the bank's device or "auto".
        seed: seed of episode sampling, 0 to 2^63 - 1; None: a random seed.
        task: a name in `batchnav.tasks.TASKS`.
        config: the configuration, or the name of a preset (`batchnav.envs.config.PRESETS`); None: the task's defaults.
        sensors: names in `batchnav.sensors.SENSORS` ("CAMERA_SENSOR" for other cameras) and in
            `batchnav.envs.observations.SOURCES`; None: those of the configuration.
        episodes: fixed episodes to play in turn instead of sampled ones: a table, or those of a file, whose scene ids
            are the names of the scenes. The scenes get the goals of the file. `from_episodes` also loads the scenes.
        options: fields of `batchnav.envs.arguments.EnvOptions` (`final_observation`, `renderer`, `first_env`, `copy`,
            `output`, `autoreset_mode`, `material_library`, `scripted_bodies`), and fields of the configuration's body,
            main camera, world, sensors and task, such as `height=128` or `people=(1, 6)`, which replace those of
            `config`.

    ArgumentError or ConfigError for invalid arguments; ArgumentError for a step before the first `reset` and for any
    call after `close`; NoEpisodesError for scenes without episodes, which a stream leaves out; NavMeshError for a bank,
    a scene with a navmesh file, or one with goals, whose navmesh was baked for another body. Other navmeshes are baked
    again for the body.
    """

    __reduce_ex__ = refuse_copies
    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012 (Gymnasium's form)

    @torch.inference_mode(False)
    def __init__(
        self,
        scenes: Sequence[Scene] | SceneBank | SceneStream,
        num_envs: int,
        device: str | torch.device = "auto",
        seed: int | None = 0,
        task: str = "pointnav",
        config: NavConfig | str | None = None,
        sensors: Sequence[str] | None = None,
        episodes: EpisodeTable | Sequence[Episode] | None = None,
        **options: Any,
    ):
        own, options = EnvOptions.split(options)
        num_envs = check_int("num_envs", num_envs, 1, MAX_ENVS)
        seed = secrets.randbits(63) if seed is None else check_seed(seed)
        check_kinds(task, config, sensors, episodes)
        self._copy, self._output = own.copy, own.output
        self.metadata = self.metadata | {"autoreset_mode": own.autoreset_mode}
        self.config = nav_config(config, options, task)
        if sensors is not None:
            self.config = dataclasses.replace(self.config, sensors=tuple(sensors))
        validate(self.config)
        self.sources = observation_sources(self.config)
        """Observation sources by name (`batchnav.observation.ObservationSource`)."""
        self.stream = scenes if isinstance(scenes, SceneStream) else None
        if self.stream is not None and episodes is not None:
            raise ArgumentError("episodes: found fixed episodes with a SceneStream, expected None")
        categories = TASKS[task].goal_categories(self.config.task)
        scenes = for_bodies(scenes, self.config.body.navmesh)
        scenes = with_goals_of_file(scenes, episodes, task, device)
        scenes = with_missing_goals(scenes, self.config, device)
        fields = appearance_needed(self.sources.values())
        self.bank = bank_of(scenes, num_envs, device, fields, own.material_library, categories)
        table = table_of(episodes, self.bank, kind_of(task), self.config.task)
        body = self.config.body
        for scene in self.bank.scenes:
            check_body(scene, body.agent_radius, body.agent_height)
        self.num_envs, self.device = num_envs, self.bank.device
        self.specs = tuple(source.spec for source in self.sources.values())
        disturbances = self.config.disturbances
        needed = memory_of(self.sources.values(), num_envs, self.device) + self.config.disturbance_memory(num_envs)
        check_memory("num_envs, sensors", needed, self.device)
        self._playing = False  # True from the first reset until `close`
        self._num_randomizations = torch.zeros(1, dtype=torch.int64, device="cpu")
        make_task = lambda sim: TASKS[task](sim, self.config.task, table)  # noqa: E731
        people = people_of(episodes, self.bank, table)
        make_world = world_maker(self.config, self.bank, people, own.scripted_bodies)
        if (agents := self.config.world.agents_per_world) > 1:
            check_shared(agents, num_envs, episodes, self.stream)
        self.sim = Simulator(self.bank, num_envs, body, make_task, seed, own.first_env, make_world)
        if agents > 1:
            self.sim.sampling.share_scenes(agents, self.bank.num_scenes)
        self.task = self.sim.task
        disturbed = self.sim.bodies, disturbances, self.sim.sampling
        self._odometry = Odometry(*disturbed) if disturbances.has_drift else None
        if self._odometry is not None and self.config.map.localisation:
            self._odometry.correction = DepthOdometry(
                self._odometry.bodies, self._odometry.track, self.config.camera, self.config.depth, self.sim.sampling
            )
        self._latency = Latency(self.specs, *disturbed) if disturbances.latency[1] else None
        self.frame = Frame(
            self.bank,
            self.sim.bodies,
            self.config.all_cameras,
            self.sources.values(),
            own.renderer,
            self.sim.sampling,
            self.task,
            self._odometry,
        )
        """Input of the observation sources: cameras, images and shared results of the current step."""
        if (world := self.sim.world) is not None:
            self.frame.show_bodies(world.drawn, world.world_index, world.own_body)
        self._standing = standing_in(episodes, self.task, kind_of(task), world, self.bank)
        if self._standing is not None:
            names = kind_of(task).standing_categories
            self.frame.resource(BODY_CATEGORIES, lambda: category_numbers(self.bank, names))
            self.frame.show_bodies(self._standing.bodies)
        if self.stream is not None:
            self.stream.begin(self.sim)
        elif episodes is None:
            self.sim.check_scenes()
        self._allocate(own.final_observation)
        self._replay = self._make_replay() if is_replayable(self) else None

    @classmethod
    def from_episodes(
        cls,
        episodes: str | Path | EpisodeDataset,
        num_envs: int,
        device: str | torch.device = "auto",
        seed: int | None = 0,
        task: str | None = None,
        config: NavConfig | str | None = None,
        sensors: Sequence[str] | None = None,
        scenes: Sequence[Scene] | SceneBank | None = None,
        scenes_dir: str | Path = SCENES_DIR,
        appearance: AppearanceConfig | bool | None = None,
        **options: Any,
    ) -> Self:
        """An environment that plays the episodes of a file, of any kind, with their scenes and goals.

        Args:
            episodes: the file, or a dataset of `load_episodes`.
            num_envs: N; agent i plays episodes i, i + N, i + 2N ... of the dataset.
            device: as in `NavEnv`.
            seed: as in `NavEnv`.
            task: a name in `batchnav.tasks.TASKS`; None: that of `config`, else pointnav, objectnav or
                instance_imagenav by the kind of the file.
            config: as in `NavEnv`.
            sensors: as in `NavEnv`.
            scenes: the scenes with their goals (`data.play.load_played_scenes`), or a bank of them for a dataset of
                `data.play.placed`; None: they are loaded.
            scenes_dir: folder of Habitat's scenes.
            appearance: surface data that scenes are loaded with, as in `load_scene`; None: what the sensors need.
            options: as in `NavEnv`.

        Raises EpisodeError for a file of another kind and for an episode that cannot be played; MeshError and
        NavMeshError for its scenes; and the errors of `NavEnv`.
        """
        dataset = episodes if isinstance(episodes, EpisodeDataset) else load_episodes(episodes)
        given = PRESETS.get(config) if isinstance(config, str) else config
        task = task or (given.task_name if given else GOALS[dataset.kind].task)
        check_kinds(task, config, sensors, dataset)
        check_kind(dataset, task)
        if scenes is None:
            whole = nav_config(config, EnvOptions.split(options)[1], task)
            whole = dataclasses.replace(whole, sensors=whole.sensors if sensors is None else tuple(sensors))
            if appearance is None:
                appearance = bool(needed_appearance(whole) & FROM_FILES)
            scenes = load_played_scenes(dataset, scenes_dir, whole.body.navmesh, appearance, device)
        with named(dataset):
            played: Any = dataset.episodes
            kind = kind_of(task)
            if isinstance(scenes, SceneBank) and not any(COUNT in each.info or kind.standing(each) for each in dataset):
                played = kind.table(played, scenes)
            return cls(scenes, num_envs, device, seed, task, config, sensors, played, **options)

    @property
    def cameras(self) -> dict[str, CameraConfig]:
        """All cameras by name, the main one as "main", with their `intrinsics` [3, 3] and `extrinsics` [4, 4]."""
        return {name or "main": camera for name, camera in self.config.all_cameras.items()}

    @property
    def mapper(self) -> Mapper | None:
        """The mapper of the agents' maps; None without a sensor that reads a map."""
        return self.frame.find(MAPPER)

    def show_bodies(
        self, bodies: MovingBodies | None, world: torch.Tensor | None = None, own: torch.Tensor | None = None
    ) -> None:
        """Show moving bodies to all sensors from the next observation on, as `Renderer.show_bodies` does.

        The caller moves them: the environment reads the live tensors at each step.

        Args:
            bodies: live tensors of W worlds on the environment's device; None: no bodies.
            world: i32 [N]: world of each agent; None: agent i is in world i.
            own: i32 [N]: body that is the agent itself, which its sensors do not see; None: no body is an agent.
        """
        self.frame.show_bodies(bodies, world, own)
        self._replay = self._make_replay() if self._replay is not None else None

    def _allocate(self, final_observation: bool) -> None:
        """Make the spaces, and the tensors that observations are written into."""
        self.storage: Mapping[str, torch.dtype] = {spec.name: spec.stored_on(self.device) for spec in self.specs}
        self._own = self._out = self._new_observation()
        self._final = self._new_observation() if final_observation else None
        self.single_observation_space = space_of(self.specs)
        self.single_action_space = self.config.body.action_space
        self._action_type = self.config.body.empty_actions(0, self.device).dtype
        boxes = self.single_observation_space.spaces.items()
        self.observation_space = gym.spaces.Dict([(name, batch_space(box, self.num_envs)) for name, box in boxes])
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def _new_observation(self) -> Observation:
        return {
            spec.name: torch.zeros(self.num_envs, *spec.shape, dtype=spec.dtype, device=self.device)
            for spec in self.specs
        }

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """Begin new episodes for all agents; with a seed, the first episodes of that seed.

        `seed`: an integer, or N consecutive ones as Gymnasium takes them, which count as the first of them.
        `options`: {"reset_mask": bool [N]} begins the next episode of these agents only.
        """
        check_open(self)
        chosen, seed = reset_options(options, ("reset_mask",)), common_seed(seed, self.num_envs)
        if chosen:
            if seed is not None:
                raise ArgumentError(
                    f"seed: found {shortened(seed)} with a reset_mask, expected None; a seed applies to all agents"
                )
            self._check_playing()
            self._begin_next(as_mask(chosen["reset_mask"], self.num_envs, self.device))
            return self.observe(), {}
        if seed is not None:
            self.sim.sampling.seed.fill_(seed)
            self.sim.bodies.episode.fill_(-1)
            self._num_randomizations.zero_()
        self._randomize_materials()
        for source in self.sources.values():
            source.reset()
        self.sim.reset()
        for flags in (self.sim.bodies.done, self.sim.bodies.terminated, self.sim.bodies.truncated):
            flags.zero_()
        self._playing = True
        return self.observe(), {}

    def observe_into(self, out: Observation | None) -> None:
        """Write the observations of all later steps into these tensors, by name; others are not rendered.

        None: into the environment's own tensors. ArgumentError for a tensor that does not fit its spec
        (`sensors.sensor.check_observation`).
        """
        check_open(self)
        if out is not None:
            check_observation(out, self.specs, self.num_envs, self.device)
        self._out = self._own if out is None else out

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all agents: actions -> observation, reward f32 [N], terminated bool [N], truncated bool [N], info."""
        self._check_playing()
        actions = as_actions(actions, self.device, self._action_type)
        if self._replay is not None and self._out is self._own and self._replay.is_possible:
            self.config.body.check_actions(actions, self.num_envs, self.device)
            self.sim.settle()
            return self._replay(actions).output(self._copy, self._output)
        info = self._act(actions)
        observation = self.observe()
        self.sim.finish()
        return observation, *self._converted((*self._outcome, info))

    @property
    def _outcome(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Live reward, terminated and truncated."""
        return self.task.reward, self.sim.bodies.terminated, self.sim.bodies.truncated

    def _act(self, actions: torch.Tensor) -> dict[str, Any]:
        """Move all agents and begin the episodes that are due; returns live info."""
        bodies, mode = self.sim.bodies, self.metadata["autoreset_mode"]
        ended = bodies.done.clone() if mode == AutoresetMode.NEXT_STEP else None
        self.sim.advance(actions)
        info: dict[str, Any] = {"episode": self.task.metrics, "_episode": bodies.done}
        if mode == AutoresetMode.SAME_STEP:
            if self._final is not None:
                info |= {"final_obs": self._observe(self._final), "_final_obs": bodies.done}
            self.sim.reset_done()
        elif ended is not None:
            self._begin_next(ended)
        return info

    def _make_replay(self) -> StepReplay:
        """A replay of steps that write the environment's own observation."""

        def step(actions: torch.Tensor) -> tuple[Any, ...]:
            info = self._act(actions)
            observation = self._observe(self._own)
            self.sim.settle()
            return observation, *self._outcome, info

        return StepReplay(step, self.config.body.empty_actions(self.num_envs, self.device))

    def _begin_next(self, agents: torch.Tensor) -> None:
        """Begin the next episode of these agents, bool [N]. Their last step has no reward and ends no episode."""
        bodies = self.sim.bodies
        self.sim.finish()  # scoring reads the flags that are changed below
        ended = bodies.done & ~agents
        bodies.done.copy_(agents)
        self.sim.reset_done()
        bodies.done.copy_(ended)
        for flags in (bodies.terminated, bodies.truncated):
            flags.masked_fill_(agents, False)
        self.task.reward.masked_fill_(agents, 0.0)

    def observe(self) -> Observation:
        """The current observation, rendered again."""
        self._check_playing()
        observation = self._observe(self._out)
        return self._converted(observation) if self._out is self._own else observation

    def observe_again(self) -> Observation:
        """The current observation without map sensors, rendered again, in new tensors of the types of `storage`."""
        self._check_playing()
        sources = {name: source for name, source in self.sources.items() if source.repeatable}
        specs = (source.spec for source in sources.values())
        again = {
            spec.name: torch.empty(self.num_envs, *spec.shape, dtype=self.storage[spec.name], device=self.device)
            for spec in specs
        }
        if self._latency is not None:
            self._latency.write_again(again)
        else:
            write_observations(self.frame, sources, again)
        return again

    @property
    def last_observation(self) -> Observation:
        """The last observation, in tensors that the next call overwrites."""
        return self._out

    @property
    def present_observation(self) -> Observation:
        """The last observation without latency, in tensors that the next call overwrites."""
        return self._out if self._latency is None else self._latency.present

    def _converted(self, result: Any) -> Any:
        """A result in the form that `copy` and `output` select: live tensors, copies, or NumPy arrays."""
        return to_output(result, self._copy, self._output)

    def _observe(self, out: Observation) -> Observation:
        if self.sim.world is not None:
            self.sim.world.show()
        if self._standing is not None:
            self._standing.show()
        write = partial(write_observations, self.frame, self.sources)
        if self._latency is not None:
            self._latency.write(write, out)
        else:
            write(out)
        return out

    def settle(self) -> None:
        """Make torch's current stream wait for the simulator's other streams."""
        check_open(self)
        self.sim.settle()

    @property
    def capturable(self) -> bool:
        """True where a CUDA graph can hold a step."""
        return self.frame.capturable

    def between_rollouts(self) -> dict[str, float]:
        """Raise errors that kernels recorded, stream scenes, and randomise materials if there is a material library.

        Returns "scenes_loaded" and "scene_stall" (seconds) for a `SceneStream`, else nothing.
        """
        check_open(self)
        self.sim.check()
        figures = self.stream.move(self.sim) if self.stream is not None else {}
        self._num_randomizations += 1
        self._randomize_materials(every_house=False)
        return figures

    def _randomize_materials(self, every_house: bool = True) -> None:
        """Apply the current materials to all houses, or only to those that have changed since the last call."""
        self.bank.randomize_materials(self.sim.sampling.seed, int(self._num_randomizations), every_house)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Everything that the next step depends on, as tensors on the CPU."""
        self._check_playing()
        state = copied_to_cpu(self._state())
        return state | (self.stream.state_dict() if self.stream is not None else {})

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from a result of `state_dict`. CheckpointError for a state of another environment.

        After an error the environment is unchanged, except that a `SceneStream` has loaded the state's scenes if only a
        position was invalid.
        """
        check_open(self)
        live = self._state()
        state = dict(state)
        state.setdefault("num_randomizations", torch.zeros_like(self._num_randomizations))  # missing without a library
        check_tensors(state, live, self._ranges())
        if self.stream is not None:
            self.stream.load_state_dict(state, self.sim)
        check_positions("environment state 'position'", self.bank, state["scene"], state["position"], CheckpointError)
        if self.sim.world is not None:
            self.sim.world.check_state(state)
        self.task.check_state(state)
        for name, target in live.items():
            target.copy_(state[name])
        if self._odometry is not None:
            self._odometry.update()
        if self._latency is not None:
            self._latency.restore()
        for source in self.sources.values():
            source.restore(self.frame, lambda count: self.bank.randomize_materials(self.sim.sampling.seed, count))
        self._randomize_materials()
        self.sim.sample_all()
        if self.sim.world is not None:
            self.sim.world.show()
        self._playing = True

    def _state(self) -> dict[str, torch.Tensor]:
        """Live tensors that `state_dict` saves, by name."""
        tensors = {**self.sim.bodies._asdict(), **self.task.state._asdict(), **self.task.observations}
        sampler, count = self.bank.material_sampler, {"num_randomizations": self._num_randomizations}
        kept = {name: tensor for source in self.sources.values() for name, tensor in source.state.items()}
        for part in (self.sim.world, self._odometry, self._latency):
            tensors |= part.state if part is not None else {}
        return {**tensors, **({} if sampler is None else count), **kept, "seed": self.sim.sampling.seed}

    def _ranges(self) -> dict[str, tuple[float, float]]:
        """Lowest and highest valid values of saved tensors, by name, for tensors with a limited range."""
        count = 0, torch.iinfo(torch.int32).max
        kept = {name: limits for source in self.sources.values() for name, limits in source.ranges.items()}
        return {
            "scene": (0, self.bank.num_scenes - 1), "position": COORDINATES, "heading": ANGLES, "start": COORDINATES,
            "start_heading": ANGLES, "tilt": ANGLES, "path_length": (0, MAX_FLOAT), "collisions": count, "steps": count,
            "episode": (-1, count[1]), "num_randomizations": count, **self.task.ranges, **kept,
            **(self.sim.world.ranges if self.sim.world is not None else {}),
            "odometry_position": COORDINATES, "odometry_before": COORDINATES, "odometry_turned": ANGLES,
            "odometry_camera_position": COORDINATES, "odometry_camera_depth": (0.0, MAX_FLOAT),
            "odometry_camera_heading": ANGLES, "odometry_camera_pitch": ANGLES,
            **(self._latency.ranges if self._latency is not None else {}),
        }  # fmt: skip

    def close_extras(self, **kwargs) -> None:
        """End the threads of the environment; `close` calls it once."""
        self._playing, self._replay = False, None
        if self.stream is not None:
            self.stream.close()

    def _check_playing(self) -> None:
        """ArgumentError before the first reset and after `close`."""
        if not self._playing:
            check_open(self)
            raise ArgumentError(f"{type(self).__name__}: found no running episodes, expected a call of reset() first")


class PointNavEnv(NavEnv):
    """`NavEnv` for PointGoal navigation with a depth camera.

    Observations: {"depth": f32 [N, 1, H, W] in 0..1, "pointgoal": f32 [N, 2]: distance of the goal, metres, and its
    bearing, radians, positive to the left}.
    terminated: the agent called stop; truncated: the step limit was reached.
    """
