"""Steps that `batchnav train encoder` and `batchnav train detector` share: scenes, training, measures, files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from batchnav.cli.console import check_options, show
from batchnav.data.scenes.ids import has_random_materials, scene_ids
from batchnav.data.scenes.load import load_all
from batchnav.errors import ArgumentError, CheckpointError
from batchnav.procedural import make_material_library
from batchnav.runtime.console import announce, number_of
from batchnav.runtime.device import resolve_device
from batchnav.runtime.files import check_target, replacing
from batchnav.scene.bank import SceneBank
from batchnav.sensors.frame import appearance_needed
from batchnav.sensors.sensor import CameraSensor
from batchnav.training.vision import HELD_OUT

if TYPE_CHECKING:
    from batchnav.cli.train import DetectorOptions, EncoderOptions

NOT_KEPT = {"out", "base_width", "eval_batches", "device"}
"""Options that the file of the weights does not state as training."""


def check(options: EncoderOptions | DetectorOptions, multiple: int) -> None:
    """ArgumentError for options out of range, and for an image size that is no multiple of this number."""
    check_options(options)
    if options.image_size % multiple:
        raise ArgumentError(f"--image-size: found {options.image_size}, expected a multiple of {multiple}")


class Scenes(NamedTuple):
    """Scenes of a training, and which of them are held out for the measures."""

    bank: SceneBank
    names: list[str]
    training: torch.Tensor
    """i64 [T] on the device: rows of the bank."""
    held_out: torch.Tensor
    """i64 [H] on the device: rows of the bank."""

    def families(self) -> dict[str, torch.Tensor]:
        """Rows of the held-out scenes by family, "files" for others, then "all" of them."""
        groups: dict[str, list[int]] = {}
        for row in self.held_out.tolist():
            family, colon, _ = self.names[row].partition(":")
            groups.setdefault(family if colon else "files", []).append(row)
        device = self.held_out.device
        found = {name: torch.tensor(group, dtype=torch.int64, device=device) for name, group in groups.items()}
        return {**found, "all": self.held_out}


def load(
    options: EncoderOptions | DetectorOptions, sensors: Iterable[CameraSensor], all_held_out: bool = False
) -> Scenes:
    """The scenes, with the appearance that the sensors read; every tenth one is held out, or all of them.

    CheckpointError where the weights cannot be written; ArgumentError for too few scenes.
    """
    check_target(options.out, CheckpointError)
    device, names = resolve_device(options.device), scene_ids(options.scenes)
    if not all_held_out and len(names) < HELD_OUT:
        found = number_of(len(names), "scene")
        raise ArgumentError(f"scenes: found {found}, expected {HELD_OUT} or more, of which one is held out")
    library = make_material_library() if any(map(has_random_materials, names)) else None
    bank = SceneBank.pack(load_all(names), device, appearance_needed(sensors), library)
    rows = torch.arange(len(names), dtype=torch.int64, device=device)
    held_out = (rows % HELD_OUT == HELD_OUT - 1) | all_held_out
    announce(f"{number_of(len(names), 'scene')}, of which {int(held_out.sum())} held out")
    return Scenes(bank, names, rows[~held_out], rows[held_out])


def description(options: EncoderOptions | DetectorOptions, measures: Mapping[str, Any]) -> dict[str, Any]:
    """Training and measures (NamedTuples by family), as the weights' file keeps them: values that JSON can hold."""
    training = {name: value for name, value in asdict(options).items() if name not in NOT_KEPT}
    return {"training": training, "measures": {name: row._asdict() for name, row in measures.items()}}


def write(path: Path, save: Callable[[], None], card: str) -> None:
    """Write the weights, and their card beside them."""
    save()
    beside = path.with_suffix(".md")
    with replacing(beside, CheckpointError) as part:
        part.write_text(card, encoding="utf-8")
    show(f"weights: {path}; card: {beside}")
