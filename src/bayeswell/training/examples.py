"""Inputs, targets and weights of examples as tensors: converted, checked, and cut."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import DataError
from ..nested import leaves, taken
from ..tables import as_array
from ..types import Inputs


def as_tensors(value: Any, dtype: torch.dtype | None) -> Any:
    """Tensors or arrays, also in tuples and mappings; real numbers take the dtype, whole ones stay as they are."""
    if isinstance(value, Mapping):
        return {key: as_tensors(part, dtype) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return tuple(as_tensors(part, dtype) for part in value)
    value = as_array(value, "data")
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biufc":
            kind = "objects" if value.dtype == object else str(value.dtype)
            raise DataError(f"an array of {kind} cannot be trained on; give numbers")
        value = torch.from_numpy(np.ascontiguousarray(value))
    if isinstance(value, Tensor):
        return value.to(dtype) if dtype is not None and value.is_floating_point() else value
    raise DataError(f"data of type {type(value).__name__}; give tensors or numpy arrays")


def as_weights(given: Any, examples: int, dtype: torch.dtype | None) -> Tensor:
    """(examples,): how often each example counts; finite, at least 0, in real numbers."""
    weights = torch.as_tensor(given) if isinstance(given, np.ndarray | list | tuple) else given
    if not isinstance(weights, Tensor) or weights.is_complex() or weights.shape != (examples,):
        found = f"shape {tuple(weights.shape)}" if isinstance(weights, Tensor) else f"type {type(given).__name__}"
        raise DataError(f"weights of {found}; give one number for each of the {examples} examples, shape ({examples},)")
    weights = weights.to(dtype or (weights.dtype if weights.is_floating_point() else torch.get_default_dtype()))
    bad = ~(weights.isfinite() & (weights >= 0))
    if bool(bad.any()):
        index = int(bad.nonzero()[0])
        raise DataError(f"the weight of example {index} is {float(weights[index]):g}; it must be finite and at least 0")
    return weights


def batch_parts(batch: Any, dtype: torch.dtype | None) -> tuple[Inputs, Tensor, Tensor | None]:
    """Inputs, targets and weights (None without) of a collated batch of a Dataset or DataLoader."""
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        count = f"{len(batch)} parts" if isinstance(batch, tuple | list) else type(batch).__name__
        raise DataError(
            f"a batch of {count}; it must be (inputs, targets) or (inputs, targets, weights): put several inputs into "
            "a tuple or mapping"
        )
    inputs, targets = as_tensors(batch[0], dtype), as_tensors(batch[1], dtype)
    if len(batch) == 2:
        return inputs, targets, None
    weights = as_tensors(batch[2], dtype)
    # Real numbers, so that labels behind two inputs are not taken for weights.
    if not isinstance(weights, Tensor) or not weights.is_floating_point():
        kind = weights.dtype if isinstance(weights, Tensor) else type(batch[2]).__name__
        raise DataError(
            f"a batch of 3 parts must be (inputs, targets, weights) with weights in real numbers, here {kind}: put "
            "several inputs into a tuple or mapping"
        )
    return inputs, targets, as_weights(weights, len(targets), dtype)


def require_equal_length(inputs: Any, examples: int) -> None:
    """One input for each target."""
    for _, part in leaves(inputs, deep=False):
        if len(part) != examples:
            raise DataError(f"{len(part)} inputs but {examples} targets; there must be one target for each input")


def first_examples(inputs: Inputs, count: int) -> Inputs:
    """The first ``count`` examples."""
    return taken(inputs, slice(count))


def part_of(inputs: Inputs, targets: Tensor, start: int, stop: int) -> tuple[Inputs, Tensor]:
    """The examples from ``start`` up to ``stop`` of a batch."""
    if start == 0 and stop == len(targets):
        return inputs, targets
    return taken(inputs, slice(start, stop)), targets[start:stop]


def dtype_of(net: nn.Module) -> torch.dtype | None:
    """The dtype of the network's real parameters, if it has any."""
    return next((p.dtype for p in net.parameters() if p.is_floating_point()), None)
