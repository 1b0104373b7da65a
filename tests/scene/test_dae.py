"""COLLADA files, against trimesh's reader and closed forms."""

import io
import time
import zipfile

import numpy as np
import pytest
import trimesh
from files import picture

from batchnav.errors import MeshError
from batchnav.scene.mesh import load_mesh

HEAD = '<?xml version="1.0"?><COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1">'


def source(name, values, fields):
    """A source of numbers."""
    values = np.asarray(values, float)
    rows, width = values.shape
    params = "".join(f'<param name="{field}" type="float"/>' for field in fields)
    text = " ".join(map(repr, values.ravel().tolist()))
    return (
        f'<source id="{name}"><float_array id="{name}-a" count="{values.size}">{text}</float_array><technique_common>'
        f'<accessor source="#{name}-a" count="{rows}" stride="{width}">{params}</accessor></technique_common></source>'
    )


def quad(up="Z_UP", unit=1.0, matrix="1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1", image=None):
    """A polygon of four corners in the x-z plane, with UVs and a colour or an image."""
    diffuse, images, params = "<color>0.2 0.4 0.6 1</color>", "", ""
    if image is not None:
        diffuse = '<texture texture="sampler" texcoord="UV"/>'
        images = f'<library_images><image id="pic"><init_from>{image}</init_from></image></library_images>'
        params = (
            '<newparam sid="surface"><surface type="2D"><init_from>pic</init_from></surface></newparam>'
            '<newparam sid="sampler"><sampler2D><source>surface</source></sampler2D></newparam>'
        )
    points = source("p", [(0, 0, 0), (2, 0, 0), (2, 0, 1), (0, 0, 1)], "XYZ")
    uv = source("t", [(0, 0), (1, 0), (1, 1), (0, 1)], "ST")
    return (
        f"{HEAD}<asset><unit meter='{unit}'/>{f'<up_axis>{up}</up_axis>' if up else ''}</asset>{images}"
        f"<library_effects><effect id='e'><profile_COMMON>{params}<technique sid='c'><lambert>"
        f"<diffuse>{diffuse}</diffuse></lambert></technique></profile_COMMON></effect></library_effects>"
        "<library_materials><material id='m'><instance_effect url='#e'/></material></library_materials>"
        f"<library_geometries><geometry id='g'><mesh>{points}{uv}"
        "<vertices id='v'><input semantic='POSITION' source='#p'/></vertices>"
        "<polylist material='s' count='1'><input semantic='VERTEX' source='#v' offset='0'/>"
        "<input semantic='TEXCOORD' source='#t' offset='1' set='0'/><vcount>4</vcount><p>0 0 1 1 2 2 3 3</p></polylist>"
        "</mesh></geometry></library_geometries>"
        f"<library_visual_scenes><visual_scene id='w'><node id='n'><matrix>{matrix}</matrix>"
        "<instance_geometry url='#g'><bind_material><technique_common><instance_material symbol='s' target='#m'/>"
        "</technique_common></bind_material></instance_geometry></node></visual_scene></library_visual_scenes>"
        "<scene><instance_visual_scene url='#w'/></scene></COLLADA>"
    )


def bounds(mesh):
    return np.stack([mesh.vertices.min(0), mesh.vertices.max(0)]).tolist()


@pytest.mark.parametrize(
    ("up", "size"), [("Z_UP", (2, 1, 0)), ("Y_UP", (2, 0, 1)), (None, (2, 0, 1)), ("X_UP", (0, 2, 1))]
)
def test_the_axis_and_the_unit_of_the_file(tmp_path, up, size):
    """A quad of 2 along x and 1 along z of the file, in centimetres."""
    (tmp_path / "quad.dae").write_text(quad(up, 0.01))
    mesh = load_mesh(tmp_path / "quad.dae")
    assert len(mesh.faces) == 2 and np.ptp(mesh.vertices, axis=0) == pytest.approx(np.array(size) / 100, abs=1e-7)
    mesh = load_mesh(tmp_path / "quad.dae", up="y")
    assert np.ptp(mesh.vertices, axis=0) == pytest.approx(np.array([2, 0, 1]) / 100, abs=1e-7)


def test_nodes_are_placed(tmp_path):
    (tmp_path / "quad.dae").write_text(quad("Y_UP", matrix="0 -1 0 5 1 0 0 6 0 0 1 7 0 0 0 1"))
    assert bounds(load_mesh(tmp_path / "quad.dae")) == [[5, 6, 7], [5, 8, 8]]


def test_colours_and_textures(tmp_path):
    """The lower left corner of the quad shows the lower left corner of the image."""
    (tmp_path / "plain.dae").write_text(quad("Y_UP"))
    surface = load_mesh(tmp_path / "plain.dae").surface
    assert surface.materials[0].color == pytest.approx((0.2, 0.4, 0.6, 1.0)) and not surface.textures
    (tmp_path / "model" / "meshes").mkdir(parents=True)
    (tmp_path / "model" / "materials" / "textures").mkdir(parents=True)
    path = tmp_path / "model" / "meshes" / "quad.dae"
    path.write_text(quad("Y_UP", image="red%20brick.png"))
    with pytest.warns(UserWarning, match="red%20brick.png"):
        assert not load_mesh(path).surface or not load_mesh(path).surface.textures
    for folder in ("materials/textures", "meshes"):  # Gazebo's folder, and the mesh file's
        (tmp_path / "model" / folder / "red brick.png").write_bytes(picture())
        mesh = load_mesh(path)
        assert len(mesh.surface.textures) == 1 and mesh.surface.textures[0].pixels.shape == (6, 10, 4)
        corner = mesh.vertices[mesh.faces.ravel()]
        uv = mesh.surface.uv.reshape(-1, 2)
        assert uv == pytest.approx(np.stack([corner[:, 0] / 2, 1 - corner[:, 2]], axis=1), abs=1e-6)
    assert load_mesh(path, appearance=False).surface is None


