"""Maps of floors and of agents, read by a reader of its own."""

import re

import numpy as np
import pytest
import torch
import trimesh
import yaml
from scipy.ndimage import binary_dilation, binary_erosion, label
from worlds import boxes

import batchnav
from batchnav.cli import main
from batchnav.cli.evaluate import main as evaluate
from batchnav.cli.evaluate import parse
from batchnav.data.episodes import Episode, Goal, rotation_of
from batchnav.data.formats import EpisodeDataset
from batchnav.errors import ArgumentError
from batchnav.evaluation.play import AgentMap
from batchnav.export.ros_map import agent_map, describe, floor_map
from batchnav.mapping.state import CELLS, SIDE, MapLayers
from batchnav.scene.ros_map import RosMap, write_map
from batchnav.scene.scene import make_scene


def occupancy_grid(path):
    """nav_msgs/OccupancyGrid of a map, as map_server of ROS 1 makes it: data [rows, columns], row 0 at the bottom.

    A reader of its own: it parses the PGM file by hand.
    """
    fields = yaml.safe_load(path.read_text())
    assert fields["mode"] == "trinary" and fields["negate"] == 0
    data = (path.parent / fields["image"]).read_bytes()
    head = re.match(rb"P5\s+(?:#.*\s+)*(\d+)\s+(\d+)\s+255\s", data)
    width, height = int(head[1]), int(head[2])
    pixels = data[head.end() :]
    assert len(pixels) == width * height
    grid = np.empty((height, width), np.int8)
    for j in range(height):
        for i in range(width):
            occupied = (255 - pixels[j * width + i]) / 255.0
            value = 100 if occupied > fields["occupied_thresh"] else 0 if occupied < fields["free_thresh"] else -1
            grid[height - j - 1, i] = value
    return grid, fields["resolution"], fields["origin"]


def value_at(grid, x, y):
    """The value of a grid at x, y of ROS."""
    cells, resolution, (x0, y0, yaw) = grid
    assert yaw == 0.0
    return int(cells[int(np.floor((y - y0) / resolution)), int(np.floor((x - x0) / resolution))])


@pytest.fixture(scope="module")
def hall():
    """A walled floor, 8 m along -Z (x of ROS from 0 to 8) and 5 m along X, with a block near one corner."""
    return make_scene("hall", boxes(
        ((-5, -0.2, -8), (0, 0, 0)), ((-5.2, 0, -8), (-5, 2.5, 0)), ((0, 0, -8), (0.2, 2.5, 0)),
        ((-5, 0, -8.2), (0, 2.5, -8)), ((-5, 0, 0), (0, 2.5, 0.2)), ((-1.5, 0, -7), (-0.5, 2.0, -6)),
    ))  # fmt: skip


@pytest.mark.parametrize("resolution", [0.05, 0.1])
def test_a_raw_map_reaches_the_walls(tmp_path, hall, resolution):
    """Closed form: x of ROS is -z, y is -x; the block covers x 6 to 7, y 0.5 to 1.5."""
    write_map(floor_map(hall, 0.0, resolution), tmp_path / "hall.yaml")
    grid = occupancy_grid(tmp_path / "hall.yaml")
    cells = grid[0]
    step = 1.5 * resolution + 0.05  # a cell of the map and one of baking
    for x, y in ((step, step), (8 - step, step), (step, 5 - step), (8 - step, 5 - step), (4, 2), (6.5, 1.5 + step)):
        assert value_at(grid, x, y) == 0, (x, y)
    for x, y in (
        (6.52, 1.52),
        (6.52, 0.52),
        (7.02, 1.02),
        (6.02, 1.02),
    ):  # near faces of the block
        near = [value_at(grid, x + i * resolution, y + j * resolution) for i in (-1, 0, 1) for j in (-1, 0, 1)]
        assert 100 in near, (x, y)
    assert value_at(grid, 6.5, 1.0) == -1
    assert (cells == 0).sum() * resolution**2 == pytest.approx(5 * 8 - 1, rel=0.05)
    assert ((cells == 0) == binary_erosion(cells != -1, np.ones((3, 3)))).mean() > 0.97
    free = binary_dilation(cells == 0, np.ones((3, 3)))
    assert (cells[free] != -1).all(), "free cells end at occupied ones"
    assert label(cells == 0)[1] == 1


