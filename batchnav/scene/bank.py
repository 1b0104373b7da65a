"""SceneBank: K scenes in one set of device arrays, which any number of agents share."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Sequence
from typing import Generic, NamedTuple

import numpy as np
import torch

from batchnav.errors import ArgumentError
from batchnav.navmesh.data import NavMeshData
from batchnav.navmesh.data import pack as pack_navmeshes
from batchnav.navmesh.heap import SearchScratch, search_scratch, search_size
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.device import resolve_device
from batchnav.runtime.kernels.arrays import to_device, view
from batchnav.runtime.parallel import concatenated, in_threads
from batchnav.scene.appearance import (
    Appearance,
    appearance_fields,
    pack_appearance,
    split_fields,
    warn_of_white,
    with_finish,
)
from batchnav.scene.bvh import BVH
from batchnav.scene.goal_data import GoalData, categories_of, goal_numbers, goals_of, pack_goals
from batchnav.scene.material_sampling import MaterialLibrary, MaterialSampler
from batchnav.scene.scene import Scene, warn_of_no_ids
from batchnav.scene.small_nodes import choose_small, placed_nodes
from batchnav.scene.textures import Palette
from batchnav.types import Column

MAX_TRIANGLES = 2**29
"""A leaf's link has 29 bits for its first triangle."""


class BVHData(NamedTuple, Generic[Column]):
    """Concatenated BVHs of K scenes: tensors, or the kernel arguments from `view`. Links are rows of these arrays."""

    nodes: Column
    """f32 [M, 16]: nodes, see scene/bvh.py. In a bank with a large scene i32 [M, 2, 4], see scene/small_nodes.py."""
    triangles: Column
    """f32 [F, 12]: corners of the triangles, in the order of the leaves."""
    numbers: Column
    """i32 [F]: number of each row of `triangles` in the bank, as in `Visibility.triangle`."""
    roots: Column
    """i32 [K]: root node of each scene."""


