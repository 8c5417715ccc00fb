"""How the columns of a table become numbers, learned from the training rows and kept with the model.

- A column of numbers (also bool) stays one: missing cells get the mean of the training rows. If any were missing there,
  a second column says so (1: missing).
- A column of texts becomes one column of 0 and 1 for each category of the training rows, in sorted order. A category
  that they do not have, and a missing cell, is all zeros; with missing cells in the training rows there is a column for
  them too.

Columns of a new table are found by their names: their order does not matter, others are left alone.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import BayeswellWarning, DataError
from .arrays import Array, as_text, numbers_of
from .numbers import require_usable, warn_of_outliers
from .table import Table

MOST_CATEGORIES = 100
_FEWEST_IDS, _ID_SHARE = 20, 0.9
_MOST_NAMED = 3

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers: ``mean`` fills missing cells, ``missing`` says whether there is a column that tells them."""

    name: str
    mean: float
    missing: bool

    @classmethod
    def learn(cls, name: str, table: Table) -> NumberColumn:
        values = _numbers(name, table)
        present = values[~np.isnan(values)]
        if not len(present):
            raise DataError(f"{table.place(name)}: every cell is missing; leave the column out")
        warn_of_outliers(values, lambda row: table.place(name, row), stacklevel=6)
        # By parts: the sum of many large numbers may be infinite though their mean is not.
        return cls(name, math.fsum((present / len(present)).tolist()), len(present) < len(values))

    @property
    def features(self) -> list[str]:
        return [self.name, f"{self.name} is missing"] if self.missing else [self.name]

    @property
    def made(self) -> list[bool]:
        """For each feature whether its 0 and 1 are ours: those are never scaled."""
        return [False, True] if self.missing else [False]

    def matrix(self, table: Table, said: list[str]) -> Floats:
        """(rows, features); ``said`` gets what the user should know."""
        values = _numbers(self.name, table)
        missing = np.isnan(values)
        if not self.missing and missing.any():
            said.append(
                f"column '{self.name}': {int(missing.sum())} missing cells, filled with the mean {self.mean:.4g}"
            )
        filled = np.where(missing, self.mean, values)
        return np.stack([filled, missing.astype(np.float64)], axis=1) if self.missing else filled[:, None]

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "kind": "number", "mean": self.mean, "missing": self.missing}


@dataclass(frozen=True)
class TextColumn:
    """A column of categories, in sorted order; ``missing`` says whether there is a column that tells missing cells."""

    name: str
    categories: tuple[str, ...]
    missing: bool

    @classmethod
    def learn(cls, name: str, table: Table) -> TextColumn:
        cells = _texts(table.column(name))
        present = [cell for cell in cells if cell is not None]
        categories = sorted(set(present))
        if not categories:
            raise DataError(f"{table.place(name)}: every cell is missing; leave the column out")
        many = len(categories)
        ids = len(present) >= _FEWEST_IDS and many > _ID_SHARE * len(present)
        if many > MOST_CATEGORIES or ids:
            why = "it looks like an id" if ids else f"at most {MOST_CATEGORIES} become columns of their own"
            raise DataError(
                f"{table.place(name)}: {many:,} different texts ('{categories[0]:.20}', '{categories[1]:.20}', ...) in "
                f"{len(cells):,} rows; {why}: {table.without}, or join rare texts into one"
            )
        return cls(name, tuple(categories), len(present) < len(cells))

    @property
    def features(self) -> list[str]:
        named = [f"{self.name} = {category}" for category in self.categories]
        return [*named, f"{self.name} is missing"] if self.missing else named

    @property
    def made(self) -> list[bool]:
        """All of them are ours."""
        return [True] * len(self.features)

    def matrix(self, table: Table, said: list[str]) -> Floats:
        """(rows, features); ``said`` gets what the user should know."""
        cells = _texts(table.column(self.name))
        places = {category: place for place, category in enumerate(self.categories)}
        values = np.zeros((len(cells), len(self.features)))
        unknown: Counter[str] = Counter()
        missing = 0
        for row, cell in enumerate(cells):
            if cell is None:
                missing += 1
                values[row, len(self.categories) :] = 1.0
            elif cell in places:
                values[row, places[cell]] = 1.0
            else:
                unknown[cell] += 1
        if unknown:
            named = ", ".join(f"'{text:.40}' ({count} rows)" for text, count in unknown.most_common(_MOST_NAMED))
            more = f" and {len(unknown) - _MOST_NAMED} more" if len(unknown) > _MOST_NAMED else ""
            said.append(f"column '{self.name}': {named}{more} not among the categories of the training rows, all zeros")
        if missing and not self.missing:
            said.append(f"column '{self.name}': {missing} missing cells, all zeros")
        return values

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "kind": "text", "categories": list(self.categories), "missing": self.missing}


