import gzip
import json

import numpy as np
import pytest

from batchnav.data.procthor import import_houses, make_procthor_house, read_houses, read_sizes, triangulate
from batchnav.errors import MeshError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.scene.mesh import load_mesh

HEIGHT = 2.5


def wall(name, start, end, **more):
    low = [{"x": x, "y": 0, "z": z} for x, z in (start, end)]
    return {"id": name, "polygon": low + [{**corner, "y": HEIGHT} for corner in low], **more}


def room(x0, x1):
    return {"floorPolygon": [{"x": x, "y": 0, "z": z} for x, z in ((x0, 0), (x0, 3), (x1, 3), (x1, 0))]}


def house(**changes):
    """Rooms of 4 x 3 and 2 x 3 m side by side, a door of 1 x 2 m between them, 1 m from the far end; a table."""
    walls = [
        wall("a1", (0, 0), (0, 3)), wall("a2", (0, 3), (4, 3)), wall("between|a", (4, 3), (4, 0)),
        wall("a4", (4, 0), (0, 0)), wall("between|b", (4, 0), (4, 3)), wall("b2", (4, 3), (6, 3)),
        wall("b3", (6, 3), (6, 0)), wall("b4", (6, 0), (4, 0)),
    ]  # fmt: skip
    door = {
        "wall0": "between|a", "wall1": "between|b", "assetId": "Doorway_1",
        "holePolygon": [{"x": 1.0, "y": 0, "z": 0}, {"x": 2.0, "y": 2.0, "z": 0}],
    }  # fmt: skip
    table = {
        "assetId": "Table", "position": {"x": 1.0, "y": 0.4, "z": 1.5}, "rotation": {"x": 0, "y": 90, "z": 0},
        "children": [{"assetId": "Cup", "position": {"x": 1, "y": 0.9, "z": 1.5}, "rotation": {"y": 0}}],
    }  # fmt: skip
    return {"rooms": [room(0, 4), room(4, 6)], "walls": walls, "doors": [door], "objects": [table], **changes}


SIZES = {"Table": [1.6, 0.8, 0.6], "Cup": [0.1, 0.1, 0.1]}


def crosses(mesh, start, end):
    """Whether a segment meets a triangle."""
    a, b, c = (mesh.vertices[mesh.faces[:, i]].astype(float) for i in range(3))
    start, way = np.array(start, float), np.subtract(end, start)
    p = np.cross(way, c - a)
    det = ((b - a) * p).sum(1)
    det[det == 0] = np.nan
    u = ((start - a) * p).sum(1) / det
    q = np.cross(start - a, b - a)
    v, t = (q * way).sum(1) / det, ((c - a) * q).sum(1) / det
    return bool(((u >= 0) & (v >= 0) & (u + v <= 1) & (t >= 0) & (t <= 1)).any())


def test_door_holes_are_where_they_are():
    mesh, unknown = make_procthor_house(house(), SIZES)
    assert not unknown
    # Unity's z is our -z; wall "between|a" begins at z = 3, so the hole is from z = 1 to 2.
    assert not crosses(mesh, (3.5, 1.0, -1.5), (4.5, 1.0, -1.5))
    for z, y in ((0.5, 1.0), (2.5, 1.0), (1.5, 2.2)):
        assert crosses(mesh, (3.5, y, -z), (4.5, y, -z))
    navmesh = NavMesh.bake(mesh)
    points = np.array([[3.0, 0.0, -0.5], [5.0, 0.0, -0.5]], np.float32)
    assert np.isfinite(navmesh.geodesic_distance(points[:1], points[1:])[0])


def test_closed_doors_and_rooms_that_are_one():
    (door,) = house()["doors"]
    shut, _ = make_procthor_house(house(doors=[{**door, "openable": True, "openness": 0}]), SIZES)
    assert crosses(shut, (3.5, 1.0, -1.5), (4.5, 1.0, -1.5))
    opened, _ = make_procthor_house(house(doors=[{**door, "openable": True, "openness": 1}]), SIZES)
    assert not crosses(opened, (3.5, 1.0, -1.5), (4.5, 1.0, -1.5))
    walls = [{**w, "empty": True} if w["id"].startswith("between") else w for w in house()["walls"]]
    one_room, _ = make_procthor_house(house(walls=walls, doors=[]), SIZES)
    assert not crosses(one_room, (3.5, 1.0, -0.5), (4.5, 1.0, -0.5))


