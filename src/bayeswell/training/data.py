"""Data as the loop wants them: batches of inputs, targets and weights, in an order that the seed decides.

A last batch of a single example is added to the batch before it: BatchNorm cannot normalise one, and its gradient is
noisier than any other's. An epoch's mean objective is exact all the same, since batches count by their sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from ..errors import DataError, SettingError, require_count
from ..fingerprint import sha256_of
from ..nested import taken
from ..random import derive_seed, make_generator
from ..types import Inputs
from .example_stream import ExampleStream, sample_sha256
from .examples import as_tensors, as_weights, batch_parts, require_equal_length

Augment = Callable[[Tensor, torch.Generator], Tensor]
"""Changes the inputs of a batch at random: (inputs, generator) -> inputs."""

Batch = tuple[Inputs, Tensor, Tensor | None]
"""Inputs, targets, and how often each example counts (S,); None: once."""


class Batches:
    """Training data in batches. An epoch is decided by its seed alone, and can be entered at any batch.

    ``examples`` is N, ``count`` the number M of batches of an epoch, ``shown`` how many examples an epoch shows: N, but
    for a loader that drops its last batch.
    """

    examples: int
    count: int
    shown: int

    def weighted(self, seed: int, start: int = 0) -> Iterator[Batch]:
        """One pass over the data in the order of the seed, from batch ``start`` on."""
        raise NotImplementedError

    def epoch(self, seed: int, start: int = 0) -> Iterator[tuple[Inputs, Tensor]]:
        """The same pass without weights."""
        for inputs, targets, _ in self.weighted(seed, start):
            yield inputs, targets

    def fingerprint(self) -> str:
        """SHA-256 of the data: the same for the same numbers."""
        raise NotImplementedError


class TensorBatches(Batches):
    """Tensors in memory: shuffling and cutting are one indexing operation a batch."""

    def __init__(
        self,
        inputs: Inputs,
        targets: Tensor,
        batch_size: int,
        augment: Augment | None = None,
        weights: Tensor | None = None,
    ) -> None:
        require_count("data", "batch_size", batch_size)
        if len(targets) == 0:
            raise DataError("the data are empty: there is no training example")
        self.inputs, self.targets, self.augment, self.weights = inputs, targets, augment, weights
        self.batch_size = min(batch_size, len(targets))
        self.examples = self.shown = len(targets)
        self.count = batch_count(self.examples, batch_size)

    def weighted(self, seed: int, start: int = 0) -> Iterator[Batch]:
        """One shuffled pass."""
        chosen = _order(self.examples, self.batch_size, seed)
        for batch in range(start, self.count):
            rows = chosen[batch]
            inputs = taken(self.inputs, rows)
            if self.augment is not None:
                # A generator for each batch: whoever enters in the middle sees the same changes.
                inputs = self.augment(inputs, make_generator(derive_seed(seed, "augment", batch)))
            yield inputs, self.targets[rows], None if self.weights is None else self.weights[rows]

    def fingerprint(self) -> str:
        """SHA-256 of all inputs and targets, and of the weights if there are any."""
        weights = () if self.weights is None else (self.weights,)
        return sha256_of((self.inputs, self.targets, *weights))


class LoaderBatches(Batches):
    """A DataLoader as it is: its own sampler, workers and collation; its shuffling follows the seed."""

    def __init__(self, loader: DataLoader[Any], dtype: torch.dtype | None) -> None:
        if not isinstance(loader.sampler, Sized) or len(loader.sampler) == 0 or len(loader) == 0:
            raise DataError("the DataLoader shows no batch: its data are empty, or fewer than a batch that it drops")
        self.loader, self.dtype = loader, dtype
        self.examples, self.count = len(loader.sampler), len(loader)
        dropping = loader.drop_last and loader.batch_size is not None
        self.shown = self.count * (loader.batch_size or 1) if dropping else self.examples

    def weighted(self, seed: int, start: int = 0) -> Iterator[Batch]:
        """One pass; batches before ``start`` are read and left out, since a loader cannot be entered in the middle."""
        for generator in (self.loader.generator, getattr(self.loader.sampler, "generator", None)):
            if isinstance(generator, torch.Generator):
                generator.manual_seed(derive_seed(seed, "loader"))
        # Samplers and worker seeds draw from torch's global stream when the pass begins, examples (without workers)
        # whenever one is read: both from a stream of the epoch's own, so that nothing depends on what was before.
        # Not from the stream of the run: examples that are read ahead or again would shift its dropout masks.
        stream = ExampleStream(derive_seed(seed, "examples"))
        if self.loader.persistent_workers:
            self.loader._iterator = None  # workers that stay would go on from where their own streams are
        with stream.entered():
            reader = iter(self.loader)
        for index in range(self.count):
            with stream.entered():
                batch = next(reader, None)
            if batch is None:
                raise DataError(f"the DataLoader ended after {index} batches; it had promised {self.count}")
            if index >= start:
                yield batch_parts(batch, self.dtype)

    def fingerprint(self) -> str:
        """SHA-256 of the length and of three examples of the data set, and of how they are put into batches."""
        loader = self.loader
        how = (loader.batch_size, loader.drop_last, type(loader.sampler).__name__, self.count)
        return sha256_of((sample_sha256(loader.dataset, self.examples), how))


class DatasetBatches(Batches):
    """A map-style data set: examples are collated batch by batch."""

    def __init__(self, dataset: Dataset[Any], batch_size: int, dtype: torch.dtype | None) -> None:
        require_count("data", "batch_size", batch_size)
        if not isinstance(dataset, Sized) or len(dataset) == 0:
            raise DataError("the data set is empty or does not tell its length")
        self.dataset, self.dtype = dataset, dtype
        self.examples = self.shown = len(dataset)
        self.batch_size = min(batch_size, self.examples)
        self.count = batch_count(self.examples, batch_size)

    def weighted(self, seed: int, start: int = 0) -> Iterator[Batch]:
        """One shuffled pass."""
        chosen = _order(self.examples, self.batch_size, seed)
        for batch in range(start, self.count):
            # As in a loader, what an example draws at random comes from a stream of its own.
            with ExampleStream(derive_seed(seed, "examples", batch)).entered():
                collated = default_collate([self.dataset[index] for index in chosen[batch].tolist()])
            yield batch_parts(collated, self.dtype)

    def fingerprint(self) -> str:
        """SHA-256 of the length and of three examples."""
        return sample_sha256(self.dataset, self.examples)


def batch_count(examples: int, batch_size: int) -> int:
    """M: how many batches an epoch of so many examples has."""
    whole, rest = divmod(examples, batch_size)
    return max(1, whole if rest == 0 or _lone(examples, batch_size) else whole + 1)


def _lone(examples: int, batch_size: int) -> bool:
    """Whether a single example would be left for the last batch, and can be added to one before it."""
    return 1 < batch_size < examples and examples % batch_size == 1


def _order(examples: int, batch_size: int, seed: int) -> tuple[Tensor, ...]:
    order: tuple[Tensor, ...] = torch.randperm(examples, generator=make_generator(seed)).split(batch_size)
    return (*order[:-2], torch.cat(order[-2:])) if _lone(examples, batch_size) else order


def usual_batch_size(examples: int) -> int:
    """100, but fewer of fewer data: so that an epoch has about fifty steps, in which there is something to learn."""
    return min(100, max(16, examples // 50))


def as_batches(
    data: Any, batch_size: int | None, dtype: torch.dtype | None = None, augment: Augment | None = None
) -> Batches:
    """Batches from ``(inputs, targets)`` as tensors or arrays, from a Dataset or from a DataLoader.

    A third part, ``(inputs, targets, weights)``, says how often each example counts: a weight of 2 is the example met
    twice. N stays the number of examples: N total = sum_n weight_n nll_n + KL. Real numbers take the given dtype (the
    network's); whole numbers (labels, tokens) stay as they are. Without a batch size it is the usual one.
    """
    if augment is not None and isinstance(data, DataLoader | Dataset):
        raise SettingError("augment works on tensors; a Dataset or DataLoader changes its examples itself")
    if isinstance(data, DataLoader):
        return LoaderBatches(data, dtype)
    if isinstance(data, Dataset):
        size = usual_batch_size(len(data) if isinstance(data, Sized) else 0) if batch_size is None else batch_size
        return DatasetBatches(data, size, dtype)
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        found = f"{len(data)} parts" if isinstance(data, tuple | list) else f"type {type(data).__name__}"
        raise DataError(
            f"data of {found}; give (inputs, targets) or (inputs, targets, weights) as tensors or arrays, a Dataset, "
            "a DataLoader"
        )
    inputs, targets = as_tensors(data[0], dtype), as_tensors(data[1], dtype)
    if not isinstance(targets, Tensor) or targets.dim() == 0:
        raise DataError(f"targets of type {type(data[1]).__name__}; give a tensor or array with one target an example")
    require_equal_length(inputs, len(targets))
    weights = as_weights(data[2], len(targets), dtype) if len(data) == 3 else None
    if weights is not None and len(weights) and not bool(weights.any()):
        raise DataError("the weights of all examples are 0: there is nothing to learn from")
    size = usual_batch_size(len(targets)) if batch_size is None else batch_size
    return TensorBatches(inputs, targets, size, augment, weights)
