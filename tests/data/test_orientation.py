"""Warnings about the up axis and the winding of meshes: rooms as they are, turned over, and on their side."""

import itertools
import re

import numpy as np
import pytest
import trimesh
from geometry import AXES, hall, shell, slab, turned, write
from worlds import as_mesh

from batchnav.cli import data as cli
from batchnav.data.scenes.asset import FileAxes, frame_of
from batchnav.data.scenes.load import load_scene
from batchnav.data.scenes.orientation import mesh_warnings
from batchnav.data.scenes.prepared import load_prepared
from batchnav.data.validate import validate
from batchnav.errors import MeshError, NavMeshError
from batchnav.procedural import FAMILIES
from batchnav.scene import scene as scenes
from batchnav.scene.axes import rotation_of

FURNITURE = [
    slab((0.3, 0, 0.3), (1.3, 2.0, 0.9)), slab((2.0, 0.7, 1.5), (3.8, 0.75, 2.5)), slab((4.6, 0, 0.4), (5.7, 0.8, 3.0)),
    slab((0.3, 0, 2.8), (2.2, 0.45, 3.7)),
]  # fmt: skip
"""A wardrobe, a table without legs, a kitchen counter and a bench."""


def furnished(room):
    return trimesh.util.concatenate([room, *FURNITURE])


def warnings_in_file(mesh, up, frame=None):
    """Warnings about a mesh in a file whose axis `up` points up, loaded as one with +Y up or with `frame`."""
    stored = mesh._replace(vertices=mesh.vertices @ rotation_of(up).astype(np.float32))
    frame = frame or FileAxes()
    loaded = stored._replace(vertices=(stored.vertices @ frame.rotation.T).astype(np.float32))
    return list(mesh_warnings(loaded, "m", frame))


SHAPES = [
    (6, 4, 2.6), (2, 15, 2.5), (1.2, 12, 2.6), (15, 2, 2.5), (2, 2.2, 2.6), (1.6, 2.4, 2.5), (1.2, 1.4, 2.4),
    (1.5, 1.5, 2.3), (10, 25, 14), (12, 12, 12), (8, 30, 20), (4, 4, 6), (3, 3, 9), (5, 5, 5), (3, 4, 2.7), (20, 30, 4),
    (40, 25, 7), (5, 3, 3.4), (2.5, 2.5, 2.5), (3, 20, 6),
]  # fmt: skip
"""Width, depth and height of rooms, metres: houses, hallways, bathrooms, lifts, churches, towers, halls."""
PIECES = [(1.0, 2.0, 0.6), (1.6, 0.75, 0.8), (0.5, 0.9, 0.5), (1.8, 0.45, 0.9), (0.6, 0.8, 0.6), (0.4, 1.4, 0.4)]
"""Width, height and depth of furniture, metres; the second is a table with legs."""


def furniture_of(width, depth, height, rng):
    """Furniture along the walls and in the middle of a room, a lamp or none."""
    found = []
    for _ in range(min(max(2, int(width * depth / 6)), 60)):
        kind = rng.integers(len(PIECES))
        (x, y, z), turns = PIECES[kind], rng.random() < 0.5
        x, z = (z, x) if turns else (x, z)
        x, y, z = min(x, 0.45 * width), min(y, 0.8 * height), min(z, 0.45 * depth)
        u, v, side = rng.uniform(0, width - x), rng.uniform(0, depth - z), rng.integers(6)
        u, v = [0.02, width - x - 0.02, u, u, u, u][side], [v, v, 0.02, depth - z - 0.02, v, v][side]
        legs = [(u + a, v + b) for a in (0.0, x - 0.05) for b in (0.0, z - 0.05)] if kind == 1 else []
        found += [slab((a, 0, b), (a + 0.05, y - 0.05, b + 0.05)) for a, b in legs]
        found.append(slab((u, y - 0.05 if legs else 0, v), (u + x, y, v + z)))
    if rng.random() < 0.5:
        found.append(slab((width / 2, height - 0.4, depth / 2), (width / 2 + 0.4, height - 0.25, depth / 2 + 0.4)))
    return found


def furnished_room(shape, solid, seed):
    """A room of walls with thickness, or of single faces, every third without a ceiling."""
    width, depth, height = shape
    if solid:
        room = hall(width, depth, height)
    else:
        room = trimesh.creation.box(bounds=[(0, 0, 0), (width, height, depth)])
        room.invert()
        if seed % 3 == 0:
            room.update_faces(room.triangles_center[:, 1] < height - 0.01)
    return as_mesh(trimesh.util.concatenate([room, *furniture_of(*shape, np.random.default_rng(seed))]))


def test_the_axis_of_forty_furnished_rooms_is_never_wrong():
    """No room that stands is doubted, and no wrong axis is named; of rooms on a side, few of two objects are silent."""
    silent = named = 0
    for seed, (shape, solid) in enumerate(itertools.product(SHAPES, (True, False))):
        mesh = furnished_room(shape, solid, seed)
        for up in AXES:
            found = warnings_in_file(mesh, up)
            if up == "y":
                assert not found, (shape, solid)
                continue
            silent += not found
            axes = [re.search(r"--up (\S+)`", text)[1] for text in found]
            assert set(axes) <= {up, "AXIS"}, (shape, solid, up, found)
            named += axes == [up]
    assert silent <= 5 and named >= 90


ROOMS = {"walls with thickness": hall, "single faces": shell, "no ceiling": lambda: shell(ceiling=False)}


