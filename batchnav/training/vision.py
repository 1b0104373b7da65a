"""Training of colour encoders on renders: views of scenes with labels, losses, the loop, and measures.

A batch has P pairs of views: two cameras up to STEP metres and TURN radians apart. The network predicts depth, normals
and semantic categories of each view, and embeddings that tell which views are of one place (InfoNCE: van den Oord et
al., 2018). Lights, colours, sharpness and noise of the images vary, and so do the materials of procedural scenes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

from batchnav.navmesh.navmesh import NavMesh
from batchnav.policy.vision import FARTHEST, NEAREST, Predictions, VisionNet, cell_pixels, save_vision
from batchnav.runtime.console import announce, progress_bar
from batchnav.runtime.device import compiled
from batchnav.scene.bank import SceneBank
from batchnav.sensors.camera import MAIN, CameraConfig, FreeBodies
from batchnav.sensors.frame import Frame, write_observations
from batchnav.sensors.normals import NormalSensor
from batchnav.sensors.rgb import RGBSensor
from batchnav.sensors.scene_images import PlanarDepth
from batchnav.sensors.semantic import SemanticSensor
from batchnav.sensors.sensor import CameraSensor

HELD_OUT = 10
"""One scene of this many is held out for measures."""
POINTS = 1024
"""Pairs of places that are sampled in each scene."""
STEP, TURN, TILT = 1.0, 0.6, 0.15
"""Largest distance (metres) and angle (radians) between the views of a pair; largest pitch, radians."""
CAMERA_HEIGHTS, HFOV_DEG = (0.6, 1.6), 90.0
"""Range of camera heights, metres, and the field of view: depth cannot be predicted without knowing it."""
MATERIALS_EVERY = 10
"""Steps between two randomisations of the materials."""
TEMPERATURE = 0.1
"""Temperature of InfoNCE."""
WEIGHTS = {"depth": 1.0, "normals": 1.0, "categories": 0.5, "places": 0.2}
"""Weights of the losses by name."""
WEIGHT_DECAY, WARM_UP, MAX_GRADIENT_NORM = 0.01, 200, 1.0
"""Weight decay of AdamW; steps over which the learning rate rises linearly; maximum gradient norm."""
REPORT_INTERVAL = 500
"""Steps between two reports of the mean losses; each report also saves the weights."""
CLEAN = 0.2
"""Fraction of the images that stay as rendered."""


class Views(NamedTuple):
    """B views: 2 P images, of which i and P + i are of one place."""

    image: torch.Tensor
    """u8 [B, 3, H, W]."""
    depth: torch.Tensor
    """f32 [B, 1, H, W]: planar depth, metres; 0 for holes."""
    normals: torch.Tensor
    """f32 [B, 3, H, W]: (right, up, back); 0 for holes."""
    categories: torch.Tensor
    """i32 [B, 1, H, W]: rows of the bank's categories; 0: unknown."""


class Seeds(NamedTuple):
    """Seed of the cameras' heights, as `sensors.camera.Seeds` has it."""

    seed: torch.Tensor
    first_agent: torch.Tensor


def camera_of(image_size: int) -> CameraConfig:
    """The camera of all views."""
    low, high = CAMERA_HEIGHTS
    height = (low + high) / 2.0
    return CameraConfig(
        height=image_size, width=image_size, hfov_deg=HFOV_DEG, camera_height=height, camera_height_range=(low, high)
    )


def sensors_of(image_size: int) -> dict[str, CameraSensor]:
    """Sensors that write the fields of `Views`, by name."""
    camera = camera_of(image_size)
    kinds = {"rgb": RGBSensor, "depth": PlanarDepth, "normals": NormalSensor, "semantic": SemanticSensor}
    return {name: kind(camera) for name, kind in kinds.items()}


def pairs_of_places(navmesh: NavMesh, seed: int) -> np.ndarray:
    """Random places, and for each another one that an agent reaches by moving up to STEP metres: f32 [POINTS, 2, 3]."""
    first = navmesh.sample(POINTS, seed, island="largest")
    random = np.random.default_rng(seed)
    angle, length = random.uniform(0.0, 2.0 * math.pi, POINTS), random.uniform(0.0, STEP, POINTS)
    apart = np.column_stack([length * np.cos(angle), np.zeros(POINTS), length * np.sin(angle)])
    return np.stack([first, navmesh.try_step(first, (first + apart).astype(np.float32))], 1)


