"""Figures of the docs: camera poses, and the contents of the sheets."""

import numpy as np
from PIL import Image

from batchnav.data.scenes.load import load_scene
from batchnav.sensors.scene_images import render
from docs.figures import pictures

GAP = pictures.GAP
LOSSES = 6  # of 255: WebP's compression error is 2.6, and pictures with other materials differ by at least 18


def test_cameras_see_many_categories_and_are_apart():
    scene = load_scene("house:3")
    eyes, headings = pictures.best_views(scene, 2, 40)
    assert eyes.shape == (2, 3) and np.linalg.norm(eyes[0] - eyes[1]) > pictures.APART
    most, all_of_them = (
        [len(np.unique(ids)) for ids in render(scene, *poses, ("semantic",))["semantic"]]
        for poses in ((eyes, headings), pictures.best_views(scene, 40, 40))
    )
    assert most[0] == max(all_of_them) and min(most) >= np.median(all_of_them)


def test_sensors_are_rows_and_materials_are_columns(tmp_path):
    pictures.main(pictures.Sensors(tmp_path / "sensors.png", scenes=("house:3", "hall:0"), side=32, tries=5))
    assert Image.open(tmp_path / "sensors.png").size == (2 * 32 + GAP, 3 * 32 + 2 * GAP)
    pictures.main(pictures.Materials(tmp_path / "drawn.webp", house="house:3", places=1, times=2, side=32, tries=5))
    drawn = np.asarray(Image.open(tmp_path / "drawn.webp").convert("RGB"), int)
    assert drawn.shape == (32, 3 * 32 + 2 * GAP, 3)
    as_it_is, once, twice = (drawn[:, k * (32 + GAP) :][:, :32] for k in range(3))
    assert np.abs(as_it_is - once).mean() > LOSSES and np.abs(once - twice).mean() > LOSSES


def test_maps_grow_along_a_row_and_have_a_row_a_scene(tmp_path):
    pictures.main(pictures.Maps(tmp_path / "maps.png", scenes=("house:3", "house:1"), times=2, steps=6, tries=4))
    drawn = np.asarray(Image.open(tmp_path / "maps.png").convert("RGB"), int)
    side = 48 * pictures.MAP_ZOOM
    assert drawn.shape == (2 * side + GAP, 2 * side + GAP, 3)
    unknown = (drawn == pictures.MAP_COLOURS[0]).all(2)
    before, after = unknown[:side, :side].sum(), unknown[:side, side + GAP :].sum()
    assert after < before < side * side, "the agent explores more cells"


def test_predictions_are_next_to_the_ground_truth(tmp_path):
    pictures.main(pictures.Predictions(tmp_path / "guesses.png", scenes=("house:3",), times=2, steps=30, tries=4))
    drawn = np.asarray(Image.open(tmp_path / "guesses.png").convert("RGB"), int)
    side = pictures.SHOWN * pictures.CELL_ZOOM
    assert drawn.shape == (side, 3 * side + 2 * GAP, 3)
    *predicted, truth = (drawn[:, k * (side + GAP) :][:, :side] for k in range(3))
    like = lambda part, level: (np.abs(part - pictures.MAP_COLOURS[level]) < 60).all(2)  # noqa: E731 (256 colours)
    wall, floor, goal = (like(truth, level) for level in (3, 1, 6))
    assert (wall | floor | goal).all() and goal.sum() == (3 * pictures.CELL_ZOOM) ** 2
    seen = [like(part, 3).sum() for part in predicted]
    assert seen[0] < seen[1], "the agent explores more cells"
    reddish = (predicted[1][..., 0] > predicted[1][..., 1] + 20) & (predicted[1][..., 2] > 20)
    assert reddish.sum() > 50, "some cells are predicted to be occupied"
