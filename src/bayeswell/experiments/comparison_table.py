"""A comparison as a table: one row a method, plain columns, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import FileError
from .predicting import harmless

Row = dict[str, Any]
_ERRORS = ("over_seeds", "over_folds", "over_examples")


def comparison_rows(record: Mapping[str, Any]) -> list[Row]:
    """The rows of ``comparison.json`` flat: each score, and its standard errors as ``nll_error_over_seeds``, ...

    Every row has the same columns, None where it has nothing to say; errors that no row has are left out.
    """
    rows = []
    for one in record["rows"]:
        row: Row = {"method": one["method"], "runs": one["finished"], "failed": len(one["failed"])}
        for name, score in one["scores"].items():
            row[name] = score["mean"]
            row |= {f"{name}_error_{over}": score.get(f"standard_error_{over}") for over in _ERRORS}
        seconds = record["time"][one["method"]]["train_seconds"]
        row["passes"] = None if one["cost"] is None else one["cost"]["total"]
        row["seconds"] = None if seconds is None else seconds["mean"]
        rows.append(row)
    columns = list(dict.fromkeys(column for row in sorted(rows, key=len, reverse=True) for column in row))
    kept = [column for column in columns if "_error_" not in column or any(row.get(column) is not None for row in rows)]
    return [{column: row.get(column) for column in kept} for row in rows]


def write_table(path: str | os.PathLike[str], rows: Sequence[Row]) -> None:
    """As CSV; numbers as they are, to the last digit."""
    try:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(list(rows[0]) if rows else ["method"])
            writer.writerows([_cell(value) for value in row.values()] for row in rows)
    except (OSError, ValueError) as error:
        raise FileError(f"cannot write {os.fspath(path)!r}: {getattr(error, 'strerror', None) or error}") from error


def _cell(value: Any) -> Any:
    return "" if value is None else harmless(value) if isinstance(value, str) else repr(value)
