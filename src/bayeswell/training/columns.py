"""Named columns: ``{"input_ids": ..., "attention_mask": ..., "labels": ...}``, and Hugging Face data sets."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from ..core.errors import DataError, DataWarning, nearest

TARGETS = ("labels", "label", "targets", "target", "y")


def is_columnar(data: Any) -> bool:
    """Return whether ``data`` is a data set of named columns (Hugging Face ``datasets``)."""
    members = ("column_names", "features", "__getitem__", "__len__")
    return not isinstance(data, Mapping) and all(hasattr(data, member) for member in members)


class Columns:
    """The rule that splits columns into the inputs of one network and the targets.

    Args:
        net: its ``forward`` says which columns it takes.
        target: name of the target column; None: the first of ``TARGETS`` that the network does not take.
    """

    def __init__(self, net: nn.Module | None = None, target: str | None = None) -> None:
        self.target, self.keywords = target, _keywords(net)
        self._reported: set[str] = set()

    def split(self, batch: Mapping[str, Any], *, required: bool = False) -> tuple[Any, Any]:
        """Return (inputs, targets); targets are None without a target column."""
        if any(is_columnar(part) or isinstance(part, Dataset) for part in batch.values()):
            raise DataError(f"several data sets ({', '.join(map(str, batch))}); give one of them")
        target = self._target(list(batch))
        if target is None and required:
            raise DataError(f"no target among the columns {', '.join(map(str, batch))}; name it: target='...'")
        texts = [name for name, values in batch.items() if _is_text(values) and name != target]
        rest = {name: values for name, values in batch.items() if name != target and name not in texts}
        unknown = [] if self.keywords is None else [name for name in rest if name not in self.keywords]
        targets = None if target is None else batch[target]
        if len(rest) == len(unknown) == 1:  # the only input, however the network calls it
            return next(iter(rest.values())), targets
        inputs = {name: values for name, values in rest.items() if name not in unknown}
        if not inputs:
            takes = "any name" if self.keywords is None else ", ".join(sorted(self.keywords))
            raise DataError(f"none of the columns {', '.join(map(str, batch))} is an input of the network ({takes})")
        self._report([*texts, *unknown])
        return inputs, targets

    def _target(self, names: Sequence[str]) -> str | None:
        if self.target is not None:
            if self.target not in names:
                raise DataError(
                    f"there is no column `target` = {self.target!r}; {nearest(self.target, map(str, names))}"
                )
            return self.target
        # Networks of Hugging Face take "labels" too, for a loss that is not used here.
        inputs = (self.keywords or frozenset()) - {"labels", "label"}
        found = [name for name in TARGETS if name in names and name not in inputs]
        if len(found) > 1:
            raise DataError(f"the columns {found} could all be targets; choose one: target={found[0]!r}")
        return found[0] if found else None

    def _report(self, unused: Sequence[str]) -> None:
        new = [name for name in unused if name not in self._reported]
        self._reported.update(new)
        if new:
            warnings.warn(f"columns that the network does not take are not used: {new}", DataWarning, stacklevel=2)


def read_columns(dataset: Any, rows: Sequence[int]) -> dict[str, Any]:
    return {name: _column(name, values, rows) for name, values in dataset[list(rows)].items()}


def _column(name: str, values: Any, rows: Sequence[int]) -> Any:
    if isinstance(values, Tensor) or _is_text(values):
        return values
    empty = [row for row, value in zip(rows, values, strict=False) if value is None]
    if empty:
        raise DataError(f"column '{name}': row {empty[0]} is empty; fill or drop such rows")
    try:
        if isinstance(values[0], Tensor):
            return torch.stack(list(values))
        array = np.asarray(values)
    except (ValueError, RuntimeError):
        raise DataError(
            f"column '{name}' has rows of unequal lengths; pad them (padding='max_length'), or give a DataLoader whose "
            "collate_fn pads each batch"
        ) from None
    if array.dtype.kind not in "biuf":
        raise DataError(f"column '{name}' holds {type(values[0]).__name__}; give numbers: dataset.with_format('torch')")
    return torch.from_numpy(np.ascontiguousarray(array))


def _is_text(values: Any) -> bool:
    if isinstance(values, np.ndarray):
        return values.dtype.kind in "US"
    return isinstance(values, list | tuple) and bool(values) and isinstance(values[0], str | bytes)


def _keywords(net: Any) -> frozenset[str] | None:
    """The argument names of ``forward``; None if it takes any."""
    if net is None:
        return None
    try:
        parameters = inspect.signature(net.forward).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return None
    return frozenset(one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY))
