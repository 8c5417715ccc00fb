"""What a data set is once it is loaded: tensors in memory, split, standardised, with the way back to raw units."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

import torch
from torch import Tensor

from ..fingerprint import sha256_of
from ..random import derive_seed, make_generator
from ..tables import Columns, Scaling, Table

Pair = tuple[Tensor, Tensor]
"""Inputs and targets of the same examples."""

RawPair = tuple[Tensor | Table, Tensor]
"""Before they are numbers."""

Kept = TypeVar("Kept", Tensor, Tensor | Table)


@dataclass(frozen=True, eq=False)
class Raw:
    """Examples as the files hold them, before standardisation.

    ``kind`` says how inputs are standardised: ``image`` (n, C, H, W) by channel (uint8 stands for value / 255, a float
    is taken as it is), ``table`` (n, features) by feature, ``tokens`` (whole numbers) not at all. Targets are classes
    (int64) if there are ``class_names``, else real numbers (n, outputs). ``train`` is None for a set that only tests.
    ``raw_scale`` is the stored value that became 1 if the reader divided already; ``columns`` and ``target_name`` are
    the names of a table's features and target, where it has any. Inputs of a table that is not all numbers are a
    ``Table``: what its columns become is learned from the rows that are left for training.
    """

    name: str
    kind: str
    train: RawPair | None
    test: RawPair
    class_names: tuple[str, ...] | None
    vocabulary: int | None = None
    raw_scale: float = 1.0
    columns: tuple[str, ...] | None = None
    target_name: str | None = None


class DataPart(Protocol):
    """A member of the registry of data sets: settings, and how to read the raw examples."""

    name: ClassVar[str]
    paper: ClassVar[str]
    examples: ClassVar[str]
    source: ClassVar[str]  # "bundled", "files", "own" (the user's path) or "derived" (made from other data)

    def read(self, folder: Path | None) -> Raw:
        """The raw examples; ``folder`` is where files lie, None where they are looked for by default."""
        ...


@dataclass(frozen=True, eq=False)
class Data:
    """A data set ready to learn from: inputs float32 (tokens int64), targets int64 classes or float32 (n, outputs).

    ``raw_scale`` is the stored value that stands for 1: 255 for pixels kept as bytes, 16 for those of digits, 1 where
    numbers are taken as they are. ``columns`` and ``target_name`` are names of a table's features and target, where it
    has any; ``table`` what its columns became, learned from the training rows.
    """

    name: str
    train: Pair
    validation: Pair | None
    test: Pair
    input_shape: tuple[int, ...]
    outputs: int
    likelihood: str
    class_names: tuple[str, ...] | None
    scaling: Scaling
    vocabulary: int | None = None
    raw_scale: float = 1.0
    columns: tuple[str, ...] | None = None
    target_name: str | None = None
    table: Columns | None = None

    def fingerprint(self) -> str:
        """SHA-256 over every tensor and name: any changed number, order or name changes it."""
        names = (self.name, self.input_shape, self.outputs, self.likelihood, self.class_names, self.vocabulary)
        pairs = (self.train, self.validation or (None, None), self.test)
        return sha256_of((json.dumps(names), pairs, tuple(self.scaling.tensors())))


def split_in_two(
    pair: tuple[Kept, Tensor], count: int, *, seed: int | None
) -> tuple[tuple[Kept, Tensor], tuple[Kept, Tensor]]:
    """The rest and ``count`` held out: drawn by the seed (both keep the order of the file), or the last of the file."""
    inputs, targets = pair
    kept = len(targets) - count
    if seed is None:
        return (inputs[:kept], targets[:kept]), (inputs[kept:], targets[kept:])
    order = torch.randperm(len(targets), generator=make_generator(derive_seed(seed, "validation")))
    rest, held = order[:kept].sort().values, order[kept:].sort().values
    return (inputs[rest], targets[rest]), (inputs[held], targets[held])


def shuffled_split(
    inputs: Kept, targets: Tensor, *, test_share: float, seed: int
) -> tuple[tuple[Kept, Tensor], tuple[Kept, Tensor]]:
    """Train and test in an order that the seed decides; round(share * n) examples are for the test."""
    order = torch.randperm(len(targets), generator=make_generator(seed))
    count = len(targets) - round(test_share * len(targets))
    train, test = order[:count], order[count:]
    return (inputs[train], targets[train]), (inputs[test], targets[test])
