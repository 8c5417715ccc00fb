"""What a data set is once it is loaded: tensors in memory, split, standardised, with the way back to raw units."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from ..fingerprint import sha256_of
from ..random import derive_seed, make_generator

Pair = tuple[Tensor, Tensor]
"""Inputs and targets of the same examples."""


@dataclass(frozen=True, eq=False)
class Raw:
    """Examples as the files hold them, before standardisation.

    ``kind`` says how inputs are standardised: ``image`` (n, C, H, W) by channel (uint8 stands for value / 255, a float
    is taken as it is), ``table`` (n, features) by feature, ``tokens`` (whole numbers) not at all. Targets are classes
    (int64) if there are ``class_names``, else real numbers (n, outputs). ``train`` is None for a set that only tests.
    ``raw_scale`` is the stored value that became 1 if the reader divided already; ``columns`` and ``target_name`` are
    the names of a table's features and target, where it has any.
    """

    name: str
    kind: str
    train: Pair | None
    test: Pair
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
class Scaling:
    """standardised = (raw - shift) / scale, for inputs and for regression targets; the identity where none is given.

    Raw images are in [0, 1], whatever the file stores. A feature that never changes has scale 1.
    """

    input_shift: Tensor | None = None
    input_scale: Tensor | None = None
    target_shift: Tensor | None = None
    target_scale: Tensor | None = None

    def inputs(self, raw: Tensor) -> Tensor:
        """Raw inputs standardised, as float32 (tokens stay whole numbers)."""
        return _standardised(raw, self.input_shift, self.input_scale)

    def raw_inputs(self, standardised: Tensor) -> Tensor:
        """The way back to raw units."""
        return _raw(standardised, self.input_shift, self.input_scale)

    def targets(self, raw: Tensor) -> Tensor:
        """Raw targets standardised, as float32 (classes stay as they are)."""
        return _standardised(raw, self.target_shift, self.target_scale)

    def raw_targets(self, standardised: Tensor) -> Tensor:
        """Targets, predicted means or draws back in raw units; a std is multiplied by ``target_scale`` alone."""
        return _raw(standardised, self.target_shift, self.target_scale)

    def tensors(self) -> Iterator[Tensor | None]:
        """The four tensors, in order."""
        yield from (self.input_shift, self.input_scale, self.target_shift, self.target_scale)


def _standardised(raw: Tensor, shift: Tensor | None, scale: Tensor | None) -> Tensor:
    if shift is None or scale is None:
        return raw.float() if raw.is_floating_point() else raw
    return ((raw - shift.to(raw.device)) / scale.to(raw.device)).float()


def _raw(standardised: Tensor, shift: Tensor | None, scale: Tensor | None) -> Tensor:
    if shift is None or scale is None:
        return standardised
    return (standardised * scale.to(standardised.device) + shift.to(standardised.device)).to(standardised.dtype)


@dataclass(frozen=True, eq=False)
class Data:
    """A data set ready to learn from: inputs float32 (tokens int64), targets int64 classes or float32 (n, outputs).

    ``raw_scale`` is the stored value that stands for 1: 255 for pixels kept as bytes, 16 for those of digits, 1 where
    numbers are taken as they are. ``columns`` and ``target_name`` are names of a table's features and target, where it
    has any.
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

    def fingerprint(self) -> str:
        """SHA-256 over every tensor and name: any changed number, order or name changes it."""
        names = (self.name, self.input_shape, self.outputs, self.likelihood, self.class_names, self.vocabulary)
        pairs = (self.train, self.validation or (None, None), self.test)
        return sha256_of((json.dumps(names), pairs, tuple(self.scaling.tensors())))


def split_in_two(pair: Pair, count: int, *, seed: int | None) -> tuple[Pair, Pair]:
    """The rest and ``count`` held out: drawn by the seed (both keep the order of the file), or the last of the file."""
    inputs, targets = pair
    kept = len(targets) - count
    if seed is None:
        return (inputs[:kept], targets[:kept]), (inputs[kept:], targets[kept:])
    order = torch.randperm(len(targets), generator=make_generator(derive_seed(seed, "validation")))
    rest, held = order[:kept].sort().values, order[kept:].sort().values
    return (inputs[rest], targets[rest]), (inputs[held], targets[held])


def shuffled_split(inputs: Tensor, targets: Tensor, *, test_share: float, seed: int) -> tuple[Pair, Pair]:
    """Train and test in an order that the seed decides; round(share * n) examples are for the test."""
    order = torch.randperm(len(targets), generator=make_generator(seed))
    count = len(targets) - round(test_share * len(targets))
    train, test = order[:count], order[count:]
    return (inputs[train], targets[train]), (inputs[test], targets[test])


def scaling_of(kind: str, train: Pair, *, classes: bool) -> Scaling:
    """Shift and scale from training examples alone: nothing of validation or test leaks into them.

    Images: mean and std (n - 1) of each channel in float32. Tables and targets: mean and std (n) of each column in
    float64, as the studies of the UCI sets do.
    """
    inputs, targets = train
    shift: Tensor | None = None
    scale: Tensor | None = None
    if kind == "image":
        channels = [inputs[:, channel] for channel in range(inputs.shape[1])]
        shift = torch.stack([channel.mean() for channel in channels])[:, None, None]
        scale = torch.stack([channel.std() for channel in channels])[:, None, None]
        scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    elif kind == "table":
        shift, scale = _column_scaling(inputs)
    if classes:
        return Scaling(shift, scale)
    return Scaling(shift, scale, *_column_scaling(targets))


def _column_scaling(columns: Tensor) -> tuple[Tensor, Tensor]:
    columns = columns.double()
    std = columns.std(dim=0, correction=0)
    # Compared by value: rounding can give a column that never changes a std of 1e-14, and dividing by it, noise.
    constant = columns.amax(dim=0) == columns.amin(dim=0)
    return columns.mean(dim=0), torch.where(constant, torch.ones_like(std), std)
