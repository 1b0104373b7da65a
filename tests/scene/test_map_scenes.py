"""ROS maps as files and as scenes. The expected cells are those of Nav2's map_io, written out pixel by pixel."""

import logging
import math

import numpy as np
import pytest
import yaml
from PIL import Image

import batchnav
from batchnav.data.scenes.prepared import fingerprint
from batchnav.data.scenes.source import mesh_files_in, mesh_source
from batchnav.errors import MeshError
from batchnav.scene.mesh import load_mesh
from batchnav.scene.ros_map import WALL_HEIGHT, RosMap, is_ros_map, map_mesh, read_map, write_map

FIELDS = {
    "image": "office.pgm", "resolution": 0.05, "origin": [-1.0, 2.0, 0.0], "negate": 0, "occupied_thresh": 0.65,
    "free_thresh": 0.196,
}  # fmt: skip


def write_yaml(folder, pixels, name="office.pgm", **fields):
    """A map whose image has these pixels; None leaves out a field."""
    if pixels is not None:
        Image.fromarray(np.asarray(pixels, np.uint8)).save(folder / name)
    fields = {key: value for key, value in (FIELDS | {"image": name} | fields).items() if value is not None}
    path = folder / "office.yaml"
    path.write_text(yaml.safe_dump(fields))
    return path


def nav2_cell(pixel, mode, negate, occupied, free):
    """The value that Nav2's map_io gives a pixel, a tuple of grey or of red, green, blue, and alpha if any."""
    *colours, alpha = pixel if len(pixel) in (2, 4) else (*pixel, None)
    if len(colours) == 1:
        colours = colours * 3
    channels = [*colours, alpha] if mode == "trinary" and alpha is not None else colours
    shade = sum(channels) / len(channels) / 255
    probability = shade if negate else 1 - shade
    if mode == "raw":
        return round(shade * 255) if round(shade * 255) <= 100 else -1
    if mode == "scale" and alpha is not None and alpha < 255:
        return -1
    if probability > occupied:
        return 100
    if probability < free:
        return 0
    return round((probability - free) / (occupied - free) * 100) if mode == "scale" else -1


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("negate", [0, 1, False, True])
@pytest.mark.parametrize("mode", ["trinary", "scale", "raw", None])
def test_cells_are_those_of_nav2(tmp_path, mode, negate, channels):
    pixels = np.random.default_rng(channels).integers(0, 256, (9, 7, channels), dtype=np.uint8)
    pixels[:2, ..., -1] = 255
    path = write_yaml(tmp_path, pixels[..., 0] if channels == 1 else pixels, "office.png", mode=mode, negate=negate)
    found = read_map(path)
    assert found.cells.dtype == np.int8 and found.origin == (-1.0, 2.0, 0.0) and found.resolution == 0.05
    for row in range(9):
        for column in range(7):  # the first row of the image has the largest y
            pixel = tuple(pixels[8 - row, column].tolist())
            assert found.cells[row, column] == nav2_cell(pixel, mode or "trinary", negate, 0.65, 0.196)