@dataclass(frozen=True)
class Columns:
    """The columns of a table, in the order of the training rows' table."""

    parts: tuple[NumberColumn | TextColumn, ...]

    @classmethod
    def learn(cls, table: Table) -> Columns:
        """From the training rows, and no others."""
        return cls(
            tuple(
                TextColumn.learn(name, table) if cells.dtype.kind == "O" and _has_text(cells) else
                NumberColumn.learn(name, table) for name, cells in table.columns.items()
            )
        )  # fmt: skip

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns of a table."""
        return tuple(part.name for part in self.parts)

    @property
    def features(self) -> tuple[str, ...]:
        """Of the numbers that a network is given."""
        return tuple(feature for part in self.parts for feature in part.features)

    @property
    def made(self) -> npt.NDArray[np.bool_]:
        """(features,): which of them are 0 and 1 of our own making, and are not scaled."""
        return np.array([made for part in self.parts for made in part.made])

    @property
    def texts(self) -> frozenset[str]:
        """The columns of texts."""
        return frozenset(part.name for part in self.parts if isinstance(part, TextColumn))

    def matrix(self, table: Table) -> Floats:
        """(rows, features) in float64; one warning says what the training rows did not have."""
        said: list[str] = []
        values = np.concatenate([part.matrix(table, said) for part in self.parts], axis=1)
        if said:
            line = f"{table.owner}: unlike the training rows: {'; '.join(said)}"
            warnings.warn(line, BayeswellWarning, stacklevel=4)
        return values

    def as_json(self) -> list[dict[str, Any]]:
        """One record for each column."""
        return [part.as_json() for part in self.parts]

    @classmethod
    def from_json(cls, records: Sequence[Mapping[str, Any]]) -> Columns:
        """What ``as_json`` wrote; ValueError, KeyError or TypeError where it is something else."""
        return cls(tuple(_column(record) for record in records))


def _column(record: Mapping[str, Any]) -> NumberColumn | TextColumn:
    name, missing = str(record["name"]), record["missing"]
    if not isinstance(missing, bool):
        raise ValueError(f"column '{name}': missing = {missing!r}")
    if record["kind"] == "number":
        mean = float(record["mean"])
        if not math.isfinite(mean):
            raise ValueError(f"column '{name}': mean = {mean}")
        return NumberColumn(name, mean, missing)
    categories = tuple(map(str, record["categories"]))
    if (
        record["kind"] != "text"
        or not 0 < len(categories) <= MOST_CATEGORIES
        or list(categories) != sorted(set(categories))
    ):
        raise ValueError(f"column '{name}': neither numbers nor categories in order")
    return TextColumn(name, categories, missing)


def _has_text(cells: Array) -> bool:
    return any(cell is not None for cell in cells)


def _numbers(name: str, table: Table) -> Floats:
    values = numbers_of(table.column(name), lambda row: table.place(name, row))
    require_usable(values, lambda row: table.place(name, row))
    return values


def _texts(cells: Array) -> list[str | None]:
    if cells.dtype.kind == "O":
        return list(cells)
    return [None if value != value else as_text(value) for value in cells.tolist()]
