"""Stand-in for habitat-sim: the part of its interface that batchnav uses, with batchnav's navmesh and renderer.

Names, arguments and defaults are those of habitat-sim 0.3; other names raise AttributeError, as there. `Tampering`
makes its results differ from batchnav's.
"""

from __future__ import annotations

import enum
import json
import math
import types
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import trimesh

from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings as OurSettings
from batchnav.renderers.raycast import RaycastRenderer
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import make_scene
from batchnav.types import TriangleMesh


@dataclass
class Tampering:
    """Differences of this simulator from batchnav, from a given step on."""

    step: int = 1 << 30
    forward: float = 0.0
    """Additional length of a forward step, metres."""
    nearer: float = 0.0
    """Reduction of all depths, metres."""


class SensorType(enum.Enum):
    DEPTH = 2


@dataclass(slots=True)
class CameraSensorSpec:
    uuid: str = ""
    sensor_type: SensorType | None = None
    channels: int = 4
    resolution: list = field(default_factory=lambda: [128, 128])
    hfov: float = 90.0
    position: list = field(default_factory=lambda: [0.0, 1.5, 0.0])
    orientation: list = field(default_factory=lambda: [0.0, 0.0, 0.0])


@dataclass(slots=True)
class SimulatorConfiguration:
    scene_id: str = ""
    scene_dataset_config_file: str = "default"
    allow_sliding: bool = True
    enable_physics: bool = False


@dataclass(slots=True)
class ActuationSpec:
    amount: float


@dataclass(slots=True)
class ActionSpec:
    name: str
    actuation: ActuationSpec


@dataclass(slots=True)
class AgentConfiguration:
    height: float = 1.5
    radius: float = 0.1
    sensor_specifications: list = field(default_factory=list)
    action_space: dict = field(default_factory=dict)


@dataclass(slots=True)
class AgentState:
    position: np.ndarray = field(default_factory=lambda: np.zeros(3))
    rotation: object = None


@dataclass(slots=True)
class Configuration:
    sim_cfg: SimulatorConfiguration
    agents: list


@dataclass(slots=True)
class NavMeshSettings:
    agent_radius: float = 0.0
    agent_height: float = 0.0

    def set_defaults(self):
        self.agent_radius, self.agent_height = 0.1, 1.5


@dataclass(slots=True)
class ShortestPath:
    requested_start: np.ndarray | None = None
    requested_end: np.ndarray | None = None
    geodesic_distance: float = math.inf


class PathFinder:
    def __init__(self):
        self.navmesh: NavMesh | None = None
        self.nav_mesh_settings: NavMeshSettings | None = None

    @property
    def is_loaded(self):
        return self.navmesh is not None

    def load_nav_mesh(self, path):
        self.navmesh = NavMesh.load(path)
        self.nav_mesh_settings = NavMeshSettings(self.navmesh.settings.agent_radius, self.navmesh.settings.agent_height)

    def find_path(self, path):
        (path.geodesic_distance,) = self.navmesh.geodesic_distance(
            np.float32([path.requested_start]), np.float32([path.requested_end])
        )
        return bool(np.isfinite(path.geodesic_distance))


class Agent:
    """Rotation about the vertical, with the attributes w, x, y, z of numpy-quaternion."""

    def __init__(self):
        self.position, self.heading = np.zeros(3, np.float32), 0.0

    def set_state(self, state):
        x, y, z, w = state.rotation
        assert x == z == 0.0
        self.position, self.heading = np.float32(state.position), 2.0 * math.atan2(y, w)

    def get_state(self):
        half = self.heading / 2.0
        rotation = types.SimpleNamespace(w=math.cos(half), x=0.0, y=math.sin(half), z=0.0)
        return AgentState(self.position.copy(), rotation)


def _load(scene_id: str) -> TriangleMesh:
    """Load a stage's mesh. A bare GLB counts as +Z up, as in habitat-sim; a stage config states its asset's up axis."""
    path, up = Path(scene_id), None
    if path.name.endswith(".stage_config.json"):
        config = json.loads(path.read_text())
        path, up = path.parent / config["render_asset"], config["up"]
    mesh = trimesh.load(path, force="mesh", process=False)
    vertices = np.float32(mesh.vertices)
    if up is None and path.suffix == ".glb":
        vertices = vertices[:, [0, 2, 1]] * np.float32([1, 1, -1])
    return TriangleMesh(vertices, np.int32(mesh.faces))


class Simulator:
    tampering = Tampering()

    def __init__(self, config):
        self.config, (agent,) = config, config.agents
        self.mesh, self.pathfinder, self.agent, self.steps = _load(config.sim_cfg.scene_id), PathFinder(), Agent(), 0
        navmesh = Path(config.sim_cfg.scene_id).with_suffix(".navmesh")
        if navmesh.is_file():
            self.pathfinder.load_nav_mesh(navmesh)
        (self.spec,) = agent.sensor_specifications
        bank = SceneBank.pack([make_scene("stand-in", self.mesh)], "cpu")
        height, width = self.spec.resolution
        self.renderer = RaycastRenderer(bank, 1, height, width, self.spec.hfov)

    def recompute_navmesh(self, pathfinder, settings):
        made = OurSettings(agent_radius=settings.agent_radius, agent_height=settings.agent_height)
        pathfinder.navmesh, pathfinder.nav_mesh_settings = NavMesh.bake(self.mesh, made), settings
        return True

    def get_agent(self, agent_id):
        assert agent_id == 0
        return self.agent

    def get_sensor_observations(self):
        camera = torch.from_numpy(self.agent.position + np.float32(self.spec.position)).unsqueeze(0)
        depth = self.renderer.render(
            torch.zeros(1, dtype=torch.int32), camera, torch.tensor([self.agent.heading]).float()
        )
        depth = depth[0].numpy().copy()
        if self.steps >= self.tampering.step:
            depth -= np.float32(self.tampering.nearer) * (depth > 0)
        return {"depth": depth}

    def step(self, action):
        self.steps += 1
        spec, agent, collided = self.config.agents[0].action_space[action], self.agent, False
        if spec.name == "move_forward":
            length = spec.actuation.amount + self.tampering.forward * (self.steps >= self.tampering.step)
            ahead = np.array([-math.sin(agent.heading), 0.0, -math.cos(agent.heading)])
            end = np.float32(agent.position + length * ahead)
            sliding = self.config.sim_cfg.allow_sliding
            (reached,) = self.pathfinder.navmesh.try_step(agent.position[None], end[None], sliding=sliding)
            gone, wanted = (float(np.sum((to - agent.position) ** 2)) for to in (reached, end))
            agent.position, collided = reached, gone + 1e-5 < wanted
        else:
            sign = {"turn_left": 1.0, "turn_right": -1.0}[spec.name]
            agent.heading += sign * math.radians(spec.actuation.amount)
        return {**self.get_sensor_observations(), "collided": collided}

    def close(self):
        self.renderer = None


def module(tampering: Tampering) -> types.ModuleType:
    """Make the module `habitat_sim`."""
    made = types.ModuleType("habitat_sim")
    made.agent = types.ModuleType("habitat_sim.agent")
    for kind in (ActionSpec, ActuationSpec, AgentConfiguration, AgentState):
        setattr(made.agent, kind.__name__, kind)
    for kind in (SensorType, CameraSensorSpec, SimulatorConfiguration, Configuration, NavMeshSettings, ShortestPath):
        setattr(made, kind.__name__, kind)
    made.Simulator = type("Simulator", (Simulator,), {"tampering": tampering})
    return made
