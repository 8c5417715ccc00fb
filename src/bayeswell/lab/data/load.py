"""Data sets by name, from files, and from Python objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...core.errors import DataError, SettingError, check_choice, nearest
from ...core.random import derive_seed, make_generator
from ...core.registry import Registry
from ...tables import CLASSES, REAL, Preparation
from ..settings import run_code
from .bundled import BreastCancer, Diabetes, Digits, Gap, Wine
from .dataset import DataPart, DataSet, Pair, Raw, RawPair, pair_rows, share_count, split_pair
from .image_sets import Cifar10, Cifar100, FashionMnist, Mnist, NotMnist, Svhn, SvhnOod
from .ood import Corrupted, Noise, ood_choices
from .own import Npz, Table, assemble
from .reviews import Imdb
from .uci import SETS, Uci

DATASETS: Registry[DataPart] = Registry(
    "data set",
    *(Digits, BreastCancer, Wine, Diabetes, Gap),
    *(Mnist, FashionMnist, NotMnist, Cifar10, Cifar100, Svhn, SvhnOod),
    *(Imdb, Uci, Table, Npz, Noise, Corrupted),
    requires=("read",),
)
"""Data sets by name."""
FILES = (Table.name, Npz.name)
RULES = ("seed", "last")
_AT_ONCE = 10_000


def find_data(choice: Any) -> DataPart:
    """Return a data set from a name, "table:FILE", ``{"name": ..., setting: value}``, code, or a part.

    "uci-boston" is the set "boston" of "uci".
    """
    if isinstance(choice, str | Mapping):
        settings = {"name": choice} if isinstance(choice, str) else dict(choice)
        kind, colon, path = str(settings.get("name")).partition(":")
        name = kind.replace("_", "-")
        if colon and name in FILES:
            settings |= {"name": name, "path": path}
        elif name.removeprefix("uci-") in SETS and name.startswith("uci-"):
            settings |= {"name": "uci", "set": name.removeprefix("uci-")}
        return DATASETS.resolve(settings)
    return DATASETS.resolve(choice)


def _read(choice: Any, folder: str | None) -> Raw:
    if not isinstance(choice, tuple | list):
        return find_data(choice).read(folder)
    if len(choice) not in (2, 4):
        raise DataError(f"data of {len(choice)} arrays; give (x, y) or (x, y, x_test, y_test)")
    return assemble("data", tuple(choice[:2]), tuple(choice[2:]) or None)


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
        choice: a name such as "digits", "mnist" or "uci-boston"; "table:FILE" or "npz:FILE";
            ``{"name": ..., setting: value}``; ``Code``; (x, y) or (x, y, x_test, y_test) as arrays or frames; or a
            ``DataSet``, which is not scaled again.
        validation: held-out training examples: a number, or a share below 1.
        validation_rule: "seed": drawn by ``seed``; "last": the last of the training examples.
        train_size: use so many of the other training examples, or such a share. Smaller sets are parts of larger ones.
        fold: "I/K": test on part I of K parts of all examples.
        seed: of the examples that are held out or left out. Test examples do not depend on it.
        standardize: False: pixels stay in [0, 1], features and targets in their units.
        ood: out-of-distribution inputs: a choice such as "noise", or several.
        preparation: that of a trained model; None: learned from the training examples.
        folder: searched for files before the folders of BAYESWELL_DATA and the cache.
    """
    check_choice("data", "validation_rule", validation_rule, RULES)
    choice = run_code("data", choice)
    if isinstance(choice, DataSet):
        train, held = _hold_out(choice.train, validation, validation_rule, seed)
        return _with_ood(dataclasses.replace(choice, train=train, validation=held or choice.validation), ood, folder)
    raw = _read(choice, folder)
    raw = raw if fold is None else raw.fold(*_fold(fold))
    train, held = _hold_out(raw.examples, validation, validation_rule, seed)
    train = train if train_size is None else _first_rows(train, train_size, seed)
    known = preparation or _learn(raw, train, standardize)
    data = DataSet(
        name=raw.name,
        train=_prepare(raw, train, known),
        test=_prepare(raw, raw.test, known),
        preparation=known,
        validation=None if held is None else _prepare(raw, held, known),
        vocabulary=raw.vocabulary,
    )
    return _with_ood(data, ood, folder)


def _with_ood(data: DataSet, choices: Any, folder: str | None) -> DataSet:
    found = {name: _ood_inputs(choice, data, folder) for name, choice in ood_choices(choices).items()}
    return dataclasses.replace(data, ood={**data.ood, **found})


def _ood_inputs(choice: Any, data: DataSet, folder: str | None) -> Tensor:
    part = find_data(choice)
    if isinstance(part, Noise | Corrupted):
        return part.inputs_like(data)
    raw = part.read(folder)
    if raw.name == data.name:
        raise DataError(f"'{raw.name}' is the data set itself; its out-of-distribution data must be another set")
    inputs = raw.test[0]
    shape = tuple(inputs.shape[1:])
    if isinstance(inputs, Tensor) and (shape != data.input_shape or raw.vocabulary != data.vocabulary):
        raise DataError(f"'{raw.name}' has inputs of shape {shape}, but '{data.name}' of {data.input_shape}")
    return _prepare_inputs(inputs, data.preparation)


def _hold_out(train: RawPair, validation: int | float | None, rule: str, seed: int) -> tuple[RawPair, RawPair | None]:
    if not validation:
        return train, None
    return split_pair(train, share_count("validation", validation, len(train[1])), rule, seed)


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


def _learn(raw: Raw, train: RawPair, standardize: bool) -> Preparation:
    kind = REAL if raw.class_names is None else CLASSES
    found = Preparation.fit(real_pixels(train[0]), train[1], standardize=standardize, kind=kind)
    return dataclasses.replace(found, class_names=raw.class_names)


def real_pixels(inputs: Any) -> Any:
    """Return bytes as numbers in [0, 1]; other inputs stay."""
    is_bytes = isinstance(inputs, Tensor) and inputs.dtype == torch.uint8
    return inputs.float() / 255 if is_bytes else inputs


def _prepare_inputs(inputs: Any, preparation: Preparation) -> Tensor:
    if not isinstance(inputs, Tensor):
        return preparation.inputs(inputs)  # type: ignore[no-any-return]
    # In pieces: scaling makes several copies in float64.
    return torch.cat([preparation.inputs(real_pixels(piece)) for piece in inputs.split(_AT_ONCE)])


def _prepare(raw: Raw, pair: RawPair, preparation: Preparation) -> Pair:
    inputs, names = _prepare_inputs(pair[0], preparation), preparation.class_names
    if raw.class_names is None:
        return inputs, preparation.targets(pair[1])
    if names is None or names == raw.class_names:
        return inputs, pair[1]
    for name in raw.class_names:
        if name not in names:
            raise SettingError(f"'{raw.name}' has the class '{name}'; {nearest(name, names)}")
    return inputs, torch.tensor([names.index(name) for name in raw.class_names])[pair[1]]
