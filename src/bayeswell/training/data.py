"""Data as the loop wants them: batches of inputs and targets, in an order that the seed decides."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, default_collate

from ..errors import DataError, SettingError, require_count
from ..fingerprint import sha256_of
from ..random import derive_seed, make_generator
from ..types import Inputs

Augment = Callable[[Tensor, torch.Generator], Tensor]
"""Changes the inputs of a batch at random: (inputs, generator) -> inputs."""


class Batches(Protocol):
    """Training data in batches. An epoch is decided by its seed alone, and can be entered at any batch."""

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

    def epoch(self, seed: int, start: int = 0) -> Iterator[tuple[Inputs, Tensor]]:
        """One pass over the data in the order of the seed, from batch ``start`` on."""
        ...

    def fingerprint(self) -> str:
        """SHA-256 of the data: the same for the same numbers."""
        ...


class TensorBatches:
    """Tensors in memory: shuffling and cutting are one indexing operation a batch."""

    def __init__(self, inputs: Inputs, targets: Tensor, batch_size: int, augment: Augment | None = None) -> None:
        require_count("data", "batch_size", batch_size)
        if len(targets) == 0:
            raise DataError("the data are empty: there is no training example")
        self.inputs, self.targets, self.augment = inputs, targets, augment
        self.batch_size = min(batch_size, len(targets))
        self.examples = self.shown = len(targets)
        self.count = math.ceil(self.examples / self.batch_size)

    def epoch(self, seed: int, start: int = 0) -> Iterator[tuple[Inputs, Tensor]]:
        """One shuffled pass."""
        chosen = _order(self.examples, self.batch_size, seed)
        for batch in range(start, self.count):
            inputs = _take(self.inputs, chosen[batch])
            if self.augment is not None:
                # A generator for each batch: whoever enters in the middle sees the same changes.
                inputs = self.augment(inputs, make_generator(derive_seed(seed, "augment", batch)))
            yield inputs, self.targets[chosen[batch]]

    def fingerprint(self) -> str:
        """SHA-256 of all inputs and targets."""
        return sha256_of((self.inputs, self.targets))


class LoaderBatches:
    """A DataLoader as it is: its own sampler, workers and collation; its shuffling follows the seed."""

    def __init__(self, loader: DataLoader[Any], dtype: torch.dtype | None) -> None:
        if not isinstance(loader.sampler, Sized) or len(loader.sampler) == 0 or len(loader) == 0:
            raise DataError("the DataLoader shows no batch: its data are empty, or fewer than a batch that it drops")
        self.loader, self.dtype = loader, dtype
        self.examples, self.count = len(loader.sampler), len(loader)
        dropping = loader.drop_last and loader.batch_size is not None
        self.shown = self.count * (loader.batch_size or 1) if dropping else self.examples

    def epoch(self, seed: int, start: int = 0) -> Iterator[tuple[Inputs, Tensor]]:
        """One pass; batches before ``start`` are read and left out, since a loader cannot be entered in the middle."""
        for generator in (self.loader.generator, getattr(self.loader.sampler, "generator", None)):
            if isinstance(generator, torch.Generator):
                generator.manual_seed(derive_seed(seed, "loader"))
        # Samplers and worker seeds draw from torch's global stream when the pass begins, examples (without workers)
        # whenever one is read: both from a stream of the epoch's own, so that nothing depends on what was before.
        # Not from the stream of the run: examples that are read ahead or again would shift its dropout masks.
        stream = _ExampleStream(derive_seed(seed, "examples"))
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
                inputs, targets = _pair(batch)
                yield _as_tensors(inputs, self.dtype), _as_tensors(targets, self.dtype)

    def fingerprint(self) -> str:
        """SHA-256 of the length and of three examples of the data set, and of how they are put into batches."""
        loader = self.loader
        how = (loader.batch_size, loader.drop_last, type(loader.sampler).__name__, self.count)
        return sha256_of((_sample_sha256(loader.dataset, self.examples), how))


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

    def epoch(self, seed: int, start: int = 0) -> Iterator[tuple[Inputs, Tensor]]:
        """One shuffled pass."""
        chosen = _order(self.examples, self.batch_size, seed)
        for batch in range(start, self.count):
            # As in a loader, what an example draws at random comes from a stream of its own.
            with _ExampleStream(derive_seed(seed, "examples", batch)).entered():
                collated = default_collate([self.dataset[index] for index in chosen[batch].tolist()])
            inputs, targets = _pair(collated)
            yield _as_tensors(inputs, self.dtype), _as_tensors(targets, self.dtype)

    def fingerprint(self) -> str:
        """SHA-256 of the length and of three examples."""
        return _sample_sha256(self.dataset, self.examples)


def _order(examples: int, batch_size: int, seed: int) -> tuple[Tensor, ...]:
    order: tuple[Tensor, ...] = torch.randperm(examples, generator=make_generator(seed)).split(batch_size)
    return order


class _ExampleStream:
    """What examples draw at random while they are read: torch's, numpy's and Python's global generators, seeded."""

    def __init__(self, seed: int) -> None:
        self._torch = torch.Generator().manual_seed(seed).get_state()
        self._numpy: Any = np.random.RandomState(seed % 2**32).get_state()
        self._python: Any = random.Random(seed).getstate()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Let the global generators be this stream, which goes on; afterwards they are as they were."""
        kept = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
        self._set(self._torch, self._numpy, self._python)
        try:
            yield
        finally:
            self._torch, self._numpy, self._python = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
            self._set(*kept)

    @staticmethod
    def _set(of_torch: Tensor, of_numpy: Any, of_python: Any) -> None:
        torch.set_rng_state(of_torch)
        np.random.set_state(of_numpy)  # noqa: NPY002
        random.setstate(of_python)


def _sample_sha256(dataset: Any, examples: int) -> str:
    with _ExampleStream(0).entered():  # examples that change at random do so alike each time
        some = [dataset[index] for index in sorted({0, examples // 2, examples - 1})] if _has_items(dataset) else []
    return sha256_of((examples, some))


def _has_items(dataset: Any) -> bool:
    return hasattr(dataset, "__getitem__")


def usual_batch_size(examples: int) -> int:
    """100, but fewer of fewer data: so that an epoch has about fifty steps, in which there is something to learn."""
    return min(100, max(16, examples // 50))


def as_batches(
    data: Any, batch_size: int | None, dtype: torch.dtype | None = None, augment: Augment | None = None
) -> Batches:
    """Batches from ``(inputs, targets)`` as tensors or arrays, from a Dataset or from a DataLoader.

    Real numbers take the given dtype (the network's); whole numbers (labels, tokens) stay as they are. Without a batch
    size it is the usual one.
    """
    if augment is not None and isinstance(data, DataLoader | Dataset):
        raise SettingError("augment works on tensors; a Dataset or DataLoader changes its examples itself")
    if isinstance(data, DataLoader):
        return LoaderBatches(data, dtype)
    if isinstance(data, Dataset):
        size = usual_batch_size(len(data) if isinstance(data, Sized) else 0) if batch_size is None else batch_size
        return DatasetBatches(data, size, dtype)
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise DataError(
            f"data of type {type(data).__name__}; give (inputs, targets) as tensors or arrays, a Dataset, a DataLoader"
        )
    inputs, targets = _as_tensors(data[0], dtype), _as_tensors(data[1], dtype)
    if not isinstance(targets, Tensor) or targets.dim() == 0:
        raise DataError(f"targets of type {type(data[1]).__name__}; give a tensor or array with one target an example")
    _require_equal_length(inputs, len(targets))
    size = usual_batch_size(len(targets)) if batch_size is None else batch_size
    return TensorBatches(inputs, targets, size, augment)


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
        if value.dtype.kind not in "biufc":
            kind = "objects" if value.dtype == object else str(value.dtype)
            raise DataError(f"an array of {kind} cannot be trained on; give numbers")
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


def part_of(inputs: Inputs, targets: Tensor, start: int, stop: int) -> tuple[Inputs, Tensor]:
    """The examples from ``start`` up to ``stop`` of a batch."""
    if start == 0 and stop == len(targets):
        return inputs, targets
    return _take(inputs, slice(start, stop)), targets[start:stop]


def _take(inputs: Inputs, chosen: Tensor | slice) -> Inputs:
    if isinstance(inputs, Mapping):
        return {key: part[chosen] for key, part in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(part[chosen] for part in inputs)
    return inputs[chosen]


def dtype_of(net: nn.Module) -> torch.dtype | None:
    """The dtype of the network's real parameters, if it has any."""
    return next((p.dtype for p in net.parameters() if p.is_floating_point()), None)
