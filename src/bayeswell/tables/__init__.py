"""Data frames and arrays to tensors and back."""

from __future__ import annotations

from .columns import Column
from .preparation import CLASSES, REAL, Preparation, Scaling
from .tensors import as_tensor, as_tensors, as_weights, check_index, is_frame, is_series, scale_warning

__all__ = [
    "CLASSES",
    "REAL",
    "Column",
    "Preparation",
    "Scaling",
    "as_tensor",
    "as_tensors",
    "as_weights",
    "check_index",
    "is_frame",
    "is_series",
    "scale_warning",
]
