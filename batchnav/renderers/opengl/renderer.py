"""OpenGLRenderer: depth and triangles by rasterisation; one batch of draws renders all agents into a texture array.

A frame is a fixed sequence of compute shaders and draws (shaders/*.glsl):

    cull       lists the visible (agent, cluster) pairs; with occlusion culling those not hidden in the last frame
    select     lists their triangles that may cover a pixel's centre, and writes the indirect draw command
    depth      draws them; the vertex shader chooses the agent's layer and viewport
    farthest   computes the greatest depth in each cell of an image; cull, select and depth then process the remaining
               pairs that these depths do not hide
    resolve    copies the tiles into one buffer [N, H, W]

`visibility` uses other `depth` and `resolve` programs with a second texture array.

Rasterisation is slow for triangles smaller than a pixel, which most triangles of a house are at 64 x 64; a compute
shader discards them at a fraction of the cost. Sources: frustum and cluster culling of bps3D (the paper's renderer);
two-pass occlusion culling of Haar and Aaltonen, "GPU-Driven Rendering Pipelines" (SIGGRAPH 2015); triangle culling of
Wihlidal, "Optimizing the Graphics Pipeline with Compute" (GDC 2016).
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from batchnav.errors import DeviceError
from batchnav.renderers.base import NEAR, CameraPoses, Renderer
from batchnav.renderers.opengl import gl
from batchnav.renderers.opengl.gl import Compiler
from batchnav.renderers.opengl.layout import (
    CAMERA,
    DISPATCH,
    DRAW,
    GRID,
    Clusters,
    arrange,
    buffer_sizes,
    build_clusters,
    check_memory,
    check_triangles,
)
from batchnav.scene.bank import SceneBank
from batchnav.types import Visibility

_FAR = 1.0e30
_STORAGE = ("pairs", "commands", "selected", "farthest", "depth", "triangle")
"""Buffers that shaders write, in order of their binding numbers."""
_TEXTURES = {
    "cameras": gl.RGBA32F, "boxes": gl.RGBA32F, "corners": gl.RGBA32F, "ranges": gl.RG32UI, "selected": gl.RG32UI,
}  # fmt: skip
"""Buffers that shaders read as textures, in order of their units, from 1."""
_DEPTH_UNIT, _TRIANGLE_UNIT = 0, 6
"""Texture units of the texture arrays."""


class Target(NamedTuple):
    """Framebuffer and programs of a frame, for depth or for visibility."""

    framebuffer: int
    triangles: Any
    """moderngl vertex array of the draw."""
    resolve: Any
    """moderngl compute shader that fills `outputs`."""
    outputs: dict[str, torch.Tensor]
    """Tensors [N, H, W] by the names of the buffers that `resolve` fills."""


class OpenGLRenderer(Renderer):
    """A renderer with OpenGL 4.5. Options, arguments and results: see `Renderer`.

    On CUDA, tensors are exchanged with OpenGL on the GPU; on the CPU, images are read back. Images differ from those of
    `RaycastRenderer` only where a depth edge passes through a pixel's centre. The last three options change the
    speed only.

    Args:
        bank: see `Renderer`, as for the options up to `intrinsics`.
        num_agents: number of cameras N.
        height: rows of an image.
        width: columns of an image.
        hfov_deg: horizontal field of view, degrees.
        backface_culling: ignore triangles seen from behind.
        max_depth: planar depth where rays end, metres.
        intrinsics: camera matrix [3, 3].
        frustum_culling: skip clusters outside the view.
        occlusion_culling: skip hidden clusters.
        pixel_culling: skip triangles that cover no pixel's centre.

    DeviceError where OpenGL 4.5 is not available, memory does not suffice or, in a call, the OpenGL context is lost.
    """

    capturable = False
    STAGES: ClassVar = {
        "cull": ("_cull", "_select", "_measure"), "draw": ("_clear", "_rasterise"), "resolve": ("_resolve",),
        "copy": ("_upload", "_download"),
    }  # fmt: skip
    """Methods of a frame by stage, for benchmarks."""

    def __init__(
        self, bank: SceneBank, num_agents: int, height: int = 64, width: int = 64, hfov_deg: float = 90.0,
        backface_culling: bool = False, max_depth: float = float("inf"), intrinsics: Any = None,
        frustum_culling: bool = True, occlusion_culling: bool = True, pixel_culling: bool = True,
    ):  # fmt: skip
        self.occlusion_culling = bool(occlusion_culling)
        self._switches = {
            "FRUSTUM_CULLING": frustum_culling, "OCCLUSION_CULLING": occlusion_culling,
            "PIXEL_CULLING": pixel_culling, "BACKFACE_CULLING": backface_culling,
        }  # fmt: skip
        super().__init__(bank, num_agents, height, width, hfov_deg, backface_culling, max_depth, intrinsics)

    def _allocate(self) -> None:
        clusters = build_clusters([scene.mesh for scene in self.bank.scenes])  # with the triangle numbers of the bank
        self._most_clusters = int(clusters.ranges[:, 1].max())
        self.context = gl.open_context(self.device)
        self._shared: dict[Any, Any] = {}
        self._finalizer = weakref.finalize(self, _free, self.context, self._shared)
        self._finalizer.atexit = False
        limits = self.context.limits
        image = self.num_agents, self.height, self.width, self._most_clusters
        self._layout = arrange(*image, limits)
        sizes = buffer_sizes(*image, self._layout)
        check_triangles(clusters, limits, self.context.renderer)
        # The texture array and its depth buffer have the size of the images.
        self._check_memory(sizes, 2 * sizes["depth"] + sum(array.nbytes for array in clusters))
        self._least_depth = ctypes.c_float(float(NEAR / self.max_depth))
        self.depth = torch.zeros(self.num_agents, self.height, self.width, dtype=torch.float32, device=self.device)
        self._cameras = torch.zeros(self.num_agents, CAMERA // 4, dtype=torch.float32, device=self.device)
        with self.context:
            self._compile(self._switches | {"SHIFTED": self._tan_half.ndim == 2}, min(self.max_depth, _FAR))
            self._make_buffers(sizes, clusters)
            self._make_textures()
            self._depth_target = self._make_target({"depth": self.depth}, [self._texture])
        self._visibility_target: Target | None = None

    def _render(self, poses: CameraPoses) -> torch.Tensor:
        self._write_cameras(poses)
        with self.context:
            self._frame(self._depth_target)
        return self.depth

    def _visibility(self, poses: CameraPoses) -> Visibility:
        self._write_cameras(poses)
        if self._visibility_target is None:
            self._visibility_target = self._make_visibility_target()
        with self.context:
            self._frame(self._visibility_target)
        return Visibility(**self._visibility_target.outputs)

    @property
    def texture_array(self):
        """The `moderngl.TextureArray` (R32F, metres) with the last images, for use in OpenGL.

        It belongs to the renderer's `context`, which `with renderer.context:` makes current. Agent i is in layer i // T
        and tile i % T, counted along the rows, with T = columns * rows of `tiles`.
        """
        return self._texture

    @property
    def tiles(self) -> tuple[int, int]:
        """Columns and rows of tiles in each layer of `texture_array`."""
        return self._layout.columns, self._layout.rows

    def release(self) -> None:
        """Free the renderer's OpenGL objects; it cannot be used afterwards. Garbage collection calls it too."""
        self._finalizer()

    def _write_cameras(self, poses: CameraPoses) -> None:
        """Write the cameras in the format of shaders/common.glsl."""
        cameras = self._cameras
        cameras[:, :3].copy_(poses.position)
        cameras[:, 3].view(torch.int32).copy_(poses.scene)
        torch.sin(poses.heading, out=cameras[:, 4]).neg_()
        torch.cos(poses.heading, out=cameras[:, 5]).neg_()
        torch.cos(poses.pitch, out=cameras[:, 6])
        torch.sin(poses.pitch, out=cameras[:, 7])
        lens = poses.tan_half_hfov
        torch.reciprocal(lens if lens.ndim == 1 else lens[:, 0], out=cameras[:, 8])
        torch.mul(cameras[:, 8], self.width / self.height, out=cameras[:, 9])
        if lens.ndim == 2:
            cameras[:, 9].div_(lens[:, 1])
            torch.mul(lens[:, 2:], lens[:, :1], out=cameras[:, 10:12])
            cameras[:, 11].mul_(lens[:, 1])

    def _frame(self, target: Target) -> None:
        """Render a frame for the current cameras."""
        self._upload()
        self._clear(target)
        for first in range(0, self.num_agents, self._layout.slice):
            count = min(self._layout.slice, self.num_agents - first)
            self._draw(target, first, count, second=False)
            if self.occlusion_culling:
                self._measure(first, count)
                self._draw(target, first, count, second=True)
        self._resolve(target)
        self._download(target)
        error = self.context.mgl.error
        if error != "GL_NO_ERROR":
            raise DeviceError(f"OpenGL: found {error} after rendering, expected none; the context may be lost")

    def _upload(self) -> None:
        """Upload the agents' cameras; those of the last frame follow them in the buffer."""
        cameras, size = self._buffers["cameras"], self.num_agents * CAMERA
        self.context.mgl.copy_buffer(cameras, cameras, size=size, write_offset=size)
        if self._shared:
            self._shared["cameras"].copy_from(self._cameras)
        else:
            cameras.write(self._cameras.numpy())

    def _clear(self, target: Target) -> None:
        """Clear the target's depth to `max_depth`, and copy this frame's greatest depths to those of the last frame."""
        raw, zero, farthest = self.context.raw, (ctypes.c_float * 4)(), self._buffers["farthest"]
        raw.glBindFramebuffer(gl.FRAMEBUFFER, target.framebuffer)
        raw.glClearNamedFramebufferfv(target.framebuffer, gl.COLOR, 0, zero)
        raw.glClearNamedFramebufferfv(target.framebuffer, gl.DEPTH, 0, ctypes.byref(self._least_depth))
        self.context.mgl.copy_buffer(farthest, farthest, size=farthest.size // 2, read_offset=farthest.size // 2)

    def _draw(self, target: Target, first: int, count: int, second: bool) -> None:
        """Cull and draw a slice of agents."""
        self._cull(first, count, second)
        for i in range(-(-count * self._most_clusters // self._layout.round)):
            self._select(first, i)
            self._rasterise(target, i)

    def _cull(self, first: int, count: int, second: bool) -> None:
        mgl, cull = self.context.mgl, self._programs["cull"]
        mgl.copy_buffer(self._buffers["commands"], self._no_commands)
        mgl.memory_barrier()
        cull["first_agent"] = first
        if self.occlusion_culling:
            cull["second_pass"] = second
        cull.run(-(-self._most_clusters // 64), count)
        mgl.memory_barrier()

    def _select(self, first: int, index: int) -> None:
        select = self._programs["select"]
        select["first_agent"], select["round_index"] = first, index
        select.run_indirect(self._buffers["commands"], DRAW * self._layout.rounds + DISPATCH * index)
        self.context.mgl.memory_barrier()

    def _rasterise(self, target: Target, index: int) -> None:
        target.triangles.render_indirect(self._buffers["commands"], count=1, first=index)
        self.context.mgl.memory_barrier()

    def _measure(self, first: int, count: int) -> None:
        """Compute the greatest depth in each cell of the images drawn so far."""
        self._programs["farthest"]["first_agent"] = first
        self._programs["farthest"].run(count)

    def _resolve(self, target: Target) -> None:
        target.resolve.run(-(-self.width // 8), -(-self.height // 8), self.num_agents)
        self.context.mgl.memory_barrier()

    def _download(self, target: Target) -> None:
        for name, tensor in target.outputs.items():
            if self._shared:
                self._shared[name].copy_to(tensor)
            else:
                self._buffers[name].read_into(tensor.numpy())

    def _check_memory(self, sizes: dict[str, int], others: int) -> None:
        what, context = f"{self.num_agents} agents of {self.height} x {self.width}", self.context
        check_memory(sizes, others, context.limits, context.free_memory(), what, context.renderer)

    def _compile(self, switches: dict[str, bool], far: float) -> None:
        layout = self._layout
        constants = {
            "ivec2 SIZE": (self.width, self.height),
            "float NEAR": (float(NEAR),), "float FAR": (far,),
            "int NUM_SCENES": (self.bank.num_scenes,), "uint NUM_AGENTS": (self.num_agents,),
            "uint MOST_CLUSTERS": (self._most_clusters,), "uint ROUND": (layout.round,),
            "uint ROUNDS": (layout.rounds,), "uint GROUP": (self.context.group_size,),
            "ivec2 TILES": (layout.columns, layout.rows), "int GRID": (GRID,),
            "ivec2 CELL": (-(-self.width // GRID), -(-self.height // GRID)),
        }  # fmt: skip
        self._compiler = Compiler(self.context, constants, switches)
        parts = {"cull": ("culling", "cull"), "select": ("culling", "select"), "farthest": ("farthest",)}
        self._programs = {name: self._compiler.compute(*names) for name, names in parts.items()}

    def _make_buffers(self, sizes: dict[str, int], clusters: Clusters) -> None:
        """Allocate all buffers and bind them to the shaders' binding numbers."""
        mgl, raw = self.context.mgl, self.context.raw
        self._buffers: dict[Any, Any] = {}
        for name, size in sizes.items():
            self._make_buffer(name, size)
        for name in ("cameras", "farthest"):
            self._buffers[name].clear()
        self._buffers |= {name: mgl.buffer(array.tobytes()) for name, array in clusters._asdict().items()}
        for unit, (name, form) in enumerate(_TEXTURES.items(), start=1):
            texture = self.context.create("glCreateTextures", gl.TEXTURE_BUFFER)
            raw.glTextureBuffer(texture, form, self._buffers[name].glo)
            raw.glBindTextureUnit(unit, texture)
        no_draws = np.zeros(sizes["commands"] // 4, np.uint32)
        no_draws[1 : 5 * self._layout.rounds : 5] = 1  # instances
        no_draws[5 * self._layout.rounds : -1].reshape(-1, 3)[:, 1:] = 1
        self._no_commands = mgl.buffer(no_draws.tobytes())

    def _make_buffer(self, name: str, size: int) -> None:
        """Allocate and bind a buffer; on CUDA also share it, where tensors are copied from or to it."""
        buffer = self._buffers[name] = self.context.mgl.buffer(reserve=size)
        if name in _STORAGE:
            buffer.bind_to_storage_buffer(_STORAGE.index(name))
        if self.device.type == "cuda" and name in ("cameras", "depth", "triangle"):
            from batchnav.renderers.opengl.gl import SharedBuffer

            self._shared[name] = SharedBuffer(buffer.glo, self.device)

    def _make_textures(self) -> None:
        """Create the texture array of all tiles, a depth buffer of the same size, and one viewport per tile."""
        raw, mgl, layout = self.context.raw, self.context.mgl, self._layout
        self._texture = self._make_texture_array("f4", _DEPTH_UNIT)
        self._depth_buffer = self.context.create("glCreateTextures", gl.TEXTURE_2D_ARRAY)
        raw.glTextureStorage3D(
            self._depth_buffer, 1, gl.DEPTH_COMPONENT32F, *self._texture.size[:2], self._texture.layers
        )
        tiles = [(c * self.width, r * self.height) for r in range(layout.rows) for c in range(layout.columns)]
        viewports = np.array([(x, y, self.width, self.height) for x, y in tiles], np.float32)
        raw.glViewportArrayv(0, len(viewports), viewports.ctypes.data)
        raw.glClipControl(gl.LOWER_LEFT, gl.ZERO_TO_ONE)
        mgl.enable_only(mgl.DEPTH_TEST)
        mgl.depth_func = ">"

    def _make_texture_array(self, dtype: str, unit: int):
        mgl, layout = self.context.mgl, self._layout
        size = layout.columns * self.width, layout.rows * self.height, layout.layers
        texture = mgl.texture_array(size, 1, dtype=dtype)
        texture.filter = (mgl.NEAREST, mgl.NEAREST)
        texture.use(unit)
        return texture

    def _make_target(self, outputs: dict[str, torch.Tensor], textures: list) -> Target:
        """Framebuffer and programs that write these outputs through their texture arrays."""
        visibility = "triangle" in outputs
        framebuffer = self.context.framebuffer([texture.glo for texture in textures], self._depth_buffer)
        resolve = self._compiler.compute("resolve", visibility=visibility)
        return Target(framebuffer, self._compiler.triangles(visibility), resolve, outputs)

    def _make_visibility_target(self) -> Target:
        size = self.depth.nbytes  # also that of the triangles
        self._check_memory({"triangle": size}, size)
        triangle = torch.zeros_like(self.depth, dtype=torch.int32)
        with self.context:
            self._make_buffer("triangle", size)
            texture = self._make_texture_array("i4", _TRIANGLE_UNIT)
            return self._make_target({"depth": self.depth, "triangle": triangle}, [self._texture, texture])


def _free(context: gl.GLContext, shared: dict) -> None:
    if shared:
        with context:
            for buffer in shared.values():
                buffer.release()
    context.release()
