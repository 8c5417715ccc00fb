"""Targets of one's own data: classes with their names, or real numbers."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..errors import DataError
from ..tables.numbers import LARGEST
from .formats import is_number

Floats = npt.NDArray[np.float64]
_MOST_CLASSES_GUESSED = 20
_EXACT = 2**53
"""Whole numbers from here on share a float64 with others: as classes they are compared as they were written."""


def targets_of(
    values: npt.NDArray[Any], task: str, owner: str, *, varied: bool = True
) -> tuple[Tensor, tuple[str, ...] | None]:
    """Classes (int64, with their names in order) or real targets (n, outputs), from numbers or texts.

    ``varied`` refuses targets that are all the same, from which nothing can be learned.
    """
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim not in {1, 2} or not values.size:
        raise DataError(f"{owner}: the targets have shape {values.shape}; they must be (n,) or (n, outputs)")
    if values.dtype.kind == "f" and not bool(np.isfinite(values).all()):
        odd = int(np.argwhere(~np.isfinite(values))[0][0])
        raise DataError(f"{owner}: target {values[odd]} of example {odd + 1} is not finite")
    numbers = _numbers(values)
    whole = numbers is not None and bool((numbers == np.round(numbers)).all())
    if task == "auto":
        few = len(np.unique(values)) <= _MOST_CLASSES_GUESSED
        if numbers is None and not few and any(is_number(str(value)) for value in values.flat):
            # Numbers with a slip among them, far more likely than a class for each number.
            odd = next(i for i, value in enumerate(values.flat) if not is_number(str(value)))
            raise DataError(
                f"{owner}: target '{values.flat[odd]}' of example {odd + 1} is no number, others are; say task"
            )
        task = "classification" if values.ndim == 1 and (numbers is None or (whole and few)) else "regression"
    if task == "regression":
        return _real_targets(values, numbers, owner, varied), None
    if values.ndim != 1:
        raise DataError(f"{owner}: classes must be one column; the targets have shape {values.shape}")
    if numbers is not None and not whole:
        odd = int(np.flatnonzero(numbers != np.round(numbers))[0])
        raise DataError(f"{owner}: target {values[odd]} of example {odd + 1} is no class: give whole numbers or names")
    if numbers is None:
        names, classes = np.unique(values, return_inverse=True)
        shown = tuple(map(str, names))
    else:
        found, classes = np.unique(_exactly(values, numbers), return_inverse=True)
        shown = tuple(f"{number:.0f}" if isinstance(number, float) else str(number) for number in found.tolist())
    if varied and len(shown) < 2:
        raise DataError(f"{owner}: every target is '{shown[0]}'; there must be two classes or more")
    return torch.from_numpy(classes.reshape(-1).astype(np.int64)), shown


def _real_targets(values: npt.NDArray[Any], numbers: Floats | None, owner: str, varied: bool) -> Tensor:
    if numbers is None:
        odd = next(i for i, value in enumerate(values) if not is_number(str(value)))
        raise DataError(f"{owner}: target '{values[odd]}' of example {odd + 1} is not a finite number")
    columns = torch.from_numpy(np.array(numbers, np.float64)).reshape(len(numbers), -1)
    wrong = torch.nonzero(columns.abs() > LARGEST)
    if len(wrong):
        row, output = wrong[0].tolist()
        large = f"target {columns[row, output]:g} of example {row + 1}"
        raise DataError(f"{owner}: {large} is beyond {LARGEST:g}, too large to compute with")
    constant = torch.nonzero(columns.amax(dim=0) == columns.amin(dim=0))
    if varied and len(constant):
        value = float(columns[0, int(constant[0])])
        raise DataError(f"{owner}: every target is {value:g}; there is nothing to learn")
    return columns


def _numbers(values: npt.NDArray[Any]) -> Floats | None:
    """The values as float64 if all of them are finite numbers, else None."""
    try:
        numbers = values.astype(np.float64)
    except ValueError:
        return None
    return numbers if bool(np.isfinite(numbers).all()) else None


def _exactly(values: npt.NDArray[Any], numbers: Floats) -> npt.NDArray[Any]:
    """Whole numbers with all their digits, where float64 would take two of them for one."""
    if not bool((np.abs(numbers) >= _EXACT).any()):
        return numbers
    if values.dtype.kind in "iu":
        return values
    try:
        whole = [int(Decimal(str(value).strip())) for value in values.tolist()]
    except (InvalidOperation, ValueError):  # what only float() reads
        return numbers
    exact = np.empty(len(whole), dtype=object)
    exact[:] = whole
    return exact
