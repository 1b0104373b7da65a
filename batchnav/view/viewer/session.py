"""The viewer's model without a window: episodes, agents' trajectories, and an agent driven by the user."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import trimesh
from PIL import Image

from batchnav.agents.registry import without_images
from batchnav.data.episodes import Episode
from batchnav.data.files import SCENES_DIR
from batchnav.data.formats import EpisodeDataset, load_episodes
from batchnav.data.goals import ShownGoals, kind_of
from batchnav.data.play import check_kind, load_played_scenes, placed
from batchnav.data.scenes.ids import scene_ids
from batchnav.data.scenes.islands import select_islands
from batchnav.data.scenes.load import load_all
from batchnav.envs.config import NavConfig, nav_config
from batchnav.envs.nav import NavEnv
from batchnav.envs.observations import goal_categories_of, goal_images_of, needed_appearance
from batchnav.errors import ArgumentError
from batchnav.evaluation.play import AgentMap, Images, agent_map_of, bodies_by_agent, evaluate
from batchnav.evaluation.players import Player
from batchnav.evaluation.trajectories import (
    GoalMasks,
    PoseCameras,
    Trajectory,
    TrajectoryRecorder,
    goal_images,
    goals_shown,
    showing_goals,
)
from batchnav.renderers.bodies import SeenBodies
from batchnav.scene.bank import SceneBank
from batchnav.scene.blocks import pixels_of
from batchnav.scene.scene import Scene
from batchnav.sensors.camera import MAIN, CameraConfig
from batchnav.sim.bodies import STOP
from batchnav.tasks import TASKS
from batchnav.types import Metric, Surface, TriangleMesh
from batchnav.view.topdown import (
    ORANGE,
    PackedMap,
    TopDownMap,
    map_picture,
    map_place,
    packed_map,
    unpacked_map,
)
from batchnav.view.video import colour

YOU = "you"
"""Name of the agent that the user drives."""
MAP_SIZE = 480
"""Longer side of the map, pixels."""


class Track(NamedTuple):
    """An agent's trajectory through an episode, and its metrics."""

    trajectory: Trajectory
    metrics: dict[str, float]
    """By name; empty while the episode is running."""
    maps: tuple[PackedMap, ...] = ()
    """The agent's map at each step; empty for agents without a map."""


class MapRecorder(TrajectoryRecorder):
    """A `TrajectoryRecorder` of one environment that also records the agent's map at every step."""

    def reset(self, num_envs: int) -> None:
        """Reset the agent and delete the recorded steps."""
        super().reset(num_envs)
        self.maps: list[PackedMap] = []

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """The agent's actions."""
        if self.env.mapper is not None:
            self.maps.append(packed_map(agent_map_of(self.env.mapper, 0)))
        return super().act(observations, episode_start)


class Driver:
    """Steps a `NavEnv` with one environment by given actions, and records the trajectory."""

    def __init__(self, env: NavEnv):
        self.env, self.ended = env, False
        self.env.reset()
        self.rows: list[tuple[np.ndarray, float, float, tuple[np.ndarray, ...], int, int]] = []
        self.metrics: dict[str, float] = {}

    @property
    def track(self) -> Track:
        """The trajectory up to the agent's current pose."""
        rows = self.rows if self.ended else [*self.rows, (*self._pose(), STOP)]
        positions, headings, tilts, seen, goals, actions = zip(*rows, strict=True)
        bodies = SeenBodies(*(np.stack(column) for column in zip(*seen, strict=True))) if seen[0] else None
        poses = np.array(positions), np.array(headings, np.float32), np.array(tilts, np.float32)
        goal_index = None if self.env.task.goal_index is None else np.array(goals, np.int32)
        return Track(Trajectory(*poses, np.array(actions), bodies, goal_index), self.metrics)

    @torch.inference_mode()
    def step(self, action: int) -> None:
        """Take an action; no effect after the episode's end."""
        if self.ended:
            return
        self.rows.append((*self._pose(), action))
        *_, info = self.env.step(torch.tensor([action], dtype=torch.int64, device=self.env.device))
        self.ended = bool(info["_episode"][0])
        if self.ended:
            self.metrics = {name: float(values[0]) for name, values in info["episode"].items()}

    def _pose(self) -> tuple[np.ndarray, float, float, tuple[np.ndarray, ...], int]:
        """Position, heading, tilt, moving bodies of the agent's world, and number of the goal in the episode's list."""
        bodies, others = self.env.sim.bodies, tuple(column[0].cpu().numpy() for column in bodies_by_agent(self.env))
        goal = 0 if self.env.task.goal_index is None else int(self.env.task.goal_index[0])
        return bodies.position[0].cpu().numpy().copy(), float(bodies.heading[0]), float(bodies.tilt[0]), others, goal


