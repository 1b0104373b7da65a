"""`World`: who is in the worlds of a simulator besides their robots, and the order of its kernels.

advance     people choose velocities and walk, before the robots move
begin       worlds whose first robot begins an episode get new people, after it began
show        worlds of several robots: robots and people as the bodies that cameras see, before images are rendered
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from batchnav.errors import ArgumentError, CheckpointError, EpisodeError
from batchnav.navmesh.file import FARTHEST
from batchnav.navmesh.heap import search_scratch, search_size
from batchnav.runtime.kernels.arrays import view
from batchnav.scene.bank import SceneBank
from batchnav.sim.bodies import Bodies, Body, BodyAmongOthers, BodyConfig
from batchnav.sim.episodes import SamplingState
from batchnav.sim.others import Others
from batchnav.sim.simulator import check_positions
from batchnav.types import BOX, CYLINDER, MAX_BODIES, NUM_APPEARANCES, PERSON, MovingBodies
from batchnav.world.config import WorldConfig
from batchnav.world.orca import PLANE_ROWS
from batchnav.world.people import (
    CORNERS,
    WALK_ROW,
    WAYPOINTS,
    People,
    PeopleTable,
    Rules,
    Script,
    Walk,
    begin,
    choose_velocities,
    show,
    walk,
)

SEARCHERS = 8192
"""CUDA: largest number of threads that move people, each with memory for a path search."""
SHAPES = {"person": PERSON, "cylinder": CYLINDER, "box": BOX}
"""Shapes of scripted bodies by name."""


@dataclass(frozen=True, eq=False)
class ScriptedBodies:
    """Bodies that follow a script in every world: recorded pedestrians, or objects that stand.

    Robots are stopped by them and cameras see them; people make way for them. ArgumentError for invalid arrays.
    """

    positions: np.ndarray
    """[T, S, 3]: places of S bodies, 1 to 8, at T times from the start of an episode, metres on the navmesh; NaN where
    a body is absent. Places between two times are interpolated; after the last a body stands. [S, 3]: they stand."""
    interval: float = 0.4
    """Seconds between two rows. Default: that of the data sets ETH and UCY."""
    shape: str = "person"
    """"person", "cylinder" or "box"."""
    radius: float = 0.3
    """Metres; of a box, half its side."""
    height: float = 1.7
    """Metres."""

    def __post_init__(self) -> None:
        found = np.asarray(self.positions, np.float32)
        found = found[None] if found.ndim == 2 else found
        if found.ndim != 3 or found.shape[2] != 3 or not len(found) or not 1 <= found.shape[1] <= MAX_BODIES:
            raise ArgumentError(f"positions: found {list(found.shape)}, expected [T, 1 to {MAX_BODIES}, 3]")
        if np.isinf(found).any():
            raise ArgumentError("positions: found infinity, expected metres, or NaN for absent bodies")
        for name, high in (("interval", 1e4), ("radius", 5.0), ("height", 5.0)):
            if not 1e-3 <= getattr(self, name) <= high:
                raise ArgumentError(f"{name}: found {getattr(self, name)!r}, expected 0.001 to {high:g}")
        if self.shape not in SHAPES:
            raise ArgumentError(f"shape: found {self.shape!r}, expected one of {', '.join(SHAPES)}")
        object.__setattr__(self, "positions", np.ascontiguousarray(found))


@dataclass(frozen=True)
class Walker:
    """A person of a fixed episode."""

    start: tuple[float, float, float]
    """Metres."""
    waypoints: tuple[tuple[float, float, float], ...]
    """One or two places that it walks to, metres."""


class World:
    """The people and objects of W worlds, each with one robot or several. A step allocates nothing.

    Args:
        bank: the scenes.
        bodies: the robots.
        sampling: seed, and number of the first robot.
        body: the robots' size and step time.
        config: who is in a world.
        people: people of fixed episodes, by the row of their table; None, and None in it: they are drawn.
        scripted: bodies that follow a script; None: none.

    ArgumentError where the robots do not fill their worlds, or there are more bodies than a world holds; EpisodeError
    for people off the navmesh.
    """

    def __init__(
        self,
        bank: SceneBank,
        bodies: Bodies,
        sampling: SamplingState,
        body: BodyConfig,
        config: WorldConfig,
        people: Sequence[Sequence[Walker] | None] | None = None,
        scripted: ScriptedBodies | None = None,
    ):
        n, agents, device = len(bodies.scene), config.agents_per_world, bank.device
        if n % agents:
            raise ArgumentError(f"num_envs: found {n} with agents_per_world {agents}, expected a multiple of it")
        self.config, self.num_worlds, self._bank, self.agent_height = config, n // agents, bank, body.agent_height
        script = np.zeros((1, 0, 3), np.float32) if scripted is None else scripted.positions
        drawn = max([config.people[1], *(len(each) for each in people or () if each is not None)])
        most = max(drawn + script.shape[1], 1)
        if most > MAX_BODIES:
            raise ArgumentError(
                f"people: found {drawn} people and {script.shape[1]} scripted bodies, expected at most {MAX_BODIES} "
                "bodies in a world"
            )
        self.bodies = _standing(self.num_worlds, most, script.shape[1], scripted, device)
        """The people and scripted bodies; scripted ones first. Live tensors."""
        self.walk = _walk(self.num_worlds, most, n, device)
        """Their paths. Live tensors."""
        step_time = config.step_time if body.is_discrete else body.velocity.time_step
        self.rules = Rules(
            np.float32(step_time), np.float32(config.reacts_to_robot), np.float32(body.agent_radius),
            config.at_last_waypoint == "turn_back", config.at_last_waypoint == "new_goals", np.int64(most),
            np.int64(script.shape[1]), np.int64(agents), np.int32(config.people[0]), np.int32(config.people[1]),
            np.float32(config.person_radius), np.float32(config.person_height), *map(np.float32, config.person_speed),
        )  # fmt: skip
        self.world_index = torch.arange(n, dtype=torch.int32, device=device) // agents
        """i32 [N]: world of each robot."""
        self.own_body: torch.Tensor | None = None
        """i32 [N]: the robot's own row among `drawn`; None where robots are not drawn."""
        self.drawn = self.bodies
        """What cameras see: `bodies`, in worlds of several robots after the robots."""
        table = self._table(people, drawn)
        self._bind(bodies, sampling, table, script, np.float32(1.0 if scripted is None else scripted.interval))

    def _table(self, people: Sequence[Sequence[Walker] | None] | None, most: int) -> PeopleTable:
        """The people of fixed episodes as tensors."""
        rows = people or ()
        count = np.array([-1 if each is None else len(each) for each in rows], np.int32)
        start = np.zeros((max(len(rows) * most, 1), 3), np.float32)
        waypoint = np.zeros((max(len(rows) * most, 1) * WAYPOINTS, 3), np.float32)
        for row, each in enumerate(rows):
            for k, person in enumerate(each or ()):
                at = row * most + k
                start[at] = person.start
                waypoint[WAYPOINTS * at : WAYPOINTS * (at + 1)] = (person.waypoints * WAYPOINTS)[:WAYPOINTS]
        device = self._bank.device
        return PeopleTable(*(torch.from_numpy(each).to(device) for each in (count, start, waypoint)))

    def _bind(
        self, bodies: Bodies, sampling: SamplingState, table: PeopleTable, script: np.ndarray, interval: np.float32
    ) -> None:
        """Bind the kernels to their arguments."""
        bank, most, device = self._bank, int(self.rules.most), self._bank.device
        total = self.num_worlds * most
        rows = min(total, SEARCHERS) if device.type == "cuda" else min(total, 64)
        self._scratch = search_scratch(search_size(bank.navmesh), rows, device, CORNERS + 1)
        planes = torch.zeros(total, PLANE_ROWS, 4, dtype=torch.float32, device=device)
        places = Script(torch.from_numpy(script).to(device), interval)
        people = People(*(
            view(tensor.reshape(-1, WALK_ROW[name]) if name in WALK_ROW else tensor.reshape(-1))
            for name, tensor in (self.bodies._asdict() | self.walk._asdict()).items()
        ))  # fmt: skip
        nav, robots, seeds, rules = bank.navmesh_view, view(bodies), view(sampling), self.rules
        read = nav, robots, seeds, view(places)
        self._choose: Callable[[], None] = choose_velocities.bind(total, robots, people, rules, view(planes), people)
        self._walk: Callable[[], None] = walk.bind(total, *read, rules, view(self._scratch), people, rows=rows)
        self._on_all, self._on_due = (
            begin.bind(self.num_worlds, each, *read, view(table), rules, people) for each in (True, False)
        )
        self.show: Callable[[], None] = lambda: None
        """Write `drawn`, before images are rendered."""
        if (agents := int(rules.agents)) > 1:
            self.drawn = _drawn(self, agents)
            self.own_body = torch.arange(len(bodies.scene), dtype=torch.int32, device=device) % agents
            flat = MovingBodies(*(
                view(tensor.reshape(-1, WALK_ROW[name]) if name in WALK_ROW else tensor.reshape(-1))
                for name, tensor in self.drawn._asdict().items()
            ))  # fmt: skip
            self.show = show.bind(self.num_worlds, robots, people, rules, flat)
        self.people = people

    def body_among_others(self, body: Body) -> Any:
        """The robots' body as kernels of a step need it where others may stop it. `body`: a result of `view`."""
        people, rules = self.people, self.rules
        others = Others(
            people.count, people.position, people.radius, people.robot_position, rules.most, rules.agents,
            rules.agent_radius, self.config.slide_along_people,
        )  # fmt: skip
        return BodyAmongOthers(*body, *others)

    def advance(self) -> None:
        """Move the people by one step, and keep where the robots start theirs."""
        self._choose()
        self._walk()

    def begin(self, all_worlds: bool) -> None:
        """New people in worlds whose first robot began an episode, or in all."""
        (self._on_all if all_worlds else self._on_due)()

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """Live tensors that the next step depends on, by name."""
        return {f"people_{name}": tensor for name, tensor in (self.bodies._asdict() | self.walk._asdict()).items()}

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Lowest and highest valid values of `state`, by name."""
        most, config = int(self.rules.most), self.config
        plain = dict.fromkeys(self.state, (-FARTHEST, FARTHEST))
        count = (0, 2**31 - 1)
        limits = {
            "count": (0, most), "radius": (0.0, 5.0), "height": (0.0, 5.0), "shape": (0, len(SHAPES) - 1),
            "appearance": count, "speed": (0.0, max(config.person_speed)), "leg": (0, WAYPOINTS), "draws": count,
            "corners": (0, CORNERS), "corner": (0, CORNERS), "slow": count,
        }  # fmt: skip
        return plain | {f"people_{name}": each for name, each in limits.items()}

    def check_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """CheckpointError where a person of a saved state, with values within `ranges`, is off the navmesh."""
        scene = state["scene"].reshape(self.num_worlds, -1)[:, :1]
        scripted, most = int(self.rules.scripted), int(self.rules.most)
        places = torch.arange(most, dtype=torch.int32, device="cpu")
        there = (places >= scripted) & (places < state["people_count"].cpu()[:, None])
        position, scenes = state["people_position"].cpu()[there], scene.cpu().expand(-1, most)[there]
        if len(position):
            check_positions("environment state 'people_position'", self._bank, scenes, position, CheckpointError)
        if (state["people_count"] < scripted).any():
            raise CheckpointError(f"environment state 'people_count': found fewer than {scripted} scripted bodies")


def check_people(bank: SceneBank, scene: torch.Tensor, people: Sequence[Sequence[Walker] | None]) -> None:
    """EpisodeError where people of fixed episodes start or walk to a place off the navmesh. `scene`: i32 [M]."""
    found = [(row, point) for row, each in enumerate(people) for p in each or () for point in (p.start, *p.waypoints)]
    if found:
        rows, points = zip(*found, strict=True)
        scenes = scene.cpu()[list(rows)]
        check_positions("people", bank, scenes, torch.tensor(points, dtype=torch.float32, device="cpu"), EpisodeError)


def _standing(
    worlds: int, most: int, scripted: int, script: ScriptedBodies | None, device: torch.device
) -> MovingBodies:
    """Bodies before the first episode; scripted ones have their shapes."""
    f32: dict[str, Any] = {"dtype": torch.float32, "device": device}
    i32: dict[str, Any] = {"dtype": torch.int32, "device": device}
    made = MovingBodies(
        torch.zeros(worlds, **i32), torch.zeros(worlds, most, 3, **f32), torch.zeros(worlds, most, **f32),
        torch.zeros(worlds, most, 2, **f32), torch.zeros(worlds, most, **f32), torch.zeros(worlds, most, **f32),
        torch.zeros(worlds, most, **i32), torch.zeros(worlds, most, **i32),
    )  # fmt: skip
    if script is not None:
        made.radius[:, :scripted], made.height[:, :scripted] = script.radius, script.height
        made.shape[:, :scripted] = SHAPES[script.shape]
        made.appearance[:, :scripted] = torch.arange(scripted, **i32)
    return made


def _drawn(world: World, agents: int) -> MovingBodies:
    """Bodies that cameras see in worlds of several robots; the robots have their shapes."""
    most = agents + int(world.rules.most)
    drawn = _standing(world.num_worlds, most, 0, None, world.world_index.device)
    drawn.radius[:, :agents], drawn.height[:, :agents] = float(world.rules.agent_radius), world.agent_height
    drawn.shape[:, :agents] = CYLINDER
    drawn.appearance[:, :agents] = (
        torch.arange(agents, dtype=torch.int32, device="cpu").to(drawn.count) % NUM_APPEARANCES
    )
    return drawn


def _walk(worlds: int, most: int, robots: int, device: torch.device) -> Walk:
    """Paths before the first episode."""
    f32: dict[str, Any] = {"dtype": torch.float32, "device": device}
    i32: dict[str, Any] = {"dtype": torch.int32, "device": device}
    return Walk(
        speed=torch.zeros(worlds, most, **f32), waypoint=torch.zeros(worlds, most, WAYPOINTS, 3, **f32),
        leg=torch.zeros(worlds, most, **i32), draws=torch.zeros(worlds, most, **i32),
        path=torch.zeros(worlds, most, CORNERS, 3, **f32), corners=torch.zeros(worlds, most, **i32),
        corner=torch.zeros(worlds, most, **i32), slow=torch.zeros(worlds, most, **i32),
        new_velocity=torch.zeros(worlds, most, 2, **f32), robot_position=torch.zeros(robots, 3, **f32),
    )  # fmt: skip
