"""OpenGL buffers shared with CUDA."""

from __future__ import annotations

from contextlib import contextmanager

import torch

from batchnav.errors import DeviceError


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
