"""New rows of a csv file for a run that was trained on one: columns by name, prepared as the training rows were."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ..datasets.csv_cells import Rows, cells_of, column_place, read_table
from ..datasets.files import read_bytes
from ..datasets.formats import is_number
from ..errors import DataError
from ..tables import Columns
from .data_spec import DataSpec


def table_inputs(file: Path, spec: DataSpec, columns: Columns) -> Tensor:
    """(n, features), not scaled: missing cells filled, texts as 0 and 1, as the training rows' ``columns`` say.

    Columns are found by their names and others are left out; a file without names must have them all, in order.
    """
    names, rows = _read(file, spec)
    if names is None:
        found = len(rows[0][1])
        if found != len(columns.names):
            raise DataError(f"{file}: it has {found} columns; an example has {len(columns.names)}, in order")
        places = {name: place for place, name in enumerate(columns.names)}
    else:
        every = {name: place for place, name in enumerate(names)}
        places = {name: column_place(name, every, str(file)) for name in columns.names}
    return torch.from_numpy(columns.matrix(cells_of(str(file), rows, places, columns.texts)))


def id_cells(file: Path, spec: DataSpec) -> tuple[str, list[str]] | None:
    """The name of the run's id column and its cells in a file; None where run or file have none."""
    if not spec.id or file.suffix.lower() not in {".csv", ".tsv", ".txt"}:
        return None
    names, rows = _read(file, spec)
    if names is None or spec.id not in names:
        return None
    place = names.index(spec.id)
    return spec.id, [row[place].strip() for _, row in rows]


def _read(file: Path, spec: DataSpec) -> tuple[list[str] | None, Rows]:
    """The names of the columns, if the run's file had any and the first row is not all numbers, and the rows."""
    first = read_bytes(file).split(b"\n", 1)[0].decode("utf-8-sig", errors="replace").rstrip("\r").split(spec.delimiter)
    header = spec.columns is not None and not all(is_number(cell) for cell in first)
    names, rows = read_table(str(file), header=header, delimiter=spec.delimiter)
    return (names if header else None), rows
