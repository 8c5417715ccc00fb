"""From a name to a data set in memory."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import DataError, SettingError, nearest, require_count
from ..random import derive_seed, make_generator
from ..registry import Registry
from ..tables import Columns, Scaling, Table, scaling_of, warn_of_outliers
from ..tables.arrays import words
from .bundled import BreastCancer, Diabetes, Digits, Wine
from .data import Data, DataPart, Pair, Raw, RawPair, split_in_two
from .files import data_folders, release_present
from .gap import Gap
from .own import Csv, Images, Npz
from .pictures import Cifar10, Cifar100, FashionMnist, Mnist, NotMnist, Svhn, SvhnOod
from .reviews import Imdb
from .shifted import Corrupted, Noise
from .uci import Uci

DATASETS: Registry[DataPart] = Registry(
    "data set",
    *(Digits, BreastCancer, Wine, Diabetes, Gap),
    *(Mnist, FashionMnist, NotMnist, Cifar10, Cifar100, Svhn, SvhnOod),
    *(Imdb, Uci),
    *(Csv, Npz, Images),
    *(Noise, Corrupted),
)
"""Data sets by name; ``load_data`` takes them, and files of your own."""
VALIDATION_RULES = ("last", "seed")

Choice = str | Mapping[str, Any] | DataPart
AnyPath = str | os.PathLike[str]


def find_data(choice: Choice) -> DataPart:
    """A data set from its name, ``{"name": ..., setting: value}``, ``uci_<set>``, or the path of a csv or npz file."""
    if isinstance(choice, str):
        name = choice.replace("-", "_")
        if name.startswith("uci_"):
            return Uci(set=name.removeprefix("uci_"))
        if choice.lower().endswith(".csv"):
            return Csv(path=choice)
        if choice.lower().endswith(".npz"):
            return Npz(path=choice)
    if isinstance(choice, Mapping) and str(choice.get("name")).replace("-", "_").startswith("uci_"):
        chosen = str(choice["name"]).replace("-", "_").removeprefix("uci_")
        return DATASETS.resolve({**choice, "name": "uci", "set": chosen})
    return DATASETS.resolve(choice)


def is_data_name(name: str) -> bool:
    """Whether a data set has this name, or its short form for one of the UCI sets; else it may be a path."""
    return DATASETS.knows(name) or name.replace("-", "_").startswith("uci_")


def load_data(
    choice: Choice,
    *,
    validation: int | float | None = None,
    validation_rule: str = "seed",
    train_size: int | float | None = None,
    seed: int = 0,
    standardise: bool = True,
    folder: AnyPath | None = None,
) -> Data:
    """Train, validation and test examples in memory, standardised by the training examples alone.

    ``validation`` is how many training examples (a whole number), or which share of them (below 1), are held out:
    drawn by ``seed``, or with the rule ``last`` the last of the training set, as papers do. ``train_size`` keeps so
    many of the others (or such a share) to train on, drawn by ``seed``; what is held out is the same for every size.
    The test examples do not depend on ``seed``. ``folder`` is where files lie, if not in BAYESWELL_DATA or the cache
    folder. Without ``standardise`` images stay in [0, 1] and tables in their own units.
    """
    part = find_data(choice)
    if validation_rule not in VALIDATION_RULES:
        raise SettingError(f"validation_rule = {validation_rule!r}; {nearest(str(validation_rule), VALIDATION_RULES)}")
    raw = part.read(None if folder is None else Path(folder))
    if raw.train is None:
        raise DataError(
            f"'{raw.name}' has test examples only, nothing to learn from: measure a run on it, or use it as an "
            "out-of-distribution set"
        )
    train: RawPair = raw.train
    held: RawPair | None = None
    if count := _validation_count(validation, len(raw.train[1])):
        train, held = split_in_two(raw.train, count, seed=seed if validation_rule == "seed" else None)
    train = _some(train, train_size, seed)
    classes = raw.class_names is not None
    columns = Columns.learn(train[0]) if isinstance(train[0], Table) else None
    _warn_of_outliers(raw, train)
    learned = (numbers_of(train[0], columns), train[1])
    made = None if columns is None else torch.from_numpy(columns.made)
    real = None if classes else learned[1]
    scaling = scaling_of(raw.kind, learned[0], real, as_they_are=made) if standardise else Scaling()
    done = _scaled(learned, scaling)
    return Data(
        name=raw.name,
        train=done,
        validation=None if held is None else _scaled((numbers_of(held[0], columns), held[1]), scaling),
        test=_scaled((numbers_of(raw.test[0], columns), raw.test[1]), scaling),
        input_shape=tuple(done[0].shape[1:]),
        outputs=len(raw.class_names) if raw.class_names is not None else done[1].shape[1],
        likelihood="categorical" if classes else "gaussian",
        class_names=raw.class_names,
        scaling=scaling,
        vocabulary=raw.vocabulary,
        raw_scale=255.0 if getattr(raw.test[0], "dtype", None) == torch.uint8 else raw.raw_scale,
        columns=raw.columns,
        target_name=raw.target_name,
        table=columns,
    )


def load_inputs(
    choice: Choice, like: Data, *, count: int | None = None, seed: int = 0, folder: AnyPath | None = None
) -> Tensor:
    """Out-of-distribution inputs for ``like``, in its shape and scaling: noise, another test set, or corrupted.

    ``count`` takes so many of them, drawn by ``seed``. Without it ``corrupted`` keeps the order of ``like``'s test
    targets, which still belong to the images.
    """
    part = find_data(choice)
    if isinstance(part, Noise | Corrupted):
        inputs = part.inputs_like(like, seed)
    else:
        raw = part.read(None if folder is None else Path(folder))
        if raw.name == like.name and part.source != "own":
            raise DataError(f"'{raw.name}' is the data set itself; an out-of-distribution set is another one")
        other = numbers_of(raw.test[0], like.table)
        found = tuple(other.shape[1:])
        if found != like.input_shape or raw.vocabulary != like.vocabulary:
            raise DataError(
                f"'{raw.name}' has inputs of shape {found}, '{like.name}' of {like.input_shape}; they must agree"
            )
        inputs = like.scaling.inputs(other)
    if count is None:
        return inputs
    require_count("out-of-distribution set", "count", count)
    if count > len(inputs):
        raise DataError(f"'{part.name}' has {len(inputs):,} inputs; {count:,} were asked for")
    order = torch.randperm(len(inputs), generator=make_generator(derive_seed(seed, "count")))
    return inputs[order[:count].sort().values]


def data_status(choice: Choice, folder: AnyPath | None = None) -> str:
    """Whether a data set needs no file ("bundled"), and else whether its files are there ("present" or "absent").

    They are not opened. One's own data (csv, npz, images) are absent until a path is named that exists.
    """
    if isinstance(choice, str) and choice in DATASETS and DATASETS[choice].source == "own":
        return "absent"
    part = find_data(choice)
    if part.source in {"bundled", "derived"}:
        return "bundled"
    if part.source == "own":
        return "present" if Path(getattr(part, "path", "")).exists() else "absent"
    return "present" if release_present(getattr(part, "releases", ()), data_folders(folder)) else "absent"


def as_real(inputs: Tensor) -> Tensor:
    """Pixels stored as bytes to [0, 1]; all else as it is."""
    return inputs.float().div_(255) if inputs.dtype == torch.uint8 else inputs


def numbers_of(inputs: Tensor | Table, columns: Columns | None) -> Tensor:
    """Pixels in [0, 1], a table as the training rows' columns say (without them as its own do), all else as it is."""
    if isinstance(inputs, Table):
        return torch.from_numpy((columns or Columns.learn(inputs)).matrix(inputs))
    return as_real(inputs)


