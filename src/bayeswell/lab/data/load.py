"""Data sets by name, from files, and from Python objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...core.errors import SettingError, check_choice, nearest
from ...core.random import derive_seed, make_generator
from ...core.registry import Registry
from ...tables import CLASSES, REAL, Preparation
from .bundled import BreastCancer, Diabetes, Digits, Gap, Wine
from .dataset import DataPart, DataSet, Pair, Raw, RawPair, pair_rows, share_count, split_pair

DATASETS: Registry[DataPart] = Registry(
    "data set",
    *(Digits, BreastCancer, Wine, Diabetes, Gap),
    requires=("read",),
)
"""Data sets by name."""
RULES = ("seed", "last")
_AT_ONCE = 10_000


def find_data(choice: Any) -> DataPart:
    return DATASETS.resolve(choice)


def load_data(
    choice: Any,
    *,
    validation: int | float | None = None,
    validation_rule: str = "seed",
    train_size: int | float | None = None,
    fold: str | None = None,
    seed: int = 0,
    standardize: bool = True,
    ood: Any = (),
    preparation: Preparation | None = None,
    folder: str | None = None,
) -> DataSet:
    """Return a data set whose inputs and real targets are scaled by the training examples.

    Args:
        choice: a name, ``{"name": ..., setting: value}``, a part, or a ``DataSet``.
        validation: held-out training examples: a number, or a share below 1.
        validation_rule: "seed": drawn by ``seed``; "last": the last of the training examples.
        train_size: use so many of the other training examples, or such a share. Smaller sets are parts of larger ones.
        fold: "I/K": test on part I of K parts of all examples.
        seed: of the examples that are held out or left out. Test examples do not depend on it.
        standardize: False: pixels stay in [0, 1], features and targets in their units.
        ood: out-of-distribution inputs: a choice or a sequence of choices.
        preparation: that of a trained model; None: learned from the training examples.
        folder: searched for files before the folders of BAYESWELL_DATA and the cache.
    """
    raw = find_data(choice).read(folder)
    if fold is not None:
        raw = raw.fold(*_fold(fold))
    train, held = raw.examples, None
    if validation:
        check_choice("data", "validation_rule", validation_rule, RULES)
        train, held = split_pair(train, share_count("validation", validation, len(train[1])), validation_rule, seed)
    if train_size is not None:
        train = _first_rows(train, train_size, seed)
    known = preparation or _learn(raw, train, standardize)
    return DataSet(
        name=raw.name,
        train=_prepare(raw, train, known),
        test=_prepare(raw, raw.test, known),
        preparation=known,
        validation=None if held is None else _prepare(raw, held, known),
        vocabulary=raw.vocabulary,
    )


def _fold(text: Any) -> tuple[int, int]:
    number, slash, count = str(text).partition("/")
    if not (slash and number.isdigit() and count.isdigit()):
        raise SettingError(f"`fold` = {text!r}; write I/K, part I of K: 1/5 to 5/5")
    return int(number), int(count)


def _first_rows(train: RawPair, size: int | float, seed: int) -> RawPair:
    whole = len(train[1])
    if size == whole:
        return train
    order = torch.randperm(whole, generator=make_generator(derive_seed(seed, "train_size")))
    return pair_rows(train, order[: share_count("train_size", size, whole)].sort().values)


def real_pixels(inputs: Any) -> Any:
    """Return bytes as numbers in [0, 1]; other inputs stay."""
    is_bytes = isinstance(inputs, Tensor) and inputs.dtype == torch.uint8
    return inputs.float() / 255 if is_bytes else inputs


def _learn(raw: Raw, train: RawPair, standardize: bool) -> Preparation:
    real = raw.class_names is None
    kind = REAL if real else CLASSES
    found = Preparation.fit(real_pixels(train[0]), train[1], standardize=standardize, kind=kind)
    return dataclasses.replace(found, class_names=raw.class_names)


def prepare_inputs(inputs: Any, preparation: Preparation) -> Tensor:
    """Return raw inputs as scaled tensors, in pieces: scaling needs several copies in float64."""
    if not isinstance(inputs, Tensor):
        return preparation.inputs(inputs)  # type: ignore[no-any-return]
    return torch.cat([preparation.inputs(real_pixels(piece)) for piece in inputs.split(_AT_ONCE)])


def _prepare(raw: Raw, pair: RawPair, preparation: Preparation) -> Pair:
    inputs = prepare_inputs(pair[0], preparation)
    if raw.class_names is None:
        return inputs, preparation.targets(pair[1])
    return inputs, _class_numbers(raw, pair[1], preparation.class_names)


def _class_numbers(raw: Raw, targets: Tensor, names: tuple[str, ...] | None) -> Tensor:
    own = raw.class_names or ()
    if names is None or names == own:
        return targets
    places: Mapping[str, int] = {name: place for place, name in enumerate(names)}
    for name in own:
        if name not in places:
            raise SettingError(f"'{raw.name}' has the class '{name}'; {nearest(name, names)}")
    return torch.tensor([places[name] for name in own])[targets]
