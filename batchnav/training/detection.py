"""Training of object detectors on renders: views with labels, the loss, the loop, and precision and recall of masks.

Half of the views look at an object of a category, from random places around it; the categories of a scene come up
equally often. Colours and sizes vary; some views have no colour, so that shape counts, and some lack the ceiling.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

from batchnav.data.goals.rules import labels_named
from batchnav.data.goals.view_points import objects_of
from batchnav.evaluation.predicted_masks import MASK_PIXELS
from batchnav.runtime.device import compiled
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene
from batchnav.sensors.camera import MAIN, CameraConfig
from batchnav.sensors.detector import LEAST_SCORE, SCALE, DetectorNet, Views, encoded, points_of, save_detector
from batchnav.sensors.rgb import RGBSensor
from batchnav.sensors.scene_images import PlanarDepth
from batchnav.sensors.semantic import SemanticSensor
from batchnav.sensors.sensor import CameraSensor
from batchnav.training.vision import POINTS, Renders, camera_of, fit

HFOVS = 65.0, 115.0
"""Range of the field of view, degrees."""
DISTANCES = 0.5, 5.0
"""Range of the horizontal distance to the object that a view looks at, metres."""
ASIDE, WIGGLE = 0.6, 0.3
"""Largest angle between such a view and the object; largest angle that any heading is turned by; radians."""
GREY, BLANK = 0.1, 0.4
"""Share of the training views in grey, and without any colour."""
SIZES, NO_CEILING, CEILINGS = 0.15, 0.4, (1.9, 2.8)
"""Largest relative change of sizes; share of training views without what is above a height from this range, metres."""
WEIGHTS = 0.5, 4.0
"""Range of a pixel's weight in the loss: its depth in metres."""


class LabelledViews(NamedTuple):
    """B views and the category of each pixel."""

    views: Views
    labels: torch.Tensor
    """i64 [B, H, W]: 0 for no category, else 1 + its number."""


def categories_named(labels: str) -> tuple[str, ...]:
    """The categories of a label map by name (`data.goals.rules.LABELS`)."""
    return labels_named(labels).categories


@functools.cache
def category_of(labels: str, label: str) -> str | None:
    """The category of a scene's label by a label map's name; None for others."""
    return labels_named(labels).category(label)


def sensors_of(image_size: int) -> dict[str, CameraSensor]:
    """Sensors of the views by name."""
    camera = detector_camera(image_size)
    return {"rgb": RGBSensor(camera), "depth": PlanarDepth(camera), "semantic": SemanticSensor(camera)}


def detector_camera(image_size: int) -> CameraConfig:
    """The camera of all views."""
    return replace(camera_of(image_size), hfov_range_deg=HFOVS)


