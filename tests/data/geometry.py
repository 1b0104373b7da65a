"""Buildings with the faults of meshes from elsewhere: far away, inside out, on their side, with roofs."""

import numpy as np
import trimesh

WIDTH, HEIGHT, DEPTH = 6.0, 2.6, 4.0
"""Metres in x, y, z of the inside of `shell`, from the origin."""
AXES = {
    "y": [(1, 0, 0), (0, 1, 0), (0, 0, 1)], "-y": [(1, 0, 0), (0, -1, 0), (0, 0, -1)],
    "z": [(1, 0, 0), (0, 0, -1), (0, 1, 0)], "-z": [(1, 0, 0), (0, 0, 1), (0, -1, 0)],
    "x": [(0, 1, 0), (-1, 0, 0), (0, 0, 1)], "-x": [(0, -1, 0), (1, 0, 0), (0, 0, 1)],
}  # fmt: skip
"""World to file for each axis that points up in the file."""


def shell(ceiling=True):
    """A room as a scan has it: single faces, which look inwards."""
    box = trimesh.creation.box(bounds=[(0, 0, 0), (WIDTH, HEIGHT, DEPTH)])
    box.invert()
    if not ceiling:
        box.update_faces(box.triangles_center[:, 1] < HEIGHT - 0.01)
    return box


def slab(low, high):
    """A solid box."""
    return trimesh.creation.box(bounds=[low, high])


def hall(x=WIDTH, z=DEPTH, height=HEIGHT):
    """A closed room of solid walls, floor and roof; the roof's top is as large as the room."""
    t = 0.2
    return trimesh.util.concatenate([
        slab((-t, -t, -t), (x + t, 0, z + t)), slab((-t, height, -t), (x + t, height + t, z + t)),
        slab((-t, 0, -t), (0, height, z + t)), slab((x, 0, -t), (x + t, height, z + t)),
        slab((0, 0, -t), (x, height, 0)), slab((0, 0, z), (x, height, z + t)),
    ])  # fmt: skip


def turned(mesh, rows):
    """The mesh in a file with other axes: rows of a rotation matrix."""
    mesh = mesh.copy()
    mesh.vertices = mesh.vertices @ np.array(rows, float).T
    return mesh


def write(mesh, path):
    """A mesh as an OBJ file with nine decimals, or as another file by its suffix."""
    if path.suffix == ".obj":
        lines = [f"v {x:.9f} {y:.9f} {z:.9f}" for x, y, z in mesh.vertices]
        path.write_text("\n".join(lines + [f"f {a} {b} {c}" for a, b, c in mesh.faces + 1]) + "\n")
    else:
        mesh.export(path)
    return path
