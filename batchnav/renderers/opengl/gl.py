"""Headless OpenGL 4.5 context through EGL, and OpenGL functions that moderngl lacks.

Only this module imports moderngl and glcontext, when a context is created.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from contextlib import contextmanager
from ctypes import c_char_p, c_int, c_ssize_t, c_uint, c_void_p
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from batchnav.errors import DeviceError
from batchnav.renderers.opengl.layout import Limits

VERSION = 450
PACKAGES = "libegl1 libgl1-mesa-dri libgles2 libopengl0"
"""apt packages for OpenGL on the CPU; a GPU's driver contains its own implementation."""
LAYERED = "GL_ARB_shader_viewport_layer_array"
"""Extension that lets a vertex shader choose layer and viewport; in all desktop drivers since 2015 and in llvmpipe."""
TEXTURE_2D_ARRAY, TEXTURE_BUFFER = 0x8C1A, 0x8C2A
DEPTH_COMPONENT32F, RGBA32F, RG32UI = 0x8CAC, 0x8814, 0x823C
FRAMEBUFFER, COLOR_ATTACHMENT0, DEPTH_ATTACHMENT, FRAMEBUFFER_COMPLETE = 0x8D40, 0x8CE0, 0x8D00, 0x8CD5
COLOR, DEPTH = 0x1800, 0x1801
LOWER_LEFT, ZERO_TO_ONE = 0x8CA1, 0x935F
_GL_VERSION, _MAX_TEXTURE_BUFFER_SIZE = 0x1F02, 0x8C2B
_VIDEO_MEMORY = 0x9049
"""GL_GPU_MEMORY_INFO_CURRENT_AVAILABLE_VIDMEM_NVX, in KiB."""
_EGL_EXTENSIONS, _EGL_RENDERER, _EGL_VENDOR, _EGL_UUID, _EGL_CUDA_DEVICE = 0x3055, 0x335F, 0x3053, 0x335C, 0x323A
_MAX_EGL_DEVICES = 64

_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "glGetString": (c_char_p, c_uint),
    "glGetIntegerv": (None, c_uint, c_void_p),
    "glClipControl": (None, c_uint, c_uint),
    "glViewportArrayv": (None, c_uint, c_int, c_void_p),
    "glCreateTextures": (None, c_uint, c_int, c_void_p),
    "glTextureStorage3D": (None, c_uint, c_int, c_uint, c_int, c_int, c_int),
    "glCreateFramebuffers": (None, c_int, c_void_p),
    "glNamedFramebufferTexture": (None, c_uint, c_uint, c_uint, c_int),
    "glCheckNamedFramebufferStatus": (c_uint, c_uint, c_uint),
    "glNamedFramebufferDrawBuffers": (None, c_uint, c_int, c_void_p),
    "glBindFramebuffer": (None, c_uint, c_uint),
    "glClearNamedFramebufferfv": (None, c_uint, c_uint, c_int, c_void_p),
    "glTextureBuffer": (None, c_uint, c_uint, c_uint),
    "glBindTextureUnit": (None, c_uint, c_uint),
}


