"""Figures of observations and maps for the docs: `sensors.png`, `finishes.webp`, `maps.png` and `guesses.png`.

    python docs/figures/pictures.py sensors --out docs/images/sensors.png
    python docs/figures/pictures.py materials --out docs/images/finishes.webp
    python docs/figures/pictures.py maps --out docs/images/maps.png
    python docs/figures/pictures.py predictions --out docs/images/guesses.png

Camera poses are those that see the most categories among many random poses in a scene. Maps are those of a map planner
in the episode with the longest path among several.
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

from batchnav.agents.simple import MapPlannerAgent
from batchnav.config import from_dict
from batchnav.data.scenes.load import load_all
from batchnav.envs.nav import NavEnv
from batchnav.errors import BatchnavError
from batchnav.mapping.costs import FREE
from batchnav.mapping.state import SIDE
from batchnav.procedural import make_material_library
from batchnav.renderers.choose import make_renderer
from batchnav.runtime.files import replacing
from batchnav.scene.appearance import COLOR_FIELDS
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene
from batchnav.sensors import SENSORS
from batchnav.sensors.camera import CameraConfig
from batchnav.sensors.frame import GivenImages
from batchnav.sensors.scene_images import render
from batchnav.sensors.sensor import Cameras
from batchnav.view.video import colour_depth, colour_ids, mosaic

CAMERA_HEIGHT, FAR = 1.25, 10.0
"""Camera height above the floor, and depth of the last colour, metres."""
NEAREST, APART = 1.0, 4.0
"""Minimum of a view's median depth, which excludes views of a wall, and minimum distance of two cameras, metres."""
GAP = 4
"""Pixels between pictures."""
MAP_COLOURS = np.array(
    [
        (90, 90, 96), (255, 255, 255), (205, 205, 205), (0, 0, 0), (130, 170, 255), (255, 140, 0), (0, 160, 60),
        *[(255, 0, 255)] * 3,
    ],
    np.uint8,
)  # fmt: skip
"""Colours of the ten levels of the sensor "ego_map"; the last three levels are unused."""
MAP_ZOOM = 3
"""Scale of a map in its picture: pixels per map pixel, per side."""
PREDICTED = np.array([150, 30, 60])
"""Colour of unexplored cells that the predictor expects to be occupied."""
SHOWN, CELL_ZOOM = 112, 2
"""Cells along a side of a picture of predicted occupancy, and pixels along a cell."""


@dataclass(frozen=True)
class Sensors:
    """Colour, depth and semantics, one per row, with a column per scene."""

    out: Path
    """Output file, a PNG."""
    scenes: tuple[str, ...] = ("house:4", "house:12", "house:23", "hall:2", "hall:5", "scan:8")
    """Scenes from left to right."""
    side: int = 192
    """Width and height of a picture, pixels."""
    tries: int = 200
    """Number of random camera poses in each scene."""


@dataclass(frozen=True)
class Materials:
    """A house with its own materials and with randomised ones, with a row per camera pose."""

    out: Path
    """Output file, a WebP."""
    house: str = "house:17"
    places: int = 3
    times: int = 5
    """Number of pictures with randomised materials."""
    side: int = 156
    tries: int = 200


@dataclass(frozen=True)
class Maps:
    """Sensor "ego_map" during an episode of the map planner, with a row per scene."""

    out: Path
    """Output file, a PNG."""
    scenes: tuple[str, ...] = ("house:100005", "hall:100003", "building:100001")
    """Scenes from top to bottom."""
    times: int = 6
    """Number of pictures per scene, from the start of the episode."""
    steps: int = 14
    """Steps between two pictures."""
    tries: int = 64
    """Number of episodes in each scene; the one with the longest shortest path is shown."""


@dataclass(frozen=True)
class Predictions(Maps):
    """Planned path and predicted occupancy during an episode, then the ground truth, with a row per scene."""

    scenes: tuple[str, ...] = ("house:100012", "house:100002", "block:100001")
    times: int = 3
    steps: int = 40


def main(options: Sensors | Materials | Maps | Predictions) -> None:
    make = {Sensors: sensors, Materials: materials, Maps: maps, Predictions: predictions}
    pictures = make[type(options)](options)
    sheet = mosaic(pictures.reshape(-1, *pictures.shape[2:]), pictures.shape[1], gap=GAP)
    with replacing(options.out, BatchnavError) as part:
        if not isinstance(options, Materials):
            sheet.quantize(dither=Image.Dither.NONE).save(part, "PNG", optimize=True)
        else:
            sheet.save(part, "WEBP", quality=80)


def sensors(options: Sensors) -> np.ndarray:
    """Pictures u8 [3, scenes, S, S, 3]."""
    columns = []
    for scene in load_all(options.scenes):
        eyes, headings = best_views(scene, 1, options.tries)
        seen = render(scene, eyes, headings, height=options.side, width=options.side)
        columns.append([seen["rgb"][0], colour_depth(seen["depth"], FAR)[0], colour_ids(seen["semantic"])[0]])
    return np.array(columns).swapaxes(0, 1)


