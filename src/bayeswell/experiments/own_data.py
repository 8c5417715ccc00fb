"""Data of a program, as a data set like those by name: read, held out, scaled and cut into folds in the same way."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset

from ..datasets.data import Raw, RawPair, shuffled_split
from ..errors import DataError, SettingError
from ..fingerprint import sha256_of
from ..likelihoods import LIKELIHOODS
from ..nested import joined
from ..random import make_generator
from ..tables import Table, is_frame, is_named, table_of, target_cells
from ..tables.targets import names_of, numbers_of_classes
from ..training.data import TensorBatches, as_batches
from .network_code import SHA256

_OF_CLASSES = frozenset({"bernoulli", "categorical"})
_IMAGE = 4


@dataclass(frozen=True, eq=False)
class OwnData:
    """Examples in memory; ``feed`` is the Dataset or DataLoader that is trained on, where one was given.

    ``class_names`` None stands for real targets (n, outputs). Inputs of a data frame are a ``Table``, whose columns are
    made numbers as those of a file are.
    """

    label: str
    train: RawPair
    test: RawPair
    class_names: tuple[str, ...] | None
    feed: Any = None

    name: ClassVar[str] = ":data"
    paper: ClassVar[str] = "your own data"
    examples: ClassVar[str] = "any"
    source: ClassVar[str] = "own"

    @property
    def record(self) -> dict[str, Any]:
        """What an experiment keeps of it: what it is called, and which numbers it holds."""
        parts = [(_plain(inputs), targets) for inputs, targets in (self.train, self.test)]
        return {"name": f":{self.label}", SHA256: sha256_of((*parts, self.class_names))}

    def read(self, folder: Path | None) -> Raw:
        """As ``load_data`` wants it; what may be scaled in place is a copy."""
        inputs = self.train[0]
        if isinstance(inputs, Table):
            return Raw(self.label, "table", self.train, self.test, self.class_names, columns=inputs.names)
        kind = "image" if inputs.dim() == _IMAGE else "table" if inputs.is_floating_point() else "tokens"
        vocabulary = None
        if kind == "tokens":
            vocabulary = int(max(int(x.max()) for x, _ in (self.train, self.test) if isinstance(x, Tensor))) + 1
        train, test = (
            (x.clone() if kind == "image" and isinstance(x, Tensor) else x, y) for x, y in (self.train, self.test)
        )
        return Raw(self.label, kind, train, test, self.class_names, vocabulary)


def own_data(
    data: Any,
    test: Any = 0.25,
    *,
    likelihood: Any = None,
    class_names: Sequence[str] | None = None,
    name: str = "own data",
    split: int = 0,
) -> OwnData:
    """A data set from ``(inputs, targets)`` as tensors, arrays or data frames, a Dataset or a DataLoader.

    ``test``: the same kinds of things, or which share (below 1) or how many of the examples to hold out, drawn by the
    seed ``split``. Whole-number targets are classes, unless the likelihood is one of real numbers or counts.
    """
    if not isinstance(name, str) or not name.strip():
        raise SettingError(f"name = {name!r}; a name for the data")
    data, test, class_names = _numbered(data, test, class_names)
    feed = data if isinstance(data, DataLoader | Dataset) else None
    held_out = isinstance(test, int | float) and not isinstance(test, bool)
    if held_out and isinstance(data, DataLoader):
        raise DataError(
            "data is a DataLoader, of which nothing can be held out: give test=(inputs, targets), or a loader"
        )
    if held_out and feed is not None:
        if not isinstance(data, Sized) or not len(data):
            raise DataError("the data set is empty or does not tell its length")
        order = torch.randperm(len(data), generator=make_generator(split)).tolist()
        kept = len(data) - _count(test, len(data))
        whole: Any = data
        feed, rest = Subset(whole, sorted(order[:kept])), Subset(whole, sorted(order[kept:]))
        pairs = _tensors(feed, "data"), _tensors(rest, "test")
    elif held_out:
        pair = _tensors(data, "data")
        pairs = shuffled_split(*pair, test_share=_count(test, len(pair[1])) / len(pair[1]), seed=split)
    else:
        pairs = _tensors(data, "data"), _tensors(test, "test")
    if _form(pairs[0][0]) != _form(pairs[1][0]):
        raise DataError(f"test inputs are {_form(pairs[1][0])}, training inputs {_form(pairs[0][0])}")
    train, tested, names = _with_targets(pairs, likelihood, class_names)
    return OwnData(name, train, tested, names, feed)


def _count(test: float, examples: int) -> int:
    count = round(test * examples) if 0 < test < 1 else test
    if count != int(count) or not 0 < count < examples:
        raise SettingError(
            f"test = {test!r} of {examples} examples; a share between 0 and 1, or a number below {examples}"
        )
    return int(count)


def _numbered(data: Any, test: Any, class_names: Sequence[str] | None) -> tuple[Any, Any, Sequence[str] | None]:
    """Texts, and True and False, as the numbers of classes; their names, in sorted order, those of all examples."""
    given = [one for one in (data, test) if isinstance(one, tuple | list) and len(one) == 2]
    cells = [target_cells(one[1]) for one in given]
    if not cells or not all(map(is_named, cells)):
        return data, test, class_names
    names = tuple(sorted({name for one in cells for name in names_of(one)}))
    numbered = [(one[0], numbers_of_classes(found, names)) for one, found in zip(given, cells, strict=True)]
    return numbered[0], (numbered[1] if len(numbered) > 1 else test), names


def _form(inputs: Tensor | Table) -> str:
    """What examples must have in common."""
    return f"columns {list(inputs.names)}" if isinstance(inputs, Table) else f"of shape {tuple(inputs.shape[1:])}"


def _plain(inputs: Tensor | Table) -> Any:
    if isinstance(inputs, Tensor):
        return inputs
    return [(name, cells.tolist()) for name, cells in inputs.columns.items()]


def _tensors(data: Any, what: str) -> RawPair:
    if isinstance(data, tuple | list) and len(data) == 2 and is_frame(data[0]):
        table, numbers = table_of(data[0], owner=what), torch.as_tensor(target_cells(data[1]))
        if len(table) != len(numbers):
            raise DataError(f"{what}: {len(table)} rows, but {len(numbers)} targets")
        return table, numbers
    batches = as_batches(data, None)
    if isinstance(batches, TensorBatches):
        inputs, targets, weights = batches.inputs, batches.targets, batches.weights
    else:
        read = list(batches.weighted(0))
        weights = read[0][2]
        try:
            inputs, targets = joined([batch[0] for batch in read]), torch.cat([batch[1] for batch in read])
        except RuntimeError as error:
            raise DataError(f"{what}: its batches cannot be joined, each has a length of its own") from error
    if not isinstance(inputs, Tensor):
        raise DataError(
            f"{what}: inputs of several tensors; comparisons and sweeps take one tensor (use fit for others)"
        )
    if weights is not None:
        raise DataError(f"{what}: examples with weights are for fit; comparisons and sweeps count each once")
    return inputs, targets


def _with_targets(
    pairs: tuple[RawPair, RawPair], likelihood: Any, class_names: Sequence[str] | None
) -> tuple[RawPair, RawPair, tuple[str, ...] | None]:
    """Targets as the rest of the room has them: classes (n,) of int64, or real numbers (n, outputs)."""
    targets = [pair[1] for pair in pairs]
    whole = all(not one.is_floating_point() for one in targets)
    named = None if likelihood is None else LIKELIHOODS.resolve(likelihood).name
    classes = whole if named is None else named in _OF_CLASSES
    (x, y), (tx, ty) = pairs
    if not classes:
        return (x, y.float().reshape(len(y), -1)), (tx, ty.float().reshape(len(ty), -1)), None
    labels = []
    for one in targets:
        flat = one.reshape(len(one), -1)
        if flat.shape[1] != 1 or bool((flat != flat.round()).any()) or int(flat.min()) < 0:
            raise DataError(
                f"targets of shape {tuple(one.shape)} for classes; comparisons and sweeps take one class an "
                "example, as whole numbers from 0"
            )
        labels.append(flat[:, 0].long())
    count = max(int(one.max()) for one in labels) + 1
    names = tuple(map(str, class_names)) if class_names is not None else tuple(map(str, range(count)))
    if len(names) < count:
        raise DataError(f"{len(names)} class_names, but targets go up to {count - 1}")
    return (x, labels[0]), (tx, labels[1]), names
