"""Targets against outputs: shapes that must agree, and the lines that say where they do not."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import DataError
from ..outputs import REMEDY


def at_least_float32(outputs: Tensor) -> Tensor:
    """16-bit outputs in float32: exponentials and sums of a likelihood overflow or round off in 16 bits."""
    return outputs.float() if outputs.dtype in (torch.float16, torch.bfloat16) else outputs


def sum_per_example(values: Tensor) -> Tensor:
    """(S, ...) -> (S,)."""
    return values.flatten(1).sum(1) if values.dim() > 1 else values


def match_shape(owner: str, targets: Tensor, shape: Sequence[int]) -> Tensor:
    """Targets in the given shape; they may lack, or have too much, one last axis of size 1.

    Without this, (S,) targets and (S, 1) outputs would broadcast to (S, S) and train on nonsense.
    """
    wanted, given = tuple(shape), tuple(targets.shape)
    if given == wanted:
        return targets
    if (*given, 1) == wanted or given == (*wanted, 1):
        return targets.reshape(wanted)
    raise DataError(f"{owner}: targets have shape {given}; the network's outputs ask for {wanted}")


def require_targets(owner: str, targets: Tensor, outputs: Tensor) -> None:
    """Refuse what is no tensor, or has no examples."""
    for what, value in (("targets", targets), ("outputs", outputs)):
        if not isinstance(value, Tensor):
            remedy = f": {REMEDY}" if what == "outputs" else ""
            raise DataError(f"{owner}: {what} are a {type(value).__name__}; they must be a tensor{remedy}")
        if value.dim() == 0 or value.shape[0] == 0:
            raise DataError(f"{owner}: {what} of shape {tuple(value.shape)} hold no examples")


def require_finite_targets(owner: str, targets: Tensor, dtype: torch.dtype) -> None:
    """Refuse NaN, infinity, and numbers that are infinite in the dtype of the outputs."""
    wrong = ~torch.isfinite(targets.to(dtype))
    if bool(wrong.any()):
        raise DataError(
            f"{owner}: target {targets[wrong][0].item():g} at index {first_index(wrong)}; "
            f"targets must be finite (as {dtype})"
        )


def first_index(wrong: Tensor) -> str:
    """Where the first True lies: '3' or '(3, 1)'."""
    index = wrong.nonzero()[0].tolist()
    return str(index[0]) if len(index) == 1 else str(tuple(index))
