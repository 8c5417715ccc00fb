"""Loaders and data sets: recognised, read in order, and their batches split into inputs, targets and weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    default_collate,
)

from ..errors import DataError
from ..nested import joined, taken, tensors_in
from .columns import Columns, is_columns, read_columns
from .example_stream import ExampleStream

_SHUFFLING = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
USUAL_SIZE = 1000


@dataclass(frozen=True)
class Parts:
    """A batch, or all of them: inputs, targets and weights; None where there are none."""

    inputs: Any
    targets: Any = None
    weights: Any = None


class Collated:
    """Inputs of several batches that are each padded to a length of their own, and so cannot be one tensor."""

    def __init__(self, pieces: tuple[Any, ...], sizes: tuple[int, ...]) -> None:
        self.pieces, self.sizes = pieces, sizes

    def __len__(self) -> int:
        return sum(self.sizes)

    def first(self, count: int) -> Any:
        """The first ``count`` examples, or as many of them as the first piece has."""
        return taken(self.pieces[0], slice(count))


def is_source(data: Any) -> bool:
    """Whether it is read batch by batch: a DataLoader, a Dataset, a data set of columns."""
    return isinstance(data, DataLoader | Dataset) or is_columns(data)


def require_source(data: Any) -> None:
    """Refuse what does not tell its length, or is empty."""
    if isinstance(data, DataLoader):
        if isinstance(data.dataset, IterableDataset):
            raise DataError(
                "a DataLoader of an IterableDataset does not tell how many examples there are; give a Dataset with "
                "__len__ and __getitem__"
            )
        if not isinstance(data.sampler, Sized) or len(data.sampler) == 0 or len(data) == 0:
            raise DataError("the DataLoader shows no batch: its data are empty, or fewer than a batch that it drops")
    elif not isinstance(data, Sized) or len(data) == 0:
        raise DataError("the data set is empty or does not tell its length")


def examples_in(data: Any) -> int:
    """How many examples a source has."""
    return len(data.sampler) if isinstance(data, DataLoader) else len(data)  # type: ignore[arg-type]


def read_examples(dataset: Any, collate: Callable[[Any], Any] | None = None) -> Callable[[Any], Any]:
    """A function of places in a data set that reads, and collates, the examples there."""
    return _Reader(dataset, collate)


class _Reader:
    """A class, not a closure: it is handed to worker processes."""

    def __init__(self, dataset: Any, collate: Callable[[Any], Any] | None) -> None:
        self.dataset, self.collate = dataset, collate

    def __call__(self, indices: Any) -> Any:
        dataset = self.dataset
        if self.collate is None and is_columns(dataset):
            return read_columns(dataset, indices)
        collate = self.collate or default_collate
        if not isinstance(indices, list):  # a loader without batches: the data set gives whole ones
            return collate(dataset[indices])
        together = getattr(dataset, "__getitems__", None)
        return collate(together(indices) if together else [dataset[index] for index in indices])


def parts_of(batch: Any, columns: Columns) -> Parts:
    """Inputs, targets and weights of one collated batch, as they are in it."""
    if isinstance(batch, Mapping):
        return Parts(*columns.split(batch))
    if isinstance(batch, Tensor):
        return Parts(batch)
    if isinstance(batch, tuple | list) and 1 <= len(batch) <= 3:
        return Parts(*batch)
    count = f"{len(batch)} parts" if isinstance(batch, tuple | list) else f"type {type(batch).__name__}"
    raise DataError(
        f"a batch of {count}; it must be (inputs, targets), (inputs, targets, weights) or columns by name with the "
        "targets among them: put several inputs into a tuple or mapping"
    )


def read_all(data: Any, columns: Columns, batch_size: int | None = None, *, ordered: bool = False) -> Parts:
    """All examples of a source, held in memory; with ``ordered`` a loader that shuffles is refused.

    Batches of one shape are put together, and can be cut anew; padded ones stay as they are.
    """
    require_source(data)
    if ordered:
        _require_order(data)
    found = [parts_of(batch, columns) for batch in _in_order(data, batch_size)]
    sizes = tuple(_size(part.inputs) for part in found)
    inputs = [part.inputs for part in found]
    try:
        whole = joined(inputs)
    except RuntimeError:  # batches that are each padded to a length of their own
        whole = Collated(tuple(inputs), sizes)
    targets, weights = ([getattr(part, name) for part in found] for name in ("targets", "weights"))
    return Parts(whole, _joined(targets, "targets"), _joined(weights, "weights"))


def _joined(parts: list[Any], name: str) -> Any:
    if any(part is None for part in parts):
        return None
    try:
        return torch.cat([torch.as_tensor(part) for part in parts])
    except (RuntimeError, TypeError, ValueError):
        raise DataError(f"the {name} of the batches have different shapes, or are no numbers; pad them alike") from None


def _in_order(data: Any, batch_size: int | None) -> Iterator[Any]:
    stream = ExampleStream(0)  # examples that change at random do so alike each time, and leave other streams alone
    if isinstance(data, DataLoader):
        with stream.entered():
            reader = iter(data)
        while True:
            with stream.entered():
                batch = next(reader, None)
            if batch is None:
                return
            yield batch
    size, read = batch_size or USUAL_SIZE, read_examples(data)
    for start in range(0, len(data), size):
        with stream.entered():
            batch = read(list(range(start, min(start + size, len(data)))))
        yield batch


def _require_order(data: Any) -> None:
    sampler = getattr(data, "sampler", None)
    batch_sampler = getattr(data, "batch_sampler", None)
    if type(batch_sampler) is BatchSampler:
        sampler = batch_sampler.sampler
    if isinstance(data, DataLoader) and isinstance(sampler, _SHUFFLING):
        raise DataError(
            f"the DataLoader shuffles ({type(sampler).__name__}): predictions would not stand beside your rows; make "
            "it with shuffle=False"
        )


def _size(inputs: Any) -> int:
    return next((len(tensor) for tensor in tensors_in(inputs) if tensor.dim()), 0)
