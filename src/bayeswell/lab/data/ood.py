"""Out-of-distribution inputs for a data set: noise, corrupted test images, or another data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...core.errors import DataError
from ...core.random import make_generator, standard_normal
from .corruptions import check_severity, corrupt, read_published
from .dataset import DataSet, Pair, Raw


@dataclass(frozen=True)
class _Derived:
    """Inputs that are made from the test inputs of another data set."""

    name: ClassVar[str]
    summary: ClassVar[str]

    def read(self, folder: str | None) -> Raw:
        raise DataError(f"'{self.name}' is made from another data set; use it as out-of-distribution data: ood")

    def inputs_like(self, data: DataSet) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True)
class Noise(_Derived):
    """Gaussian noise with the mean and std of the test inputs; random words for tokens (Hendrycks & Gimpel 2017).

    Args:
        seed: of the noise.
    """

    seed: int = 0

    name = "noise"
    summary = "Gaussian noise in place of the test inputs, for OOD tests only"

    def inputs_like(self, data: DataSet) -> Tensor:
        inputs, generator = data.test[0], make_generator(self.seed)
        if data.vocabulary is not None:
            return torch.randint(data.vocabulary, inputs.shape, generator=generator)
        return standard_normal(inputs.shape, like=inputs, generator=generator) * inputs.std() + inputs.mean()


@dataclass(frozen=True)
class Corrupted(_Derived):
    """Corrupted test images.

    Args:
        corruption: "noise", "blur", "contrast" or "rotation", or a name of the files in ``path``.
        severity: 1 to 5.
        seed: of random corruptions.
        path: of a folder like CIFAR-10-C; None: the test images are corrupted here.
    """

    corruption: str = "noise"
    severity: int = 3
    seed: int = 0
    path: str | None = None

    name = "corrupted"
    summary = "the test images corrupted, or the files of CIFAR-10-C, for OOD tests only"

    def inputs_like(self, data: DataSet) -> Tensor:
        return corrupted_test(data, self.corruption, self.severity, seed=self.seed, path=self.path)[0]


def corrupted_test(data: DataSet, corruption: str, severity: int, *, seed: int = 0, path: str | None = None) -> Pair:
    """Return corrupted test images with their classes, scaled like the data; arguments as in ``Corrupted``."""
    if path is None:
        images = corrupt(data.raw_inputs(data.test[0]), corruption, severity, seed=seed)
        return data.preparation.inputs(images), data.test[1]
    check_severity(severity)
    pixels, targets = read_published(path, corruption, severity)
    if tuple(pixels.shape[1:]) != data.input_shape:
        raise DataError(f"{path}: images of shape {tuple(pixels.shape[1:])}, but '{data.name}' has {data.input_shape}")
    return data.preparation.inputs(pixels.float() / 255), targets


def ood_choices(choices: Any) -> dict[str, Any]:
    """Return choices of out-of-distribution data by a name that shows their settings."""
    several = choices if isinstance(choices, Sequence) and not isinstance(choices, str) else (choices,)
    return {_label(choice): choice for choice in several}


def _label(choice: Any) -> str:
    if isinstance(choice, Mapping):
        return " ".join([str(choice.get("name")), *(f"{key}={choice[key]}" for key in choice if key != "name")])
    return choice if isinstance(choice, str) else str(choice.name)
