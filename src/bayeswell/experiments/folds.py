"""K-fold cross-validation: all examples cut into K parts, each of which tests what was trained on the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from ..datasets.data import DataPart, Raw
from ..errors import DataError
from ..random import derive_seed, make_generator
from ..tables import Table


@dataclass(frozen=True, eq=False)
class Fold:
    """A data set whose training and test examples are put together and cut anew; ``number`` from 1 to ``of``.

    Which example is in which part depends on how many there are and on nothing else: every method and every seed meets
    the same folds.
    """

    part: DataPart
    number: int
    of: int

    name: ClassVar[str] = "fold"
    paper: ClassVar[str] = "Stone 1974"
    examples: ClassVar[str] = "any"
    source: ClassVar[str] = "own"

    def read(self, folder: Path | None) -> Raw:
        """The examples of this part as the test, all others to train on, both in the order of the file."""
        raw = self.part.read(folder)
        if raw.train is None:
            raise DataError(f"'{raw.name}' has test examples only: there is nothing to train on in a fold")
        targets = torch.cat([raw.train[1], raw.test[1]])
        inputs = _joined(raw.train[0], raw.test[0])
        if self.of > len(targets):
            raise DataError(f"fold {self.number}/{self.of}: '{raw.name}' has only {len(targets)} examples")
        order = torch.randperm(len(targets), generator=make_generator(derive_seed(self.of, "folds")))
        parts = order.tensor_split(self.of)
        test = parts[self.number - 1].sort().values
        rest = torch.cat([part for place, part in enumerate(parts) if place != self.number - 1]).sort().values
        return replace(raw, train=(inputs[rest], targets[rest]), test=(inputs[test], targets[test]))


def _joined(first: Tensor | Table, second: Tensor | Table) -> Tensor | Table:
    """All inputs; what the columns of a table become is learned later, from the rows that a fold trains on."""
    if isinstance(first, Table) and isinstance(second, Table):
        return first.joined(second)
    assert isinstance(first, Tensor)
    assert isinstance(second, Tensor)
    return torch.cat([first, second])


def folded(part: DataPart, fold: str | None) -> DataPart:
    """The data set itself, or with the fold of this setting (``2/5``)."""
    if fold is None:
        return part
    number, of = map(int, fold.split("/"))
    return Fold(part, number, of)
