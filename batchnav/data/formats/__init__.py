"""Formats of episode files: one file each, and one registry. `load_episodes` reads any of them."""

from batchnav.data.formats import goat, instance_imagenav, multion, objectnav, pointnav
from batchnav.data.formats.dataset import (
    FORMATS,
    EpisodeDataset,
    EpisodeFile,
    Format,
    format_of,
    is_episode_file,
    load_episodes,
)

__all__ = ["FORMATS", "EpisodeDataset", "EpisodeFile", "Format", "format_of", "is_episode_file", "load_episodes"]

FORMATS.update(
    pointnav=pointnav.FORMAT, tour=pointnav.TOUR, objectnav=objectnav.FORMAT, multion=multion.FORMAT,
    instance_imagenav=instance_imagenav.FORMAT, goat=goat.FORMAT,
)  # fmt: skip
