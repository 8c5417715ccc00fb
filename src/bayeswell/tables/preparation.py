"""Data frames and arrays to the network's tensors, and predictions back to the user's units."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.errors import DataError, FileError, nearest
from .columns import Column, as_text, check_range, fit_columns, read_cells, read_table, table_matrix
from .tensors import as_tensor, as_tensors, check_index, is_frame, is_series

_FORMAT = 3
CLASSES, REAL = "classes", "real"
BOOLEANS = ("False", "True")


@dataclass(frozen=True)
class Scaling:
    """standardized = (raw - mean) / std, in float64. The std of a constant column is 1.

    A std of standardized targets is multiplied by ``std``; the log density of a raw target is that of the standardized
    one minus log ``std``.
    """

    mean: Tensor
    std: Tensor

    @classmethod
    def fit(cls, values: Tensor) -> Scaling:
        """By column of (n,) and (n, columns); by channel of images (n, C, H, W) and volumes (n, C, D, H, W)."""
        if values.dim() not in (1, 2, 4, 5):
            allowed = "tables (n, features) or images (n, C, H, W)"
            raise DataError(f"standardize: shape {tuple(values.shape)} cannot be scaled; give {allowed}")
        values = values.double()
        if not bool(values.isfinite().all()):
            raise DataError("standardize: the training data have NaN or infinite numbers; replace or drop them")
        axes = [axis for axis in range(values.dim()) if axis != 1]
        mean, std = values.mean(axes, keepdim=True), values.std(axes, correction=0, keepdim=True)
        # By value: rounding gives some constant columns a std of 1e-14.
        constant = values.amax(axes, keepdim=True) == values.amin(axes, keepdim=True)
        return cls(mean[0], torch.where(constant, torch.ones_like(std), std)[0])

    def scale(self, raw: Tensor, dtype: torch.dtype, name: str) -> Tensor:
        """Return standardized values; DataError for another shape than in training."""
        if raw.dim() != self.mean.dim() + 1 or (raw.dim() > 1 and raw.shape[1] != self.mean.shape[0]):
            columns = ", ".join(map(str, ["n", *self.mean.shape[:1], *["..."] * (self.mean.dim() - 1)]))
            raise DataError(f"{name} of shape {tuple(raw.shape)}; the model was trained on ({columns})")
        return ((raw.double() - self.mean.to(raw.device)) / self.std.to(raw.device)).to(dtype)

    def restore(self, standardized: Tensor) -> Tensor:
        """Return raw values."""
        return standardized * self.std.to(standardized) + self.mean.to(standardized)

    def to_json(self) -> dict[str, Any]:
        return {"mean": self.mean.tolist(), "std": self.std.tolist()}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Scaling:
        return cls(*(torch.tensor(record[name], dtype=torch.float64) for name in ("mean", "std")))


@dataclass(frozen=True)
class Preparation:
    """The way from a user's inputs and targets to tensors and back, learned from training examples by ``fit``.

    ``columns`` are those of a data frame; without ``class_names`` targets are numbers.
    """

    columns: tuple[Column, ...] | None = None
    input_scaling: Scaling | None = None
    target_scaling: Scaling | None = None
    class_names: tuple[str, ...] | None = None
    dtype: torch.dtype = torch.float32

    @classmethod
    def fit(
        cls,
        inputs: Any,
        targets: Any = None,
        *,
        standardize: bool = False,
        kind: str | None = None,
        scale_targets: bool = True,
        dtype: torch.dtype = torch.float32,
    ) -> Preparation:
        """Learn from training inputs and targets.

        Args:
            inputs: a data frame, or tensors and arrays.
            targets: None: inputs alone.
            standardize: scale inputs, and real targets, to zero mean and unit std. Integer inputs (tokens) and the 0
                and 1 of categories stay.
            kind: "classes" or "real"; None: texts and booleans are classes, and numbers stay as they are.
            scale_targets: False: scale inputs alone.
        """
        check_index(inputs, targets)
        cells = None if targets is None else _target_cells(targets)
        names = None if cells is None else _class_names(cells, targets, kind)
        found = cls(fit_columns(inputs) if is_frame(inputs) else None, class_names=names, dtype=dtype)
        if not standardize:
            return found
        target_scaling = None
        if scale_targets and cells is not None and names is None and kind != CLASSES:
            target_scaling = Scaling.fit(_real_targets(cells))
        return dataclasses.replace(found, input_scaling=found._fit_inputs(inputs), target_scaling=target_scaling)

    def _fit_inputs(self, inputs: Any) -> Scaling | None:
        raw = self._raw(inputs)
        if not isinstance(raw, Tensor):
            raise DataError(f"standardize: inputs of type {type(raw).__name__}; scale several inputs before training")
        if not raw.is_floating_point():
            return None
        scaling = Scaling.fit(raw)
        if self.columns is None:
            return scaling
        scaled = torch.tensor([flag for column in self.columns for flag in column.is_scaled])
        return Scaling(scaling.mean.where(scaled, 0.0), scaling.std.where(scaled, 1.0))

    @property
    def features(self) -> tuple[str, ...] | None:
        """Names of the numbers that the network gets; None for arrays."""
        return None if self.columns is None else tuple(name for column in self.columns for name in column.features)

    @property
    def nll_shift(self) -> float:
        """Nats per datum to add to the NLL of standardized targets for that in the user's units."""
        return 0.0 if self.target_scaling is None else math.fsum(self.target_scaling.std.log().flatten().tolist())

    def inputs(self, value: Any) -> Any:
        """Return inputs as tensors for the network."""
        raw = self._raw(value)
        if self.input_scaling is not None:
            if not isinstance(raw, Tensor):
                raise DataError(f"inputs of type {type(value).__name__}; the model was trained on one table or array")
            return self.input_scaling.scale(raw, self.dtype, "inputs")
        return raw.to(self.dtype) if isinstance(raw, Tensor) and raw.is_floating_point() else raw

    def targets(self, value: Any) -> Tensor:
        """Return targets as a tensor: class numbers, or numbers, scaled if training scaled them."""
        cells = _target_cells(value)
        if self.class_names is not None:
            return _class_numbers(cells, self.class_names)
        if self.target_scaling is not None:
            return self.target_scaling.scale(_real_targets(cells), self.dtype, "targets")
        targets = _numeric(cells)
        return targets.to(self.dtype) if targets.is_floating_point() else targets

    def restore(self, prediction: Any) -> Any:
        """Return a prediction in the user's units, with the user's names of classes."""
        if self.class_names is not None and hasattr(prediction, "probabilities"):
            known = prediction.probabilities.shape[-1] == len(self.class_names)
            return dataclasses.replace(prediction, class_names=self.class_names) if known else prediction
        if self.target_scaling is None:
            return prediction
        return prediction.rescaled(self.target_scaling.std, self.target_scaling.mean)

    def _raw(self, value: Any) -> Any:
        if self.columns is not None:
            return torch.from_numpy(table_matrix(self.columns, value))
        if is_frame(value):
            cells = read_table(value)
            for name, column in cells.items():
                if column.dtype.kind == "O" or np.isnan(column).any():
                    raise DataError(f"column '{name}' has texts or missing cells, but the model was trained on arrays")
            return torch.from_numpy(np.stack(list(cells.values()), axis=1))
        return as_tensors(value)

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready data; ``from_json`` inverts it."""
        return {
            "format": _FORMAT,
            "columns": None if self.columns is None else [dataclasses.asdict(column) for column in self.columns],
            "input_scaling": None if self.input_scaling is None else self.input_scaling.to_json(),
            "target_scaling": None if self.target_scaling is None else self.target_scaling.to_json(),
            "class_names": self.class_names,
            "dtype": str(self.dtype).removeprefix("torch."),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Preparation:
        """Return what ``to_json`` described; FileError for anything else."""
        try:
            if record["format"] != _FORMAT:
                raise ValueError(f"format {record['format']!r} is not {_FORMAT}")
            columns, names = record["columns"], record["class_names"]
            inputs, targets = (
                None if record[key] is None else Scaling.from_json(record[key])
                for key in ("input_scaling", "target_scaling")
            )
            return cls(
                None if columns is None else tuple(_column(column) for column in columns),
                inputs,
                targets,
                None if names is None else tuple(map(str, names)),
                _DTYPES[record["dtype"]],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise FileError(f"the saved preparation of the data is not valid: {error}") from error


_DTYPES = {name: getattr(torch, name) for name in ("float32", "float64", "float16", "bfloat16")}


def _column(record: Mapping[str, Any]) -> Column:
    categories = record["categories"]
    known = None if categories is None else tuple(map(str, categories))
    return Column(str(record["name"]), bool(record["missing"]), float(record["mean"]), known)


def _target_cells(value: Any) -> Any:
    """Return a tensor or a numpy array of numbers, booleans or texts (objects); missing targets are refused."""
    if isinstance(value, Tensor):
        return as_tensor(value, "targets")
    if is_frame(value):
        columns = read_table(value)
        cells = np.stack(list(columns.values()), axis=1) if len(columns) > 1 else next(iter(columns.values()))
        cells = _typed(cells, value[next(iter(value.columns))]) if len(columns) == 1 else cells
    elif is_series(value):
        cells = _typed(read_cells(value, "targets"), value)
    else:
        texts = not isinstance(value, np.ma.MaskedArray) and np.asarray(value).dtype.kind in "OUST"
        array = np.asarray(value, dtype=object) if texts else as_tensor(value, "targets").numpy()
        cells = read_cells(array.reshape(-1), "targets") if array.dtype.kind in "OUST" else array
    missing = [cell is None for cell in cells] if cells.dtype.kind == "O" else []
    missing = np.isnan(cells).reshape(len(cells), -1).any(1).tolist() if cells.dtype.kind == "f" else missing
    if any(missing):
        raise DataError(f"targets: row {missing.index(True)} is missing ({sum(missing)} in all); drop such rows")
    return cells


def _typed(cells: Any, series: Any) -> Any:
    kind = str(getattr(series, "dtype", "")).lower()
    if cells.dtype.kind == "f" and not np.isnan(cells).any():
        if kind.startswith("bool"):
            return cells.astype(bool)
        if kind.startswith(("int", "uint")):
            return cells.astype(np.int64)
    return cells


def _class_names(cells: Any, given: Any, kind: str | None) -> tuple[str, ...] | None:
    # Integers have names where they come from a frame or series and are not 0, 1, ..., K - 1.
    if cells.dtype in (torch.bool, np.dtype(bool)) and cells.ndim == 1:
        return None if kind == REAL else BOOLEANS
    if isinstance(cells, Tensor):
        return None
    if cells.dtype.kind == "O":
        names = tuple(sorted(set(cells.tolist())))
        if kind == REAL:
            raise DataError(f"targets: '{names[0]:.40}' is a text, but the likelihood needs numbers")
    elif kind == CLASSES and cells.dtype.kind == "i" and cells.ndim == 1 and not isinstance(given, np.ndarray | list):
        values = np.unique(cells)
        names = tuple(str(value) for value in values.tolist())
        if values[0] == 0 and values[-1] == len(values) - 1:
            return None
    else:
        return None
    if len(names) < 2:
        raise DataError(f"targets: every one is '{names[0]:.40}'; there must be at least two classes")
    return names


def _class_numbers(cells: Any, names: tuple[str, ...]) -> Tensor:
    places = {name: place for place, name in enumerate(names)}
    if names == BOOLEANS:
        places |= {"0": 0, "1": 1}
    texts = [as_text(cell) for cell in cells.reshape(-1).tolist()]
    for row, text in enumerate(texts):
        if text not in places:
            raise DataError(f"targets: row {row}: unknown class '{text:.40}'; {nearest(text, names)}")
    return torch.tensor([places[text] for text in texts], dtype=torch.int64)


def _numeric(cells: Any) -> Tensor:
    if isinstance(cells, np.ndarray) and cells.dtype.kind == "O":
        raise DataError(f"targets: '{cells[0]:.40}' is a text, but the model was trained on numbers")
    return torch.as_tensor(cells)


def _real_targets(cells: Any) -> Tensor:
    targets = _numeric(cells)
    if targets.dim() not in (1, 2):
        raise DataError(f"standardize: targets of shape {tuple(targets.shape)}; give (n,) or (n, outputs)")
    check_range(targets.double().reshape(-1).cpu().numpy(), "targets")
    return targets
