"""Train an object detector on renders: the program of `batchnav train detector`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from rich.table import Table

from batchnav.cli.console import show
from batchnav.cli.renders import check, description, load, write
from batchnav.errors import ArgumentError
from batchnav.evaluation.predicted_masks import MASK_PIXELS
from batchnav.runtime.console import next_command
from batchnav.sensors.detector import DetectorNet, load_detector, save_detector
from batchnav.training.detection import MaskCounts, ObjectViews, categories_named, measure, sensors_of, train

if TYPE_CHECKING:
    from batchnav.cli.train import DetectorOptions

MULTIPLE = 32
"""The image size is a multiple of this."""


def main(options: DetectorOptions) -> None:
    """Render views, train, print precision and recall in held-out scenes by family, and write weights and card."""
    check(options, MULTIPLE)
    network = initial_network(options)
    scenes = load(options, sensors_of(options.image_size).values(), all_held_out=not options.steps)
    bank = scenes.bank
    sampler = ObjectViews(bank, options.views, options.image_size, options.labels, options.seed)
    network = network.to(bank.device)
    if options.steps:
        train(network, sampler, scenes.training, options.steps, options.learning_rate, options.out)
    sampler.randomize_materials(0)
    groups = scenes.families().items()
    counts = {name: measure(network, sampler, group, options.eval_batches) for name, group in groups}
    network.info = description(options, counts)
    write(options.out, lambda: save_detector(options.out, network), card_text(options.out.stem, network))
    show(table_of(counts, network.categories))
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
