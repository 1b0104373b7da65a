"""Habitat's folders of data, relative to the current folder."""

from pathlib import Path

DATA = Path("data")
"""Habitat's data folder."""
SCENES_DIR = DATA / "scene_datasets"
"""Habitat's folder of scenes; scene ids of episodes are paths below it."""
