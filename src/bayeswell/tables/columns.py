"""The columns of a table as numbers, learned from the training rows.

A numeric column keeps its numbers, with missing cells filled by the mean of the training rows. A column of texts
becomes one column of 0 and 1 for each category. Where cells were missing in training, one more column says so. Columns
of a new table are found by name.
"""

from __future__ import annotations

import datetime
import decimal
import math
import numbers
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.errors import DataError, DataWarning, nearest
from .tensors import as_array, is_frame

MOST_CATEGORIES = 100
LARGEST = 1e38
"""Larger numbers overflow in float32."""
_FEWEST_IDS, _ID_SHARE = 20, 0.9
_DATES = (datetime.date, datetime.time, datetime.timedelta)
Cells = npt.NDArray[Any]
"""(rows,): float64 with NaN where missing, or objects: str, None where missing."""


@dataclass(frozen=True)
class Column:
    """One column of the training table; ``missing`` says whether cells were missing there.

    The mean of a numeric column fills missing cells; a column of texts has sorted ``categories``.
    """

    name: str
    missing: bool
    mean: float = 0.0
    categories: tuple[str, ...] | None = None

    @classmethod
    def fit(cls, name: str, cells: Cells) -> Column:
        if cells.dtype.kind == "O":
            return cls._fit_texts(name, cells)
        present = cells[~np.isnan(cells)]
        if not len(present):
            raise DataError(f"column '{name}': every cell is missing; drop the column")
        # Divided first: the sum of large numbers may overflow.
        return cls(name, len(present) < len(cells), math.fsum((present / len(present)).tolist()))

    @classmethod
    def _fit_texts(cls, name: str, cells: Cells) -> Column:
        present = [cell for cell in cells if cell is not None]
        categories = sorted(set(present))
        if not categories:
            raise DataError(f"column '{name}': every cell is missing; drop the column")
        is_id = len(present) >= _FEWEST_IDS and len(categories) > _ID_SHARE * len(present)
        if len(categories) > MOST_CATEGORIES or is_id:
            why = "it looks like an id" if is_id else f"at most {MOST_CATEGORIES} are allowed"
            found = f"{len(categories):,} different texts such as '{categories[0]:.30}' in {len(cells):,} rows"
            raise DataError(f"column '{name}': {found}; {why}: drop the column or merge rare texts")
        return cls(name, len(present) < len(cells), categories=tuple(categories))

    @property
    def features(self) -> list[str]:
        """Names of the numbers that the network gets."""
        own = [self.name] if self.categories is None else [f"{self.name} = {text}" for text in self.categories]
        return [*own, f"{self.name} is missing"] if self.missing else own

    @property
    def is_scaled(self) -> list[bool]:
        """Return which features may be scaled: 0 and 1 that stand for texts and missing cells are not."""
        return [self.categories is None and feature == self.name for feature in self.features]

    def matrix(self, cells: Cells, notes: list[str]) -> npt.NDArray[np.float64]:
        """Return (rows, features); what the training rows did not have is added to ``notes``."""
        if self.categories is None:
            if cells.dtype.kind == "O" and any(cell is not None for cell in cells):
                text = next(cell for cell in cells if cell is not None)
                raise DataError(f"column '{self.name}': '{text:.40}' is a text, but the model was trained on numbers")
            values = cells.astype(np.float64)
            missing = np.isnan(values)
            own = np.where(missing, self.mean, values)[:, None]
        else:
            texts = [None if cell is None or cell != cell else as_text(cell) for cell in cells.tolist()]
            missing = np.array([text is None for text in texts], dtype=bool)
            own = np.array([[text == category for category in self.categories] for text in texts], np.float64)
            unknown = sorted({text for text in texts if text is not None} - set(self.categories))
            if unknown:
                notes.append(f"'{self.name}' has unknown categories {unknown[:3]}, encoded as zeros")
        if missing.any() and not self.missing:
            filled = f"the mean {self.mean:.4g}" if self.categories is None else "zeros"
            notes.append(f"'{self.name}' has {int(missing.sum())} missing cells, filled with {filled}")
        return np.concatenate([own, missing[:, None]], axis=1) if self.missing else own


def fit_columns(table: Any) -> tuple[Column, ...]:
    """Learn every column of a data frame."""
    cells = read_table(table)
    return tuple(Column.fit(name, column) for name, column in cells.items())


def table_matrix(columns: Sequence[Column], table: Any) -> npt.NDArray[np.float64]:
    """Return (rows, features) of a data frame, a mapping of columns, or a numeric (rows, columns) array."""
    names = [column.name for column in columns]
    cells = read_table(table, names)
    notes: list[str] = []
    values = np.concatenate([column.matrix(cells[column.name], notes) for column in columns], axis=1)
    if notes:
        warnings.warn(f"unlike the training rows: {'; '.join(notes)}", DataWarning, stacklevel=3)
    return values


