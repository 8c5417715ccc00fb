"""Is there a NaN or inf, and where?"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from .nested import tensors_in


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether there is no NaN or inf in any of them.

    A sum is finite only if every term is, and takes one pass; finite terms may overflow it, so only where it is not
    finite are the numbers themselves looked at.
    """
    return all(math.isfinite(t.detach().sum().item()) or bool(t.isfinite().all()) for t in tensors)


def first_not_finite(tensor: Tensor) -> tuple[int, ...] | None:
    """The index of the first NaN or inf; None if there is none (whole numbers have none)."""
    if not tensor.is_complex() and (not tensor.is_floating_point() or all_finite([tensor])):
        return None
    wrong = ~tensor.isfinite()
    return tuple(wrong.nonzero()[0].tolist()) if bool(wrong.any()) else None


def any_nan(outputs: Any) -> bool:
    """Whether a tensor among them has a NaN; False where values cannot be looked at (vmap, compilation)."""
    if torch.compiler.is_compiling():
        return False
    real = (tensor for tensor in tensors_in(outputs) if tensor.is_floating_point())
    return any(not torch._C._functorch.is_batchedtensor(tensor) and bool(tensor.isnan().any()) for tensor in real)
