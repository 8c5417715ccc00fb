"""The training set as a measure: how often each (x, y) counts, whatever the order of rows or how weights are written.

scikit-learn promises that a row of weight 2 is the row met twice, and one of weight 0 the row left out. For a network
that is trained in batches by a random order this holds to the last bit only if both spellings become the same rows in
the same order. So rows that are equal are merged, their weights added up, and sorted. Where
all weights are whole numbers the rows are then repeated, as if there had never been weights, and every method can be
trained on them; other weights stay with their rows (sum_n w_n nll_n + KL, see ``docs/conventions.md``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError

Array = NDArray[Any]

MOST_REPEATED = 1_000_000
"""Whole weights that add up to more than this (and more than the rows given) are not written out."""


@dataclass(frozen=True)
class Rows:
    """Inputs (S, F), targets (S,) or (S, C), and how often each row counts (S,); None: once."""

    inputs: Array
    targets: Array
    weights: Array | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def taken(self, rows: Array) -> Rows:
        """Some of the rows."""
        return Rows(self.inputs[rows], self.targets[rows], None if self.weights is None else self.weights[rows])


def counted(weights: Array | None, rows: int) -> Array:
    """Which rows count at all; none is an error."""
    if weights is None:
        return np.ones(rows, dtype=bool)
    found: Array = weights > 0
    if not found.any():
        raise DataError("sample_weight: the weights of all examples are zero; there is nothing to learn from")
    return found


def merged(rows: Rows) -> Rows:
    """Equal rows as one, with the sum of their weights, in an order that depends on their values alone."""
    _, first, place = np.unique(_sortable(rows), return_index=True, return_inverse=True)
    return replace(rows.taken(first), weights=np.bincount(place.ravel(), rows.weights, len(first)))


def _sortable(rows: Rows) -> Array:
    """(S,): a string of bytes for each row; they sort as the rows do, column after column, in one comparison a row."""
    numbers = np.column_stack([rows.inputs, rows.targets]).astype(np.float64) + 0.0  # -0.0 is 0.0, its bytes are not
    bits = numbers.view(np.uint64)
    # IEEE 754: turning round the sign bit of positive numbers, and all bits of negative ones, puts bits in their order.
    flipped = bits ^ np.where(numbers < 0, np.uint64(2**64 - 1), np.uint64(2**63))
    return np.ascontiguousarray(flipped.astype(">u8")).view(np.dtype((np.void, 8 * numbers.shape[1]))).ravel()


def repetitions(weights: Array | None, given: int) -> Array | None:
    """(sum of weights,): the place of each row, as often as its weight says, up to a limit that is not below ``given``.

    None where that cannot be: weights that are not whole numbers, or too many.
    """
    if weights is None:
        return np.arange(given)
    if not np.array_equal(weights, np.round(weights)) or weights.sum() > max(MOST_REPEATED, given):
        return None
    return np.repeat(np.arange(len(weights)), weights.astype(np.int64))


def written_out(rows: Rows, given: int) -> Rows:
    """Whole weights as repeated rows; all others stay."""
    places = repetitions(rows.weights, given)
    return rows if places is None else replace(rows, weights=None).taken(places)
