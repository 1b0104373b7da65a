"""The figure of large buildings: the path that it shows, and the file."""

import numpy as np
from PIL import Image

from batchnav.data.episodes.generate import generate_episodes
from batchnav.data.scenes import find_scene
from docs.figures import buildings


def test_the_longest_detour():
    scene = find_scene("house:3")
    start, goal, path = buildings.longest_detour(scene, 50)
    length = np.linalg.norm(np.diff(path, axis=0), axis=1).sum()
    for episode in generate_episodes(scene, 50):
        straight = np.linalg.norm(np.subtract(episode.goals[0].position, episode.start_position))
        assert episode.info["geodesic_distance"] - straight <= length - np.linalg.norm(goal - start) + 1e-3
    assert np.allclose(path[[0, -1]], [start, goal], atol=0.2)


def test_maps_stand_beside_each_other_to_one_scale(tmp_path, capsys):
    options = {"out": tmp_path / "maps.png", "episodes": 20, "pixels_per_metre": 8.0}
    widths = []
    for scenes in (("house:3",), ("house:4",), ("house:3", "house:4")):
        buildings.main(buildings.Options(scenes=scenes, **options))
        widths.append(Image.open(options["out"]).width)
    assert widths[2] == widths[0] + buildings.GAP + widths[1]
    assert "m away" in capsys.readouterr().out