def _warn_of_outliers(raw: Raw, train: RawPair) -> None:
    """Tell numbers that swallow the scale of a column; of a table of one's own, its columns have told theirs."""
    inputs, targets = train
    if raw.kind == "table" and isinstance(inputs, Tensor):
        for column, values in enumerate(inputs.double().T.numpy()):
            warn_of_outliers(values, words(raw.name, str(column + 1)), stacklevel=4)
    if raw.class_names is None:
        rows = inputs.rows if isinstance(inputs, Table) else None
        owner = inputs.owner if isinstance(inputs, Table) else f"{raw.name}, targets"
        for output, values in enumerate(targets.double().T.numpy()):
            name = raw.target_name or (str(output + 1) if targets.shape[1] > 1 else "")
            warn_of_outliers(values, words(owner, name, rows), stacklevel=4)


def _scaled(pair: Pair, scaling: Scaling) -> Pair:
    """A pair standardised; in place for float32, which are ours alone: fresh memory would cost most of the time."""
    inputs, targets = pair[0], scaling.targets(pair[1])
    shift, scale = scaling.input_shift, scaling.input_scale
    if shift is None or scale is None or not inputs.dtype == shift.dtype == torch.float32:
        return scaling.inputs(inputs), targets
    return inputs.sub_(shift).div_(scale), targets


def _some(train: RawPair, size: float | None, seed: int) -> RawPair:
    """So many of the training examples; those of a smaller size are among those of a larger one."""
    if size is None:
        return train
    whole = len(train[1])
    count = _train_count(size, whole)
    if not 0 < count <= whole:
        raise SettingError(
            f"train_size = {size!r}; a number from 1 to the {whole:,} training examples there are, or a share below 1"
        )
    return split_in_two(train, whole - count, seed=derive_seed(seed, "train_size"))[0]


def _train_count(size: Any, whole: int) -> int:
    """0 of what is neither a number of examples nor a share of them."""
    if isinstance(size, bool) or not isinstance(size, int | float) or not math.isfinite(size):
        return 0
    if size < 1:
        return round(size * whole)
    ambiguous = isinstance(size, float) and size == 1  # all of them to one, a single one to another
    return int(size) if size == int(size) and not ambiguous else 0


def _validation_count(validation: float | None, examples: int) -> int:
    if validation is None or validation == 0:
        return 0
    if isinstance(validation, int) and not isinstance(validation, bool) and 0 < validation < examples:
        return validation
    if isinstance(validation, float) and 0 < validation < 1:
        count = round(validation * examples)
        if 0 < count < examples:
            return count
        left = "none to learn from" if count else "none to look at"
        raise SettingError(
            f"validation = {validation!r} of {examples:,} training examples holds out {count:,}, which leaves {left}; "
            f"give a number of examples from 1 to {examples - 1:,}"
        )
    raise SettingError(
        f"validation = {validation!r}; it must be a whole number from 1 to {examples - 1}, the training examples "
        "being fewer by so many, or a share between 0 and 1"
    )
