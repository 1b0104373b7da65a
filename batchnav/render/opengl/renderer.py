"""Planar depth by rasterisation: one batch of draws puts every agent's picture into one texture array.

A frame is a chain of compute shaders and draws whose length does not depend on where the agents are (shaders/*.glsl):

    cull       lists the (agent, cluster) pairs in view; with occlusion culling, those not hidden a frame ago
    select     lists, of those, the triangles that may cover a pixel's centre, and writes the indirect draw
    depth      draws them; the vertex shader chooses the agent's layer and viewport
    farthest   the greatest depth in each cell of an image; cull, select and draw then treat what it does not hide
    resolve    copies the tiles into one buffer [N, H, W]

Rasterisers are slow where triangles are smaller than pixels; at 64 x 64 most of a house's are, and a compute shader
drops them at a small part of the cost. Frustum and cluster culling follow the paper's renderer (bps3D), occlusion in
two passes Haar and Aaltonen, "GPU-Driven Rendering Pipelines" (SIGGRAPH 2015), and the triangles' test Wihlidal,
"Optimizing the Graphics Pipeline with Compute" (GDC 2016).
"""

from __future__ import annotations

import ctypes
import weakref
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from batchnav.errors import DeviceError
from batchnav.geometry.camera import tan_half
from batchnav.render.opengl import gl
from batchnav.render.opengl.clusters import Clusters, build_clusters
from batchnav.render.opengl.layout import CAMERA, DISPATCH, DRAW, GRID, arrange, buffer_sizes, check_memory
from batchnav.render.options import NEAR, check_options
from batchnav.runtime.arrays import check_tensor
from batchnav.scene.bank import SceneBank

SHADERS = Path(__file__).parent / "shaders"
_FAR = 1.0e30
_STORAGE = ("pairs", "commands", "selected", "farthest", "images")
"""Buffers that shaders write, in the order of their binding numbers."""
_TEXTURES = {
    "cameras": gl.RGBA32F, "boxes": gl.RGBA32F, "corners": gl.RGBA32F, "ranges": gl.RG32UI, "selected": gl.RG32UI,
}  # fmt: skip
"""Buffers that shaders read as textures, in the order of their units from 1; unit 0 is the texture array."""


