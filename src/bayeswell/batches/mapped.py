"""Arrays in files that are larger than memory: mapped, and read a batch at a time."""

from __future__ import annotations

import mmap
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ..errors import DataError, FileError

AnyPath = str | os.PathLike[str]
_DROP = getattr(mmap, "MADV_DONTNEED", None)
"""Where the system can be told that pages are done with."""


class MappedArrays(Dataset[Any]):
    """Examples in npy files (``numpy.save``), of which only the batch at hand is in memory.

    ``inputs`` and ``targets`` name files with one example a row; ``targets`` None is for prediction. Or ``inputs`` is a
    folder with x.npy and y.npy (y.npy need not be there). ``fit`` trains on it as on any data set, and predictions and
    scores go through it batch by batch (1,000 examples where no ``batch_size`` is given); what they give is what the
    same arrays give in memory, bit for bit at equal batch sizes. Arrays of objects are refused: they are pickles.
    """

    def __init__(self, inputs: AnyPath, targets: AnyPath | None = None) -> None:
        for given in (inputs, targets):
            if given is not None and not isinstance(given, str | os.PathLike):
                raise DataError(
                    f"MappedArrays takes names of npy files, not {type(given).__name__}; fit takes arrays as they are"
                )
        first = Path(inputs)
        second = None if targets is None else Path(targets)
        if first.is_dir():
            if second is not None:
                raise DataError(f"{first}: a folder holds inputs (x.npy) and targets (y.npy); leave out targets")
            first, second = first / "x.npy", first / "y.npy" if (first / "y.npy").exists() else None
        self.paths = (first, second)
        self._open()
        for path, array in zip(self.paths, (self._inputs, self._targets), strict=True):
            if array is not None and (array.ndim == 0 or array.size == 0):
                raise DataError(f"{path}: shape {array.shape} holds no examples")
        if self._targets is not None and len(self._targets) != len(self._inputs):
            raise DataError(
                f"{first} has {len(self._inputs):,} examples, {second} {len(self._targets):,}; they must be as many"
            )

    def _open(self) -> None:
        first, second = self.paths
        self._inputs = _mapped(first)
        self._targets = None if second is None else _mapped(second)

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Some examples in the order asked for: inputs, or (inputs, targets)."""
        places = np.asarray(indices)
        inputs = _read(self._inputs, places).unbind(0)
        if self._targets is None:
            return list(inputs)
        return list(zip(inputs, _read(self._targets, places).unbind(0), strict=True))

    def rows(self, start: int, stop: int) -> Tensor:
        """The inputs of some examples in a row, in memory."""
        return _read(self._inputs, slice(start, stop))

    def targets(self) -> Tensor | None:
        """All targets, in memory."""
        return None if self._targets is None else _read(self._targets, slice(None))

    def __getstate__(self) -> dict[str, Any]:
        return {"paths": self.paths}  # another process maps the files anew

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.paths = state["paths"]
        self._open()


def _mapped(path: Path) -> npt.NDArray[Any]:
    try:
        # What np.load does for a file to be mapped, without its readers of zip files and pickles or its advice.
        found = np.lib.format.open_memmap(path, mode="r")
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror or error})") from error
    except Exception as error:  # numpy reads a header as Python's own parser does, with all of its errors
        if zipfile.is_zipfile(path):
            raise FileError(f"{path}: holds several arrays (npz); save each by numpy.save") from error
        raise FileError(
            f"{path}: not an npy file of numbers that can be mapped ({' '.join(str(error).split())})"
        ) from error
    if found.dtype.kind not in "biuf" or found.dtype.itemsize > 8:
        raise FileError(f"{path}: dtype {found.dtype}; only numbers are mapped")
    return found


def _read(array: npt.NDArray[Any], places: Any) -> Tensor:
    """A copy of some rows as a tensor; their pages are given back to the system, which may keep them or not."""
    native = array.dtype.newbyteorder("=")
    if native.kind == "u" and native.itemsize > 1:
        native = np.dtype(np.int64)  # torch computes little with such numbers
    found = torch.from_numpy(np.array(array[places], native, order="C"))
    mapping = array.base
    if _DROP is not None and isinstance(mapping, mmap.mmap):
        mapping.madvise(_DROP)
    return found
