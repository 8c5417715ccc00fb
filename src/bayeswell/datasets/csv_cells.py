"""The cells of a csv file as columns: numbers where every cell is one, texts otherwise, missing ones as such."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from ..errors import DataError, FileError
from ..tables import Table
from ..tables.arrays import words
from ..tables.numbers import LARGEST
from ..tables.table import near
from .files import read_bytes
from .formats import Array, is_number

MISSING = frozenset({"", "?", "na", "n/a", "#n/a", "<na>", "nan", "-nan", "null", "none"})
"""What stands in a cell that is missing, in small or capital letters: as spreadsheets and pandas write it."""

Rows = Sequence[tuple[int, list[str]]]
"""The number of its line, and the cells of each row."""


def column_place(column: str, names: Mapping[str, int] | Sequence[str], path: str) -> int:
    """Where a column stands; refused if it does not. Of many columns give a mapping: a list is searched through."""
    if column not in names:
        raise DataError(f"{path}: there is no column '{column}'; {near(column, names)}")
    return names[column] if isinstance(names, Mapping) else names.index(column)


def read_table(path: str, *, header: bool, delimiter: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The names of the columns, and every row with the number of its line."""
    try:
        text = read_bytes(Path(path)).decode("utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        rows = [(reader.line_num, row) for row in reader if row]
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: not a text in UTF-8 (byte {error.start})") from error
    except csv.Error as error:
        raise FileError(f"{path}: not a csv file ({error})") from error
    if not rows:
        raise DataError(f"{path}: it is empty")
    if header:
        names = [name.strip() for name in rows.pop(0)[1]]
        if all(is_number(name) for name in names):
            raise DataError(f"{path}: row 1 holds numbers, not the names of columns; say header = false if it is data")
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise DataError(f"{path}: two columns have the name '{twice}'")
    else:
        names = [str(number) for number in range(1, len(rows[0][1]) + 1)]
    if not rows:
        raise DataError(f"{path}: it has no row of data")
    for line, row in rows:
        if len(row) != len(names):
            raise DataError(f"{path}: row {line} has {len(row)} columns; it must have {len(names)}")
    return names, rows


def cells_of(path: str, rows: Rows, places: Mapping[str, int], texts: Collection[str]) -> Table:
    """The table of some columns; those in ``texts`` are texts, others are if none of their cells is a number.

    Numbers with texts among them are refused: far more likely a slip than a column of names.
    """
    lines = [line for line, _ in rows]
    columns = {}
    for name, place in places.items():
        cells = [row[place].strip() for _, row in rows]
        columns[name] = _column(cells, name in texts, words(path, name, lines))
    return Table(columns, lines, path, "leave it out (id, or columns, says which)")


def _column(cells: list[str], text: bool, place: Callable[[int], str]) -> Array:
    missing = [cell.lower() in MISSING for cell in cells]
    numbers = [math.nan if lost or text else _number(cell) for cell, lost in zip(cells, missing, strict=True)]
    if not text and all(number is not None for number in numbers):
        values = np.array(numbers, np.float64)
        wrong = np.flatnonzero(np.isinf(values))
        if len(wrong):
            row = int(wrong[0])
            raise DataError(f"{place(row)}: '{cells[row][:40]}' is not a finite number")
        return values
    if not text and any(number is not None and not lost for number, lost in zip(numbers, missing, strict=True)):
        row = next(row for row, number in enumerate(numbers) if number is None)
        raise DataError(
            f"{place(row)}: '{cells[row][:40]}' is not a finite number, others are; mend it, leave it empty if it is "
            "missing, or name the column in categories if its numbers are names"
        )
    texts = np.empty(len(cells), dtype=object)
    texts[:] = [None if lost else cell for cell, lost in zip(cells, missing, strict=True)]
    return texts


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def target_texts(path: str, rows: Rows, target: str, place: int) -> Array:
    """The cells of the target column as texts; a missing or infinite one is refused, by its row."""
    targets = []
    for line, row in rows:
        cell, where = row[place].strip(), f"{path}: row {line}, column '{target}'"
        if not cell or cell.lower() == "nan":
            raise DataError(f"{where}: the target is missing")
        number = _number(cell)
        if number is not None and math.isinf(number):
            raise DataError(f"{where}: the target '{cell}' is not finite")
        if number is not None and abs(number) > LARGEST:
            raise DataError(f"{where}: the target '{cell}' is beyond {LARGEST:g}, too large to compute with")
        targets.append(cell)
    return np.array(targets)
