"""Data that come with scikit-learn: always there, no download."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import SettingError, require_between
from ..extras import needs_extra
from ..random import make_generator, standard_normal
from .data import Raw, scaling_of, shuffled_split


@dataclass(frozen=True)
class Split:
    """Training and test examples."""

    train_inputs: Tensor
    train_targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor


def check_split(owner: str, test_share: float, split: int) -> None:
    """The two settings of a random train/test split."""
    require_between(owner, "test_share", test_share, 0, 1, open_low=True, open_high=True)
    check_seed(owner, split)


def check_seed(owner: str, split: int) -> None:
    """The seed of a random train/test split."""
    if isinstance(split, bool) or not isinstance(split, int) or split < 0:
        raise SettingError(f"{owner}: split = {split!r}; it is the seed of the train/test split, a whole number from 0")


@dataclass(frozen=True)
class Digits:
    """Grey 8x8 images of handwritten digits, 10 classes.

    ``split`` is the seed of the train/test split, ``test_share`` the share of the test; so for all bundled sets.
    """

    test_share: float = 0.25
    split: int = 0

    name: ClassVar[str] = "digits"
    paper: ClassVar[str] = "Alpaydin & Kaynak 1998, UCI"
    examples: ClassVar[str] = "1,797 images 1x8x8"
    source: ClassVar[str] = "bundled"

    def __post_init__(self) -> None:
        check_split(self.name, self.test_share, self.split)

    def read(self, folder: Path | None) -> Raw:
        found = _bundle(self.name, "load_digits")
        # Pixels are 0 to 16; to divide by a power of two changes no digit of what follows.
        inputs = torch.from_numpy(found.images).float().unsqueeze(1) / 16
        targets = torch.from_numpy(found.target).long()
        pairs = shuffled_split(inputs, targets, test_share=self.test_share, seed=self.split)
        return Raw(self.name, "image", *pairs, tuple(map(str, range(10))), raw_scale=16.0)


@dataclass(frozen=True)
class BreastCancer:
    """Breast tumours, malignant or benign, from 30 measurements of cell nuclei."""

    test_share: float = 0.25
    split: int = 0

    name: ClassVar[str] = "breast_cancer"
    paper: ClassVar[str] = "Wolberg, Street & Mangasarian 1995, UCI"
    examples: ClassVar[str] = "569 rows, 30 features, 2 classes"
    source: ClassVar[str] = "bundled"

    def __post_init__(self) -> None:
        check_split(self.name, self.test_share, self.split)

    def read(self, folder: Path | None) -> Raw:
        return _table(self.name, _bundle(self.name, "load_breast_cancer"), self.test_share, self.split)


@dataclass(frozen=True)
class Wine:
    """Italian wines of three growers, from 13 chemical measurements."""

    test_share: float = 0.25
    split: int = 0

    name: ClassVar[str] = "wine"
    paper: ClassVar[str] = "Aeberhard & Forina 1992, UCI"
    examples: ClassVar[str] = "178 rows, 13 features, 3 classes"
    source: ClassVar[str] = "bundled"

    def __post_init__(self) -> None:
        check_split(self.name, self.test_share, self.split)

    def read(self, folder: Path | None) -> Raw:
        return _table(self.name, _bundle(self.name, "load_wine"), self.test_share, self.split)


@dataclass(frozen=True)
class Diabetes:
    """Progress of diabetes after a year, from 10 measurements of a patient: regression."""

    test_share: float = 0.25
    split: int = 0

    name: ClassVar[str] = "diabetes"
    paper: ClassVar[str] = "Efron, Hastie, Johnstone & Tibshirani 2004"
    examples: ClassVar[str] = "442 rows, 10 features, 1 real target"
    source: ClassVar[str] = "bundled"

    def __post_init__(self) -> None:
        check_split(self.name, self.test_share, self.split)

    def read(self, folder: Path | None) -> Raw:
        # Unscaled: scikit-learn scales by all rows, the test rows among them.
        return _table(self.name, _bundle(self.name, "load_diabetes", scaled=False), self.test_share, self.split)


def _bundle(owner: str, loader: str, **settings: Any) -> Any:
    # Imported here: scikit-learn takes a second, and who brings their own data does not need it.
    with needs_extra("lab", f"the data set '{owner}'"):
        from sklearn import datasets
    return getattr(datasets, loader)(**settings)


def _table(name: str, found: Any, test_share: float, split: int) -> Raw:
    names = tuple(map(str, found.target_names)) if "target_names" in found else None
    target = torch.from_numpy(found.target)
    targets = target.long() if names else target.double().unsqueeze(1)
    inputs = torch.from_numpy(found.data).double()
    return Raw(name, "table", *shuffled_split(inputs, targets, test_share=test_share, seed=split), names)


def digits(*, test_share: float = 0.25, seed: int = 0) -> Split:
    """1,797 grey 8x8 images of handwritten digits as (n, 1, 8, 8), standardised by the training pixels."""
    raw = Digits(test_share, seed).read(None)
    assert raw.train is not None
    scaling = scaling_of(raw.kind, raw.train, classes=True)
    (train, train_targets), (test, test_targets) = raw.train, raw.test
    return Split(scaling.inputs(train), train_targets, scaling.inputs(test), test_targets)


def noise_like(inputs: Tensor, *, seed: int = 0) -> Tensor:
    """Gaussian noise with the shape, mean and std of the inputs: out-of-distribution examples."""
    noise = standard_normal(inputs.shape, like=inputs, generator=make_generator(seed))
    return noise * inputs.std() + inputs.mean()