def read_table(table: Any, names: Sequence[str] | None = None) -> dict[str, Cells]:
    """Return the cells of the named columns (None: of all)."""
    if not is_frame(table) and not isinstance(table, Mapping):
        return _split_array(table, names or ())
    found: dict[str, Any] = {}
    for key in table.columns if is_frame(table) else table:
        if str(key) in found:
            raise DataError(f"two columns have the name '{key}'")
        found[str(key)] = table[key]
    if not found:
        raise DataError("the table has no columns")
    for name in names or ():
        if name not in found:
            raise DataError(f"the table has no column '{name}'; {nearest(name, found)}")
    cells = {name: read_cells(found[name], f"column '{name}'") for name in (names or found)}
    lengths = {len(column) for column in cells.values()}
    if len(lengths) > 1 or lengths == {0}:
        raise DataError(f"the columns of a table must have one length above 0, got {sorted(lengths)}")
    return cells


def _split_array(value: Any, names: Sequence[str]) -> dict[str, Cells]:
    array = np.asarray(as_array(value))
    if array.ndim != 2 or array.shape[1] != len(names) or array.dtype.kind not in "biuf":
        found = f"inputs of type {type(value).__name__}, shape {array.shape}"
        raise DataError(f"{found}; the model was trained on a table with the columns {', '.join(names)}")
    return {name: array[:, i].astype(np.float64) for i, name in enumerate(names)}


def read_cells(series: Any, owner: str) -> Cells:
    """Return one column as numbers (float64, NaN where missing) or texts (None where missing)."""
    kind = str(getattr(series, "dtype", ""))
    if kind.startswith(("category", "Categorical", "Enum")):
        return _texts(series.to_list() if hasattr(series, "to_list") else list(series))
    if hasattr(series, "to_numpy"):
        series = series.to_numpy()
    values = series if isinstance(series, np.ndarray) else np.asarray(series, dtype=object)
    if values.ndim != 1:
        raise DataError(f"{owner}: cells of {values.ndim} dimensions; each must be a number or a text")
    if values.dtype.kind in "Mm":
        raise _date_error(owner)
    if values.dtype.kind in "biuf":
        cells = values.astype(np.float64)
    elif values.dtype.kind in "UST":
        return _texts(values.tolist())
    elif values.dtype.kind == "O":
        cells = _object_cells(values.tolist(), owner)
    else:
        raise DataError(f"{owner}: cells of type {values.dtype}; each must be a number or a text")
    if cells.dtype.kind == "f":
        check_range(cells, owner)
    return cells


def check_range(values: npt.NDArray[np.float64], owner: str) -> None:
    """Refuse numbers that overflow in float32; NaN passes."""
    bad = np.flatnonzero(np.abs(values) > LARGEST)
    if len(bad):
        found = f"row {bad[0]} is {values[bad[0]]:.4g}"
        raise DataError(f"{owner}: {found}; numbers must be finite and below {LARGEST:g}, missing cells empty")


def _object_cells(values: list[Any], owner: str) -> Cells:
    present = [value for value in values if not is_missing(value)]
    texts = sum(isinstance(value, str | bytes) for value in present)
    for value in present:
        if isinstance(value, _DATES):
            raise _date_error(owner)
        if not isinstance(value, str | bytes | numbers.Real | decimal.Decimal):
            raise DataError(f"{owner}: a cell of type {type(value).__name__}; each must be a number or a text")
    if texts and texts < len(present):
        rare = texts * 2 <= len(present)
        row = next(i for i, value in enumerate(values) if not is_missing(value) and isinstance(value, str) == rare)
        ways = "make all numbers (missing cells None or NaN) or all texts: astype(str)"
        raise DataError(f"{owner}: row {row} is {values[row]!r:.40}: texts and numbers cannot be mixed; {ways}")
    if texts:
        return _texts(values)
    return np.array([math.nan if is_missing(value) else float(value) for value in values], np.float64)


def _texts(values: Sequence[Any]) -> Cells:
    cells = np.empty(len(values), dtype=object)
    cells[:] = [None if is_missing(value) else (as_text(value) or None) for value in values]
    return cells


def as_text(value: Any) -> str:
    """Return a category as a text; 1 and 1.0 are one category."""
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace").strip()
    if isinstance(value, float | np.floating) and value == round(value):
        return str(int(value))
    return str(value).strip()


def is_missing(value: Any) -> bool:
    """Return whether it is None, NaN, or the NA or NaT of pandas."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating | decimal.Decimal) and bool(value != value)


def _date_error(owner: str) -> DataError:
    return DataError(f"{owner}: dates and times; convert them to numbers (days since a date, hour), or drop the column")
