"""What is done to a user's data before the network sees them, and undone in what it says.

Learned from the training examples, kept with the model as JSON, the same for every door: columns of a table become
numbers (``columns``), numbers get zero mean and unit std (``scaling``), classes have names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError
from .arrays import as_array, is_frame, words
from .columns import Columns
from .numbers import require_usable, warn_of_outliers
from .scaling import Scaling, scaling_of
from .table import Table, table_of
from .targets import is_named, names_of, numbers_of_classes, require_finite, target_cells

_FORMAT = 1
_LARGE = 1e12
_DTYPES = {
    str(one).removeprefix("torch."): one for one in (torch.float32, torch.float64, torch.float16, torch.bfloat16)
}
CLASSES, REAL = "classes", "real"
"""What targets may be said to be; None: whatever they are."""


@dataclass(frozen=True, eq=False)
class Preparation:
    """Learned from training examples by ``learn``; ``inputs`` and ``targets`` go to the network's numbers.

    ``columns`` is None where inputs are arrays, ``class_names`` where targets are numbers. ``tokens`` says that whole
    numbers are words (the network has an embedding) and stay as they are. ``dtype`` is that of the network.
    """

    columns: Columns | None = None
    scaling: Scaling = field(default_factory=Scaling)
    class_names: tuple[str, ...] | None = None
    tokens: bool = False
    dtype: torch.dtype = torch.float32

    @classmethod
    def learn(
        cls,
        inputs: Any,
        targets: Any = None,
        *,
        standardise: bool = False,
        kind: str | None = None,
        scale_targets: bool = True,
        tokens: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> Preparation:
        """From training examples: a data frame or an array, and their targets (None: inputs alone).

        ``kind`` says whether targets are "classes" or "real" numbers; None: texts, True and False are classes, all else
        is left as it is. With ``standardise`` inputs and, with ``scale_targets``, real targets are scaled: tables by
        column, (n, C, H, W) by channel. The 0 and 1 that texts and missing cells become are not scaled.
        """
        cells = None if targets is None else target_cells(targets)
        names = None if cells is None else _class_names(cells, targets, kind)
        columns = None
        if is_frame(inputs) or isinstance(inputs, Table):
            columns = Columns.learn(table_of(inputs))
        found = cls(columns, class_names=names, tokens=tokens, dtype=dtype)
        if not standardise:
            return found
        raw = found._raw_inputs(inputs, real=True)
        real = None
        if scale_targets and cells is not None and names is None and kind != CLASSES:
            real = _columns(torch.as_tensor(cells))
            require_finite(real)
            for output, values in enumerate(real.double().T):
                name = "" if real.shape[1] == 1 else str(output)
                warn_of_outliers(values.cpu().numpy(), words("targets", name), stacklevel=5)
        kind_of_inputs = _kind(raw)
        if columns is None:
            _check(raw)  # a table was looked at column by column
        made = None if columns is None else torch.from_numpy(columns.made)
        return replace(found, scaling=scaling_of(kind_of_inputs, raw, real, as_they_are=made))

    @property
    def features(self) -> tuple[str, ...] | None:
        """The names of the numbers that the network is given; None for arrays, which have no names."""
        return None if self.columns is None else self.columns.features

    @property
    def nll_shift(self) -> float:
        """Nats for each datum to add to an NLL of standardised targets, for that in the user's units."""
        return self.scaling.nll_shift

    def inputs(self, given: Any) -> Any:
        """Inputs as tensors for the network: a frame by its columns' names, numbers scaled."""
        raw = self._raw_inputs(given, real=self.scaling.input_shift is not None)
        if self.scaling.input_shift is None:
            return raw.to(self.dtype) if isinstance(raw, Tensor) and raw.is_floating_point() else raw
        self._require_shape(raw)
        return self.scaling.inputs(raw, self.dtype)

    def targets(self, given: Any) -> Tensor:
        """Targets as a tensor: the numbers of classes, or real numbers scaled."""
        cells = target_cells(given)
        if self.class_names is not None:
            return numbers_of_classes(cells, self.class_names)
        if isinstance(cells, np.ndarray) and cells.dtype.kind == "O":
            raise DataError(f"targets: texts ('{cells[0]!s:.40}'), but the model was trained on numbers")
        targets = torch.as_tensor(cells)
        if self.scaling.target_shift is None:
            return targets.to(self.dtype) if targets.is_floating_point() else targets
        columns = _columns(targets)
        if columns.shape[1] != self.scaling.target_shift.numel():
            wanted = self.scaling.target_shift.numel()
            raise DataError(f"targets of shape {tuple(targets.shape)}; the model was trained on {wanted} an example")
        require_finite(columns)
        return self.scaling.targets(columns.double(), self.dtype).reshape(targets.shape)

    def restore(self, prediction: Any) -> Any:
        """A prediction of the network in the user's units, with the user's names of classes."""
        if self.class_names is not None and hasattr(prediction, "probabilities"):
            known = prediction.probabilities.shape[-1] == len(self.class_names)
            return replace(prediction, class_names=self.class_names) if known else prediction
        if self.scaling.target_shift is None or self.scaling.target_scale is None:
            return prediction
        scale, shift = self.scaling.target_scale, self.scaling.target_shift
        if float(torch.maximum(scale.max(), shift.abs().max())) > _LARGE:  # squares would leave the range of float32
            real = {name: value.double() for name, value in vars(prediction).items() if isinstance(value, Tensor)}
            prediction = replace(prediction, **real)
        return prediction.rescaled(scale, shift)

    def _raw_inputs(self, given: Any, *, real: bool) -> Any:
        """Numbers before they are scaled, float64 from a table; ``real`` makes whole ones real, but for words."""
        if self.columns is not None:
            return torch.from_numpy(self.columns.matrix(self._table(given, self.columns)))
        if is_frame(given):
            given = as_array(given)
        if isinstance(given, Mapping | tuple | list):
            if self.scaling.input_shift is not None:
                raise DataError(f"inputs are a {type(given).__name__}; the model scales one tensor, array or table")
            return given
        raw = torch.as_tensor(as_array(given)) if not isinstance(given, Tensor) else given
        return raw.float() if real and not self.tokens and not raw.is_floating_point() else raw

    def _table(self, given: Any, columns: Columns) -> Table:
        if is_frame(given) or isinstance(given, Mapping | Table):
            return table_of(given, columns.names)
        array = as_array(given)
        shape = tuple(getattr(array, "shape", ()))
        if columns.texts or len(shape) != 2 or shape[1] != len(columns.names):
            found = f"shape {shape}" if shape else f"type {type(given).__name__}"
            raise DataError(
                f"inputs of {found}; the model was trained on a table with the columns {', '.join(columns.names)}: "
                "give a data frame that has them"
            )
        numbers = np.asarray(array.detach().cpu() if isinstance(array, Tensor) else array, np.float64)
        return Table({name: numbers[:, i] for i, name in enumerate(columns.names)}, range(len(numbers)), "inputs")

    def _require_shape(self, raw: Any) -> None:
        shift = self.scaling.input_shift
        assert shift is not None
        wanted = shift.shape[0] if shift.dim() else 1
        fits = raw.dim() == shift.dim() + 1 and raw.shape[1] == wanted if shift.dim() else raw.dim() == 1
        if not fits:
            shape = ", ".join(["n", str(wanted), *["..."] * (shift.dim() - 1)] if shift.dim() else "n")
            raise DataError(f"inputs of shape {tuple(raw.shape)}; the model was trained on ({shape})")

    def as_json(self) -> dict[str, Any]:
        """Plain data, from which ``from_json`` makes the same again."""
        return {
            "format": _FORMAT,
            "columns": None if self.columns is None else self.columns.as_json(),
            "scaling": self.scaling.as_json(),
            "class_names": None if self.class_names is None else list(self.class_names),
            "tokens": self.tokens,
            "dtype": str(self.dtype).removeprefix("torch."),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """What ``as_json`` wrote; ValueError, KeyError or TypeError where it is something else."""
        if record["format"] != _FORMAT:
            raise ValueError(f"preparation of format {record['format']!r}; this version reads {_FORMAT}")
        columns = None if record["columns"] is None else Columns.from_json(record["columns"])
        scaling = Scaling.from_json(record["scaling"])
        shift = scaling.input_shift
        if columns is not None and shift is not None and shift.shape != (len(columns.features),):
            raise ValueError("scaling and columns disagree")
        names = record["class_names"]
        return cls(
            columns, scaling, None if names is None else tuple(map(str, names)), bool(record["tokens"]),
            _DTYPES[record["dtype"]],
        )  # fmt: skip


def _class_names(cells: Any, given: Any, kind: str | None) -> tuple[str, ...] | None:
    """Names of classes: of texts and booleans; of whole numbers in a frame or series that are not 0, 1, ..., K - 1."""
    if is_named(cells):
        if kind == REAL:
            shown = cells.reshape(-1)[0]
            raise DataError(
                f"targets: '{shown!s:.40}' is a class, but the likelihood is of numbers: give numbers, or "
                "likelihood='categorical'"
            )
        names = names_of(cells)
        if len(names) < 2:
            raise DataError(f"targets: every one is '{names[0]}'; there must be two classes or more")
        return names
    own = not isinstance(given, Tensor | np.ndarray)
    if (
        kind != CLASSES
        or not own
        or not isinstance(cells, np.ndarray)
        or cells.ndim != 1
        or cells.dtype.kind not in "iu"
    ):
        return None
    values = np.unique(cells)
    usual = int(values[0]) == 0 and int(values[-1]) == len(values) - 1
    return None if usual or len(values) < 2 else names_of(cells)


def _columns(targets: Tensor) -> Tensor:
    if targets.dim() > 2 or targets.dim() == 0 or targets.is_complex():
        raise DataError(f"standardise: targets of shape {tuple(targets.shape)}; they must be (n,) or (n, outputs)")
    return targets.reshape(len(targets), -1)


def _kind(raw: Any) -> str:
    if not isinstance(raw, Tensor):
        raise DataError(
            f"standardise: inputs are a {type(raw).__name__}; one tensor, array or data frame can be scaled: scale "
            "several yourself"
        )
    if not raw.is_floating_point():
        return "tokens"
    if raw.dim() in {1, 2}:
        return "table"
    if raw.dim() in {4, 5}:
        return "image"
    raise DataError(
        f"standardise: inputs of shape {tuple(raw.shape)}; tables (n, features) are scaled by column, images (n, C, H, "
        "W) by channel: add an axis, or scale them yourself"
    )


def _check(raw: Tensor) -> None:
    """Refuse numbers that have no scale, and tell those that would be all of it."""
    if not raw.is_floating_point():
        return
    if raw.dim() > 2:
        if not bool(raw.isfinite().all()):
            place = [int(index) for index in (~raw.isfinite()).nonzero()[0]]
            raise DataError(f"inputs: {float(raw[tuple(place)])} at index {place}; every number must be finite")
        return
    columns = raw.reshape(len(raw), -1).double()
    for column, values in enumerate(columns.T.cpu().numpy()):
        where = words("inputs", str(column))
        if np.isnan(values).any():
            row = int(np.flatnonzero(np.isnan(values))[0])
            raise DataError(f"{where(row)}: the number is missing (NaN); a data frame may have missing cells")
        require_usable(values, where)
        warn_of_outliers(values, where, stacklevel=6)
