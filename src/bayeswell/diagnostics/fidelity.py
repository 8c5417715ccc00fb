"""A prediction against that of a reference posterior, which a file of probabilities stands for."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..datasets.csv_cells import read_table
from ..datasets.files import read_bytes
from ..datasets.formats import finite_number, is_number, read_npz
from ..errors import DataError, SettingError
from ..metrics import agreement, total_variation
from ..metrics.probabilities import require_probabilities
from .records import Record

_ARRAYS = ("probabilities", "predictions", "mean")
_COLUMN = "p_"


@dataclass(frozen=True)
class Fidelity(Record):
    """Agreement (share of examples with the same top class) and mean total variation, with errors over examples."""

    agreement: float
    agreement_error: float | None
    total_variation: float
    total_variation_error: float | None
    examples: int
    classes: int


@dataclass(frozen=True)
class Probabilities:
    """(S, K) probabilities from a file; ``names`` of the classes, where the file has them."""

    values: Tensor
    names: tuple[str, ...] | None = None


def fidelity(probabilities: Tensor, reference: Tensor) -> Fidelity:
    """How near probabilities (S, ..., K) are to the reference's (Izmailov et al. 2021)."""
    agreed, distance = agreement(probabilities, reference), total_variation(probabilities, reference)
    *shape, classes = probabilities.shape
    return Fidelity(agreed.value, agreed.error, distance.value, distance.error, math.prod(shape), classes)


def fidelity_to_file(
    probabilities: Tensor | Probabilities | str | os.PathLike[str], reference: str | os.PathLike[str]
) -> Fidelity:
    """The same against a file, csv or npz; the prediction too may be a file, such as ``bayeswell predict`` writes.

    Where both files name their classes, columns are matched by name.
    """
    if isinstance(probabilities, str | os.PathLike):
        probabilities = read_probabilities(probabilities)
    elif isinstance(probabilities, Tensor):
        probabilities = Probabilities(probabilities)
    truth = read_probabilities(reference)
    expected = truth.values
    if probabilities.names is not None and truth.names is not None and probabilities.names != truth.names:
        if sorted(probabilities.names) != sorted(truth.names):
            raise DataError(
                f"{os.fspath(reference)}: its classes are {', '.join(truth.names)}; the prediction's are "
                f"{', '.join(probabilities.names)}"
            )
        expected = expected[:, [truth.names.index(name) for name in probabilities.names]]
    return fidelity(probabilities.values, expected)


def read_probabilities(path: str | os.PathLike[str]) -> Probabilities:
    """Class probabilities, one example a row, from a csv or npz file; no code in it is ever run.

    A csv file has the columns ``p_<class>`` (others are left out), or nothing but probabilities; its first row may be
    names. An npz file has the array ``probabilities`` (or ``predictions``, or ``mean``), or one array.
    """
    file = Path(path)
    ending = file.suffix.lower()
    if ending not in {".csv", ".npz"}:
        raise SettingError(f"{os.fspath(path)}: probabilities are read from a .csv or .npz file")
    found = _from_csv(file) if ending == ".csv" else _from_npz(file)
    try:
        require_probabilities(found.values)
    except DataError as error:
        raise DataError(f"{file}: {error}") from error
    return found


def _from_csv(file: Path) -> Probabilities:
    first = read_bytes(file).split(b"\n", 1)[0].decode("utf-8-sig", errors="replace").strip().split(",")
    named = not all(is_number(cell) for cell in first)
    names, rows = read_table(str(file), header=named, delimiter=",")
    chosen = [index for index, name in enumerate(names) if named and name.startswith(_COLUMN)]
    classes = tuple(names[index].removeprefix(_COLUMN) for index in chosen) or None
    chosen = chosen or list(range(len(names)))
    values = [[finite_number(row[i], f"{file}: row {line}, column '{names[i]}'") for i in chosen] for line, row in rows]
    return Probabilities(torch.tensor(values, dtype=torch.float64), classes)


def _from_npz(file: Path) -> Probabilities:
    arrays = read_npz(read_bytes(file), file)
    name = next((name for name in _ARRAYS if name in arrays), None)
    if name is None:
        if len(arrays) != 1:
            held = ", ".join(sorted(arrays)) or "nothing"
            raise DataError(f"{file}: there is no array {', '.join(map(repr, _ARRAYS))}; it holds {held}")
        name = next(iter(arrays))
    array = arrays[name]
    if array.dtype.kind != "f":
        raise DataError(f"{file}: array '{name}' is of {array.dtype}; probabilities are real numbers")
    return Probabilities(torch.from_numpy(np.array(array, np.float64)))
