"""Predictions for a file of new inputs, and a table of them that a spreadsheet can be trusted with."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..datasets.csv_cells import column_place, read_table
from ..datasets.files import read_bytes
from ..datasets.formats import finite_number, is_number, read_npz
from ..datasets.own import is_picture, pictures_in, read_picture
from ..errors import DataError, FileError, SettingError, require_count
from ..predictive import ClassPrediction, RealPrediction
from ..predictive.frames import class_columns, real_columns
from ..training.run_folder import CONFIG
from .data_spec import DataSpec
from .evaluating import load_model
from .given import NOTHING, Given
from .paths import path_of
from .scores import BATCH, in_raw_units
from .table_inputs import table_inputs

_TABLES = frozenset({".csv", ".tsv", ".txt"})
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def predict_file(
    run: str | os.PathLike[str],
    inputs: str | os.PathLike[str],
    *,
    draws: int = 100,
    seed: int = 0,
    prediction: str | None = None,
    given: Given = NOTHING,
) -> tuple[ClassPrediction | RealPrediction, DataSpec]:
    """The prediction of a finished run for the inputs in a csv or npz file or in pictures, in the units of raw data.

    What each draw says of real targets is kept, for intervals.
    """
    require_count("predict", "draws", draws)
    folder = path_of(run)
    predictor = load_model(folder, given)
    if not (folder / CONFIG).exists():
        raise SettingError(f"{str(folder)!r} is a model without a run: it does not say how inputs are scaled")
    spec = DataSpec.read(folder)
    found = predictor.predict(
        read_inputs(inputs, spec), draws=draws, batch_size=BATCH, seed=seed, prediction=prediction,
        keep_samples=spec.class_names is None,
    )  # fmt: skip
    if isinstance(found, ClassPrediction):
        return replace(found, class_names=spec.class_names), spec
    return in_raw_units(found, spec.scaling), spec


def read_inputs(path: str | os.PathLike[str], spec: DataSpec) -> Tensor:
    """Inputs from a file, scaled as the training data were.

    A csv file has one example a row, with the delimiter of the run's own. If the run was trained on a csv file its
    columns are found by name and others are left out; else there must be as many as an example has numbers, in order.
    An npz file has the array x, or one array. A picture, or a folder of them, is made as large as the run's images.
    Pixels in a csv or npz file are in the units of the run's own files: see ``DataSpec.pixels``.
    """
    file = path_of(path)
    ending = file.suffix.lower()
    pictures = picture_files(file)
    if pictures is not None:
        raw = _picture_inputs(pictures, spec)
    elif ending == ".npz":
        raw = _npz_inputs(file, spec)
    elif ending in _TABLES:
        raw = _csv_inputs(file, spec)
    else:
        raise SettingError(f"{os.fspath(path)}: inputs are read from a .csv or .npz file, or from pictures")
    if spec.vocabulary is not None:
        if bool((raw != raw.round()).any()) or float(raw.min()) < 0 or float(raw.max()) >= spec.vocabulary:
            raise DataError(f"{file}: tokens must be whole numbers from 0 to {spec.vocabulary - 1}")
        return raw.long()
    return spec.scaling.inputs(raw)


def _csv_inputs(file: Path, spec: DataSpec) -> Tensor:
    if spec.table is not None:
        return table_inputs(file, spec, spec.table)
    names, rows = _table(file, spec.delimiter)
    size = math.prod(spec.input_shape)
    if spec.columns is not None and names is not None:
        chosen = [column_place(column, names, str(file)) for column in spec.columns]
    else:
        found = len(rows[0][1])
        if found != size:
            raise DataError(f"{file}: it has {found} columns; an example has {size} numbers, one a column")
        chosen = list(range(size))
    shown = names or [str(number) for number in range(1, len(rows[0][1]) + 1)]
    values = [[finite_number(row[i], f"{file}: row {line}, column '{shown[i]}'") for i in chosen] for line, row in rows]
    raw = torch.tensor(values, dtype=torch.float64).reshape(len(values), *spec.input_shape)
    return spec.pixels(raw, whole=False, owner=file)


def _table(file: Path, delimiter: str) -> tuple[list[str] | None, list[tuple[int, list[str]]]]:
    """The names of the columns, if the first row has any, and the rows."""
    first = read_bytes(file).split(b"\n", 1)[0].decode("utf-8-sig", errors="replace").rstrip("\r").split(delimiter)
    if all(is_number(cell) for cell in first):
        return None, read_table(str(file), header=False, delimiter=delimiter)[1]
    return read_table(str(file), header=True, delimiter=delimiter)


def _npz_inputs(file: Path, spec: DataSpec) -> Tensor:
    arrays = read_npz(read_bytes(file), file)
    if "x" not in arrays and len(arrays) != 1:
        raise DataError(f"{file}: there is no array 'x'; it holds {', '.join(sorted(arrays)) or 'nothing'}")
    array = arrays["x"] if "x" in arrays else next(iter(arrays.values()))
    if array.dtype.kind not in "biuf" or array.ndim == 0 or not array.size:
        raise DataError(f"{file}: the inputs have shape {array.shape} of {array.dtype}; they must be numbers (n, ...)")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        place = [int(index) for index in np.argwhere(~np.isfinite(array))[0]]
        raise DataError(f"{file}: the value at index {place} is {array[tuple(place)]}; inputs must be finite")
    shape = spec.input_shape
    image = len(shape) == 3
    if image and array.shape[1:] == (*shape[1:], shape[0]) and array.shape[1:] != shape:
        array = array.transpose(0, 3, 1, 2)
    if image and shape[0] == 1 and array.shape[1:] == shape[1:]:
        array = array[:, None]
    if array.shape[1:] != shape:
        raise DataError(f"{file}: an example has shape {array.shape[1:]}; the run was trained on {shape}")
    # A copy: the array lies in the bytes of the file, which cannot be written.
    raw = torch.from_numpy(np.array(array, np.float64, order="C"))
    if image and spec.raw_scale == 1 and array.dtype == np.uint8:
        return raw / 255  # as everywhere: bytes are pixels of 0 to 255 where nothing else is known of them
    return spec.pixels(raw, whole=array.dtype.kind in "iu", owner=file)


def picture_files(path: str | os.PathLike[str]) -> list[Path] | None:
    """The picture at a path, or all in a folder and below it by name; None for any other file."""
    place = path_of(path)
    if place.is_dir():
        return pictures_in(place.rglob("*"), place)
    return [place] if is_picture(place) else None


def _picture_inputs(files: Sequence[Path], spec: DataSpec) -> Tensor:
    shape = spec.input_shape
    if len(shape) != 3 or shape[0] not in {1, 3} or shape[1] != shape[2]:
        raise DataError(f"{files[0]}: a picture; the run was trained on shape {shape}, not on square pictures")
    pixels = np.stack([read_picture(file, shape[1], grey=shape[0] == 1) for file in files])
    return torch.from_numpy(pixels).double() / 255


@dataclass(frozen=True)
class Shown:
    """What a table says of real targets besides mean and stds.

    ``interval``: the ends of the central interval of this level, columns lower and upper (0: none); ``quantiles``:
    columns q_0.1 and so on; ``nats``: entropy, epistemic and aleatoric, of all outputs together. ``seed`` decides drawn
    targets, where there are any.
    """

    interval: float = 0.9
    quantiles: tuple[float, ...] = ()
    nats: bool = False
    seed: int = 0


USUAL = Shown()


def write_predictions(
    path: str | os.PathLike[str],
    prediction: ClassPrediction | RealPrediction,
    spec: DataSpec,
    files: Sequence[Path] | None = None,
    shown: Shown = USUAL,
    ids: tuple[str, Sequence[str]] | None = None,
) -> None:
    """One row an example: label, probabilities, entropy and its parts in nats; or mean, stds and interval in raw units.

    ``files`` are the pictures that were looked at; their names come first in each row. So do ``ids``, the name of a
    column and its cells (``table_inputs.id_cells``).
    """
    try:
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(prediction_rows(prediction, spec, files, shown, ids))
    except (OSError, ValueError) as error:
        raise FileError(f"cannot write {os.fspath(path)!r}: {getattr(error, 'strerror', None) or error}") from error


def prediction_rows(
    prediction: ClassPrediction | RealPrediction,
    spec: DataSpec,
    files: Sequence[Path] | None = None,
    shown: Shown = USUAL,
    ids: tuple[str, Sequence[str]] | None = None,
) -> Iterator[list[Any]]:
    """The table: a header, then a row for each example, which begins with the name of its file, or its id, if any."""
    rows = _rows(prediction, spec, shown)
    first = ids if files is None else ("file", [str(file) for file in files])
    if first is None:
        yield from rows
        return
    yield [harmless(first[0]), *next(rows)]
    for cell, row in zip(first[1], rows, strict=True):
        yield [harmless(cell), *row]


def _rows(prediction: ClassPrediction | RealPrediction, spec: DataSpec, shown: Shown) -> Iterator[list[Any]]:
    if isinstance(prediction, ClassPrediction):
        columns = class_columns(replace(prediction, class_names=spec.class_names))
    else:
        columns = real_columns(prediction, shown.interval or None, shown.quantiles, shown.seed)
        if shown.nats:
            nats = prediction.in_nats(seed=shown.seed)
            parts = {"entropy": nats.entropy, "epistemic": nats.epistemic, "aleatoric": nats.aleatoric}
            columns |= {name: part.tolist() for name, part in parts.items()}
    yield [harmless(name) for name in columns]
    for row in zip(*columns.values(), strict=True):
        yield [harmless(cell) if isinstance(cell, str) else cell for cell in row]


def harmless(cell: str) -> str:
    """A text that no spreadsheet takes for a formula; a number stays a number."""
    return f"'{cell}" if cell.startswith(_FORMULA) and not is_number(cell) else cell
