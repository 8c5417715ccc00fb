"""Training data as batches of inputs, targets and example weights, in an order that a seed decides.

An epoch is a function of its seed alone and can be entered at any batch, so a resumed run meets the same examples.
A last batch of one example is added to the batch before it: BatchNorm cannot normalize a single example.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from ..core.errors import DataError, SettingError, check_integer
from ..core.protocols import Inputs
from ..core.pytree import tree_cat, tree_index, tree_map, tree_tensors
from ..core.random import derive_seed, make_generator
from ..tables import as_tensors, as_weights
from .columns import Columns, is_columnar, read_columns

Augment = Callable[[Any, torch.Generator], Any]
"""Changes the inputs of a batch at random: (inputs, generator) -> inputs."""


class Batch(NamedTuple):
    inputs: Inputs
    targets: Tensor
    sample_weight: Tensor | None = None


class TensorData:
    """Tensors in memory.

    ``examples`` is N, ``batches`` the number M of batches in an epoch, ``shown`` the examples that an epoch shows: N
    unless a loader drops its last batch. Integer inputs are converted to ``to_real``; None: they stay.
    """

    def __init__(
        self, batch: Batch, batch_size: int | None, augment: Augment | None = None, *, shuffle: bool = True
    ) -> None:
        self.all, self.augment, self.shuffle = batch, augment, shuffle
        self.to_real: torch.dtype | None = None
        self.examples = self.shown = len(batch.targets)
        if self.examples == 0:
            raise DataError("the data are empty: there is no training example")
        self.batch_size = default_batch_size(self.examples) if batch_size is None else min(batch_size, self.examples)
        self.batches = len(batch_order(self.examples, self.batch_size, None))

    def epoch(self, seed: int, start: int = 0) -> Iterator[Batch]:
        order = batch_order(self.examples, self.batch_size, seed if self.shuffle else None)
        for number in range(start, self.batches):
            batch = self._rows(order[number])
            yield batch if self.augment is None else self._augmented(batch, derive_seed(seed, "augment", number))

    def _rows(self, rows: Tensor) -> Batch:
        inputs, targets, weight = self.all
        inputs = real_inputs(tree_index(inputs, rows), self.to_real)
        return Batch(inputs, targets[rows], None if weight is None else weight[rows])

    def _augmented(self, batch: Batch, seed: int) -> Batch:
        # A generator for each batch: an epoch that is entered in the middle sees the same changes.
        assert self.augment is not None
        inputs = self.augment(batch.inputs, make_generator(seed))
        if not tree_tensors(inputs):
            raise SettingError(f"`augment` must return the changed inputs, got {type(inputs).__name__}")
        return batch._replace(inputs=inputs)

    def first(self) -> Batch:
        batch = self._rows(torch.arange(min(self.batch_size, self.examples)))
        return batch if self.augment is None else self._augmented(batch, 0)

    def some(self, count: int, seed: int) -> Batch:
        return self._rows(torch.randperm(self.examples, generator=make_generator(seed))[:count])

    def describe(self) -> dict[str, Any]:
        return {"inputs": self.all.inputs, "targets": self.all.targets, "weights": self.all.sample_weight}


class LoaderData:
    """A Dataset or DataLoader, read batch by batch, with workers that live through all epochs.

    The sampler is asked for the order of an epoch before any batch is read. Each batch has random streams of its own,
    so its examples do not depend on the worker that reads it. The loader's generators are restored.
    """

    def __init__(self, loader: DataLoader[Any], columns: Columns, dtype: torch.dtype | None) -> None:
        self.loader, self.examples, size = loader, _loader_examples(loader), loader.batch_size
        self._own_iter = type(loader).__iter__ is not DataLoader.__iter__
        drops = size is not None and loader.drop_last
        self._lone = size is not None and not drops and not self._own_iter and self.examples % size == 1 < size
        self._lone = self._lone and len(loader) > 1
        self.batches = len(loader) - self._lone
        self.shown = self.batches * size if size is not None and drops else self.examples
        self.to_real: torch.dtype | None = None
        self._columns, self._dtype = columns, dtype
        self._tasks: list[tuple[int, Any]] = []
        self._reader: DataLoader[Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_reader": None}

    def _make_reader(self) -> DataLoader[Any]:
        loader = self.loader
        workers: dict[str, Any] = {}
        if loader.num_workers:
            names = ("num_workers", "timeout", "worker_init_fn", "multiprocessing_context", "prefetch_factor")
            workers = {name: getattr(loader, name) for name in names} | {"persistent_workers": True}
        reader = _Reader(loader.dataset, loader.collate_fn)
        workers |= {"pin_memory": loader.pin_memory, "generator": make_generator(0)}
        return DataLoader(reader, None, sampler=self._tasks, collate_fn=_identity, **workers)

    def epoch(self, seed: int, start: int = 0) -> Iterator[Batch]:
        if self._own_iter:
            yield from self._as_it_comes(seed, start)
            return
        order = self._order(seed)
        self._tasks[:] = [(derive_seed(seed, "examples", i), rows) for i, rows in enumerate(order)][start:]
        if self._reader is None:
            self._reader = self._make_reader()
        for batch in self._reader:
            yield self._batch(batch)
        if len(order) < self.batches:
            raise DataError(f"the DataLoader ended after {len(order)} of {self.batches} batches")

    def _order(self, seed: int) -> list[Any]:
        loader, inner = self.loader, getattr(self.loader.batch_sampler, "sampler", None)
        owners = (loader, loader.sampler, loader.batch_sampler, inner)
        generators = {id(g): g for g in (getattr(o, "generator", None) for o in owners) if g is not None}
        states = {key: generator.get_state() for key, generator in generators.items()}
        try:
            for generator in generators.values():
                generator.manual_seed(derive_seed(seed, "loader"))
            with seeded_streams(derive_seed(seed, "order")):
                order = list(islice(loader.batch_sampler, len(loader)))  # type: ignore[arg-type]
        finally:
            for key, generator in generators.items():
                generator.set_state(states[key])
        if self._lone and len(order) > self.batches:
            order[-2:] = [[*order[-2], *order[-1]]]
        return order

    def _as_it_comes(self, seed: int, start: int) -> Iterator[Batch]:
        """A loader with an ``__iter__`` of its own: batches before ``start`` are read and dropped."""
        with seeded_streams(derive_seed(seed, "examples")):
            batches = iter(self.loader)
        for number in range(self.batches):
            with seeded_streams(derive_seed(seed, "examples", number)):
                batch = next(batches, None)
            if batch is None:
                raise DataError(f"the DataLoader ended after {number} of {self.batches} batches")
            if number >= start:
                yield self._batch(batch)

    def _batch(self, batch: Any) -> Batch:
        inputs, targets, weight = as_batch(batch, self._columns, self._dtype)
        return Batch(real_inputs(inputs, self.to_real), targets, weight)

    def first(self) -> Batch:
        if self._own_iter:
            return next(self._as_it_comes(0, 0))
        task = (0, self._order(0)[0])
        return self._batch(_Reader(self.loader.dataset, self.loader.collate_fn)[task])

    def some(self, count: int, seed: int) -> Batch:
        """Random examples, from the first batches of a pass; batches that are padded apart stay apart."""
        found: list[Batch] = []
        for batch in self.epoch(seed):
            found.append(batch)
            if sum(len(one.targets) for one in found) >= count:
                break
        weights = [one.sample_weight for one in found]
        try:
            inputs, targets = tree_cat([one.inputs for one in found]), torch.cat([one.targets for one in found])
        except RuntimeError:
            return found[0]
        return Batch(inputs, targets, None if weights[0] is None else torch.cat([w for w in weights if w is not None]))

    def describe(self) -> dict[str, Any]:
        """Length, sampler and up to eight examples; other changes of a data set are the user's care."""
        loader = self.loader
        sampler = type(getattr(loader.batch_sampler, "sampler", loader.sampler)).__name__
        with seeded_streams(0):
            places = sorted({round(i * (self.examples - 1) / 7) for i in range(8)})
            some = [loader.dataset[place] for place in places]
        how = {"batch_size": loader.batch_size, "drop_last": loader.drop_last, "sampler": sampler}
        return {"examples": self.examples, **how, "some examples": some}


