"""What people hold their data in, recognised by what it can do: no library of data frames is imported here.

A frame (pandas, polars) has ``columns`` and gives each by its name; a series has ``to_numpy`` and a ``dtype``; anything
else is an array if it has ``__array__`` or ``__dlpack__``.
"""

from __future__ import annotations

import datetime
import decimal
import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from ..errors import DataError
from ..nested import map_leaves

Array = npt.NDArray[Any]
Where = Callable[[int | None], str]
"""From the place of a row (None: the whole column) to words for a message."""

_CATEGORIES = ("category", "Categorical", "Enum")
_DATES = (datetime.date, datetime.time, datetime.timedelta)
_MISSING = frozenset({"NAType", "NaTType"})


def is_frame(value: Any) -> bool:
    """Whether it is a table with named columns."""
    own = isinstance(value, Tensor | np.ndarray)
    return not own and all(hasattr(value, name) for name in ("columns", "to_numpy", "__getitem__", "__len__"))


def is_series(value: Any) -> bool:
    """Whether it is one column of such a table."""
    own = isinstance(value, Tensor | np.ndarray | np.generic)
    return not own and not is_frame(value) and hasattr(value, "to_numpy") and hasattr(value, "dtype")


def is_array(value: Any) -> bool:
    """Whether it is another library's array (jax, cupy, ...), a series, or a table."""
    if isinstance(value, Tensor | np.ndarray | np.generic) or not hasattr(value, "__len__"):
        return False
    return is_frame(value) or is_series(value) or hasattr(value, "__array__") or hasattr(value, "__dlpack__")


def as_array(value: Any, what: str = "inputs") -> Any:
    """Other libraries' arrays, series and tables of numbers alone as numpy arrays or tensors; all else as it is.

    For a network that knows nothing of columns: what has texts or missing cells is refused.
    """
    if not is_array(value):
        return value
    if is_frame(value):
        columns = [_numbers(value[name], words(what, name)) for name in value.columns]
        if not columns:
            raise DataError(f"{what}: the table has no column")
        return _complete(np.stack(columns, axis=1), what)
    if is_series(value):
        return _complete(_numbers(value, words(what)), what)
    return _foreign(value, what)


def as_arrays(inputs: Any) -> Any:
    """The same for inputs in tuples and mappings."""
    if isinstance(inputs, Mapping | tuple | list):
        return map_leaves(inputs, lambda name, value: as_array(value, f"inputs{name}"))
    return as_array(inputs)


def words(owner: str, column: str = "", rows: Sequence[Any] | None = None) -> Where:
    """Where something is: the owner, the row by its name (without ``rows`` its number, from 0), the column."""

    def say(row: int | None) -> str:
        shown = [] if row is None else [f"row {row if rows is None else rows[row]}"]
        shown += [f"column '{column}'"] if column else []
        return f"{owner}: {', '.join(shown)}" if shown else owner

    return say


def _numbers(series: Any, where: Where) -> Array:
    cells = series_cells(series, where)
    return cells if cells.dtype.kind in "biu" else numbers_of(cells, where)


def _foreign(value: Any, what: str) -> Any:
    if hasattr(value, "__array__"):
        try:
            array = np.asarray(value)
            if array.dtype.kind in "biufcUSO":
                return np.array(array)  # a copy that is ours: what another library lends cannot be written
        except Exception as error:  # each library has reasons of its own (another device, say)
            if not hasattr(value, "__dlpack__"):
                raise DataError(f"{what} of type {type(value).__name__} give no array ({_line(error)})") from error
    try:
        return from_dlpack(value).clone()
    except Exception as error:
        raise DataError(f"{what} of type {type(value).__name__} give no array ({_line(error)})") from error


def _complete(values: Array, what: str) -> Array:
    missing = np.argwhere(np.isnan(values)) if values.dtype.kind == "f" else np.empty((0, 1))
    if len(missing):
        raise DataError(
            f"{what}: {len(missing)} cells are missing, the first in row {missing[0][0]}; a model that was trained on "
            "a table fills them, this one was trained on numbers alone"
        )
    return values


def series_cells(series: Any, where: Where) -> Array:
    """The cells of a column: an array of bool, whole or real numbers (NaN: missing), or of objects: str, None: missing.

    Categories are texts, whatever they were made of. Dates and other objects are refused, with the remedy.
    """
    dtype = getattr(series, "dtype", None)
    if str(dtype).startswith(_CATEGORIES):
        return text_cells(_listed(series))
    array = _numpy(series)
    array = array if array.flags.writeable else array.copy()  # torch holds no others
    if array.ndim != 1:
        raise DataError(f"{where(None)}: it holds {array.ndim}-dimensional cells; each must be a number or a text")
    if array.dtype.kind in "biuf":
        return array
    if array.dtype.kind in "Mm":
        raise _dates(where)
    if array.dtype.kind in "UST":
        return text_cells(array.tolist())
    if array.dtype.kind != "O":
        raise DataError(f"{where(None)}: its cells are {array.dtype}; each must be a number or a text")
    return _object_cells(array, where)


