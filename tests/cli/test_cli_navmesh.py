"""The commands `batchnav navmesh`."""

from PIL import Image
from worlds import write_floor

from batchnav.navmesh.navmesh import NavMesh


def test_navmesh_bake_info_and_view(run, tmp_path):
    floor = write_floor(tmp_path / "floor.ply")
    narrow = run("navmesh", "bake", floor, "--agent-radius", "0.5", "--out", tmp_path / "narrow.navmesh")
    assert "1 island\n" in narrow
    run("navmesh", "bake", floor)
    areas = [NavMesh.load(tmp_path / f"{name}.navmesh").area for name in ("narrow", "floor")]
    assert areas[0] < areas[1] - 5.0
    info = run("navmesh", "info", tmp_path / "narrow.navmesh")
    assert "island 0" in info and "agent_radius" in info and "0.5" in info
    run("navmesh", "view", tmp_path / "floor.navmesh")
    with Image.open(tmp_path / "floor.png") as picture:
        assert min(picture.size) > 400
        assert len(picture.convert("RGB").getcolors(2**20)) > 100  # clearance is a gradient
    ends = ("--start", -2, 0.2, 3, "--goal", 2, 0.2, -3)
    run("navmesh", "view", tmp_path / "floor.navmesh", "--out", tmp_path / "path.png", *ends)
    assert (tmp_path / "path.png").read_bytes() != (tmp_path / "floor.png").read_bytes()


def test_a_radius_that_is_no_whole_number_of_cells_is_named(run, tmp_path):
    floor, out = write_floor(tmp_path / "floor.ply"), tmp_path / "floor.navmesh"
    note = "agent_radius 0.24 acts as 0.25 m"
    assert note in run("navmesh", "bake", floor, "--agent-radius", "0.24")
    assert note in " ".join(run("navmesh", "info", out).split()) and note in run("data", "validate", out)
    assert "acts as" not in run("navmesh", "bake", floor, "--agent-radius", "0.25")
