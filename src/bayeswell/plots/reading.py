"""Records as they come from a file or from the room that made them, read with one clear line for what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError

Numbers = NDArray[np.float64]


class Fields:
    """The fields of one record, a mapping or an object with attributes; ``owner`` is the plot that reads it."""

    def __init__(self, owner: str, record: Any, needs: Sequence[str], *, of: str = "the record") -> None:
        self.owner, self.record, self.needs, self.of = owner, record, tuple(needs), of
        if not isinstance(record, Mapping) and not all(hasattr(record, name) for name in needs):
            wanted = ", ".join(needs)
            raise DataError(f"{owner}: {of} is {_shown(record)}; it must be a mapping with {wanted}")
        for name in needs:
            self.get(name)

    def has(self, name: str) -> bool:
        """Whether a field is there and not None."""
        return self._find(name) is not None

    def get(self, name: str) -> Any:
        """A field as it is; missing is an error."""
        found = self._find(name)
        if found is None:
            there = ", ".join(map(str, self.record)) if isinstance(self.record, Mapping) else "other fields"
            needs = ", ".join(self.needs) or name
            raise DataError(f"{self.owner}: {self.of} has no '{name}'; it needs {needs}, and has {there or 'nothing'}")
        return found

    def numbers(self, name: str, *, like: str | None = None) -> Numbers:
        """(n,): missing numbers are NaN; as many as another field has."""
        found = as_numbers(self.owner, name, self.get(name), 1)
        if like is not None:
            self._require_shape(name, found, (len(self.numbers(like)),), f"as many as '{like}'")
        return found

    def increasing(self, name: str) -> Numbers:
        """(n,): places along an axis."""
        found = self.numbers(name)
        if not np.isfinite(found).all() or (np.diff(found) <= 0).any():
            raise DataError(f"{self.owner}: '{name}' must be finite numbers, each larger than the one before")
        return found

    def matrix(self, name: str, shape: tuple[int, int] | None = None) -> Numbers:
        """(n, m): missing numbers are NaN."""
        found = as_numbers(self.owner, name, self.get(name), 2)
        if shape is not None:
            self._require_shape(name, found, shape, f"{shape[0]} lists of {shape[1]}")
        return found

    def number(self, name: str) -> float | None:
        """One number; None if it is missing or not finite."""
        found = self._find(name)
        if found is None:
            return None
        value = float(as_numbers(self.owner, name, found, 0))
        return value if np.isfinite(value) else None

    def text(self, name: str, default: str) -> str:
        """Any value as a text."""
        return str(self._find(name)) if self.has(name) else default

    def parts(self, name: str) -> list[Any]:
        """A list of further records."""
        return as_list(self.owner, f"'{name}'", self.get(name))

    def _find(self, name: str) -> Any:
        if isinstance(self.record, Mapping):
            return self.record.get(name)
        return getattr(self.record, name, None)

    def _require_shape(self, name: str, found: Numbers, shape: tuple[int, ...], wanted: str) -> None:
        if found.shape != shape:
            raise DataError(f"{self.owner}: '{name}' has shape {found.shape}; it must have {wanted} numbers")


def lenient(owner: str, record: Any, needs: Sequence[str], *, of: str) -> Fields:
    """Fields whose names must be there, but not their numbers: those that are not finite stand as None in a file."""
    there = isinstance(record, Mapping) and all(name in record for name in needs)
    return Fields(owner, record, () if there else needs, of=of)


def column(rows: Sequence[Fields], name: str) -> Numbers:
    """(n,): one number of each row; NaN where it is missing."""
    return np.array([np.nan if (value := row.number(name)) is None else value for row in rows])


def as_runs(owner: str, runs: Any) -> list[tuple[str, Any]]:
    """Labels and records, in order."""
    if not isinstance(runs, Mapping):
        raise DataError(f"{owner}: runs is {_shown(runs)}; it must map labels to records, such as {{'bbb': record}}")
    return [(str(label), record) for label, record in runs.items()]


def as_list(owner: str, name: str, value: Any) -> list[Any]:
    """Anything that is a list of records."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise DataError(f"{owner}: {name} is {_shown(value)}; it must be a list of records")
    return list(value)


def as_numbers(owner: str, name: str, value: Any, dimensions: int) -> Numbers:
    """Lists, arrays and tensors as float64; None and infinities become NaN."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    kinds = {0: "a number", 1: "a list of numbers", 2: "a list of lists of numbers, all equally long"}
    wanted = kinds.get(dimensions, f"an array of numbers with {dimensions} dimensions")
    problem = f"{owner}: '{name}' is {_shown(value)}; it must be {wanted}"
    try:
        # First as it comes: a text such as "1" would become a number without a word.
        if np.asarray(value).dtype.kind in "USMmcV" or isinstance(value, Mapping):
            raise DataError(problem)
        found = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise error if isinstance(error, DataError) else DataError(problem) from None
    if found.size == 0 and found.ndim < dimensions:
        found = found.reshape((0,) * dimensions)
    if found.ndim != dimensions:
        raise DataError(problem)
    return np.where(np.isfinite(found), found, np.nan)


def finite(values: Numbers) -> Numbers:
    """The numbers that are there, flat."""
    return values[np.isfinite(values)]


def number_text(value: float | None) -> str:
    """A number for a reader: three or four digits."""
    if value is None or not np.isfinite(value):
        return "unknown"
    return f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


def listed(parts: Sequence[str], most: int = 8) -> str:
    """The first few of a list of clauses, and how many more there are."""
    shown = "; ".join(parts[:most])
    return f"{shown}; and {len(parts) - most} more" if len(parts) > most else shown


def _shown(value: Any) -> str:
    if isinstance(value, str | int | float | bool) or value is None:
        text = repr(value)
        return text if len(text) <= 40 else f"{text[:37]}..."
    shape = getattr(value, "shape", None)
    kind = type(value).__name__
    article = "an" if kind[:1].lower() in "aeiou" else "a"
    return f"{article} {kind}" + (f" of shape {tuple(shape)}" if shape is not None else "")