class Session:
    """Episodes to view. Each agent plays an episode when its track is first requested.

    Args:
        bank: the episodes' scenes, with the appearance that the agents' sensors need.
        episodes: a dataset of `data.play.placed`, or PointNav episodes; at least one; their scenes are in the bank.
        players: agents by display name; all have one task and body.
        config: environment of the user's agent; default: the first player's.
        renderer: "raycast", "opengl" or "auto".
    """

    def __init__(
        self,
        bank: SceneBank,
        episodes: Sequence[Episode],
        players: Mapping[str, Player] | None = None,
        config: NavConfig | None = None,
        renderer: str = "raycast",
    ):
        if not episodes:
            raise ArgumentError("episodes: found none, expected at least one")
        self.bank, self.renderer = bank, renderer
        self.episodes = episodes if isinstance(episodes, EpisodeDataset) else EpisodeDataset(list(episodes))
        self.players = dict(players or {})
        self.config = config or next((player.config for player in self.players.values()), NavConfig())
        self.names = [scene.name for scene in bank.scenes]
        self.agents = (*self.players, YOU)
        self._cameras = {
            name: PoseCameras(bank, self._config(name), at_once=1, renderer=renderer) for name in self.agents
        }  # fmt: skip
        self._masks = {name: GoalMasks(bank, self._config(name), 1, renderer) for name in self.agents}
        self._tracks: dict[tuple[str, int], Track] = {}
        self._goal_images: dict[tuple[str, int], dict[str, Images]] = {}
        self._plans: dict[int, TopDownMap] = {}
        self._goals: dict[int, ShownGoals | None] = {}
        self._driver: Driver | None = None
        self.number = 0
        self.stopped = False
        """Set to end a search for a failure before its next episode."""

    def pick(self, number: int) -> None:
        """Go to an episode; numbers wrap around."""
        self.number = number % len(self.episodes)
        self._driver = None

    @property
    def episode(self) -> Episode:
        """The current episode."""
        return self.episodes[self.number]

    @property
    def scene_index(self) -> int:
        """Row of the current scene in the bank."""
        return self.names.index(self.episode.scene_id)

    @property
    def scene(self) -> Scene:
        """The current scene."""
        return self.bank.scenes[self.scene_index]

    @property
    def metric_specs(self) -> tuple[Metric, ...]:
        """The task's metrics."""
        return TASKS[self.config.task_name].metric_specs

    @property
    def goals(self) -> ShownGoals | None:
        """The current episode's goals; None for tasks without a goal."""
        if self.number not in self._goals:
            self._goals = {self.number: kind_of(self.config.task_name).shown(self.episode, self.scene)}
        return self._goals[self.number]

    @property
    def category(self) -> str:
        """Category of the current episode's goal; "" for goals without one."""
        return kind_of(self.config.task_name).category(self.episode)

    @property
    def goal(self) -> np.ndarray | None:
        """f32 [3]: the goal, or view point, with the shortest geodesic distance; None for tasks without a goal."""
        return None if self.goals is None else self.goals.nearest

    @property
    def shortest_path(self) -> np.ndarray:
        """f32 [K, 3]: shortest path from start to goal; empty without a goal."""
        return np.zeros((0, 3), np.float32) if self.goals is None else self.goals.path

    def track(self, name: str) -> Track:
        """An agent's track of the current episode; the first request plays the episode."""
        if name == YOU:
            return self.driver.track
        key = name, self.number
        if key not in self._tracks:
            self._tracks[key] = self._play(self.players[name])
        return self._tracks[key]

    @property
    def driver(self) -> Driver:
        """The user's agent in the current episode, created on first use."""
        if self._driver is None:
            body = dataclasses.replace(self.config.body, control="v1")  # adds looking up and down
            self._driver = Driver(self._environment(without_images(dataclasses.replace(self.config, body=body))))
        return self._driver

    def failed(self, name: str) -> bool:
        """True where an agent failed in the current episode; always False for tasks without a success metric."""
        metrics = self.track(name).metrics
        return any(metrics[m.name] == 0.0 for m in self.metric_specs if m.headline and m.binary)

    def next_failure(self, name: str, before: Callable[[int, int], None] = lambda played, total: None) -> bool:
        """Go to the next episode in which an agent fails, playing those in between.

        Args:
            name: the agent.
            before: called before each episode with the number of episodes searched so far, and of all other episodes.

        False if there is no other failure, or where `stopped` was set during the search.
        """
        begin, driver = self.number, self._driver
        for step in range(1, len(self.episodes)):
            before(step - 1, len(self.episodes) - 1)
            if self.stopped:
                break
            self.pick(begin + step)
            if self.failed(name):
                return True
        self.number, self._driver = begin, driver
        return False

    def seen(self, name: str, step: int) -> dict[str, np.ndarray]:
        """An agent's images at a step (or its last step), a mask and images of its goal: u8 [H, W, 3] by name."""
        trajectory = self.track(name).trajectory
        k = min(step, len(trajectory.headings) - 1)
        scene = np.array([self.scene_index], np.int32)
        pose = trajectory.rows(np.array([k]))
        images = self._cameras[name].images_at(scene, pose.positions, pose.headings, pose.tilts, seen=pose.seen)
        images |= self._masks[name].images_at(self.episode, scene, pose) if images else {}
        images |= goals_shown(self._goal_seen(name), pose.goal_index)
        return {sensor: colour(values[0], spec) for sensor, (spec, values) in images.items()}

    def _goal_seen(self, name: str) -> dict[str, Images]:
        """Images of the current episode's goals, as an agent observes them; rendered on first use."""
        config = self._config(name)
        if not goal_images_of(config):
            return {}
        key = name, self.number
        if key not in self._goal_images:
            (self._goal_images[key],) = goal_images(self._environment(showing_goals(config)))
        return self._goal_images[key]

    def camera(self, name: str) -> CameraConfig:
        """Camera of the agent's first image sensor; the main camera if it has no image sensor."""
        sources = self._cameras[name].sources.values()
        return self._config(name).all_cameras[next((source.requires.camera for source in sources), None) or MAIN]

    def agent_map(self, name: str, step: int) -> AgentMap | None:
        """The map that an agent has built at a step (or its last step); None for agents without a map."""
        maps = self.track(name).maps
        return unpacked_map(maps[min(step, len(maps) - 1)]) if maps else None

    def plan(self, step: int, colours: dict[str, tuple[int, int, int]], with_map: bool = True) -> Image.Image:
        """The floor plan with goals and shortest path, and the paths up to a step of all agents in `colours`.

        `with_map`: also the map of the first of these agents that builds one.
        """
        if self.number not in self._plans:
            height = float(self.episode.start_position[1])
            self._plans = {self.number: TopDownMap(self.scene.navmesh, self.scene.mesh, height, MAP_SIZE)}
        plan, goals = self._plans[self.number].copy(), self.goals
        maps = [found for name in colours if (found := self.agent_map(name, step)) is not None] if with_map else []
        for built in maps[:1]:
            plan.draw_picture(map_picture(built), *map_place(plan, built))
        if goals is not None:
            plan.draw_view_points(goals.view_points)
            for centre in goals.objects:
                plan.draw_object(centre)
            plan.draw_path(goals.path, ORANGE, dash=7.0)
            plan.draw_goal(goals.nearest)
        for name, colour_of_name in colours.items():
            trajectory = self.track(name).trajectory
            k = min(step, len(trajectory.headings) - 1)
            if trajectory.seen is not None and name == next(iter(colours)):
                plan.draw_bodies(trajectory.seen, k)
            plan.draw_path(trajectory.positions[: k + 1], colour_of_name)
            plan.draw_start(trajectory.positions[k], float(trajectory.headings[k]), colour_of_name)
        plan.draw_scale_bar()
        return plan.image

    def _config(self, name: str) -> NavConfig:
        return self.players[name].config if name in self.players else self.config

    def _play(self, player: Player) -> Track:
        """Play the current episode once."""
        env = self._environment(player.env_config)
        agent = MapRecorder(player.make_agent(env), env)
        found = evaluate(agent, env, 1)
        trajectory, metrics = agent.trajectories(1)[0], {m.name: float(found[m.name][0]) for m in env.task.metric_specs}
        return Track(trajectory, metrics, tuple(agent.maps[: len(trajectory.headings)]))

    def _environment(self, config: NavConfig) -> NavEnv:
        """An environment for the current episode."""
        renderer = self.renderer if config.sensors else "raycast"
        return NavEnv.from_episodes(self.episodes[[self.number]], 1, config=config, scenes=self.bank, renderer=renderer)


