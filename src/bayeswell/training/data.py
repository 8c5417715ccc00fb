"""Data as the loop wants them: batches of inputs and targets, in an order that the seed decides."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sized
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from ..errors import DataError, require_count
from ..types import Inputs


class Batches(Protocol):
    """Training data in batches."""

    @property
    def examples(self) -> int:
        """N: how many examples there are."""
        ...

    @property
    def count(self) -> int:
        """M: how many batches an epoch has."""
        ...

    def epoch(self, generator: torch.Generator | None) -> Iterator[tuple[Inputs, Tensor]]:
        """One pass over the data, shuffled by the generator."""
        ...


class TensorBatches:
    """Tensors in memory: shuffling and cutting are one indexing operation a batch."""

    def __init__(self, inputs: Inputs, targets: Tensor, batch_size: int) -> None:
        require_count("data", "batch_size", batch_size)
        if len(targets) == 0:
            raise DataError("the data are empty: there is no training example")
        self.inputs, self.targets = inputs, targets
        self.batch_size = min(batch_size, len(targets))

    @property
    def examples(self) -> int:
        """N."""
        return len(self.targets)

    @property
    def count(self) -> int:
        """M."""
        return math.ceil(self.examples / self.batch_size)

    def epoch(self, generator: torch.Generator | None) -> Iterator[tuple[Inputs, Tensor]]:
        """One shuffled pass."""
        for chosen in torch.randperm(self.examples, generator=generator).split(self.batch_size):
            yield _take(self.inputs, chosen), self.targets[chosen]


class LoaderBatches:
    """A DataLoader as it is: its own order, workers and collation."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        if not isinstance(loader.dataset, Sized) or len(loader.dataset) == 0:
            raise DataError("the DataLoader's data set is empty or does not tell its length")
        self.loader = loader

    @property
    def examples(self) -> int:
        """N."""
        return len(cast(Sized, self.loader.dataset))

    @property
    def count(self) -> int:
        """M."""
        return len(self.loader)

    def epoch(self, generator: torch.Generator | None) -> Iterator[tuple[Inputs, Tensor]]:
        """One pass in the loader's own order."""
        for batch in self.loader:
            inputs, targets = batch
            yield inputs, targets


class DatasetBatches:
    """A map-style data set: examples are collated batch by batch."""

    def __init__(self, dataset: Dataset[Any], batch_size: int) -> None:
        require_count("data", "batch_size", batch_size)
        if not isinstance(dataset, Sized) or len(dataset) == 0:
            raise DataError("the data set is empty or does not tell its length")
        self.dataset = dataset
        self.batch_size = min(batch_size, self.examples)

    @property
    def examples(self) -> int:
        """N."""
        return len(cast(Sized, self.dataset))

    @property
    def count(self) -> int:
        """M."""
        return math.ceil(self.examples / self.batch_size)

    def epoch(self, generator: torch.Generator | None) -> Iterator[tuple[Inputs, Tensor]]:
        """One shuffled pass."""
        for chosen in torch.randperm(self.examples, generator=generator).split(self.batch_size):
            inputs, targets = default_collate([self.dataset[index] for index in chosen.tolist()])
            yield inputs, targets


def as_batches(data: Any, batch_size: int) -> Batches:
    """Batches from ``(inputs, targets)`` as tensors or arrays, from a Dataset or from a DataLoader."""
    if isinstance(data, DataLoader):
        return LoaderBatches(data)
    if isinstance(data, Dataset):
        return DatasetBatches(data, batch_size)
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise DataError(
            f"data of type {type(data).__name__}; give (inputs, targets) as tensors or arrays, a Dataset, a DataLoader"
        )
    inputs, targets = _as_tensors(data[0]), _as_tensors(data[1])
    if not isinstance(targets, Tensor):
        raise DataError(f"targets of type {type(data[1]).__name__}; give one tensor or array")
    _require_equal_length(inputs, len(targets))
    return TensorBatches(inputs, targets, batch_size)


def _as_tensors(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _as_tensors(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_as_tensors(part) for part in value)
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            raise DataError("an array of objects cannot be trained on; give numbers")
        # torch's networks are float32 unless someone says otherwise.
        return torch.from_numpy(value.astype(np.float32) if value.dtype == np.float64 else np.ascontiguousarray(value))
    raise DataError(f"data of type {type(value).__name__}; give tensors or numpy arrays")


def _require_equal_length(inputs: Any, examples: int) -> None:
    parts = inputs.values() if isinstance(inputs, Mapping) else inputs if isinstance(inputs, tuple) else [inputs]
    for part in parts:
        if len(part) != examples:
            raise DataError(f"{len(part)} inputs but {examples} targets; there must be one target for each input")


def first_examples(inputs: Inputs, count: int) -> Inputs:
    """The first ``count`` examples."""
    return _take(inputs, slice(count))


def _take(inputs: Inputs, chosen: Tensor | slice) -> Inputs:
    if isinstance(inputs, Mapping):
        return {key: part[chosen] for key, part in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(part[chosen] for part in inputs)
    return inputs[chosen]
