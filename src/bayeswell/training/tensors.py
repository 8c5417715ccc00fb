"""Arrays of inputs, targets and example weights as tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.errors import DataError


def as_tensors(value: Any, dtype: torch.dtype | None, name: str = "inputs") -> Any:
    """Return tensors or arrays, also in tuples and mappings, as tensors; floating numbers take the dtype."""
    if isinstance(value, Mapping):
        return {key: as_tensors(part, dtype, name) for key, part in value.items()}
    if isinstance(value, tuple | list) and not _is_numbers(value):
        return tuple(as_tensors(part, dtype, name) for part in value)
    tensor = _as_tensor(value, name)
    return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor


def as_weights(value: Any, examples: int, like: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Return (S,) example weights as floating numbers; they must be finite and at least 0."""
    weights = _as_tensor(value, "weights")
    if weights.shape != (examples,):
        raise DataError(f"weights of shape {tuple(weights.shape)}; give one for each of the {examples} examples")
    default = like.dtype if like.is_floating_point() else torch.get_default_dtype()
    weights = weights.to(dtype or default)
    bad = ~(weights.isfinite() & (weights >= 0))
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise DataError(f"the weight of example {row} is {float(weights[row]):g}; it must be finite and at least 0")
    return weights


def _as_tensor(value: Any, name: str) -> Tensor:
    if isinstance(value, Tensor):
        if value.layout != torch.strided:
            raise DataError(f"{name} are a sparse tensor; give a dense one: x.to_dense()")
        return _signed(value.detach())
    if isinstance(value, np.ma.MaskedArray):
        raise DataError(f"{name} are a masked array; fill or drop the masked values first: x.filled(...)")
    if type(value).__module__.startswith("scipy.sparse"):
        raise DataError(f"{name} are a sparse matrix; give a dense array: x.toarray()")
    if hasattr(value, "to_numpy") and not isinstance(value, np.ndarray):
        value = value.to_numpy()
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise DataError(f"{name} have rows of unequal lengths; pad them to one length") from error
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name} of type {array.dtype} cannot be used; give numbers")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _signed(tensor: Tensor) -> Tensor:
    return tensor.long() if tensor.dtype in (torch.uint16, torch.uint32, torch.uint64) else tensor


def _is_numbers(value: Any) -> bool:
    """Whether nested lists hold plain numbers, so that they are one array."""
    while isinstance(value, tuple | list) and value:
        value = value[0]
    return isinstance(value, int | float | str | np.generic)