class Renders:
    """Renders N views at a time in the scenes of a bank, and varies their colours.

    Args:
        bank: scenes, with the appearance fields that the sensors need.
        number: number N of views.
        camera: camera of all views.
        sensors: sensors of the views by name.
        places: poses of each scene, [S, ...].
        seed: seed of cameras and colours.
    """

    def __init__(
        self,
        bank: SceneBank,
        number: int,
        camera: CameraConfig,
        sensors: dict[str, CameraSensor],
        places: np.ndarray,
        seed: int,
    ):
        device = bank.device
        self.bank, self._number = bank, number
        self._random = torch.Generator(device).manual_seed(seed)
        self._places = torch.from_numpy(places).to(device)
        self._bodies = FreeBodies.at_origin(number, device)
        self._seeds = Seeds(*(torch.full((1,), value, dtype=torch.int64, device=device) for value in (seed, 0)))
        self._sensors = sensors
        self._frame = Frame(bank, self._bodies, {MAIN: camera}, sensors.values(), seeds=self._seeds)
        self._out = {
            name: torch.zeros(number, *sensor.spec.shape, dtype=sensor.spec.dtype, device=device)
            for name, sensor in sensors.items()
        }

    def _render(self, scene: torch.Tensor, position: torch.Tensor, heading: torch.Tensor) -> dict[str, torch.Tensor]:
        """Observations by name, which the next call overwrites; each call samples other tilts, heights and lenses."""
        bodies = self._bodies
        bodies.scene.copy_(scene)
        bodies.position.copy_(position)
        bodies.heading.copy_(heading)
        bodies.tilt.copy_(TILT * (2.0 * self._uniform(self._number) - 1.0))
        bodies.episode.add_(1)
        write_observations(self._frame, self._sensors, self._out)
        return self._out

    def randomize_materials(self, count: int) -> None:
        """Give procedural scenes the materials of randomisation number `count`."""
        self.bank.randomize_materials(self._seeds.seed, count)

    def _uniform(self, *shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=self._random, dtype=torch.float32, device=self.bank.device)

    def _integers(self, below: int, number: int) -> torch.Tensor:
        device = self.bank.device
        return torch.randint(below, (number,), generator=self._random, dtype=torch.int64, device=device)

    def varied(self, image: torch.Tensor) -> torch.Tensor:
        """Images f32 [B, 3, H, W] in 0..1 with other lights, colours, sharpness and noise, of bytes [B, 3, H, W]."""
        n, _, height, width = image.shape
        x = rendered = image.float() / 255.0
        lights = 0.6 + 0.8 * self._uniform(n, 1, 3, 3)
        gain = torch.exp(0.25 * self._normal(n, 1, 1, 1) + 0.08 * self._normal(n, 3, 1, 1))
        x = x * F.interpolate(lights, (height, width), mode="bilinear", align_corners=True) * gain
        x = x.clamp(1e-3, 1.0).pow(torch.exp(0.2 * self._normal(n, 1, 1, 1)))
        x = torch.where(self._uniform(n, 1, 1, 1) < 0.2, F.avg_pool2d(x, 3, 1, 1, count_include_pad=False), x)
        x = x + 0.04 * self._uniform(n, 1, 1, 1) * self._normal(*x.shape)
        return torch.where(self._uniform(n, 1, 1, 1) < CLEAN, rendered, x.clamp(0.0, 1.0))

    def _normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self._random, dtype=torch.float32, device=self.bank.device)


class ViewSampler(Renders):
    """Renders random pairs of views in the scenes of a bank.

    Args:
        bank: scenes, with the appearance fields that `sensors_of` needs.
        pairs: number P of pairs in a batch.
        image_size: rows and columns of an image.
        seed: seed of places and cameras.
    """

    def __init__(self, bank: SceneBank, pairs: int, image_size: int, seed: int):
        places = np.stack([pairs_of_places(scene.navmesh, seed + k) for k, scene in enumerate(bank.scenes)])
        super().__init__(bank, 2 * pairs, camera_of(image_size), sensors_of(image_size), places, seed)

    def __call__(self, scenes: torch.Tensor) -> Views:
        """Views in random scenes among `scenes`, i64 [S] on the bank's device; the next call overwrites them."""
        pairs = self._number // 2
        scene = scenes[self._integers(len(scenes), pairs)]
        places = self._places[scene, self._integers(POINTS, pairs)]
        heading = self._uniform(pairs) * 2.0 * math.pi
        turned = heading + TURN * (2.0 * self._uniform(pairs) - 1.0)
        out = self._render(scene.repeat(2), places.transpose(0, 1).reshape(-1, 3), torch.cat([heading, turned]))
        return Views(out["rgb"], out["depth"], out["normals"], out["semantic"])