def _numpy(series: Any) -> Array:
    """As numpy has it; whole numbers of which some are missing become real ones."""
    kind = getattr(getattr(series, "dtype", None), "kind", None)
    isna = getattr(series, "isna", None)
    if kind in {"b", "i", "u", "f"} and not isinstance(series.dtype, np.dtype) and isna is not None:
        if bool(isna().any()):
            return np.asarray(series.to_numpy(dtype="float64", na_value=np.nan))
        return np.asarray(series.to_numpy(dtype={"b": "bool", "i": "int64", "u": "uint64", "f": "float64"}[kind]))
    return np.asarray(series.to_numpy())


def _listed(series: Any) -> Sequence[Any]:
    return list(series.to_list() if hasattr(series, "to_list") else series)


def _object_cells(array: Array, where: Where) -> Array:
    present = [(place, value) for place, value in enumerate(array.tolist()) if not is_missing(value)]
    texts = sum(isinstance(value, str) for _, value in present)
    for place, value in present:
        if isinstance(value, _DATES):
            raise _dates(where)
        if not isinstance(value, str | numbers.Real | decimal.Decimal):
            raise DataError(f"{where(place)}: a {type(value).__name__}; each cell must be a number or a text")
    if texts and texts < len(present):
        rare = texts <= len(present) / 2
        place, value = next((p, v) for p, v in present if isinstance(v, str) == rare)
        kinds = ("a text", "numbers") if rare else ("a number", "texts")
        raise DataError(
            f"{where(place)}: {kinds[0]} ({value!r:.40}), where others are {kinds[1]}; make them all numbers "
            "(missing cells None or NaN), or all texts: astype(str)"
        )
    if texts:
        return text_cells(array.tolist())
    if len(present) == len(array) and all(isinstance(value, bool | np.bool_) for _, value in present):
        return array.astype(bool)
    if len(present) == len(array) and all(isinstance(value, numbers.Integral) for _, value in present):
        if all(-(2**63) <= value < 2**63 for _, value in present):
            return array.astype(np.int64)
        return text_cells(array.tolist())  # larger than any number here: names
    cells = np.full(len(array), np.nan)
    for place, value in present:
        cells[place] = float(value)
    return cells


def text_cells(values: Iterable[Any]) -> Array:
    """Objects: str without blanks at its ends, None where missing or empty."""
    listed = list(values)
    cells = np.empty(len(listed), dtype=object)
    for place, value in enumerate(listed):
        cells[place] = None if is_missing(value) else (as_text(value) or None)
    return cells


def as_text(value: Any) -> str:
    """A category as a text; a whole number is written as one, so that 1 and 1.0 are one category."""
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace").strip()
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, float | np.floating) and math.isfinite(value) and value == round(value):
        return str(int(value))
    return str(value).strip()


_TRUTHS = {"true": 1.0, "false": 0.0}


def numbers_of(cells: Array, where: Where) -> npt.NDArray[np.float64]:
    """Cells as float64, NaN where missing; a text is refused."""
    if cells.dtype.kind == "O":
        truths = [None if cell is None else _TRUTHS.get(str(cell).lower()) for cell in cells]
        if all(truth is not None or cell is None for truth, cell in zip(truths, cells, strict=True)):
            # True and False of a frame are numbers; a file can only write them as words.
            return np.array([math.nan if truth is None else truth for truth in truths], np.float64)
        place = next((place for place, cell in enumerate(cells) if cell is not None), None)
        if place is not None:
            raise DataError(f"{where(place)}: '{cells[place]:.40}' is not a finite number")
        return np.full(len(cells), np.nan)
    return cells.astype(np.float64)


def is_missing(value: Any) -> bool:
    """None, NaN, and the marks that libraries have of their own (pandas' NA and NaT)."""
    if value is None or type(value).__name__ in _MISSING:
        return True
    return isinstance(value, float | np.floating | decimal.Decimal) and bool(value != value)


def _dates(where: Where) -> DataError:
    return DataError(
        f"{where(None)}: it holds dates or times; make numbers of them (days since some day, the year, the hour), or "
        "leave the column out"
    )


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
