"""Auxiliary losses: what a policy learns from its memory besides acting, so that the memory holds what acting needs.

An auxiliary loss is a module, registered by name in `batchnav.policy.AUXILIARY`; `PolicyConfig.auxiliary` lists those
of a policy. Their gradients train the whole network. Actions do not depend on their outputs, so they cost nothing after
training. Register your own before the policy is made or loaded:

    batchnav.policy.AUXILIARY["position"] = Position        # then PolicyConfig(auxiliary=("position",))

`docs/tutorials/own_auxiliary_loss.md` writes this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from batchnav.config import bounded
from batchnav.policy.actions import Actions
from batchnav.policy.config import AUXILIARY


class Steps(NamedTuple):
    """T steps of B agents, from which an auxiliary loss learns."""

    memory: torch.Tensor
    """Outputs of the memory, or of the layers in its place, [T, B, width], with gradient."""
    obs: Mapping[str, torch.Tensor]
    """Observations [T, B, ...] by name, as the rollout keeps them: those that the policy reads, and labels."""
    actions: torch.Tensor
    """Actions that followed, [T, B, ...]."""
    starts: torch.Tensor
    """bool [T, B], set at the first step of an episode."""


@dataclass(frozen=True)
class AuxiliaryConfig:
    """Settings of every auxiliary loss; a loss with further ones inherits them."""

    coef: float = bounded(1.0, 0.0, 1e6)
    """Coefficient of the loss."""


class Auxiliary(nn.Module):
    """A loss on the memory's outputs. A subclass defines `loss`, and `labels` and `curves` where it has some.

    Args:
        width: width of the memory's outputs.
        actions: the action distribution.
        settings: an instance of `Config`.
    """

    Config: ClassVar[type[AuxiliaryConfig]] = AuxiliaryConfig
    """Frozen dataclass of the settings, a subclass of `AuxiliaryConfig`."""
    curves: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """Title and unit of the scalars that pages of runs plot, "loss" among them, by the scalar's name."""

    def __init__(self, width: int, actions: Actions, settings: Any):
        super().__init__()
        self.settings = settings

    @classmethod
    def labels(cls, settings: Any) -> dict[str, tuple[int, ...]]:
        """Shape of the observations that it learns from and that the policy does not read, by name.

        An environment has them in training only.
        """
        return {}

    def loss(self, steps: Steps) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss, f32 scalar with gradient, and further detached scalars by name. It may not wait for the device.

        Curves have the names NAME_loss and NAME_SCALAR, NAME being that of the registry.
        """
        raise NotImplementedError(f"{type(self).__name__}: found no method `loss`, expected one; define it")


class Place(Auxiliary):
    """Prediction of a place relative to the agent, such as the goal's: ln(1 + r), cosine and sine of the angle.

    The loss is the mean squared error. Bono et al. (DEBiT, ICLR 2024) learn the relative pose of the goal's image
    before navigation; here both are learned together.
    """

    @dataclass(frozen=True)
    class Config(AuxiliaryConfig):
        """Settings of the prediction."""

        label: str = "true_goal"
        """Observation [r, angle] that it learns to predict."""

    curves: ClassVar[Mapping[str, tuple[str, str]]] = {
        "loss": ("loss of the predicted place", ""),
        "cosine": ("cosine of the error of the predicted place's direction", ""),
    }

    def __init__(self, width: int, actions: Actions, settings: Any):
        super().__init__(width, actions, settings)
        self.linear = nn.Linear(width, 3)

    @classmethod
    def labels(cls, settings: Any) -> dict[str, tuple[int, ...]]:
        """The place."""
        return {settings.label: (2,)}

    def loss(self, steps: Steps) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss, and the mean cosine of the angle between predicted and true direction."""
        predicted = self.linear(steps.memory).float()
        r, angle = steps.obs[self.settings.label].float().unbind(-1)
        place = torch.stack([torch.log1p(r), torch.cos(angle), torch.sin(angle)], dim=-1)
        loss = F.mse_loss(predicted, place)
        with torch.no_grad():
            cosine = F.cosine_similarity(predicted[..., 1:], place[..., 1:], dim=-1).mean()
        return loss, {"cosine": cosine}


AUXILIARY["place"] = Place