# A scene's mesh as GLB for the browser, with colours, cut off at a height so that rooms are visible from above

PLAIN = np.array([205, 203, 198, 255], np.uint8)
"""Colour of a mesh without appearance, RGBA."""


def to_glb(mesh: TriangleMesh, top: float) -> bytes:
    """GLB of the triangles that reach below y = `top` (metres), which removes ceilings and roofs and keeps walls.

    Untextured triangles become one mesh with vertex colours; textured ones become one mesh per material.
    """
    corners = mesh.vertices[mesh.faces]
    kept = corners[:, :, 1].min(axis=1) < top
    faces, surface = np.flatnonzero(kept), mesh.surface
    scene = trimesh.Scene()
    if surface is None:
        scene.add_geometry(_coloured(corners[faces], np.broadcast_to(PLAIN, (len(faces), 3, 4))))
        return scene.export(file_type="glb")
    textured = np.array([material.texture >= 0 for material in surface.materials]) & (surface.uv is not None)
    plain = faces[~textured[surface.material[faces]]]
    if len(plain):
        scene.add_geometry(_coloured(corners[plain], corner_colours(surface, plain)))
    for number in np.unique(surface.material[faces]):
        if textured[number]:
            scene.add_geometry(_textured(corners, surface, faces[surface.material[faces] == number], int(number)))
    return scene.export(file_type="glb")


