"""Top-down maps of a room of 6 x 4 m, with a table and a block as high as the cut of the walls."""

import io
import sys

import numpy as np
import pytest
import torch
from moving_bodies import made
from PIL import Image
from worlds import boxes

from batchnav.errors import ArgumentError, BatchnavError
from batchnav.evaluation.play import Images, Recording
from batchnav.navmesh.navmesh import NavMesh
from batchnav.observation import Spec
from batchnav.renderers.bodies import SeenBodies
from batchnav.tasks.goal_task import METRIC_SPECS, METRICS
from batchnav.view.topdown import BLUE, FLOOR, GREEN, INK, ORANGE, PAPER, PURPLE, TopDownMap, slice_mesh
from batchnav.view.video import (
    CAPTION,
    HOLE,
    MAX_FRAMES,
    caption,
    colour_depth,
    depth_mosaic,
    draw_episode,
    save_gif,
    save_mp4,
    video_frames,
)

DEPTH = Spec("depth", (1, 16, 16), torch.float32, 0.0, 1.0, torch.bfloat16)

MARGIN, SIZE = 0.4, 340


@pytest.fixture(scope="module")
def room():
    mesh = boxes(
        ((0.0, -0.2, 0.0), (6.0, 0.0, 4.0)),
        ((1.0, 0.0, 1.0), (2.0, 0.7, 3.0)),  # a table
        ((4.0, 0.0, 1.0), (5.0, 2.5, 3.0)),  # a block as high as a wall
    )
    return mesh, NavMesh.bake(mesh)


def colour_at(plan, x, z):
    column, row = plan.to_pixels(np.array([x, 0.0, z])).round().astype(int)
    return plan.image.getpixel((int(column), int(row)))


def test_what_lies_where(room):
    mesh, navmesh = room
    plan = TopDownMap(navmesh, mesh, size=SIZE)
    assert max(plan.size[0], plan.size[1] - 22) == SIZE
    assert colour_at(plan, 3.0, 2.0) == FLOOR
    table = colour_at(plan, 1.5, 2.0)
    assert table[0] == table[1] == table[2] and 150 <= table[0] <= 196
    assert np.abs(np.subtract(colour_at(plan, 4.0, 2.0), INK)).max() < 110  # the block's cut edge, a thin line
    assert plan.image.getpixel((1, 1)) == PAPER
    # Without the mesh, the table appears as a gap in the floor.
    assert colour_at(TopDownMap(navmesh, size=SIZE), 1.5, 2.0) != table


def test_scale_and_direction(room):
    _, navmesh = room
    plan = TopDownMap(navmesh, size=SIZE, margin=MARGIN)
    origin, east, south = plan.to_pixels(np.array([[1.0, 0.0, 1.0], [2.0, 0.0, 1.0], [1.0, 5.0, 2.0]]))
    assert east - origin == pytest.approx([plan.pixels_per_metre, 0.0])
    assert south - origin == pytest.approx([0.0, plan.pixels_per_metre])
    # The eroded floor is 6 m minus 0.15 m at each edge.
    assert plan.pixels_per_metre == pytest.approx(SIZE / (5.7 + 2 * MARGIN), rel=0.02)


def test_paths_and_marks(room):
    _, navmesh = room
    plan = TopDownMap(navmesh, size=SIZE)
    before = plan.copy()
    plan.draw_path(np.array([[0.5, 0.0, 0.5], [5.5, 0.0, 0.5]]))
    plan.draw_path(np.array([[0.5, 0.0, 3.5], [5.5, 0.0, 3.5]]), ORANGE, dash=10.0)
    plan.draw_start(np.array([3.0, 0.0, 1.5]))
    plan.draw_goal(np.array([3.0, 0.0, 2.5]))
    assert colour_at(plan, 3.0, 0.5) == BLUE
    row = int(plan.to_pixels(np.array([3.0, 0.0, 3.5]))[1])
    dashes = [plan.image.getpixel((c, row)) == ORANGE for c in range(plan.size[0])]
    assert 0.4 < np.mean(dashes) / (5.0 * plan.pixels_per_metre / plan.size[0]) < 0.8  # dashes cover three fifths
    assert colour_at(plan, 3.0, 1.5) == GREEN
    assert colour_at(plan, 3.0, 2.5) == ORANGE
    assert colour_at(before, 3.0, 0.5) == FLOOR  # drawing on the map does not change the copy