class SceneBank:
    """K scenes on one device, made by `SceneBank.pack`. Only `randomize_materials` changes it afterwards.

    `ResidentSceneBank` is a bank whose scenes can be replaced.
    """

    def __init__(
        self,
        scenes: tuple[Scene, ...],
        bvh: BVHData[torch.Tensor],
        navmesh: NavMeshData[torch.Tensor],
        first_triangle: Sequence[int],
        appearance: Appearance[torch.Tensor] | None,
        device: torch.device,
        appearance_fields: frozenset[str] = frozenset(),
        categories: dict[str, int] | None = None,
        material_sampler: MaterialSampler | None = None,
        semantic: SceneBank | None = None,
        goals: GoalData[torch.Tensor] | None = None,
        goal_categories: tuple[str, ...] = (),
    ):
        self.scenes = scenes
        self.names: Sequence[str] = tuple(scene.name for scene in scenes)
        self.num_scenes = len(scenes)
        self.device = device
        self.bvh = bvh
        self.navmesh = navmesh
        self.first_triangle = torch.tensor(first_triangle, dtype=torch.int32, device=device)
        """i32 [K]: number of each scene's first triangle in `Visibility.triangle`; its other triangles follow in the
        order of the mesh's faces."""
        self.appearance = appearance
        """Appearance of the triangles, or None without appearance. Fields outside `appearance_fields` have no rows."""
        self.appearance_fields = appearance_fields
        """Names of the fields of `Appearance` that the bank holds."""
        self.material_sampler = material_sampler
        """Randomises the materials of procedural houses; None without a material library."""
        self.semantic = semantic
        """Bank with the meshes that sensors of ids see, if the bank has fields of ids and a scene has such a mesh
        (`Scene.semantic`); None: ids belong to this bank's triangles."""
        self.goals, self.goal_categories = goals, goal_categories
        """Goals of the scenes for ObjectNav, and the names of their categories by number; None: without goals."""
        self._categories = categories or {"": 0}
        self.bvh_view = view(bvh)
        self.navmesh_view = view(navmesh)
        self.goals_view = view(goals)

    @property
    def max_climb(self) -> float:
        """Step height that the navmeshes are baked for, metres: `NavMeshSettings.agent_max_climb`.

        The default where the scenes differ, where a navmesh file does not say, and before scenes are resident.
        """
        settings = [scene.navmesh.settings for scene in self.scenes]
        heights = {None if each is None else each.agent_max_climb for each in settings}
        height = heights.pop() if len(heights) == 1 else None
        return NavMeshSettings().agent_max_climb if height is None else height

    @classmethod
    @torch.inference_mode(False)
    def pack(
        cls,
        scenes: Sequence[Scene],
        device: str | torch.device = "cpu",
        appearance: bool | Collection[str] = False,
        material_library: MaterialLibrary | None = None,
        goal_categories: Sequence[str] | None = None,
    ) -> SceneBank:
        """Copy scenes to a device: BVHs, navmeshes and, with `appearance`, what sensors other than depth read.

        Args:
            scenes: at least one Scene.
            device: torch device, or "auto".
            appearance: True, False, or names of fields of `scene.appearance.Appearance`.
            material_library: materials for `randomize_materials` to choose from, which needs colour fields; None:
                materials are fixed.
            goal_categories: names of the categories of ObjectNav's goals, in the order of their numbers; empty: those
                of the scenes, sorted. None: without goals.

        Raises ArgumentError for an argument of the wrong type, no scenes, a library without colour fields, and
        categories for scenes without goals.
        """
        if not isinstance(scenes, Iterable):
            raise ArgumentError(f"scenes: found {type(scenes).__name__}, expected a list of Scenes (see load_scenes)")
        scenes = (scenes,) if isinstance(scenes, Scene) else tuple(scenes)
        if not scenes:
            raise ArgumentError("scenes: found none, expected at least one Scene")
        for i, scene in enumerate(scenes):
            if not isinstance(scene, Scene):
                raise ArgumentError(f"scenes[{i}]: found {type(scene).__name__}, expected a Scene (see load_scene)")
        device = resolve_device(device)
        bvh = to_device(pack_bvhs([scene.bvh for scene in scenes]), device)
        navmesh = to_device(pack_navmeshes([scene.navmesh.data for scene in scenes]), device)
        goals, names = None, tuple(goal_categories or ())
        if goal_categories is not None:
            names = names or categories_of(scenes)
            goals = to_device(pack_goals(in_threads(lambda scene: goals_of(scene, names), scenes)), device)
        first = np.cumsum([0, *(len(scene.mesh.faces) for scene in scenes[:-1])])
        look, fields, categories = None, appearance_fields(appearance), {"": 0}
        warned = frozenset() if appearance is True else fields
        palette, sampler, meshes = Palette(), None, [scene.mesh for scene in scenes]
        if material_library is not None:
            fields = with_finish(fields)
            palette.add_library(material_library)
        own, of_ids = split_fields(fields) if any(scene.semantic for scene in scenes) else (fields, frozenset())
        if own:
            numbers = goal_numbers(scenes, names)
            look = to_device(pack_appearance(meshes, own, categories, palette, numbers), device)
        if material_library is not None and look is not None:
            sampler = MaterialSampler(look.finish, look.materials, material_library, first=0)
        if "paint" in fields:
            warn_of_white([scene.name for scene in scenes], meshes)
        warn_of_no_ids(scenes, warned)
        bank = cls(
            scenes, bvh, navmesh, first.tolist(), look, device, fields, categories, sampler, None, goals, names
        )  # fmt: skip
        if of_ids:
            bank.semantic = bank._of_ids(of_ids, categories)
        return bank

    def _of_ids(self, fields: frozenset[str], categories: dict[str, int]) -> SceneBank:
        """The bank of the scenes' semantic meshes, with the same navmeshes."""
        scenes = tuple(scene.semantic or scene for scene in self.scenes)
        bvh = to_device(pack_bvhs([scene.bvh for scene in scenes]), self.device)
        first = np.cumsum([0, *(len(scene.mesh.faces) for scene in scenes[:-1])]).tolist()
        meshes, numbers = [scene.mesh for scene in scenes], goal_numbers(self.scenes, self.goal_categories)
        look = to_device(pack_appearance(meshes, fields, categories, goals=numbers), self.device)
        return SceneBank(scenes, bvh, self.navmesh, first, look, self.device, fields, categories)

    def with_own_materials(self) -> SceneBank:
        """The bank with its own copy of the materials, so that another environment can randomise them.

        The bank itself if materials are fixed.
        """
        if self.material_sampler is None or self.appearance is None:
            return self
        bank, materials = copy.copy(self), self.appearance.materials.clone()
        bank.appearance = self.appearance._replace(materials=materials)
        bank.material_sampler = self.material_sampler.with_materials(materials)
        return bank

    def randomize_materials(self, seed: torch.Tensor, count: int, every_house: bool = True) -> None:
        """Randomise materials (see `MaterialSampler.sample`); does nothing without a material library."""
        if self.material_sampler is not None:
            self.material_sampler.sample(seed, count, every_house)

    def category_number(self, name: str) -> int:
        """Number of a category in `categories`, which gets the name if it lacks it."""
        return self._categories.setdefault(name, len(self._categories))

    @property
    def categories(self) -> tuple[str, ...]:
        """Category names by the numbers in `Appearance.category`; number 0 is no category.

        Scenes number their categories independently. The bank has one number per name, in the order of first
        appearance in the scenes; `pack` replaces each scene's numbers.
        """
        return tuple(self._categories)

    def search_scratch(self, rows: int) -> SearchScratch:
        """Scratch memory for `rows` concurrent path searches in any of the scenes."""
        return search_scratch(search_size(self.navmesh), rows, self.device)


def pack_bvhs(trees: Sequence[BVH]) -> BVHData[np.ndarray]:
    """Concatenate BVHs as NumPy arrays and offset their links."""
    is_small = choose_small(trees)
    num_triangles = sum(len(tree.triangles) for tree in trees)
    if num_triangles >= MAX_TRIANGLES:
        raise ArgumentError(
            f"scenes: found {num_triangles} triangles, expected fewer than {MAX_TRIANGLES}; load fewer scenes"
        )
    first_node = np.cumsum([0, *(len(tree.nodes) + is_small for tree in trees[:-1])]).tolist()
    first_triangle = np.cumsum([0, *(len(tree.triangles) for tree in trees[:-1])]).tolist()

    def placed(i: int) -> tuple[np.ndarray, np.ndarray]:
        rows = placed_nodes(trees[i].nodes, first_node[i], first_triangle[i], is_small)
        return rows, trees[i].order + np.int32(first_triangle[i])

    nodes, numbers = zip(*in_threads(placed, range(len(trees))), strict=True)
    triangles, roots = concatenated([tree.triangles for tree in trees]), np.array(first_node, np.int32) + is_small
    return BVHData(concatenated(nodes), triangles, concatenated(numbers), roots)
