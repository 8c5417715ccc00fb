"""Data as the loop wants them: batches of inputs, targets and weights, in an order that the seed decides.

A last batch of a single example is added to the batch before it: BatchNorm cannot normalise one, and its gradient is
noisier than any other's. An epoch's mean objective is exact all the same, since batches count by their sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from itertools import islice
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ..batches import (
    Columns,
    ExampleStream,
    Task,
    examples_in,
    is_source,
    read_examples,
    read_tasks,
    require_source,
    sample_sha256,
)
from ..errors import DataError, SettingError, require_count
from ..fingerprint import sha256_of
from ..nested import taken
from ..objectives.checked import require_finite
from ..predictive.trial import FEW, in_real_numbers
from ..random import derive_seed, make_generator
from ..refusals import with_row
from ..types import Inputs
from .examples import as_tensors, as_weights, batch_parts, column_pair, require_equal_length

Augment = Callable[[Tensor, torch.Generator], Tensor]
"""Changes the inputs of a batch at random: (inputs, generator) -> inputs."""

Batch = tuple[Inputs, Tensor, Tensor | None]
"""Inputs, targets, and how often each example counts (S,); None: once."""


class Batches:
    """Training data in batches. An epoch is decided by its seed alone, and can be entered at any batch.

    ``examples`` is N, ``count`` the number M of batches of an epoch, ``shown`` how many examples an epoch shows: N, but
    for a loader that drops its last batch. ``lasting``: whether nobody writes into the targets of a batch after it.
    """

    lasting: ClassVar[bool] = False

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

    lasting: ClassVar[bool] = True

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
            yield self._cut(chosen[batch], seed, batch)

    def _cut(self, rows: Tensor, seed: int, batch: int) -> Batch:
        inputs = taken(self.inputs, rows)
        if self.augment is not None:
            # A generator for each batch: whoever enters in the middle, or reads it elsewhere, sees the same changes.
            inputs = self.augment(inputs, make_generator(derive_seed(seed, "augment", batch)))
        return inputs, self.targets[rows], None if self.weights is None else self.weights[rows]

    def fingerprint(self) -> str:
        """SHA-256 of all inputs and targets, and of the weights if there are any."""
        weights = () if self.weights is None else (self.weights,)
        return sha256_of((self.inputs, self.targets, *weights))


class WorkerBatches(TensorBatches):
    """Tensors in memory that worker processes cut and augment: bit for bit the batches that none of them gives."""

    def __init__(
        self, inputs: Inputs, targets: Tensor, batch_size: int, augment: Augment | None = None, workers: int = 1
    ) -> None:
        super().__init__(inputs, targets, batch_size, augment)
        self.workers = workers

    def weighted(self, seed: int, start: int = 0) -> Iterator[Batch]:
        """One shuffled pass."""
        chosen = _order(self.examples, self.batch_size, seed)
        tasks = [Task((chosen[batch].tolist(), seed, batch), 0) for batch in range(start, self.count)]
        yield from read_tasks(self._read, tasks, derive_seed(seed, "workers"), num_workers=self.workers)

    def _read(self, which: tuple[list[int], int, int]) -> Batch:
        return self._cut(torch.tensor(which[0]), *which[1:])


class ReadBatches(Batches):
    """Batches that are read as they are met, here or by workers; a bad one is named by its place in the data set."""

    columns: Columns
    dtype: torch.dtype | None
    as_real: frozenset[str] = frozenset()
    check: Callable[[Tensor], None] | None = None

    def few(self) -> tuple[Inputs, Tensor]:
        """The first two examples, read apart from any epoch."""
        raise NotImplementedError

    def _parts(self, batch: Any, rows: Sequence[int] | None) -> Batch:
        inputs, targets, weights = batch_parts(batch, self.dtype, self.columns)
        try:
            require_finite("the inputs", inputs)
            if self.check is not None:
                self.check(targets)
        except DataError as error:
            raise with_row(error, rows) from None
        return in_real_numbers(inputs, self.as_real, self.dtype), targets, weights


class LoaderBatches(ReadBatches):
    """A DataLoader as it is: its own sampler, workers and collation; its shuffling follows the seed.

    What its sampler draws is known before anything is read: so an epoch can be entered at any batch, each batch has a
    random stream of its own, whoever reads it, and a bad example can be named.
    """

    def __init__(self, loader: DataLoader[Any], dtype: torch.dtype | None, columns: Columns | None = None) -> None:
        require_source(loader)
        self.loader, self.dtype, self.columns = loader, dtype, columns or Columns()
        self.examples, self.count = examples_in(loader), len(loader)
        dropping = loader.drop_last and loader.batch_size is not None
        self.shown = self.count * (loader.batch_size or 1) if dropping else self.examples

    def weighted(self, seed: int, start: int = 0) -> Iterator[Batch]:
        """One pass."""
        loader = self.loader
        for generator in (loader.generator, getattr(loader.sampler, "generator", None)):
            if isinstance(generator, torch.Generator):
                generator.manual_seed(derive_seed(seed, "loader"))
        if type(loader).__iter__ is not DataLoader.__iter__:
            yield from self._as_it_comes(seed, start)
            return
        sampler = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
        # Samplers draw from torch's global stream: from one of the epoch's own, so that nothing depends on what was
        # before. Not from the stream of the run: examples that are read ahead or again would shift its dropout masks.
        with ExampleStream(derive_seed(seed, "examples")).entered():
            drawn = list(islice(sampler, self.count))
        tasks = [Task(rows, derive_seed(seed, "examples", batch)) for batch, rows in enumerate(drawn)][start:]
        read = read_examples(loader.dataset, loader.collate_fn)
        how = {name: getattr(loader, name) for name in _HOW if hasattr(loader, name)}
        for rows, batch in zip(
            drawn[start:], read_tasks(read, tasks, derive_seed(seed, "workers"), **how), strict=True
        ):
            yield self._parts(batch, rows if isinstance(rows, list) else None)
        if len(drawn) < self.count:
            raise DataError(f"the DataLoader ended after {len(drawn)} batches; it had promised {self.count}")

    def _as_it_comes(self, seed: int, start: int) -> Iterator[Batch]:
        """A loader with a way of its own to go through its data; batches before ``start`` are read and left out."""
        stream = ExampleStream(derive_seed(seed, "examples"))
        with stream.entered():
            reader = iter(self.loader)
        for index in range(self.count):
            with stream.entered():
                batch = next(reader, None)
            if batch is None:
                raise DataError(f"the DataLoader ended after {index} batches; it had promised {self.count}")
            if index >= start:
                yield self._parts(batch, None)

    def few(self) -> tuple[Inputs, Tensor]:
        """The first examples; of a loader with a way of its own the first batch."""
        loader, own = self.loader, type(self.loader).__iter__ is not DataLoader.__iter__
        if own:
            return next(iter(self._as_it_comes(0, 0)))[:2]
        read = read_examples(loader.dataset, loader.collate_fn)
        with ExampleStream(0).entered():
            if loader.batch_sampler is None:
                return batch_parts(read(0), self.dtype, self.columns)[:2]
            try:
                batch = read(list(range(min(FEW, self.examples))))
            except Exception:  # a collation that asks for whole batches
                batch = read(list(range(min(loader.batch_size or FEW, self.examples))))
        return batch_parts(batch, self.dtype, self.columns)[:2]

    def fingerprint(self) -> str:
        """SHA-256 of the length and of three examples of the data set, and of how they are put into batches."""
        loader = self.loader
        how = (loader.batch_size, loader.drop_last, type(loader.sampler).__name__, self.count)
        return sha256_of((sample_sha256(loader.dataset, self.examples), how))


_HOW = ("num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "prefetch_factor")
"""What of a loader says how, not what, it reads."""


class DatasetBatches(ReadBatches):
    """A map-style data set, or one of columns: examples are collated batch by batch."""

    def __init__(
        self, dataset: Any, batch_size: int, dtype: torch.dtype | None, columns: Columns | None = None
    ) -> None:
        require_count("data", "batch_size", batch_size)
        require_source(dataset)
        self.dataset, self.dtype, self.columns = dataset, dtype, columns or Columns()
        self.examples = self.shown = len(dataset)
        self.batch_size = min(batch_size, self.examples)
        self.count = batch_count(self.examples, batch_size)

    def weighted(self, seed: int, start: int = 0) -> Iterator[Batch]:
        """One shuffled pass."""
        chosen = _order(self.examples, self.batch_size, seed)
        read = read_examples(self.dataset)
        for batch in range(start, self.count):
            rows = chosen[batch].tolist()
            # As in a loader, what an example draws at random comes from a stream of its own.
            with ExampleStream(derive_seed(seed, "examples", batch)).entered():
                collated = read(rows)
            yield self._parts(collated, rows)

    def few(self) -> tuple[Inputs, Tensor]:
        """The first two examples."""
        with ExampleStream(0).entered():
            batch = read_examples(self.dataset)(list(range(min(FEW, self.examples))))
        return batch_parts(batch, self.dtype, self.columns)[:2]

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
    data: Any,
    batch_size: int | None,
    dtype: torch.dtype | None = None,
    augment: Augment | None = None,
    columns: Columns | None = None,
) -> Batches:
    """Batches from ``(inputs, targets)`` as tensors or arrays, from columns by name, a Dataset or a DataLoader.

    A third part, ``(inputs, targets, weights)``, says how often each example counts: a weight of 2 is the example met
    twice. N stays the number of examples: N total = sum_n weight_n nll_n + KL. Real numbers take the given dtype (the
    network's); whole numbers (labels, tokens) stay as they are. Without a batch size it is the usual one. Columns are
    split as ``columns`` says: which is the target, what the network takes. Batches that are some already stay so.
    """
    columns = columns or Columns()
    if isinstance(data, Batches):
        return data
    if is_source(data):
        if augment is not None:
            raise SettingError("augment works on tensors; a Dataset or DataLoader changes its examples itself")
        if isinstance(data, DataLoader):
            return LoaderBatches(data, dtype, columns)
        size = usual_batch_size(len(data) if isinstance(data, Sized) else 0) if batch_size is None else batch_size
        return DatasetBatches(data, size, dtype, columns)
    if isinstance(data, Mapping):
        data = column_pair(data, columns)
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        found = f"{len(data)} parts" if isinstance(data, tuple | list) else f"type {type(data).__name__}"
        raise DataError(
            f"data of {found}; give (inputs, targets) or (inputs, targets, weights) as tensors or arrays, columns by "
            "name with the targets among them, a Dataset, a DataLoader"
        )
    if data[1] is None:
        raise DataError("the targets are None (NoneType); give one target for each input")
    inputs, targets = as_tensors(data[0], dtype), as_tensors(data[1], dtype)
    if not isinstance(targets, Tensor) or targets.dim() == 0:
        raise DataError(f"targets of type {type(data[1]).__name__}; give a tensor or array with one target an example")
    require_equal_length(inputs, len(targets))
    weights = as_weights(data[2], len(targets), dtype) if len(data) == 3 else None
    if weights is not None and len(weights) and not bool(weights.any()):
        raise DataError("the weights of all examples are 0: there is nothing to learn from")
    size = usual_batch_size(len(targets)) if batch_size is None else batch_size
    return TensorBatches(inputs, targets, size, augment, weights)