def test_other_image_files(tmp_path):
    """Text PGM, 16 bits, other largest values, palettes: as the same 8-bit map."""
    path = write_yaml(tmp_path, None)
    (tmp_path / "office.pgm").write_text("P2\n# by hand\n3 2\n4\n4 4 0\n4 2 0\n")
    cells = [[0, -1, 100], [0, 0, 100]]
    assert read_map(path).cells.tolist() == cells
    deep = np.array([[65535, 65535, 0], [65535, 32768, 0]], np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    assert read_map(write_yaml(tmp_path, None, image="deep.png")).cells.tolist() == cells
    Image.fromarray((deep // 257).astype(np.uint8)).convert("P").save(tmp_path / "few.png")
    assert read_map(write_yaml(tmp_path, None, image="few.png")).cells.tolist() == cells
    assert read_map(write_yaml(tmp_path, None, image=str(tmp_path / "few.png"))).cells.tolist() == cells


def test_unknown_cells_of_map_saver_stay_unknown(tmp_path, caplog):
    """Older versions of Nav2's map_saver write 205 for unknown cells and free_thresh 0.25, which is above."""
    path = write_yaml(tmp_path, [[254, 205, 0]], free_thresh=0.25)
    with caplog.at_level(logging.WARNING):
        assert read_map(path).cells.tolist() == [[0, -1, 100]]
    assert "1 pixels of 205" in caplog.text and "expected free_thresh 0.196" in caplog.text
    assert read_map(write_yaml(tmp_path, [[254, 205, 1]], free_thresh=0.25)).cells.tolist() == [[0, 0, 100]]


@pytest.mark.parametrize("negate", [0, 1])
@pytest.mark.parametrize("mode", ["L", "RGB", "P", "LA", "RGBA", "I;16"])
def test_unknown_cells_are_unknown_in_images_of_every_kind(tmp_path, mode, negate):
    """Alpha counts as a colour in Nav2's rules, which lifts 205 above any threshold."""
    shades = np.array([[254, 205, 0], [205, 254, 255]], np.uint8)
    image = Image.fromarray(255 - shades if negate else shades)
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image).astype(np.uint16) * 257)
    else:
        image = image.convert(mode)
    image.save(tmp_path / "map.png")
    for free in (0.196, 0.25):
        path = write_yaml(tmp_path, None, image="map.png", negate=negate, free_thresh=free)
        assert read_map(path).cells.tolist() == [[-1, 0, 0], [0, -1, 100]]


def test_a_written_map_reads_back(tmp_path):
    cells = np.random.default_rng(0).choice(np.array([0, 100, -1], np.int8), (6, 11))
    grid = RosMap(cells, 0.05, (-3.25, 1.5, 0.7), inflated_by=0.18)
    write_map(grid, tmp_path / "maps" / "office.yaml", "An office\nof two lines")
    found = read_map(tmp_path / "maps" / "office.yaml")
    assert (found.cells == cells).all() and found.origin == grid.origin and found.resolution == 0.05
    assert found.inflated_by == 0.18
    text = (tmp_path / "maps" / "office.yaml").read_text()
    assert text.startswith("# An office\n# of two lines\nimage: office.pgm\nmode: trinary\n")
    data = (tmp_path / "maps" / "office.pgm").read_bytes()
    assert data.startswith(b"P5\n11 6\n255\n")
    assert list(data[-66:][:11]) == [{0: 254, 100: 0, -1: 205}[value] for value in cells[-1].tolist()]
    with pytest.raises(MeshError, match=r"office.pgm: found suffix '.pgm', expected .yaml"):
        write_map(grid, tmp_path / "office.pgm")


def test_a_map_has_both_files_or_none(tmp_path):
    grid = RosMap(np.zeros((6, 11), np.int8), 0.05, (0.0, 0.0, 0.0))
    (tmp_path / "office.yaml").mkdir()
    with pytest.raises(MeshError, match=r"office\.yaml: cannot be written"):
        write_map(grid, tmp_path / "office.yaml")
    assert [path.name for path in tmp_path.iterdir()] == ["office.yaml"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"origin": None}, r"field 'origin': found None, expected \[x, y, yaw\]"),
        ({"origin": [0.0, 1.0]}, r"field 'origin': found \[0.0, 1.0\], expected \[x, y, yaw\]"),
        ({"origin": [0.0, 1.0, "left"]}, "field 'origin': found 'left', expected a number"),
        ({"mode": "quaternary"}, "field 'mode': found 'quaternary', expected one of trinary, scale, raw"),
        ({"mode": ["raw"]}, "field 'mode': found .*'raw'.*, expected one of"),
        ({"resolution": 0}, "field 'resolution': found 0, expected a number from 0.0001"),
        ({"resolution": float("nan")}, "field 'resolution': found nan, expected a number"),
        ({"negate": None}, "field 'negate': found None, expected 0 or 1"),
        ({"negate": 2}, "field 'negate': found 2, expected 0 or 1"),
        ({"free_thresh": 0.7}, "field 'free_thresh': found 0.7, expected less than occupied_thresh, 0.65"),
        ({"occupied_thresh": None}, "field 'occupied_thresh': found None, expected a number from 0 to 1"),
        ({"image": 3}, "field 'image': found 3, expected the path of an image"),
        ({"image": "none.pgm"}, "image 'none.pgm': .*none.pgm: cannot be read"),
        ({"image": "../../elsewhere.pgm"}, "image '../../elsewhere.pgm': lies outside"),
        ({"image": "/dev/null"}, "image '/dev/null': lies outside"),
        ({"image": "office.yaml"}, r"image 'office.yaml': is not an image of PNG, .*, PPM .*\)"),
    ],
)
def test_what_is_no_map_is_refused(tmp_path, fields, message):
    path = write_yaml(tmp_path, [[254, 254], [254, 0]], **{"image": "office.pgm", **fields})
    with pytest.raises(MeshError, match=f"^{path}: {message}"):
        load_mesh(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"P5\n40 30\n255\n" + bytes(1000), "found 40 x 30 pixels in its header and 1000 bytes after it"),
        (b"P5\n0 30\n255\n", "is not an image|has 0 x 30 pixels"),
        (b"P5\n100000 100000\n255\n", "has 100000 x 100000 pixels, expected at most"),
        (b"P5\n9000 9000\n255\n", "has 9000 x 9000 pixels, expected at most 67108864"),
        (b"\x89PNG\r\n\x1a\n" + bytes(20), "is not an image of"),
        (
            b"P5\n2 2\n255\n" + bytes(4),
            r"found no free cell \(4 occupied, 0 unknown of 4\), expected some; check negate",
        ),
    ],
)
def test_images_of_another_size_are_refused(tmp_path, data, message):
    path = write_yaml(tmp_path, None)
    (tmp_path / "office.pgm").write_bytes(data)
    with pytest.raises(MeshError, match=f"^{path}: .*({message})"):
        load_mesh(path)