Data = TensorData | LoaderData


class _Reader(Dataset[Any]):
    """Reads and collates one batch from (seed, rows); handed to worker processes."""

    def __init__(self, dataset: Any, collate: Callable[[Any], Any]) -> None:
        self.dataset, self.collate = dataset, collate

    def __getitem__(self, task: tuple[int, Any]) -> Any:
        seed, rows = task
        together = getattr(self.dataset, "__getitems__", None)
        with seeded_streams(seed):
            if is_columnar(self.dataset) and self.collate is default_collate:
                return read_columns(self.dataset, rows)
            return self.collate(together(rows) if together else [self.dataset[row] for row in rows])


class _Shuffled:
    """A batch sampler whose order the seed of torch's global stream decides."""

    def __init__(self, examples: int, batch_size: int) -> None:
        self.examples, self.batch_size = examples, batch_size

    def __len__(self) -> int:
        return len(batch_order(self.examples, self.batch_size, None))

    def __iter__(self) -> Iterator[list[int]]:
        seed = int(torch.randint(0, 2**62, ()))
        return (rows.tolist() for rows in batch_order(self.examples, self.batch_size, seed))


def as_data(
    data: Any,
    columns: Columns,
    dtype: torch.dtype | None = None,
    *,
    batch_size: int | None = None,
    augment: Augment | None = None,
) -> Data:
    """Return the batches of ``data``: (inputs, targets[, weights]), columns by name, a Dataset or a DataLoader."""
    if batch_size is not None:
        batch_size = check_integer("fit", "batch_size", batch_size)
    if isinstance(data, DataLoader | Dataset) or is_columnar(data):
        if augment is not None:
            raise SettingError(
                "`augment` works on tensors in memory; a Dataset or DataLoader changes its examples itself"
            )
        return LoaderData(_as_loader(data, batch_size), columns, dtype)
    if isinstance(data, Mapping):
        data = columns.split(data, required=True)
    return TensorData(as_batch(data, columns, dtype), batch_size, augment)