def materials(options: Materials) -> np.ndarray:
    """Pictures u8 [places, 1 + times, S, S, 3]."""
    (house,) = load_all([options.house])
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
    for scene in load_all(options.scenes):
        row = []
        for env, i in navigate(scene, options, sensors=("depth", "ego_map", "waypoint")):
            levels = (env.last_observation["ego_map"][i, 0] * len(MAP_COLOURS)).int().numpy()
            row.append(MAP_COLOURS[levels].repeat(MAP_ZOOM, axis=0).repeat(MAP_ZOOM, axis=1))
        rows.append(row)
    return np.array(rows)


def navigate(scene: Scene, options: Maps, **settings) -> Iterator[tuple[NavEnv, int]]:
    """Step map planners, and yield the environment and the index of the shown agent whenever a picture is due."""
    env = NavEnv([scene], options.tries, "cpu", **settings)
    agent, ended = MapPlannerAgent(env), torch.zeros(options.tries, dtype=torch.bool)
    observation, _ = env.reset(seed=0)
    shown = int(env.task.episode_info["start_distance"].argmax())
    yield env, shown
    for step in range(1, (options.times - 1) * options.steps + 1):
        observation, *_ = env.step(agent.act(observation, ended))
        if step % options.steps == 0:
            yield env, shown


def predictions(options: Predictions) -> np.ndarray:
    """Pictures u8 [scenes, times + 1, S, S, 3] of the middle of the map."""
    rows = []
    for scene in load_all(options.scenes):
        row = []
        settings = {"sensors": ("depth", "waypoint"), "anticipation": "occupancy", "initial_scan": True}
        for env, i in navigate(scene, options, **settings):
            row.append(predicted_map(env, i))
        rows.append([*row, true_map(env, i)])
    middle = slice((SIDE - SHOWN) // 2, (SIDE + SHOWN) // 2)
    return np.array(rows)[:, :, middle, middle].repeat(CELL_ZOOM, axis=2).repeat(CELL_ZOOM, axis=3)


def predicted_map(env: NavEnv, i: int) -> np.ndarray:
    """Picture u8 [SIDE, SIDE, 3] of agent i's map, with predicted occupancy and the planned path."""
    state = env.mapper.map_state
    cost, layers = state.predicted_cost[i].numpy(), state.layers
    share = cost[:, None] / (float(FREE) + cost[:, None])  # 1/2 if the predicted cost equals the cost of a free cell
    picture = np.rint((1 - share) * MAP_COLOURS[0] + share * PREDICTED).astype(np.uint8)
    picture[layers.is_explored[i].numpy()] = MAP_COLOURS[1]
    picture[layers.is_occupied[i].numpy()] = MAP_COLOURS[3]
    picture[layers.is_traversed[i].numpy()] = MAP_COLOURS[4]
    picture[state.path[i, : int(state.path_length[i])].numpy()] = MAP_COLOURS[5]
    return with_goal(env, i, picture)


def true_map(env: NavEnv, i: int) -> np.ndarray:
    """Picture u8 [SIDE, SIDE, 3] of the navigable cells in the area of agent i's map."""
    x, z, size = env.mapper.map_state.origin_and_resolution[i].tolist()
    centers = (np.arange(SIDE, dtype=np.float32) + 0.5) * size
    points = np.stack(np.broadcast_arrays(x + centers, env.sim.bodies.position[i, 1], z + centers[:, None]), 2)
    navigable = env.bank.scenes[0].navmesh.is_navigable(points.reshape(-1, 3).astype(np.float32))
    return with_goal(env, i, np.where(navigable[:, None], MAP_COLOURS[1], MAP_COLOURS[3]))


def with_goal(env: NavEnv, i: int, picture: np.ndarray) -> np.ndarray:
    """Mark the goal in a picture u8 [CELLS, 3]; returns u8 [SIDE, SIDE, 3]."""
    frame, goal = env.mapper.map_state.origin_and_resolution[i].numpy(), env.task.state.goal[i].numpy()
    column, row = ((goal[[0, 2]] - frame[:2]) / frame[2]).astype(int)
    picture = picture.reshape(SIDE, SIDE, 3)
    picture[row - 1 : row + 2, column - 1 : column + 2] = MAP_COLOURS[6]
    return picture


def best_views(scene: Scene, count: int, tries: int) -> tuple[np.ndarray, np.ndarray]:
    """Camera positions f32 [count, 3] and headings f32 [count] that see the most categories, APART metres apart."""
    places = scene.navmesh.sample(tries) + np.float32([0.0, CAMERA_HEIGHT, 0.0])
    headings = np.random.default_rng(0).uniform(-np.pi, np.pi, tries).astype(np.float32)
    seen = render(scene, places, headings, ("depth", "semantic"))
    categories = np.array([len(np.unique(ids)) for ids in seen["semantic"]])
    categories[np.median(seen["depth"], axis=(1, 2)) < NEAREST] = 0
    chosen: list[int] = []
    for k in np.argsort(-categories, kind="stable"):
        if all(np.linalg.norm(places[k] - places[other]) > APART for other in chosen):
            chosen.append(int(k))
    return places[chosen[:count]], headings[chosen[:count]]


if __name__ == "__main__":
    try:
        main(
            tyro.extras.subcommand_cli_from_dict(
                {"sensors": Sensors, "materials": Materials, "maps": Maps, "predictions": Predictions},
                description=__doc__,
            )
        )
    except BatchnavError as error:
        sys.exit(f"error: {error}")
