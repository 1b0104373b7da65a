import numpy as np
import pytest
import torch
import trimesh
from geometry import AXES, DEPTH, HEIGHT, WIDTH, hall, shell, slab, turned, write

from batchnav.cli import data as cli
from batchnav.data.episodes import Episode, Goal, rotation_of
from batchnav.data.formats import EpisodeDataset
from batchnav.data.goals.point import generate_episodes
from batchnav.data.play import check_episodes
from batchnav.data.scenes.datasets import load_dataset
from batchnav.data.scenes.islands import ceiling_above, first_hits
from batchnav.data.scenes.load import load_scene
from batchnav.data.scenes.prepared import load_prepared, prepare, save_prepared
from batchnav.data.scenes.source import mesh_source
from batchnav.data.validate import validate
from batchnav.errors import ArgumentError, MeshError, NavMeshError
from batchnav.navmesh.islands import list_islands, main_island
from batchnav.navmesh.navmesh import NavMesh
from batchnav.renderers.raycast import RaycastRenderer
from batchnav.scene import scene as scenes
from batchnav.scene.bank import SceneBank
from batchnav.scene.mesh import load_mesh
from batchnav.scene.scene import make_scene
from batchnav.types import TriangleMesh

FAR_AWAY = np.array([500000.0, 120.0, 5400000.0])


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """An empty cache of navmeshes."""
    monkeypatch.setattr(scenes, "cache_folder", lambda: tmp_path / "cache")


def texts(path, level="warning"):
    """What validation finds of a level."""
    return [finding.text for finding in validate(path) if finding.level == level]


def depth_ahead(scene, point):
    """Metres to the wall in direction -Z, at eye height."""
    renderer = RaycastRenderer(SceneBank.pack([scene]), 1, 1, 1)
    eye = torch.tensor(point, dtype=torch.float32)[None] + torch.tensor([0.0, 1.25, 0.0])
    return float(renderer.render(torch.zeros(1, dtype=torch.int32), eye, torch.zeros(1)))


def moved_hall(offset):
    mesh = hall()
    mesh.vertices = mesh.vertices + offset
    return mesh


@pytest.mark.parametrize("offset", [(0, 0, 0), (9000, 120, -9900), (40000.3, 0, 0), FAR_AWAY, -FAR_AWAY])
def test_a_room_far_from_the_origin_is_as_it_is_near(tmp_path, offset, caplog):
    scene = load_scene(write(moved_hall(offset), tmp_path / "room.obj"), islands="indoor")
    near = np.array(offset) - scene.origin
    assert scene.origin.dtype == np.float64 and np.abs(near).max() <= 16384
    ends = np.add(near, [(1.0, 0.05, 2.0), (5.0, 0.05, 2.0)]).astype(np.float32)
    assert scene.navmesh.geodesic_distance(*ends) == pytest.approx(4.0, abs=2e-3)
    assert scene.navmesh.area == pytest.approx(21.4, abs=0.8)
    assert depth_ahead(scene, np.add(near, (3.0, 0.0, 2.3))) == pytest.approx(2.3, abs=2e-3)
    is_far = np.abs(offset).max() > 16384
    assert sum("is far from the origin" in record.getMessage() for record in caplog.records) == is_far
    assert any("subtracts" in text for text in texts(tmp_path / "room.obj")) == is_far


def test_a_prepared_scene_keeps_its_origin(tmp_path):
    scene = load_scene(write(moved_hall(FAR_AWAY), tmp_path / "room.obj"))
    save_prepared(scene, tmp_path / "room.scene")
    assert (load_prepared(tmp_path / "room.scene").origin == scene.origin).all() and scene.origin[2] > 5e6
    assert any("subtracts" in text for text in texts(tmp_path / "room.scene"))