def test_houses_of_the_older_generator():
    """A bounding box instead of a polygon, and no objects; a door that names one wall goes through both."""
    (door,) = house()["doors"]
    hole = {"boundingBox": {"min": {"x": 1.0, "y": 0, "z": 0}, "max": {"x": 2.0, "y": 2.0, "z": 0.1}}}
    older = {key: value for key, value in door.items() if key != "holePolygon"} | hole
    for doors in ([older], [{**door, "wall1": None}], [{**door, "wall1": "wall|exterior"}], [{**older, "wall0": ""}]):
        mesh, _ = make_procthor_house({"rooms": house()["rooms"], "walls": house()["walls"], "doors": doors}, SIZES)
        assert not crosses(mesh, (3.5, 1.0, -1.5), (4.5, 1.0, -1.5)), doors
        assert crosses(mesh, (3.5, 1.0, -0.5), (4.5, 1.0, -0.5))
    with pytest.raises(MeshError, match=r"mine: door 0: found walls \['nowhere', None\], expected ids of the house's"):
        make_procthor_house(house(doors=[{"wall0": "nowhere"}]), SIZES, "mine")
    with pytest.raises(MeshError, match=r"mine: is not a ProcTHOR house \(it lacks the field 'assetId'\)"):
        make_procthor_house(house(objects=[{}]), SIZES, "mine")


def test_a_bad_house_is_left_out_by_name(tmp_path, capsys):
    good = json.dumps(house())
    (tmp_path / "h.jsonl").write_text(f"{good}\n{{\n{good}\n{json.dumps(house(objects=[{}]))}\n[]\n")
    (tmp_path / "asset_bbox.json").write_text(json.dumps(SIZES))
    sources, left_out = import_houses(tmp_path / "h.jsonl", tmp_path / "asset_bbox.json", tmp_path / "out")
    assert [source.parts[0].asset.path.name for source in sources] == ["h_0000.ply", "h_0002.ply"]
    assert str(left_out).startswith("left out 3 of 5 houses: house 1: found 'a line that is not JSON")
    assert "house 3: is not a ProcTHOR house (it lacks the field 'assetId')" in str(left_out)


def test_furniture_is_sized_turned_and_mirrored():
    mesh, unknown = make_procthor_house(house(walls=[wall("a", (0, 0), (9, 0))], rooms=[], doors=[]), SIZES)
    corners = mesh.vertices[mesh.faces].reshape(-1, 3)
    table = corners[corners[:, 1] <= 0.81]
    table = table[(table[:, 0] < 2) & (table[:, 2] < -0.5)]
    # 1.6 m along x, turned by 90 degrees: along z.
    assert table.min(0) == pytest.approx([0.7, 0.0, -2.3], abs=1e-5)
    assert table.max(0) == pytest.approx([1.3, 0.8, -0.7], abs=1e-5)
    assert (np.abs(corners - [1.0, 0.9, -1.5]) < 0.051).all(1).any()  # the cup on it
    _, unknown = make_procthor_house(house(), {"Table": [1, 1, 1]})
    assert unknown == ["Cup"]


def test_faces_look_into_the_rooms():
    mesh, _ = make_procthor_house(house(objects=[]), SIZES)
    a, b, c = (mesh.vertices[mesh.faces[:, i]].astype(float) for i in range(3))
    # The signed volume of closed rooms whose faces look inwards is negative: 6 x 3 x 2.5 m, the door's hole in both.
    assert (a * np.cross(b, c)).sum() / 6 == pytest.approx(-6 * 3 * HEIGHT, rel=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_triangles_of_a_polygon_cover_it(seed):
    draw = np.random.default_rng(seed)
    angles = np.sort(draw.random(12)) * 2 * np.pi
    radius = draw.uniform(0.5, 3.0, 12)[:, None]
    outline = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    if seed % 2:
        outline = outline[::-1]
    x, y = outline.T
    area = abs((x * np.roll(y, -1) - np.roll(x, -1) * y).sum()) / 2
    a, b, c = (outline[triangulate(outline)[:, i]] for i in range(3))
    parts = ((b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]) / 2
    assert (parts > 0).all() and parts.sum() == pytest.approx(area)


def test_corners_on_straight_edges_and_crossing_edges():
    square = np.array([[0, 0], [1, 0], [2, 0], [2, 2], [0, 2], [0, 1]], float)
    assert len(triangulate(square)) <= 4
    with pytest.raises(MeshError, match="polygon"):
        triangulate(np.array([[0, 0], [np.nan, 1], [1, 1]]))


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".json.gz", ".jsonl.gz"])
def test_files_of_houses(tmp_path, suffix):
    one = json.dumps(house())
    text = (f"{one}\n{one}\n" if "jsonl" in suffix else f"[{one}, {one}]").encode()
    (tmp_path / f"h{suffix}").write_bytes(gzip.compress(text) if suffix.endswith("gz") else text)
    assert read_houses(tmp_path / f"h{suffix}") == [house(), house()]


def test_bad_houses_are_named(tmp_path):
    broken = [
        house(walls=[]), house(walls=[{"id": "x", "polygon": []}]), house(rooms=[{"floorPolygon": []}]),
        house(doors=[{"wall0": "nowhere"}]), house(objects=[3]), house(objects=None),
        house(walls=[wall("a", (1, 1), (1, 1))]), house(walls=["a"]), house(doors=[7]), house(rooms=[None]),
        house(objects=[{"assetId": "Table", "position": dict.fromkeys("xyz", 10**400), "rotation": {"y": 0}}]),
        house(objects=[{"assetId": "Table", "position": 3, "rotation": {"y": 0}}]),
        house(rooms=[{"floorPolygon": [{"x": x, "z": x * x} for x in range(600)]}]),
    ]  # fmt: skip
    for bad in broken:
        with pytest.raises(MeshError, match="mine"):
            make_procthor_house(bad, SIZES, "mine")
    for name, text in (("a.json", "7"), ("b.json", "{"), ("c.jsonl", "{}\n{"), ("d.json", "[{}]")):
        (tmp_path / name).write_text(text)
        with pytest.raises(MeshError, match=name):
            read_houses(tmp_path / name)
    (tmp_path / "sizes.json").write_text('{"Table": [1, 2]}')
    with pytest.raises(MeshError, match=r"sizes\.json.*'Table'"):
        read_sizes(tmp_path / "sizes.json")