def test_arrow_points_along_the_heading(room):
    _, navmesh = room
    plan = TopDownMap(navmesh, size=SIZE)
    plan.draw_start(np.array([3.0, 0.0, 2.0]), heading=np.pi / 2)  # to the left of -Z: towards -X
    reach = 4.0 / plan.pixels_per_metre
    assert colour_at(plan, 3.0 - reach, 2.0) == GREEN
    assert colour_at(plan, 3.0 + reach, 2.0) == FLOOR


def test_slices_of_a_box():
    mesh = boxes(((0.0, 0.0, 0.0), (2.0, 1.0, 3.0)))
    corners = mesh.vertices[mesh.faces]
    segments = slice_mesh(corners, 0.25)
    assert (segments[:, :, 1] == 0.25).all()
    assert np.linalg.norm(segments[:, 1] - segments[:, 0], axis=1).sum() == pytest.approx(2 * (2.0 + 3.0))
    assert len(slice_mesh(corners, 1.5)) == 0


def test_what_a_notebook_shows(room):
    _, navmesh = room
    plan = TopDownMap(navmesh, size=SIZE)
    with Image.open(io.BytesIO(plan._repr_png_())) as shown:
        assert np.array_equal(np.asarray(shown), np.asarray(plan.image))
    assert repr(navmesh) == f"NavMesh({navmesh.area:.1f} m², {navmesh.num_polygons} polygons)"


def test_bad_arguments(room):
    _, navmesh = room
    with pytest.raises(ArgumentError, match="size: found 3"):
        TopDownMap(navmesh, size=3)
    with pytest.raises(ArgumentError, match="height: found 50"):
        TopDownMap(navmesh, height=50.0)


def walk(steps):
    x = np.linspace(0.5, 5.5, steps, dtype=np.float32)
    positions = np.stack([x, np.zeros_like(x), np.full_like(x, 0.5)], axis=1)
    return Recording(
        scene=0, positions=positions, headings=np.full(steps, -np.pi / 2, np.float32), actions=np.ones(steps, int),
        images={"depth": Images(DEPTH, np.full((steps, 1, 16, 16), 0.5, np.float32))},
        goal=np.array([5.5, 0.0, 3.5], np.float32),
        goal_radius=0.2, metrics=dict.fromkeys(METRICS, 0.0), metric_specs=METRIC_SPECS,
    )  # fmt: skip