def test_a_mesh_in_memory_and_its_navmesh_are_moved_together():
    offset = (20000.0, 0.0, 0.0)
    near, far = hall(), moved_hall(offset)
    navmesh = NavMesh.bake(TriangleMesh(near.vertices.astype(np.float32), near.faces.astype(np.int32)))
    scene = make_scene("far", TriangleMesh(far.vertices, far.faces.astype(np.int32)), navmesh.moved(offset))
    assert scene.navmesh.geodesic_distance(
        np.float32(offset - scene.origin + [1, 0, 2]), np.float32(offset - scene.origin + [5, 0, 2])
    ) == pytest.approx(4.0, abs=5e-3)
    with pytest.raises(NavMeshError, match=r"steps of 0\.002 m, expected up to 16384 m"):
        NavMesh.bake(TriangleMesh(far.vertices.astype(np.float32), far.faces.astype(np.int32)))


def test_coordinates_that_a_file_has_lost_are_refused(tmp_path):
    mesh = moved_hall(FAR_AWAY)
    mesh.vertices = mesh.vertices.astype(np.float32)
    with pytest.raises(MeshError, match=r"steps of 0\.\d+ m \(float32\)"):
        load_mesh(write(mesh, tmp_path / "room.stl"))


def test_georeferenced_episodes_and_navmeshes_are_shifted(tmp_path):
    offset = np.array([40000.0, 0.0, 0.0])
    path = write(moved_hall(offset), tmp_path / "room.obj")
    scene = load_scene(path)
    scene.navmesh.moved(scene.origin).save(tmp_path / "room.navmesh")
    again = load_scene(path)
    assert np.allclose(again.navmesh.bounds, scene.navmesh.bounds, atol=0.005)
    scene.navmesh.save(tmp_path / "room.navmesh")  # in the frame of the scene
    assert np.array_equal(load_scene(path).navmesh.bounds, scene.navmesh.bounds)
    goal = Goal((40005.0, 0.05, 2.0))
    episode = Episode("0", scene.name, (40001.0, 0.05, 2.0), rotation_of(0.0), (goal,))
    (shifted,) = check_episodes([episode], {scene.name: scene})
    assert shifted.start_position[0] == pytest.approx(40001.0 - scene.origin[0])
    assert check_episodes([shifted], {scene.name: scene}) == [shifted]
    EpisodeDataset([Episode("0", str(path), episode.start_position, episode.start_rotation, (goal,))]).save(
        tmp_path / "e.json.gz"
    )
    assert not texts(tmp_path / "e.json.gz", "error")


def test_a_data_set_shifts_its_georeferenced_episodes(tmp_path):
    offset = np.array([40000.0, 0.0, 0.0])
    z_up = moved_hall(offset)
    z_up.vertices = np.stack([z_up.vertices[:, 0], -z_up.vertices[:, 2], z_up.vertices[:, 1]], axis=1)
    folder = tmp_path / "scene_datasets" / "own"
    folder.mkdir(parents=True)
    write(z_up, folder / "room.glb")
    episode = Episode("0", "own/room.glb", (40001.0, 0.05, 2.0), rotation_of(0.0), (Goal((40005.0, 0.05, 2.0)),))
    EpisodeDataset([episode]).save(tmp_path / "datasets" / "pointnav" / "own" / "v1" / "val" / "val.json.gz")
    data = load_dataset(folder, "val")
    table, (scene,) = data.episode_table(), data.load_scenes(islands="indoor")
    assert table.start[0].tolist() == pytest.approx([40001.0 - scene.origin[0], 0.05, 2.0], abs=1e-3)
    assert table.goal[0, 0] == pytest.approx(40005.0 - scene.origin[0], abs=1e-3)
    table.check(SceneBank.pack([scene]))
    assert scene.navmesh.area < data.load_scenes()[0].navmesh.area  # without the roof


def test_a_room_seen_from_outside_is_named_and_flipped(tmp_path, caplog):
    room = shell()
    good = load_scene(write(room, tmp_path / "good.obj"))
    assert main_island(good.navmesh.data).height < 0.3 and not caplog.records
    assert not any("faces look" in text for text in texts(tmp_path / "good.obj"))
    room.invert()
    path = write(room, tmp_path / "inverted.obj")
    load_scene(path)
    assert "its faces look outwards" in caplog.text and "--flip" in caplog.text
    assert any("its faces look outwards" in text for text in texts(path))
    flipped = load_scene(path, flip=True)
    assert flipped.navmesh.area == pytest.approx(good.navmesh.area)
    assert main_island(flipped.navmesh.data).height < 0.3
    assert np.array_equal(load_mesh(path, flip=True).faces, good.mesh.faces)


