"""Make the fixed episodes of assets/episodes: val and test, 20 unseen houses each.

    python eval/make_episodes.py

The rule, in which no agent takes part: a scene's episodes are the first that `PointNavEnv` samples there with seed 0,
by Habitat's rules (islands of radius >= 1.5 m, one storey, 1 to 30 m, most of the nearly straight ones left out). The
houses are the first of the split's seeds. In these furnished houses that already gives a mean geodesic over Euclidean
distance of more than 1.3, from straight lines to long detours, so nothing is picked by difficulty.

The same sources give the same files, byte for byte.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from batchnav.data.episodes import check_episodes, save_episodes
from batchnav.data.generate import generate_episodes
from batchnav.data.scenes import find_scene
from batchnav.houses import SPLITS
from batchnav.scene.scene import Scene

FOLDER = Path(__file__).resolve().parents[1] / "assets" / "episodes"
NUM_HOUSES = 20
EPISODES_PER_HOUSE = 10


def main() -> None:
    for split in ("val", "test"):
        scenes = [find_scene(f"house:{seed}", appearance=False) for seed in SPLITS[split][:NUM_HOUSES]]
        write(f"{split}.json.gz", scenes, EPISODES_PER_HOUSE)


def write(name: str, scenes: list[Scene], per_scene: int) -> None:
    episodes = [episode for scene in scenes for episode in generate_episodes(scene, per_scene)]
    check_episodes(episodes, {scene.name: scene for scene in scenes})
    save_episodes(episodes, FOLDER / name)
    distance = np.array([e.info["geodesic_distance"] for e in episodes])
    straight = np.array([math.dist(e.start_position, e.goals[0].position) for e in episodes])
    table = Table(title=f"{name}: {len(episodes)} episodes in {len(scenes)} scenes")
    for title in ("", "mean", "min", "median", "max"):
        table.add_column(title, justify="right" if title else "left")
    for title, values in (("geodesic distance (m)", distance), ("geodesic / Euclidean", distance / straight)):
        table.add_row(title, *(f"{f(values):.2f}" for f in (np.mean, np.min, np.median, np.max)))
    Console().print(table)


if __name__ == "__main__":
    main()
