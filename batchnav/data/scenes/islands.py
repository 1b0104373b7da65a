"""Choice of the islands on which episodes take place, and a description of a scene's islands.

Rules, by name:

    all       every island
    largest   the island with the largest area
    indoor    without roofs and yards, where a large island has a ceiling, and without tops of furniture; the largest
              island counts as a floor unless it lies above the others, as a roof does
    NUMBER    one island, as `NavMesh.island` numbers it

Episodes are sampled on islands of radius 1.5 m or more only, as in Habitat.
"""

from __future__ import annotations

import logging

import numpy as np
import torch

from batchnav.errors import ArgumentError
from batchnav.navmesh.data import areas, surface
from batchnav.navmesh.islands import Island, list_islands
from batchnav.renderers.raycast import RaycastRenderer
from batchnav.runtime.console import number_of
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene

_log = logging.getLogger(__name__)
RULES = ("all", "largest", "indoor")
_POINTS = 64
"""Number of points per island from which rays look up."""
_KNEE = 0.5
"""Height above the navmesh from which rays look up, metres."""
_COVERED, _OPEN = 0.5, 0.1
"""An island is indoors if a larger share of it than the first is below a ceiling, outdoors if a smaller one than the
second."""
_BUILDING = 0.1
"""Smallest area as a share of the largest island's: of all islands indoors, for which those outdoors are left out; and
of a floor, in contrast to the top of a piece of furniture."""
_STOREY, _STEP = 1.5, 0.3
"""Height above the largest island indoors from which an open one is a roof, and largest difference in height of
islands on one floor, metres."""


def check_rule(rule: str) -> str:
    """The rule itself. ArgumentError for an unknown rule."""
    if rule in RULES or (rule.isascii() and rule.isdigit()):
        return rule
    raise ArgumentError(f"islands: found {rule!r}, expected {', '.join(RULES)}, or the number of an island")


def select_islands(scene: Scene, rule: str) -> Scene:
    """The scene with the islands of a rule only; the others are not walkable. ArgumentError for an unknown rule.

    Logs playable islands that are left out, and an open one that is kept.
    """
    scene, lines = apply_rule(scene, rule, 'islands="{}"')
    for line in lines:
        _log.warning("%s: %s", scene.name, line)
    return scene


def apply_rule(scene: Scene, rule: str, option: str = "`--islands {}`") -> tuple[Scene, list[str]]:
    """`select_islands` without a log, and its lines for a user. `option`: how a user writes a rule, as a format."""
    found = list_islands(scene.navmesh.data)
    covered = ceiling_above(scene) if check_rule(rule) == "indoor" and found else np.zeros(0)
    kept = _kept(scene, found, covered, rule)
    lines, out = [], [island for island in found if island.is_playable and island.number not in kept]
    if out:
        count, area = number_of(len(out), "island"), sum(island.area for island in out)
        names = ", ".join(map(str, out))
        lines.append(f"left out {count} of {area:.1f} m²: {names}; {option.format('all')} keeps every island")
    if len(covered):
        largest, inside = max(found, key=lambda island: island.area), _largest_indoors(found, covered)
        if inside and largest.number in kept and covered[largest.number] < _OPEN:
            lines.append(
                f"kept {largest}, the largest, which has no ceiling above; "
                f"{option.format(inside.number)} keeps {inside} alone"
            )
    if len(kept) == len(found):
        return scene, lines
    navmesh = scene.navmesh.keep(kept)
    semantic = scene.semantic and scene.semantic._replace(navmesh=navmesh)
    return scene._replace(navmesh=navmesh, semantic=semantic), lines


def _kept(scene: Scene, found: list[Island], covered: np.ndarray, rule: str) -> list[int]:
    """Numbers of the islands of a rule; `covered`: of each island for the rule `indoor`. ArgumentError."""
    if rule == "all" or not found:
        return [island.number for island in found]
    if rule == "largest":
        return [max(found, key=lambda island: island.area).number]
    if rule == "indoor":
        out = set(outdoor_islands(found, covered))
        inside = [island for island in found if island.number not in out]
        if scene.navmesh_origin in ("mesh", "two_sided"):  # Habitat's files and procedural scenes keep their islands
            out.update(_furniture(inside))
        return [island.number for island in inside if island.number not in out]
    if int(rule) >= len(found):
        raise ArgumentError(f"islands: found {rule} in {scene.name}, expected a number from 0 to {len(found) - 1}")
    return [int(rule)]


def outdoor_islands(found: list[Island], covered: np.ndarray) -> list[int]:
    """Numbers of the roofs and yards that the rule `indoor` leaves out; `covered` is the result of `ceiling_above`.

    None is left out where little is below a ceiling: a hall without a roof has shelves. The largest island, as the hall
    of a building with some covered rooms, is left out only if it is a roof by its height.
    """
    inside = _largest_indoors(found, covered)
    if inside is None:
        return []
    largest = max(found, key=lambda island: island.area)
    keep = largest.number if largest.height < inside.height + _STOREY else None
    return [island.number for island in found if covered[island.number] < _OPEN and island.number != keep]


def _largest_indoors(found: list[Island], covered: np.ndarray) -> Island | None:
    """The largest playable island below a ceiling; None where those are small, all together, beside the largest."""
    inside = [island for island in found if island.is_playable and covered[island.number] > _COVERED]
    if sum(island.area for island in inside) <= _BUILDING * max(island.area for island in found):
        return None
    return max(inside, key=lambda island: island.area)


def _furniture(found: list[Island]) -> list[int]:
    """Numbers of small playable islands on no floor: their height is that of no large island."""
    enough = _BUILDING * max((island.area for island in found), default=0.0)
    floors = [island.height for island in found if island.area >= enough]
    return [
        island.number
        for island in found
        if island.is_playable and island.area < enough and min(abs(island.height - y) for y in floors) > _STEP
    ]


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
