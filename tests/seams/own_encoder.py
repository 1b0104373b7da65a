"""Mean colours of a grid of cells: a toy of the seam `policy.ENCODERS`, in a file outside the package."""

from dataclasses import dataclass

from torch import nn

from batchnav.config import bounded
from batchnav.policy import ENCODERS


class GridEncoder(nn.Module):
    """Images [B, C, H, W] -> features [B, visual_size] of the mean of each cell."""

    @dataclass(frozen=True)
    class Config:
        """Settings of the encoder."""

        cells: int = bounded(4, 1, 64)
        """Number of cells of a side."""

    def __init__(self, image_shape, config, settings):
        super().__init__()
        self.output_size = config.visual_size
        self.pool = nn.AdaptiveAvgPool2d(settings.cells)
        self.norm = nn.BatchNorm2d(image_shape[0])  # its statistics stay: acting and learning read the same
        self.linear = nn.Linear(image_shape[0] * settings.cells**2, self.output_size)
        self.fixed = nn.Linear(self.output_size, self.output_size).requires_grad_(False)  # as pretrained parts are

    def forward(self, image):
        """Features of images."""
        return self.fixed(self.linear(self.pool(self.norm(image)).flatten(1)).tanh())


ENCODERS["grid"] = GridEncoder
