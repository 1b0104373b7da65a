"""Height above the start: a toy of the seam `envs.observations.SOURCES`, in a file outside the package."""

import math
from dataclasses import dataclass

import torch

from batchnav.envs.observations import SOURCES
from batchnav.observation import ObservationSource, Requirements, Spec


class Altimeter(ObservationSource):
    """f32 [N, 1]: height above the episode's start, in `unit` metres."""

    @dataclass(frozen=True)
    class Config:
        """Settings of the sensor."""

        unit: float = 1.0
        """Length of a unit, metres."""

    def __init__(self, config):
        self.spec = Spec("altimeter", (1,), torch.float32, -math.inf, math.inf, torch.float32)
        self.requires, self.unit = Requirements(), config.altimeter.unit

    def write(self, frame, out):
        """Write the heights."""
        bodies = frame.bodies
        out.copy_((bodies.position[:, 1:2] - bodies.start[:, 1:2]) / self.unit)


SOURCES["altimeter"] = Altimeter
