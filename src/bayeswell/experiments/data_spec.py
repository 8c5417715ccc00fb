"""What a trained model needs to know of its data to meet new ones: shape, scaling, classes, columns."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from ..datasets import Data, Scaling, find_data
from ..datasets.own import Csv
from ..errors import DataError, FileError
from ..persistence import write_document
from ..tables import Columns
from ..training import RunFolder
from ..training.finishing import CARD, CARD_FORMAT, data_card
from .experiment import Experiment
from .given import needs_code

T = TypeVar("T")

NAME, _FORMAT = CARD, CARD_FORMAT


@dataclass(frozen=True)
class DataSpec:
    """A data set without its examples.

    ``columns`` and ``target_name`` are names in a table of one's own, ``delimiter`` stands between its cells; ``table``
    is what its columns became, ``id`` names one that is no input and is carried along.
    ``raw_scale`` is the pixel value of a file that stands for full brightness: 16 for digits, 255 for bytes, 1 where
    numbers were taken as they are.
    """

    name: str
    input_shape: tuple[int, ...]
    outputs: int
    class_names: tuple[str, ...] | None
    vocabulary: int | None
    scaling: Scaling
    columns: tuple[str, ...] | None = None
    target_name: str | None = None
    delimiter: str = ","
    raw_scale: float = 1.0
    table: Columns | None = None
    id: str = ""

    @classmethod
    def of(cls, data: Data, experiment: Experiment) -> DataSpec:
        """The spec of loaded data."""
        part = None if needs_code(experiment.data) else find_data(experiment.data)
        return cls(
            data.name, data.input_shape, data.outputs, data.class_names, data.vocabulary, data.scaling, data.columns,
            data.target_name, part.delimiter if isinstance(part, Csv) else ",", data.raw_scale,
            data.table, part.id if isinstance(part, Csv) else "",
        )  # fmt: skip

    def pixels(self, values: Tensor, *, whole: bool, owner: object) -> Tensor:
        """The numbers of a file of images as [0, 1], in which scaling takes them; all else as it is.

        Numbers are in the units of the run's own files, 0 to ``raw_scale``. Real numbers (``whole`` false) none of
        which exceeds 1 are taken for what ``load_data`` calls raw images: [0, 1] already.
        """
        if len(self.input_shape) != 3 or self.raw_scale == 1 or not values.numel():
            return values
        low, high = float(values.min()), float(values.max())
        if low < 0 or high > self.raw_scale:
            raise DataError(
                f"{owner}: pixels from {low:g} to {high:g}; those of '{self.name}' are 0 to {self.raw_scale:g} (or, as "
                "real numbers, 0 to 1)"
            )
        return values.double() if not whole and high <= 1 else values.double() / self.raw_scale

    def write(self, folder: Path) -> None:
        """Into the folder of a run."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        lists = {name: list(value) for name, value in values.items() if isinstance(value, tuple)}
        card: dict[str, Any] = {**values, **lists, **self._learned()}
        write_document(folder / NAME, data_card(**card))

    def _learned(self) -> dict[str, Any]:
        return {"scaling": self.scaling.as_json(), "table": None if self.table is None else self.table.as_json()}

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> DataSpec:
        """From the folder of a run."""
        path = Path(folder) / NAME
        record = RunFolder(folder).document(NAME)
        try:
            if record["format"] != _FORMAT:
                raise FileError(f"{str(path)!r}: format {record['format']!r}; this version reads format {_FORMAT}")
            return cls(
                name=str(record["name"]),
                input_shape=tuple(int(size) for size in record["input_shape"]),
                outputs=int(record["outputs"]),
                class_names=_optional(_names, record["class_names"]),
                vocabulary=_optional(int, record["vocabulary"]),
                scaling=Scaling.from_json(record["scaling"]),
                columns=_optional(_names, record["columns"]),
                # A run of an earlier version says nothing of these.
                target_name=_optional(str, record.get("target_name")),
                delimiter=str(record.get("delimiter", ",")),
                raw_scale=float(record.get("raw_scale", 16.0 if record["name"] == "digits" else 1.0)),
                table=_optional(Columns.from_json, record.get("table")),
                id=str(record.get("id", "")),
            )
        except FileError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileError(f"{str(path)!r} does not describe data ({error!r})") from error


def _names(record: Any) -> tuple[str, ...]:
    return tuple(map(str, record))


def _optional(kind: Callable[[Any], T], value: Any) -> T | None:
    return None if value is None else kind(value)