def losses(found: Predictions, views: Views) -> dict[str, torch.Tensor]:
    """Losses by name, as in WEIGHTS: scalars, each a mean over the pixels that have a label."""
    seen = views.depth > 0.0
    error = (found.log_depth.float() - log_depth(views.depth)).abs()
    normals, labels = cell_pixels(views.normals), cell_pixels(views.categories)[:, 0].long()
    angles = 1.0 - F.cosine_similarity(found.normals.float(), normals, dim=1)
    visible = normals.square().sum(1) > 0.0
    unknown = labels == 0
    classes = F.cross_entropy(
        found.categories.float(), labels.masked_fill(unknown, -1), ignore_index=-1, reduction="sum"
    )
    return {
        "depth": mean_where(error, seen),
        "normals": mean_where(angles, visible),
        "categories": classes / (~unknown).sum().clamp(min=1),
        "places": place_loss(found.embedding),
    }


def log_depth(depth: torch.Tensor) -> torch.Tensor:
    """Logarithm of depth in metres, within the range that is predicted."""
    return depth.clamp(NEAREST, FARTHEST).log()


def mean_where(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean of the values where the mask is True; 0 where it is nowhere."""
    return (values * mask).sum() / mask.sum().clamp(min=1)


def place_loss(embedding: torch.Tensor) -> torch.Tensor:
    """InfoNCE of embeddings [2 P, D], of which i and P + i are of one place, in both directions; nats."""
    first, second = embedding.chunk(2)
    alike = first @ second.mT / TEMPERATURE
    which = torch.arange(len(alike), dtype=torch.int64, device=alike.device)
    return (F.cross_entropy(alike, which) + F.cross_entropy(alike.mT, which)) / 2.0


def predict(network: VisionNet, image: torch.Tensor) -> Predictions:
    """Predictions for images, computed in bfloat16 on CUDA."""
    with torch.autocast(image.device.type, torch.bfloat16, enabled=image.is_cuda):
        found: Predictions = network(image)
    return found


def train(
    network: VisionNet, sampler: ViewSampler, scenes: torch.Tensor, steps: int, learning_rate: float, out: Path
) -> list[dict[str, float]]:
    """Fit a network, on its device, to views of these scenes. Returns the mean losses of each report interval.

    Args:
        network: the network.
        sampler: renders the views.
        scenes: i64 [S] on the device: rows of the bank.
        steps: number of training steps.
        learning_rate: peak rate; after WARM_UP steps it falls as a cosine to 0.
        out: file that every report saves the weights to.
    """
    if scenes.is_cuda:
        compiled(network)

    def losses_of_views() -> dict[str, torch.Tensor]:
        views = sampler(scenes)
        return losses(predict(network, sampler.varied(views.image)), views)

    return fit(network, sampler, steps, learning_rate, losses_of_views, WEIGHTS, lambda: save_vision(out, network))


def fit(
    network: torch.nn.Module,
    sampler: Renders,
    steps: int,
    learning_rate: float,
    losses_of_views: Callable[[], Mapping[str, torch.Tensor]],
    weights: Mapping[str, float],
    save: Callable[[], None],
) -> list[dict[str, float]]:
    """Fit a network, on the sampler's device, by AdamW. Returns the mean losses of each report interval by name.

    Args:
        network: the network.
        sampler: renders the views; its materials are randomised now and then.
        steps: number of training steps.
        learning_rate: peak rate; after WARM_UP steps it falls as a cosine to 0.
        losses_of_views: makes new views and returns the losses on them by name, f32 scalars.
        weights: weight of each loss.
        save: called after every report.
    """
    device, reports = sampler.bank.device, []
    how: Any = {"lr": learning_rate, "weight_decay": WEIGHT_DECAY, "fused": device.type == "cuda"}
    optimizer = torch.optim.AdamW(network.parameters(), **how)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda k: min(1.0, (k + 1) / WARM_UP) * (1.0 + math.cos(math.pi * k / steps)) / 2.0
    )
    totals = torch.zeros(len(weights), dtype=torch.float32, device=device)
    factors = torch.tensor([*weights.values()], dtype=torch.float32, device=device)
    network.train()
    with progress_bar("training steps", steps) as advance:
        for step in range(1, steps + 1):
            if step % MATERIALS_EVERY == 1:
                sampler.randomize_materials(step // MATERIALS_EVERY)
            parts = losses_of_views()
            each = torch.stack([parts[name] for name in weights])
            optimizer.zero_grad()
            (each * factors).sum().backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), MAX_GRADIENT_NORM)
            optimizer.step()
            rate.step()
            totals += each.detach()
            advance(step)
            if step % REPORT_INTERVAL == 0 or step == steps:
                means = (totals / ((step - 1) % REPORT_INTERVAL + 1)).tolist()
                totals.zero_()
                reports.append(dict(zip(weights, means, strict=True)))
                announce(f"step {step}: " + ", ".join(f"{name} {value:.4f}" for name, value in reports[-1].items()))
                save()
    return reports


class Measures(NamedTuple):
    """Errors of predictions on views of held-out scenes, as rendered."""

    views: int
    """Number of views."""
    depth_error: float
    """Mean of |predicted - true| / true depth; true depth within the range that is predicted."""
    depth_within: float
    """Fraction of pixels whose ratio of predicted and true depth is below 1.25 (or above 1 / 1.25)."""
    normal_angle: float
    """Mean angle between predicted and true normals, degrees."""
    mean_iou: float
    """Mean intersection over union of the categories in these views; 0 where the scenes have no categories."""
    place_accuracy: float
    """Fraction of views whose nearest embedding among P views is that of their place."""


@torch.no_grad()
def measure(network: VisionNet, sampler: ViewSampler, scenes: torch.Tensor, batches: int) -> Measures:
    """Measures over so many batches of views of these scenes, i64 [S] on the device."""
    network.eval()
    sums = torch.zeros(5, dtype=torch.float64, device=scenes.device)
    number = len(network.categories)
    confusion = torch.zeros(number, number, dtype=torch.int64, device=scenes.device)
    views = 0
    for _ in range(batches):
        batch = sampler(scenes)
        found = predict(network, batch.image)
        seen, true = batch.depth > 0.0, batch.depth.clamp(NEAREST, FARTHEST)
        ratio = (found.log_depth.float().clamp(math.log(NEAREST), math.log(FARTHEST)) - true.log()).exp()
        normals, labels = cell_pixels(batch.normals), cell_pixels(batch.categories)[:, 0].long()
        visible = normals.square().sum(1) > 0.0
        angle = torch.rad2deg(torch.acos(F.cosine_similarity(found.normals.float(), normals, dim=1).clamp(-1.0, 1.0)))
        first, second = found.embedding.chunk(2)
        nearest = (first @ second.mT).argmax(1)
        own = torch.arange(len(nearest), dtype=torch.int64, device=nearest.device)
        sums += torch.stack([
            mean_where((ratio - 1.0).abs(), seen), mean_where(((ratio < 1.25) & (ratio > 0.8)).float(), seen),
            mean_where(angle, visible), (nearest == own).float().mean(), torch.ones_like(ratio[0, 0, 0, 0]),
        ]).double()  # fmt: skip
        logits = found.categories.float()
        logits[:, 0] = -math.inf  # number 0 is no category
        confusion += torch.bincount(labels.flatten() * number + logits.argmax(1).flatten(), minlength=number**2).view(
            number, number
        )
        views += len(labels)
    error, within, degrees, places = (sums[:4] / sums[4]).tolist()
    return Measures(views, error, within, degrees, mean_iou(confusion), places)


def mean_iou(confusion: torch.Tensor) -> float:
    """Mean intersection over union of the labels 1 and up that occur; 0 where none does.

    confusion: i64 [C, C], number of pixels by label (row) and prediction. Pixels with label 0 do not count.
    """
    known = confusion.double()
    known[0] = 0.0
    both, labelled, predicted = known.diag(), known.sum(1), known.sum(0)
    occurs = labelled > 0
    return float((both / (labelled + predicted - both))[occurs].mean()) if occurs.any() else 0.0
