"""SceneBank: K scenes in one set of device arrays, shared by any number of agents."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Sequence
from typing import Generic, NamedTuple

import numpy as np
import torch

from batchnav.errors import ArgumentError
from batchnav.navmesh.data import NavMeshData, SearchScratch, search_scratch, search_size
from batchnav.navmesh.data import pack as pack_navmeshes
from batchnav.runtime.device import resolve_device
from batchnav.runtime.kernels.arrays import to_device, view
from batchnav.scene.appearance import Appearance, appearance_fields, pack_appearance, warn_of_white, with_finish
from batchnav.scene.bvh import BVH, moved_nodes
from batchnav.scene.material_sampling import MaterialLibrary, MaterialSampler
from batchnav.scene.scene import Scene
from batchnav.scene.textures import Palette
from batchnav.types import Column

MAX_TRIANGLES = 2**29
"""A leaf's link keeps 29 bits for the first triangle."""


class BVHData(NamedTuple, Generic[Column]):
    """The trees of K scenes, one after another: tensors, or what `view` makes of them. Links count rows from 0."""

    nodes: Column
    """f32 [M, 16], see scene/bvh.py."""
    triangles: Column
    """f32 [F, 12]."""
    numbers: Column
    """i32 [F]: the triangle of the bank that each row of `triangles` is, as `Visibility` numbers them."""
    roots: Column
    """i32 [K]: each scene's root."""


class SceneBank:
    """K scenes on one device. Made by `SceneBank.pack`; nothing in it changes afterwards but by `randomize_materials`.

    `ResidentSceneBank` is the one whose scenes change.
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
    ):
        self.scenes = scenes
        self.names = tuple(scene.name for scene in scenes)
        self.num_scenes = len(scenes)
        self.device = device
        self.bvh = bvh
        self.navmesh = navmesh
        self.first_triangle = torch.tensor(first_triangle, dtype=torch.int32, device=device)
        """i32 [K]: the number of each scene's first triangle; the others follow in the order of its mesh's faces."""
        self.appearance = appearance
        """What surfaces look like, by triangle; None where nobody asked for it. Fields not asked for have no rows."""
        self.appearance_fields = appearance_fields
        """The fields that were asked for."""
        self.material_sampler = material_sampler
        """The finishes of its houses, where they can be drawn anew."""
        self._categories = categories or {"": 0}
        self.bvh_view = view(bvh)
        self.navmesh_view = view(navmesh)

    @classmethod
    def pack(
        cls,
        scenes: Sequence[Scene],
        device: str | torch.device = "cpu",
        appearance: bool | Collection[str] = False,
        swatches: MaterialLibrary | None = None,
    ) -> SceneBank:
        """Copy the scenes' trees and navmeshes to a device, and with `appearance` what sensors beyond depth read.

        `appearance`: all of it, nothing, or some fields of `scene.appearance.Appearance` by name. `swatches`: what the
        finishes of houses can be drawn anew from; None: they stay.
        ArgumentError for no scenes, or what is not a scene, and for swatches without colours.
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
        first = np.cumsum([0, *(len(scene.mesh.faces) for scene in scenes[:-1])])
        look, fields, categories = None, appearance_fields(appearance), {"": 0}
        palette, sampler, meshes = Palette(), None, [scene.mesh for scene in scenes]
        if swatches is not None:
            fields = with_finish(fields)
            palette.add_swatches(swatches)
        if fields:
            look = to_device(pack_appearance(meshes, fields, categories, palette), device)
        if swatches is not None and look is not None:
            sampler = MaterialSampler(look.finish, look.materials, swatches, first=0)
        if "paint" in fields:
            warn_of_white([scene.name for scene in scenes], meshes)
        return cls(scenes, bvh, navmesh, first.tolist(), look, device, fields, categories, sampler)

    def with_own_materials(self) -> SceneBank:
        """The bank for one more user: where finishes can be drawn anew, it has materials of its own; else itself."""
        if self.material_sampler is None or self.appearance is None:
            return self
        bank, materials = copy.copy(self), self.appearance.materials.clone()
        bank.appearance = self.appearance._replace(materials=materials)
        bank.material_sampler = self.material_sampler.of(materials)
        return bank

    def randomize_materials(self, seed: torch.Tensor, count: int, every_house: bool = True) -> None:
        """Have houses look as they do the `count`th time, where there are swatches; arguments as of `MaterialSampler.sample`."""
        if self.material_sampler is not None:
            self.material_sampler.sample(seed, count, every_house)

    @property
    def categories(self) -> tuple[str, ...]:
        """Names of what `Appearance.category` says; row 0 is what has none.

        Scenes name their categories each in an order of its own: here each name has one row, in the order in which the
        scenes came, and a scene's numbers are replaced by these rows as it is packed.
        """
        return tuple(self._categories)

    def search_scratch(self, rows: int) -> SearchScratch:
        """Memory for `rows` path searches at a time in any of the scenes."""
        return search_scratch(search_size(self.navmesh), rows, self.device)


def pack_bvhs(trees: Sequence[BVH]) -> BVHData[np.ndarray]:
    """Put trees one after another, their links moved along. NumPy arrays."""
    num_triangles = sum(len(tree.triangles) for tree in trees)
    if num_triangles >= MAX_TRIANGLES:
        raise ArgumentError(f"scenes: found {num_triangles} triangles in all, expected fewer than {MAX_TRIANGLES}")
    roots = np.zeros(len(trees), np.int32)
    nodes, numbers, first_node, first_triangle = [], [], 0, 0
    for i, tree in enumerate(trees):
        roots[i] = first_node
        nodes.append(moved_nodes(tree.nodes, first_node, first_triangle))
        numbers.append(tree.order + np.int32(first_triangle))
        first_node += len(tree.nodes)
        first_triangle += len(tree.triangles)
    triangles = np.concatenate([tree.triangles for tree in trees])
    return BVHData(np.concatenate(nodes), triangles, np.concatenate(numbers), roots)
