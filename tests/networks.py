"""Small policy configurations for tests."""

from typing import Any

import torch
from gymnasium import spaces

from batchnav.config import from_dict
from batchnav.policy import ActorCritic
from batchnav.policy.config import PolicyConfig
from batchnav.policy.encoder import SEResNet9


def policy_config(
    base_width: int | None = None, layers: int | None = None, window: int | None = None, heads: int | None = None,
    **shared: Any,
) -> PolicyConfig:  # fmt: skip
    """A configuration whose encoders and memory have these settings; the others are those of `PolicyConfig`.

    `layers`: number of layers of the memory; 0: no memory.
    """
    shared = shared if layers != 0 else {**shared, "memory": "none"}
    memory = shared.get("memory", "lstm")
    sections = {
        **{encoder: {"base_width": base_width} if base_width else {} for encoder in ("se_resnet9", "simple_cnn")},
        memory: {name: value for name, value in (("layers", layers), ("window", window), ("heads", heads)) if value},
    }
    return from_dict(PolicyConfig, shared | {name: settings for name, settings in sections.items() if settings})


def random_policy(space: spaces.Dict, config: PolicyConfig, num_actions: int = 4) -> ActorCritic:
    """A policy whose outputs depend on all inputs: a new one has nearly uniform actions and branches of zeros."""
    torch.manual_seed(0)
    policy = ActorCritic(space, spaces.Discrete(num_actions), config)
    with torch.no_grad():
        policy.actor.weight.mul_(100)
        for parameter in policy.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return policy


def sizes(visual_size: int = 512, **settings: int) -> tuple[PolicyConfig, SEResNet9.Config]:
    """The arguments after the image shape of an `SEResNet9`."""
    return PolicyConfig(visual_size=visual_size), SEResNet9.Config(**settings)
