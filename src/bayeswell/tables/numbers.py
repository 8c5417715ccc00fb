"""Numbers that cannot be computed with, or that swallow the scale of a column, found before any training."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..errors import BayeswellWarning, DataError

LARGEST = 1e38
"""Beyond it a number is infinite in float32, in which networks compute (3.4e38 is the end)."""

TIMES_THE_SPREAD = 1e6
_SHARE = 0.01
_MOST_NAMED = 3

Floats = npt.NDArray[np.float64]
Place = Callable[[int], str]
"""From the number of a row to where that is, for a message."""


def require_usable(values: Floats, place: Place) -> None:
    """Refuse infinite numbers and those beyond float32; NaN (a missing cell) passes."""
    wrong = np.flatnonzero(np.abs(values) > LARGEST)
    if len(wrong):
        row = int(wrong[0])
        number = f"{values[row]:.4g}"
        why = "is not a finite number" if np.isinf(values[row]) else f"is beyond {LARGEST:g}, too large to compute with"
        raise DataError(f"{place(row)}: {number} {why}; mend it, or leave the cell empty if it is missing")


def outliers(values: Floats) -> list[tuple[int, float]]:
    """Cells that alone make the scale of a column, with how many spreads they lie from the middle of the others.

    The hundredth part of the cells (one at least) that lies furthest from the median is set aside; a cell of it is
    told if it is a million times the std of the others away from their median. Where all others are the same, their
    size (1 at least) stands for the spread: so the only 1 in a column of zeros is not told, 1e30 is.
    """
    present = np.flatnonzero(~np.isnan(values))
    if len(present) < 3:
        return []
    known = values[present]
    away = np.abs(known - np.median(known))
    aside = max(1, int(_SHARE * len(known)))
    order = np.argpartition(away, len(known) - aside)
    rest, far = known[order[: len(known) - aside]], order[len(known) - aside :]
    middle, spread = float(np.median(rest)), float(rest.std())
    if spread <= 1e-12 * abs(middle):  # all the same, up to rounding
        spread = max(abs(middle), 1.0)
    told = [(int(present[i]), float(abs(known[i] - middle) / spread)) for i in far]
    return sorted((one for one in told if one[1] > TIMES_THE_SPREAD), key=lambda one: -one[1])


def warn_of_outliers(values: Floats, place: Place, *, stacklevel: int = 3) -> None:
    """One warning for a column whose scale is that of a few cells."""
    found = outliers(values)
    if not found:
        return
    shown = "; ".join(f"{place(row)}: {values[row]:.4g} ({times:.1g} times)" for row, times in found[:_MOST_NAMED])
    more = f"; and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    warnings.warn(
        f"numbers that lie more than a million times the spread of all others from them: {shown}{more}; scaled by such "
        "a number the others cannot be told apart: mend it, or make it a missing cell",
        BayeswellWarning,
        stacklevel=stacklevel,
    )