@pytest.mark.parametrize("steps", [1, 20, 3 * MAX_FRAMES])
def test_video_frames(room, steps, tmp_path):
    _, navmesh = room
    plan, recording = TopDownMap(navmesh, size=160), walk(steps)
    frames = video_frames(plan, recording, recording.positions[[0, -1]])
    assert min(steps, 2) <= len(frames) <= MAX_FRAMES + 1 or len(frames) == steps == 1
    side = plan.size[1]
    assert frames[-1].size == (side + 6 + plan.size[0], side + CAPTION)
    assert frames[-1].getpixel((side // 2, side // 2)) == frames[0].getpixel((side // 2, side // 2)) != PAPER
    assert "no success, spl 0.00" in caption(recording, steps - 1)
    save_gif(frames, tmp_path / "episode.gif")
    with Image.open(tmp_path / "episode.gif") as gif:
        assert gif.size == frames[0].size and gif.format == "GIF"
    assert [p.name for p in tmp_path.iterdir()] == ["episode.gif"]


def test_videos_show_people_and_their_paths(room):
    _, navmesh = room
    plan, recording = TopDownMap(navmesh, size=160), walk(10)
    bodies = made(position=np.tile(np.float32([[[2.0, 0, 2.5], [4.0, 0, 2.5]]]), (10, 1, 1)))
    bodies.position[:, 0, 0] += torch.linspace(0, 1, 10)
    world, own = torch.arange(10, dtype=torch.int32), torch.ones(10, dtype=torch.int32)  # the second is the agent
    seen = SeenBodies(*(column.numpy() for column in (*bodies, world, own)))
    plain, shown = (video_frames(plan, each, None)[-1] for each in (recording, recording._replace(seen=seen)))
    changed = np.argwhere((np.asarray(plain) != np.asarray(shown)).any(-1))[:, ::-1] - [plan.size[1] + 6, 0]
    at = plan.to_pixels(np.float32([[3.0, 0, 2.5], [2.0, 0, 2.5], [4.0, 0, 2.5]]))
    near = [np.linalg.norm(changed - place, axis=1).min() for place in at]
    assert near[0] < 1.5 and near[1] < 1.5 and near[2] > 5  # person and path, not the agent itself
    assert shown.getpixel((round(at[0, 0]) + plan.size[1] + 6, round(at[0, 1]))) == PURPLE


def test_a_film_is_an_mp4_of_all_frames(tmp_path, monkeypatch):
    av = pytest.importorskip("av")
    frames = [Image.new("RGB", (33, 21), (10 * k, 0, 0)) for k in range(10)]
    save_mp4(frames, tmp_path / "episode.mp4", 10)
    with av.open(str(tmp_path / "episode.mp4")) as film:
        pictures = [frame.to_image() for frame in film.decode(video=0)]
    assert len(pictures) == 10 + 15 and pictures[0].size == (34, 22)  # the last frame stays for 1.5 s; sides are even
    assert abs(pictures[8].getpixel((10, 10))[0] - 80) < 12
    assert [p.name for p in tmp_path.iterdir()] == ["episode.mp4"]
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(BatchnavError, match=r"found no PyAV, expected it: pip install 'av>="):
        save_mp4(frames, tmp_path / "other.mp4")


def test_a_drawn_episode_shows_its_path(room):
    _, navmesh = room
    plan, recording = TopDownMap(navmesh, size=SIZE), walk(20)
    draw_episode(plan, recording, np.array([[0.5, 0.0, 0.5], [5.5, 0.0, 3.5]]))
    assert colour_at(plan, 4.0, 0.5) == BLUE
    assert colour_at(plan, 5.5, 3.5) == ORANGE


def test_colours_run_from_near_yellow_to_far_purple_with_dark_holes():
    depth = np.array([[1e-6, 1.0, 0.0, 2.0, np.nan]], np.float32)
    near, far, hole, beyond, nan = colour_depth(depth)[0].tolist()
    assert near == pytest.approx([253, 231, 37], abs=1)
    assert far == beyond == [68, 1, 84]
    assert tuple(hole) == tuple(nan) == HOLE


def test_nearer_is_lighter():
    ramp = colour_depth(np.linspace(0.01, 1.0, 50, dtype=np.float32)[None])[0]
    lightness = ramp @ np.array([0.2126, 0.7152, 0.0722])
    assert (np.diff(lightness) < 0).all()


def test_images_lie_in_rows():
    depth = np.stack([np.full((4, 6), 0.1 + 0.2 * k, np.float32) for k in range(5)])
    image = np.asarray(depth_mosaic(depth, columns=3, scale=2, gap=1))
    assert image.shape == (2 * 8 + 1, 3 * 12 + 2, 3)
    colours = colour_depth(depth)
    for k in range(5):
        y, x = k // 3 * 9, k % 3 * 13
        assert (image[y : y + 8, x : x + 12] == colours[k, 0, 0]).all()
    assert (image[9:, 26:] == 255).all()  # the empty sixth place
    assert (image[8] == 255).all()  # the gap


def test_a_batch_is_nearly_square():
    assert depth_mosaic(np.ones((10, 4, 4), np.float32), gap=0).size == (16, 12)


@pytest.mark.parametrize("shape", [(4, 4), (0, 4, 4), (1, 1, 4, 4)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ArgumentError, match="depth: found shape"):
        depth_mosaic(np.ones(shape, np.float32))
