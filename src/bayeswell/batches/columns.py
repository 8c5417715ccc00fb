"""Batches of named columns, ``{"input_ids": ..., "attention_mask": ..., "labels": ...}``, and data sets made of them.

The column of the targets is found by its name, or named by ``target``; all others go to the network as keywords. Those
that its ``forward`` does not take are left out with a word, as are texts, which no network takes.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from ..errors import BayeswellWarning, DataError, nearest

TARGETS = ("labels", "label", "targets", "target", "y")
_ALWAYS_TARGETS = ("labels", "label")
"""Also where the network takes them as a keyword: those of Hugging Face compute a loss of their own from them."""


def keywords_of(net: Any) -> frozenset[str] | None:
    """The names of the arguments of a network's ``forward``; None: it takes any (``**kwargs``)."""
    net = getattr(net, "net", net) if hasattr(net, "posterior") else net
    if not isinstance(net, nn.Module):
        return None
    try:
        found = inspect.signature(net.forward).parameters.values()
    except (TypeError, ValueError):  # compiled code
        return None
    if any(one.kind is one.VAR_KEYWORD for one in found):
        return None
    return frozenset(one.name for one in found if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY))


def is_columns(data: Any) -> bool:
    """Whether it is a data set of named columns (Hugging Face ``datasets``): by what it can do, not by its class."""
    return all(hasattr(data, name) for name in ("column_names", "features", "__getitem__", "__len__")) and not (
        isinstance(data, Mapping)
    )


class Columns:
    """How columns are split into inputs and targets, for one network."""

    def __init__(self, net: Any = None, target: str | None = None) -> None:
        self.target, self.keywords = target, keywords_of(net)
        self._told: set[str] = set()

    def target_of(self, names: Sequence[str]) -> str | None:
        """The column of the targets; None if there is none."""
        if self.target is not None:
            if self.target not in names:
                raise DataError(f"target = {self.target!r} is no column; {nearest(self.target, map(str, names))}")
            return self.target
        inputs = frozenset[str]() if self.keywords is None else self.keywords - {*_ALWAYS_TARGETS}
        found = [name for name in TARGETS if name in names and name not in inputs]
        if len(found) > 1:
            raise DataError(f"columns {found} could all be the targets; say which: target={found[0]!r}")
        return found[0] if found else None

    @staticmethod
    def refuse_splits(batch: Mapping[str, Any]) -> None:
        """A mapping of data sets is not one of columns."""
        splits = [name for name, values in batch.items() if is_columns(values) or isinstance(values, Dataset)]
        if splits:
            raise DataError(f"several data sets ({', '.join(map(str, splits))}); give one of them: data[{splits[0]!r}]")

    def split(self, batch: Mapping[str, Any]) -> tuple[Any, Any]:
        """Inputs for the network, and targets (None without)."""
        key = self.target_of(list(batch))
        texts = [name for name, values in batch.items() if _is_text(values)]
        rest = {name: values for name, values in batch.items() if name != key and name not in texts}
        unknown = [] if self.keywords is None else [name for name in rest if name not in self.keywords]
        if len(rest) == len(unknown) == 1:  # the only input there is, whatever the network calls it
            return next(iter(rest.values())), None if key is None else batch[key]
        inputs = {name: values for name, values in rest.items() if name not in unknown}
        if not inputs:
            takes = "any" if self.keywords is None else ", ".join(sorted(self.keywords))
            raise DataError(
                f"columns {', '.join(map(str, batch))}: none of them is an input that the network takes ({takes})"
            )
        self._tell([*texts, *unknown])
        return inputs, None if key is None else batch[key]

    def inputs_of(self, batch: Mapping[str, Any]) -> Any:
        """Inputs given by name; a batch with targets among them is split, other names are the network's to refuse."""
        return batch if self.target_of(list(batch)) is None else self.split(batch)[0]

    def require_target(self, names: Sequence[str]) -> None:
        """Refuse columns without targets, where they are needed."""
        if self.target_of(names) is None:
            raise DataError(
                f"columns {', '.join(map(str, names))}: which of them is the target? name it: target='...' (found "
                f"without: {', '.join(TARGETS)})"
            )

    def _tell(self, left_out: Sequence[str]) -> None:
        new = [name for name in left_out if name not in self._told]
        if new:
            self._told.update(new)
            words = ", ".join(map(repr, new))
            warnings.warn(f"columns left out, which the network does not take: {words}", BayeswellWarning, stacklevel=2)


def read_columns(dataset: Any, indices: Sequence[int]) -> dict[str, Any]:
    """Some examples of a data set of columns, as tensors (texts as lists)."""
    return {name: _column(name, values, indices) for name, values in dataset[list(indices)].items()}


def _column(name: str, values: Any, indices: Sequence[int]) -> Any:
    if isinstance(values, Tensor) or _is_text(values):
        return values
    empty = [row for row, value in zip(indices, values, strict=False) if value is None]
    if empty:
        raise DataError(f"column '{name}': row {empty[0]} of the data set is empty (None); fill or leave out such rows")
    try:
        if isinstance(values, list) and values and isinstance(values[0], Tensor):
            return torch.stack(values)
        array = np.asarray(values)
    except (ValueError, RuntimeError):
        array = np.empty(0, dtype=object)
    if array.dtype.kind in "biufc":
        return torch.from_numpy(np.ascontiguousarray(array))
    lengths = sorted({len(value) for value in values if hasattr(value, "__len__")})
    if len(lengths) > 1:
        raise DataError(
            f"column '{name}': examples of unequal lengths ({lengths[0]} to {lengths[-1]}); pad them when made "
            "(padding='max_length'), or give a DataLoader whose collate_fn pads each batch"
        )
    kind = type(values[0]).__name__ if len(values) else "nothing"
    raise DataError(f"column '{name}' holds {kind}; a network takes numbers: dataset.with_format('torch'), or map it")


def _is_text(values: Any) -> bool:
    if isinstance(values, np.ndarray):
        return values.dtype.kind in "US"
    return isinstance(values, list | tuple) and bool(values) and isinstance(values[0], str | bytes)
