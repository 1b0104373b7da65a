"""The docs' pictures of what agents see: `sensors.png`, `finishes.webp`, `maps.png` and `guesses.png` in docs.

    python docs/figures/pictures.py sensors --out docs/sensors.png
    python docs/figures/pictures.py finishes --out docs/finishes.webp
    python docs/figures/pictures.py maps --out docs/maps.png
    python docs/figures/pictures.py guesses --out docs/guesses.png

Cameras stand where they see most things: of many random places and headings in a scene, those with the most categories.
Maps are those of agents on their way, of the ones that have far to go.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from PIL import Image

from batchnav.agents.map_planner import MapPlannerAgent
from batchnav.config import from_dict
from batchnav.data.scenes import find_scenes
from batchnav.envs.nav import NavEnv
from batchnav.errors import BatchnavError
from batchnav.mapping.costs import FREE
from batchnav.mapping.state import SIDE
from batchnav.procedural import make_material_library
from batchnav.renderers.choose import make_renderer
from batchnav.runtime.files.atomic import replacing
from batchnav.scene.appearance import COLOR_FIELDS
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene
from batchnav.sensors import SENSORS
from batchnav.sensors.camera import CameraConfig
from batchnav.sensors.frame import GivenImages
from batchnav.sensors.scene_images import render
from batchnav.sensors.sensor import Cameras
from batchnav.view.mosaic import colour_depth, colour_ids, mosaic

CAMERA_HEIGHT, FAR = 1.25, 10.0
"""Metres: of cameras above the floor, and where depth has its last colour."""
NEAREST, APART = 1.0, 4.0
"""Metres from a camera to half of what it sees, at least, since nobody looks at a wall; and between two cameras."""
GAP = 4
"""Pixels between pictures."""
MAP_COLOURS = np.array(
    [
        (90, 90, 96), (255, 255, 255), (205, 205, 205), (0, 0, 0), (130, 170, 255), (255, 140, 0), (0, 160, 60),
        *[(255, 0, 255)] * 3,
    ],
    np.uint8,
)  # fmt: skip
"""Of the ten levels of the sensor "ego_map", of which the last three are none."""
MAP_ZOOM = 3
"""Pixels of a picture along a pixel of a map."""
GUESSED = np.array([150, 30, 60])
"""The colour of unseen cells that are guessed to be blocked."""
SHOWN, CELL_ZOOM = 112, 2
"""Cells along the sides of a picture of guesses, and pixels along a cell."""


@dataclass(frozen=True)
class Sensors:
    """Colour, depth and semantics, one below the other, a scene a column."""

    out: Path
    """The file, a PNG."""
    scenes: tuple[str, ...] = ("house:4", "house:12", "house:23", "hall:2", "hall:5", "scan:8")
    """From left to right."""
    side: int = 192
    """Pixels of a picture's side."""
    tries: int = 200
    """Places and headings in each scene."""


@dataclass(frozen=True)
class Finishes:
    """A house as it is, and with its finishes drawn anew, a place a row."""

    out: Path
    """The file, a WebP."""
    house: str = "house:17"
    places: int = 3
    times: int = 5
    """How often finishes are drawn anew."""
    side: int = 156
    tries: int = 200


@dataclass(frozen=True)
class Maps:
    """The sensor "ego_map" while the planner walks, a scene a row."""

    out: Path
    """The file, a PNG."""
    scenes: tuple[str, ...] = ("house:100005", "hall:100003", "building:100001")
    """From the top down."""
    times: int = 6
    """Pictures of each, from the start on."""
    steps: int = 14
    """Between two pictures."""
    tries: int = 64
    """Episodes in each scene, of which the one with the longest way is shown."""


@dataclass(frozen=True)
class Guesses(Maps):
    """The way and what is guessed of the unseen, and the truth beside them, a scene a row."""

    scenes: tuple[str, ...] = ("house:100012", "house:100002", "block:100001")
    times: int = 3
    steps: int = 40


def main(options: Sensors | Finishes | Maps | Guesses) -> None:
    draw = {Sensors: sensors, Finishes: finishes, Maps: maps, Guesses: guesses}
    pictures = draw[type(options)](options)
    sheet = mosaic(pictures.reshape(-1, *pictures.shape[2:]), pictures.shape[1], gap=GAP)
    with replacing(options.out, BatchnavError) as part:
        if not isinstance(options, Finishes):
            sheet.quantize(dither=Image.Dither.NONE).save(part, "PNG", optimize=True)
        else:
            sheet.save(part, "WEBP", quality=80)


def sensors(options: Sensors) -> np.ndarray:
    """Pictures u8 [3, scenes, S, S, 3]."""
    columns = []
    for scene in find_scenes(options.scenes):
        eyes, headings = best_views(scene, 1, options.tries)
        seen = render(scene, eyes, headings, height=options.side, width=options.side)
        columns.append([seen["rgb"][0], colour_depth(seen["depth"], FAR)[0], colour_ids(seen["semantic"])[0]])
    return np.array(columns).swapaxes(0, 1)


def finishes(options: Finishes) -> np.ndarray:
    """Pictures u8 [places, 1 + times, S, S, 3]."""
    (house,) = find_scenes([options.house])
    eyes, headings = (torch.from_numpy(values) for values in best_views(house, options.places, options.tries))
    bank = SceneBank.pack([house], "cpu", COLOR_FIELDS, make_material_library())
    size = {"height": options.side, "width": options.side, "hfov_deg": 90.0}
    sensor = SENSORS["rgb"](from_dict(CameraConfig, size), None)
    cameras = Cameras.level(torch.zeros(len(headings), dtype=torch.int32), eyes, headings)
    depth, triangle = make_renderer("raycast", bank, len(headings), **size).visibility(*cameras.poses)
    columns = []
    for seed in range(1 + options.times):
        if seed:
            bank.randomize_materials(torch.tensor([seed]), 0)
        out = torch.zeros(len(headings), *sensor.spec.shape, dtype=sensor.spec.dtype)
        sensor.write(GivenImages(depth, triangle, cameras, bank.appearance), out)
        columns.append(out.permute(0, 2, 3, 1).numpy())
    return np.array(columns).swapaxes(0, 1)


