"""Names and nesting in files may be anything: what uses them gives a BatchnavError. (`tests/fuzz` breaks all kinds.)"""

import contextlib
import gzip
import json

import pytest
from worlds import episodes_on, write_box, write_floor, write_json

from batchnav.data.formats import EpisodeDataset, load_episodes
from batchnav.data.procthor import make_procthor_house
from batchnav.data.scenes.load import load_scene
from batchnav.data.scenes.scene_dataset import SceneDatasetConfig
from batchnav.errors import BatchnavError


def a_dataset(folder):
    """Stage, object, scene instance; returns a function that makes their dataset's scene."""
    write_floor(folder / "stages" / "floor.ply")
    write_json(folder / "stages" / "floor.stage_config.json", {"render_asset": "floor.ply", "scale": [1, 1, 1]})
    write_box(folder / "objects" / "cube.ply", [0, 0, 0], [1, 1, 1])
    write_json(folder / "objects" / "cube.object_config.json", {"render_asset": "cube.ply", "up": [0, 1, 0]})
    row = {"template_name": "cube", "rotation": [1, 0, 0, 0], "translation": [0, 1, 0], "uniform_scale": 1.5}
    instance = {"stage_instance": {"template_name": "floor"}, "object_instances": [row]}
    write_json(folder / "scenes" / "flat.scene_instance.json", instance)
    sections = {"stages": "stages", "objects": "objects", "scene_instances": "scenes"}
    config = {key: {"paths": {".json": [value]}} for key, value in sections.items()}
    path = write_json(folder / "own.scene_dataset_config.json", {**config, "navmesh_instances": {"a": "b"}})
    return path, lambda: SceneDatasetConfig(path).source("flat").load_mesh()


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "/", "", ".", "../../.."])
def test_names_that_are_no_names(name, tmp_path, monkeypatch):
    """Names in files may be anything; what uses them says that there is no such file."""
    tmp_path = tmp_path / "a" / "b" / "c"  # the folders above are empty, too
    tmp_path.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    EpisodeDataset(episodes_on(name or "x", scene_dataset_config="default")).save(tmp_path / "e.json.gz")
    with pytest.raises(BatchnavError):
        load_scene(load_episodes(tmp_path / "e.json.gz")[0].scene, scenes_dir=tmp_path / "scenes")
    path, use = a_dataset(tmp_path)
    config = json.loads(path.read_text())
    for section in ("stages", "objects", "scene_instances"):
        write_json(path, config | {section: {"paths": {".json": [name]}}, "navmesh_instances": {"flat": name}})
        with contextlib.suppress(BatchnavError):
            use()
    write_json(path, config)
    for file, field in (("stages/floor.stage_config", "render_asset"), ("objects/cube.object_config", "render_asset")):
        write_json(tmp_path / f"{file}.json", {field: name})
    row = {"template_name": name, "uniform_scale": 1}
    write_json(tmp_path / "scenes/flat.scene_instance.json", {"stage_instance": row, "object_instances": [row]})
    with pytest.raises(BatchnavError):
        use()
    write_json(path, {"episodes": [], "content_scenes_path": f"{name}/{{scene}}.json.gz"})
    (tmp_path / "e.json.gz").write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(BatchnavError):
        load_episodes(tmp_path / "e.json.gz")


def test_deep_json_is_refused(tmp_path):
    deep = "[" * 100_000
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(deep.encode()))
    with pytest.raises(BatchnavError, match="does not hold JSON"):
        load_episodes(tmp_path / "a.json.gz")
    (tmp_path / "a.scene_dataset_config.json").write_text(deep)
    with pytest.raises(BatchnavError, match="does not hold JSON"):
        SceneDatasetConfig(tmp_path / "a.scene_dataset_config.json")
    item = {"assetId": "Cup", "position": {"x": 1, "y": 1, "z": 1}, "rotation": {"y": 0}}
    for _ in range(50):
        item = {**item, "children": [item]}
    corners = [{"x": x, "y": 0, "z": z} for x, z in ((0, 0), (0, 4), (4, 4), (4, 0))]
    wall = {"id": "w", "polygon": [*corners[:2], *({**corner, "y": 2.5} for corner in corners[:2])]}
    house = {"rooms": [{"floorPolygon": corners}], "walls": [wall], "doors": [], "objects": [item]}
    with pytest.raises(BatchnavError, match="nested"):
        make_procthor_house(house, {})
