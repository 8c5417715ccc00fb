"""Training data as batches of inputs, targets and example weights, in an order that a seed decides.

An epoch is a function of its seed alone and can be entered at any batch, so a resumed run meets the same examples.
A last batch of one example is added to the batch before it: BatchNorm cannot normalize a single example.
"""

from __future__ import annotations

import inspect
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from ..core.errors import DataError, DataWarning, SettingError, check_integer, nearest
from ..core.protocols import Inputs
from ..core.pytree import tree_cat, tree_index, tree_map, tree_tensors
from ..core.random import derive_seed, make_generator
from ..tables import as_tensors, as_weights

TARGETS = ("labels", "label", "targets", "target", "y")
Augment = Callable[[Any, torch.Generator], Any]
"""Changes the inputs of a batch at random: (inputs, generator) -> inputs."""


class Batch(NamedTuple):
    inputs: Inputs
    targets: Tensor
    sample_weight: Tensor | None = None

    def rows(self, rows: Any) -> Batch:
        """Return the chosen examples."""
        weight = None if self.sample_weight is None else self.sample_weight[rows]
        inputs = self.inputs[rows] if isinstance(self.inputs, Tensor) else tree_index(self.inputs, rows)
        return Batch(inputs, self.targets[rows], weight)


class TensorData:
    """Tensors in memory.

    ``examples`` is N, ``batches`` the number M of batches in an epoch, ``shown`` the examples that an epoch shows: N
    unless a loader drops its last batch. Integer inputs are converted to ``to_real``; None: they stay.
    """

    def __init__(
        self, batch: Batch, batch_size: int | None = None, augment: Augment | None = None, *, shuffle: bool = True
    ) -> None:
        self.all, self.asked_size, self.augment, self.shuffle = batch, batch_size, augment, shuffle
        self.to_real: torch.dtype | None = None
        self.examples = self.shown = len(batch.targets)
        if self.examples == 0:
            raise DataError("the data are empty: there is no training example")
        self.batch_size = min(batch_size or default_batch_size(self.examples), self.examples)
        self.batches = len(batch_order(self.examples, self.batch_size, None))

    def epoch(self, seed: int, start: int = 0) -> Iterator[Batch]:
        order = batch_order(self.examples, self.batch_size, seed if self.shuffle else None)
        for number in range(start, self.batches):
            yield self._batch(order[number], derive_seed(seed, "augment", number) if self.augment else 0)

    def first(self) -> Batch:
        return self._batch(torch.arange(self.batch_size), 0)

    def some(self, count: int, seed: int) -> Batch:
        """Return random examples as they are."""
        rows = torch.randperm(self.examples, generator=make_generator(seed))[:count]
        return as_real(self.all.rows(rows), self.to_real)

    def part(self, rows: Tensor) -> TensorData:
        """Return some of the data with the same settings."""
        return TensorData(self.all.rows(rows), self.asked_size, self.augment, shuffle=self.shuffle)

    def describe(self) -> dict[str, Any]:
        data = {"inputs": self.all.inputs, "targets": self.all.targets, "weights": self.all.sample_weight}
        return {**data, "batch_size": self.asked_size, "augment": self.augment}

    def _batch(self, rows: Tensor, seed: int) -> Batch:
        batch = self.all.rows(rows)
        batch = batch if self.to_real is None else as_real(batch, self.to_real)
        if self.augment is None:
            return batch
        # A generator for each batch: an epoch that is entered in the middle sees the same changes.
        inputs = self.augment(batch.inputs, make_generator(seed))
        if not tree_tensors(inputs):
            raise SettingError(f"`augment` must return the changed inputs, got {type(inputs).__name__}")
        return batch._replace(inputs=inputs)