def test_a_floor_that_faces_down_is_named_flipped_and_walked_on_both_sides(tmp_path, caplog):
    room = shell(ceiling=False)
    room.invert()
    path = write(room, tmp_path / "floor.obj")
    with pytest.raises(NavMeshError, match="none of them flatter"):
        load_scene(path)
    assert "are its faces the wrong way round" in caplog.text and "--two-sided" in caplog.text
    for how in ({"flip": True}, {"two_sided": True}):
        assert load_scene(path, **how).navmesh.area == pytest.approx(21.4, abs=0.8)


def test_furnished_rooms_and_slabs_face_the_right_way(tmp_path):
    things = [hall(), slab((1, 0, 1), (2, 2.2, 1.6)), slab((3, 0, 1), (4, 0.7, 2))]
    for k, mesh in enumerate((things[0], things[1] + things[0], things[2] + shell(), shell(ceiling=False))):
        assert not any("--flip" in text for text in texts(write(mesh, tmp_path / f"{k}.obj")))


def test_a_house_on_its_side_is_named_when_it_is_loaded(tmp_path, caplog):
    path = write(turned(hall(), [(1, 0, 0), (0, 0, -1), (0, 1, 0)]), tmp_path / "side.glb")  # +Z up
    load_scene(path)
    assert "is +Y up?" in caplog.text
    caplog.clear()
    upright = load_scene(path, up="z", islands="indoor")
    (record,) = caplog.records
    assert "left out 1 island of" in record.getMessage()  # the roof, and no word on axes
    assert np.ptp(upright.mesh.vertices, axis=0)[1] == pytest.approx(HEIGHT + 0.4)


@pytest.mark.parametrize("up", AXES)
def test_any_axis_may_point_up(tmp_path, up, capsys):
    path = write(turned(hall(), AXES[up]), tmp_path / "room.obj")
    upright = hall()
    assert np.allclose(load_mesh(path, up=up).vertices, upright.vertices, atol=1e-6)
    cli.command(["import", str(path), "--out", str(tmp_path / "out"), "--up", up])
    scene = load_prepared(tmp_path / "out" / "room.scene")
    assert np.allclose(scene.mesh.vertices, upright.vertices, atol=1e-6)
    said = capsys.readouterr().out
    sign, axis = up[:-1] or "+", up[-1].upper()
    assert f"prepared, {sign}{axis} up" in said and "6.40 x 3.00 x 4.40 m (x, y, z)" in said
    assert "floor at y = 0.20 m" in said and "ceiling above 100% of it, 1 island" in said


def test_an_axis_that_is_none_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="up: found 'w', expected one of auto, x, y, z, -x"):
        load_mesh(tmp_path / "room.obj", up="w")


def test_millimetres_are_suggested_and_scaled(tmp_path, capsys):
    mesh = hall()
    mesh.vertices = mesh.vertices * 1000.0
    path = write(mesh, tmp_path / "room.obj")
    with pytest.raises(SystemExit):
        cli.command(["import", str(path), "--out", str(tmp_path / "out")])
    assert "in millimetres, import it with `--scale 0.001`" in capsys.readouterr().out
    assert any("--scale 0.001" in text for text in texts(path))
    cli.command(["import", str(path), "--out", str(tmp_path / "out"), "--scale", "0.001"])
    assert "6.40 x 3.00 x 4.40 m" in capsys.readouterr().out
    with pytest.raises(ArgumentError, match="scale"):
        load_scene(path, scale=0.0)