class EGLDevice(NamedTuple):
    """An EGL device as its driver describes it."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    name: str
    uuid: str
    """UUID, hexadecimal without dashes; empty where the driver does not report it."""
    cuda_ordinal: int
    """CUDA device number, regardless of CUDA_VISIBLE_DEVICES; -1: not a CUDA device."""


def egl_devices() -> list[EGLDevice]:
    """All EGL devices. DeviceError where EGL is not available."""
    # Mesa and Triton have different versions of LLVM. Once Mesa's is loaded, importing Triton, as any optimiser of
    # PyTorch's CUDA builds does, crashes the process; the other order works.
    with contextlib.suppress(ImportError):
        import triton  # noqa: F401
    try:
        egl = ctypes.CDLL("libEGL.so.1")
    except OSError as error:
        raise DeviceError(
            f"OpenGL: found no libEGL.so.1, expected that of a GPU driver or of Mesa; apt-get install {PACKAGES}"
        ) from error
    egl.eglGetProcAddress.restype, egl.eglGetProcAddress.argtypes = c_void_p, [c_char_p]

    def function(name: str, *signature):
        address = egl.eglGetProcAddress(name.encode())
        if not address:
            raise DeviceError(
                f"OpenGL: EGL lacks {name}, expected an EGL that lists its devices; apt-get install {PACKAGES}"
            )
        return ctypes.CFUNCTYPE(*signature)(address)

    query_devices = function("eglQueryDevicesEXT", c_uint, c_int, c_void_p, c_void_p)
    query_string = function("eglQueryDeviceStringEXT", c_char_p, c_void_p, c_int)
    query_number = function("eglQueryDeviceAttribEXT", c_uint, c_void_p, c_int, c_void_p)
    handles, count = (c_void_p * _MAX_EGL_DEVICES)(), c_int(0)
    if not query_devices(_MAX_EGL_DEVICES, handles, ctypes.byref(count)):
        raise DeviceError(f"OpenGL: EGL lists no devices, expected a driver; apt-get install {PACKAGES}")
    devices = []
    for index, handle in enumerate(handles[: count.value]):
        extensions = (query_string(handle, _EGL_EXTENSIONS) or b"").decode().split()
        name, uuid, ordinal = "", "", c_ssize_t(-1)
        if "EGL_MESA_device_software" in extensions:
            name = "Mesa on the CPU"
        if "EGL_EXT_device_query_name" in extensions:
            name = " ".join((query_string(handle, key) or b"").decode() for key in (_EGL_VENDOR, _EGL_RENDERER))
        if "EGL_EXT_device_persistent_id" in extensions:
            query_binary = function("eglQueryDeviceBinaryEXT", c_uint, c_void_p, c_int, c_int, c_void_p, c_void_p)
            data, size = (ctypes.c_ubyte * 16)(), c_int(0)
            if query_binary(handle, _EGL_UUID, 16, data, ctypes.byref(size)):
                uuid = bytes(data).hex()
        if "EGL_NV_device_cuda" in extensions:
            query_number(handle, _EGL_CUDA_DEVICE, ctypes.byref(ordinal))
        devices.append(EGLDevice(index, name.strip(), uuid, ordinal.value))
    return devices


def cuda_match(cuda_index: int, devices: list[EGLDevice]) -> EGLDevice | None:
    """The EGL device of torch's CUDA device `cuda_index`, matched by UUID or else by CUDA device number."""
    uuid = str(getattr(torch.cuda.get_device_properties(cuda_index), "uuid", "")).replace("-", "")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    ordinal = int(visible[cuda_index]) if all(entry.strip().isdigit() for entry in visible) else cuda_index
    by_uuid = [device for device in devices if device.uuid and device.uuid == uuid]
    by_ordinal = [device for device in devices if device.cuda_ordinal == ordinal]
    return next(iter(by_uuid or by_ordinal), None)


