"""What metrics ask of real numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import DataError


def require_tensor(name: str, given: Any) -> Tensor:
    """The tensor without its history; anything else is refused."""
    if not isinstance(given, Tensor):
        raise DataError(f"{name}: a {type(given).__name__}; it must be a tensor")
    if given.is_complex():
        raise DataError(f"{name}: {given.dtype}; it must hold real numbers")
    return given.detach()


def require_numbers(name: str, given: Any) -> Tensor:
    """(S, ...), S at least 1, as float64 on the CPU (float64 is not to be had everywhere); all finite."""
    values = require_tensor(name, given).cpu().double()
    if values.dim() == 0 or values.numel() == 0:
        raise DataError(f"{name}: shape {tuple(values.shape)} holds no examples; it must be (S, ...), S at least 1")
    if not bool(torch.isfinite(values).all()):
        raise DataError(f"{name}: NaN or infinity; every number must be finite")
    return values


def require_same_shape(name: str, values: Tensor, other: str, reference: Tensor) -> None:
    """Refuse two shapes: broadcasting would answer another question in silence."""
    if values.shape != reference.shape:
        raise DataError(f"{name}: shape {tuple(values.shape)}; the {other} have shape {tuple(reference.shape)}")