def test_published_houses(shared):
    folder = shared / "scenes" / "procthor"
    houses, sizes = read_houses(folder / "houses_210.jsonl.gz"), read_sizes(folder / "asset_bbox.json")
    assert len(houses) == 210
    mesh, unknown = make_procthor_house(houses[0], sizes)
    assert not unknown
    # The same house, made into a mesh by others, baked by Recast.
    theirs = load_mesh(shared / "oracle" / "procthor_000.glb")
    assert len(mesh.faces) == len(theirs.faces)
    assert mesh.vertices.min(0) == pytest.approx(theirs.vertices.min(0), abs=1e-5)
    assert mesh.vertices.max(0) == pytest.approx(theirs.vertices.max(0), abs=1e-5)
    assert NavMesh.bake(mesh).area == pytest.approx(NavMesh.load(shared / "oracle" / "procthor_000.navmesh").area)


def named(mesh):
    return np.array(mesh.surface.categories)[mesh.surface.category]


def test_colours_and_categories_are_those_of_the_file():
    painted = house()
    for wall_ in painted["walls"]:
        wall_["material"] = {"name": "PureWhite", "color": {"r": 0.2, "g": 0.4, "b": 0.8}}
    painted["rooms"][0]["floorMaterial"] = {"name": "DarkWoodPlanks"}
    painted["rooms"][1]["floorMaterial"] = "WhiteMarble2"
    mesh, _ = make_procthor_house(painted, SIZES)
    surface, names = mesh.surface, named(mesh)
    assert set(names) == {"wall", "floor", "ceiling", "table", "cup"}
    assert len(np.unique(surface.object_id)) == 8 + 2 + 2 + 2
    for name, count in (("wall", 8), ("floor", 2), ("ceiling", 2), ("table", 1), ("cup", 1)):
        assert len(np.unique(surface.object_id[names == name])) == count

    def ratio(row):
        color = np.array(surface.materials[surface.material[row]].color[:3])
        return color / color.max()

    for row in np.flatnonzero(names == "wall"):  # darker by the light, of the same hue
        np.testing.assert_allclose(ratio(row), [0.25, 0.5, 1.0], atol=2e-3)
    points = mesh.vertices[mesh.faces].mean(1)
    dark, light = (surface.material[(names == "floor") & side] for side in (points[:, 0] < 4, points[:, 0] > 4))
    brightness = [np.mean(surface.materials[material[0]].color[:3]) for material in (dark, light)]
    assert brightness[0] < 0.5 < brightness[1]
    assert (np.linalg.norm(surface.uv, axis=2) > 0).any()


@pytest.mark.parametrize("material", [None, 7, [], {"name": 3}, {"name": "Paint", "color": {"r": 2, "g": 0, "b": "x"}}])
def test_materials_that_say_nothing_leave_a_plain_colour(material):
    odd = house()
    odd["walls"][0]["material"] = odd["rooms"][0]["floorMaterial"] = material
    mesh, _ = make_procthor_house({**odd, "proceduralParameters": material}, SIZES)
    assert (named(mesh) == "wall").any()


@pytest.mark.parametrize(
    ("asset", "category"),
    [
        ("Bed_25", "bed"), ("RoboTHOR_side_table_strind", "table"), ("Desk_Lamp_3", "lighting"), ("7", "object"),
        ("Alarm_Clock_5", "alarm_clock"), ("ToiletPaper_2", "toilet_paper"), ("Toilet_1", "toilet"), ("", "object"),
        ("Houseplant_4", "plant"), ("CreditCard_1", "credit_card"), ("TV_Stand_201_1", "cabinet"),
    ],
)  # fmt: skip
def test_categories_of_assets(asset, category):
    from batchnav.data.procthor import category_of

    assert category_of(asset) == category


def test_imported_houses_keep_their_colours(tmp_path):
    from batchnav.data.scenes.load import load_scene
    from batchnav.data.scenes.prepared import prepare

    (tmp_path / "houses.json").write_text(json.dumps([house()]))
    (tmp_path / "sizes.json").write_text(json.dumps(SIZES))
    sources, _ = import_houses(tmp_path / "houses.json", tmp_path / "sizes.json", tmp_path / "out")
    (outcome,) = prepare(sources, tmp_path / "out")
    assert not outcome.problem
    assert {"wall", "floor", "table"} <= set(load_scene(outcome.path).categories)
