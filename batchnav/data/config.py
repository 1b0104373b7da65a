"""Which scenes a run uses."""

from __future__ import annotations

from dataclasses import dataclass

from batchnav.config import in_range
from batchnav.errors import ConfigError
from batchnav.procedural import FAMILIES


@dataclass(frozen=True)
class ScenesConfig:
    """Which scenes to train in: procedural houses by seed, and scene files."""

    houses: int = 16
    """Number of procedural houses."""
    first_house: int = 0
    """Seed of the first; the others follow. All are training seeds (`houses.SPLITS`): others are asked for by name, as
    "house:100003" in `files`."""
    files: tuple[str, ...] = ()
    """Mesh files, each with its `.navmesh` beside it or baked; folders of prepared scenes; or whatever `find_scene`
    finds by name."""
    episodes: str = ""
    """An episode file (`.json.gz`) to train on, shuffled, in the scenes that it names; no other scenes then."""
    slots: int = 0
    """Scenes in the device's memory at a time where there are more; the others take turns. 0: all at once."""
    gigabytes: float = 0.0
    """The device's memory that scenes may take, in 1e9 bytes: where all need more, as many slots as fit take turns. 0:
    no limit."""
    redraw_finishes: bool = False
    """Draw colours and textures of procedural houses anew while training, each house every 16 rollouts, so that agents
    that see colour do not know houses by them. Scenes from files, and those of evaluations, stay as they are."""
    largest_texture: int = 4096
    """Texels along a texture's longer side, where agents see colour: larger ones are read at a half, a quarter ..."""

    @property
    def names(self) -> list[str]:
        """The scenes' ids, and folders of scenes, as `data.scenes.scene_ids` takes them."""
        return [f"house:{self.first_house + i}" for i in range(self.houses)] + list(self.files)

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        in_range(self, "houses", 0, 100_000)
        in_range(self, "first_house", 0, 2**31)
        seeds, train = range(self.first_house, self.first_house + self.houses), FAMILIES["house"].splits["train"]
        if seeds and seeds[-1] not in train:
            raise ConfigError(
                f"first_house: found {seeds[0]} with {self.houses} houses, which are seeds {seeds[0]} to {seeds[-1]}, "
                f"expected training houses, {train[0]} to {train[-1]}; others go by name, as files: [house:{seeds[-1]}]"
            )
        in_range(self, "slots", 0, 100_000)
        if self.slots == 1:
            raise ConfigError(
                "slots: found 1, expected 0 (all scenes at once) or at least 2: one to load the next into"
            )
        in_range(self, "gigabytes", 0.0, 1e6)
        in_range(self, "largest_texture", 1, 16384)
        for name in ("slots", "gigabytes"):
            if getattr(self, name) and self.episodes:
                raise ConfigError(
                    f"{name}: found {getattr(self, name)} with an episode file, expected 0: its scenes all stay"
                )
        if not (self.houses or self.files or self.episodes):
            raise ConfigError("scenes: found neither houses, files nor episodes, expected at least one scene")