def corner_colours(surface: Surface, faces: np.ndarray) -> np.ndarray:
    """Vertex colours u8 [F, 3, 4] (sRGB) of some triangles, without textures."""
    factors = np.array([material.color for material in surface.materials], np.float32)[surface.material[faces]]
    colours = 255.0 if surface.color is None else surface.color[faces].astype(np.float32)
    return np.broadcast_to(np.round(factors[:, None] * colours), (len(faces), 3, 4)).astype(np.uint8)


def _coloured(corners: np.ndarray, colours: np.ndarray) -> trimesh.Trimesh:
    """Triangles f32 [F, 3, 3] with colours u8 [F, 3, 4] at their corners."""
    made = _triangles(corners)
    made.visual = trimesh.visual.ColorVisuals(made, vertex_colors=_linear(colours.reshape(-1, 4)))
    return made


def _textured(corners: np.ndarray, surface: Surface, faces: np.ndarray, number: int) -> trimesh.Trimesh:
    """The triangles of one material with its texture."""
    material = surface.materials[number]
    assert surface.uv is not None
    made = _triangles(corners[faces])
    uv = surface.uv[faces].reshape(-1, 2).astype(np.float64)
    uv[:, 1] = 1.0 - uv[:, 1]  # trimesh has v = 0 at the bottom
    factor = _linear(np.round(255.0 * np.array(material.color)).clip(0, 255).astype(np.uint8)[None])[0]
    look = trimesh.visual.material.PBRMaterial(
        baseColorTexture=Image.fromarray(pixels_of(surface.textures[material.texture])[..., :3]),
        baseColorFactor=factor, metallicFactor=0.0, roughnessFactor=1.0, doubleSided=True,
    )  # fmt: skip
    made.visual = trimesh.visual.TextureVisuals(uv=uv, material=look)
    return made


