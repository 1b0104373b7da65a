"""Configuration of the training scenes."""

from __future__ import annotations

from dataclasses import dataclass

from batchnav.config import bounded
from batchnav.errors import ConfigError
from batchnav.procedural import FAMILIES


@dataclass(frozen=True)
class ScenesConfig:
    """Training scenes: procedural houses by seed, and scene sources."""

    houses: int = bounded(16, 0, 100_000)
    """Number of procedural houses."""
    first_house: int = bounded(0, 0, 2**31)
    """Seed of the first procedural house; the others have the next seeds. All must be training seeds (0 to 99,999);
    name other houses in `sources`, for example "house:100003"."""
    sources: tuple[str, ...] = ()
    """Further scenes: mesh files (with a `.navmesh` of the same name, else one is baked), ROS maps, Gazebo worlds,
    folders of prepared scenes, scene ids, and ranges of them, for example "hall:0-255"
    (`data.scenes.ids.scene_ids`)."""
    episodes: str = ""
    """Episode file (`.json.gz`) to train on, in shuffled order; its scenes replace all others."""
    content_scenes: tuple[str, ...] = ()
    """Scenes of the episode file to train in, by id or by file name without suffix. Empty: all."""
    skip_missing: bool = False
    """Leave out episodes in scenes whose files are missing. False: they are an error."""
    resident_scenes: int = bounded(0, 0, 100_000)
    """Number of scenes in device memory at a time; further scenes are streamed in. 0: all scenes stay in memory."""
    gigabytes: float = bounded(0.0, 0.0, 1e6)
    """Device memory for scenes, in units of 1e9 bytes. If all scenes together need more, they are streamed, with as
    many resident as fit. 0: no limit."""
    randomize_materials: bool = False
    """Resample colours and textures of procedural houses during training, each house every 16 rollouts, so that agents
    that see colour do not recognise houses by them. Scenes from files and evaluation scenes do not change."""
    largest_texture: int = bounded(4096, 1, 16384)
    """Largest side of a texture, texels, for agents that see colour; larger textures are halved until they fit."""

    @property
    def names(self) -> list[str]:
        """Scene ids and folders of scenes, for `data.scenes.ids.scene_ids`."""
        return [f"house:{self.first_house + i}" for i in range(self.houses)] + list(self.sources)

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        seeds, train = range(self.first_house, self.first_house + self.houses), FAMILIES["house"].splits["train"]
        if seeds and seeds[-1] not in train:
            raise ConfigError(
                f"first_house: found {seeds[0]} with {self.houses} houses: seeds {seeds[0]} to {seeds[-1]}, "
                f"expected training houses, {train[0]} to {train[-1]}; name others in sources: [house:{seeds[-1]}]"
            )
        if self.resident_scenes == 1:
            raise ConfigError(
                "resident_scenes: found 1, expected 0 (all scenes) or at least 2, since one receives the next scene"
            )
        for name in ("resident_scenes", "gigabytes"):
            if getattr(self, name) and self.episodes:
                raise ConfigError(
                    f"{name}: found {getattr(self, name)} with an episode file, expected 0: its scenes stay in memory"
                )
        if not (self.houses or self.sources or self.episodes):
            raise ConfigError("scenes: found neither houses, sources nor episodes, expected at least one scene")
