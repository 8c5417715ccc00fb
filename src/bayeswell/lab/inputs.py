"""New inputs in files: tables, arrays and images, before scaling."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.errors import DataError, DataWarning, FileError
from .data import read_npz, read_table
from .data.files import reading
from .data.load import real_pixels
from .data.own import read_inputs

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
TABLES = (".csv", ".tsv", ".parquet")
FAR = 5.0
"""Mean distance from the training inputs, in their standard deviations, above which units differ."""


def read_file(path: str | os.PathLike[str], shape: Sequence[int] | None, *, by_name: bool) -> Any:
    """Return the inputs in a file: a DataFrame, or numbers of the shape of the training inputs.

    Args:
        path: a table (.csv, .tsv, .parquet), an array ``x`` (.npz), an image, or a folder of images.
        shape: of one training input; None if it is not known.
        by_name: columns of a table are found by their names; else a table has one column for each number of an input.
    """
    place = Path(path).expanduser()
    ending = place.suffix.lower()
    if not place.exists():
        raise FileError(f"{path}: there is no such file")
    if place.is_dir() or ending in IMAGES:
        files = [path for path in place.iterdir() if path.suffix.lower() in IMAGES] if place.is_dir() else [place]
        return _images(sorted(files), shape, place)
    if ending == ".npz":
        arrays = read_npz(str(place))
        if "x" not in arrays and len(arrays) != 1:
            raise DataError(f"{path} has no array 'x'; it holds {', '.join(sorted(arrays))}")
        return _shaped(real_pixels(read_inputs(arrays.get("x", next(iter(arrays.values()))), str(path))), shape, path)
    if ending not in TABLES:
        raise DataError(f"{path}: give a table ({', '.join(TABLES)}), an .npz file, or images")
    if by_name:
        return read_table(str(place))
    return _shaped(_numbers(place), shape, path)


def _numbers(place: Path) -> Tensor:
    import pandas

    table = read_table(str(place))
    separator = "\t" if place.suffix.lower() == ".tsv" else ","
    if place.suffix.lower() != ".parquet" and all(map(_is_number, _first_line(place).split(separator))):
        table = pandas.read_csv(place, sep=separator, header=None)
    try:
        return torch.from_numpy(table.to_numpy(dtype="float64", copy=True))
    except (TypeError, ValueError) as error:
        raise DataError(f"{place}: the run was trained on numbers, but {error}") from error


def _first_line(place: Path) -> str:
    with place.open(encoding="utf-8-sig") as file:
        return file.readline()


def check_units(path: str | os.PathLike[str], scaled: Any) -> None:
    """Warn if scaled inputs lie far from the training inputs."""
    if isinstance(scaled, Tensor) and scaled.is_floating_point() and scaled.numel():
        distance = float(scaled.abs().mean())
        if distance > FAR:
            warnings.warn(
                f"{path}: the inputs lie {distance:.0f} standard deviations from the training inputs on average; are "
                "they in the same units (pixels from 0 to 1)?",
                DataWarning,
                stacklevel=3,
            )


def _shaped(values: Any, shape: Sequence[int] | None, path: Any) -> Any:
    if shape is None or not isinstance(values, Tensor) or tuple(values.shape[1:]) == tuple(shape):
        return values
    if values[0].numel() != math.prod(shape):
        raise DataError(f"{path}: an input has shape {tuple(values.shape[1:])}; the run was trained on {tuple(shape)}")
    shaped: Tensor = values.reshape(len(values), *shape)
    return shaped


def _images(files: Sequence[Path], shape: Sequence[int] | None, place: Path) -> Tensor:
    if not files:
        raise DataError(f"{place} has no images ({', '.join(IMAGES)})")
    if shape is None or len(shape) != 3 or shape[0] not in (1, 3) or shape[1] != shape[2]:
        raise DataError(f"{place}: images, but the run was not trained on square images")
    return torch.stack([_image(file, shape[1], shape[0]) for file in files])


def _image(path: Path, size: int, channels: int) -> Tensor:
    # Imported here: Pillow belongs to the lab extra and is needed for images alone.
    from PIL import Image

    with reading(path, "an image"), Image.open(path) as image:
        small = image.convert("L" if channels == 1 else "RGB").resize((size, size), Image.Resampling.BILINEAR)
    pixels = torch.from_numpy(np.array(small, np.float32)) / 255
    return pixels.reshape(size, size, channels).permute(2, 0, 1)


def _is_number(text: Any) -> bool:
    try:
        float(text)
    except (TypeError, ValueError):
        return False
    return True
