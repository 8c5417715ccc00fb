"""Arrays, series and frames of other libraries as tensors; no data frame library is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from ..core.errors import DataError

FAR = 10.0
"""A mean or std above it is far from unit scale, at which networks learn best; so are numbers all below 1 / FAR^2."""


def is_frame(value: Any) -> bool:
    """Return whether it is a data frame: a table with named columns."""
    own = isinstance(value, Tensor | np.ndarray)
    return not own and all(hasattr(value, name) for name in ("columns", "to_numpy", "__getitem__", "__len__"))


def is_series(value: Any) -> bool:
    """Return whether it is one column of a data frame."""
    own = isinstance(value, Tensor | np.ndarray | np.generic) or is_frame(value)
    return not own and hasattr(value, "to_numpy") and hasattr(value, "dtype")


def as_tensors(value: Any, dtype: torch.dtype | None = None, name: str = "inputs") -> Any:
    """Return tensors and arrays, also in tuples and mappings, as tensors; floating numbers take the dtype."""
    if isinstance(value, Mapping):
        return {key: as_tensors(part, dtype, name) for key, part in value.items()}
    if isinstance(value, tuple | list) and not _is_numbers(value):
        return tuple(as_tensors(part, dtype, name) for part in value)
    tensor = as_tensor(value, name)
    return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor


def as_tensor(value: Any, name: str = "inputs") -> Tensor:
    """Return one array as a tensor that shares no memory that cannot be written."""
    if isinstance(value, Tensor):
        if value.layout != torch.strided:
            raise DataError(f"{name} are a sparse tensor; give a dense one: x.to_dense()")
        wide_unsigned = value.dtype in (torch.uint16, torch.uint32, torch.uint64)
        return value.detach().long() if wide_unsigned else value.detach()
    array = as_array(value, name)
    if isinstance(array, Tensor):
        return array
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name} of type {array.dtype} cannot be used; give numbers")
    return torch.from_numpy(array)


def as_array(value: Any, name: str = "inputs") -> Any:
    """Return a contiguous, writeable numpy array with the byte order and types of this machine (or a DLPack tensor)."""
    if isinstance(value, np.ma.MaskedArray):
        raise DataError(f"{name} are a masked array; fill or drop the masked values first: x.filled(...)")
    if type(value).__module__.startswith("scipy.sparse"):
        raise DataError(f"{name} are a sparse matrix; give a dense array: x.toarray()")
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        return from_dlpack(value).clone()
    if hasattr(value, "to_numpy") and not isinstance(value, np.ndarray):
        value = value.to_numpy()
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise DataError(f"{name} have rows of unequal lengths; pad them to one length") from error
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))
    return array if array.flags.writeable else array.copy()


def as_weights(value: Any, examples: int, dtype: torch.dtype) -> Tensor:
    """Return (S,) example weights; they must be finite and at least 0."""
    weights = as_tensor(value, "weights")
    if weights.shape != (examples,):
        raise DataError(f"weights of shape {tuple(weights.shape)}; give one for each of the {examples} examples")
    bad = ~(weights.isfinite() & (weights >= 0))
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise DataError(f"the weight of example {row} is {float(weights[row]):g}; it must be finite and at least 0")
    return weights.to(dtype)


def check_index(inputs: Any, targets: Any) -> None:
    """Refuse a pandas target with the labels of the inputs in another order: pairing by position would be wrong."""
    first, second = (getattr(value, "index", None) for value in (inputs, targets))
    if first is None or second is None or not (hasattr(first, "equals") and hasattr(second, "equals")):
        return
    if len(first) == len(second) and not first.equals(second) and set(first) == set(second):
        ways = "targets.loc[inputs.index], or targets.to_numpy() to pair them by position"
        raise DataError(f"inputs and targets have the same index labels in different orders; give {ways}")


def _is_numbers(value: Any) -> bool:
    # Nested lists of plain numbers are one array, other lists are several inputs.
    while isinstance(value, tuple | list) and value:
        value = value[0]
    return isinstance(value, int | float | str | np.generic)


def scale_warning(inputs: Any, targets: Any = None, features: Sequence[str] | None = None) -> str | None:
    """Return a warning if a column (a channel of images) of inputs or real targets is far from unit scale, else None.

    Tokens, nested inputs and class numbers are not checked; ``features`` are the names of the inputs' columns.
    """
    found = [_far_column("inputs", inputs, features), _far_column("targets", targets, None)]
    notes = [note for note in found if note is not None]
    if not notes:
        return None
    return f"{'; '.join(notes)}: networks learn best near unit scale; standardize=True scales the data and predictions"


def _far_column(name: str, values: Any, features: Sequence[str] | None) -> str | None:
    if not isinstance(values, Tensor) or not values.is_floating_point() or values.numel() == 0:
        return None
    some = values[:10_000].detach().double()
    columns = some.transpose(0, 1).flatten(1).T if some.dim() >= 4 else some.reshape(len(some), -1)
    mean, std = columns.mean(0), columns.std(0, correction=0)
    size = mean.abs().maximum(std)
    tiny = float(columns.abs().max()) < FAR**-2 and bool((std > 0).any())
    if not bool(size.isfinite().all()) or not (bool((size > FAR).any()) or tiny):
        return None
    place = int(size.argmax())
    column = "" if len(size) == 1 else f" column {place if features is None else repr(features[place])}"
    return f"{name}{column} with mean {float(mean[place]):.3g} and std {float(std[place]):.3g}"
