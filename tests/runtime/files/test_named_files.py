"""Names of files in mesh files: upwards within the data root, links, and files elsewhere."""

import json
import os
import warnings

import numpy as np
import pytest
import trimesh
from PIL import Image

from batchnav.errors import MeshError
from batchnav.runtime.files.named_files import data_root, read_named_file
from batchnav.scene.mesh import load_mesh

RED = (255, 0, 0, 255)
OBJ = "mtllib room.mtl\nusemtl red\nv 0 0 0\nv 1 0 0\nv 0 1 0\nvt 0 0\nvt 1 0\nvt 0 1\nf 1/1 2/2 3/3\n"


def write_picture(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((4, 4, 4), RED, np.uint8)).save(path)
    return path


def write_gltf(path, image):
    """A triangle with a texture in a file, and a buffer in a file `scene.bin`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    material = trimesh.visual.material.PBRMaterial(baseColorTexture=Image.new("RGB", (1, 1)))
    visual = trimesh.visual.TextureVisuals(uv=np.eye(3)[:, :2], material=material)
    mesh = trimesh.Trimesh(np.eye(3), [[0, 1, 2]], visual=visual, process=False)
    files = trimesh.Scene(mesh).export(file_type="gltf")
    for name, data in files.items():
        if name != "model.gltf":
            (path.parent / name).write_bytes(data)
    tree = json.loads(files["model.gltf"]) | {"images": [{"uri": image}]}
    path.write_text(json.dumps(tree))
    return path


def textures(path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return [texture.pixels[0, 0].tolist() for texture in load_mesh(path).surface.textures]


@pytest.mark.parametrize("name", ["../textures/red.png", "..\\textures\\red.png", "./../meshes/../textures/red.png"])
def test_textures_in_a_folder_next_to_the_meshes(tmp_path, name):
    write_picture(tmp_path / "textures" / "red.png")
    (tmp_path / "meshes").mkdir()
    (tmp_path / "meshes" / "room.obj").write_text(OBJ)
    (tmp_path / "meshes" / "room.mtl").write_text(f"newmtl red\nmap_Kd {name}\n")
    assert textures(tmp_path / "meshes" / "room.obj") == [list(RED)]
    gltf = write_gltf(tmp_path / "gltf" / "room.gltf", name.replace("\\", "%5C").replace("meshes", "gltf"))
    assert textures(gltf) == [list(RED)]


def test_a_library_in_a_folder_next_to_the_meshes(tmp_path):
    write_picture(tmp_path / "materials" / "red.png")
    (tmp_path / "meshes").mkdir()
    (tmp_path / "meshes" / "room.obj").write_text(OBJ.replace("room.mtl", "../materials/room.mtl"))
    (tmp_path / "materials" / "room.mtl").write_text("newmtl red\nmap_Kd red.png\n")
    assert textures(tmp_path / "meshes" / "room.obj") == [list(RED)]


def test_linked_files_of_a_cache(tmp_path):
    """As the Hugging Face Hub stores a dataset: names are links to files that are named by their content."""
    snapshot, blobs = tmp_path / "snapshots" / "abc", tmp_path / "blobs"
    blobs.mkdir()
    write_gltf(snapshot / "meshes" / "room.gltf", "../textures/red.png")
    write_picture(snapshot / "textures" / "red.png")
    for number, file in enumerate(sorted(p for p in snapshot.rglob("*") if p.is_file())):
        os.replace(file, blobs / str(number))
        file.symlink_to(os.path.relpath(blobs / str(number), file.parent))
    assert textures(snapshot / "meshes" / "room.gltf") == [list(RED)]
    assert data_root(snapshot / "meshes" / "room.gltf") == tmp_path


def test_names_may_climb_to_the_folder_of_data_sets(tmp_path):
    mesh = tmp_path / "scene_datasets" / "own" / "stages" / "a" / "room.glb"
    write_picture(tmp_path / "scene_datasets" / "textures" / "red.png")
    write_picture(tmp_path / "red.png")
    mesh.parent.mkdir(parents=True)
    assert read_named_file(mesh, "../../../textures/red.png", MeshError)
    with pytest.raises(MeshError, match=r"scene_datasets$"):
        read_named_file(mesh, "../../../../red.png", MeshError)


@pytest.mark.parametrize(
    "name", ["../../secret", "/etc/passwd", "../link", "../folder/secret", "in/../../../secret", "..\\..\\secret"]
)
def test_files_elsewhere_are_refused(tmp_path, name):
    """A name with `..` leads into the data root, whatever links do."""
    top = tmp_path / "top"
    (top / "in").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (top / "link").symlink_to(tmp_path / "secret")
    (top / "folder").symlink_to(tmp_path)
    with pytest.raises(MeshError, match="lies outside the mesh file's data root, found"):
        read_named_file(top / "in" / "a.obj", name, MeshError)
