"""Training rows in a canonical form.

scikit-learn promises that a row of weight 2 is the row twice, and that a row of weight 0 is left out. Batches of a
seeded order fulfil this only if both forms become the same rows in the same order. So whole weights are written out as
repeated rows, and rows are sorted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

from ..core.errors import DataError

Array = NDArray[Any]

MOST_REPEATED = 1_000_000
"""Whole weights with a larger sum stay weights, unless there are as many rows."""


class Rows(NamedTuple):
    """Inputs (S, ...) as an array or a data frame, targets (S,) or (S, C), weights (S,) or None."""

    inputs: Any
    targets: Array
    weights: Array | None = None

    def taken(self, places: Array) -> Rows:
        weights = None if self.weights is None else self.weights[places]
        return Rows(_safe_indexing(self.inputs, places), self.targets[places], weights)


def chosen_rows(weights: Array | None, count: int) -> tuple[Array, Array | None]:
    """Return the places of the rows to train on, and their weights if they are not all 1."""
    if weights is None:
        return np.arange(count), None
    if not (weights > 0).any():
        raise DataError("sample_weight: the weights of all examples are zero; there is nothing to learn from")
    if np.array_equal(weights, np.round(weights)) and weights.sum() <= max(MOST_REPEATED, count):
        return np.repeat(np.arange(count), weights.astype(np.int64)), None
    places = np.flatnonzero(weights)
    return places, weights[places]


def canonical_order(rows: Rows) -> Array:
    """Return an order of the rows that depends on their values alone: by the bytes of their numbers."""
    numbers = np.column_stack([part for part in rows if part is not None]).astype(np.float64) + 0.0  # -0.0 becomes 0.0
    as_bytes = np.ascontiguousarray(numbers).view(np.dtype((np.void, numbers.shape[1] * 8))).ravel()
    return np.argsort(as_bytes, kind="stable")