def test_files_that_hold_no_fields_are_refused(tmp_path):
    path = tmp_path / "office.yaml"
    for text, message in (
        ("[1, 2", "is not YAML"),
        ("just text", "found .just text., expected the fields of"),
    ):
        path.write_text(text)
        with pytest.raises(MeshError, match=f"^{path}: {message}"):
            load_mesh(path)
        assert not is_ros_map(path)


def areas(mesh):
    """Sum of the triangles' normals times their areas, f64 [3], for each category."""
    a, b, c = (mesh.vertices[mesh.faces[:, k]].astype(np.float64) for k in range(3))
    normals = np.cross(b - a, c - a) / 2
    names = mesh.surface.categories
    return {name: normals[mesh.surface.category == k] for k, name in enumerate(names) if name}


@pytest.mark.parametrize("seed", range(4))
def test_walls_enclose_the_free_cells(tmp_path, seed):
    """Closed form: floor and ceiling have the area of the free cells, walls that of their edges; all face inwards."""
    cells = np.random.default_rng(seed).choice(np.array([0, 0, 0, 100, -1], np.int8), (12, 17))
    write_map(RosMap(cells, 0.5, (3.0, -2.0, 0.0)), tmp_path / "noise.yaml")
    mesh = load_mesh(tmp_path / "noise.yaml")
    free = np.pad(cells == 0, 1)
    edges = sum((free & ~np.roll(free, step, axis)).sum() for step in (1, -1) for axis in (0, 1))
    area = areas(mesh)
    assert area["floor"].sum(0) == pytest.approx([0, free.sum() * 0.25, 0], abs=1e-4)
    assert area["ceiling"].sum(0) == pytest.approx([0, -free.sum() * 0.25, 0], abs=1e-4)
    assert np.linalg.norm(area["wall"], axis=1).sum() == pytest.approx(edges * 0.5 * WALL_HEIGHT, rel=1e-6)
    a, b, c = (mesh.vertices[mesh.faces[:, k]].astype(np.float64) for k in range(3))
    volume = -np.einsum("ij,ij->i", a, np.cross(b, c)).sum() / 6  # a closed surface; faces look inwards
    assert volume == pytest.approx(free.sum() * 0.25 * WALL_HEIGHT, rel=1e-5)


