"""Make the fixed episodes of assets/episodes: val and test, 20 unseen houses each; for PointNav, and starts alone.

    python eval/make_episodes.py

The rule, in which no agent takes part: a scene's episodes are the first that `PointNavEnv` samples there with seed 0,
by Habitat's rules (islands of radius >= 1.5 m, one storey, 1 to 30 m, most of the nearly straight ones left out). The
houses are the first of the split's seeds. In these furnished houses that already gives a mean geodesic over Euclidean
distance of more than 1.3, from straight lines to long detours, so nothing is picked by difficulty.

Flee and Explore have no goal, so they share the files `starts_val` and `starts_test`: starts uniform over the same
islands, and as a goal, for Flee's oracle and for maps, the place that is farthest by path.

The same sources give the same files, byte for byte.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from batchnav.data.episodes import Episode, check_episodes, save_episodes
from batchnav.data.generate import generate_episodes, generate_starts
from batchnav.data.scenes import find_scene
from batchnav.houses import SPLITS
from batchnav.scene.scene import Scene

FOLDER = Path(__file__).resolve().parents[1] / "assets" / "episodes"
NUM_HOUSES = 20
EPISODES_PER_HOUSE = 10


def main() -> None:
    for split in ("val", "test"):
        scenes = [find_scene(f"house:{seed}") for seed in SPLITS[split][:NUM_HOUSES]]
        for name, generate in ((split, generate_episodes), (f"starts_{split}", generate_starts)):
            write(
                f"{name}.json.gz",
                [episode for scene in scenes for episode in generate(scene, EPISODES_PER_HOUSE)],
                scenes,
            )


def write(name: str, episodes: list[Episode], scenes: list[Scene]) -> None:
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
