"""Train an object detector on renders: the program of `batchnav train detector`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from rich.table import Table

from batchnav.cli.console import check_options, show
from batchnav.cli.encoder import families
from batchnav.data.scenes.ids import has_random_materials, scene_ids
from batchnav.data.scenes.load import load_all
from batchnav.errors import ArgumentError, CheckpointError
from batchnav.evaluation.predicted_masks import MASK_PIXELS
from batchnav.procedural import make_material_library
from batchnav.runtime.console import announce, next_command, number_of
from batchnav.runtime.device import resolve_device
from batchnav.runtime.files import check_target, replacing
from batchnav.scene.bank import SceneBank
from batchnav.sensors.detector import DetectorNet, load_detector, save_detector
from batchnav.sensors.frame import appearance_needed
from batchnav.training.detection import MaskCounts, ObjectViews, categories_named, measure, sensors_of, train
from batchnav.training.vision import HELD_OUT

if TYPE_CHECKING:
    from batchnav.cli.train import DetectorOptions

MULTIPLE = 32
"""The image size is a multiple of this."""


def main(options: DetectorOptions) -> None:
    """Render views, train, print precision and recall in held-out scenes by family, and write weights and card."""
    check_options(options)
    if options.image_size % MULTIPLE:
        raise ArgumentError(f"--image-size: found {options.image_size}, expected a multiple of {MULTIPLE}")
    network = initial_network(options)
    check_target(options.out, CheckpointError)
    device, names = resolve_device(options.device), scene_ids(options.scenes)
    if options.steps and len(names) < HELD_OUT:
        found = number_of(len(names), "scene")
        raise ArgumentError(f"scenes: found {found}, expected {HELD_OUT} or more, of which one is held out")
    library = make_material_library() if any(map(has_random_materials, names)) else None
    fields = appearance_needed(sensors_of(options.image_size).values())
    bank = SceneBank.pack(load_all(names), device, fields, library)
    sampler = ObjectViews(bank, options.views, options.image_size, options.labels, options.seed)
    network = network.to(device)
    rows = torch.arange(len(names), dtype=torch.int64, device=device)
    held_out = rows % HELD_OUT == HELD_OUT - 1 if options.steps else rows >= 0
    announce(f"{number_of(len(names), 'scene')}, of which {int(held_out.sum())} held out")
    if options.steps:
        train(network, sampler, rows[~held_out], options.steps, options.learning_rate, options.out)
    sampler.randomize_materials(0)
    counts = {
        name: measure(network, sampler, group, options.eval_batches)
        for name, group in families(names, rows[held_out]).items()
    }
    network.info = description(options, counts)
    save_detector(options.out, network)
    card = options.out.with_suffix(".md")
    with replacing(card, CheckpointError) as part:
        part.write_text(card_text(options.out.stem, network), encoding="utf-8")
    show(table_of(counts, network.categories))
    show(f"weights: {options.out}; card: {card}")
    detector = "--env.goal-mask.detector", options.out.absolute()
    words = "objectnav_mask_small", "--task", "objectnav", "--env.goal-mask.mask-noise", "0"
    show(next_command("find objects with it", "batchnav", "evaluate", *words, *detector))


def initial_network(options: DetectorOptions) -> DetectorNet:
    """The network to train. ArgumentError where the given one has other categories, and for none without training."""
    categories = categories_named(options.labels)
    if not options.init_from:
        if not options.steps:
            raise ArgumentError("--steps: found 0 without --init-from, expected weights to measure")
        if not categories:
            raise ArgumentError(f"--labels: found {options.labels}, expected a label map with categories")
        torch.manual_seed(options.seed)
        return DetectorNet(categories)
    former = load_detector(options.init_from)
    if former.categories != categories:
        found, expected = ", ".join(categories), ", ".join(former.categories)
        raise ArgumentError(f"--labels: found {found}, expected {expected}, as in {options.init_from}")
    return former


def description(options: DetectorOptions, counts: Mapping[str, MaskCounts]) -> dict[str, Any]:
    """Training and measures, as the file keeps them: values that JSON can hold."""
    kept = ("scenes", "labels", "steps", "views", "image_size", "learning_rate", "init_from", "seed")
    training = {name: getattr(options, name) for name in kept}
    return {"training": training, "measures": {name: row._asdict() for name, row in counts.items()}}


def table_of(counts: Mapping[str, MaskCounts], categories: tuple[str, ...]) -> Table:
    """Precision and recall as a table, a row for each family."""
    table = Table("held-out scenes", "all", *categories, caption=f"precision, recall of masks of {MASK_PIXELS} pixels")
    for name, row in counts.items():
        table.add_row(name, *cells(row))
    return table


def cells(row: MaskCounts) -> list[str]:
    """Cells of a row of `table_of`."""
    numbers = None, *range(len(row.shown))
    return [", ".join("-" if math.isnan(rate) else f"{rate:.3f}" for rate in row.rates(number)) for number in numbers]


def card_text(name: str, network: DetectorNet) -> str:
    """The model card, in Markdown."""
    training = network.info["training"]
    size, labels = training["image_size"], network.categories
    lines = [f"| {family} | " + " | ".join(cells(MaskCounts(**row))) + " |" for family, row in
             network.info["measures"].items()]  # fmt: skip
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return f"""# {name}: an object detector that learned on renders

Finds {", ".join(labels)} in colour and depth, pixel by pixel. Inputs: images at twice the resolution of the masks, with
lens, height and pitch of the camera. A U-Net of {parameters:,} parameters.

    batchnav evaluate objectnav_mask_small --task objectnav --env.goal-mask.mask-noise 0 \\
        --env.goal-mask.detector {name}.safetensors

## Measures on held-out scenes

Precision and recall of masks of {MASK_PIXELS} pixels or more, in images of {size}x{size}; half of the views look at an
object from up to 5 m.

| scenes | all | {" | ".join(labels)} |
| --- | {" | ".join(["---:"] * (1 + len(labels)))} |
{chr(10).join(lines)}

## Training

`batchnav train detector` on {training["views"] * training["steps"]:,} rendered views, {training["steps"]:,} steps, seed
{training["seed"]}, in {", ".join(f"`{each}`" for each in training["scenes"])}; every tenth scene is held out.
Lights, colours, sizes, and the materials of procedural scenes vary.

Limits: renders are unlit; cameras have 65 to 115 degrees, are 0.6 to 1.6 m above the floor, and nearly level.

Licence: MIT for weights that learned in procedural scenes.
"""