def test_an_inflated_map_is_the_navmesh(tmp_path, hall):
    grid = floor_map(hall, inflated=True)
    assert grid.inflated_by == pytest.approx(0.1)
    write_map(grid, tmp_path / "hall.yaml", describe(grid, "Floor of hall."))
    text = (tmp_path / "hall.yaml").read_text()
    assert "# Free space is shrunk by a robot's radius of 0.1 m: do not inflate it again." in text
    cells, resolution, origin = occupancy_grid(tmp_path / "hall.yaml")
    assert (cells == 0).sum() * resolution**2 == pytest.approx(hall.navmesh.area, rel=0.01)
    rows, columns = np.nonzero(cells == 0)
    x, y = origin[0] + (columns + 0.5) * resolution, origin[1] + (rows + 0.5) * resolution
    points = np.stack([-y, np.zeros(len(x)), -x], axis=1).astype(np.float32)
    assert hall.navmesh.is_navigable(points).all()
    raw = floor_map(hall)
    assert raw.inflated_by == 0.0 and "inflate it by the robot's radius" in describe(raw, "Floor of hall.")
    # The raw map, shrunk by the radius of the body, is the inflated one to two cells: baking loses up to one at a
    # wall, and its contours deviate by one.
    radius = round(0.1 / resolution)
    away = [
        (i, j) for i in range(-radius, radius + 1) for j in range(-radius, radius + 1) if i * i + j * j <= radius**2
    ]
    disc = np.zeros((2 * radius + 1, 2 * radius + 1), bool)
    for i, j in away:
        disc[i + radius, j + radius] = True
    shrunk = binary_erosion(raw.is_free, disc)
    assert (
        not (binary_erosion(shrunk, np.ones((5, 5))) & ~grid.is_free).any()
        and not (grid.is_free & ~binary_dilation(shrunk)).any()
    )


def test_a_map_of_a_map_keeps_its_free_cells(tmp_path):
    """Walls stand on the edges of cells, so each cell of the floor is free again, three times."""
    cells = np.full((70, 90), 100, np.int8)
    cells[5:65, 5:85] = 0
    cells[5:40, 40:42], cells[20:30, 60:70], cells[50:52, 10:30] = 100, -1, 100
    path, grid = tmp_path / "map.yaml", RosMap(cells, 0.05, (0.5, -1.0, 0.0))
    for _ in range(3):
        write_map(grid, path)
        grid = floor_map(batchnav.load_scene(path), resolution=0.05)
        assert grid.is_free.sum() == (cells == 0).sum()


def test_floors_of_a_building():
    """Two storeys, the upper one with a hole: each floor has its own map."""
    scene = make_scene("tower", boxes(((0, -0.2, 0), (6, 0, 6)), ((0, 2.8, 0), (6, 3, 3))))
    low, high = floor_map(scene, 0.0), floor_map(scene, 3.0)
    assert low.is_free.sum() * 0.0025 == pytest.approx(36, rel=0.05)
    assert high.is_free.sum() * 0.0025 == pytest.approx(18, rel=0.08)
    assert floor_map(scene).cells.shape == low.cells.shape
    with pytest.raises(ArgumentError, match=r"floor: found no walkable area within 0.5 m of y = 1.5.*islands are at"):
        floor_map(scene, 1.5)
    with pytest.raises(ArgumentError, match=r"resolution: found 0, expected a number from 0.001 to 10"):
        floor_map(scene, resolution=0)


@pytest.mark.parametrize("name", ["house:3", "hall:1"])
def test_round_trip(tmp_path, name):
    """A map of a scene, read as a scene of walls, has the same free area to within one cell at its border."""
    first = floor_map(batchnav.load_scene(name, appearance=False))
    write_map(first, tmp_path / "first.yaml")
    again = floor_map(batchnav.load_scene(tmp_path / "first.yaml", appearance=False), 0.0)
    found = np.zeros_like(first.is_free)
    shift = np.round((np.array(again.origin[:2]) - first.origin[:2]) / first.resolution).astype(int)
    rows, columns = np.nonzero(again.is_free)
    found[rows + shift[1], columns + shift[0]] = True
    block = np.ones((3, 3), bool)
    assert not (found & ~binary_dilation(first.is_free, block)).any()
    # Parts that narrow passages separate may become too small for episodes.
    parts, number = label(binary_erosion(first.is_free, block))
    kept = [k for k in range(1, number + 1) if found[parts == k].any()]
    assert max(range(1, number + 1), key=lambda k: (parts == k).sum()) in kept
    assert not (np.isin(parts, kept) & ~found).any()
    assert found.sum() > 0.8 * first.is_free.sum()


