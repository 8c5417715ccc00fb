"""A table whose columns have names: from a data frame, or from the cells of a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from ..errors import DataError, nearest
from .arrays import Array, is_frame, series_cells, words

MOST_NAMED = 20
"""So many names a message lists; of more it says how many there are."""


@dataclass(frozen=True, eq=False)
class Table:
    """Columns by name, as ``series_cells`` gives them, and what the rows are called in messages.

    ``owner`` is a file or "the table"; ``without`` says how a column is left out there.
    """

    columns: Mapping[str, Array]
    rows: Sequence[Any]
    owner: str = "the table"
    without: str = "leave it out"

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns, in order."""
        return tuple(self.columns)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, chosen: Tensor | slice) -> Table:
        """Some of the rows."""
        places = np.arange(len(self))[chosen if isinstance(chosen, slice) else chosen.cpu().numpy()]
        taken = {name: cells[places] for name, cells in self.columns.items()}
        return Table(taken, [self.rows[place] for place in places], self.owner, self.without)

    def joined(self, other: Table) -> Table:
        """These rows, then those of another table with the same columns."""
        both = {name: np.concatenate([cells, other.column(name)]) for name, cells in self.columns.items()}
        return Table(both, [*self.rows, *other.rows], self.owner, self.without)

    def column(self, name: str) -> Array:
        """The cells of a column; refused by name if there is none."""
        if name not in self.columns:
            raise DataError(f"{self.owner}: there is no column '{name}'; {near(name, self.names)}")
        return self.columns[name]

    def place(self, name: str, row: int | None = None) -> str:
        """Where something is, for a message."""
        return words(self.owner, name, self.rows)(row)


def table_of(value: Any, wanted: Iterable[str] | None = None, owner: str = "the table") -> Table:
    """The table of a data frame, or of a mapping of columns; ``wanted`` names the columns to read (None: all)."""
    if isinstance(value, Table):
        return value
    keys = list(value.columns) if is_frame(value) else list(value)
    by_name: dict[str, Any] = {}
    for key in keys:
        if str(key) in by_name:
            raise DataError(f"{owner}: two columns have the name '{key}'")
        by_name[str(key)] = key
    if not by_name:
        raise DataError(f"{owner}: it has no column")
    names = list(by_name) if wanted is None else list(wanted)
    for name in names:
        if name not in by_name:
            raise DataError(f"{owner}: there is no column '{name}'; {near(name, by_name)}")
    series = {name: value[by_name[name]] for name in names}
    if not is_frame(value):
        series = {name: _Listed(cells) if isinstance(cells, list | tuple) else cells for name, cells in series.items()}
    lengths = {name: len(one) for name, one in series.items()}
    count = len(value) if is_frame(value) else max(lengths.values(), default=0)
    for name, length in lengths.items():
        if length != count:
            raise DataError(f"{owner}: column '{name}' has {length} cells, another one {count}")
    if count == 0:
        raise DataError(f"{owner}: it has no row")
    rows = _rows(value, count)
    cells = {name: series_cells(one, words(owner, name, rows)) for name, one in series.items()}
    return Table(cells, rows, owner)


class _Listed:
    """A list as a series."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = np.empty(len(values), dtype=object)
        self.values[:] = list(values)

    def __len__(self) -> int:
        return len(self.values)

    def to_numpy(self) -> Array:
        return self.values


def _rows(frame: Any, count: int) -> Sequence[Any]:
    """The labels of a frame that has some, else 0, 1, ..."""
    index = getattr(frame, "index", None)
    if index is None or callable(index) or isinstance(frame, Mapping):
        return range(count)
    labels = list(index)
    return labels if len(labels) == count else range(count)


def near(name: str, names: Iterable[str]) -> str:
    """The end of an error line on a column: the nearest one, and all others if they are few."""
    known = list(names)
    return nearest(name, known) if len(known) <= MOST_NAMED else _nearest_of_many(name, known)


def _nearest_of_many(name: str, names: Sequence[str]) -> str:
    same = [other for other in names if other.casefold().strip() == name.casefold().strip()]
    hint = f"did you mean '{same[0]}'? " if same else ""
    return f"{hint}there are {len(names):,}: {', '.join(names[:MOST_NAMED])}, ..."
