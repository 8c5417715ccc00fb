"""What a trained model needs to know of its data to meet new ones: shape, scaling, classes, columns."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..datasets import Data, Scaling, find_data
from ..datasets.own import Csv, read_table
from ..errors import FileError
from ..persistence import read_document, write_document
from .experiment import Experiment

NAME = "data.json"
_FORMAT = 1
_TENSORS = ("input_shift", "input_scale", "target_shift", "target_scale")
_DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class DataCard:
    """A data set without its examples. ``columns`` are the input columns of a table of one's own."""

    name: str
    input_shape: tuple[int, ...]
    outputs: int
    class_names: tuple[str, ...] | None
    vocabulary: int | None
    scaling: Scaling
    columns: tuple[str, ...] | None = None

    @classmethod
    def of(cls, data: Data, experiment: Experiment) -> DataCard:
        """The card of loaded data."""
        return cls(
            data.name, data.input_shape, data.outputs, data.class_names, data.vocabulary, data.scaling,
            _columns(experiment),
        )  # fmt: skip

    def write(self, folder: Path) -> None:
        """Into the folder of a run."""
        record: dict[str, Any] = {
            "format": _FORMAT,
            "name": self.name,
            "input_shape": list(self.input_shape),
            "outputs": self.outputs,
            "class_names": None if self.class_names is None else list(self.class_names),
            "vocabulary": self.vocabulary,
            "columns": None if self.columns is None else list(self.columns),
            "scaling": {name: _plain(getattr(self.scaling, name)) for name in _TENSORS},
        }
        write_document(folder / NAME, record)

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> DataCard:
        """From the folder of a run."""
        path = Path(folder) / NAME
        record = read_document(path)
        try:
            if record["format"] != _FORMAT:
                raise FileError(f"{str(path)!r}: format {record['format']!r}; this version reads format {_FORMAT}")
            return cls(
                name=str(record["name"]),
                input_shape=tuple(int(size) for size in record["input_shape"]),
                outputs=int(record["outputs"]),
                class_names=_names(record["class_names"]),
                vocabulary=None if record["vocabulary"] is None else int(record["vocabulary"]),
                scaling=Scaling(**{name: _tensor(record["scaling"][name]) for name in _TENSORS}),
                columns=_names(record["columns"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, FileError):
                raise
            raise FileError(f"{str(path)!r} does not describe data ({error!r})") from error


def _columns(experiment: Experiment) -> tuple[str, ...] | None:
    part = find_data(experiment.data)
    if not isinstance(part, Csv) or not part.header:
        return None
    names, _ = read_table(part.path, header=True, delimiter=part.delimiter)
    target = part.target or names[-1]
    return tuple(name for name in names if name != target)


def _plain(tensor: Tensor | None) -> dict[str, Any] | None:
    if tensor is None:
        return None
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "values": tensor.tolist()}


def _tensor(record: Mapping[str, Any] | None) -> Tensor | None:
    return None if record is None else torch.tensor(record["values"], dtype=_DTYPES[record["dtype"]])


def _names(record: Any) -> tuple[str, ...] | None:
    return None if record is None else tuple(map(str, record))