def test_roofs(tmp_path, capsys, caplog):
    path = write(hall(12.0, 8.0, 10.0), tmp_path / "warehouse.obj")
    scene = load_scene(path)
    assert "has no ceiling above, as a roof" in caplog.text
    floor, roof = sorted(list_islands(scene.navmesh.data), key=lambda island: island.height)
    assert roof.area > floor.area and roof.height > 10 and ceiling_above(scene)[floor.number] == 1.0
    assert main_island(scene.navmesh.data) == floor
    for rule in ("indoor", str(floor.number)):
        starts = [e.start_position[1] for e in generate_episodes(scene, 40, islands=rule)]
        assert max(starts) < 1.0
        caplog.clear()
        for _ in range(2):  # the second is read from the cache
            assert load_scene(path, islands=rule).navmesh.num_islands == 1
        assert caplog.text.count(f"left out 1 island of {roof.area:.1f} m²") == 2 and 'islands="all"' in caplog.text
    assert min(e.start_position[1] for e in generate_episodes(scene, 40, islands="largest")) > 9.0
    assert generate_episodes(scene, 40) == generate_episodes(scene, 40, islands="all")
    (note,) = texts(path, "note")
    assert "episodes take place on 2 islands" in note and f"{floor}, ceiling above 100%" in note
    assert any("--islands indoor" in text for text in texts(path))
    with pytest.raises(ArgumentError, match="islands: found 'outdoor'"):
        load_scene(path, islands="outdoor")
    with pytest.raises(ArgumentError, match="expected a number from 0 to 1"):
        load_scene(path, islands="7")
    cli.command(["make-episodes", str(path), "--out", str(tmp_path / "e.json.gz"), "--per-scene", "20"])
    assert "left out 1 island of" in capsys.readouterr().out


def imported(path, rule, out):
    """Walkable area after an import, and its warnings."""
    (outcome,) = prepare([mesh_source(path).adjusted(islands=rule)], out)
    return load_prepared(outcome.path).navmesh.area, " ".join(outcome.warnings)


def test_the_floor_of_a_hall_without_a_roof_is_kept(tmp_path):
    """Indoors are only the lower boards of shelves, small beside the floor; all boards are named and left out."""
    floor = [slab((0, -0.2, 0), (16, 0, 12))]
    shelves = [slab((2, y, 2), (6, y + 0.1, 6)) for y in (0.6, 2.8)]  # a board of 4 x 4 m, and one above
    path = write(trimesh.util.concatenate(floor + shelves), tmp_path / "hall.obj")
    whole = load_scene(path).navmesh.area
    area, text = imported(path, "indoor", tmp_path / "out")
    assert 150 < area < whole - 20 and "left out 2 islands of" in text and "y = 0.8" in text and "y = 3.0" in text
    assert load_scene(path, islands="indoor").navmesh.area == pytest.approx(area)
    assert imported(path, "all", tmp_path / "all") == (pytest.approx(whole), "")
    storeys = [slab((0, 2.8, 0), (9, 3.0, 12)), slab((0, 5.8, 0), (16, 6.0, 12))]  # another storey, and a roof
    path = write(trimesh.util.concatenate([*floor, *storeys]), tmp_path / "gallery.obj")
    area, text = imported(path, "indoor", tmp_path / "out")
    assert area > 250 and "left out 1 island of" in text and "y = 6.2" in text


@pytest.mark.parametrize(("side", "height", "kept"), [(10, 0.0, True), (10, 3.2, False), (3, 0.0, False)])
def test_an_open_island_is_left_out_unless_it_is_the_largest_and_no_roof(side, height, kept, tmp_path):
    """A house of 24 m² beside a yard of 100 m², a roof of 100 m², or a yard of 9 m²; each is named with its area."""
    parts = [hall(), slab((20, height - 0.2, 0), (20 + side, height, side))]
    path = write(trimesh.util.concatenate(parts), tmp_path / "house.obj")
    islands = [each for each in list_islands(load_scene(path).navmesh.data) if each.height < 1 and each.area > 5]
    area, text = imported(path, "indoor", tmp_path / "out")
    assert (area > 100) == kept and area > 20 and "`--islands all` keeps every island" in text
    if kept:
        inside, yard = sorted(islands, key=lambda each: each.area)
        assert f"kept {yard}, the largest," in text
        assert f"which has no ceiling above; `--islands {inside.number}` keeps {inside} alone" in text
        assert imported(path, str(inside.number), tmp_path / "one")[0] == pytest.approx(inside.area)