def as_batch(batch: Any, columns: Columns, dtype: torch.dtype | None) -> Batch:
    """Return (inputs, targets[, weights]) or a mapping of columns as tensors; floating numbers take the dtype."""
    if isinstance(batch, Mapping):
        batch = columns.split(batch, required=True)
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        kind = f"{len(batch)} parts" if isinstance(batch, tuple | list) else f"type {type(batch).__name__}"
        raise DataError(
            f"data of {kind}; give (inputs, targets) or (inputs, targets, weights), columns by name with their target, "
            "a Dataset or a DataLoader; several inputs go into a tuple or mapping"
        )
    inputs, targets = as_tensors(batch[0], dtype, "inputs"), as_tensors(batch[1], dtype, "targets")
    if not isinstance(targets, Tensor) or targets.dim() == 0:
        raise DataError(
            f"targets of type {type(batch[1]).__name__}; give a tensor or array with one target per example"
        )
    found = tree_tensors(inputs)
    if not found or found[0].dim() == 0:
        raise DataError(f"inputs of type {type(batch[0]).__name__}; give a tensor or array with one row per example")
    for part in found:
        if part.dim() and len(part) != len(targets):
            raise DataError(f"{len(part)} inputs but {len(targets)} targets; there must be one target for each input")
    if len(batch) == 2:
        return Batch(inputs, targets)
    return Batch(inputs, targets, as_weights(batch[2], len(targets), dtype or torch.get_default_dtype()))


def held_out(data: Any, columns: Columns, dtype: torch.dtype | None, name: str = "validation") -> Data:
    """Return data that are read in order and whole; ``name`` begins the messages of errors."""
    try:
        if isinstance(data, DataLoader | Dataset) or is_columnar(data):
            return LoaderData(_as_loader(data, 1000, shuffle=False), columns, dtype)
        return TensorData(as_batch(data, columns, dtype), 1000, shuffle=False)
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def pieces(batch: Batch, count: int, least: int = 1) -> Iterator[Batch]:
    """Cut a batch into at most ``count`` parts of at least ``least`` examples."""
    size = len(batch.targets)
    count = min(count, max(1, size // least))
    if count == 1:
        yield batch
        return
    for i in range(count):
        part = slice(size * i // count, size * (i + 1) // count)
        weight = None if batch.sample_weight is None else batch.sample_weight[part]
        yield Batch(tree_index(batch.inputs, part), batch.targets[part], weight)


def default_batch_size(examples: int) -> int:
    """100, or a fiftieth of fewer data, but 16 at least: about fifty steps in an epoch."""
    return min(examples, 100, max(16, examples // 50))


def batch_order(examples: int, batch_size: int, seed: int | None) -> list[Tensor]:
    """Return the rows of each batch; ``seed`` None keeps the order of the data."""
    rows = torch.arange(examples) if seed is None else torch.randperm(examples, generator=make_generator(seed))
    order = list(rows.split(batch_size))
    if len(order) > 1 and len(order[-1]) == 1 < batch_size:
        order[-2:] = [torch.cat(order[-2:])]
    return order


def real_inputs(inputs: Inputs, dtype: torch.dtype | None) -> Inputs:
    """Return inputs with integers converted to ``dtype`` (None: as they are)."""
    return inputs if dtype is None else tree_map(lambda t: t if t.is_floating_point() else t.to(dtype), inputs)


@contextmanager
def seeded_streams(seed: int) -> Iterator[None]:
    """Seed the global streams of torch, numpy and ``random`` inside the block and restore them after it."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.default_generator.manual_seed(seed)  # of the CPU alone
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])


def _as_loader(data: Any, batch_size: int | None, *, shuffle: bool = True) -> DataLoader[Any]:
    if isinstance(data, DataLoader):
        if isinstance(data.dataset, IterableDataset):
            raise DataError("a DataLoader of an IterableDataset does not tell the number of examples; give a Dataset")
        if data.batch_sampler is None:
            raise DataError("a DataLoader with batch_size=None does not tell the number of examples; give batches")
        if len(data) == 0:
            raise DataError("the DataLoader has no batch: its data are empty, or fewer than a batch that it drops")
        return data
    if not isinstance(data, Sized) or len(data) == 0:
        raise DataError(f"the data set {type(data).__name__} is empty or does not tell its length")
    size = default_batch_size(len(data)) if batch_size is None else min(batch_size, len(data))
    if not shuffle:
        return DataLoader(data, size)  # type: ignore[arg-type]
    return DataLoader(data, batch_sampler=_Shuffled(len(data), size))  # type: ignore[arg-type]


def _loader_examples(loader: DataLoader[Any]) -> int:
    source = loader.sampler if isinstance(loader.sampler, Sized) else loader.dataset
    return len(source)  # type: ignore[arg-type]


def _identity(batch: Any) -> Any:
    return batch
