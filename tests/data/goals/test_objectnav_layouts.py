"""ObjectNav episodes in tiny scenes as datasets lay them out: made, written, read, validated and played."""

from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh
from labelled import write_named
from PIL import Image
from worlds import write_box, write_json

from batchnav.cli.make_episodes import make_episodes
from batchnav.data.formats import load_episodes
from batchnav.data.goals.rules import LABELS
from batchnav.data.validate import validate
from batchnav.envs.config import NavConfig, with_options
from batchnav.evaluation.players import ReferencePlayer
from batchnav.evaluation.run import Evaluation
from batchnav.tasks.objectnav import ObjectNavConfig

FLOOR = ("floor", [-4.0, -0.2, -4.0], [4.0, 0.0, 4.0])
THINGS = ("armchair", [1.0, 0.0, 1.0], [1.5, 1.0, 1.5]), ("bed", [-3.0, 0.0, -3.0], [-1.5, 0.6, -2.0])
SCENES = Path("data", "scene_datasets")


def named_nodes():
    """A GLB file with names of nodes, out of Habitat's folders."""
    return str(write_named(Path("room.glb"), THINGS))


def hm3d():
    """X.basis.glb with colours, X.semantic.glb with a colour per object, X.semantic.txt with labels."""
    folder = SCENES / "hm3d_v0.2" / "minival" / "00800-Tiny"
    folder.mkdir(parents=True)
    things = (FLOOR, *THINGS)
    shades = np.array([[40 * k, 255 - 40 * k, 7] for k in range(1, len(things) + 1)], np.uint8)
    for part, colours in (("basis", np.full_like(shades, 128)), ("semantic", shades)):
        boxes = trimesh.util.concatenate([trimesh.creation.box(bounds=(low, high)) for _, low, high in things])
        corners = boxes.vertices[boxes.faces].reshape(-1, 3)
        column = (np.arange(len(corners)) // (len(corners) // len(things)) + 0.5) / len(things)
        material = trimesh.visual.material.PBRMaterial(baseColorTexture=Image.fromarray(colours[None]))
        visual = trimesh.visual.TextureVisuals(uv=np.stack([column, np.full(len(column), 0.5)], 1), material=material)
        points = corners[:, [0, 2, 1]] * [1, -1, 1]  # +Z up, as Habitat's stages
        mesh = trimesh.Trimesh(points, np.arange(len(points)).reshape(-1, 3), visual=visual, process=False)
        (folder / f"Tiny.{part}.glb").write_bytes(trimesh.Scene(mesh).export(file_type="glb"))
    rows = [
        f'{k},{"".join(f"{v:02X}" for v in shade)},"{label}",0'
        for k, (shade, (label, *_)) in enumerate(zip(shades.tolist(), things, strict=True), 1)
    ]
    (folder / "Tiny.semantic.txt").write_text("\n".join(["HM3D Semantic Annotations", *rows, ""]))
    return "hm3d_v0.2/minival/00800-Tiny/Tiny.basis.glb"


def hssd():
    """A stage, objects with semantic ids, their lexicon, and a scene instance that places them."""
    folder = SCENES / "hssd"
    write_box(folder / "stages" / "floor.glb", *FLOOR[1:])
    write_json(folder / "stages" / "floor.stage_config.json", {"render_asset": "floor.glb", "up": [0, 1, 0]})
    classes, rows = [{"name": "unknown", "id": 0}], []
    for number, (label, low, high) in enumerate(THINGS, 1):
        half = (np.array(high) - low) / 2
        write_box(folder / "objects" / f"{label}.ply", -half, half)
        attributes = {"render_asset": f"{label}.ply", "semantic_id": number}
        write_json(folder / "objects" / f"{label}.object_config.json", attributes)
        classes.append({"name": {"armchair": "chair"}.get(label, label), "id": number})
        rows.append({"template_name": label, "translation": (low + half).tolist()})
    write_json(folder / "semantics" / "words.json", {"classes": classes})
    instance = {"stage_instance": {"template_name": "floor"}, "object_instances": rows}
    write_json(folder / "scenes" / "one.scene_instance.json", {**instance, "semantic_scene_instance": "words"})
    config = {
        "stages": {"paths": {".json": ["stages"]}},
        "objects": {"paths": {".json": ["objects"]}},
        "scene_instances": {"paths": {".json": ["scenes"]}},
        "semantic_scene_descriptor_instances": {"words": "semantics/words.json"},
    }
    return str(write_json(folder / "hssd.scene_dataset_config.json", config))


@pytest.mark.parametrize(("layout", "rules"), [(named_nodes, "hm3d_v2"), (hm3d, "hm3d_v2"), (hssd, "hssd")])
def test_episodes_are_made_written_read_and_played(layout, rules, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path("episodes", "val.json.gz")
    labels = rules[:4]
    make_episodes((layout(),), path, "objectnav", per_scene=4, content=True, rules=rules, labels=labels, device="cpu")
    dataset = load_episodes(path)
    assert sorted(episode.object_category for episode in dataset.episodes) == ["bed", "bed", "chair", "chair"]
    again = Path("again", "val.json.gz")
    dataset.save(again)
    for file in ("val.json.gz", *(part.relative_to("episodes") for part in Path("episodes", "content").iterdir())):
        assert Path("again", file).read_bytes() == Path("episodes", file).read_bytes()
    assert {finding.level for finding in validate(path)} == {"note"}
    categories = LABELS[labels].categories
    options = {"categories": categories, "turn_angle_deg": 10.0, "max_steps": 100}
    config = with_options(NavConfig(sensors=(), task=ObjectNavConfig()), options)
    evaluation = Evaluation(path, torch.device("cpu"), config)
    played = evaluation.play(ReferencePlayer("shortest_path", config)).episodes
    assert played["success"].tolist() == [1.0] * 4
    stated = [episode.info["geodesic_distance"] for episode in evaluation.episodes]
    np.testing.assert_allclose(played["start_distance"], stated, atol=1e-3)
