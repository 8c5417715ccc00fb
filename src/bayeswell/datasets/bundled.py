"""Data that come with scikit-learn: always there, no download."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..errors import FileError, SettingError, require_between
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
    """Examples that a seed splits into train and test, from ``file`` among scikit-learn's data."""

    test_share: float = 0.25
    split: int = 0

    name: ClassVar[str]
    paper: ClassVar[str]
    examples: ClassVar[str]
    file: ClassVar[str]
    skip: ClassVar[int] = 0
    classes: ClassVar[tuple[str, ...] | None] = None
    image: ClassVar[tuple[int, ...] | None] = None
    source: ClassVar[str] = "bundled"

    def __post_init__(self) -> None:
        require_between(self.name, "test_share", self.test_share, 0, 1, open_low=True, open_high=True)
        check_seed(self.name, self.split)

    def read(self, folder: Path | None) -> Raw:
        with needs_extra("lab", f"the data set '{self.name}'"):
            inputs, target = self.rows(_data_folder())
        kind, raw_scale = "table", 1.0
        if self.image is not None:
            # Pixels are 0 to 16; to divide by a power of two changes no digit of what follows.
            kind, inputs, raw_scale = "image", inputs.float().unflatten(1, self.image) / 16, 16.0
        targets = target.long() if self.classes else target.unsqueeze(1)
        pairs = shuffled_split(inputs, targets, test_share=self.test_share, seed=self.split)
        return Raw(self.name, kind, *pairs, self.classes, raw_scale=raw_scale)

    def rows(self, folder: Path) -> tuple[Tensor, Tensor]:
        """Inputs and targets from the one file: a column each, the target the last."""
        table = _numbers(folder / self.file, delimiter=",", skip=self.skip)
        return table[:, :-1], table[:, -1]


def _data_folder() -> Path:
    """Where scikit-learn keeps its data. It is not imported for them: that takes a second, and its files are plain."""
    found = find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")
    return Path(found.submodule_search_locations[0]) / "datasets" / "data"


def _numbers(file: Path, delimiter: str | None, skip: int = 0) -> Tensor:
    try:
        return torch.from_numpy(np.loadtxt(file, delimiter=delimiter, skiprows=skip))
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise FileError(f"{file}: the data of the installed scikit-learn cannot be read ({reason})") from error


@dataclass(frozen=True)
class Digits(_Bundled):
    """Grey 8x8 images of handwritten digits, 10 classes.

    ``split`` is the seed of the train/test split, ``test_share`` the share of the test; so for all bundled sets.
    """

    name = "digits"
    paper = "Alpaydin & Kaynak 1998, UCI"
    examples = "1,797 images 1x8x8"
    file = "digits.csv.gz"
    classes = tuple("0123456789")
    image = (1, 8, 8)


@dataclass(frozen=True)
class BreastCancer(_Bundled):
    """Breast tumours, malignant or benign, from 30 measurements of cell nuclei."""

    name = "breast_cancer"
    paper = "Wolberg, Street & Mangasarian 1995, UCI"
    examples = "569 rows, 30 features, 2 classes"
    file = "breast_cancer.csv"
    skip = 1
    classes = ("malignant", "benign")


@dataclass(frozen=True)
class Wine(_Bundled):
    """Italian wines of three growers, from 13 chemical measurements."""

    name = "wine"
    paper = "Aeberhard & Forina 1992, UCI"
    examples = "178 rows, 13 features, 3 classes"
    file = "wine_data.csv"
    skip = 1
    classes = ("class_0", "class_1", "class_2")


@dataclass(frozen=True)
class Diabetes(_Bundled):
    """Progress of diabetes after a year, from 10 measurements of a patient: regression."""

    name = "diabetes"
    paper = "Efron, Hastie, Johnstone & Tibshirani 2004"
    examples = "442 rows, 10 features, 1 real target"
    file = "diabetes_data_raw.csv.gz"

    def rows(self, folder: Path) -> tuple[Tensor, Tensor]:
        """Inputs and targets lie in two files."""
        target = folder / "diabetes_target.csv.gz"
        return _numbers(folder / self.file, delimiter=None), _numbers(target, delimiter=None)


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