def places_near_objects(scene: Scene, labels: str, seed: int) -> np.ndarray:
    """Poses f32 [POINTS, 4]: position and heading. Those in the second half look at objects, where there are any."""
    points, random = scene.navmesh.sample(POINTS, seed, island="largest"), np.random.default_rng(seed)
    heading = random.uniform(0.0, 2.0 * math.pi, POINTS)
    things = objects_of((scene.semantic or scene).mesh, lambda label: category_of(labels, label) is not None)
    by_category: dict[str | None, list[tuple[np.ndarray, np.ndarray]]] = {}
    for thing in things:
        toward = thing.centre - points
        distance = np.hypot(toward[:, 0], toward[:, 2])
        low, high = thing.low[1] - points[:, 1], thing.high[1] - points[:, 1]
        near = (distance > DISTANCES[0]) & (distance < DISTANCES[1]) & (high > 0.0) & (low < 2.0)  # of this storey
        if near.any():
            weight = np.where(near, 1.0 / np.maximum(distance, DISTANCES[0]), 0.0)
            by_category.setdefault(category_of(labels, thing.label), []).append((toward, np.cumsum(weight)))
    poses = np.column_stack([points, heading]).astype(np.float32)
    groups = list(by_category.values())
    for row in range(POINTS // 2, POINTS) if groups else ():
        group = groups[row % len(groups)]
        toward, total = group[int(random.integers(len(group)))]
        k = min(int(np.searchsorted(total, random.uniform(0.0, total[-1]), side="right")), POINTS - 1)
        aim = math.atan2(-toward[k, 0], -toward[k, 2]) + random.uniform(-ASIDE, ASIDE)
        poses[row] = *points[k], aim
    return poses


class ObjectViews(Renders):
    """Renders random views with labels in the scenes of a bank.

    Args:
        bank: scenes, with the appearance fields that `sensors_of` needs.
        number: number of views in a batch.
        image_size: rows and columns of an image.
        labels: name of the label map, from the scenes' labels to categories.
        seed: seed of places and cameras.
    """

    def __init__(self, bank: SceneBank, number: int, image_size: int, labels: str, seed: int):
        places = np.stack([places_near_objects(scene, labels, seed + k) for k, scene in enumerate(bank.scenes)])
        super().__init__(bank, number, detector_camera(image_size), sensors_of(image_size), places, seed)
        self.categories = categories_named(labels)
        found = (category_of(labels, label) for label in bank.categories)
        numbers = [0 if name is None else 1 + self.categories.index(name) for name in found]
        self._numbers = torch.tensor(numbers, dtype=torch.int64, device=bank.device)

    def __call__(self, scenes: torch.Tensor) -> LabelledViews:
        """Views in random scenes among `scenes`, i64 [S] on the bank's device; the next call overwrites them."""
        n = self._number
        scene = scenes[self._integers(len(scenes), n)]
        places = self._places[scene, self._integers(POINTS, n)]
        heading = places[:, 3] + WIGGLE * (2.0 * self._uniform(n) - 1.0)
        out = self._render(scene, places[:, :3], heading)
        cameras = self._frame.cameras(MAIN)
        height = cameras.position[:, 1] - self._bodies.position[:, 1]
        views = Views(out["rgb"], out["depth"][:, 0], cameras.tan_half_hfov, height, cameras.pitch)
        return LabelledViews(views, self._numbers[out["semantic"][:, 0].long()])

    def changed(self, views: Views) -> Views:
        """The views with other colours and sizes, some without colour or ceiling."""
        n = len(views.depth)
        rgb, kind = self.varied(views.rgb), self._uniform(n, 1, 1, 1)
        rgb = torch.where(kind < GREY, rgb.mean(1, keepdim=True), rgb)
        blank = (kind >= GREY) & (kind < GREY + BLANK)
        rgb = torch.where(blank, self._uniform(n, 1, 1, 1).expand_as(rgb), rgb)
        low, high = CEILINGS
        limit = low + (high - low) * self._uniform(n, 1, 1)
        open_above = (self._uniform(n, 1, 1) < NO_CEILING) & (points_of(views).up > limit)
        size = 1.0 + SIZES * (2.0 * self._uniform(n) - 1.0)
        depth = torch.where(open_above, 0.0, views.depth) * size[:, None, None]
        rgb = torch.where(open_above[:, None], 0.0, rgb)
        return Views(rgb, depth, views.tan_half_hfov, views.height * size, views.pitch)


def loss_of(logits: torch.Tensor, labels: torch.Tensor, depth: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of logits [B, 1 + C, H, W] with the labels i64 [B, 2 H, 2 W] of each pixel's quarters, nats.

    Weights are depths, f32 [B, 2 H, 2 W]: objects far away have few pixels. They depend on the input alone, so that
    probabilities stay calibrated.
    """
    quarters, weight = (F.pixel_unshuffle(each[:, None], SCALE) for each in (labels, depth.clamp(*WEIGHTS)))
    logs = torch.log_softmax(logits.float(), 1).gather(1, quarters)
    return -(logs * weight).sum() / weight.sum()


def predict(network: Callable[[torch.Tensor], torch.Tensor], views: Views) -> torch.Tensor:
    """Logits for views, computed in bfloat16 on CUDA."""
    planes = encoded(views).contiguous(memory_format=torch.channels_last)
    with torch.autocast(planes.device.type, torch.bfloat16, enabled=planes.is_cuda):
        return network(planes)


def train(
    network: DetectorNet, sampler: ObjectViews, scenes: torch.Tensor, steps: int, learning_rate: float, out: Path
) -> list[float]:
    """Fit a network, on its device, to views of these scenes. Returns the mean loss of each report interval.

    Args:
        network: the network.
        sampler: renders the views.
        scenes: i64 [S] on the device: rows of the bank.
        steps: number of training steps.
        learning_rate: peak rate; after WARM_UP steps it falls as a cosine to 0.
        out: file that every report saves the weights to.
    """
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # annotation of torch
    forward: Callable[[torch.Tensor], torch.Tensor] = network
    if scenes.is_cuda:
        forward = compiled(lambda planes: network(planes))  # measures use the network as it is

    def losses_of_views() -> dict[str, torch.Tensor]:
        views, labels = sampler(scenes)
        return {"loss": loss_of(predict(forward, sampler.changed(views)), labels, views.depth)}

    save = functools.partial(save_detector, out, network)
    reports = fit(network, sampler, steps, learning_rate, losses_of_views, {"loss": 1.0}, save)
    return [report["loss"] for report in reports]


class MaskCounts(NamedTuple):
    """Numbers of views of each category, in which a mask has MASK_PIXELS pixels or more."""

    shown: list[int]
    """Views that show the category."""
    found: list[int]
    """Views in which it is found."""
    hits: list[int]
    """Views with both, where the masks overlap."""

    def rates(self, number: int | None = None) -> tuple[float, float]:
        """Precision and recall of a category, of all for None; NaN where there are no views."""
        shown, found, hits = (sum(each) if number is None else each[number] for each in self)
        return hits / found if found else math.nan, hits / shown if shown else math.nan


@torch.no_grad()
def measure(network: DetectorNet, sampler: ObjectViews, scenes: torch.Tensor, batches: int) -> MaskCounts:
    """Counts over so many batches of views of these scenes, i64 [S] on the device, as rendered."""
    network.eval()
    number = len(network.categories)
    counts = torch.zeros(3, number, dtype=torch.int64, device=scenes.device)
    for _ in range(batches):
        views, labels = sampler(scenes)
        scores = torch.softmax(predict(network, views).float(), 1)[:, 1:]
        found = scores >= LEAST_SCORE
        true = torch.stack([(labels == 1 + k).float() for k in range(number)], 1)
        shown = F.avg_pool2d(true, SCALE) >= 0.5
        large = [mask.sum((2, 3)) >= MASK_PIXELS for mask in (shown, found)]
        hits = large[0] & large[1] & (shown & found).any(3).any(2)
        counts += torch.stack([each.sum(0) for each in (*large, hits)])
    return MaskCounts(*counts.tolist())
