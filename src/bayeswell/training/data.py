"""Data as the loop wants them: batches of inputs and targets, in an order that the seed decides."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sized
from typing import Any, Protocol

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

    @property
    def shown(self) -> int:
        """How many examples an epoch shows: N, but for a loader that drops its last batch."""
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
        self.examples = self.shown = len(targets)
        self.count = math.ceil(self.examples / self.batch_size)

    def epoch(self, generator: torch.Generator | None) -> Iterator[tuple[Inputs, Tensor]]:
        """One shuffled pass."""
        for chosen in torch.randperm(self.examples, generator=generator).split(self.batch_size):
            yield _take(self.inputs, chosen), self.targets[chosen]


class LoaderBatches:
    """A DataLoader as it is: its own order, workers and collation."""

    def __init__(self, loader: DataLoader[Any], dtype: torch.dtype | None) -> None:
        if not isinstance(loader.sampler, Sized) or len(loader.sampler) == 0 or len(loader) == 0:
            raise DataError("the DataLoader shows no batch: its data are empty, or fewer than a batch that it drops")
        self.loader, self.dtype = loader, dtype
        self.examples, self.count = len(loader.sampler), len(loader)
        dropping = loader.drop_last and loader.batch_size is not None
        self.shown = self.count * (loader.batch_size or 1) if dropping else self.examples

    def epoch(self, generator: torch.Generator | None) -> Iterator[tuple[Inputs, Tensor]]:
        """One pass in the loader's own order."""
        for batch in self.loader:
            inputs, targets = _pair(batch)
            yield _as_tensors(inputs, self.dtype), _as_tensors(targets, self.dtype)


class DatasetBatches:
    """A map-style data set: examples are collated batch by batch."""

    def __init__(self, dataset: Dataset[Any], batch_size: int, dtype: torch.dtype | None) -> None:
        require_count("data", "batch_size", batch_size)
        if not isinstance(dataset, Sized) or len(dataset) == 0:
            raise DataError("the data set is empty or does not tell its length")
        self.dataset, self.dtype = dataset, dtype
        self.examples = self.shown = len(dataset)
        self.batch_size = min(batch_size, self.examples)
        self.count = math.ceil(self.examples / self.batch_size)

    def epoch(self, generator: torch.Generator | None) -> Iterator[tuple[Inputs, Tensor]]:
        """One shuffled pass."""
        for chosen in torch.randperm(self.examples, generator=generator).split(self.batch_size):
            inputs, targets = _pair(default_collate([self.dataset[index] for index in chosen.tolist()]))
            yield _as_tensors(inputs, self.dtype), _as_tensors(targets, self.dtype)


def as_batches(data: Any, batch_size: int, dtype: torch.dtype | None = None) -> Batches:
    """Batches from ``(inputs, targets)`` as tensors or arrays, from a Dataset or from a DataLoader.

    Real numbers take the given dtype (the network's); whole numbers (labels, tokens) stay as they are.
    """
    if isinstance(data, DataLoader):
        return LoaderBatches(data, dtype)
    if isinstance(data, Dataset):
        return DatasetBatches(data, batch_size, dtype)
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise DataError(
            f"data of type {type(data).__name__}; give (inputs, targets) as tensors or arrays, a Dataset, a DataLoader"
        )
    inputs, targets = _as_tensors(data[0], dtype), _as_tensors(data[1], dtype)
    if not isinstance(targets, Tensor) or targets.dim() == 0:
        raise DataError(f"targets of type {type(data[1]).__name__}; give a tensor or array with one target an example")
    _require_equal_length(inputs, len(targets))
    return TensorBatches(inputs, targets, batch_size)


def _pair(batch: Any) -> tuple[Any, Any]:
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        count = f"{len(batch)} parts" if isinstance(batch, tuple | list) else type(batch).__name__
        raise DataError(f"a batch of {count}; it must be (inputs, targets): put several inputs into a tuple or mapping")
    return batch[0], batch[1]


def _as_tensors(value: Any, dtype: torch.dtype | None) -> Any:
    if isinstance(value, Mapping):
        return {key: _as_tensors(part, dtype) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return tuple(_as_tensors(part, dtype) for part in value)
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            raise DataError("an array of objects cannot be trained on; give numbers")
        value = torch.from_numpy(np.ascontiguousarray(value))
    if isinstance(value, Tensor):
        return value.to(dtype) if dtype is not None and value.is_floating_point() else value
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