class OpenGLRenderer:
    """Renders N agents' depth images with OpenGL 4.5. Owns `depth`, which `render` fills and returns.

    Takes and gives tensors on the bank's device: on CUDA they are exchanged with OpenGL on the GPU, on the CPU the
    images are read back. The options mean what they mean for `RaycastRenderer`; the three kinds of culling change
    nothing but the speed. Pictures differ from the ray caster's only where a depth edge passes a pixel's centre.

    Raises DeviceError where there is no OpenGL 4.5, or where its memory would not suffice.
    """

    capturable = False
    STAGES: ClassVar = {
        "cull": ("_cull", "_select", "_measure"), "draw": ("_clear", "_rasterise"), "resolve": ("_resolve",),
        "copy": ("_upload", "_download"),
    }  # fmt: skip
    """The methods that make up a frame, for those who time its parts."""

    def __init__(
        self,
        bank: SceneBank,
        num_agents: int,
        height: int = 64,
        width: int = 64,
        hfov_deg: float = 90.0,
        backface_culling: bool = False,
        max_depth: float = float("inf"),
        frustum_culling: bool = True,
        occlusion_culling: bool = True,
        pixel_culling: bool = True,
    ):
        check_options(num_agents, height, width, hfov_deg, max_depth)
        self.bank, self.device = bank, bank.device
        self.num_agents, self.height, self.width = int(num_agents), int(height), int(width)
        self.occlusion_culling = bool(occlusion_culling)
        clusters = build_clusters([scene.mesh for scene in bank.scenes])
        self._most_clusters = int(clusters.ranges[:, 1].max())
        self.context = gl.open_context(bank.device)
        self._shared = []
        self._finalizer = weakref.finalize(self, _free, self.context, self._shared)
        self._finalizer.atexit = False
        limits = self.context.limits
        image = self.num_agents, self.height, self.width, self._most_clusters
        self._layout = arrange(*image, limits)
        sizes = buffer_sizes(*image, self._layout)
        what = f"{num_agents} agents of {height} x {width}"
        check_memory(sizes, clusters, limits, self.context.free_memory(), what, self.context.renderer)
        switches = {
            "FRUSTUM_CULLING": frustum_culling, "OCCLUSION_CULLING": occlusion_culling,
            "PIXEL_CULLING": pixel_culling, "BACKFACE_CULLING": backface_culling,
        }  # fmt: skip
        self._least_depth = ctypes.c_float(NEAR / max_depth)
        with self.context:
            self._compile(switches, float(tan_half(hfov_deg)), min(float(max_depth), _FAR))
            self._make_buffers(sizes, clusters)
            self._make_framebuffer()
        self.depth = torch.zeros(self.num_agents, self.height, self.width, device=bank.device)
        self._cameras = torch.zeros(self.num_agents, CAMERA // 4, device=bank.device)

    def render(self, scene_id: torch.Tensor, position: torch.Tensor, heading: torch.Tensor) -> torch.Tensor:
        """i32 [N], f32 [N, 3] camera position, f32 [N] -> f32 [N, H, W] metres, 0 where nothing is hit.

        The tensor belongs to the renderer and is valid until the next call. An agent whose scene is not in the bank,
        or whose pose is not finite, sees nothing. DeviceError where the OpenGL context is lost.
        """
        n, device = self.num_agents, self.device
        check_tensor("scene_id", scene_id, (n,), torch.int32, device)
        check_tensor("position", position, (n, 3), torch.float32, device)
        check_tensor("heading", heading, (n,), torch.float32, device)
        self._cameras[:, :3].copy_(position)
        self._cameras[:, 3].view(torch.int32).copy_(scene_id)
        torch.sin(heading, out=self._cameras[:, 4]).neg_()
        torch.cos(heading, out=self._cameras[:, 5]).neg_()
        with self.context:
            self._upload()
            self._clear()
            for first in range(0, n, self._layout.slice):
                count = min(self._layout.slice, n - first)
                self._draw(first, count, second=False)
                if self.occlusion_culling:
                    self._measure(first, count)
                    self._draw(first, count, second=True)
            self._resolve()
            self._download()
            error = self.context.mgl.error
        if error != "GL_NO_ERROR":
            raise DeviceError(f"OpenGL: found {error} after rendering, expected none; the context may be lost")
        return self.depth

    @property
    def texture_array(self):
        """The `moderngl.TextureArray` (R32F, metres) with the last pictures, for those who sample it in OpenGL.

        It lives in the renderer's `context`, which `with renderer.context:` makes current. Agent i is in layer i // T,
        T = columns * rows of `tiles`, and there in tile i % T, counted along the rows.
        """
        return self._texture

    @property
    def tiles(self) -> tuple[int, int]:
        """Columns and rows of tiles in each layer of `texture_array`."""
        return self._layout.columns, self._layout.rows

    def release(self) -> None:
        """Free what the renderer holds in OpenGL, as its end does; it cannot be used any more."""
        self._finalizer()

    def _upload(self) -> None:
        """Hand the agents' cameras to OpenGL, which keeps those of the last frame behind them."""
        cameras, size = self._buffers["cameras"], self.num_agents * CAMERA
        self.context.mgl.copy_buffer(cameras, cameras, size=size, write_offset=size)
        if self._shared:
            self._shared[0].copy_from(self._cameras)
        else:
            cameras.write(self._cameras.numpy())

    def _clear(self) -> None:
        """Empty the pictures, so that only what is nearer than `max_depth` passes the depth test.

        What was farthest in this frame's becomes the last frame's.
        """
        raw, zero, farthest = self.context.raw, (ctypes.c_float * 4)(), self._buffers["farthest"]
        raw.glClearNamedFramebufferfv(self._framebuffer, gl.COLOR, 0, zero)
        raw.glClearNamedFramebufferfv(self._framebuffer, gl.DEPTH, 0, ctypes.byref(self._least_depth))
        self.context.mgl.copy_buffer(farthest, farthest, size=farthest.size // 2, read_offset=farthest.size // 2)

    def _draw(self, first: int, count: int, second: bool) -> None:
        """Cull and draw a slice of agents."""
        self._cull(first, count, second)
        for i in range(-(-count * self._most_clusters // self._layout.round)):
            self._select(first, i)
            self._rasterise(i)

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

    def _rasterise(self, index: int) -> None:
        self._triangles.render_indirect(self._buffers["commands"], count=1, first=index)
        self.context.mgl.memory_barrier()

    def _measure(self, first: int, count: int) -> None:
        """Find the greatest depths of what was drawn."""
        self._programs["farthest"]["first_agent"] = first
        self._programs["farthest"].run(count)

    def _resolve(self) -> None:
        self._programs["resolve"].run(-(-self.width // 8), -(-self.height // 8), self.num_agents)
        self.context.mgl.memory_barrier()

    def _download(self) -> None:
        if self._shared:
            self._shared[1].copy_to(self.depth)
        else:
            self._buffers["images"].read_into(self.depth.numpy())

    def _compile(self, switches: dict[str, bool], half_extent: float, far: float) -> None:
        layout = self._layout
        constants = {
            "ivec2 SIZE": (self.width, self.height),
            "vec2 SCALE": (1 / half_extent, self.width / self.height / half_extent),
            "float NEAR": (float(NEAR),), "float FAR": (far,),
            "int NUM_SCENES": (self.bank.num_scenes,), "uint NUM_AGENTS": (self.num_agents,),
            "uint MOST_CLUSTERS": (self._most_clusters,), "uint ROUND": (layout.round,),
            "uint ROUNDS": (layout.rounds,), "uint GROUP": (self.context.group_size,),
            "ivec2 TILES": (layout.columns, layout.rows), "int GRID": (GRID,),
            "ivec2 CELL": (-(-self.width // GRID), -(-self.height // GRID)),
        }  # fmt: skip
        head = [f"#version {gl.VERSION} core", *(f"#define {name} {int(on)}" for name, on in switches.items())]
        head.insert(1, f"#extension {gl.LAYERED} : enable")
        head += [f"const {name} = {name.split()[0]}({', '.join(map(repr, v))});" for name, v in constants.items()]

        def source(*names: str) -> str:
            return "\n".join(
                [*head, *((SHADERS / f"{n}.glsl").read_text(encoding="utf-8") for n in ("common", *names))]
            )

        mgl = self.context.mgl
        parts = {"cull": ("culling", "cull"), "select": ("culling", "select"), "farthest": ("farthest",),
                 "resolve": ("resolve",)}  # fmt: skip
        self._programs = {name: mgl.compute_shader(source(*names)) for name, names in parts.items()}
        program = mgl.program(vertex_shader=source("depth_vertex"), fragment_shader=source("depth_fragment"))
        self._triangles = mgl.vertex_array(program, [])

    def _make_buffers(self, sizes: dict[str, int], clusters: Clusters) -> None:
        """Allocate all buffers and bind each to the numbers that the shaders know it by."""
        mgl, raw = self.context.mgl, self.context.raw
        buffers = {name: mgl.buffer(reserve=size) for name, size in sizes.items()}
        for name in ("cameras", "farthest"):
            buffers[name].clear()
        buffers |= {name: mgl.buffer(array.tobytes()) for name, array in clusters._asdict().items()}
        for binding, name in enumerate(_STORAGE):
            buffers[name].bind_to_storage_buffer(binding)
        for unit, (name, form) in enumerate(_TEXTURES.items(), start=1):
            texture = self.context.create("glCreateTextures", gl.TEXTURE_BUFFER)
            raw.glTextureBuffer(texture, form, buffers[name].glo)
            raw.glBindTextureUnit(unit, texture)
        self._buffers = buffers
        no_draws = np.zeros(sizes["commands"] // 4, np.uint32)
        no_draws[1 : 5 * self._layout.rounds : 5] = 1  # instances
        no_draws[5 * self._layout.rounds : -1].reshape(-1, 3)[:, 1:] = 1
        self._no_commands = mgl.buffer(no_draws.tobytes())
        if self.device.type == "cuda":
            from batchnav.render.opengl.interop import SharedBuffer

            self._shared += [SharedBuffer(buffers[name].glo, self.device) for name in ("cameras", "images")]

    def _make_framebuffer(self) -> None:
        """A texture array of all tiles with a depth buffer as large, and a viewport for each tile of a layer."""
        raw, mgl, layout = self.context.raw, self.context.mgl, self._layout
        size = layout.columns * self.width, layout.rows * self.height
        self._texture = mgl.texture_array((*size, layout.layers), 1, dtype="f4")
        self._texture.filter = (mgl.NEAREST, mgl.NEAREST)
        self._texture.use(0)
        depth = self.context.create("glCreateTextures", gl.TEXTURE_2D_ARRAY)
        raw.glTextureStorage3D(depth, 1, gl.DEPTH_COMPONENT32F, *size, layout.layers)
        self._framebuffer = self.context.create("glCreateFramebuffers")
        raw.glNamedFramebufferTexture(self._framebuffer, gl.COLOR_ATTACHMENT0, self._texture.glo, 0)
        raw.glNamedFramebufferTexture(self._framebuffer, gl.DEPTH_ATTACHMENT, depth, 0)
        status = raw.glCheckNamedFramebufferStatus(self._framebuffer, gl.FRAMEBUFFER)
        if status != gl.FRAMEBUFFER_COMPLETE:
            raise DeviceError(f"OpenGL: found framebuffer status {status:#x}, expected a complete one")
        raw.glBindFramebuffer(gl.FRAMEBUFFER, self._framebuffer)
        tiles = [(c * self.width, r * self.height) for r in range(layout.rows) for c in range(layout.columns)]
        viewports = np.array([(x, y, self.width, self.height) for x, y in tiles], np.float32)
        raw.glViewportArrayv(0, len(viewports), viewports.ctypes.data)
        raw.glClipControl(gl.LOWER_LEFT, gl.ZERO_TO_ONE)
        mgl.enable_only(mgl.DEPTH_TEST)
        mgl.depth_func = ">"


def _free(context: gl.GLContext, shared: list) -> None:
    if shared:
        with context:
            for buffer in shared:
                buffer.release()
    context.release()
