"""Train a colour encoder on renders: the program of `batchnav train encoder`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.table import Table

from batchnav.cli.console import show
from batchnav.cli.renders import check, description, load, write
from batchnav.errors import ArgumentError
from batchnav.policy.encoder import CELL
from batchnav.policy.vision import FARTHEST, NEAREST, VisionNet, load_vision, save_vision
from batchnav.runtime.console import new_run, next_command
from batchnav.training.vision import Measures, ViewSampler, measure, sensors_of, train

if TYPE_CHECKING:
    from batchnav.cli.train import EncoderOptions


def main(options: EncoderOptions) -> None:
    """Render views, train, print measures on held-out scenes by family, and write weights and card."""
    check(options, CELL)
    former = load_vision(options.init_from) if options.init_from else None
    scenes = load(options, sensors_of(options.image_size).values())
    bank = scenes.bank
    sampler = ViewSampler(bank, options.pairs, options.image_size, options.seed)
    network = initial_network(options, bank.categories, former).to(bank.device)
    if options.steps:
        train(network, sampler, scenes.training, options.steps, options.learning_rate, options.out)
    sampler.randomize_materials(0)
    groups = scenes.families().items()
    measures = {name: measure(network, sampler, group, options.eval_batches) for name, group in groups}
    network.info = description(options, measures)
    write(options.out, lambda: save_vision(options.out, network), card_text(options.out, network))
    show(table_of(measures))
    on_cpu = "pointnav_depth_cpu", "--env.sensors", "rgb", "--policy.normalized", "rgb"
    config = ("pointnav_rgb_h200",) if bank.device.type == "cuda" else on_cpu
    width = "--policy.encoder", "se_resnet9", "--policy.se-resnet9.base-width", network.base_width
    words = *config, *width, "--policy.se-resnet9.weights", options.out.absolute()
    show(next_command("train an agent with it", "batchnav", "train", "--config", *words, *new_run()))


def initial_network(options: EncoderOptions, categories: tuple[str, ...], former: VisionNet | None) -> VisionNet:
    """The network to train: `former`, or one with random weights.

    ArgumentError where the former one has another width or other categories.
    """
    if former is None:
        torch.manual_seed(options.seed)
        return VisionNet(options.base_width, categories)
    expected = {"--base-width": former.base_width, "--scenes: categories": former.categories}
    for name, found in (("--base-width", options.base_width), ("--scenes: categories", categories)):
        if found != expected[name]:
            raise ArgumentError(f"{name}: found {found}, expected {expected[name]}, as in {options.init_from}")
    return former


def table_of(measures: Mapping[str, Measures]) -> Table:
    """The measures as a table, a row for each family."""
    titles = "views", "depth error", "within 1.25", "normals", "mIoU", "place"
    table = Table("held-out scenes", *titles)
    for name, row in measures.items():
        table.add_row(name, *cells(row))
    return table


def cells(row: Measures) -> tuple[str, ...]:
    """Cells of a row of `table_of`."""
    views, error, within, angle, iou, place = row
    return f"{views:,}", f"{error:.1%}", f"{within:.1%}", f"{angle:.1f} deg", f"{iou:.3f}", f"{place:.1%}"


def card_text(path: Path, network: VisionNet) -> str:
    """The model card, in Markdown."""
    training = network.info["training"]
    lines = [
        f"| {name} | " + " | ".join(cells(Measures(**row))) + " |" for name, row in network.info["measures"].items()
    ]
    size = training["image_size"]
    images = 2 * training["pairs"] * training["steps"]
    return f"""# {path.stem}: a colour encoder that learned on renders

Inputs: colour images of any size from 16x16 on, trained at {size}x{size} and 90 degrees. Parts: the trunk of a
`se_resnet9` of base width {network.base_width}, and heads for depth ({NEAREST:g} to {FARTHEST:g} m), normals,
{len(network.categories) - 1} semantic categories and embeddings of places.

Start an agent from it:

    policy:
      encoder: se_resnet9
      normalized: [rgb]
      se_resnet9: {{base_width: {network.base_width}, weights: {path.name}}}

## Measures on held-out scenes

| scenes | views | relative depth error | ratio within 1.25 | angle of normals | mIoU | place found |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
{chr(10).join(lines)}

Place found: the view of the same place, up to 1 m and 34 degrees apart, is nearest among {training["pairs"]} views.

## Training

`batchnav train encoder` on {images:,} rendered views, {training["steps"]:,} steps, seed {training["seed"]}, in
{", ".join(f"`{name}`" for name in training["scenes"])}; every tenth scene is held out.
Lights, colours, sharpness, noise and the materials of procedural scenes vary.

Limits: renders are unlit; depth is that of cameras with 90 degrees, 0.6 to 1.6 m above the floor, nearly level.

Licence: MIT for weights that learned in procedural scenes.
"""