def _triangles(corners: np.ndarray) -> trimesh.Trimesh:
    """A mesh whose triangles share no vertices."""
    return trimesh.Trimesh(corners.reshape(-1, 3), np.arange(3 * len(corners)).reshape(-1, 3), process=False)


def _linear(colours: np.ndarray) -> np.ndarray:
    """sRGB colours u8 [..., 4] in linear form, as glTF stores vertex colours and factors."""
    share = colours.astype(np.float32) / 255.0
    rgb = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return np.round(255.0 * np.concatenate([rgb[..., :3], share[..., 3:]], axis=-1)).astype(np.uint8)


def scene_path(name: str) -> str:
    """A name as part of a path in viser's scene tree: characters other than letters and digits become underscores."""
    return "".join(c if c.isalnum() else "_" for c in name)


# Opening a session of the viewer: scenes, episodes and agents

SAMPLED_EPISODES = 20
"""Number of sampled episodes per scene when no episode file is given."""


def open_session(
    scenes: tuple[str, ...],
    episodes: Path | None,
    players: Mapping[str, Player],
    device: torch.device,
    renderer: str = "raycast",
    scenes_dir: Path = SCENES_DIR,
    config: NavConfig | None = None,
    part: Callable[[EpisodeDataset], EpisodeDataset] = lambda dataset: dataset,
) -> Session:
    """Load a session: scenes by id, with episodes from a file or sampled as by Habitat's generator.

    Args:
        scenes: scene ids (`data.scenes.load.find_scene`); with `episodes` they select episodes of the file; empty: all.
        episodes: an episode file.
        players: agents of one task and body, by name; without agents the viewer shows depth and colour.
        device: device that agents run on.
        renderer: renderer for agents with image sensors.
        scenes_dir: folder that the scene ids of Habitat's episodes are relative to.
        config: environment of the user's agent where there are no players; None: PointNav's.
        part: the episodes to show, of those in the file.

    ArgumentError if there is no episode to show, EpisodeError for an episode that cannot be played.
    """
    config = next((player.config for player in players.values()), config or nav_config(None, {}))
    if not players:
        config = dataclasses.replace(config, sensors=("depth", "rgb"))
    ids = scene_ids(scenes)
    if episodes is not None:
        dataset = part(load_episodes(episodes))
        check_kind(dataset, config.task_name)
        dataset = dataset.with_episodes(e for e in dataset if not ids or e.scene_id in ids)
        if not dataset:
            raise ArgumentError(f"{episodes}: found no episode in {', '.join(ids)}, expected scenes of this file")
        loaded = load_played_scenes(dataset, scenes_dir, config.body.navmesh)
        dataset = placed(dataset, loaded, config.task)
    elif ids:
        loaded, dataset = sampled(load_all(ids, config.body.navmesh, scenes_dir=scenes_dir), config, device)
    else:
        raise ArgumentError(
            "view: found neither scenes nor --episodes, expected scene ids (such as house:7) or an episode file"
        )
    fields = frozenset().union(*(needed_appearance(c) for c in (config, *(p.config for p in players.values()))))
    bank = SceneBank.pack(loaded, device, fields, goal_categories=goal_categories_of(config))
    return Session(bank, dataset, players, config, renderer)


def sampled(scenes: list[Scene], config: NavConfig, device: torch.device) -> tuple[list[Scene], EpisodeDataset]:
    """The scenes with the goals that the task needs, and episodes in them by the task's rules and distances."""
    kind = kind_of(config.task_name)
    scenes = kind.with_goals([select_islands(scene, "indoor") for scene in scenes], config.task, device)
    return scenes, kind.generate(scenes, SAMPLED_EPISODES, 0, config.task)
