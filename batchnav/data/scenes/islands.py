"""Choice of the islands on which episodes take place, and a description of a scene's islands.

Rules, by name:

    all       every island
    largest   the island with the largest area
    indoor    the islands below a ceiling, if some large island is; else every island. Roofs and yards are left out
    NUMBER    one island, as `NavMesh.island` numbers it

Episodes are sampled on islands of radius 1.5 m or more only, as in Habitat.
"""

from __future__ import annotations

import numpy as np
import torch

from batchnav.errors import ArgumentError
from batchnav.navmesh.data import areas, surface
from batchnav.navmesh.islands import Island, list_islands
from batchnav.renderers.raycast import RaycastRenderer
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene

RULES = ("all", "largest", "indoor")
_POINTS = 64
"""Number of points per island from which rays look up."""
_KNEE = 0.5
"""Height above the navmesh from which rays look up, metres."""
_COVERED, _OPEN = 0.5, 0.1
"""An island is indoors if a larger share of it than the first is below a ceiling, outdoors if a smaller one than the
second."""
_BUILDING = 0.1
"""Smallest area of all islands indoors, as a share of the largest island, for which islands outdoors are left out."""


def check_rule(rule: str) -> str:
    """The rule itself. ArgumentError for an unknown rule."""
    if rule in RULES or (rule.isascii() and rule.isdigit()):
        return rule
    raise ArgumentError(f"islands: found {rule!r}, expected {', '.join(RULES)}, or the number of an island")


def dropped_islands(scene: Scene, rule: str) -> str:
    """The playable islands that a rule leaves out, with their areas; empty for none."""
    kept = choose_islands(scene, rule)
    found = [each for each in list_islands(scene.navmesh.data) if each.is_playable and each.number not in kept]
    return ", ".join(map(str, found))


def select_islands(scene: Scene, rule: str) -> Scene:
    """The scene with the islands of a rule only; the others are not walkable. ArgumentError for an unknown rule."""
    kept = choose_islands(scene, rule)
    if len(kept) == scene.navmesh.num_islands:
        return scene
    navmesh = scene.navmesh.keep(kept)
    return scene._replace(navmesh=navmesh, semantic=scene.semantic and scene.semantic._replace(navmesh=navmesh))


def choose_islands(scene: Scene, rule: str) -> list[int]:
    """Numbers of the islands of a rule. ArgumentError for an unknown rule."""
    found = list_islands(scene.navmesh.data)
    if check_rule(rule) == "all" or not found:
        return [island.number for island in found]
    if rule == "largest":
        return [max(found, key=lambda island: island.area).number]
    if rule == "indoor":
        outdoors = set(outdoor_islands(found, ceiling_above(scene)))
        return [island.number for island in found if island.number not in outdoors]
    if int(rule) >= len(found):
        raise ArgumentError(f"islands: found {rule} in {scene.name}, expected a number from 0 to {len(found) - 1}")
    return [int(rule)]


def outdoor_islands(found: list[Island], covered: np.ndarray) -> list[int]:
    """Numbers of the islands that the rule `indoor` leaves out; `covered` is the result of `ceiling_above`."""
    indoors = sum(island.area for island in found if island.is_playable and covered[island.number] > _COVERED)
    if indoors <= _BUILDING * max(island.area for island in found):
        return []
    return [island.number for island in found if covered[island.number] < _OPEN]


def ceiling_above(scene: Scene) -> np.ndarray:
    """f64 [I]: share of each island that has a surface above it."""
    data, rng = scene.navmesh.data, np.random.default_rng(0)
    corners, owner = surface(data)
    of_triangle, area = data.polygon_island[owner], areas(corners)
    points = []
    for island in range(len(data.island_radius)):
        mine = np.flatnonzero(of_triangle == island)
        ends = np.cumsum(area[mine])
        chosen = corners[mine[np.searchsorted(ends, rng.random(_POINTS) * ends[-1]).clip(max=len(mine) - 1)]]
        weights = rng.dirichlet((1.0, 1.0, 1.0), _POINTS).astype(np.float32)
        points.append((weights[:, :, None] * chosen).sum(1))
    if not points:
        return np.zeros(0)
    eyes = np.concatenate(points) + np.array([0.0, _KNEE, 0.0], np.float32)
    hits = first_hits(scene, eyes, np.tile(np.array([0.0, 1.0, 0.0], np.float32), (len(eyes), 1)))
    return np.isfinite(hits).reshape(-1, _POINTS).mean(1)


def describe_islands(scene: Scene) -> tuple[str, list[str]]:
    """The playable islands in one line (empty for one island), and warnings about those that are outdoors."""
    found = list_islands(scene.navmesh.data)
    playable = [island for island in found if island.is_playable]
    if len(playable) < 2:
        return "", []
    covered = ceiling_above(scene)
    numbers = outdoor_islands(found, covered)
    outdoors = [island for island in playable if island.number in numbers]
    lines = [f"{island}, ceiling above {covered[island.number]:.0%}" for island in playable]
    text = f"{scene.name}: episodes take place on {len(playable)} islands: {'; '.join(lines)}"
    warnings = [
        f"{scene.name}: {', '.join(map(str, outdoors))} has no ceiling above, as a roof; episodes take place there: "
        "leave it out with `--islands indoor` (`data import`, `data make-episodes`), or `load_scene(islands='indoor')`"
    ] if outdoors else []  # fmt: skip
    return text, warnings


def first_hits(scene: Scene, origins: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Distance f32 [N] to the first surface along each ray, metres; inf where there is none.

    Args:
        scene: the scene.
        origins: f32 [N, 3], metres.
        directions: f32 [N, 3], unit vectors.
    """
    count = len(origins)
    renderer = RaycastRenderer(SceneBank.pack([scene]), count, 1, 1)
    x, y, z = np.asarray(directions, np.float32).T
    heading, pitch = np.arctan2(-x, -z), np.arcsin(np.clip(y, -1.0, 1.0))
    poses = (torch.from_numpy(np.ascontiguousarray(each, np.float32)) for each in (origins, heading, pitch))
    depth = renderer.render(torch.zeros(count, dtype=torch.int32, device="cpu"), *poses)[:, 0, 0].numpy()
    return np.where(depth > 0.0, depth, np.float32(np.inf))
