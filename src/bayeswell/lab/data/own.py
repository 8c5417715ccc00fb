"""Data of the user: tables and arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ...core.errors import DataError, check_choice, nearest
from ...tables import as_tensor, is_frame
from .dataset import Raw, RawPair, shuffled_split
from .files import reading

TASKS = ("auto", "classes", "real")
MOST_CLASSES = 20
"""With task "auto", integers of at most so many values are classes."""
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Split:
    """Test examples of data without a test set.

    Args:
        path: of the data.
        task: "classes", "real", or "auto": texts, booleans, and integers of at most 20 values are classes.
        test_share: share of the test examples.
        split: seed of the split.
    """

    path: str = ""
    task: str = "auto"
    test_share: float = 0.25
    split: int = 0

    name: ClassVar[str]
    summary: ClassVar[str]

    def __post_init__(self) -> None:
        check_choice(self.name, "task", self.task, TASKS)
        if not self.path:
            raise DataError(f"data '{self.name}' needs a path: {self.name}:PATH")

    def assemble(self, train: tuple[Any, Any], test: tuple[Any, Any] | None) -> Raw:
        """Return the examples, with classes from the targets of both parts."""
        return assemble(Path(self.path).stem, train, test, self.task, self.test_share, self.split)


@dataclass(frozen=True)
class Table(Split):
    """A csv, tsv or parquet file with one example per row.

    Args:
        target: column of the targets; None: the last one.
        columns: of the inputs; empty: all others.
        drop: columns that are no inputs, such as numbers of patients.
        categories: columns of names that look like numbers.
        test_path: file of the test rows.
    """

    target: str | None = None
    columns: Sequence[str] = ()
    drop: Sequence[str] = ()
    categories: Sequence[str] = ()
    test_path: str | None = None

    name = "table"
    summary = "a csv or parquet file of yours: table:FILE"

    def read(self, folder: str | None) -> Raw:
        train = self._examples(read_table(self.path))
        test = None if self.test_path is None else self._examples(read_table(self.test_path))
        return self.assemble(train, test)

    def _examples(self, table: Any) -> tuple[Any, Any]:
        names = [str(name) for name in table.columns]
        table.columns = names
        target = names[-1] if self.target is None else self.target
        for name in (target, *self.columns, *self.drop, *self.categories):
            if name not in names:
                raise DataError(f"{self.path} has no column '{name}'; {nearest(name, names)}")
        inputs = list(self.columns) or [name for name in names if name != target and name not in self.drop]
        for name in self.categories:
            table[name] = table[name].astype("category")
        return table[inputs], table[target]


@dataclass(frozen=True)
class Npz(Split):
    """An npz file with arrays x and y, and x_test and y_test if there is a test set.

    x holds a table (n, features) or images (n, H, W), (n, C, H, W) or, as bytes, (n, H, W, C).
    """

    name = "npz"
    summary = "an npz file of yours with x and y: npz:FILE"

    def read(self, folder: str | None) -> Raw:
        arrays = read_npz(self.path)
        for key in ("x", "y"):
            if key not in arrays:
                raise DataError(f"{self.path} has no array '{key}'; it holds {', '.join(sorted(arrays))}")
        test = (arrays["x_test"], arrays["y_test"]) if {"x_test", "y_test"} <= set(arrays) else None
        return self.assemble((arrays["x"], arrays["y"]), test)


def assemble(
    name: str,
    train: tuple[Any, Any],
    test: tuple[Any, Any] | None,
    task: str = "auto",
    share: float = 0.25,
    split: int = 0,
) -> Raw:
    """Return examples from inputs and targets as a user has them; without a test set they are split."""
    parts = [train] if test is None else [train, test]
    targets, classes = read_targets([_present_values(part[1], name) for part in parts], task, name)
    inputs = [read_inputs(part[0], f"{name}, inputs") for part in parts]
    pairs: list[RawPair] = list(zip(inputs, targets, strict=True))
    for one, (values, own) in enumerate(pairs):
        if len(values) != len(own):
            raise DataError(f"{name}: {len(values)} inputs but {len(own)} targets in part {one + 1}")
    train_pair, test_pair = pairs if test is not None else shuffled_split(*pairs[0], share, split)
    if classes is not None and len(train_pair[1].unique()) < 2:
        raise DataError(f"{name}: all training examples are of class '{classes[int(train_pair[1][0])]}'")
    return Raw(name, train_pair, test_pair, classes)


def read_inputs(value: Any, owner: str) -> Any:
    """Return a pandas DataFrame, float64 (n, features), or images (n, C, H, W) as bytes or float32."""
    if is_frame(value):
        return _as_pandas(value)
    tensor = as_tensor(value, owner)
    if tensor.dim() not in (1, 2, 3, 4) or not tensor.numel():
        raise DataError(f"{owner} of shape {tuple(tensor.shape)}; give (n, features), (n, H, W) or (n, C, H, W)")
    if tensor.dim() <= 2:
        return tensor.double().reshape(len(tensor), -1)
    if tensor.dim() == 3:
        tensor = tensor.unsqueeze(1)
    elif tensor.dtype == torch.uint8 and tensor.shape[3] in (1, 3) and tensor.shape[1] not in (1, 3):
        tensor = tensor.movedim(3, 1).contiguous()
    return tensor if tensor.dtype == torch.uint8 else tensor.float()


def read_targets(parts: Sequence[Array], task: str, owner: str) -> tuple[list[Tensor], tuple[str, ...] | None]:
    """Return the targets of each part, and the names of classes (None for real targets)."""
    values = np.concatenate(parts)
    sizes = [len(part) for part in parts]
    integers = values.dtype.kind in "iu" and values.ndim == 1
    few = integers and len(np.unique(values)) <= MOST_CLASSES
    is_text = values.dtype.kind in "OUSTb"
    if task == "real" or (task == "auto" and not (is_text or few)):
        if is_text:
            raise DataError(f"{owner}: target {values[0]!r:.40} is no number, but `task` is 'real'")
        numbers = torch.from_numpy(values.astype(np.float64)).reshape(len(values), -1)
        return list(numbers.split(sizes)), None
    names = values if integers else np.array([_text(one) for one in values.tolist()])
    distinct, places = np.unique(names, return_inverse=True)
    if len(distinct) < 2:
        raise DataError(f"{owner}: every target is '{distinct[0]}'; there must be at least two classes")
    return list(torch.from_numpy(places.reshape(-1)).split(sizes)), tuple(str(name) for name in distinct.tolist())


def _present_values(targets: Any, owner: str) -> Array:
    values = targets.detach().cpu().numpy() if isinstance(targets, Tensor) else np.asarray(targets)
    missing = [one is None or one != one for one in values.reshape(-1).tolist()] if values.dtype.kind in "Of" else []
    if any(missing):
        raise DataError(f"{owner}: the target of row {missing.index(True)} is missing; drop such rows")
    return values


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def _as_pandas(frame: Any) -> Any:
    import pandas

    if isinstance(frame, pandas.DataFrame):
        return frame.reset_index(drop=True)
    return pandas.DataFrame({str(name): frame[name].to_list() for name in frame.columns})


def read_table(path: str | os.PathLike[str]) -> Any:
    """Return a csv, tsv or parquet file as a pandas DataFrame."""
    import pandas

    place = Path(path).expanduser()
    with reading(path, "a table"):
        if place.suffix == ".parquet":
            return pandas.read_parquet(place)
        return pandas.read_csv(place, sep="\t" if place.suffix == ".tsv" else ",")


def read_npz(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Return the arrays of an npz file; arrays of objects are pickles and are refused."""
    with reading(path, "an npz file"), np.load(Path(path).expanduser(), allow_pickle=False) as found:
        return {name: found[name] for name in found.files}