class GLContext:
    """An OpenGL context on one EGL device; `with` makes it current for this thread."""

    renderer: str
    """Name and version that the driver reports."""
    limits: Limits

    def __init__(self, device: EGLDevice):
        glcontext, moderngl = _import()
        create = glcontext.get_backend_by_name("egl")
        # Names in runtime packages; names that end in .so belong to development packages.
        libraries = {"libgl": "libOpenGL.so.0", "libegl": "libEGL.so.1"}
        self._loader = create(mode="standalone", glversion=VERSION, device_index=device.index, **libraries)
        self.device = device
        self.mgl = moderngl.create_context(require=VERSION, standalone=True, context=self._loader)
        self.raw = SimpleNamespace(**{
            name: ctypes.CFUNCTYPE(*signature)(self._loader.load(name)) for name, signature in _FUNCTIONS.items()
        })  # fmt: skip
        info = self.mgl.info
        self.renderer = f"{info['GL_RENDERER']}, OpenGL {info['GL_VERSION']}"
        self.limits = Limits(
            info["GL_MAX_TEXTURE_SIZE"], info["GL_MAX_ARRAY_TEXTURE_LAYERS"],
            info["GL_MAX_COMPUTE_WORK_GROUP_COUNT"][0], info["GL_MAX_SHADER_STORAGE_BLOCK_SIZE"],
            self._integer(_MAX_TEXTURE_BUFFER_SIZE),
        )  # fmt: skip
        # llvmpipe runs a work group of one vector (8) at a fraction of the cost of a larger group.
        self.group_size = 8 if self.is_software else 64

    def __enter__(self):
        self._loader.__enter__()
        if self.raw.glGetString(_GL_VERSION) is None:
            self._loader.__exit__()
            raise DeviceError("OpenGL: the context is lost or was released, expected a live one; create a new renderer")
        return self

    def __exit__(self, *exception):
        self._loader.__exit__(*exception)

    def release(self) -> None:
        """Free the context and all its objects."""
        self._loader.release()

    @property
    def is_software(self) -> bool:
        """True if the CPU renders (llvmpipe)."""
        return "llvmpipe" in self.renderer

    def create(self, function: str, *arguments: int) -> int:
        """Name of a new object, created by a raw function (glCreate...)."""
        name = c_uint(0)
        getattr(self.raw, function)(*arguments, 1, ctypes.byref(name))
        return name.value

    def framebuffer(self, colors: list[int], depth: int) -> int:
        """A framebuffer with all layers of these textures. DeviceError where the driver rejects it."""
        raw, framebuffer = self.raw, self.create("glCreateFramebuffers")
        points = [COLOR_ATTACHMENT0 + i for i in range(len(colors))]
        for point, texture in zip((*points, DEPTH_ATTACHMENT), (*colors, depth), strict=True):
            raw.glNamedFramebufferTexture(framebuffer, point, texture, 0)
        raw.glNamedFramebufferDrawBuffers(framebuffer, len(points), (c_uint * len(points))(*points))
        status = raw.glCheckNamedFramebufferStatus(framebuffer, FRAMEBUFFER)
        if status != FRAMEBUFFER_COMPLETE:
            raise DeviceError(f"OpenGL: found framebuffer status {status:#x}, expected a complete one")
        return framebuffer

    def free_memory(self) -> int | None:
        """Free memory in bytes (of the machine for llvmpipe); None where the driver does not report it."""
        if not self.is_software:  # Mesa's llvmpipe lists the extension from version 26 on, and always reports 0
            if "GL_NVX_gpu_memory_info" not in self.mgl.extensions:
                return None
            with self:
                return self._integer(_VIDEO_MEMORY) * 1024
        meminfo = Path("/proc/meminfo")
        if not meminfo.is_file():
            return None
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024

    def _integer(self, name: int) -> int:
        value = c_int(0)
        self.raw.glGetIntegerv(name, ctypes.byref(value))
        return value.value


def open_context(device: torch.device) -> GLContext:
    """A context on the GPU of torch's device; for the CPU on the first EGL device with OpenGL 4.5.

    DeviceError where there is none; the message names the packages to install.
    """
    devices = egl_devices()
    if device.type == "cuda":
        match = cuda_match(device.index or 0, devices)
        if match is None:
            found = ", ".join(d.name or f"device {d.index}" for d in devices) or "none"
            raise DeviceError(
                f"OpenGL: found {found} among EGL's devices, expected {torch.cuda.get_device_name(device)}; "
                "install the driver's EGL (libnvidia-gl; in a container NVIDIA_DRIVER_CAPABILITIES=all)"
            )
        devices = [match]
    failures = []
    for candidate in devices:
        try:
            context = GLContext(candidate)
        except DeviceError:
            raise
        except Exception as error:  # glcontext and moderngl raise plain exceptions
            failures.append(f"device {candidate.index}: {error}")
            continue
        if LAYERED in context.mgl.extensions:
            context.__exit__()
            return context
        failures.append(f"device {candidate.index}: {context.renderer} lacks {LAYERED}")
        context.release()
    raise DeviceError(
        f"OpenGL: found no EGL device with a 4.5 context ({'; '.join(failures) or 'no devices'}), expected one; "
        f"Mesa's OpenGL runs on any CPU; apt-get install {PACKAGES}"
    )


