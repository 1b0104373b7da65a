"""Conversion between torch tensors and the arrays that kernels take."""

from __future__ import annotations

import types as types_module
from collections import namedtuple
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from batchnav.errors import ArgumentError
from batchnav.runtime.kernels.decorators import cuda


def record_type(name: str, fields: Iterable[str], module: str) -> Any:
    """A NamedTuple class whose fields are known at run time only; `module` is the one that defines it, for pickling."""
    return namedtuple(name, tuple(fields), module=module)


def view(value: Any) -> Any:
    """A torch tensor, or a NamedTuple of tensors, as kernel arguments that share its memory.

    CPU tensors become NumPy arrays, CUDA tensors numba device arrays; other values are returned unchanged. Call it once
    and keep the result: it is slow on CUDA.
    """
    if isinstance(value, torch.Tensor):
        return value.numpy() if value.device.type == "cpu" else _device_array(value, value.device)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(view(field) for field in value))
    return value


def _device_array(owner: Any, device: torch.device) -> Any:
    """numba device array, on this device, of an object with `__cuda_array_interface__`."""
    with torch.cuda.device(device):  # numba records the current device
        return cuda.as_cuda_array(owner, sync=False)


def to_device(value: Any, device: torch.device) -> Any:
    """A NumPy array, or a NamedTuple of arrays, as torch tensors on the device; other values are unchanged."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(value)).to(device)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_device(field, device) for field in value))
    return value


def is_dense(tensor: torch.Tensor) -> bool:
    """True for a tensor with a number at each place: not a sparse, quantised, nested or "meta" one."""
    return tensor.layout is torch.strided and not (tensor.is_meta or tensor.is_quantized or tensor.is_nested)


def tensor_text(value: Any) -> str:
    """Kind of a value for messages: dtype and shape of a tensor, layout and device too if it is not dense."""
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    if value.is_nested:
        return f"a nested tensor of {value.dtype}"
    where = "" if is_dense(value) else f" ({value.layout}, on {value.device})"
    return f"{value.dtype} {list(value.shape)}{where}"


def floats(name: str, value: Any, device: torch.device) -> torch.Tensor:
    """A NumPy array, a torch tensor on any device or a list of numbers, as a contiguous f32 tensor on the device.

    Values beyond the range of float32 become infinite. ArgumentError for anything else, with `name` in the message.
    """
    if not isinstance(value, torch.Tensor):
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise ArgumentError(f"{name}: found rows of unequal length, expected an array") from error
        if array.dtype.kind not in "fiu":
            raise ArgumentError(f"{name}: found {array.dtype}, expected float32 or float64")
        with np.errstate(over="ignore"):
            value = torch.from_numpy(np.array(array, np.float32, order="C"))
    elif value.is_complex() or value.dtype == torch.bool or not is_dense(value):
        found = f"{value.dtype} ({value.layout}, on {value.device})"
        raise ArgumentError(f"{name}: found {found}, expected a dense float32 or float64")
    return value.detach().to(device, torch.float32).contiguous()


def host_flag(device: torch.device, size: int = 1) -> tuple[np.ndarray, Any]:
    """`size` int32 that a kernel sets and the host reads without synchronisation: (NumPy array, kernel argument).

    On CUDA the memory is pinned host memory, which the device accesses at the same address.
    """
    if device.type == "cpu":
        flag = np.zeros(size, np.int32)
        return flag, flag
    pinned = torch.zeros(size, dtype=torch.int32, pin_memory=True, device="cpu")
    interface = {"shape": (size,), "typestr": "<i4", "data": (pinned.data_ptr(), False), "version": 3}
    owner = types_module.SimpleNamespace(__cuda_array_interface__=interface, tensor=pinned)
    return pinned.numpy(), _device_array(owner, device)


def check_tensor(name: str, value: Any, shape: tuple, dtype: torch.dtype, device: torch.device) -> None:
    """ArgumentError where a tensor differs from this shape, dtype or device. None in `shape` matches any size."""
    if not isinstance(value, torch.Tensor):
        raise ArgumentError(f"{name}: found {type(value).__name__}, expected a torch tensor")
    dense = is_dense(value)
    if dense and value.shape == shape and value.dtype == dtype and value.device == device:
        return  # the usual case is fast: a step with few agents takes microseconds
    fits = value.ndim == len(shape) and all(e is None or e == s for e, s in zip(shape, value.shape, strict=True))
    there = value.device.type == device.type and device.index in (None, value.device.index)
    if not dense or not fits or value.dtype != dtype or not there:
        raise ArgumentError(
            f"{name}: found {tensor_text(value)} on {value.device}, "
            f"expected {dtype} {['*' if s is None else s for s in shape]} on {device}"
        )
