"""Targets: classes by name, or real numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError
from .arrays import Array, as_array, as_text, is_frame, is_series, numbers_of, series_cells, text_cells, words
from .numbers import require_usable
from .table import near, table_of

OWNER = "targets"
BOOLEANS = ("False", "True")


def target_cells(given: Any) -> Tensor | Array:
    """A tensor as it is; all else as an array: (n,) of texts or whole numbers, (n,) or (n, outputs) of numbers.

    Texts are objects. A missing target is refused: no row can be learned from without it.
    """
    if isinstance(given, Tensor):
        return given
    if is_frame(given):
        table = table_of(given, owner=OWNER)
        if len(table.names) == 1:
            return _present(table.column(table.names[0]), table.rows)
        columns = [
            _present(numbers_of(cells, words(OWNER, name, table.rows)), table.rows)
            for name, cells in table.columns.items()
        ]
        return np.stack(columns, axis=1)
    if is_series(given):
        rows = list(index) if (index := getattr(given, "index", None)) is not None and not callable(index) else None
        return _present(series_cells(given, words(OWNER, "", rows)), rows)
    if isinstance(given, list | tuple):
        given = _from_list(given)
    found = as_array(given, OWNER)
    if isinstance(found, np.ndarray) and found.dtype.kind in "UST":
        return _present(text_cells(found.reshape(-1).tolist()), None)
    if isinstance(found, np.ndarray) and found.dtype.kind == "O":
        holder = _Objects(found.reshape(-1) if found.ndim == 2 and found.shape[1] == 1 else found)
        return _present(series_cells(holder, words(OWNER)), None)
    return found  # type: ignore[no-any-return]


def is_named(cells: Tensor | Array) -> bool:
    """Whether targets are texts or True and False: classes that have names."""
    if isinstance(cells, Tensor):
        return cells.dtype == torch.bool and cells.dim() == 1
    return isinstance(cells, np.ndarray) and cells.ndim == 1 and cells.dtype.kind in "Ob"


def names_of(cells: Tensor | Array) -> tuple[str, ...]:
    """The names of the classes, in sorted order: texts as texts, whole numbers by size."""
    if cells.dtype in (torch.bool, np.dtype(bool)):
        return BOOLEANS
    listed = set(cells.tolist())
    if any(isinstance(value, str) for value in listed):
        return tuple(sorted(map(as_text, listed)))
    return tuple(as_text(value) for value in sorted(listed))


def numbers_of_classes(cells: Tensor | Array, names: Sequence[str]) -> Tensor:
    """(n,) int64: the place of each target among the names."""
    places = {name: place for place, name in enumerate(names)}
    if tuple(names) == BOOLEANS:
        places |= {"0": 0, "1": 1}
    found = []
    for row, value in enumerate(cells.reshape(-1).tolist()):
        name = as_text(value)
        if name not in places:
            raise DataError(f"{OWNER}: row {row}: the class '{name:.40}' is unknown; {near(name, names)}")
        found.append(places[name])
    return torch.tensor(found, dtype=torch.int64)


def require_finite(targets: Tensor) -> None:
    """Refuse real targets that are infinite, NaN or beyond float32, by row (and output)."""
    columns = targets.double().reshape(len(targets), -1)
    for output, values in enumerate(columns.T):
        missing = values.isnan()
        name = "" if columns.shape[1] == 1 else str(output)
        where = words(OWNER, name)
        if bool(missing.any()):
            raise DataError(f"{where(int(missing.nonzero()[0]))}: the target is missing; leave the row out")
        require_usable(values.cpu().numpy(), where)


def _present(cells: Array, rows: Sequence[Any] | None) -> Array:
    lost = [i for i, cell in enumerate(cells) if cell is None] if cells.dtype.kind == "O" else []
    if cells.dtype.kind == "f":
        lost = np.flatnonzero(np.isnan(cells)).tolist()
    if lost:
        where = words(OWNER, "", rows)(lost[0])
        raise DataError(f"{where}: the target is missing ({len(lost)} in all); leave such rows out")
    return cells


def _from_list(values: Sequence[Any]) -> Array:
    """A list of texts or numbers; ragged ones are refused."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError(f"{OWNER}: a list that is no array ({' '.join(str(error).split())})") from error
    if array.dtype.kind in "UST":  # numpy makes texts of numbers among texts, and of None
        array = np.empty(len(values), dtype=object)
        array[:] = list(values)
    return array


class _Objects:
    """An array of objects as a series."""

    def __init__(self, values: Array) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def to_numpy(self) -> Array:
        return self.values
