"""Options of `NavEnv` that its configuration does not hold: how it renders, numbers and returns episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from gymnasium.vector import AutoresetMode

from batchnav.errors import ArgumentError, shortened
from batchnav.runtime.conversion import OUTPUTS
from batchnav.scene.material_sampling import MaterialLibrary


@dataclass(frozen=True)
class EnvOptions:
    """Keyword arguments of `NavEnv` that are not in its configuration. ArgumentError for a value of the wrong type."""

    final_observation: bool = False
    """Also return info["final_obs"], the last observation of an ended episode, valid where info["_final_obs"] is True;
    costs one more rendering per step."""
    renderer: str = "raycast"
    """"raycast", "opengl", or "auto" for the faster one on this machine."""
    first_env: int = 0
    """Index of the first environment among those of all processes of a run, so that each environment plays the same
    episodes as in a run of one process."""
    copy: bool = True
    """Return copies. If False, returned tensors belong to the environment and are valid until the next call, which
    saves memory bandwidth. Observations in tensors of the caller (`observe_into`) are never copied."""
    output: str = "torch"
    """"torch", or "numpy" for arrays on the host."""
    autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP
    """Gymnasium's mode. NEXT_STEP: the step after an episode's end begins the next episode and ignores the action.
    DISABLED: `reset(options={"reset_mask": ended})` begins it. The learner requires SAME_STEP."""
    material_library: MaterialLibrary | None = None
    """Materials that those of procedural houses are resampled from between rollouts, if a sensor observes colour
    (`batchnav.procedural.make_material_library()`); None: materials stay. A `SceneBank` has its own library; each
    environment of a bank randomises its own copy of the materials."""

    def __post_init__(self):
        if not isinstance(self.renderer, str):
            raise ArgumentError(f"renderer: found {shortened(self.renderer)}, expected a name")
        if self.output not in OUTPUTS:
            raise ArgumentError(f"output: found {shortened(self.output)}, expected one of {', '.join(OUTPUTS)}")
        if not isinstance(self.material_library, MaterialLibrary | None):
            found = shortened(self.material_library)
            raise ArgumentError(f"material_library: found {found}, expected a MaterialLibrary")
        object.__setattr__(self, "autoreset_mode", _autoreset_mode(self.autoreset_mode))

    @classmethod
    def split(cls, arguments: Mapping[str, Any]) -> tuple[Self, dict[str, Any]]:
        """Keyword arguments of `NavEnv` as `EnvOptions`, and the other ones."""
        own = {name: value for name, value in arguments.items() if name in OPTION_NAMES}
        return cls(**own), {name: value for name, value in arguments.items() if name not in OPTION_NAMES}


OPTION_NAMES = frozenset(field.name for field in fields(EnvOptions))
"""Names of the fields of `EnvOptions`."""


def _autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """An autoreset mode from the mode, its name or its value. ArgumentError for anything else."""
    for known in AutoresetMode:
        if mode in (known, known.name, known.value):
            return known
    names = ", ".join(known.name for known in AutoresetMode)
    raise ArgumentError(f"autoreset_mode: found {shortened(mode)}, expected one of {names}")