class LoaderData:
    """A Dataset or DataLoader, read batch by batch, with workers that live through all epochs.

    The sampler is asked for the order of an epoch before any batch is read. Each batch has random streams of its own,
    so its examples do not depend on the worker that reads it. The loader's generators are restored.
    """

    def __init__(self, loader: DataLoader[Any], columns: Columns, dtype: torch.dtype | None) -> None:
        source: Any = loader.sampler if isinstance(loader.sampler, Sized) else loader.dataset
        self.loader, self.examples, size = loader, len(source), loader.batch_size
        drops = size is not None and loader.drop_last
        self._lone = size is not None and not drops and self.examples % size == 1 < size and len(loader) > 1
        self.batches = len(loader) - self._lone
        self.shown = self.batches * size if size is not None and drops else self.examples
        self.to_real: torch.dtype | None = None
        self._columns, self._dtype = columns, dtype
        self._tasks: list[tuple[int, Any]] = []
        self._reader: DataLoader[Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_reader": None}

    def epoch(self, seed: int, start: int = 0) -> Iterator[Batch]:
        order = self._order(seed)
        self._tasks[:] = [(derive_seed(seed, "examples", i), rows) for i, rows in enumerate(order)][start:]
        if self._reader is None:
            self._reader = self._make_reader()
        for batch in self._reader:
            yield self._batch(batch)
        if len(order) < self.batches:
            raise DataError(f"the DataLoader ended after {len(order)} of {self.batches} batches")

    def first(self) -> Batch:
        return self._batch(_Reader(self.loader.dataset, self.loader.collate_fn)[0, self._order(0)[0]])

    def some(self, count: int, seed: int) -> Batch:
        """Random examples, from the first batches of a pass; batches that are padded apart stay apart."""
        found: list[Batch] = []
        for batch in self.epoch(seed):
            found.append(batch)
            if sum(len(one.targets) for one in found) >= count:
                break
        weights = [one.sample_weight for one in found if one.sample_weight is not None]
        try:
            inputs, targets = tree_cat([one.inputs for one in found]), torch.cat([one.targets for one in found])
        except RuntimeError:
            return found[0]
        return Batch(inputs, targets, torch.cat(weights) if weights else None)

    def describe(self) -> dict[str, Any]:
        """Length, sampler and up to eight examples; other changes of a data set are the user's care."""
        loader = self.loader
        sampler = type(getattr(loader.batch_sampler, "sampler", loader.sampler)).__name__
        with seeded_streams(0):
            places = sorted({round(i * (self.examples - 1) / 7) for i in range(8)})
            some = [loader.dataset[place] for place in places]
        how = {"batch_size": loader.batch_size, "drop_last": loader.drop_last, "sampler": sampler}
        return {"examples": self.examples, **how, "some examples": some}

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

    def _make_reader(self) -> DataLoader[Any]:
        loader = self.loader
        workers: dict[str, Any] = {"pin_memory": loader.pin_memory, "generator": make_generator(0)}
        if loader.num_workers:
            names = ("num_workers", "timeout", "worker_init_fn", "multiprocessing_context", "prefetch_factor")
            workers |= {name: getattr(loader, name) for name in names} | {"persistent_workers": True}
        reader = _Reader(loader.dataset, loader.collate_fn)
        return DataLoader(reader, None, sampler=self._tasks, collate_fn=_identity, **workers)

    def _batch(self, batch: Any) -> Batch:
        return as_real(as_batch(batch, self._columns, self._dtype), self.to_real)


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
                return {name: _column(name, values, rows) for name, values in self.dataset[list(rows)].items()}
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


class Columns:
    """The rule that splits named columns into the inputs of one network and the targets.

    Args:
        net: its ``forward`` says which columns it takes.
        target: name of the target column; None: the first of ``TARGETS`` that the network does not take.
    """

    def __init__(self, net: nn.Module | None = None, target: str | None = None) -> None:
        self.net, self.target = net, target
        self._reported: set[str] = set()

    def split(self, batch: Mapping[str, Any], *, required: bool = False) -> tuple[Any, Any]:
        """Return (inputs, targets); targets are None without a target column."""
        if any(is_columnar(part) or isinstance(part, Dataset) for part in batch.values()):
            raise DataError(f"several data sets ({', '.join(map(str, batch))}); give one of them")
        keywords = _keywords(self.net)
        target = self._target(list(batch), keywords)
        if target is None and required:
            raise DataError(f"no target among the columns {', '.join(map(str, batch))}; name it: target='...'")
        texts = [name for name, values in batch.items() if _is_text(values) and name != target]
        rest = {name: values for name, values in batch.items() if name != target and name not in texts}
        unknown = [] if keywords is None else [name for name in rest if name not in keywords]
        targets = None if target is None else batch[target]
        if len(rest) == len(unknown) == 1:  # the only input, however the network calls it
            return next(iter(rest.values())), targets
        inputs = {name: values for name, values in rest.items() if name not in unknown}
        if not inputs:
            takes = "any name" if keywords is None else ", ".join(sorted(keywords))
            raise DataError(f"none of the columns {', '.join(map(str, batch))} is an input of the network ({takes})")
        unused = [name for name in (*texts, *unknown) if name not in self._reported]
        self._reported.update(unused)
        if unused:
            warnings.warn(f"columns that the network does not take are not used: {unused}", DataWarning, stacklevel=2)
        return inputs, targets

    def _target(self, names: Sequence[str], keywords: frozenset[str] | None) -> str | None:
        if self.target is not None:
            if self.target not in names:
                close = nearest(self.target, map(str, names))
                raise DataError(f"there is no column `target` = {self.target!r}; {close}")
            return self.target
        # Networks of Hugging Face take "labels" too, for a loss that is not used here.
        inputs = (keywords or frozenset()) - {"labels", "label"}
        found = [name for name in TARGETS if name in names and name not in inputs]
        if len(found) > 1:
            raise DataError(f"the columns {found} could all be targets; choose one: target={found[0]!r}")
        return found[0] if found else None


def as_data(
    data: Any,
    columns: Columns,
    dtype: torch.dtype | None = None,
    *,
    batch_size: int | None = None,
    augment: Augment | None = None,
    shuffle: bool = True,
) -> Data:
    """Return the batches of ``data``: (inputs, targets[, weights]), columns by name, a Dataset or a DataLoader."""
    if batch_size is not None:
        batch_size = check_integer("fit", "batch_size", batch_size)
    if isinstance(data, DataLoader | Dataset) or is_columnar(data):
        if augment is not None:
            raise SettingError("`augment` works on tensors in memory; a Dataset or DataLoader changes its examples")
        return LoaderData(_as_loader(data, batch_size, shuffle), columns, dtype)
    return TensorData(as_batch(data, columns, dtype), batch_size, augment, shuffle=shuffle)


def held_out(data: Any, columns: Columns, dtype: torch.dtype | None) -> Data:
    """Return validation data, which are read in order and whole."""
    try:
        return as_data(data, columns, dtype, batch_size=1000, shuffle=False)
    except DataError as error:
        raise DataError(f"validation: {error}") from None


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
    parts = tree_tensors(inputs)
    for name, given, first in (("inputs", batch[0], parts[:1]), ("targets", batch[1], [targets])):
        if not first or not isinstance(first[0], Tensor) or first[0].dim() == 0:
            raise DataError(f"{name} of type {type(given).__name__}; give a tensor or array with one row per example")
    for part in parts:
        if part.dim() and len(part) != len(targets):
            raise DataError(f"{len(part)} inputs but {len(targets)} targets; there must be one target for each input")
    if len(batch) == 2:
        return Batch(inputs, targets)
    return Batch(inputs, targets, as_weights(batch[2], len(targets), dtype or torch.get_default_dtype()))


def as_real(batch: Batch, dtype: torch.dtype | None) -> Batch:
    """Return a batch with integer inputs converted to ``dtype`` (None: as they are)."""
    if dtype is None:
        return batch
    return batch._replace(inputs=tree_map(lambda t: t if t.is_floating_point() else t.to(dtype), batch.inputs))


def pieces(batch: Batch, count: int, least: int = 1) -> Iterator[Batch]:
    """Cut a batch into at most ``count`` parts of at least ``least`` examples."""
    size = len(batch.targets)
    count = min(count, max(1, size // least))
    for i in range(count):
        yield batch if count == 1 else batch.rows(slice(size * i // count, size * (i + 1) // count))


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


def is_columnar(data: Any) -> bool:
    """Return whether ``data`` is a data set of named columns (Hugging Face ``datasets``)."""
    return hasattr(data, "column_names") and hasattr(data, "features") and not isinstance(data, Mapping)


def _as_loader(data: Any, batch_size: int | None, shuffle: bool) -> DataLoader[Any]:
    if isinstance(data, DataLoader):
        reasons = {
            "of an IterableDataset does not tell the number of examples": isinstance(data.dataset, IterableDataset),
            "with batch_size=None does not tell the number of examples": data.batch_sampler is None,
            "with an `__iter__` of its own has no order by seed": type(data).__iter__ is not DataLoader.__iter__,
        }
        for reason, holds in reasons.items():
            if holds:
                raise DataError(f"a DataLoader {reason}; give a Dataset or an ordinary DataLoader with batches")
        if len(data) == 0:
            raise DataError("the DataLoader has no batch: its data are empty, or fewer than a batch that it drops")
        return data
    if not isinstance(data, Sized) or len(data) == 0:
        raise DataError(f"the data set {type(data).__name__} is empty or does not tell its length")
    size = min(batch_size or default_batch_size(len(data)), len(data))
    if not shuffle:
        return DataLoader(data, size)  # type: ignore[arg-type]
    return DataLoader(data, batch_sampler=_Shuffled(len(data), size))  # type: ignore[arg-type]


def _column(name: str, values: Any, rows: Sequence[int]) -> Any:
    if isinstance(values, Tensor) or _is_text(values):
        return values
    empty = [row for row, value in zip(rows, values, strict=False) if value is None]
    if empty:
        raise DataError(f"column '{name}': row {empty[0]} is empty; fill or drop such rows")
    try:
        if isinstance(values[0], Tensor):
            return torch.stack(list(values))
        array = np.asarray(values)
    except (ValueError, RuntimeError):
        raise DataError(
            f"column '{name}' has rows of unequal lengths; pad them (padding='max_length'), or give a DataLoader whose "
            "collate_fn pads each batch"
        ) from None
    if array.dtype.kind not in "biuf":
        raise DataError(f"column '{name}' holds {type(values[0]).__name__}; give numbers: dataset.with_format('torch')")
    return torch.from_numpy(np.ascontiguousarray(array))


def _is_text(values: Any) -> bool:
    if isinstance(values, np.ndarray):
        return values.dtype.kind in "US"
    return isinstance(values, list | tuple) and bool(values) and isinstance(values[0], str | bytes)


def _keywords(net: nn.Module | None) -> frozenset[str] | None:
    if net is None:
        return None
    parameters = inspect.signature(net.forward).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return None
    return frozenset(one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY))


def _identity(batch: Any) -> Any:
    return batch