def test_the_map_of_an_agent_has_the_frame_of_ros():
    occupancy, explored = torch.zeros(CELLS, dtype=torch.uint8), torch.zeros(CELLS, dtype=torch.uint8)
    row, column = 30, 70
    explored[row * SIDE : (row + 2) * SIDE] = 1
    occupancy[row * SIDE + column] = 3
    occupancy[(row + 1) * SIDE + column] = 2  # an obstacle in a cell that the agent traversed
    grid = agent_map(AgentMap(MapLayers(occupancy, explored), torch.tensor([-7.0, 4.0, 0.25])))
    assert grid.resolution == 0.25 and grid.origin == (-(4.0 + 48.0), -(-7.0 + 48.0), 0.0)
    x, z = -7.0 + (column + 0.5) * 0.25, 4.0 + (row + 0.5) * 0.25
    at = grid.cells, grid.resolution, grid.origin
    assert value_at(at, -z, -x) == 100 and (grid.cells == 100).sum() == 1
    assert value_at(at, -z, -(x + 0.25)) == 0 and value_at(at, -(z + 0.25), -x) == 0
    assert value_at(at, -(z - 0.25), -x) == -1 and (grid.cells >= 0).sum() == 2 * SIDE


def test_maps_of_an_evaluation(tmp_path, hall, capsys):
    """The agent's own map against the map of the floor, in the same frame."""
    trimesh.Trimesh(hall.mesh.vertices, hall.mesh.faces, process=False).export(tmp_path / "hall.ply")
    goal = (Goal((-4.0, 0.0, -7.0), 0.2),)
    episode = Episode("0", str(tmp_path / "hall.ply"), (-2.0, 0.0, -1.0), rotation_of(0.0), goal, {})
    EpisodeDataset([episode]).save(tmp_path / "one.json.gz", False)
    words = ["--episodes", str(tmp_path / "one.json.gz"), "--device", "cpu", "--out", str(tmp_path / "out"), "--maps"]
    evaluate(parse(["map_planner", *words]))
    assert f"maps: {tmp_path / 'out' / 'maps'}" in capsys.readouterr().out.replace("\n", "")
    path = tmp_path / "out" / "maps" / "episode_0000.yaml"
    assert path.read_text().startswith("# Map of map_planner in episode 0 in ")
    cells, resolution, origin = occupancy_grid(path)
    rows, columns = np.nonzero(cells == 0)
    x, y = origin[0] + (columns + 0.5) * resolution, origin[1] + (rows + 0.5) * resolution
    inside = (x > -resolution) & (x < 8 + resolution) & (y > -resolution) & (y < 5 + resolution)
    assert inside.all() and len(x) * resolution**2 > 8
    rows, columns = np.nonzero(cells == 100)
    x, y = origin[0] + (columns + 0.5) * resolution, origin[1] + (rows + 0.5) * resolution
    to_wall = np.min([np.abs(x), np.abs(8 - x), np.abs(y), np.abs(5 - y)], axis=0)
    to_block = np.hypot(np.maximum(np.abs(x - 6.5) - 0.5, 0), np.maximum(np.abs(y - 1.0) - 0.5, 0))
    assert len(x) > 20 and (np.minimum(to_wall, to_block) <= 1.5 * resolution).all()
    with pytest.raises(
        ArgumentError, match=r"--maps: found greedy with the sensors .*, expected an agent with ego_map"
    ):
        evaluate(parse(["greedy", *words]))


def test_command(tmp_path, capsys):
    cells = np.full((60, 80), 100, np.int8)
    cells[5:55, 5:75] = 0
    write_map(RosMap(cells, 0.1, (0.0, 0.0, 0.0)), tmp_path / "in.yaml")
    main(["navmesh", "map", str(tmp_path / "in.yaml"), "--floor", "0", "--resolution", "0.05", "--out",
          str(tmp_path / "out" / "map.yaml"), "--raw"])  # fmt: skip
    grid, resolution, origin = occupancy_grid(tmp_path / "out" / "map.yaml")
    assert resolution == 0.05 and (grid == 0).sum() * 0.0025 == pytest.approx(35, rel=0.04)
    assert origin[0] == pytest.approx(0.4, abs=0.21) and origin[1] == pytest.approx(0.4, abs=0.21)
    assert "cells of 0.05 m" in (out := capsys.readouterr().out) and "m² free (up to the walls)" in out
    for words, message in (
        (["--raw", "--inflated"], "--inflated, --raw: found both, expected one of them"),
        (["--floor", "3"], "floor: found no walkable area"),
        (["--resolution", "-1"], "resolution: found -1.0, expected a number"),
    ):
        with pytest.raises(SystemExit, match=message):
            main(["navmesh", "map", str(tmp_path / "in.yaml"), "--out", str(tmp_path / "b.yaml"), *words])
    with pytest.raises(SystemExit, match=r"found suffix '.png', expected .yaml"):
        main(["navmesh", "map", str(tmp_path / "in.yaml"), "--out", str(tmp_path / "b.png")])
