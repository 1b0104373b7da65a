"""A training run's configuration: what the environment is made of, where it runs, the policy and PPO."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal

from batchnav.config import PolicyConfig, PPOConfig, ScenesConfig, in_range
from batchnav.envs.config import NavConfig
from batchnav.envs.nav import needed_appearance
from batchnav.errors import ConfigError
from batchnav.scene.appearance import FROM_FILES
from batchnav.scene.images import AppearanceConfig


@dataclass(frozen=True)
class PointNavRun(NavConfig):
    """One training run of a navigation agent: of the task that `task` names, PointGoal where it names none."""

    scenes: ScenesConfig = field(default_factory=ScenesConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    device: str = "auto"
    renderer: Literal["raycast", "opengl", "auto"] = "raycast"
    """auto: both draw a few batches at each start, and the faster is taken; the choice is logged."""
    seed: int = 0
    init_from: str = ""
    """A policy to begin with: a file, a run's folder, or the name of one that comes with batchnav. The optimiser begins
    anew."""
    compile: bool = False
    """Run the policy through torch.compile."""
    graphs: bool = False
    """Replay rollouts and optimiser steps as CUDA graphs: the same losses with less work for the host. No effect on the
    CPU."""
    deterministic: bool = False
    """Only operations that give the same bits twice: the same seed then has the same losses on the same GPU. On the CPU
    that is so without it."""
    save_every: float = 60.0
    """Seconds between two saves of weights and resume state."""
    eval_every: int = 0
    """Frames between two evaluations on the validation episodes, the best of which is kept as `best.safetensors`; 0:
    none while training."""
    keep_every: int = 0
    """Frames between two policies that are kept in `checkpoints`; 0: none but the last."""
    eval_split: Literal["val", "wide_val"] = "val"
    """Which those are: "wide_val" has PointNav episodes for bodies as wide as the Habitat challenges' (radius 0.18
    m)."""
    on_sigusr1: Literal["restart", "save"] = "restart"
    """What SIGUSR1 asks for: a save and an end with status 0, for a scheduler that starts the run again; or a save."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        super().validate()
        if (self.scenes.slots or self.scenes.gigabytes) and self.renderer != "raycast":
            raise ConfigError(f"renderer: found {self.renderer!r} with scenes that take turns, expected 'raycast'")
        in_range(self, "save_every", 0.0, 1e9)
        in_range(self, "eval_every", 0, 10**13)
        in_range(self, "keep_every", 0, 10**13)
        in_range(self, "seed", 0, 2**62)

    @property
    def appearance(self) -> AppearanceConfig | bool:
        """What is read of surfaces, as `load_scene` takes it: nothing where agents see depth alone."""
        is_read = needed_appearance(self.nav) & FROM_FILES
        return AppearanceConfig(self.scenes.largest_texture) if is_read else False

    @property
    def nav(self) -> NavConfig:
        """The environment's part."""
        return NavConfig(**{f.name: getattr(self, f.name) for f in fields(NavConfig)})
