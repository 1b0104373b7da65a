"""FiLM: an encoder whose feature maps are modulated by other images, such as an image of the goal.

Feature-wise linear modulation (Perez et al., AAAI 2018): a feature map x becomes (1 + scale) * x + shift. The other
images have convolutional stages of their own. A 1x1 convolution of each stage's feature map gives scale and shift pixel
by pixel, which is the mid fusion of FGPrompt (Sun et al., NeurIPS 2023).

The other images are equal over many steps. On the CPU their scales and shifts are computed once for equal images; on
CUDA they are computed for every image, since the shapes of a CUDA graph are fixed. Results are equal.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from batchnav.config import chosen_settings
from batchnav.errors import ConfigError
from batchnav.policy.config import ENCODERS, PolicyConfig
from batchnav.policy.encoder import Trunk

GAIN = 0.5
"""Standard deviation of the initial scale and shift, for features of mean square 1."""


class FiLMEncoder(nn.Module):
    """An encoder, and the convolutional stages of the images that modulate it.

    Args:
        image_shape: (C, H, W) of the encoder's images.
        condition_channels: number of channels of the images that modulate it, which have the same H and W.
        config: the architecture.

    ConfigError for an encoder without a trunk.
    """

    def __init__(self, image_shape: tuple[int, int, int], condition_channels: int, config: PolicyConfig):
        super().__init__()
        make, settings = ENCODERS[config.encoder], chosen_settings(config, "encoder")
        if not hasattr(make, "Trunk"):
            able = ", ".join(name for name, encoder in ENCODERS.items() if hasattr(encoder, "Trunk"))
            raise ConfigError(
                f"film: found encoder {config.encoder!r}, expected one with an attribute Trunk: {able}; "
                "choose one of them or leave film empty"
            )
        self.encoder = make(image_shape, config, *settings)
        self.output_size = cast(int, self.encoder.output_size)
        self.trunk = cast(Trunk, make.Trunk((condition_channels, *image_shape[1:]), config, *settings))
        self.film = nn.ModuleList(nn.Conv2d(channels, 2 * channels, 1) for channels in self.trunk.channels)
        for layer in self.film:
            nn.init.normal_(layer.get_parameter("weight"), std=GAIN * cast(nn.Conv2d, layer).in_channels ** -0.5)
            nn.init.zeros_(layer.get_parameter("bias"))
        self._last: _Remembered | None = None

    def forward(self, image: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """[T, B, C, H, W] and [T, B, C', H, W], both in 0..1 -> [T, B, visual_size]."""
        steps = image.shape[:2]
        return self.encoder(image.flatten(0, 1), self._film_of(condition)).unflatten(0, steps)

    def modulation(self, condition: torch.Tensor) -> list[torch.Tensor]:
        """Scale and shift after each stage, [B, 2 * channels, H, W], for images [B, C', H, W] in 0..1."""
        film, x = [], condition
        for stage, layer in zip(self.trunk.stages(), self.film, strict=True):
            x = stage(x)
            film.append(layer(x))
        return film

    def _film_of(self, condition: torch.Tensor) -> list[torch.Tensor]:
        """`modulation` of the images [T, B, C', H, W], flattened: of each distinct image once on the CPU."""
        if condition.device.type != "cpu" or torch.compiler.is_compiling():
            return self.modulation(condition.flatten(0, 1))
        if torch.is_grad_enabled() or len(condition) > 1:
            return self._film_of_distinct(condition)
        return self._film_of_changed(condition[0])

    def _film_of_distinct(self, condition: torch.Tensor) -> list[torch.Tensor]:
        """`modulation` that is computed where an image [T, B, C', H, W] differs from that of the step before."""
        is_new = torch.ones(condition.shape[:2], dtype=torch.bool, device=condition.device)
        is_new[1:] = (condition[1:] != condition[:-1]).flatten(2).any(2)
        number = (is_new.flatten().cumsum(0) - 1).view(is_new.shape)  # of the images that are new, in order
        latest = torch.where(is_new, number, 0).cummax(0).values.flatten()
        return [film.index_select(0, latest) for film in self.modulation(condition[is_new])]

    def _film_of_changed(self, condition: torch.Tensor) -> list[torch.Tensor]:
        """`modulation` that is computed where an image [B, C', H, W] differs from that of the last call."""
        with torch.inference_mode(False), torch.no_grad():  # tensors to keep are none of inference mode
            versions = [(parameter.data_ptr(), parameter._version) for parameter in self.parameters()]
            key = condition.shape, torch.is_autocast_enabled("cpu"), OptimizerSteps.count, versions
            if self._last is None or self._last.key != key:
                self._last = _Remembered(key, condition.clone(), self.modulation(condition))
                return self._last.film
            changed = (condition != self._last.condition).flatten(1).any(1).nonzero().flatten()
            if len(changed):
                new = condition[changed]
                self._last.condition[changed] = new
                for kept, film in zip(self._last.film, self.modulation(new), strict=True):
                    kept[changed] = film
            return self._last.film


class _Remembered(NamedTuple):
    """Result of the last call of `modulation` without gradient."""

    key: tuple
    """Shape of the images, True for products in bfloat16, and all that tells of other weights."""
    condition: torch.Tensor
    film: list[torch.Tensor]


class OptimizerSteps:
    """Number of steps that optimisers took in this process: fused ones change no parameter's version."""

    count = 0

    @classmethod
    def add(cls, *_: Any) -> None:
        """Count a step; called by every optimiser."""
        cls.count += 1


register_optimizer_step_post_hook(OptimizerSteps.add)