def test_it_agrees_with_trimesh(tmp_path):
    scene = trimesh.Scene([trimesh.creation.icosphere(2), trimesh.creation.box((3, 1, 2))])
    meshes = list(scene.geometry.values())
    (tmp_path / "both.dae").write_bytes(trimesh.exchange.dae.export_collada(meshes))
    mesh, other = load_mesh(tmp_path / "both.dae"), trimesh.load_scene(tmp_path / "both.dae").to_mesh()
    ours = trimesh.Trimesh(mesh.vertices, mesh.faces, process=False)
    assert len(ours.faces) == len(other.faces) == sum(len(m.faces) for m in meshes)
    assert ours.area == pytest.approx(other.area) and ours.bounds == pytest.approx(other.bounds)
    assert ours.volume == pytest.approx(other.volume)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not XML", "cannot be read as COLLADA"), (f"{HEAD}</COLLADA>", "COLLADA|holds no triangles"),
        (quad().replace("0 0 1 1 2 2 3 3", "0 0 1 1 2 2 9 3"), "holds no triangles"),
        (quad()[:900], "cannot be read as COLLADA"),
    ],
)  # fmt: skip
def test_what_is_no_collada_is_refused(tmp_path, text, message):
    (tmp_path / "a.dae").write_text(text)
    with pytest.raises(MeshError, match=f"a.dae: .*({message})"):
        load_mesh(tmp_path / "a.dae")


def with_nodes(nodes, used):
    """The quad in a scene whose node also has an instance of the node `used` of a library."""
    text = quad().replace("<node id='n'>", f"<node id='n'><instance_node url='#{used}'/>")
    library = "<library_visual_scenes>"
    return text.replace(library, f"<library_nodes>{nodes}</library_nodes>{library}")


def chain(length, instances=1, ascending=True):
    """Nodes of a library, each with instances of the one before; the first, k0, has the quad."""
    texts = ["<node id='k0'><instance_geometry url='#g'/></node>"]
    texts += [f"<node id='k{i + 1}'>" + instances * f"<instance_node url='#k{i}'/>" + "</node>" for i in range(length)]
    return "".join(texts if ascending else texts[::-1])


def zipped(text):
    """A ZIP archive of a COLLADA file."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("quad.dae", text)
    return data.getvalue()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (with_nodes(chain(22, instances=2), "k22"), "places more than 4[0-9]{6} triangles, vertices or nodes"),
        (with_nodes(chain(30, instances=2).replace("<instance_geometry url='#g'/>", ""), "k30"), "places more than"),
        (with_nodes(chain(3000, ascending=False), "k3000"), "chains of more than 32 nodes"),
        (zipped(quad().replace("<asset>", f"<!--{' ' * 10**7}--><asset>")), "is a ZIP archive"),
        (quad().replace("<vcount>4<", "<vcount>2000000000<"), "polygons of 2000000000 corners .* but 4 indices"),
        (quad().replace("<vcount>4<", "<vcount>-4 8<"), "polygons of -4 corners and more"),
    ],
)  # fmt: skip
def test_small_files_ask_for_little(tmp_path, text, message):
    (tmp_path / "a.dae").write_bytes(text if isinstance(text, bytes) else text.encode())
    begin = time.process_time()
    with pytest.raises(MeshError, match=f"a.dae: .*{message}"):
        load_mesh(tmp_path / "a.dae")
    assert time.process_time() - begin < 2.0  # measured: 0.1 s


def test_vertices_of_shared_sources_are_counted(tmp_path):
    """20,000 sets of polygons of one source with 20,000 points."""
    text = quad()
    polygons = text[text.index("<polylist") : text.index("</mesh>")]
    text = text.replace("</float_array>", " 0 0 0" * 20_000 + "</float_array>", 1)
    (tmp_path / "a.dae").write_text(text.replace("</mesh>", polygons * 5_000 + "</mesh>"))
    with pytest.raises(MeshError, match="places more than"):
        load_mesh(tmp_path / "a.dae")


def test_instances_of_nodes_are_placed(tmp_path):
    for ascending in (True, False):
        (tmp_path / "a.dae").write_text(with_nodes(chain(3, instances=2, ascending=ascending), "k3"))
        assert len(load_mesh(tmp_path / "a.dae").faces) == 2 * (1 + 2**3)


def test_the_package_is_named(tmp_path, monkeypatch):
    (tmp_path / "a.dae").write_text(quad())
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MeshError, match=r"a.dae: is a COLLADA file, which needs the package pycollada; install it"):
        load_mesh(tmp_path / "a.dae")


@pytest.mark.parametrize("unit", ["0", "centimeter", "0,01", "-1", "nan", "inf", ""])
def test_an_unknown_unit_is_named(tmp_path, caplog, unit):
    (tmp_path / "a.dae").write_text(quad(unit=unit))
    assert bounds(load_mesh(tmp_path / "a.dae")) == [[0, 0, 0], [2, 1, 0]]
    assert f"a.dae: found \"<unit meter='{unit}'/>\", expected meter=" in caplog.text and "counts as 1 m" in caplog.text
    caplog.clear()
    (tmp_path / "b.dae").write_text(quad(unit="0.01"))
    assert load_mesh(tmp_path / "b.dae").vertices.max() == pytest.approx(0.02) and not caplog.text