def _import():
    try:
        import glcontext
        import moderngl
    except ImportError as error:
        raise DeviceError(f"OpenGL: {error}, expected moderngl; pip install moderngl") from error
    return glcontext, moderngl


# Compilation of the shaders (shaders/*.glsl) with the constants of a renderer

SHADERS = Path(__file__).parent / "shaders"


class Compiler:
    """Compiles programs in a context, which must be current. `constants` by type and name, `switches` for #if."""

    def __init__(self, context: GLContext, constants: dict[str, tuple], switches: dict[str, bool]):
        self._mgl = context.mgl
        self._head = [
            f"#version {VERSION} core",
            f"#extension {LAYERED} : enable",
            *(f"#define {name} {int(on)}" for name, on in switches.items()),
            *(f"const {name} = {name.split()[0]}({', '.join(map(repr, v))});" for name, v in constants.items()),
        ]

    def compute(self, *names: str, visibility: bool = False):
        """A compute shader from the concatenation of these files."""
        return self._mgl.compute_shader(self._source(*names, visibility=visibility))

    def triangles(self, visibility: bool):
        """Vertex array without attributes that draws the selected triangles, which the shaders look up."""
        vertex, fragment = (self._source(f"depth_{kind}", visibility=visibility) for kind in ("vertex", "fragment"))
        return self._mgl.vertex_array(self._mgl.program(vertex_shader=vertex, fragment_shader=fragment), [])

    def _source(self, *names: str, visibility: bool) -> str:
        files = [(SHADERS / f"{name}.glsl").read_text(encoding="utf-8") for name in ("common", *names)]
        return "\n".join([*self._head, f"#define VISIBILITY {int(visibility)}", *files])


# OpenGL buffers shared with CUDA


class SharedBuffer:
    """An OpenGL buffer registered with CUDA. Its context must be current in every call.

    Copies run on torch's current stream; the driver orders them after earlier and before later OpenGL commands. The
    host neither waits nor receives the data.
    """

    def __init__(self, buffer: int, device: torch.device):
        try:
            from cuda.bindings import runtime
        except ImportError as error:
            raise DeviceError(
                f"CUDA with OpenGL: {error}, expected the package cuda-bindings; pip install cuda-bindings"
            ) from error
        self._runtime, self._device = runtime, device
        with torch.cuda.device(device):
            self._resource = self._call("cudaGraphicsGLRegisterBuffer", buffer, 0)

    def copy_from(self, tensor: torch.Tensor) -> None:
        """Copy a contiguous CUDA tensor to the start of the buffer."""
        with self._mapped() as (pointer, size, stream):
            self._copy(pointer, tensor.data_ptr(), min(size, tensor.nbytes), stream)

    def copy_to(self, tensor: torch.Tensor) -> None:
        """Copy the start of the buffer to a contiguous CUDA tensor."""
        with self._mapped() as (pointer, size, stream):
            self._copy(tensor.data_ptr(), pointer, min(size, tensor.nbytes), stream)

    def release(self) -> None:
        """Unregister the buffer from CUDA."""
        self._call("cudaGraphicsUnregisterResource", self._resource)

    @contextmanager
    def _mapped(self):
        with torch.cuda.device(self._device):
            stream = torch.cuda.current_stream().cuda_stream
            self._call("cudaGraphicsMapResources", 1, self._resource, stream)
            try:
                yield *self._call("cudaGraphicsResourceGetMappedPointer", self._resource), stream
            finally:
                self._call("cudaGraphicsUnmapResources", 1, self._resource, stream)

    def _copy(self, target: int, source: int, size: int, stream: int) -> None:
        kind = self._runtime.cudaMemcpyKind.cudaMemcpyDeviceToDevice
        self._call("cudaMemcpyAsync", target, source, size, kind, stream)

    def _call(self, name: str, *arguments):
        """Call a function of the CUDA runtime and return its results; an error code is raised as DeviceError."""
        error, *results = getattr(self._runtime, name)(*arguments)
        if error != self._runtime.cudaError_t.cudaSuccess:
            raise DeviceError(f"CUDA with OpenGL: {name} found {error.name}, expected success")
        return results[0] if len(results) == 1 else results
