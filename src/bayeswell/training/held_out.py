"""Held-out data in any of the forms in which training data come, read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..batches import Collated, Columns, is_source, read_all
from ..errors import DataError, SettingError
from ..fingerprint import sha256_of
from ..types import Inputs
from .data import TensorBatches, as_batches
from .examples import as_tensors, first_examples
from .scores import HeldOutScores, validation_on


@dataclass(frozen=True)
class HeldOutData:
    """Inputs and targets in memory, and their checksum."""

    inputs: Inputs
    targets: Tensor
    sha256: str

    def first(self, count: int) -> tuple[Inputs, Tensor]:
        """Some of the examples."""
        if isinstance(self.inputs, Collated):
            count = min(count, self.inputs.sizes[0])
        return first_examples(self.inputs, count), self.targets[:count]

    def scores(self, draws: int) -> HeldOutScores:
        """What measures a model on them."""
        return validation_on(self.inputs, self.targets, draws=draws)


def read_held_out(data: Any, columns: Columns, dtype: torch.dtype | None, what: str = "validation") -> HeldOutData:
    """``(inputs, targets)``, columns by name, a loader or a data set; without example weights."""
    if not is_source(data):
        if not isinstance(data, tuple | list | Mapping):
            raise DataError(
                f"{what} of type {type(data).__name__}; give held-out (inputs, targets), columns or a loader"
            )
        pairs = as_batches(data, 1, dtype, columns=columns)
        if not isinstance(pairs, TensorBatches) or pairs.weights is not None:
            raise SettingError(f"{what} must be (inputs, targets), columns, a data set or a loader, without weights")
        return HeldOutData(pairs.inputs, pairs.targets, sha256_of(data))
    parts = read_all(data, columns)
    if parts.targets is None or parts.weights is not None:
        fault = "no targets" if parts.targets is None else "weights, which are not for held-out data"
        raise DataError(f"{what}: the batches of the {type(data).__name__} have {fault}; give (inputs, targets)")
    targets = as_tensors(parts.targets, dtype)
    if isinstance(parts.inputs, Collated):
        pieces = tuple(as_tensors(piece, dtype) for piece in parts.inputs.pieces)
        inputs: Inputs = Collated(pieces, parts.inputs.sizes)
        return HeldOutData(inputs, targets, sha256_of((*pieces, targets)))
    inputs = as_tensors(parts.inputs, dtype)
    return HeldOutData(inputs, targets, sha256_of((inputs, targets)))
