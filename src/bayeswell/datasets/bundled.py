"""Data that come with scikit-learn: always there, no download."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import SettingError, require_between
from ..extras import needs_extra
from ..random import make_generator, standard_normal
from ..tables import scaling_of
from .data import Raw, shuffled_split


@dataclass(frozen=True)
class Split:
    """Training and test examples."""

    train_inputs: Tensor
    train_targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor


def check_seed(owner: str, split: int) -> None:
    """The seed of a random train/test split."""
    if isinstance(split, bool) or not isinstance(split, int) or split < 0:
        raise SettingError(f"{owner}: split = {split!r}; it is the seed of the train/test split, a whole number from 0")


@dataclass(frozen=True)
class _Bundled:
    """Examples that a seed splits into train and test; ``loader`` is scikit-learn's function."""

    test_share: float = 0.25
    split: int = 0

    name: ClassVar[str]
    paper: ClassVar[str]
    examples: ClassVar[str]
    loader: ClassVar[str]
    source: ClassVar[str] = "bundled"

    def __post_init__(self) -> None:
        require_between(self.name, "test_share", self.test_share, 0, 1, open_low=True, open_high=True)
        check_seed(self.name, self.split)

    def read(self, folder: Path | None) -> Raw:
        # Imported here: scikit-learn takes a second, and who brings their own data does not need it.
        with needs_extra("lab", f"the data set '{self.name}'"):
            from sklearn import datasets
        # Unscaled: scikit-learn scales diabetes by all rows, the test rows among them.
        found = getattr(datasets, self.loader)(**({"scaled": False} if self.loader == "load_diabetes" else {}))
        kind, inputs, raw_scale = "table", torch.from_numpy(found.data).double(), 1.0
        if "images" in found:
            # Pixels are 0 to 16; to divide by a power of two changes no digit of what follows.
            kind, inputs, raw_scale = "image", torch.from_numpy(found.images).float().unsqueeze(1) / 16, 16.0
        names = tuple(map(str, found.target_names)) if "target_names" in found else None
        target = torch.from_numpy(found.target)
        targets = target.long() if names else target.double().unsqueeze(1)
        pairs = shuffled_split(inputs, targets, test_share=self.test_share, seed=self.split)
        return Raw(self.name, kind, *pairs, names, raw_scale=raw_scale)


@dataclass(frozen=True)
class Digits(_Bundled):
    """Grey 8x8 images of handwritten digits, 10 classes.

    ``split`` is the seed of the train/test split, ``test_share`` the share of the test; so for all bundled sets.
    """

    name = "digits"
    paper = "Alpaydin & Kaynak 1998, UCI"
    examples = "1,797 images 1x8x8"
    loader = "load_digits"


@dataclass(frozen=True)
class BreastCancer(_Bundled):
    """Breast tumours, malignant or benign, from 30 measurements of cell nuclei."""

    name = "breast_cancer"
    paper = "Wolberg, Street & Mangasarian 1995, UCI"
    examples = "569 rows, 30 features, 2 classes"
    loader = "load_breast_cancer"


@dataclass(frozen=True)
class Wine(_Bundled):
    """Italian wines of three growers, from 13 chemical measurements."""

    name = "wine"
    paper = "Aeberhard & Forina 1992, UCI"
    examples = "178 rows, 13 features, 3 classes"
    loader = "load_wine"


@dataclass(frozen=True)
class Diabetes(_Bundled):
    """Progress of diabetes after a year, from 10 measurements of a patient: regression."""

    name = "diabetes"
    paper = "Efron, Hastie, Johnstone & Tibshirani 2004"
    examples = "442 rows, 10 features, 1 real target"
    loader = "load_diabetes"


def digits(*, test_share: float = 0.25, seed: int = 0) -> Split:
    """1,797 grey 8x8 images of handwritten digits as (n, 1, 8, 8), standardised by the training pixels."""
    raw = Digits(test_share, seed).read(None)
    assert raw.train is not None
    (train, train_targets), (test, test_targets) = raw.train, raw.test
    assert isinstance(train, Tensor)
    assert isinstance(test, Tensor)
    scaling = scaling_of(raw.kind, train, None)
    return Split(scaling.inputs(train), train_targets, scaling.inputs(test), test_targets)


def noise_like(inputs: Tensor, *, seed: int = 0) -> Tensor:
    """Gaussian noise with the shape, mean and std of the inputs: out-of-distribution examples."""
    noise = standard_normal(inputs.shape, like=inputs, generator=make_generator(seed))
    return noise * inputs.std() + inputs.mean()