def test_queries_of_one_island(tmp_path):
    navmesh = load_scene(write(hall(12.0, 8.0, 3.0), tmp_path / "warehouse.obj")).navmesh
    floor, roof = sorted(list_islands(navmesh.data), key=lambda island: island.height)
    assert navmesh.sample(50, island=floor.number)[:, 1].max() < 1.0
    assert navmesh.sample(50, island="largest")[:, 1].min() > 2.0
    between = np.float32([6.0, 2.4, 4.0])
    assert navmesh.snap(between)[1] == navmesh.snap(between, island=roof.number)[1] > 2.0
    assert navmesh.snap(between, island=floor.number)[1] < 1.0
    only = navmesh.keep([floor.number])
    assert only.num_islands == 1 and only.area == pytest.approx(floor.area)
    for wrong in (2, -1, "smallest", 0.5):
        with pytest.raises(ArgumentError, match="island"):
            navmesh.snap(between, island=wrong)


def test_a_yard_counts_where_nothing_has_a_ceiling(tmp_path):
    scene = load_scene(write(shell(ceiling=False), tmp_path / "open.obj"), islands="indoor")
    assert scene.navmesh.num_islands == 1


def divided(x, door):
    """A hall with a wall at x that has a door at z."""
    wall = [slab((x, 0, 0), (x + 0.2, 3, door)), slab((x, 0, door + 1), (x + 0.2, 3, 8))]
    return hall(12.0, 8.0, 3.0) + wall[0] + wall[1]


def test_a_navmesh_of_another_building(tmp_path, caplog):
    mine, other = tmp_path / "mine.obj", tmp_path / "other.obj"
    many = [divided(x, door) for x, door in ((2.0, 1.0), (4.5, 6.0), (9.0, 3.0))]
    load_scene(write(many[0] + many[1] + many[2], mine)).navmesh.save(mine.with_suffix(".navmesh"))
    caplog.clear()
    load_scene(mine, islands="indoor")
    (record,) = caplog.records
    assert "left out 1 island of" in record.getMessage() and not texts(mine, "error")
    # The same size and floor, other walls.
    foreign = load_scene(write(divided(3.0, 6.5) + divided(6.0, 1.0) + divided(7.7, 4.0), other))
    foreign.navmesh.save(mine.with_suffix(".navmesh"))
    caplog.clear()
    load_scene(mine)
    assert "go through surfaces of the mesh" in caplog.text
    assert any("go through surfaces" in text for text in texts(mine))
    # Another height, within the bounds of the mesh.
    lifted = load_scene(mine).navmesh.keep([0]).moved((0.0, 0.38, 0.0))
    lifted.save(mine.with_suffix(".navmesh"))
    with pytest.raises(NavMeshError, match="it belongs to another scene; delete it, or bake another"):
        load_scene(mine)
    lifted.moved((30.0, 0.0, 0.0)).save(mine.with_suffix(".navmesh"))
    with pytest.raises(NavMeshError, match="is the same axis up"):
        load_scene(mine)
    assert texts(mine, "error")


def test_rays(tmp_path):
    scene = load_scene(write(shell(), tmp_path / "room.obj"))
    middle = np.tile(np.float32([WIDTH / 2, 1.0, DEPTH / 2]), (5, 1))
    rays = np.float32([(0, 1, 0), (0, -1, 0), (1, 0, 0), (0, 0, 1), (0, 0.6, -0.8)])
    hits = first_hits(scene, middle, rays)
    assert hits == pytest.approx([HEIGHT - 1.0, 1.0, WIDTH / 2, DEPTH / 2, DEPTH / 2 / 0.8], abs=1e-3)
    assert np.isinf(first_hits(scene, middle + np.float32([0, 5, 0]), rays)[0])
