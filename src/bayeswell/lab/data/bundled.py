"""Data sets that need no files: those of scikit-learn, and a curve with a gap."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...core.errors import MissingExtra
from ...core.random import make_generator
from .dataset import Raw, shuffled_split


@dataclass(frozen=True)
class Bundled:
    """Examples of scikit-learn, split into train and test.

    Args:
        test_share: share of the test examples.
        split: seed of the split.
    """

    test_share: float = 0.25
    split: int = 0

    name: ClassVar[str]
    summary: ClassVar[str]
    loader: ClassVar[str]
    settings: ClassVar[dict[str, Any]] = {}

    def read(self, folder: str | None) -> Raw:
        try:
            datasets = importlib.import_module("sklearn.datasets")
        except ImportError as error:
            raise MissingExtra(f"data '{self.name}' needs scikit-learn: pip install 'bayeswell[lab]'") from error
        found = getattr(datasets, self.loader)(**self.settings)
        inputs, targets = torch.tensor(found.data), torch.tensor(found.target)
        names = tuple(map(str, found.target_names)) if "target_names" in found else None
        targets = targets.unsqueeze(1) if names is None else targets.long()
        train, test = shuffled_split(self.inputs(inputs), targets, self.test_share, self.split)
        return Raw(self.name, train, test, names)

    def inputs(self, values: Tensor) -> Tensor:
        return values


@dataclass(frozen=True)
class Digits(Bundled):
    name = "digits"
    summary = "1,797 gray 8x8 images of handwritten digits, 10 classes"
    loader = "load_digits"

    def inputs(self, values: Tensor) -> Tensor:
        """Pixels are stored as 0 to 16."""
        return values.float().reshape(-1, 1, 8, 8) / 16


@dataclass(frozen=True)
class BreastCancer(Bundled):
    name = "breast-cancer"
    summary = "569 rows, 30 measurements of cell nuclei, 2 classes"
    loader = "load_breast_cancer"


@dataclass(frozen=True)
class Wine(Bundled):
    name = "wine"
    summary = "178 rows, 13 chemical measurements, 3 classes"
    loader = "load_wine"


@dataclass(frozen=True)
class Diabetes(Bundled):
    name = "diabetes"
    summary = "442 rows, 10 measurements of a patient, 1 real target"
    loader = "load_diabetes"
    settings: ClassVar[dict[str, Any]] = {"scaled": False}


@dataclass(frozen=True)
class Gap:
    """y = sin(2x) + noise with a gap in the training inputs (in the manner of Foong et al. 2019, arXiv 1906.11537).

    120 training inputs lie in [-3, -1] and [1, 3], 300 test inputs in all of [-3, 3].

    Args:
        noise: std of the noise.
        split: seed of inputs and noise.
    """

    noise: float = 0.1
    split: int = 0

    name: ClassVar[str] = "gap"
    summary: ClassVar[str] = "a curve with a gap in its training inputs, 1 real target"

    def read(self, folder: str | None) -> Raw:
        generator = make_generator(self.split)

        def uniform(count: int) -> Tensor:
            return torch.rand(count, 1, generator=generator, dtype=torch.float64)

        def targets(inputs: Tensor) -> Tensor:
            noise = torch.randn(inputs.shape, generator=generator, dtype=torch.float64)
            return (2 * inputs).sin() + self.noise * noise

        side = torch.arange(120).remainder(2).mul(2).sub(1).unsqueeze(1)
        train = (1 + 2 * uniform(120)) * side
        test = 6 * uniform(300) - 3
        return Raw(self.name, (train, targets(train)), (test, targets(test)))