def maps(options: Maps) -> np.ndarray:
    """Pictures u8 [scenes, times, S, S, 3]."""
    rows = []
    for scene in find_scenes(options.scenes):
        row = []
        for env, i in walk(scene, options, sensors=("depth", "ego_map", "waypoint")):
            levels = (env.seen["ego_map"][i, 0] * len(MAP_COLOURS)).int().numpy()
            row.append(MAP_COLOURS[levels].repeat(MAP_ZOOM, axis=0).repeat(MAP_ZOOM, axis=1))
        rows.append(row)
    return np.array(rows)


def walk(scene: Scene, options: Maps, **settings) -> Iterator[tuple[NavEnv, int]]:
    """Have planners walk, and stop wherever there is to be a picture of the one with this number."""
    env = NavEnv([scene], options.tries, "cpu", **settings)
    agent, ended = MapPlannerAgent(env), torch.zeros(options.tries, dtype=torch.bool)
    observation, _ = env.reset(seed=0)
    shown = int(env.task.episode_info["start_distance"].argmax())
    yield env, shown
    for step in range(1, (options.times - 1) * options.steps + 1):
        observation, *_ = env.step(agent.act(observation, ended))
        if step % options.steps == 0:
            yield env, shown


def guesses(options: Guesses) -> np.ndarray:
    """Pictures u8 [scenes, times + 1, S, S, 3]: the middle of the map."""
    rows = []
    for scene in find_scenes(options.scenes):
        row = []
        for env, i in walk(scene, options, sensors=("depth", "waypoint"), anticipation="occupancy", look_around=True):
            row.append(guess(env, i))
        rows.append([*row, truth(env, i)])
    middle = slice((SIDE - SHOWN) // 2, (SIDE + SHOWN) // 2)
    return np.array(rows)[:, :, middle, middle].repeat(CELL_ZOOM, axis=2).repeat(CELL_ZOOM, axis=3)


def guess(env: NavEnv, i: int) -> np.ndarray:
    """What agent i has seen, guesses, and plans: u8 [SIDE, SIDE, 3]."""
    state = env.mapper.map_state
    added, layers = state.predicted_cost[i].numpy(), state.layers
    share = added[:, None] / (float(FREE) + added[:, None])  # half of it where they are twice as dear as free ones
    picture = np.rint((1 - share) * MAP_COLOURS[0] + share * GUESSED).astype(np.uint8)
    picture[layers.is_explored[i].numpy()] = MAP_COLOURS[1]
    picture[layers.is_occupied[i].numpy()] = MAP_COLOURS[3]
    picture[layers.is_traversed[i].numpy()] = MAP_COLOURS[4]
    picture[state.path[i, : int(state.path_length[i])].numpy()] = MAP_COLOURS[5]
    return with_goal(env, i, picture)


def truth(env: NavEnv, i: int) -> np.ndarray:
    """Where one can walk on the map of agent i: u8 [SIDE, SIDE, 3]."""
    x, z, size = env.mapper.map_state.origin_and_resolution[i].tolist()
    middles = (np.arange(SIDE, dtype=np.float32) + 0.5) * size
    points = np.stack(np.broadcast_arrays(x + middles, env.sim.bodies.position[i, 1], z + middles[:, None]), 2)
    walkable = env.bank.scenes[0].navmesh.is_navigable(points.reshape(-1, 3).astype(np.float32))
    return with_goal(env, i, np.where(walkable[:, None], MAP_COLOURS[1], MAP_COLOURS[3]))


def with_goal(env: NavEnv, i: int, picture: np.ndarray) -> np.ndarray:
    """A picture u8 [CELLS, 3] with the goal on it, u8 [SIDE, SIDE, 3]."""
    frame, goal = env.mapper.map_state.origin_and_resolution[i].numpy(), env.task.state.goal[i].numpy()
    column, row = ((goal[[0, 2]] - frame[:2]) / frame[2]).astype(int)
    picture = picture.reshape(SIDE, SIDE, 3)
    picture[row - 1 : row + 2, column - 1 : column + 2] = MAP_COLOURS[6]
    return picture


def best_views(scene: Scene, count: int, tries: int) -> tuple[np.ndarray, np.ndarray]:
    """Cameras f32 [count, 3] and headings f32 [count] that see the most categories, no two close together."""
    places = scene.navmesh.sample(tries) + np.float32([0.0, CAMERA_HEIGHT, 0.0])
    headings = np.random.default_rng(0).uniform(-np.pi, np.pi, tries).astype(np.float32)
    seen = render(scene, places, headings, ("depth", "semantic"))
    things = np.array([len(np.unique(ids)) for ids in seen["semantic"]])
    things[np.median(seen["depth"], axis=(1, 2)) < NEAREST] = 0
    chosen: list[int] = []
    for k in np.argsort(-things, kind="stable"):
        if all(np.linalg.norm(places[k] - places[other]) > APART for other in chosen):
            chosen.append(int(k))
    return places[chosen[:count]], headings[chosen[:count]]


if __name__ == "__main__":
    try:
        main(
            tyro.extras.subcommand_cli_from_dict(
                {"sensors": Sensors, "finishes": Finishes, "maps": Maps, "guesses": Guesses}, description=__doc__
            )
        )
    except BatchnavError as error:
        sys.exit(f"error: {error}")