@pytest.mark.parametrize("yaw", [0.0, 0.7, -2.0, math.pi / 2])
def test_the_frame_of_ros(tmp_path, yaw):
    """A column x, y of the map stands at (-y, -x) in the scene, turned by yaw about the map's corner."""
    cells = np.full((40, 60), 100, np.int8)
    cells[4:36, 5:55] = 0
    cells[20:36, 25:55] = 100  # an L
    write_map(RosMap(cells, 0.1, (1.0, -2.0, yaw)), tmp_path / "l.yaml")
    scene = batchnav.load_scene(tmp_path / "l.yaml")
    assert scene.name == "l" and scene.categories == ("", "floor", "ceiling", "wall")
    assert scene.navmesh.num_islands == 1

    def at(column, row):
        u, v = column * 0.1, row * 0.1
        x, y = 1.0 + math.cos(yaw) * u - math.sin(yaw) * v, -2.0 + math.sin(yaw) * u + math.cos(yaw) * v
        return [-y, 0.0, -x]

    inside = [at(7, 6), at(53, 6), at(53, 18), at(23, 34), at(7, 34)]
    outside = [at(3, 6), at(7, 2), at(57, 6), at(53, 22), at(27, 34), at(7, 38)]
    assert scene.navmesh.is_navigable(np.array(inside, np.float32)).all()
    assert not scene.navmesh.is_navigable(np.array(outside, np.float32)).any()
    straight = np.hypot(46 * 0.1, 16 * 0.1)
    assert scene.navmesh.geodesic_distance(*np.array([at(53, 18), at(7, 34)], np.float32)) > straight * 1.02


@pytest.mark.parametrize("yaw", [0.0, 0.4])
def test_a_camera_sees_the_walls(tmp_path, yaw):
    """Heading 0 of the scene is x of ROS; the walls of a turned map are at its angle."""
    cells = np.full((50, 50), 100, np.int8)
    cells[5:45, 5:45] = 0
    write_map(RosMap(cells, 0.1, (0.0, 0.0, yaw)), tmp_path / "room.yaml")
    scene = batchnav.load_scene(tmp_path / "room.yaml")
    x, y = (math.cos(yaw) - math.sin(yaw)) * 2.5, (math.cos(yaw) + math.sin(yaw)) * 2.5  # the centre of the room
    eyes = np.array([[-y, 1.0, -x]] * 4, np.float32)
    headings = np.array([yaw, yaw + math.pi / 2, yaw + math.pi, yaw - math.pi / 2], np.float32)
    seen = batchnav.render(scene, eyes, headings, sensors=("depth",), height=16, width=16)["depth"]
    depth = np.asarray(seen, np.float64).reshape(4, 16, 16)
    assert (depth > 0).all(), "the room is closed"
    scale = depth[:, 8, 8] / depth[0, 8, 8]
    assert scale == pytest.approx(1.0, rel=1e-4)


def test_a_map_is_a_scene_file(tmp_path, caplog):
    """In folders, with its image in the fingerprint; other YAML files are no scenes."""
    cells = np.zeros((40, 40), np.int8)
    write_map(RosMap(cells, 0.1, (0.0, 0.0, 0.0), inflated_by=0.1), tmp_path / "a.yaml")
    (tmp_path / "config.yaml").write_text("image: a.pgm\n")
    assert mesh_files_in(tmp_path) == [tmp_path / "a.yaml"]
    source = mesh_source(tmp_path / "a.yaml")
    assert tmp_path / "a.pgm" in source.files
    before = fingerprint(source)
    (tmp_path / "a.pgm").write_bytes((tmp_path / "a.pgm").read_bytes() + b"\n")
    assert fingerprint(source) != before
    with caplog.at_level(logging.WARNING):
        (scene,) = batchnav.load_scenes([str(tmp_path)])
    assert "a.yaml: its free space is shrunk by 0.1 m" in caplog.text
    assert scene.navmesh.area == pytest.approx(3.8 * 3.8, rel=0.1)
    assert load_mesh(tmp_path / "a.yaml", appearance=False).surface is None


def test_maps_with_too_many_walls_are_refused(monkeypatch):
    monkeypatch.setattr("batchnav.scene.ros_map.MOST_QUADS", 10)
    grid = RosMap(np.indices((8, 8)).sum(0).astype(np.int8) % 2 * 100, 0.1, (0.0, 0.0, 0.0))
    with pytest.raises(MeshError, match="has 192 walls and pieces of floor, expected at most 10"):
        map_mesh(grid)


def test_the_map_of_a_real_house(shared):
    """The map that others recorded in a house, against the house's mesh: (x, y) of ROS is (x, -z) of that file."""
    house = batchnav.load_scene(shared / "scenes/aws_small_house/aws_small_house.glb", appearance=False)
    mapped = batchnav.load_scene(shared / "scenes/aws_small_house/maps/map.yaml", appearance=False)
    points = house.navmesh.sample(1000, island="largest")
    points = np.stack([points[:, 2], np.zeros(1000, np.float32), -points[:, 0]], axis=1)
    assert mapped.navmesh.is_navigable(points).mean() > 0.93
