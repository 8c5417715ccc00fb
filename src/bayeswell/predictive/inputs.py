"""Inputs checked once, before any work, and cut into batches of views."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError
from ..finite import first_not_finite
from ..nested import map_leaves
from ..tables import as_array, as_arrays
from ..types import Inputs
from .contracts import Drawable


@dataclass(frozen=True)
class Home:
    """Where a model computes: the device of its first parameter or buffer, and its real dtype."""

    device: torch.device
    dtype: torch.dtype


def home_of(model: Drawable) -> Home:
    """The model's device and real dtype; the CPU and torch's default where it holds no tensors."""
    tensors = [
        tensor
        for module in model.modules()
        for tensor in chain(module.parameters(recurse=False), module.buffers(recurse=False))
    ]
    device = tensors[0].device if tensors else torch.device("cpu")
    real = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    return Home(device, real[0] if real else torch.get_default_dtype())


@dataclass(frozen=True)
class Batch:
    """The inputs of examples ``start`` to ``stop``."""

    start: int
    stop: int
    inputs: Inputs

    def on(self, device: torch.device) -> Inputs:
        """The inputs on a device; a copy only while the batch is in use."""
        if isinstance(self.inputs, Tensor) and self.inputs.device == device:
            return self.inputs
        return map_tensors(self.inputs, lambda _, tensor: tensor.to(device))


def cut_into_batches(inputs: Inputs, batch_size: int | None, home: Home) -> list[Batch]:
    """Batches that are views of the inputs, after refusing empty, unequal or non-finite ones."""
    tensors = map_tensors(as_arrays(inputs), lambda name, value: _as_tensor(name, value, home))
    sizes: dict[str, int] = {}

    def inspect(name: str, tensor: Tensor) -> Tensor:
        if tensor.dim() == 0 or tensor.numel() == 0:
            raise DataError(f"{name}: shape {tuple(tensor.shape)} holds no examples")
        _require_finite(name, tensor)
        sizes[name] = tensor.shape[0]
        return tensor

    map_tensors(tensors, inspect)
    if not sizes:
        raise DataError("inputs hold no tensor")
    first, size = next(iter(sizes.items()))
    for name, other in sizes.items():
        if other != size:
            raise DataError(f"{name} has {other} examples; {first} has {size}")
    step = size if batch_size is None else batch_size
    return [_cut(tensors, start, min(start + step, size)) for start in range(0, size, step)]


def map_tensors(inputs: Inputs, change: Callable[[str, Any], Any]) -> Inputs:
    """The same structure with each tensor or array changed; other values (flags, None) stay as they are."""

    def visit(name: str, value: Any) -> Any:
        return change(name, value) if isinstance(value, Tensor | np.ndarray) else value

    if isinstance(inputs, Tensor | np.ndarray | tuple | Mapping):
        return map_leaves(inputs, visit, "inputs", deep=False)
    raise DataError(
        f"inputs are a {type(inputs).__name__}; allowed: a tensor, a numpy array, a tuple (positional) or a "
        "mapping (keywords) of them"
    )


def as_targets(targets: Any, examples: int) -> Tensor:
    """Targets as a tensor with one entry for each example."""
    targets = as_array(targets, "targets")
    if isinstance(targets, np.ndarray):
        targets = _from_numpy("targets", targets)
    if not isinstance(targets, Tensor):
        raise DataError(f"targets are a {type(targets).__name__}; they must be a tensor or a numpy array")
    if targets.dim() == 0 or targets.shape[0] != examples:
        raise DataError(f"targets have shape {tuple(targets.shape)}; the inputs hold {examples} examples")
    return targets


def _cut(tensors: Inputs, start: int, stop: int) -> Batch:
    return Batch(start, stop, map_tensors(tensors, lambda _, tensor: tensor[start:stop]))


def _as_tensor(name: str, value: Tensor | np.ndarray[Any, Any], home: Home) -> Tensor:
    if isinstance(value, Tensor):
        return value
    tensor = _from_numpy(name, value)
    # numpy's default is float64, the network's is not: only arrays are converted, a tensor's dtype is meant.
    return tensor.to(home.dtype) if tensor.is_floating_point() else tensor


def _from_numpy(name: str, array: np.ndarray[Any, Any]) -> Tensor:
    try:
        # A copy: torch can neither hold read-only arrays safely nor negative strides at all.
        return torch.from_numpy(array.copy())
    except TypeError:
        raise DataError(f"{name}: a numpy array of dtype {array.dtype}; it must hold numbers") from None


def _require_finite(name: str, tensor: Tensor) -> None:
    index = first_not_finite(tensor)
    if index is not None:
        raise DataError(f"{name}: {tensor[index].item():g} at index {index}; every number must be finite")