@pytest.mark.parametrize("up", AXES)
@pytest.mark.parametrize("kind", ROOMS)
def test_the_axis_of_a_furnished_room_is_found(kind, up):
    room = as_mesh(furnished(ROOMS[kind]()))
    assert not warnings_in_file(room, up, frame_of(up))
    found = warnings_in_file(room, up)
    if up == "y":
        assert not found
    else:
        assert len(found) == 1
        assert f"is +Y up? `batchnav data import --up {up}` and `load_scene(up='{up}')` turn it" in found[0]


@pytest.mark.parametrize("given, right", [("z", "-z"), ("-x", "x"), ("z", "y"), ("x", "-y"), ("y", "-z")])
def test_the_axis_is_that_of_the_file_where_another_one_was_given(given, right):
    (found,) = warnings_in_file(as_mesh(furnished(hall())), right, frame_of(given))
    assert f"`batchnav data import --up {right}`" in found


def test_without_the_frame_of_the_file_no_axis_is_named():
    room = as_mesh(furnished(hall()))
    (found,) = mesh_warnings(room._replace(vertices=room.vertices * np.float32([1, -1, -1])), "m")
    assert found.endswith("is +Y up? `batchnav data import --up AXIS` and `load_scene(up=...)` turn it")


@pytest.mark.parametrize("room", [hall(), shell(), shell(ceiling=False), hall(12.0, 9.0, 4.0)])
def test_an_empty_room_is_no_warning(room):
    assert not list(mesh_warnings(as_mesh(room), "m", FileAxes()))


def test_an_empty_room_with_a_ceiling_is_not_called_upside_down():
    for room in (hall(), shell()):
        assert not warnings_in_file(as_mesh(room), "-y")


def test_beams_lamps_and_low_ceilings_are_no_warning():
    """An empty room 2.6 m high: things hang above head height, from a third of its ceiling."""
    beams = [slab((x, 2.2, 0), (x + 0.5, 2.6, 4)) for x in (0.5, 2.0, 3.5, 5.0)]
    assert not list(mesh_warnings(as_mesh(trimesh.util.concatenate([hall(), *beams])), "m", FileAxes()))


def test_an_upright_room_with_reversed_windings_is_flipped_not_turned():
    for room in (shell(), shell(ceiling=False), furnished(shell(ceiling=False))):
        room.invert()
        (found,) = mesh_warnings(as_mesh(room), "m", FileAxes())
        assert "--flip" in found and "--up" not in found


@pytest.mark.parametrize("name", FAMILIES)
def test_procedural_scenes_have_no_warning(name):
    for seed in (0, 2, 7):
        assert not list(mesh_warnings(FAMILIES[name].meshes(seed, False)[1], "m", FileAxes())), seed


def test_a_procedural_house_upside_down_is_found():
    for seed in (0, 1):
        (found,) = warnings_in_file(FAMILIES["house"].meshes(seed, False)[1], "-y")
        assert "objects rest on a surface below them" in found and "--up -y" in found


def test_import_and_validate_name_the_axis(tmp_path, capsys, monkeypatch, caplog):
    monkeypatch.setattr(scenes, "cache_folder", lambda: tmp_path / "cache")
    path = write(turned(furnished(hall()), AXES["-y"]), tmp_path / "scan.obj")
    cli.command(["import", str(path), "--out", str(tmp_path / "out")])
    assert "warning: " in (said := capsys.readouterr().out) and "`batchnav data import --up -y`" in said
    assert any("--up -y" in finding.text for finding in validate(path) if finding.level == "warning")
    load_scene(path)
    assert "--up -y" in caplog.text
    cli.command(["import", str(path), "--out", str(tmp_path / "out"), "--up", "-y"])
    assert "--up -y" not in capsys.readouterr().out
    scene = load_prepared(tmp_path / "out" / "scan.scene")
    assert np.allclose(scene.mesh.vertices, furnished(hall()).vertices, atol=1e-5)


def test_import_names_the_axis_where_no_navmesh_can_be_baked(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(scenes, "cache_folder", lambda: tmp_path / "cache")
    path = write(turned(shell(ceiling=False), AXES["-y"]), tmp_path / "scan.obj")
    with pytest.raises(SystemExit):
        cli.command(["import", str(path), "--out", str(tmp_path / "out")])
    said = capsys.readouterr().out
    assert "error: " in said and "faces down to its walls: is +Y up? `batchnav data import --up -y`" in said
    with pytest.raises(NavMeshError, match="none of them flatter"):
        load_scene(path)


def test_an_axis_that_only_the_layout_of_a_dataset_states_is_checked(tmp_path, monkeypatch):
    """A file that is +Y up is refused below `scene_datasets`, whose .glb files are +Z up; a stated axis counts."""
    monkeypatch.setattr(scenes, "cache_folder", lambda: tmp_path / "cache")
    folder = tmp_path / "scene_datasets" / "mine"
    folder.mkdir(parents=True)
    path = write(furnished(hall()), folder / "house.glb")
    with pytest.raises(MeshError, match=r"house\.glb: found a mesh that looks \+Y up in a folder .*`--up y`"):
        load_scene(path)
    assert load_scene(path, up="y").mesh.vertices[:, 1].max() == pytest.approx(2.8)
    write(turned(furnished(hall()), AXES["z"]), path)
    assert load_scene(path).mesh.vertices[:, 1].max() == pytest.approx(2.8)
    write(furnished(hall()), path)
    (folder / "house.stage_config.json").write_text('{"render_asset": "house.glb", "up": [0, 1, 0]}')
    assert load_scene(path).mesh.vertices[:, 1].max() == pytest.approx(2.8)
